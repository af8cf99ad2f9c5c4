// SPDX-License-Identifier: MIT OR Apache-2.0

//! Threads that drivers start.

use std::{
    any::Any,
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
    time,
};
use crate::{
    guest::Guest,
    host::Host,
    image, imports,
    services::Slot,
    thread::current,
    verifier::{BugCheck, violation},
};

pub(super) static SYSTEM_THREADS: Slot<SystemThreads> = Slot::new();

/// The threads that drivers of a host have started.
#[derive(Default)]
pub struct SystemThreads {
    started: AtomicU64,
    /// Routines of the threads that run.
    running: Mutex<Vec<usize>>,
}

/// What the handle of a thread refers to.
struct SystemThread;

impl Object for SystemThread {
    fn kind(&self) -> &'static str {
        "IoCreateSystemThread"
    }

    fn close(&self, _host: &Host) {}

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
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
            violation(
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
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
            let mut running = on.state(&SYSTEM_THREADS).running.lock();
            if let Some(index) = running.iter().position(|&one| one == routine) {
                running.swap_remove(index);
            }
        }));
        STATUS_SUCCESS
    }
}
