// SPDX-License-Identifier: MIT OR Apache-2.0

//! The steps of making a connection: where each may be called, what each returns, and what it holds.

use crate::support::*;
use core::ffi::c_void;
use core::ptr::{null, null_mut};
use ndk_abi::ndk::*;
use ndk_abi::nt::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::time::Duration;

/// A server that accepts inside its connect event.
struct Server {
    qp: AtomicPtr<NDK_QP>,
    connectors: Mutex<Vec<usize>>,
    accepted: CallbackRecord,
    disconnected: CallbackRecord,
    level: AtomicUsize,
}

unsafe extern "efiapi" fn accept_at_once(context: *mut c_void, connector: *mut NDK_CONNECTOR) {
    // SAFETY: the context of the listener is the `Server` that its test leaks.
    let this = unsafe { &*context.cast::<Server>() };
    let level = nt::SpinLock::new(());
    // As the consumer of a miniport's receive DPC: at `DISPATCH_LEVEL`.
    let raised = level.lock();
    this.level.store(nt::irql::current().into(), Ordering::SeqCst);
    let status = call!(
        connector,
        NdkAccept,
        this.qp.load(Ordering::SeqCst),
        4,
        4,
        null(),
        0,
        Some(on_disconnect),
        core::ptr::from_ref(&this.disconnected).cast_mut().cast(),
        Some(on_request),
        core::ptr::from_ref(&this.accepted).cast_mut().cast(),
    );
    drop(raised);
    assert_eq!(status, STATUS_PENDING);
    this.connectors.lock().unwrap().push(connector.expose_provenance());
}

/// Both ends are in one process, and the accept does not wait for a thread of the test.
//= R-CONN-12, R-CONN-43, R-CONN-45
#[test]
fn connection_is_accepted_inside_its_connect_event() {
    let (a, b) = pair();
    let (cq, pd) = (b.cq(64), b.pd());
    let server: &'static Server = Box::leak(Box::new(Server {
        qp: AtomicPtr::new(qp(pd, &cq)),
        connectors: Mutex::default(),
        accepted: CallbackRecord::default(),
        disconnected: CallbackRecord::default(),
        level: AtomicUsize::new(0),
    }));
    let context = core::ptr::from_ref(server).cast_mut().cast();
    let raw: *mut NDK_LISTENER = create(|done, request, out| {
        call!(b.adapter(), NdkCreateListener, Some(accept_at_once), context, done, request, out)
    })
    .expect("a listener");
    let (address, length) = socket_address(b.at(445));
    let listening =
        request(|done, context| call!(raw, NdkListen, (&raw const address).cast(), length, done, context));
    assert_eq!(listening, STATUS_SUCCESS);
    let active = a.active();
    assert_eq!(active.connect(a.at(0), b.at(445), &[]).wait(), STATUS_SUCCESS);
    assert_eq!(active.complete(), STATUS_SUCCESS);
    assert_eq!(server.accepted.wait(1), STATUS_SUCCESS);
    assert_eq!(server.level.load(Ordering::SeqCst), 2);
    let connectors = server.connectors.lock().unwrap().clone();
    let [connector] = connectors[..] else { panic!("one event per request: {connectors:?}") };
    close!(core::ptr::with_exposed_provenance_mut::<NDK_CONNECTOR>(connector), NdkCloseConnector);
    close!(server.qp.load(Ordering::SeqCst), NdkCloseQp);
    cq.close();
    close!(pd, NdkClosePd);
    active.close();
    close!(raw, NdkCloseListener);
}

/// Requests that are transmitted again, because the answer is lost, are the same request.
//= R-CONN-45, R-CONN-46, R-CONN-43
#[test]
fn repeated_request_raises_one_event() {
    let (a, b) = pair();
    let listener = b.listener(445);
    let active = a.active();
    b.host.cut();
    let before = b.counter("rx_datagrams");
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let passive = b.end(listener.accept());
    let accepting = passive.accept(&[]);
    wait("the request is repeated", || b.counter("rx_datagrams") >= before + 3);
    assert!(listener.is_idle());
    b.host.restore();
    assert_eq!(connecting.wait(), STATUS_SUCCESS);
    assert_eq!(active.complete(), STATUS_SUCCESS);
    assert_eq!(accepting.wait(), STATUS_SUCCESS);
    assert!(listener.is_idle());
    active.close();
    passive.close();
    listener.close();
}

//= R-CONN-8
#[test]
fn connect_fails_inline_or_by_its_callback_and_never_by_both() {
    let (a, b) = pair();
    let end = a.active();
    let connect = |from, to, data: &[u8]| {
        let ((source, source_length), (target, target_length)) = (socket_address(from), socket_address(to));
        let record = CallbackRecord::new();
        let status = call!(
            end.connector,
            NdkConnect,
            end.qp,
            (&raw const source).cast(),
            source_length,
            (&raw const target).cast(),
            target_length,
            1,
            1,
            data.as_ptr().cast(),
            data.len() as u32,
            Some(on_request),
            record.context()
        );
        if status == STATUS_PENDING {
            record.wait(1);
        }
        (record, usize::from(status == STATUS_PENDING))
    };
    let elsewhere = "192.0.2.99:1".parse().unwrap();
    let records = [
        connect(b.at(0), b.at(445), &[]),
        connect(a.at(0), b.at(445), &[0; 57]),
        connect(a.at(0), b.at(445), &[]),
        connect(a.at(0), elsewhere, &[]),
        connect(a.at(0), a.at_v6(1), &[]),
    ];
    drop(a.hold_callbacks());
    assert_eq!(records.map(|(record, expected)| record.count() == expected), [true; 5]);
    end.close();
}

//= R-CONN-28
#[test]
fn connect_is_completed_by_the_active_side_after_the_reply_alone() {
    for (a, b) in [pair(), pending_pair()] {
        let listener = b.listener(445);
        let active = a.active();
        assert_eq!(active.complete(), STATUS_CONNECTION_INVALID);
        let connecting = active.connect(a.at(0), b.at(445), &[]);
        let passive = b.end(listener.accept());
        assert_eq!(active.complete(), STATUS_CONNECTION_INVALID);
        assert_eq!(passive.complete(), STATUS_CONNECTION_INVALID);
        let accepting = passive.accept(&[]);
        assert_eq!(connecting.wait(), STATUS_SUCCESS);
        assert_eq!(passive.complete(), STATUS_CONNECTION_INVALID);
        assert_eq!(active.complete(), STATUS_SUCCESS);
        assert_eq!(accepting.wait(), STATUS_SUCCESS);
        assert_eq!(active.complete(), STATUS_CONNECTION_INVALID);
        // Accept belongs to connectors of incoming requests.
        //= R-CONN-44
        let other = a.active();
        assert_eq!(other.accept(&[]).wait(), STATUS_CONNECTION_INVALID);
        other.close();
        active.close();
        passive.close();
        listener.close();
    }
}

/// Connects without disconnect callbacks on either side.
fn connect_without_events(a: &Node, b: &Node) -> (End, End, Listener) {
    let listener = b.listener(445);
    let active = a.active();
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let passive = b.end(listener.accept());
    let accepted = CallbackRecord::new();
    let (none, done) = (null_mut(), Some(on_request as NDK_FN_REQUEST_COMPLETION));
    let status =
        call!(passive.connector, NdkAccept, passive.qp, 1, 1, none, 0, None, none, done, accepted.context());
    assert_eq!(status, STATUS_PENDING);
    assert_eq!(connecting.wait(), STATUS_SUCCESS);
    let completed =
        request(|done, context| call!(active.connector, NdkCompleteConnect, None, none, done, context));
    assert_eq!(completed, STATUS_SUCCESS);
    assert_eq!(accepted.wait(1), STATUS_SUCCESS);
    (active, passive, listener)
}

//= R-CONN-32
#[test]
fn connection_works_without_disconnect_callbacks() {
    let (a, b) = pair();
    for active_leaves in [true, false] {
        let (active, passive, listener) = connect_without_events(&a, &b);
        let (leaving, staying) = if active_leaves { (&active, &passive) } else { (&passive, &active) };
        close!(leaving.connector, NdkCloseConnector);
        wait("the peer knows", || staying.send(1, &[], 0) == STATUS_CONNECTION_INVALID);
        close!(leaving.qp, NdkCloseQp);
        close!(staying.connector, NdkCloseConnector);
        close!(staying.qp, NdkCloseQp);
        for end in [active, passive] {
            end.cq.close();
            close!(end.pd, NdkClosePd);
        }
        listener.close();
    }
}

/// The calls of an extended disconnect callback, with its reason.
static REASONS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

unsafe extern "efiapi" fn on_disconnect_ex(_context: *mut c_void, reason: u32) {
    REASONS.lock().unwrap().push(reason);
}

//= R-CONN-98
#[test]
fn members_of_version_2_1_connect_and_report_a_reason() {
    let (a, b) = pair();
    let listener = b.listener(445);
    let active = a.active();
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let passive = b.end(listener.accept());
    let (accepted, none) = (CallbackRecord::new(), null_mut());
    let status = call!(
        passive.connector,
        NdkAcceptEx,
        passive.qp,
        1,
        1,
        none,
        0,
        Some(on_disconnect_ex),
        none,
        Some(on_request),
        accepted.context()
    );
    assert_eq!(status, STATUS_PENDING);
    assert_eq!(connecting.wait(), STATUS_SUCCESS);
    let completed = request(|done, context| {
        call!(active.connector, NdkCompleteConnectEx, Some(on_disconnect_ex), none, done, context)
    });
    assert_eq!(completed, STATUS_SUCCESS);
    assert_eq!(accepted.wait(1), STATUS_SUCCESS);
    close!(active.connector, NdkCloseConnector);
    wait("the peer is notified", || !REASONS.lock().unwrap().is_empty());
    passive.close();
    close!(active.qp, NdkCloseQp);
    active.cq.close();
    close!(active.pd, NdkClosePd);
    // No reason of the provider's own, and no event for the side that closed.
    assert_eq!(*REASONS.lock().unwrap(), [0]);
    listener.close();
}

//= R-CONN-55, R-CLOSE-17
#[test]
fn port_of_a_listener_is_free_when_it_and_its_connectors_are_closed() {
    let (a, b) = pair();
    for listener_first in [true, false] {
        let (active, passive, listener) = connect(&a, &b);
        let other = b.idle_listener();
        if listener_first {
            let closing = begin_close!(listener.raw, NdkCloseListener);
            assert_eq!(closing.status, STATUS_PENDING);
            assert_eq!(other.listen(b.at(445)), STATUS_SHARING_VIOLATION);
            passive.close();
            closing.wait();
        } else {
            passive.close();
            assert_eq!(other.listen(b.at(445)), STATUS_SHARING_VIOLATION);
            close!(listener.raw, NdkCloseListener);
        }
        assert_eq!(other.listen(b.at(445)), STATUS_SUCCESS);
        other.close();
        active.close();
    }
}

//= R-CONN-56
#[test]
fn port_of_a_connector_is_free_when_it_is_closed() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let port = local_address(active.connector).expect("an address").port();
    let other = a.idle_listener();
    assert_eq!(other.listen(a.at(port)), STATUS_SHARING_VIOLATION);
    let disconnecting = std::thread::scope(|scope| {
        let passive_connector = AtomicPtr::new(passive.connector);
        let gone = passive.disconnected;
        scope.spawn(move || {
            gone.wait(1);
            let connector = passive_connector.into_inner();
            request(|done, context| call!(connector, NdkDisconnect, done, context))
        });
        active.disconnect()
    });
    assert_eq!(disconnecting, STATUS_SUCCESS);
    assert_eq!(other.listen(a.at(port)), STATUS_SHARING_VIOLATION, "disconnected, but not closed");
    active.close();
    assert_eq!(other.listen(a.at(port)), STATUS_SUCCESS);
    other.close();
    passive.close();
    listener.close();
}

/// A port that a TCP socket of the machine listens on.
#[test]
#[cfg_attr(miri, ignore = "opens a socket")]
fn ports_are_not_those_of_tcp() {
    let (a, b) = pair();
    let tcp = std::net::TcpListener::bind("0.0.0.0:0").expect("a socket");
    let port = tcp.local_addr().unwrap().port();
    let listener = b.listener(port);
    let active = a.active();
    let connecting = active.connect(a.at(port), b.at(port), &[]);
    close!(listener.accept(), NdkCloseConnector);
    assert_eq!(connecting.wait(), STATUS_CONNECTION_REFUSED);
    active.close();
    listener.close();
}

//= R-CONN-70, R-CONN-71, R-CONN-67
#[test]
fn connection_data_is_returned_into_what_the_consumer_gives() {
    let (a, b) = pair();
    let listener = b.listener(445);
    let active = a.active();
    let connecting = active.connect(a.at(0), b.at(445), b"four");
    let connector = listener.accept();
    for (want_inbound, want_outbound) in [(true, true), (true, false), (false, true), (false, false)] {
        let (mut inbound, mut outbound, mut data, mut length) = (77, 77, [0xee_u8; 256], 256);
        let status = call!(
            connector,
            NdkGetConnectionData,
            if want_inbound { &raw mut inbound } else { null_mut() },
            if want_outbound { &raw mut outbound } else { null_mut() },
            data.as_mut_ptr().cast(),
            &raw mut length
        );
        assert_eq!((status, &data[..4]), (STATUS_SUCCESS, &b"four"[..]));
        assert!((4..=56).contains(&length), "a buffer that is larger than needed gets the data");
        assert_eq!((inbound != 77, outbound != 77), (want_inbound, want_outbound));
    }
    close!(connector, NdkCloseConnector);
    assert_eq!(connecting.wait(), STATUS_CONNECTION_REFUSED);
    active.close();
    listener.close();
}

//= R-CONN-82, R-CONN-81
#[test]
fn memory_is_not_accessed_after_a_disconnect_that_failed() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let (mut source, mut target) = (Memory::new(4096), Memory::new(4096));
    source.bytes().fill(1);
    let from = source.register(passive.pd, 0);
    let to = target.register(active.pd, NDK_MR_FLAG_ALLOW_REMOTE_WRITE | NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
    assert_eq!(active.receive(1, &[to.sge()]), STATUS_SUCCESS);
    b.host.cut();
    a.host.cut();
    assert_eq!(active.disconnect(), STATUS_IO_TIMEOUT);
    assert_eq!(active.cq.next().Status, STATUS_CANCELLED);
    // Closed for good: neither posts nor another disconnect.
    assert_eq!(active.send(2, &[], 0), STATUS_CONNECTION_INVALID);
    assert_eq!(active.disconnect(), STATUS_CONNECTION_INVALID);
    target.bytes().fill(0xee);
    b.host.restore();
    let before = a.counter("rx_datagrams");
    assert_eq!(passive.send(3, &[from.sge()], 0), STATUS_SUCCESS);
    assert_eq!(passive.write(4, &[from.sge()], to.remote()), STATUS_SUCCESS);
    wait("the peer's requests have arrived", || a.counter("rx_datagrams") > before);
    std::thread::sleep(Duration::from_millis(20));
    assert!(target.bytes().iter().all(|byte| *byte == 0xee), "accessed after the disconnect");
    a.host.restore();
    from.close();
    to.close();
    active.close();
    passive.close();
    listener.close();
}

/// The peer does not answer, so that the requests stay outstanding.
//= R-CONN-85
#[test]
fn disconnect_with_outstanding_requests_ends_them_and_the_connection() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    assert_eq!(active.receive(1, &[]), STATUS_SUCCESS);
    // No receive is posted for it: the peer is not ready.
    assert_eq!(active.send(2, &[], 0), STATUS_SUCCESS);
    let status = active.disconnect();
    assert!(matches!(status, STATUS_SUCCESS | STATUS_IO_TIMEOUT | STATUS_CONNECTION_ABORTED), "{status:#x}");
    // Each request has completed before the disconnect did.
    let mut contexts: Vec<_> = std::iter::from_fn(|| active.cq.poll())
        .map(|result| (result.RequestContext.addr(), result.Status))
        .collect();
    contexts.sort_unstable();
    assert_eq!(contexts, [(1, STATUS_CANCELLED), (2, STATUS_CANCELLED)]);
    passive.disconnected.wait(1);
    active.close();
    passive.close();
    listener.close();
}
