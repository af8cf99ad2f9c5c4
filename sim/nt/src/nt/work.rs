// SPDX-License-Identifier: MIT OR Apache-2.0

//! Worker threads and the work items that run on them.

use std::{
    cell::Cell,
    collections::{BTreeSet, HashMap, VecDeque},
    ffi::c_void,
    ops::Range,
    sync::Arc,
};

use ndk_abi::nt::{IO_WORKITEM_ROUTINE, IO_WORKITEM_ROUTINE_EX, WORK_QUEUE_ITEM};
use parking_lot::Mutex;

use super::time;
use crate::{
    clock::Clock,
    guest::Guest,
    host::Host,
    image, imports,
    services::Slot,
    thread::{JoinHandle, ThreadShared, current},
    verifier::{BugCheck, Rule, broken, rules, violation},
};

pub(super) static WORK: Slot<Queue> = Slot::new();
pub(super) static IO_WORK_ITEMS: Slot<IoWorkItems> = Slot::new();
pub(super) static QUEUED_ITEMS: Slot<QueuedItems> = Slot::new();

/// Worker threads per host: enough for drivers whose work items wait for other work items.
const WORKERS: usize = 8;

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the calling thread is a worker thread. They are few, and all drivers share them.
#[must_use]
pub fn on_worker() -> bool {
    IS_WORKER.get()
}

type Item = Box<dyn FnOnce() + Send>;

/// Work that is queued for a worker.
#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    idle: VecDeque<Arc<ThreadShared>>,
}

impl Queue {
    pub fn push(&self, clock: &Clock, item: Item) {
        let worker = {
            let mut state = self.state.lock();
            state.items.push_back(item);
            state.idle.pop_front()
        };
        if let Some(worker) = worker {
            clock.unpark(&worker);
        }
    }

    fn wake(&self, clock: &Clock) {
        let idle = std::mem::take(&mut self.state.lock().idle);
        for worker in idle {
            clock.unpark(&worker);
        }
    }

    /// The body of a worker. `is_over` ends it: asked before each item, and again after [`Queue::wake`].
    fn run(&self, is_over: impl Fn() -> bool) {
        let me = current();
        IS_WORKER.set(true);
        loop {
            let item = {
                let mut state = self.state.lock();
                // With the lock held: a worker that has not seen it is among the idle ones that `wake` finds.
                if is_over() {
                    return;
                }
                let item = state.items.pop_front();
                if item.is_none() {
                    state.idle.push_back(me.shared().clone());
                }
                item
            };
            if let Some(item) = item {
                item();
            } else {
                me.park(None);
                self.state.lock().idle.retain(|idle| idle.id != me.shared().id);
            }
        }
    }
}

impl Host {
    /// Queues a host-side routine to run at `PASSIVE_LEVEL` on a worker thread.
    pub fn queue_work(&self, routine: impl FnOnce() + Send + 'static) {
        self.state(&WORK).push(&self.world().clock, Box::new(routine));
    }
}

/// Wakes the workers of a host, so that they notice that the simulation ends.
pub(crate) fn wake(host: &Host) {
    host.state(&WORK).wake(&host.world().clock);
}

/// Starts the workers of a host.
pub(crate) fn start(host: &Arc<Host>) -> Vec<JoinHandle<()>> {
    (0..WORKERS)
        .map(|index| {
            let this = host.clone();
            host.spawn(&format!("worker {index}"), move || {
                this.state(&WORK).run(|| this.world().is_stopping());
            })
        })
        .collect()
}

/// The state behind an `IO_WORKITEM` handle.
struct IoWorkItem {
    device: usize,
    queued: bool,
}

/// The I/O work items of a host.
#[derive(Default)]
pub struct IoWorkItems {
    by_handle: Mutex<HashMap<usize, IoWorkItem>>,
    /// Routines of items that are queued or run.
    routines: Mutex<Vec<usize>>,
}

/// Waits until no I/O work item is queued or runs whose routine is `one_of` a driver's: each keeps its driver loaded
/// until its routine has returned. (Work items of `ExQueueWorkItem` do not.)
pub(crate) fn wait_for_io_items(host: &Host, one_of: impl Fn(usize) -> bool) {
    const INTERVAL: u64 = 100_000;
    while host.state(&IO_WORK_ITEMS).routines.lock().iter().any(|&routine| one_of(routine)) {
        time::sleep(INTERVAL);
    }
}

/// The addresses of the `WORK_QUEUE_ITEM`s of a host that are queued.
#[derive(Default)]
pub struct QueuedItems(Mutex<BTreeSet<usize>>);

impl QueuedItems {
    /// Returns a queued item inside `memory`.
    pub fn find(&self, memory: &Range<usize>) -> Option<usize> {
        self.0.lock().range(memory.clone()).next().copied()
    }
}

const IO_WORK_ITEM: &str = "IoAllocateWorkItem";

fn misuse(rule: &Rule, text: impl Into<String>) -> ! {
    broken(rule, BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, text)
}

/// Form of a work item's routine.
#[derive(Clone, Copy)]
enum Routine {
    /// Of `IoQueueWorkItem`: gets the device and the context.
    Plain(usize),
    /// Of `IoQueueWorkItemEx`: gets the work item, too.
    Extended(usize),
}

impl Routine {
    fn address(self) -> usize {
        let (Self::Plain(address) | Self::Extended(address)) = self;
        address
    }
}

/// Runs on a worker thread. The item is no longer queued when its routine is called, so that the routine may queue it
/// again or free it.
fn run_io_work_item(handle: usize, routine: Routine, context: usize) {
    let me = current();
    let device = {
        let mut items = me.host().state(&IO_WORK_ITEMS).by_handle.lock();
        let Some(item) = items.get_mut(&handle) else { return };
        item.queued = false;
        item.device
    };
    let pointer = std::ptr::with_exposed_provenance_mut::<c_void>;
    match routine {
        Routine::Plain(routine) => {
            // SAFETY: what the image passed to IoQueueWorkItem as its routine.
            let routine: IO_WORKITEM_ROUTINE = unsafe { image::function("a work item routine", routine) };
            // SAFETY: the arguments of an IO_WORKITEM_ROUTINE.
            let call = || unsafe { routine(pointer(device).cast(), pointer(context)) };
            image::call("a work item routine", call);
        }
        Routine::Extended(routine) => {
            // SAFETY: what the image passed to IoQueueWorkItemEx as its routine.
            let routine: IO_WORKITEM_ROUTINE_EX = unsafe { image::function("a work item routine", routine) };
            // SAFETY: the arguments of an IO_WORKITEM_ROUTINE_EX.
            let call = || unsafe { routine(pointer(device), pointer(context), pointer(handle).cast()) };
            image::call("a work item routine", call);
        }
    }
    let mut routines = me.host().state(&IO_WORK_ITEMS).routines.lock();
    if let Some(index) = routines.iter().position(|&one| one == routine.address()) {
        routines.swap_remove(index);
    }
}

fn queue_io_work_item(function: &str, handle: usize, routine: Routine, context: usize) {
    let me = current();
    let host = me.host();
    let queued = host
        .state(&IO_WORK_ITEMS)
        .by_handle
        .lock()
        .get_mut(&handle)
        .map(|item| std::mem::replace(&mut item.queued, true));
    match queued {
        Some(false) => {
            host.state(&IO_WORK_ITEMS).routines.lock().push(routine.address());
            host.queue_work(move || run_io_work_item(handle, routine, context));
        }
        Some(true) => misuse(rules::WORK_ITEM, format!("{function} of a work item that is queued already")),
        None => {
            misuse(rules::WORK_ITEM, format!("{function} of a work item that was not allocated or is freed"))
        }
    }
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Allocates a work item; returns null when resources run low.
    [<= DISPATCH_LEVEL]
    fn IoAllocateWorkItem(device: usize) -> usize {
        let me = current();
        let host = me.host();
        if host.low_resources.fails() {
            return 0;
        }
        let handle = host.new_handle();
        host.state(&IO_WORK_ITEMS).by_handle.lock().insert(handle, IoWorkItem { device, queued: false });
        host.objects.add(IO_WORK_ITEM, handle);
        handle
    }

    /// Queues a work item.
    [<= DISPATCH_LEVEL]
    fn IoQueueWorkItem(handle: usize, routine: usize, kind: i32, context: usize) {
        let _ = kind;
        queue_io_work_item("IoQueueWorkItem", handle, Routine::Plain(routine), context);
    }

    /// Queues a work item as [`IoQueueWorkItem`] does; the routine gets the work item as its third argument.
    [<= DISPATCH_LEVEL]
    fn IoQueueWorkItemEx(handle: usize, routine: usize, kind: i32, context: usize) {
        let _ = kind;
        queue_io_work_item("IoQueueWorkItemEx", handle, Routine::Extended(routine), context);
    }

    /// Frees a work item, which must not be queued.
    [<= DISPATCH_LEVEL]
    fn IoFreeWorkItem(handle: usize) {
        let me = current();
        let host = me.host();
        let item = host.state(&IO_WORK_ITEMS).by_handle.lock().remove(&handle);
        match item {
            Some(item) if !item.queued => {
                let _ = host.objects.remove(IO_WORK_ITEM, handle);
            }
            Some(_) => misuse(rules::WORK_ITEM, "IoFreeWorkItem of a work item that is queued"),
            None => misuse(rules::WORK_ITEM, "IoFreeWorkItem of a work item that was not allocated or is freed"),
        }
    }

    /// Queues a `WORK_QUEUE_ITEM`.
    [<= DISPATCH_LEVEL]
    fn ExQueueWorkItem(item: Guest<WORK_QUEUE_ITEM>, kind: i32) {
        let _ = kind;
        if item.read().WorkerRoutine.is_none() {
            misuse(rules::WORK_ITEM, "ExQueueWorkItem of a work item whose WorkerRoutine is null");
        }
        let me = current();
        if !me.host().state(&QUEUED_ITEMS).0.lock().insert(item.address()) {
            violation(BugCheck::WORKER_INVALID, "ExQueueWorkItem of a work item that is queued already");
        }
        me.host().queue_work(move || {
            let address = item.address();
            let item = item.read();
            // From here on the image may free the item, and queue it again.
            current().host().state(&QUEUED_ITEMS).0.lock().remove(&address);
            let Some(routine) = item.WorkerRoutine else { misuse(rules::WORK_ITEM, "a queued work item's WorkerRoutine became null") };
            // SAFETY: the argument that the image passed for this call.
            image::call("a work item routine", || unsafe { routine(item.Parameter) });
        });
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            atomic::{AtomicBool, Ordering::SeqCst},
            mpsc,
        },
        thread,
        time::Duration,
    };

    use super::*;
    use crate::{host::HostOptions, sim::Sim};

    #[test]
    fn a_worker_that_becomes_idle_while_the_simulation_ends_is_woken() {
        let mut sim = Sim::builder().build();
        let host = sim.add_host(HostOptions { memory: 64 << 20, ..HostOptions::new("host") });
        let ended = sim.event();
        let set = ended.clone();
        let worker = host.spawn("worker", move || {
            let (host, queue) = (current().host().clone(), Arc::new(Queue::default()));
            let over = AtomicBool::new(false);
            queue.run(|| {
                let was_over = over.swap(true, SeqCst);
                if !was_over {
                    // It ends now, as another thread does it. That thread may have to wait for the worker.
                    let (queue, host) = (queue.clone(), host.clone());
                    let (woken, wait) = mpsc::channel();
                    thread::spawn(move || {
                        queue.wake(&host.world().clock);
                        let _ = woken.send(());
                    });
                    let _ = wait.recv_timeout(Duration::from_millis(50));
                }
                was_over
            });
            set.set();
        });
        assert!(ended.wait(Duration::from_secs(10)), "the worker sleeps for ever");
        assert_eq!(worker.join(), Ok(()));
    }
}
