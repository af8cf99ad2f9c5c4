// SPDX-License-Identifier: MIT OR Apache-2.0

//! Threads that drivers start.

use std::{
    ffi::c_void,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use ndk_abi::nt::{KSTART_ROUTINE, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER, STATUS_SUCCESS};
use parking_lot::Mutex;

use super::{
    handles::{self, Object},
    mutant, time,
};
use crate::{
    guest::Guest,
    host::Host,
    image, imports,
    services::Slot,
    thread::current,
    verifier::{BugCheck, broken, rules},
};

pub(super) static SYSTEM_THREADS: Slot<SystemThreads> = Slot::new();

/// The threads that drivers of a host have started.
#[derive(Default)]
pub struct SystemThreads {
    started: AtomicU64,
    /// Routines of the threads that run.
    running: Mutex<Vec<usize>>,
}

/// The object that the handle of a thread refers to.
struct SystemThread;

impl Object for SystemThread {
    fn kind(&self) -> &'static str {
        "IoCreateSystemThread"
    }
}

/// Waits until no thread of `IoCreateSystemThread` runs whose routine is `one_of` a driver's: each keeps its driver loaded
/// until its routine has returned.
pub(crate) fn wait_for_threads(host: &Host, one_of: impl Fn(usize) -> bool) {
    const INTERVAL: u64 = 100_000;
    while host.state(&SYSTEM_THREADS).running.lock().iter().any(|&routine| one_of(routine)) {
        time::sleep(INTERVAL);
    }
}

/// Types of the I/O manager's objects, at their beginning.
const IO_TYPE_DEVICE: i16 = 3;
const IO_TYPE_DRIVER: i16 = 4;

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Starts a thread that keeps a driver loaded until its routine has returned.
    [== PASSIVE_LEVEL]
    fn IoCreateSystemThread(
        object: Guest<i16>,
        handle: Guest<usize>,
        access: u32,
        attributes: usize,
        process: usize,
        client: usize,
        routine: usize,
        context: usize,
    ) -> i32 {
        let _ = (access, attributes, client);
        if ![IO_TYPE_DEVICE, IO_TYPE_DRIVER].contains(&object.read()) {
            broken(rules::THREAD_OWNER, BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                "IoCreateSystemThread for an object that is neither a device nor a driver",
            );
        }
        if process != 0 || routine == 0 {
            return STATUS_INVALID_PARAMETER;
        }
        let me = current();
        let host = me.host();
        if host.low_resources.fails() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let threads = host.state(&SYSTEM_THREADS);
        let number = threads.started.fetch_add(1, Relaxed);
        threads.running.lock().push(routine);
        handle.write(handles::open(host, Arc::new(SystemThread)));
        let on = host.clone();
        drop(host.spawn(&format!("system thread {number}"), move || {
            // SAFETY: what the image passed as its routine.
            let start: KSTART_ROUTINE = unsafe { image::function("a thread's routine", routine) };
            let context = std::ptr::with_exposed_provenance_mut::<c_void>(context);
            // SAFETY: the argument of a KSTART_ROUTINE.
            image::call("a thread's routine", || unsafe { start(context) });
            mutant::check_released(&current());
            let mut running = on.state(&SYSTEM_THREADS).running.lock();
            if let Some(index) = running.iter().position(|&one| one == routine) {
                running.swap_remove(index);
            }
        }));
        STATUS_SUCCESS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClockKind, host::HostOptions, sim::Sim};

    unsafe extern "efiapi" fn sleeps_and_counts(count: *mut c_void) {
        time::sleep(5_000_000);
        let count: Guest<u32> = Guest::new(count.cast());
        count.write(count.read() + 1);
    }

    #[test]
    fn the_threads_of_one_driver_are_waited_for() {
        let mut sim = Sim::builder().clock(ClockKind::Deterministic { seed: 1 }).build();
        let host = sim.add_host(HostOptions { memory: 64 << 20, ..HostOptions::new("host") });
        let test = host.spawn("test", || {
            let me = current();
            let host = me.host();
            let (driver, count): (Guest<i16>, Guest<u32>) =
                (host.memory.allocate(1).unwrap().cast(), host.memory.allocate(1).unwrap().cast());
            driver.write(IO_TYPE_DRIVER);
            let routine = sleeps_and_counts as *const () as usize;
            for _ in 0..2 {
                let handle = driver.cast::<usize>().add(1);
                assert_eq!(IoCreateSystemThread(driver, handle, 0, 0, 0, 0, routine, count.address()), 0);
                handles::ZwClose(handle.read());
            }
            wait_for_threads(host, |other| other != routine);
            assert_eq!(count.read(), 0, "another driver's");
            wait_for_threads(host, |other| other == routine);
            assert_eq!(count.read(), 2);
        });
        test.join().unwrap();
        assert!(sim.verdict().is_clean(), "{}", sim.verdict());
    }
}
