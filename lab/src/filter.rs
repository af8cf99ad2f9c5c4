// SPDX-License-Identifier: MIT OR Apache-2.0

//! A lightweight filter of our own, between the protocol drivers and a miniport: what passes it is as it was, but may be later, in another
//! order, or a clone.
//!
//! Its handlers are those of a filter driver, called by NDIS; it calls the functions that such a driver imports.
#![allow(unsafe_code, reason = "implements handlers that NDIS calls with pointers")]

use std::{
    collections::VecDeque,
    ffi::c_void,
    mem::offset_of,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use ndis_sim::{
    NdisHost as _, clones, filter_path, filter_stack,
    list_fields::{LARGE_SEND, SOURCE, STATUS, chain, link},
    upper_drivers,
};
use ndk_abi::{
    ndis::{
        NDIS_HANDLE, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_FILTER_ATTRIBUTES,
        NDIS_OBJECT_TYPE_FILTER_DRIVER_CHARACTERISTICS, NDIS_RECEIVE_FLAGS_RESOURCES, NDIS_STATUS,
        NDIS_STATUS_PAUSED, NDIS_STATUS_SUCCESS, NET_BUFFER_LIST,
    },
    nt::UNICODE_STRING,
};
use nt_sim::{Event, Host, current, guest::Guest, image::switch::on_host_stack};
use parking_lot::Mutex;

type List = Guest<NET_BUFFER_LIST>;

const SERVICE: &str = "viofilter";
const PARENT: usize = offset_of!(NET_BUFFER_LIST, ParentNetBufferList);
/// Longest time that a list waits for another one to change places with.
const REORDERING: Duration = Duration::from_micros(20);

/// The filter's treatment of NET_BUFFER_LISTs, in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Behavior {
    /// Passes them on at once.
    Transparent,
    /// Passes each on after this time, on a thread of its own.
    Delays(Duration),
    /// Passes clones on.
    Clones,
    /// Passes the lists of a chain on from the last one to the first one, and keeps a single one until another one comes, or for a moment.
    Reorders,
}

/// The filter driver of a host.
#[derive(Clone)]
pub struct Filter {
    shared: Arc<FilterState>,
}

#[derive(Default)]
struct Counters {
    sent: AtomicU64,
    received: AtomicU64,
    attached: AtomicU64,
    detached: AtomicU64,
}

struct FilterState {
    behavior: Behavior,
    counters: Counters,
    handle: Mutex<usize>,
}

/// A module on an adapter.
struct Module {
    handle: usize,
    driver: Arc<FilterState>,
    state: Mutex<State>,
    /// Set when the thread has to look for lists, or to end.
    changed: Event,
    /// Set when the thread has ended.
    ended: Event,
}

#[derive(Default)]
struct State {
    running: bool,
    /// Sent lists that wait, with the time at which they are passed on.
    sent: VecDeque<(u64, usize)>,
    received: VecDeque<(u64, usize)>,
}

impl Filter {
    /// Registers the driver on a host, which attaches it to each adapter that runs or starts.
    ///
    /// # Panics
    /// When NDIS refuses it.
    #[must_use]
    pub fn register(host: &Arc<Host>, behavior: Behavior) -> Self {
        let shared = Arc::new(FilterState { behavior, counters: Counters::default(), handle: Mutex::new(0) });
        host.bind_filter(SERVICE);
        let registered = shared.clone();
        let entry = move || {
            let characteristics = characteristics();
            let mut handle = 0_usize;
            let status = upper_drivers::NdisFRegisterFilterDriver(
                Guest::null(),
                // Owned by the driver until the end of the process.
                Arc::into_raw(registered.clone()).expose_provenance(),
                characteristics,
                Guest::new(&raw mut handle),
            );
            assert_eq!(status, NDIS_STATUS_SUCCESS, "NDIS takes the filter driver");
            *registered.handle.lock() = handle;
        };
        host.spawn("system", entry).join().expect("the host lives");
        Self { shared }
    }

    /// Detaches the modules, and ends the registration.
    ///
    /// # Panics
    /// When the host dies.
    pub fn deregister(&self, host: &Arc<Host>) {
        let handle = *self.shared.handle.lock();
        let ended = host.spawn("system", move || upper_drivers::NdisFDeregisterFilterDriver(handle));
        ended.join().expect("the host lives");
    }

    /// Returns the number of lists that were sent, and of those that were received, through the filter.
    #[must_use]
    pub fn passed(&self) -> [u64; 2] {
        let Counters { sent, received, .. } = &self.shared.counters;
        [sent, received].map(|counter| counter.load(Relaxed))
    }

    /// Returns how many modules were attached so far, and how many were detached.
    #[must_use]
    pub fn modules(&self) -> [u64; 2] {
        let Counters { attached, detached, .. } = &self.shared.counters;
        [attached, detached].map(|counter| counter.load(Relaxed))
    }
}

impl Module {
    fn send(&self, lists: &[List]) {
        if !lists.is_empty() {
            filter_path::NdisFSendNetBufferLists(self.handle, link(lists), 0, 0);
        }
    }

    fn complete(&self, lists: &[List]) {
        if !lists.is_empty() {
            filter_path::NdisFSendNetBufferListsComplete(self.handle, link(lists), 0);
        }
    }

    fn indicate(&self, lists: &[List], flags: u32) {
        if !lists.is_empty() {
            let count = lists.len() as u32;
            filter_path::NdisFIndicateReceiveNetBufferLists(self.handle, link(lists), 0, count, flags);
        }
    }

    fn give_back(&self, lists: &[List]) {
        if !lists.is_empty() {
            filter_path::NdisFReturnNetBufferLists(self.handle, link(lists), 0);
        }
    }

    /// Treats lists that are sent, or were received.
    fn pass(&self, lists: &[List], is_sent: bool) {
        let passes_on = |lists: &[List]| if is_sent { self.send(lists) } else { self.indicate(lists, 0) };
        let refuses = |lists: &[List]| if is_sent { self.refuse(lists) } else { self.give_back(lists) };
        let counters = &self.driver.counters;
        let counter = if is_sent { &counters.sent } else { &counters.received };
        counter.fetch_add(lists.len() as u64, Relaxed);
        if !self.state.lock().running {
            return refuses(lists);
        }
        match self.driver.behavior {
            Behavior::Transparent => passes_on(lists),
            Behavior::Clones => {
                let passed: Vec<_> = lists.iter().map(|&list| self.clone_of(list, is_sent)).collect();
                passes_on(&passed);
            }
            Behavior::Delays(time) => self.keep(lists, is_sent, time),
            Behavior::Reorders => {
                let (kept, mut passed) = {
                    let mut state = self.state.lock();
                    let queue = if is_sent { &mut state.sent } else { &mut state.received };
                    let kept = queue.drain(..).map(|(_, list)| Guest::from_address(list)).collect::<Vec<_>>();
                    (kept, lists.iter().rev().copied().collect::<Vec<_>>())
                };
                if kept.is_empty() && passed.len() == 1 {
                    return self.keep(lists, is_sent, REORDERING);
                }
                passed.extend(kept);
                passes_on(&passed);
            }
        }
    }

    /// Keeps lists for a time, unless the module is being paused.
    fn keep(&self, lists: &[List], is_sent: bool, time: Duration) {
        {
            let mut state = self.state.lock();
            if state.running {
                let due = current().world().now() + time.as_nanos() as u64;
                let queue = if is_sent { &mut state.sent } else { &mut state.received };
                queue.extend(lists.iter().map(|list| (due, list.address())));
                drop(state);
                self.changed.set();
                return;
            }
        }
        if is_sent { self.refuse(lists) } else { self.give_back(lists) }
    }

    /// Completes sends of a module that is paused.
    fn refuse(&self, lists: &[List]) {
        for list in lists {
            list.field::<NDIS_STATUS>(STATUS).write(NDIS_STATUS_PAUSED);
        }
        self.complete(lists);
    }

    /// Returns a clone of a list; the list itself if there is no memory.
    fn clone_of(&self, list: List, is_sent: bool) -> List {
        let clone = clones::NdisAllocateCloneNetBufferList(list, 0, 0, 0);
        if clone.is_null() {
            return list;
        }
        if is_sent {
            clones::NdisCopySendNetBufferListInfo(clone, list);
        } else {
            clones::NdisCopyReceiveNetBufferListInfo(clone, list);
        }
        clone.field::<usize>(SOURCE).write(self.handle);
        clone
    }

    /// Replaces the module's own clones by what they stand for.
    fn originals(&self, lists: &mut [List], is_sent: bool) {
        for list in lists {
            if list.field::<usize>(SOURCE).read() != self.handle {
                continue;
            }
            let original: List = Guest::from_address(list.field::<usize>(PARENT).read());
            if is_sent {
                let status = list.field::<NDIS_STATUS>(STATUS).read();
                original.field::<NDIS_STATUS>(STATUS).write(status);
                original.field::<usize>(LARGE_SEND).write(list.field::<usize>(LARGE_SEND).read());
            }
            clones::NdisFreeCloneNetBufferList(*list, 0);
            *list = original;
        }
    }

    /// Passes lists on that are due, until the module is paused.
    fn run(&self) {
        loop {
            self.changed.reset();
            let now = current().world().now();
            let (sent, received, next, running) = {
                let mut state = self.state.lock();
                let sent = take_due(&mut state.sent, now);
                let received = take_due(&mut state.received, now);
                let next = [state.sent.front(), state.received.front()]
                    .into_iter()
                    .flatten()
                    .map(|item| item.0)
                    .min();
                (sent, received, next, state.running)
            };
            self.send(&sent);
            self.indicate(&received, 0);
            if !running {
                break;
            }
            let wait =
                next.map_or(Duration::from_secs(3600), |due| Duration::from_nanos(due.saturating_sub(now)));
            let _ = self.changed.wait(wait);
        }
        self.ended.set();
    }

    fn restart(self: Arc<Self>) {
        self.state.lock().running = true;
        if matches!(self.driver.behavior, Behavior::Delays(_) | Behavior::Reorders) {
            self.ended.reset();
            let host = current().host().clone();
            drop(host.spawn("filter", move || self.run()));
        }
    }

    /// Gives back what waits. No clone is below or above: the stack has got back what it sent, and has returned what it received.
    fn pause(&self) {
        let (sent, received) = {
            let mut state = self.state.lock();
            state.running = false;
            (take_due(&mut state.sent, u64::MAX), take_due(&mut state.received, u64::MAX))
        };
        self.refuse(&sent);
        self.give_back(&received);
        self.changed.set();
        self.ended.wait_any();
    }
}

/// Removes the lists that are due, in their order.
fn take_due(queue: &mut VecDeque<(u64, usize)>, now: u64) -> Vec<List> {
    let due = queue.iter().take_while(|item| item.0 <= now).count();
    queue.drain(..due).map(|(_, list)| Guest::from_address(list)).collect()
}

/// The characteristics of a driver of NDIS 6.85, never freed.
fn characteristics() -> Guest<u8> {
    let memory: Guest<u8> = Guest::new(Box::leak(Box::new([0_u64; 28]))).cast();
    memory.cast().write(NDIS_OBJECT_HEADER {
        Type: NDIS_OBJECT_TYPE_FILTER_DRIVER_CHARACTERISTICS,
        Revision: 2,
        Size: 0xe0,
    });
    memory.add(4).write_bytes(&[6, 85]);
    let name: &'static [u16] = Box::leak(SERVICE.encode_utf16().collect());
    let length = size_of_val(name) as u16;
    let name = UNICODE_STRING { Length: length, MaximumLength: length, Buffer: name.as_ptr().cast_mut() };
    memory.field(0x30).write(name);
    let handlers = [
        attach as *const () as usize,
        detach as *const () as usize,
        restart as *const () as usize,
        pause as *const () as usize,
        send as *const () as usize,
        send_complete as *const () as usize,
        0,
        receive as *const () as usize,
        give_back as *const () as usize,
    ];
    memory.field(0x50).write(handlers);
    memory
}

/// Returns the module of a context.
///
/// # Safety
/// `attach` has set the context, and `detach` has not been called.
unsafe fn module(context: NDIS_HANDLE) -> Arc<Module> {
    let module = context.cast::<Module>().cast_const();
    // SAFETY: this function's contract: `attach` keeps a reference for the context.
    unsafe { Arc::increment_strong_count(module) };
    // SAFETY: takes over the reference that was just added.
    unsafe { Arc::from_raw(module) }
}

unsafe extern "efiapi" fn attach(handle: NDIS_HANDLE, driver: NDIS_HANDLE, _: *mut c_void) -> NDIS_STATUS {
    on_host_stack(|| {
        let shared = driver.cast::<FilterState>().cast_const();
        // SAFETY: the context of the registration, which keeps a reference.
        unsafe { Arc::increment_strong_count(shared) };
        // SAFETY: takes over the reference that was just added.
        let driver = unsafe { Arc::from_raw(shared) };
        driver.counters.attached.fetch_add(1, Relaxed);
        let (changed, ended) = (current().host().event(), current().host().event());
        // No thread runs.
        ended.set();
        let module =
            Arc::new(Module { handle: handle.addr(), driver, state: Mutex::default(), changed, ended });
        let context = Arc::into_raw(module).expose_provenance();
        let mut attributes = [0_u64];
        let attributes: Guest<NDIS_OBJECT_HEADER> = Guest::new(attributes.as_mut_ptr()).cast();
        let header = NDIS_OBJECT_HEADER { Type: NDIS_OBJECT_TYPE_FILTER_ATTRIBUTES, Revision: 1, Size: 8 };
        attributes.write(header);
        filter_stack::NdisFSetAttributes(handle.addr(), context, attributes)
    })
}

unsafe extern "efiapi" fn detach(context: NDIS_HANDLE) {
    on_host_stack(|| {
        // SAFETY: the reference of the context, which NDIS does not use again.
        let module = unsafe { Arc::from_raw(context.cast::<Module>().cast_const()) };
        module.driver.counters.detached.fetch_add(1, Relaxed);
    });
}

unsafe extern "efiapi" fn restart(context: NDIS_HANDLE, _: *mut c_void) -> NDIS_STATUS {
    // SAFETY: NDIS passes the context of an attached module.
    on_host_stack(|| unsafe { module(context) }.restart());
    NDIS_STATUS_SUCCESS
}

unsafe extern "efiapi" fn pause(context: NDIS_HANDLE, _: *mut c_void) -> NDIS_STATUS {
    // SAFETY: NDIS passes the context of an attached module.
    on_host_stack(|| unsafe { module(context) }.pause());
    NDIS_STATUS_SUCCESS
}

unsafe extern "efiapi" fn send(context: NDIS_HANDLE, lists: *mut NET_BUFFER_LIST, _port: u32, _flags: u32) {
    // SAFETY: NDIS passes the context of an attached module.
    on_host_stack(|| unsafe { module(context) }.pass(&chain(Guest::new(lists)), true));
}

unsafe extern "efiapi" fn send_complete(context: NDIS_HANDLE, lists: *mut NET_BUFFER_LIST, _flags: u32) {
    on_host_stack(|| {
        // SAFETY: NDIS passes the context of an attached module.
        let module = unsafe { module(context) };
        let mut lists = chain(Guest::new(lists));
        module.originals(&mut lists, true);
        module.complete(&lists);
    });
}

unsafe extern "efiapi" fn receive(
    context: NDIS_HANDLE,
    lists: *mut NET_BUFFER_LIST,
    _port: u32,
    _count: u32,
    flags: u32,
) {
    on_host_stack(|| {
        // SAFETY: NDIS passes the context of an attached module.
        let module = unsafe { module(context) };
        let lists = chain(Guest::new(lists));
        if flags & NDIS_RECEIVE_FLAGS_RESOURCES == 0 {
            module.pass(&lists, false);
        } else {
            module.driver.counters.received.fetch_add(lists.len() as u64, Relaxed);
            if module.state.lock().running {
                module.indicate(&lists, flags);
            }
        }
    });
}

unsafe extern "efiapi" fn give_back(context: NDIS_HANDLE, lists: *mut NET_BUFFER_LIST, _flags: u32) {
    on_host_stack(|| {
        // SAFETY: NDIS passes the context of an attached module.
        let module = unsafe { module(context) };
        let mut lists = chain(Guest::new(lists));
        module.originals(&mut lists, false);
        module.give_back(&lists);
    });
}
