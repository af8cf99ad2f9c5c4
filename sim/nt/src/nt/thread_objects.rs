// SPDX-License-Identifier: MIT OR Apache-2.0

//! Threads that a driver starts and waits for: their objects, references to these, and their end.

use std::{collections::HashMap, ffi::c_void, sync::Arc};

use ndk_abi::nt::{
    KSTART_ROUTINE, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER, STATUS_OBJECT_TYPE_MISMATCH,
    STATUS_SUCCESS,
};
use parking_lot::Mutex;

use super::{
    critical_region,
    handles::{self, Object},
    header::{self, signal_state},
    mutant, named_events, variables,
    waits::WAITS,
};
use crate::{
    guest::Guest,
    host::Host,
    image, imports,
    services::Slot,
    thread::{Thread, ThreadId, current},
    verifier::{BugCheck, Rule, broken, rules},
};

pub(super) static THREAD_OBJECTS: Slot<ThreadObjects> = Slot::new();

const REFERENCE: &str = "ObReferenceObjectByHandle";
/// The priority of a new thread of the system.
const START_PRIORITY: i32 = 8;
const HIGHEST_PRIORITY: i32 = 31;
/// Bytes of a thread's object that a driver may see: its header alone.
const SIZE: usize = 24;

/// The threads of a host whose drivers can wait for them.
#[derive(Default)]
pub struct ThreadObjects(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// The routine of each thread that has not ended, by its object.
    running: HashMap<usize, usize>,
    /// The object of each thread that has begun.
    threads: HashMap<ThreadId, usize>,
    /// References of drivers to each object.
    references: HashMap<usize, usize>,
    /// The priority of each object that has not [`START_PRIORITY`].
    priorities: HashMap<usize, i32>,
}

/// The object that the handle of a thread refers to.
struct ThreadHandle {
    object: usize,
}

impl Object for ThreadHandle {
    fn kind(&self) -> &'static str {
        "PsCreateSystemThread"
    }
}

/// Returns whether a thread of `PsCreateSystemThread` runs whose routine is `one_of` a driver's.
pub(crate) fn runs(host: &Host, one_of: impl Fn(usize) -> bool) -> bool {
    host.state(&THREAD_OBJECTS).0.lock().running.values().any(|&routine| one_of(routine))
}

/// Signals the object of the calling thread: it has ended. Returns `false` for a thread that no driver has started.
fn end(me: &Thread) -> bool {
    let host = me.host();
    let object = {
        let mut table = host.state(&THREAD_OBJECTS).0.lock();
        let Some(object) = table.threads.remove(&me.id()) else { return false };
        table.running.remove(&object);
        object
    };
    mutant::check_released(me);
    critical_region::check_left(me);
    host.state(&WAITS).signal(me, object, || signal_state(object).write(1));
    true
}

fn misuse(rule: &Rule, text: impl Into<String>) -> ! {
    broken(rule, BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, text)
}

fn unreferenced(function: &str, object: usize) -> ! {
    misuse(rules::REFERENCES, format!("{function} of {object:#x}, to which the driver has no reference"))
}

/// Calls `use_it` with the priority of a driver's thread, which it may change. Priorities have no effect on what runs.
fn with_priority<T>(function: &str, object: usize, use_it: impl FnOnce(&mut i32) -> T) -> T {
    let me = current();
    let mut table = me.host().state(&THREAD_OBJECTS).0.lock();
    if !table.running.contains_key(&object) && !table.references.contains_key(&object) {
        drop(table);
        misuse(
            rules::THREAD,
            format!("{function} of {object:#x}, which is no thread of PsCreateSystemThread"),
        );
    }
    use_it(table.priorities.entry(object).or_insert(START_PRIORITY))
}

/// Adds a reference to an object.
pub(super) fn reference(host: &Host, object: usize) {
    let is_first = {
        let mut table = host.state(&THREAD_OBJECTS).0.lock();
        let count = table.references.entry(object).or_default();
        *count += 1;
        *count == 1
    };
    if is_first {
        host.objects.add(REFERENCE, object);
        named_events::keep(host, object);
    }
}

/// Returns the object of a handle, and its type.
fn of_handle(host: &Host, handle: usize) -> Result<(usize, usize), i32> {
    match handles::find::<ThreadHandle>(host, handle) {
        Ok(found) => Ok((found.object, variables::thread_type())),
        Err(STATUS_OBJECT_TYPE_MISMATCH) => {
            named_events::of_handle(host, handle).map(|event| (event, variables::event_type()))
        }
        Err(status) => Err(status),
    }
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Starts a thread. Its object is signaled when it ends; its code must not be unloaded before.
    [== PASSIVE_LEVEL]
    fn PsCreateSystemThread(
        handle: Guest<usize>,
        access: u32,
        attributes: usize,
        process: usize,
        client: usize,
        routine: usize,
        context: usize,
    ) -> i32 {
        let _ = (access, attributes, client);
        if process != 0 || routine == 0 {
            return STATUS_INVALID_PARAMETER;
        }
        let me = current();
        let host = me.host();
        if host.low_resources.fails() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let Some(page) = host.memory.allocate(1) else { return STATUS_INSUFFICIENT_RESOURCES };
        let object = page.address();
        header::initialize(object, header::THREAD, SIZE, false);
        handle.write(handles::open(host, Arc::new(ThreadHandle { object })));
        host.state(&THREAD_OBJECTS).0.lock().running.insert(object, routine);
        drop(host.spawn("system thread of a driver", move || {
            let me = current();
            me.host().state(&THREAD_OBJECTS).0.lock().threads.insert(me.id(), object);
            // SAFETY: what the image passed as its routine.
            let start: KSTART_ROUTINE = unsafe { image::function("a thread's routine", routine) };
            let context = std::ptr::with_exposed_provenance_mut::<c_void>(context);
            // SAFETY: the argument of a KSTART_ROUTINE.
            image::call("a thread's routine", || unsafe { start(context) });
            end(&me);
        }));
        STATUS_SUCCESS
    }

    /// Ends the calling thread, which must be one of `PsCreateSystemThread`.
    [== PASSIVE_LEVEL]
    fn PsTerminateSystemThread(status: i32) -> i32 {
        let _ = status;
        let me = current();
        if !end(&me) {
            misuse(rules::THREAD, "PsTerminateSystemThread on a thread that PsCreateSystemThread has not started");
        }
        let world = Arc::clone(me.world());
        world.clock.park_forever(me.shared())
    }

    /// Sets the priority of a driver's thread; returns the one before.
    [<= DISPATCH_LEVEL]
    fn KeSetPriorityThread(thread: usize, priority: i32) -> i32 {
        if !(1..=HIGHEST_PRIORITY).contains(&priority) {
            misuse(rules::PRIORITY, format!("KeSetPriorityThread to {priority}: LOW_PRIORITY is the system's, and the highest is 31"));
        }
        with_priority("KeSetPriorityThread", thread, |current| std::mem::replace(current, priority))
    }

    /// Returns the priority of a driver's thread.
    [== PASSIVE_LEVEL]
    fn KeQueryPriorityThread(thread: usize) -> i32 {
        with_priority("KeQueryPriorityThread", thread, |current| *current)
    }

    /// Returns the object of a handle of a thread or an event, with a reference.
    [== PASSIVE_LEVEL]
    fn ObReferenceObjectByHandle(
        handle: usize,
        access: u32,
        kind: usize,
        mode: i8,
        object: Guest<usize>,
        information: usize,
    ) -> i32 {
        let _ = (access, mode, information);
        let me = current();
        let host = me.host();
        let found = match of_handle(host, handle) {
            Ok((_, of_kind)) if kind != 0 && kind != of_kind => return STATUS_OBJECT_TYPE_MISMATCH,
            Ok((found, _)) => found,
            Err(status) => return status,
        };
        reference(host, found);
        object.write(found);
        STATUS_SUCCESS
    }

    /// Adds a reference to an object to which the driver has one.
    [<= DISPATCH_LEVEL]
    fn ObfReferenceObject(object: usize) -> isize {
        let me = current();
        let mut table = me.host().state(&THREAD_OBJECTS).0.lock();
        let Some(count) = table.references.get_mut(&object) else {
            drop(table);
            unreferenced("ObfReferenceObject", object);
        };
        *count += 1;
        count.cast_signed()
    }

    /// Releases a reference to an object; returns how many are left.
    [<= DISPATCH_LEVEL]
    fn ObfDereferenceObject(object: usize) -> isize {
        let me = current();
        let host = me.host();
        let left = {
            let mut table = host.state(&THREAD_OBJECTS).0.lock();
            table.references.get_mut(&object).map(|count| {
                *count -= 1;
                *count
            })
        };
        let Some(left) = left else { unreferenced("ObfDereferenceObject", object) };
        if left == 0 {
            host.state(&THREAD_OBJECTS).0.lock().references.remove(&object);
            let _ = host.objects.remove(REFERENCE, object);
            named_events::release(host, object);
        }
        left.cast_signed()
    }
}
