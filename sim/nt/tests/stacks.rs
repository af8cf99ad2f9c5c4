// SPDX-License-Identifier: MIT OR Apache-2.0

//! The kernel stacks on which code of an image runs.
//!
//! Windows gives a thread of x64 a kernel stack of 24 KiB; DPCs and interrupt service routines have a stack of their
//! own (WDK, "Using the Kernel Stack"). The closures here are in the place of an image's functions.

use std::hint::black_box;

use nt_sim::{
    ClockKind, Host, Sim, current,
    host::HostOptions,
    image::{call, switch},
    memory::KERNEL_STACK_SIZE,
};

fn on_a_thread<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let mut sim = Sim::builder().clock(ClockKind::Deterministic { seed: 1 }).build();
    let host = sim.add_host(HostOptions { memory: 64 << 20, ..HostOptions::new("host") });
    let result = host.spawn("thread", body).join().unwrap();
    assert!(sim.verdict().is_clean(), "{}", sim.verdict());
    result
}

/// Returns an address on the stack of the calling function.
#[inline(never)]
fn here() -> usize {
    let variable = 0_u8;
    black_box(&raw const variable).addr()
}

fn is_memory_of(host: &Host, address: usize) -> bool {
    host.memory.pfn(address).is_some()
}

#[test]
fn image_runs_on_memory_of_its_host_and_an_import_does_not() {
    on_a_thread(|| {
        let host = current().host().clone();
        assert!(!is_memory_of(&host, here()));
        call("outer", || {
            assert!(is_memory_of(&host, here()));
            switch::on_host_stack(|| assert!(!is_memory_of(&host, here())));
            assert!(is_memory_of(&host, here()));
        });
        assert!(!is_memory_of(&host, here()));
    });
}

#[test]
fn callback_from_an_import_continues_on_the_stack_of_the_image() {
    on_a_thread(|| {
        let (outer, inner, after) = call("outer", || {
            let outer = here();
            let inner = switch::on_host_stack(|| call("inner", || call("inner", here)));
            (outer, inner, here())
        });
        assert_eq!(outer, after);
        assert!((outer - KERNEL_STACK_SIZE..outer).contains(&inner), "{inner:#x} is not below {outer:#x}");
    });
}

#[test]
fn interrupting_code_has_another_stack_than_the_interrupted() {
    on_a_thread(|| {
        let (interrupted, dpc, after) = call("interrupted", || {
            let dpc = switch::with_new_stack(|| call("a DPC routine", here));
            (here(), dpc, here())
        });
        assert_eq!(interrupted, after);
        assert!(interrupted.abs_diff(dpc) > KERNEL_STACK_SIZE);
        // The stack is free again.
        assert_eq!(dpc, switch::with_new_stack(|| call("a DPC routine", here)));
    });
}

#[test]
fn panic_in_a_call_unwinds_to_its_caller() {
    on_a_thread(|| {
        let caught = std::panic::catch_unwind(|| call("panics", || panic!("expected by the test")));
        assert!(caught.is_err());
        assert!(is_memory_of(current().host(), call("works", here)));
    });
}

#[test]
fn stack_of_an_ended_thread_is_reused() {
    on_a_thread(|| {
        let host = current().host().clone();
        let stacks: Vec<_> =
            (0..3).map(|_| host.spawn("one", || call("function", here)).join().unwrap()).collect();
        assert!(stacks.iter().all(|&stack| stack == stacks[0]), "{stacks:#x?}");
    });
}
