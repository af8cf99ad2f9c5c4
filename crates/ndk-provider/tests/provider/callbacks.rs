// SPDX-License-Identifier: MIT OR Apache-2.0

//! Consumers that call inside callbacks and from several threads at once.

use crate::support::*;
use core::ffi::c_void;
use core::ptr::null_mut;
use ndk_abi::ndk::*;
use ndk_abi::nt::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// A consumer that runs in its notification callback: polls, posts, arms again.
#[derive(Default)]
struct PingPong {
    cq: AtomicPtr<NDK_CQ>,
    /// `None` once the queue pair is about to be closed, after which it is not posted to.
    qp: Mutex<Option<OnAnyThread<NDK_QP>>>,
    inside: AtomicBool,
    rounds: AtomicUsize,
    overlaps: AtomicUsize,
}

unsafe extern "efiapi" fn serve(context: *mut c_void, status: NTSTATUS) {
    // SAFETY: the context of the queue is what `ping_pong_end` leaked.
    let this = unsafe { &*context.cast::<PingPong>() };
    if this.inside.swap(true, Ordering::SeqCst) {
        this.overlaps.fetch_add(1, Ordering::SeqCst);
    }
    assert_eq!(status, STATUS_SUCCESS);
    let cq = this.cq.load(Ordering::SeqCst);
    let mut results = core::mem::MaybeUninit::<[NDK_RESULT_EX; 4]>::uninit();
    let count = call!(cq, NdkGetCqResultsEx, results.as_mut_ptr().cast(), 4);
    //= R-CQ-13
    assert_ne!(count, 0, "a notification without a completion");
    for index in 0..count as usize {
        // SAFETY: the call wrote the first `count` of the four results.
        let result = unsafe { results.as_ptr().cast::<NDK_RESULT_EX>().add(index).read() };
        let qp = this.qp.lock().unwrap();
        if let Some(qp) = &*qp
            && result.Type.0 & 1 == 1
            && result.Status == STATUS_SUCCESS
        {
            this.rounds.fetch_add(1, Ordering::SeqCst);
            let qp = qp.get();
            call!(qp, NdkReceive, null_mut(), core::ptr::null(), 0);
            call!(qp, NdkSend, null_mut(), core::ptr::null(), 0, NDK_OP_FLAG_SILENT_SUCCESS);
        }
    }
    call!(cq, NdkArmCq, NDK_CQ_NOTIFY_ANY);
    this.inside.store(false, Ordering::SeqCst);
}

/// Returns an end whose completion queue is polled in its callback.
fn ping_pong_end(node: &Node, connector: *mut NDK_CONNECTOR) -> (End, &'static PingPong) {
    let ping_pong: &'static PingPong = Box::leak(Box::default());
    let context = core::ptr::from_ref(ping_pong).cast_mut().cast();
    let raw = create(|done, request, out| {
        call!(node.adapter(), NdkCreateCq, 64, Some(serve), context, null_mut(), done, request, out)
    })
    .expect("a queue");
    let (cq, pd) = (Cq { raw, notified: CallbackRecord::new() }, node.pd());
    let end = End { qp: qp(pd, &cq), cq, pd, connector, disconnected: CallbackRecord::new() };
    ping_pong.cq.store(end.cq.raw, Ordering::SeqCst);
    *ping_pong.qp.lock().unwrap() = Some(OnAnyThread(end.qp));
    (end, ping_pong)
}

//= R-CQ-13, R-CQ-14, R-CQ-15, R-CQ-16, R-QP-22, R-IRQL-11, R-CLOSE-25, R-CLOSE-32
#[test]
fn consumer_may_poll_post_and_arm_in_its_callback() {
    let (a, b) = pair();
    let listener = b.listener(445);
    let (active, left) = ping_pong_end(&a, a.connector());
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let (passive, right) = ping_pong_end(&b, listener.accept());
    for end in [&active, &passive] {
        for _ in 0..8 {
            assert_eq!(end.receive(0, &[]), STATUS_SUCCESS);
        }
    }
    let accepting = passive.accept(&[]);
    assert_eq!(connecting.wait(), STATUS_SUCCESS);
    active.cq.arm(NDK_CQ_NOTIFY_ANY);
    passive.cq.arm(NDK_CQ_NOTIFY_ANY);
    assert_eq!(active.complete(), STATUS_SUCCESS);
    assert_eq!(accepting.wait(), STATUS_SUCCESS);
    for _ in 0..4 {
        assert_eq!(active.send(0, &[], NDK_OP_FLAG_SILENT_SUCCESS), STATUS_SUCCESS);
    }
    wait("two thousand messages have gone each way", || {
        left.rounds.load(Ordering::SeqCst) >= 2000 && right.rounds.load(Ordering::SeqCst) >= 2000
    });
    // Close while messages are in flight.
    for (end, ping_pong) in [(active, left), (passive, right)] {
        close!(end.connector, NdkCloseConnector);
        ping_pong.qp.lock().unwrap().take();
        close!(end.qp, NdkCloseQp);
        end.cq.close();
        close!(end.pd, NdkClosePd);
    }
    listener.close();
    assert_eq!([&left.overlaps, &right.overlaps].map(|overlaps| overlaps.load(Ordering::SeqCst)), [0, 0]);
}

/// A completion queue that is closed inside its own notification.
#[derive(Default)]
struct Closer {
    cq: AtomicPtr<NDK_CQ>,
    status: Mutex<Option<NTSTATUS>>,
    closed: AtomicBool,
    left: AtomicBool,
}

unsafe extern "efiapi" fn close_self(context: *mut c_void, _status: NTSTATUS) {
    // SAFETY: the context of the queue is a `Closer` that its test leaks.
    let this = unsafe { &*context.cast::<Closer>() };
    let cq = this.cq.load(Ordering::SeqCst);
    let status = close_with!(cq, NdkCloseCq, Some(note_closed), context);
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(!this.closed.load(Ordering::SeqCst), "the close callback was made during the notification");
    *this.status.lock().unwrap() = Some(status);
    this.left.store(true, Ordering::SeqCst);
}

unsafe extern "efiapi" fn note_closed(context: *mut c_void) {
    // SAFETY: `close_self` passes its own context on: the leaked `Closer`.
    let this = unsafe { &*context.cast::<Closer>() };
    assert!(this.left.load(Ordering::SeqCst));
    this.closed.store(true, Ordering::SeqCst);
}

//= R-CLOSE-5, R-CLOSE-19, R-CQ-59
#[test]
fn completion_queue_closed_in_its_notification_closes_after_it() {
    let (a, _b) = pair();
    let closer: &'static Closer = Box::leak(Box::default());
    let context = core::ptr::from_ref(closer).cast_mut().cast();
    let raw = create(|done, request, out| {
        call!(a.adapter(), NdkCreateCq, 4, Some(close_self), context, null_mut(), done, request, out)
    })
    .expect("a queue");
    closer.cq.store(raw, Ordering::SeqCst);
    let cq = Cq { raw, notified: CallbackRecord::new() };
    let pd = a.pd();
    let qp = qp(pd, &cq);
    assert_eq!(call!(qp, NdkReceive, null_mut(), core::ptr::null(), 0), STATUS_SUCCESS);
    cq.arm(NDK_CQ_NOTIFY_ANY);
    close!(qp, NdkCloseQp);
    wait("the queue is closed", || closer.closed.load(Ordering::SeqCst));
    assert_eq!(*closer.status.lock().unwrap(), Some(STATUS_PENDING));
    close!(pd, NdkClosePd);
}

/// A connector that is closed inside the completion of its connect.
static CLOSED_IN_COMPLETION: Mutex<Option<Closing>> = Mutex::new(None);
static CONNECTOR: AtomicPtr<NDK_CONNECTOR> = AtomicPtr::new(null_mut());

// SAFETY: only for the test below; what it points to is never freed.
unsafe impl Send for Closing {}

unsafe extern "efiapi" fn close_on_completion(_context: *mut c_void, status: NTSTATUS) {
    assert_eq!(status, STATUS_CONNECTION_REFUSED);
    let closing = begin_close!(CONNECTOR.load(Ordering::SeqCst), NdkCloseConnector);
    //= R-CLOSE-4
    assert_eq!(closing.status, STATUS_PENDING);
    *CLOSED_IN_COMPLETION.lock().unwrap() = Some(closing);
}

//= R-CLOSE-4, R-CLOSE-18
#[test]
fn connector_may_be_closed_in_the_completion_of_its_connect() {
    let (a, b) = pair();
    let end = a.active();
    CONNECTOR.store(end.connector, Ordering::SeqCst);
    let ((source, length), (target, _)) = (socket_address(a.at(0)), socket_address(b.at(1)));
    let status = call!(
        end.connector,
        NdkConnect,
        end.qp,
        (&raw const source).cast(),
        length,
        (&raw const target).cast(),
        length,
        0,
        0,
        core::ptr::null(),
        0,
        Some(close_on_completion),
        null_mut()
    );
    assert_eq!(status, STATUS_PENDING);
    wait("the connect was refused", || CLOSED_IN_COMPLETION.lock().unwrap().is_some());
    CLOSED_IN_COMPLETION.lock().unwrap().take().expect("a close").wait();
    close!(end.qp, NdkCloseQp);
    end.cq.close();
    close!(end.pd, NdkClosePd);
}

/// Holds the completion of an accept, in which the connector is closed when the gate is opened.
struct ClosedAtGate {
    gate: &'static Gate,
    connector: *mut NDK_CONNECTOR,
    closing: Mutex<Option<Closing>>,
}

unsafe extern "efiapi" fn close_at_gate(context: *mut c_void, status: NTSTATUS) {
    assert_eq!(status, STATUS_SUCCESS);
    // SAFETY: the accept has the leaked `ClosedAtGate` as its context.
    let this = unsafe { &*context.cast::<ClosedAtGate>() };
    this.gate.hold();
    *this.closing.lock().unwrap() = Some(begin_close!(this.connector, NdkCloseConnector));
}

/// The peer disconnects while the completion of the accept is in progress, in which the consumer closes the connector.
//= R-CLOSE-5, R-CONN-89
#[test]
fn a_disconnect_that_waits_for_a_completion_raises_no_event_after_the_connector_is_closed_in_it() {
    let (a, b) = pair();
    let listener = b.listener(445);
    let active = a.active();
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let passive = b.end(listener.accept());
    let held: &'static ClosedAtGate = Box::leak(Box::new(ClosedAtGate {
        gate: Gate::new(),
        connector: passive.connector,
        closing: Mutex::new(None),
    }));
    let status = call!(
        passive.connector,
        NdkAccept,
        passive.qp,
        1,
        1,
        core::ptr::null(),
        0,
        Some(on_disconnect),
        passive.disconnected.context(),
        Some(close_at_gate),
        core::ptr::from_ref(held).cast_mut().cast()
    );
    assert_eq!(status, STATUS_PENDING);
    assert_eq!(connecting.wait(), STATUS_SUCCESS);
    // The deferred routine makes the callback, so that the receiver can process the disconnect meanwhile.
    let batches = b.host.hold_batches();
    assert_eq!(active.complete(), STATUS_SUCCESS);
    wait("the completion is in progress", || {
        b.provider.transmit_ready();
        held.gate.is_reached()
    });
    drop(batches);
    let disconnecting = CallbackRecord::new();
    let status = call!(active.connector, NdkDisconnect, Some(on_request), disconnecting.context());
    assert_eq!(status, STATUS_PENDING);
    wait("the peer's disconnect is processed", || b.provider.performance_counters().ActiveConnection == 0);
    held.gate.open();
    wait("the connector is being closed", || held.closing.lock().unwrap().is_some());
    held.closing.lock().unwrap().take().expect("a close").wait();
    assert_eq!(passive.disconnected.count(), 0);
    assert_eq!(disconnecting.wait(1), STATUS_SUCCESS);
    close!(passive.qp, NdkCloseQp);
    passive.cq.close();
    close!(passive.pd, NdkClosePd);
    active.close();
    listener.close();
}

//= R-CREATE-17, R-CLOSE-13, R-CREATE-19
#[test]
fn objects_are_created_and_closed_by_many_threads() {
    let (a, _b) = pair();
    let (adapter, pd) = (OnAnyThread(a.adapter()), OnAnyThread(a.pd()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                for _ in 0..50 {
                    let (adapter, pd) = (adapter.get(), pd.get());
                    let raw = create(|done, context, out| {
                        call!(
                            adapter,
                            NdkCreateCq,
                            8,
                            Some(on_cq),
                            null_mut(),
                            null_mut(),
                            done,
                            context,
                            out
                        )
                    })
                    .expect("a queue");
                    let cq = Cq { raw, notified: CallbackRecord::new() };
                    let qp = qp(pd, &cq);
                    let closing = begin_close!(cq.raw, NdkCloseCq);
                    close!(qp, NdkCloseQp);
                    closing.wait();
                }
            });
        }
    });
    close!(pd.get(), NdkClosePd);
}

//= R-QP-2, R-QP-3, R-QP-10, R-QP-11, R-QP-12, R-CLOSE-32, R-QP-70
#[test]
fn every_accepted_post_completes_once_despite_flush_and_close() {
    for round in 0..20 {
        let (a, b) = pair();
        let (active, passive, listener) = connect(&a, &b);
        for context in 0..32 {
            assert_eq!(passive.receive(context, &[]), STATUS_SUCCESS);
        }
        let (qp, connector) = (OnAnyThread(active.qp), OnAnyThread(active.connector));
        let accepted = std::thread::scope(|scope| {
            let poster = scope.spawn(move || {
                let mut accepted = 0;
                for context in 0..30 {
                    let (qp, none) = (qp.get(), core::ptr::null());
                    match call!(qp, NdkSend, pointer(context), none, 0, 0) {
                        STATUS_SUCCESS => accepted += 1,
                        status => assert_eq!(status, STATUS_CONNECTION_INVALID),
                    }
                }
                accepted
            });
            if round % 2 == 0 {
                call!(qp.get(), NdkFlush);
            }
            close!(connector.get(), NdkCloseConnector);
            poster.join().unwrap()
        });
        close!(active.qp, NdkCloseQp);
        let mut contexts = Vec::new();
        while let Some(result) = active.cq.poll() {
            contexts.push(result.RequestContext.addr());
        }
        assert_eq!(contexts, (0..accepted).collect::<Vec<_>>(), "in order, each once");
        active.cq.close();
        close!(active.pd, NdkClosePd);
        passive.close();
        listener.close();
    }
}

/// A consumer that uses a new queue in its create callback, creates another one, and closes the first.
struct InCreate {
    adapter: AtomicPtr<NDK_ADAPTER>,
    status: AtomicI32,
    closing: Mutex<Option<Closing>>,
    second: AtomicPtr<NDK_CQ>,
    seconds: AtomicUsize,
}

unsafe extern "efiapi" fn use_and_close(
    context: *mut c_void,
    status: NTSTATUS,
    object: *mut NDK_OBJECT_HEADER,
) {
    // SAFETY: the context of the create call is the `InCreate` that the test leaks.
    let this = unsafe { &*context.cast::<InCreate>() };
    let cq = Cq { raw: object.cast(), notified: CallbackRecord::new() };
    cq.arm(NDK_CQ_NOTIFY_ANY);
    assert!(cq.poll().is_none());
    let (adapter, none) = (this.adapter.load(Ordering::SeqCst), null_mut::<c_void>());
    let mut out = null_mut();
    let done = Some(note_second as NDK_FN_CREATE_COMPLETION);
    let again = call!(adapter, NdkCreateCq, 1, Some(on_cq), none, none.cast(), done, context, &raw mut out);
    assert_eq!(again, STATUS_PENDING);
    *this.closing.lock().unwrap() = Some(begin_close!(cq.raw, NdkCloseCq));
    // The object may be gone while this callback still runs.
    std::thread::sleep(std::time::Duration::from_millis(20));
    this.status.store(status, Ordering::SeqCst);
}

unsafe extern "efiapi" fn note_second(
    context: *mut c_void,
    status: NTSTATUS,
    object: *mut NDK_OBJECT_HEADER,
) {
    assert_eq!(status, STATUS_SUCCESS);
    // SAFETY: `use_and_close` creates the second queue with its own context, which is leaked.
    let this = unsafe { &*context.cast::<InCreate>() };
    this.second.store(object.cast(), Ordering::SeqCst);
    this.seconds.fetch_add(1, Ordering::SeqCst);
}

//= R-CREATE-10, R-CREATE-11, R-CREATE-18, R-IRQL-4
#[test]
fn object_may_be_used_and_closed_in_its_create_callback() {
    let (a, _b) = pending_pair();
    let this: &'static InCreate = Box::leak(Box::new(InCreate {
        adapter: AtomicPtr::new(a.adapter()),
        status: AtomicI32::new(-1),
        closing: Mutex::new(None),
        second: AtomicPtr::new(null_mut()),
        seconds: AtomicUsize::new(0),
    }));
    let (context, none) = (core::ptr::from_ref(this).cast_mut().cast(), null_mut::<c_void>());
    let done = Some(use_and_close as NDK_FN_CREATE_COMPLETION);
    let mut out = null_mut();
    let status =
        call!(a.adapter(), NdkCreateCq, 1, Some(on_cq), none, none.cast(), done, context, &raw mut out);
    assert_eq!(status, STATUS_PENDING);
    wait("both callbacks are made", || {
        this.status.load(Ordering::SeqCst) == STATUS_SUCCESS && this.seconds.load(Ordering::SeqCst) == 1
    });
    this.closing.lock().unwrap().take().expect("a close").wait();
    close!(this.second.load(Ordering::SeqCst), NdkCloseCq);
}

/// The object that a create callback without a context reports.
static WITHOUT_CONTEXT: AtomicPtr<NDK_OBJECT_HEADER> = AtomicPtr::new(null_mut());
static TOKEN: AtomicU32 = AtomicU32::new(0);

unsafe extern "efiapi" fn without_context(
    context: *mut c_void,
    status: NTSTATUS,
    object: *mut NDK_OBJECT_HEADER,
) {
    assert!(context.is_null());
    assert_eq!(status, STATUS_SUCCESS);
    let mut token = 0;
    //= R-CREATE-28
    call!(object.cast::<NDK_PD>(), NdkGetPrivilegedMemoryRegionToken, &raw mut token);
    TOKEN.store(token, Ordering::SeqCst);
    WITHOUT_CONTEXT.store(object, Ordering::SeqCst);
}

//= R-CREATE-12, R-CREATE-28, R-IRQL-12
#[test]
fn create_passes_a_null_context_back() {
    let (a, _b) = pending_pair();
    let mut out = null_mut();
    let done = Some(without_context as NDK_FN_CREATE_COMPLETION);
    assert_eq!(call!(a.adapter(), NdkCreatePd, done, null_mut(), &raw mut out), STATUS_PENDING);
    wait("the domain is created", || !WITHOUT_CONTEXT.load(Ordering::SeqCst).is_null());
    assert_ne!(TOKEN.load(Ordering::SeqCst), 0);
    close!(WITHOUT_CONTEXT.load(Ordering::SeqCst).cast::<NDK_PD>(), NdkClosePd);
}
