// SPDX-License-Identifier: MIT OR Apache-2.0

//! Every import survives null and wild arguments: it returns, or bug checks the host of its caller.
//!
//! Windows bug checks when a kernel function accesses an invalid address that a driver passed (0x0a, 0x50, 0x7e, 0xd1;
//! WDK, "Bug Check Code Reference"). The process that runs the simulation, and its other hosts, must live on.
//!
//! A program of its own: each of some thousand calls ends a simulation while it runs, and the threads that wait in it stay. Processes share
//! the functions, since these threads would exceed the mappings that Linux allows one.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "calls functions of NDIS as drivers do")]

use std::{env, mem::transmute, process::Command};

use ndis_sim::{NDIS, NETIO};
use nt_sim::{
    ClockKind, Irql, Sim,
    cng::CNG,
    current,
    host::{HostOptions, Subsystem},
    image::{self, EntryPoints},
    import::Import,
    nt::NT,
};

/// Imports that bug check whatever their arguments are, or block without a deadline.
const EXCEPTIONS: &[&str] = &["KeBugCheck", "KeBugCheckEx", "_purecall"];

/// A function that takes as many arguments as any import. Under the Microsoft calling convention the caller removes
/// them, so that fewer are no difference.
type Function = extern "efiapi" fn(
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
) -> usize;

/// Null; a small number; an address that is mapped nowhere; one that is not canonical; all ones.
const ARGUMENTS: [usize; 5] = [0, 1, 0x7000_0000_0010, 0xdead_dead_dead_dead, usize::MAX];

fn slices() -> impl Iterator<Item = &'static [Import]> {
    let subsystems: [&dyn Subsystem; 4] = [&NT, &NDIS, &NETIO, &CNG];
    subsystems.into_iter().flat_map(Subsystem::imports).copied()
}

/// Calls an import as an image does, all arguments the same.
fn call(address: usize, import: &'static Import, argument: usize) {
    let mut sim = Sim::builder().with(&NDIS).with(&NETIO).clock(ClockKind::Deterministic { seed: 1 }).build();
    let host = sim.add_host(HostOptions { memory: 64 << 20, ..HostOptions::new("host") });
    let caller = host.spawn("caller", move || {
        let level =
            if import.limit.allows(Irql::PASSIVE_LEVEL) { Irql::PASSIVE_LEVEL } else { import.limit.lowest };
        let me = current();
        let old = me.raise(level);
        // SAFETY: a thunk, whose function takes at most as many integers.
        let function: Function = unsafe { transmute(address) };
        let a = argument;
        image::call(import.name, || function(a, a, a, a, a, a, a, a, a, a, a, a));
        me.lower(old);
    });
    // A thread that waits forever is lost, too.
    let _ = caller.join();
}

/// Number of processes, and the variable by which each gets its number.
const PARTS: usize = 4;
const PART: &str = "NTSIM_BAD_POINTERS_PART";

fn call_all(part: usize) {
    let mut number = 0;
    for imports in slices() {
        let entries = EntryPoints::new(imports).expect("the process has memory");
        for import in imports.iter().filter(|import| !EXCEPTIONS.contains(&import.name)) {
            number += 1;
            for argument in ARGUMENTS.iter().filter(|_| number % PARTS == part) {
                eprintln!("{}({argument:#x})", import.name);
                call(entries.address(import.name), import, *argument);
            }
        }
    }
}

#[test]
fn bad_arguments_never_end_the_process() {
    if let Ok(part) = env::var(PART) {
        return call_all(part.parse().expect("a number"));
    }
    let program = env::current_exe().expect("the path of this program");
    for part in 0..PARTS {
        let mut command = Command::new(&program);
        command.args(["--exact", "bad_arguments_never_end_the_process"]).env(PART, part.to_string());
        let output = command.output().expect("the program starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "part {part}: {text}");
    }
}
