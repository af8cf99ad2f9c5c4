// SPDX-License-Identifier: MIT OR Apache-2.0

//! Poll objects: NDIS calls the miniport for received lists and completed sends, and limits the number of each.
//! (windows-driver-docs: network/ndis-poll-mode; windows-driver-docs-ddi: poll)
//!
//! NDIS polls an object from its registration on: it calls `NdisPoll`, and again while a call indicates or completes a list. Then
//! it enables the notification by `NdisSetPollNotification`, and calls `NdisPoll` once more, for what arrived before. If that
//! call makes no progress either, the object is idle until the next `NdisRequestPoll`, which NDIS begins by disabling the
//! notification. A request while the notification is not enabled has no effect: a call follows in any case. What Microsoft's
//! fake NDIS for tests of XDP does, and what was seen of the order of the notifications; the pages do not say it.
//!
//! The handlers of an object never run at the same time. The first [`CALLS_AT_DISPATCH`] calls after a request are made in a DPC,
//! those that follow on a thread at `PASSIVE_LEVEL`: a miniport must not assume either. Nor may it assume a processor that it has not
//! set with `NdisSetPollAffinity`: the calls in a DPC are made on that of the request, those of the thread on the next one.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use ndk_abi::{
    ndis::{
        NDIS_ANY_NUMBER_OF_NBLS, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT, NDIS_POLL,
        NDIS_POLL_CHARACTERISTICS, NDIS_POLL_CHARACTERISTICS_REVISION_1, NDIS_POLL_DATA,
        NDIS_POLL_DATA_REVISION_1, NDIS_POLL_NOTIFICATION, NDIS_POLL_NOTIFICATION_REVISION_1,
        NDIS_RECEIVE_FLAGS_PERFECT_FILTERED, NDIS_RECEIVE_FLAGS_SHARED_MEMORY_INFO_VALID,
        NDIS_RECEIVE_FLAGS_SINGLE_ETHER_TYPE, NDIS_RECEIVE_FLAGS_SINGLE_QUEUE,
        NDIS_RECEIVE_FLAGS_SINGLE_VLAN, NDIS_SEND_COMPLETE_FLAGS_SINGLE_QUEUE,
        NDIS_SEND_COMPLETE_FLAGS_SWITCH_SINGLE_SOURCE, NDIS_SET_POLL_NOTIFICATION,
        NDIS_SIZEOF_NDIS_POLL_CHARACTERISTICS_REVISION_1, NDIS_SIZEOF_NDIS_POLL_DATA_REVISION_1,
        NDIS_SIZEOF_NDIS_POLL_NOTIFICATION_REVISION_1, NDIS_STATUS, NDIS_STATUS_RESOURCES,
        NDIS_STATUS_SUCCESS, NET_BUFFER_LIST,
    },
    nt::PROCESSOR_NUMBER,
};
use nt_sim::{
    Host,
    cpu::{Affinity, CpuId},
    current,
    guest::Guest,
    image::call,
    imports,
    thread::ThreadId,
};
use parking_lot::Mutex;

use crate::{
    adapter::{Adapter, adapter},
    handle::{self, HANDLES},
    interrupt,
    list_fields::chain,
    owner,
    rules::{self, broken, require},
    wait::wait_until,
};

const REGISTER: &str = "NdisRegisterPoll";

/// Number of calls in a DPC after a request; NDIS makes those that follow at `PASSIVE_LEVEL`. Our choice: NDIS documents none.
pub const CALLS_AT_DISPATCH: u32 = 4;

/// The flags that a miniport may set in `Receive.Flags`.
const RECEIVE_FLAGS: u32 = NDIS_RECEIVE_FLAGS_SINGLE_ETHER_TYPE
    | NDIS_RECEIVE_FLAGS_SINGLE_VLAN
    | NDIS_RECEIVE_FLAGS_PERFECT_FILTERED
    | NDIS_RECEIVE_FLAGS_SINGLE_QUEUE
    | NDIS_RECEIVE_FLAGS_SHARED_MEMORY_INFO_VALID;

/// The flags that a miniport may set in `Transmit.SendCompleteFlags`.
const COMPLETE_FLAGS: u32 =
    NDIS_SEND_COMPLETE_FLAGS_SINGLE_QUEUE | NDIS_SEND_COMPLETE_FLAGS_SWITCH_SINGLE_SOURCE;

/// A registered poll object.
struct PollObject {
    handle: usize,
    adapter: Arc<Adapter>,
    context: usize,
    on_poll: NDIS_POLL,
    on_notify: NDIS_SET_POLL_NOTIFICATION,
    /// Number of lists that it has indicated.
    indicated: Arc<AtomicU64>,
    state: Mutex<State>,
}

#[allow(clippy::struct_excessive_bools, reason = "independent of each other")]
struct State {
    /// The processor of `NdisSetPollAffinity`.
    affinity: Option<CpuId>,
    /// The processor of the last request that began a series of calls.
    requester: CpuId,
    /// The notification is enabled, and no poll was requested since.
    armed: bool,
    /// A poll was requested while the notification was enabled, and no handler was called since.
    requested: bool,
    /// A handler runs, or its call is queued.
    active: bool,
    /// Number of calls of `NdisPoll` since `active` was set.
    calls: u32,
    /// The thread that runs a handler.
    thread: Option<ThreadId>,
    closing: bool,
}

fn header(revision: u8, size: u16) -> NDIS_OBJECT_HEADER {
    NDIS_OBJECT_HEADER { Type: NDIS_OBJECT_TYPE_DEFAULT, Revision: revision, Size: size }
}

/// Returns the lists of a chain; checks their number, and the limit of it.
fn counted(what: &str, first: *mut NET_BUFFER_LIST, stated: u32, limit: u32) -> Vec<Guest<NET_BUFFER_LIST>> {
    let lists = chain(Guest::new(first));
    let is_right = stated == NDIS_ANY_NUMBER_OF_NBLS || stated as usize == lists.len();
    require(is_right, rules::POLLED, || {
        format!("NdisPoll says that it {what} {stated} lists, but the chain has {}", lists.len())
    });
    require(limit == NDIS_ANY_NUMBER_OF_NBLS || lists.len() <= limit as usize, rules::POLLED, || {
        format!("NdisPoll {what} {} lists, more than the limit of {limit}", lists.len())
    });
    lists
}

impl PollObject {
    fn request(self: &Arc<Self>, host: &Arc<Host>) {
        {
            let mut state = self.state.lock();
            if state.closing || !std::mem::take(&mut state.armed) {
                return;
            }
            state.requested = true;
            if std::mem::replace(&mut state.active, true) {
                return;
            }
            state.calls = 0;
            state.requester = current().cpu();
        }
        self.schedule(host);
    }

    /// Queues the next call of `NdisPoll`.
    fn schedule(self: &Arc<Self>, host: &Arc<Host>) {
        let (cpu, is_bound, calls) = {
            let state = self.state.lock();
            (state.affinity.unwrap_or(state.requester), state.affinity.is_some(), state.calls)
        };
        let (this, on) = (self.clone(), host.clone());
        if calls < CALLS_AT_DISPATCH {
            host.queue_dpc(cpu, move || this.run(&on));
            return;
        }
        let cpu = if is_bound { cpu } else { CpuId((cpu.0 + 1) % host.cpus.count()) };
        host.queue_work(move || {
            let me = current();
            let before = me.affinity();
            me.set_affinity(Affinity::only(cpu));
            this.run(&on);
            me.set_affinity(before);
        });
    }

    /// Begins to poll a registered object.
    fn start(self: &Arc<Self>, host: &Arc<Host>) {
        {
            let mut state = self.state.lock();
            state.active = true;
            state.requester = current().cpu();
        }
        self.schedule(host);
    }

    /// Calls `NdisPoll`; if it made no progress, enables the notification and calls it again.
    fn run(self: &Arc<Self>, host: &Arc<Host>) {
        let is_requested = {
            let mut state = self.state.lock();
            if state.closing {
                state.active = false;
                return;
            }
            state.calls = state.calls.saturating_add(1);
            state.thread = Some(current().id());
            std::mem::take(&mut state.requested)
        };
        if is_requested {
            self.notify(false);
        }
        let mut progress = self.call_poll(host);
        if !progress {
            self.state.lock().armed = true;
            self.notify(true);
            progress = self.call_poll(host);
        }
        let again = {
            let mut state = self.state.lock();
            state.thread = None;
            if progress {
                state.armed = false;
            }
            state.active = !state.closing && (progress || state.requested);
            state.active
        };
        if again {
            self.schedule(host);
        }
    }

    /// Calls `NdisPoll` and processes what it returns; returns whether it indicated or completed a list.
    fn call_poll(&self, host: &Arc<Host>) -> bool {
        let limit = interrupt::receive_limit(host);
        let mut data = NDIS_POLL_DATA::zeroed();
        data.Header = header(NDIS_POLL_DATA_REVISION_1, NDIS_SIZEOF_NDIS_POLL_DATA_REVISION_1);
        data.Receive.MaxNblsToIndicate = limit;
        data.Transmit.MaxNblsToComplete = limit;
        let pointer = &raw mut data;
        self.adapter.polls.fetch_add(1, Relaxed);
        call("NdisPoll", || {
            // SAFETY: the image registered the function under this contract; the data lives through the call.
            unsafe { (self.on_poll)(self.context as *mut _, pointer) };
        });
        // SAFETY: our own variable, which the image may have written through the pointer.
        let data = unsafe { pointer.read_volatile() };
        let (receive, transmit) = (data.Receive, data.Transmit);
        let given = (receive.MaxNblsToIndicate, receive.Reserved1, receive.Reserved2, receive.Reserved3);
        let taken = (transmit.MaxNblsToComplete, transmit.Reserved1, transmit.Reserved2, transmit.Reserved3);
        let kept = (limit, [0; 3], 0, [std::ptr::null_mut(); 4]);
        require(given == kept && taken == kept, rules::POLLED, || {
            "NdisPoll changed limits or reserved members of NDIS_POLL_DATA".into()
        });
        require(receive.Flags & !RECEIVE_FLAGS == 0, rules::POLLED, || {
            format!("NdisPoll set the receive flags {:#x}, which it may not", receive.Flags)
        });
        require(transmit.SendCompleteFlags & !COMPLETE_FLAGS == 0, rules::POLLED, || {
            format!("NdisPoll set the completion flags {:#x}, which it may not", transmit.SendCompleteFlags)
        });
        let indicated = counted("indicated", receive.IndicatedNblChain, receive.NumberOfIndicatedNbls, limit);
        let completed =
            counted("completed", transmit.CompletedNblChain, transmit.NumberOfCompletedNbls, limit);
        self.indicated.fetch_add(indicated.len() as u64, Relaxed);
        if !indicated.is_empty() {
            self.adapter.indicate(host, "NdisPoll with received lists", &indicated, receive.Flags);
        }
        self.adapter.complete_sends(host, &completed, transmit.SendCompleteFlags);
        !indicated.is_empty() || !completed.is_empty()
    }

    fn notify(&self, is_enabled: bool) {
        let mut notification = NDIS_POLL_NOTIFICATION::zeroed();
        notification.Header =
            header(NDIS_POLL_NOTIFICATION_REVISION_1, NDIS_SIZEOF_NDIS_POLL_NOTIFICATION_REVISION_1);
        notification.Enabled = u8::from(is_enabled);
        let pointer = &raw mut notification;
        call("NdisSetPollNotification", || {
            // SAFETY: the image registered the function under this contract; the notification lives through the call.
            unsafe { (self.on_notify)(self.context as *mut _, pointer) };
        });
    }
}

imports! { IMPORTS: "ndis.sys" =>
    /// Creates a poll object, and begins to poll it.
    [== PASSIVE_LEVEL]
    fn NdisRegisterPoll(
        handle: usize,
        context: usize,
        characteristics: Guest<NDIS_POLL_CHARACTERISTICS>,
        poll: Guest<usize>,
    ) -> NDIS_STATUS {
        let adapter = adapter(handle);
        let version = {
            let driver = &adapter.driver.characteristics;
            (driver.MajorNdisVersion, driver.MinorNdisVersion)
        };
        require(version >= (6, 85), rules::POLL_VERSION, || {
            format!("NdisRegisterPoll by a driver of NDIS {}.{}; poll objects require 6.85", version.0, version.1)
        });
        let requested = characteristics.read();
        let given = requested.Header;
        let known = given.Type == NDIS_OBJECT_TYPE_DEFAULT && given.Revision == NDIS_POLL_CHARACTERISTICS_REVISION_1;
        require(known && given.Size >= NDIS_SIZEOF_NDIS_POLL_CHARACTERISTICS_REVISION_1, rules::HEADER, || {
            format!("NdisRegisterPoll: the characteristics have type {:#x}, revision {} and {} bytes", given.Type, given.Revision, given.Size)
        });
        let handlers = requested.PollHandler.zip(requested.SetPollNotificationHandler);
        let Some((on_poll, on_notify)) = handlers else {
            broken(rules::POLL_HANDLERS, "NdisRegisterPoll: PollHandler and SetPollNotificationHandler are required")
        };
        let host = current().host().clone();
        if host.low_resources.fails() {
            return NDIS_STATUS_RESOURCES;
        }
        let indicated = Arc::<AtomicU64>::default();
        adapter.polled.lock().push(indicated.clone());
        let registered = host.state(&HANDLES).insert_with(|handle| {
            let state = State {
                affinity: None,
                requester: CpuId(0),
                armed: false,
                requested: false,
                active: false,
                calls: 0,
                thread: None,
                closing: false,
            };
            Arc::new(PollObject {
                handle,
                adapter: adapter.clone(),
                context,
                on_poll,
                on_notify,
                indicated,
                state: Mutex::new(state),
            })
        });
        owner::hold(&host, adapter.handle, REGISTER, registered.handle);
        poll.write(registered.handle);
        registered.start(&host);
        NDIS_STATUS_SUCCESS
    }

    /// Removes a poll object; returns when no handler runs, and none is called afterwards.
    [== PASSIVE_LEVEL]
    fn NdisDeregisterPoll(poll: usize) {
        let object: Arc<PollObject> = handle::object("poll handle", poll);
        let inside = object.state.lock().thread == Some(current().id());
        require(!inside, rules::POLL_DEREGISTERED, || "NdisDeregisterPoll by a handler of the poll object: deadlock".into());
        object.state.lock().closing = true;
        wait_until(|| !object.state.lock().active);
        let _ = handle::take::<PollObject>("poll handle", poll);
        let _ = owner::release(current().host(), REGISTER, poll);
    }

    /// Sets the processor on which the handlers run. One call may still be made on the former one.
    [<= DISPATCH_LEVEL]
    fn NdisSetPollAffinity(poll: usize, affinity: Guest<PROCESSOR_NUMBER>) {
        let object: Arc<PollObject> = handle::object("poll handle", poll);
        let number = affinity.read();
        let Some(cpu) = current().host().cpus.groups().cpu(number) else {
            broken(rules::POLL_PROCESSOR, format!(
                "NdisSetPollAffinity to processor {} of group {}, which does not exist",
                number.Number, number.Group
            ))
        };
        object.state.lock().affinity = Some(cpu);
    }

    /// Requests at least one call of `NdisPoll`, which one in progress may be followed by in any case.
    [<= HIGH_LEVEL]
    fn NdisRequestPoll(poll: usize, reserved: usize) {
        require(reserved == 0, rules::RESERVED, || "NdisRequestPoll: Reserved is not null".into());
        let object: Arc<PollObject> = handle::object("poll handle", poll);
        object.request(current().host());
    }
}
