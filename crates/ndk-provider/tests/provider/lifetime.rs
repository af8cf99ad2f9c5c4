// SPDX-License-Identifier: MIT OR Apache-2.0

//! Properties of objects of every type: their tables and headers, the level of calls and callbacks, and calls of a
//! consumer inside its callbacks.

use crate::support::*;
use core::ffi::c_void;
use core::ptr::{null, null_mut};
use ndk_abi::ndk::*;
use ndk_abi::nt::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// One object of each type that a consumer creates, below one NDK adapter.
struct Objects {
    cq: Cq,
    pd: *mut NDK_PD,
    qp: *mut NDK_QP,
    mr: *mut NDK_MR,
    mw: *mut NDK_MW,
    srq: *mut NDK_SRQ,
    connector: *mut NDK_CONNECTOR,
    listener: Listener,
    endpoint: *mut NDK_SHARED_ENDPOINT,
}

fn shared_queue(pd: *mut NDK_PD, notification: Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK>) -> *mut NDK_SRQ {
    create(|done, context, out| {
        let none = null_mut();
        call!(pd, NdkCreateSrq, 8, 1, 4, notification, none, none.cast(), done, context, out)
    })
    .expect("a shared receive queue")
}

impl Objects {
    fn new(adapter: &OpenAdapter) -> Self {
        let (cq, pd) = (adapter.cq(16), adapter.pd());
        Self {
            qp: qp(pd, &cq),
            mr: create(|done, context, out| call!(pd, NdkCreateMr, 0, done, context, out)).expect("an MR"),
            mw: create(|done, context, out| call!(pd, NdkCreateMw, done, context, out)).expect("an MW"),
            srq: shared_queue(pd, None),
            connector: adapter.connector(),
            listener: adapter.idle_listener(),
            endpoint: adapter.shared_endpoint(5000),
            cq,
            pd,
        }
    }

    /// The objects and their types.
    fn headers(&self) -> [(*mut NDK_OBJECT_HEADER, i32); 9] {
        [
            (self.qp.cast(), 2),
            (self.cq.raw.cast(), 3),
            (self.mr.cast(), 4),
            (self.mw.cast(), 5),
            (self.pd.cast(), 6),
            (self.endpoint.cast(), 7),
            (self.connector.cast(), 8),
            (self.listener.raw.cast(), 9),
            (self.srq.cast(), 10),
        ]
    }

    /// Closes all objects, successors first.
    fn close(self) {
        close!(self.connector, NdkCloseConnector);
        close!(self.endpoint, NdkCloseSharedEndpoint);
        close!(self.qp, NdkCloseQp);
        close!(self.srq, NdkCloseSrq);
        close!(self.mw, NdkCloseMw);
        close!(self.mr, NdkCloseMr);
        close!(self.pd, NdkClosePd);
        self.listener.close();
        self.cq.close();
    }
}

/// The members of an object's dispatch table, as addresses.
fn members<T>(table: *const T) -> Vec<usize> {
    assert_eq!(size_of::<T>() % size_of::<usize>(), 0);
    // SAFETY: a table consists of function pointers, which may be null.
    unsafe { std::slice::from_raw_parts(table.cast::<usize>(), size_of::<T>() / size_of::<usize>()) }.to_vec()
}

/// The table of a live object.
macro_rules! table {
    ($object:expr) => {{
        let object = $object;
        // SAFETY: the object is open, its dispatch pointer is the provider's own, and the table is static.
        unsafe { &*(*object).Dispatch }
    }};
}

//= R-OPEN-22, R-CREATE-8, R-OPEN-19, R-MR-68
#[test]
fn every_member_of_every_table_is_there() {
    let (a, _b) = pair();
    let objects = Objects::new(&a);
    let tables = [
        (members(table!(a.adapter())), 9),
        (members(table!(objects.qp)), 11),
        (members(table!(objects.cq.raw)), 7),
        (members(table!(objects.mr)), 7),
        (members(table!(objects.mw)), 3),
        (members(table!(objects.pd)), 8),
        (members(table!(objects.endpoint)), 3),
        (members(table!(objects.connector)), 13),
        (members(table!(objects.listener.raw)), 5),
        (members(table!(objects.srq)), 4),
    ];
    for (index, (table, count)) in tables.into_iter().enumerate() {
        assert_eq!(table.len(), count, "table {index}");
        assert!(table.iter().all(|member| *member != 0), "table {index}");
    }
    for (header, kind) in objects.headers() {
        // SAFETY: `objects` is closed below, and each of its objects begins with a header.
        assert_eq!(unsafe { header.read() }.ObjectType.0, kind);
    }
    objects.close();
}

/// The pattern names all members, so that another one would not compile.
//= R-OPEN-27, R-CLOSE-36
#[test]
fn adapter_has_no_member_that_closes_it() {
    let (a, _b) = pair();
    let NDK_ADAPTER_DISPATCH {
        NdkQueryExtension: _,
        NdkQueryAdapterInfo: _,
        NdkCreateCq: _,
        NdkCreatePd: _,
        NdkCreateSharedEndpoint: _,
        NdkCreateConnector: _,
        NdkCreateListener: _,
        NdkBuildLAM: _,
        NdkReleaseLAM: _,
    } = *table!(a.adapter());
}

/// The pattern names all members: `NdkDisconnectEx` is not among them. The last two came with version 2.1.
//= R-CONN-97, R-CONN-98
#[test]
fn connector_has_no_abortive_disconnect_and_ends_with_the_members_of_version_2_1() {
    let (a, _b) = pair();
    let connector = a.connector();
    let NDK_CONNECTOR_DISPATCH {
        NdkCloseConnector: _,
        NdkQueryExtension: _,
        NdkConnect: _,
        NdkConnectWithSharedEndpoint: _,
        NdkCompleteConnect: _,
        NdkAccept: _,
        NdkReject: _,
        NdkGetConnectionData: _,
        NdkGetLocalAddress: _,
        NdkGetPeerAddress: _,
        NdkDisconnect: _,
        NdkCompleteConnectEx: _,
        NdkAcceptEx: _,
    } = *table!(connector);
    let size = size_of::<NDK_CONNECTOR_DISPATCH>();
    assert_eq!(core::mem::offset_of!(NDK_CONNECTOR_DISPATCH, NdkAcceptEx), size - 8);
    assert_eq!(core::mem::offset_of!(NDK_CONNECTOR_DISPATCH, NdkCompleteConnectEx), size - 16);
    close!(connector, NdkCloseConnector);
}

/// Values that the layer above writes into an object: its own reserved block, and another dispatch pointer.
const RESERVED: [usize; 4] = [0x11, 0x22, 0x33, 0x44];

//= R-OPEN-20, R-OPEN-21
#[test]
fn layer_above_owns_the_dispatch_pointer_and_the_reserved_block() {
    for (a, _b) in [pair(), pending_pair()] {
        let adapter = a.open(2, 1);
        let objects = Objects::new(&adapter);
        let (cq, pd, qp, mr) =
            (*table!(objects.cq.raw), *table!(objects.pd), *table!(objects.qp), *table!(objects.mr));
        let (mw, srq, connector, listener, endpoint) = (
            *table!(objects.mw),
            *table!(objects.srq),
            *table!(objects.connector),
            *table!(objects.listener.raw),
            *table!(objects.endpoint),
        );
        let headers = objects.headers().map(|(header, _)| header);
        for header in headers {
            // SAFETY: the consumer's part of a live object: the header, and the dispatch pointer behind it.
            unsafe {
                (*header).NdkReserved.rf = RESERVED.map(core::ptr::without_provenance_mut);
                header.add(1).cast::<usize>().write(0xdead_dead_dead_dead);
            }
        }
        let notified = objects.cq.notified;
        let (raw, none) = (objects.cq.raw, null_mut::<c_void>());
        // SAFETY: the tests keep the contract of NDKPI, also with tables that they saved.
        unsafe {
            cq.NdkArmCq.unwrap()(raw, NDK_CQ_NOTIFY_ANY);
            assert_eq!(qp.NdkReceive.unwrap()(objects.qp, none, null(), 0), STATUS_SUCCESS);
            qp.NdkFlush.unwrap()(objects.qp);
        }
        notified.wait(1);
        let memory = Memory::new(4096);
        // SAFETY: the tables are the provider's, the objects are open, and `memory` outlives the region.
        unsafe {
            let registered = request(|done, context| {
                mr.NdkRegisterMr.unwrap()(objects.mr, memory.mdl(), 4096, 1, done, context)
            });
            assert_eq!(registered, STATUS_SUCCESS);
            assert_ne!(mr.NdkGetLocalTokenFromMr.unwrap()(objects.mr), 0);
            let mut token = 0;
            pd.NdkGetPrivilegedMemoryRegionToken.unwrap()(objects.pd, &raw mut token);
            assert_ne!(token, 0);
        }
        for header in headers {
            // SAFETY: the object is live until its close below.
            let (reserved, dispatch) =
                unsafe { ((*header).NdkReserved.rf, header.add(1).cast::<usize>().read()) };
            assert_eq!(reserved.map(<*mut _>::addr), RESERVED);
            assert_eq!(dispatch, 0xdead_dead_dead_dead);
        }
        let mut closing = Vec::new();
        let mut close = |object: *mut NDK_OBJECT_HEADER, member: Option<NDK_FN_CLOSE_OBJECT>| {
            let record = CallbackRecord::new();
            // SAFETY: each object is closed once.
            let status = unsafe { member.unwrap()(object, Some(on_close), record.context()) };
            closing.push(Closing::new(status, record));
        };
        close(objects.connector.cast(), connector.NdkCloseConnector);
        close(objects.endpoint.cast(), endpoint.NdkCloseSharedEndpoint);
        close(objects.qp.cast(), qp.NdkCloseQp);
        close(objects.srq.cast(), srq.NdkCloseSrq);
        close(objects.mw.cast(), mw.NdkCloseMw);
        close(objects.mr.cast(), mr.NdkCloseMr);
        close(objects.pd.cast(), pd.NdkClosePd);
        close(objects.listener.raw.cast(), listener.NdkCloseListener);
        close(raw.cast(), cq.NdkCloseCq);
        closing.into_iter().for_each(Closing::wait);
        adapter.close();
    }
}

//= R-CLOSE-36, R-CLOSE-21, R-OPEN-24
#[test]
fn only_the_close_of_the_adapter_waits() {
    let (a, _b) = pair();
    let adapter = a.open(2, 1);
    let objects = Objects::new(&adapter);
    // Each of these has a successor: the queue pair, the window's domain and so on.
    let pd = begin_close!(objects.pd, NdkClosePd);
    let cq = begin_close!(objects.cq.raw, NdkCloseCq);
    assert_eq!([pd.status, cq.status], [STATUS_PENDING; 2]);
    let closer = std::thread::spawn(move || adapter.close());
    std::thread::sleep(Duration::from_millis(20));
    assert!(!closer.is_finished());
    close!(objects.connector, NdkCloseConnector);
    close!(objects.endpoint, NdkCloseSharedEndpoint);
    objects.listener.close();
    close!(objects.qp, NdkCloseQp);
    close!(objects.srq, NdkCloseSrq);
    close!(objects.mw, NdkCloseMw);
    assert!(!pd.is_done() && !closer.is_finished());
    close!(objects.mr, NdkCloseMr);
    closer.join().unwrap();
    assert!(pd.is_done() && cq.is_done());
}

/// A callback holds no reference of its own that would spare the close a wait.
//= R-OPEN-28, R-OPEN-25
#[test]
fn close_of_the_adapter_waits_for_a_callback_in_progress() {
    let (a, _b) = pair();
    let adapter = a.open(2, 1);
    let gate = Gate::new();
    let raw = create(|done, context, out| {
        let (callback, own) = (Some(on_cq_at_gate as NDK_FN_CQ_NOTIFICATION_CALLBACK), gate.context());
        call!(adapter.adapter(), NdkCreateCq, 4, callback, own, null_mut(), done, context, out)
    })
    .expect("a queue");
    let (cq, pd) = (Cq { raw, notified: CallbackRecord::new() }, adapter.pd());
    let qp = qp(pd, &cq);
    cq.arm(NDK_CQ_NOTIFY_ANY);
    assert_eq!(call!(qp, NdkReceive, null_mut(), null(), 0), STATUS_SUCCESS);
    close!(qp, NdkCloseQp);
    gate.wait();
    close!(pd, NdkClosePd);
    let closing = begin_close!(cq.raw, NdkCloseCq);
    let closer = std::thread::spawn(move || adapter.close());
    std::thread::sleep(Duration::from_millis(20));
    assert!(!closing.is_done() && !closer.is_finished(), "closed during a callback");
    gate.open();
    closer.join().unwrap();
    assert!(closing.is_done());
}

//= R-CLOSE-12
#[test]
fn object_whose_close_was_requested_may_still_be_called() {
    let (a, _b) = pair();
    let (cq, pd) = (a.cq(8), a.pd());
    let qp = qp(pd, &cq);
    let closing = [begin_close!(pd, NdkClosePd), begin_close!(cq.raw, NdkCloseCq)];
    let mut token = 0;
    call!(pd, NdkGetPrivilegedMemoryRegionToken, &raw mut token);
    assert_ne!(token, 0);
    let mr: *mut NDK_MR = create(|done, context, out| call!(pd, NdkCreateMr, 0, done, context, out)).unwrap();
    cq.arm(NDK_CQ_NOTIFY_ANY);
    assert!(cq.poll().is_none());
    // A second close is a mistake. It has no effect, and no callback.
    let again = [begin_close!(pd, NdkClosePd), begin_close!(cq.raw, NdkCloseCq)];
    assert!(again.iter().all(|again| again.status == STATUS_SUCCESS));
    assert!(!closing.iter().any(Closing::is_done));
    close!(qp, NdkCloseQp);
    close!(mr, NdkCloseMr);
    closing.into_iter().for_each(Closing::wait);
}

//= R-CLOSE-8, R-CLOSE-3, R-CLOSE-26
#[test]
fn no_callback_follows_the_close() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let (notified, disconnected) = (active.cq.notified, active.disconnected);
    assert_eq!(active.receive(1, &[]), STATUS_SUCCESS);
    // Both a notification and a disconnect event are due, and not made.
    let held = a.hold_callbacks();
    active.cq.arm(NDK_CQ_NOTIFY_ANY);
    let before = a.counter("rx_datagrams");
    let leaving = begin_close!(passive.connector, NdkCloseConnector);
    wait("the disconnect has arrived", || a.counter("rx_datagrams") > before);
    std::thread::sleep(Duration::from_millis(20));
    call!(active.qp, NdkFlush);
    let connector = begin_close!(active.connector, NdkCloseConnector);
    let qp = begin_close!(active.qp, NdkCloseQp);
    let cq = begin_close!(active.cq.raw, NdkCloseCq);
    drop(held);
    [connector, qp, cq].into_iter().for_each(Closing::wait);
    let after = (notified.count(), disconnected.count());
    assert_eq!(after, (0, 0), "the objects were closed before the callbacks were made");
    std::thread::sleep(Duration::from_millis(50));
    drop(a.hold_callbacks());
    assert_eq!((notified.count(), disconnected.count()), after);
    close!(active.pd, NdkClosePd);
    leaving.wait();
    close!(passive.qp, NdkCloseQp);
    passive.cq.close();
    close!(passive.pd, NdkClosePd);
    listener.close();
}

/// Whether a callback without a context was made.
static NULL_CONTEXT_SEEN: AtomicBool = AtomicBool::new(false);

unsafe extern "efiapi" fn on_cq_without_context(context: *mut c_void, _status: NTSTATUS) {
    assert!(context.is_null());
    NULL_CONTEXT_SEEN.store(true, Ordering::SeqCst);
}

//= R-CREATE-26
#[test]
fn notification_is_mandatory_and_its_context_is_not() {
    let (a, _b) = pair();
    let make = |callback| {
        create(|done, context, out| {
            let none = null_mut::<c_void>();
            call!(a.adapter(), NdkCreateCq, 4, callback, none, none.cast(), done, context, out)
        })
    };
    assert_eq!(make(None).err(), Some(STATUS_INVALID_PARAMETER));
    let raw = make(Some(on_cq_without_context)).expect("a queue");
    let (cq, pd) = (Cq { raw, notified: CallbackRecord::new() }, a.pd());
    let qp = qp(pd, &cq);
    assert_eq!(call!(qp, NdkReceive, null_mut(), null(), 0), STATUS_SUCCESS);
    cq.arm(NDK_CQ_NOTIFY_ANY);
    call!(qp, NdkFlush);
    wait("the notification is made", || NULL_CONTEXT_SEEN.load(Ordering::SeqCst));
    close!(qp, NdkCloseQp);
    close!(pd, NdkClosePd);
    cq.close();
}

//= R-CREATE-25, R-CQ-2
#[test]
fn completion_queue_is_not_armed_when_it_is_created() {
    let (a, _b) = pair();
    let (cq, pd) = (a.cq(16), a.pd());
    let qp = qp(pd, &cq);
    assert_eq!(call!(qp, NdkReceive, null_mut(), null(), 0), STATUS_SUCCESS);
    call!(qp, NdkFlush);
    // A notification that is due is made before the result is polled, which would withdraw it.
    drop(a.hold_callbacks());
    assert_eq!(cq.notified.count(), 0);
    assert_eq!(cq.next().Status, STATUS_CANCELLED);
    close!(qp, NdkCloseQp);
    close!(pd, NdkClosePd);
    cq.close();
}

//= R-CREATE-33, R-CREATE-37, R-CREATE-34
#[test]
fn completions_carry_the_context_of_their_queue_pair() {
    let (a, _b) = pair();
    // One queue for both directions of all queue pairs, and smaller than their depths together.
    let (cq, pd) = (a.cq(8), a.pd());
    let contexts = [0, 1, u64::MAX, 5, 6, 7, 8, 9];
    let pairs = contexts.map(|context| {
        create(|done, request, out| {
            let (raw, own) = (cq.raw, pointer(context));
            call!(pd, NdkCreateQp, raw, raw, own, 4, 4, 1, 1, 0, done, request, out)
        })
        .expect("a queue pair")
    });
    for (qp, context) in pairs.into_iter().zip(contexts) {
        assert_eq!(call!(qp, NdkReceive, pointer(77), null(), 0), STATUS_SUCCESS);
        call!(qp, NdkFlush);
        let result = cq.next();
        assert_eq!((result.QPContext, result.RequestContext), (pointer(context), pointer(77)));
    }
    for qp in pairs {
        close!(qp, NdkCloseQp);
    }
    close!(pd, NdkClosePd);
    cq.close();
}

//= R-CREATE-31, R-CREATE-41
#[test]
fn shared_receive_queue_needs_no_notification_and_exists_before_its_queue_pairs() {
    let (a, b) = pair();
    let (end, pd) = (a.active(), b.pd());
    let (cq, srq) = (b.cq(16), shared_queue(pd, None));
    let with = |srq: *mut NDK_SRQ| {
        create(|done, context, out| {
            call!(pd, NdkCreateQpWithSrq, cq.raw, cq.raw, srq, null_mut(), 4, 1, 0, done, context, out)
        })
    };
    assert_eq!(with(null_mut()).err(), Some(STATUS_INVALID_PARAMETER));
    let qp: *mut NDK_QP = with(srq).expect("a queue pair");
    // The threshold is 4: five receives, and two of them taken, cross it.
    for context in 0..5 {
        assert_eq!(call!(srq, NdkSrqReceive, pointer(context), null(), 0), STATUS_SUCCESS);
    }
    let listener = b.listener(445);
    let connecting = end.connect(a.at(0), b.at(445), &[]);
    let passive = End { cq, pd, qp, connector: listener.accept(), disconnected: CallbackRecord::new() };
    establish(&end, &passive, &connecting);
    for context in 0..2 {
        assert_eq!(end.send(context, &[], 0), STATUS_SUCCESS);
        assert_eq!(passive.cq.next().RequestContext, pointer(context));
    }
    drop(b.hold_callbacks());
    end.close();
    close!(passive.connector, NdkCloseConnector);
    close!(passive.qp, NdkCloseQp);
    close!(srq, NdkCloseSrq);
    passive.cq.close();
    close!(passive.pd, NdkClosePd);
    listener.close();
}

//= R-CREATE-45
#[test]
fn connectors_and_listeners_reserve_no_port() {
    let (a, _b) = pair();
    let connectors: Vec<_> = (0..1000).map(|_| a.connector()).collect();
    let listeners: Vec<_> = (0..100).map(|_| a.idle_listener()).collect();
    a.provider.local_endpoints(|_| panic!("an endpoint exists"));
    // Every port of the ephemeral range is free.
    let first = a.shared_endpoint(49152);
    let last = a.shared_endpoint(65535);
    close!(first, NdkCloseSharedEndpoint);
    close!(last, NdkCloseSharedEndpoint);
    for connector in connectors {
        close!(connector, NdkCloseConnector);
    }
    listeners.into_iter().for_each(Listener::close);
}

//= R-CREATE-46
#[test]
fn connect_event_is_mandatory_and_is_not_raised_before_listen() {
    let (a, b) = pair();
    let without: Result<*mut NDK_LISTENER, _> = create(|done, context, out| {
        call!(b.adapter(), NdkCreateListener, None, null_mut(), done, context, out)
    });
    assert_eq!(without.err(), Some(STATUS_INVALID_PARAMETER));
    let listener = b.idle_listener();
    let refused = a.active();
    assert_eq!(refused.connect(a.at(0), b.at(445), &[]).wait(), STATUS_CONNECTION_REFUSED);
    assert!(listener.is_idle());
    refused.close();
    listener.close();
}

//= R-CREATE-4
#[test]
fn create_that_fails_inline_makes_no_callback() {
    let (a, _b) = pending_pair();
    let pd = a.pd();
    a.host.remove_device();
    let record = CallbackRecord::new();
    let (mut cq, mut mr, none) = (null_mut(), null_mut(), null_mut::<c_void>());
    let done = Some(on_failed as NDK_FN_CREATE_COMPLETION);
    let created = call!(
        a.adapter(),
        NdkCreateCq,
        1,
        Some(on_cq),
        none,
        none.cast(),
        done,
        record.context(),
        &raw mut cq
    );
    assert_eq!(created, STATUS_DEVICE_REMOVED);
    let created = call!(pd, NdkCreateMr, 0, done, record.context(), &raw mut mr);
    assert_eq!(created, STATUS_DEVICE_REMOVED);
    assert!(cq.is_null() && mr.is_null());
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(record.count(), 0);
    close!(pd, NdkClosePd);
}

unsafe extern "efiapi" fn on_failed(context: *mut c_void, status: NTSTATUS, _object: *mut NDK_OBJECT_HEADER) {
    // SAFETY: `CallbackRecord::new` leaks each record, which is the context of both calls.
    unsafe { &*context.cast::<CallbackRecord>() }.record(status);
}

//= R-CREATE-24
#[test]
fn affinity_is_read_during_the_call_alone() {
    let (a, _b) = pending_pair();
    let (mut cq, mut pending) = (null_mut::<NDK_CQ>(), None);
    create(|done, context, out| {
        let mut affinity = Box::new(GROUP_AFFINITY { Mask: 1, Group: 0, Reserved: [0; 3] });
        let status = call!(
            a.adapter(),
            NdkCreateCq,
            4,
            Some(on_cq),
            null_mut(),
            &raw mut *affinity,
            done,
            context,
            out
        );
        // What is read later is an affinity of no processor, and then freed memory.
        *affinity = GROUP_AFFINITY { Mask: 0, Group: 0xffff, Reserved: [0xffff; 3] };
        pending = Some(status);
        status
    })
    .map(|created: *mut NDK_CQ| cq = created)
    .expect("a queue");
    assert_eq!(pending, Some(STATUS_PENDING));
    close!(cq, NdkCloseCq);
}

/// The processor of the first notification of a shared receive queue.
unsafe extern "efiapi" fn on_low(context: *mut c_void, _status: NTSTATUS) {
    // SAFETY: the context is a sender that is never freed.
    let seen = unsafe { &*context.cast::<Sender<u32>>() };
    seen.send(nt::processor::current()).expect("the test waits");
}

//= R-SRQ-19, R-CREATE-24
#[test]
fn shared_receive_queue_is_notified_on_a_processor_of_its_affinity() {
    for (a, _b) in [pair(), pending_pair()] {
        let pd = a.pd();
        for (group, mask, expected) in [
            (0, 1, Some(0)),
            (0, 2, Some(1)),
            (0, 1 << 63 | 2, Some(1)),
            (0, 3, None),
            (0, 0, None),
            (0xffff, 1, None),
        ] {
            let (sender, seen) = channel::<u32>();
            let sender: &'static Sender<u32> = Box::leak(Box::new(sender));
            let context = core::ptr::from_ref(sender).cast_mut().cast();
            let mut affinity = Box::new(GROUP_AFFINITY { Mask: mask, Group: group, Reserved: [0; 3] });
            let srq: *mut NDK_SRQ = create(|done, request, out| {
                let hint = &raw mut *affinity;
                let status =
                    call!(pd, NdkCreateSrq, 8, 1, 0, Some(on_low), context, hint, done, request, out);
                // What is read later is an affinity of the other processor, and then freed memory.
                *affinity = GROUP_AFFINITY { Mask: !mask & 3, Group: 0, Reserved: [0; 3] };
                status
            })
            .unwrap_or_else(|status| panic!("group {group}, mask {mask:#x}: {status:#x}"));
            drop(affinity);
            // It holds no receive.
            assert_eq!(
                request(|done, request| call!(srq, NdkModifySrq, 0, 1, done, request)),
                STATUS_SUCCESS
            );
            let processor = seen.recv_timeout(TIMEOUT).expect("a notification");
            assert!(expected.is_none_or(|expected| expected == processor), "mask {mask:#x}: {processor}");
            close!(srq, NdkCloseSrq);
        }
        close!(pd, NdkClosePd);
    }
}

//= R-CREATE-23
#[test]
fn affinity_is_no_reason_to_fail() {
    let (a, _b) = pair();
    for (group, mask) in [(0, 1), (0, 0), (0, usize::MAX), (0xffff, 1), (7, 1 << 63)] {
        let mut affinity = GROUP_AFFINITY { Mask: mask as _, Group: group, Reserved: [0; 3] };
        for hint in [&raw mut affinity, null_mut()] {
            let cq: *mut NDK_CQ = create(|done, context, out| {
                call!(a.adapter(), NdkCreateCq, 4, Some(on_cq), null_mut(), hint, done, context, out)
            })
            .unwrap_or_else(|status| panic!("group {group}, mask {mask:#x}: {status:#x}"));
            close!(cq, NdkCloseCq);
        }
    }
}
