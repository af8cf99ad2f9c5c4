// SPDX-License-Identifier: MIT OR Apache-2.0

//! How connections are made, refused and canceled.

use crate::support::*;
use core::ffi::c_void;
use core::net::SocketAddr;
use core::ptr::null_mut;
use ndk_abi::ndk::*;
use ndk_abi::nt::*;

//= R-CONN-11, R-CONN-33, R-CONN-34, R-CONN-38, R-CONN-67, R-CONN-68, R-CONN-72, R-CONN-77, R-CONN-78
#[test]
fn both_sides_connect_and_get_each_others_data_and_addresses() {
    let (a, b) = pair();
    let listener = b.listener(445);
    let active = a.active();
    //= R-CONN-74, R-CONN-79
    assert_eq!(active.private_data(), Err(STATUS_CONNECTION_INVALID));
    let connecting = active.connect(a.at(0), b.at(445), b"req");
    let passive = b.end(listener.accept());
    let data = passive.private_data().expect("the request's data");
    assert_eq!((&data[..3], data.len()), (&b"req"[..], 56));
    assert!(data[3..].iter().all(|byte| *byte == 0));
    //= R-CONN-11
    assert!(!connecting.is_done());
    let accepting = passive.accept(b"ok");
    assert_eq!(connecting.wait(), STATUS_SUCCESS);
    assert_eq!(&active.private_data().expect("the reply's data")[..2], b"ok");
    std::thread::sleep(core::time::Duration::from_millis(20));
    assert!(!accepting.is_done());
    assert_eq!(active.complete(), STATUS_SUCCESS);
    assert_eq!(accepting.wait(), STATUS_SUCCESS);

    let port = local_address(active.connector).expect("an address").port();
    //= R-CONN-1, R-CONN-77
    assert!(port >= 49152);
    assert_eq!(peer_address(active.connector), Ok(b.at(445)));
    assert_eq!(peer_address(passive.connector), Ok(a.at(port)));
    assert_eq!(local_address(passive.connector), Ok(b.at(445)));

    //= R-CONN-21, R-CONN-22, R-CONN-24, R-CONN-25, R-CONN-73
    let limits = |connector: *mut NDK_CONNECTOR| {
        let (mut inbound, mut outbound) = (0, 0);
        let status = call!(
            connector,
            NdkGetConnectionData,
            &raw mut inbound,
            &raw mut outbound,
            null_mut(),
            null_mut()
        );
        assert_eq!(status, STATUS_SUCCESS);
        (inbound, outbound)
    };
    // The request has 8 and 8, the reply 16 and 4.
    assert_eq!(limits(active.connector), (4, 8));
    assert_eq!(limits(passive.connector), (8, 4));

    //= R-PERF-2, R-PERF-3, R-PERF-6, R-OIDNDK-19, R-OIDNDK-23, R-OIDNDK-27
    let mut connections = 0;
    a.provider.connections(|_| connections += 1);
    let mut endpoints = Vec::new();
    b.provider.local_endpoints(|endpoint| endpoints.push(endpoint.Listener));
    assert_eq!((connections, endpoints), (1, vec![1]));
    let (at_a, at_b) = (a.provider.performance_counters(), b.provider.performance_counters());
    assert_eq!([at_a.Connect, at_a.ActiveConnection, at_b.Accept, at_b.ActiveConnection], [1; 4]);
    active.close();
    passive.close();
    listener.close();
    assert_eq!(a.provider.performance_counters().ActiveConnection, 0);
}

//= R-CONN-6, R-CONN-10, R-CONN-59, R-CONN-60, R-CLOSE-16, R-QP-74, R-PERF-4
#[test]
fn refused_queue_pair_may_connect_again() {
    let (a, b) = pair();
    let end = a.active();
    assert_eq!(end.receive(5, &[]), STATUS_SUCCESS);
    assert_eq!(end.connect(a.at(0), b.at(445), &[]).wait(), STATUS_CONNECTION_REFUSED);
    close!(end.connector, NdkCloseConnector);

    let listener = b.listener(445);
    call!(listener.raw, NdkControlConnectEvents, 1);
    let paused = End { connector: a.connector(), ..end };
    assert_eq!(paused.connect(a.at(0), b.at(445), &[]).wait(), STATUS_CONNECTION_REFUSED);
    close!(paused.connector, NdkCloseConnector);
    call!(listener.raw, NdkControlConnectEvents, 0);

    let active = End { connector: a.connector(), ..paused };
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let passive = b.end(listener.accept());
    establish(&active, &passive, &connecting);
    assert_eq!(passive.send(1, &[], 0), STATUS_SUCCESS);
    assert_eq!(active.cq.next().RequestContext, pointer(5));
    assert_eq!(a.provider.performance_counters().ConnectFailure, 2);
    active.close();
    passive.close();
    listener.close();
}

//= R-CONN-65, R-CONN-66
#[test]
fn private_data_is_copied_up_to_the_length_of_the_buffer() {
    let (a, b) = pair();
    let listener = b.listener(445);
    let active = a.active();
    let data: Vec<u8> = (1..=56).collect();
    let connecting = active.connect(a.at(0), b.at(445), &data);
    let connector = listener.accept();
    for (room, status) in [
        (0, STATUS_BUFFER_TOO_SMALL),
        (4, STATUS_BUFFER_TOO_SMALL),
        (56, STATUS_SUCCESS),
        (64, STATUS_SUCCESS),
    ] {
        let (mut buffer, mut length) = ([0xee_u8; 64], room);
        let null = null_mut();
        let into = buffer.as_mut_ptr().cast();
        assert_eq!(call!(connector, NdkGetConnectionData, null, null, into, &raw mut length), status);
        let copied = (room as usize).min(56);
        assert_eq!((length, &buffer[..copied]), (56, &data[..copied]));
        assert!(buffer[copied..].iter().all(|byte| *byte == 0xee), "written beyond {copied} bytes");
    }
    close!(connector, NdkCloseConnector);
    assert_eq!(connecting.wait(), STATUS_CONNECTION_REFUSED);
    active.close();
    listener.close();
}

//= R-CONN-62
#[test]
fn listener_refuses_more_than_128_unanswered_requests() {
    let (a, b) = pair();
    let listener = b.idle_listener();
    assert_eq!(listener.listen("[::]:445".parse().unwrap()), STATUS_SUCCESS);
    // From two addresses, because the engine limits the requests of one address, too.
    let paths = [(a.at_v6(0), b.at_v6(445)), (a.at_link_local(0), b.at_link_local(445))];
    let connect = |number: usize| {
        let ((from, to), end) = (paths[number % 2], a.active());
        let connecting = end.connect(from, to, &[]);
        (end, connecting)
    };
    let mut unanswered: Vec<_> = (0..128).map(|number| (connect(number), listener.accept())).collect();
    let (refused, connecting) = connect(128);
    assert_eq!(connecting.wait(), STATUS_CONNECTION_REFUSED);
    refused.close();
    // A reject makes room for another request.
    let ((end, connecting), connector) = unanswered.remove(0);
    assert_eq!(call!(connector, NdkReject, null_mut(), 0), STATUS_SUCCESS);
    assert_eq!(connecting.wait(), STATUS_CONNECTION_REFUSED);
    close!(connector, NdkCloseConnector);
    end.close();
    unanswered.push((connect(129), listener.accept()));
    for ((end, _), connector) in unanswered {
        close!(connector, NdkCloseConnector);
        end.close();
    }
    listener.close();
}

//= R-CONN-36, R-CONN-38, R-CONN-40, R-CONN-46
#[test]
fn reject_carries_private_data() {
    let (a, b) = pair();
    let listener = b.listener(445);
    let active = a.active();
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let incoming = listener.accept();
    let failures = || b.provider.performance_counters().ConnectFailure;
    let before = failures();
    //= R-CONN-15, R-CONN-16
    assert_eq!(call!(incoming, NdkReject, [0u8; 149].as_ptr().cast(), 149), STATUS_INVALID_BUFFER_SIZE);
    assert_eq!(call!(incoming, NdkReject, null_mut(), 1), STATUS_INVALID_PARAMETER);
    assert_eq!(failures(), before);
    assert_eq!(call!(incoming, NdkReject, b"no".as_ptr().cast(), 2), STATUS_SUCCESS);
    assert_eq!(failures(), before + 1);
    assert_eq!(call!(incoming, NdkReject, null_mut(), 0), STATUS_CONNECTION_INVALID);
    assert_eq!(connecting.wait(), STATUS_CONNECTION_REFUSED);
    assert_eq!(&active.private_data().expect("the reject's data")[..2], b"no");
    close!(incoming, NdkCloseConnector);
    active.close();
    listener.close();
}

//= R-CLOSE-31, R-CLOSE-15
#[test]
fn closing_an_unanswered_connector_refuses_the_peer_and_releases_the_listener() {
    let (a, b) = pair();
    let listener = b.listener(445);
    let active = a.active();
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let incoming = listener.accept();
    let closing = begin_close!(listener.raw, NdkCloseListener);
    assert_eq!(closing.status, STATUS_PENDING);
    close!(incoming, NdkCloseConnector);
    closing.wait();
    assert_eq!(connecting.wait(), STATUS_CONNECTION_REFUSED);
    active.close();
}

//= R-CONN-36, R-CONN-39
#[test]
fn active_side_may_reject_after_the_reply() {
    let (a, b) = pair();
    let listener = b.listener(445);
    let active = a.active();
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let passive = b.end(listener.accept());
    let accepting = passive.accept(&[]);
    assert_eq!(connecting.wait(), STATUS_SUCCESS);
    assert_eq!(call!(active.connector, NdkReject, null_mut(), 0), STATUS_SUCCESS);
    assert_eq!(accepting.wait(), STATUS_CONNECTION_REFUSED);
    assert_eq!(passive.disconnected.count(), 0);
    // Both queue pairs were connected to their peer: neither can be used again.
    //= R-QP-73
    for (node, used, peer) in [(&a, active.qp, &b), (&b, passive.qp, &a)] {
        let spare = node.active();
        let own = spare.qp;
        let end = End { qp: used, ..spare };
        let again = end.connect(node.at(0), peer.at(445), &[]);
        assert_eq!((again.is_done(), again.wait()), (true, STATUS_CONNECTION_INVALID));
        End { qp: own, ..end }.close();
    }
    active.close();
    passive.close();
    listener.close();
}

//= R-CONN-37, R-CONN-41, R-PERF-4
#[test]
fn accept_and_reject_fail_as_aborted_after_the_peer_has_left() {
    let (a, b) = pair();
    let listener = b.listener(445);
    let active = a.active();
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let passive = b.end(listener.accept());
    // The peer's reject has been processed but not reported.
    let held = b.hold_callbacks();
    let before = b.counter("rx_datagrams");
    let closing = begin_close!(active.connector, NdkCloseConnector);
    wait("the peer's reject has arrived", || b.counter("rx_datagrams") > before);
    // The frame is counted shortly before it is processed.
    std::thread::sleep(core::time::Duration::from_millis(20));
    assert_eq!(passive.accept(&[]).wait(), STATUS_CONNECTION_ABORTED);
    assert_eq!(call!(passive.connector, NdkReject, null_mut(), 0), STATUS_CONNECTION_ABORTED);
    let failures = || b.provider.performance_counters().ConnectFailure;
    assert_eq!(failures(), 0);
    drop(held);
    wait("the peer's leave counts as a failed attempt", || failures() == 1);
    assert_eq!(passive.accept(&[]).wait(), STATUS_CONNECTION_ABORTED);
    // The failed accept has released the queue pair: it may connect.
    let retry = End { connector: b.connector(), cq: Cq { ..passive.cq }, ..passive };
    assert_eq!(retry.connect(b.at(0), a.at(1), &[]).wait(), STATUS_CONNECTION_REFUSED);
    close!(retry.connector, NdkCloseConnector);
    assert_eq!(connecting.wait(), STATUS_CANCELLED);
    closing.wait();
    close!(active.qp, NdkCloseQp);
    active.cq.close();
    close!(active.pd, NdkClosePd);
    passive.close();
    listener.close();
}

//= R-CLOSE-6, R-CLOSE-7
#[test]
fn closing_a_connector_cancels_its_pending_connect() {
    let (a, b) = pair();
    // The request does not arrive.
    a.host.cut();
    let active = a.active();
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let closing = begin_close!(active.connector, NdkCloseConnector);
    assert_eq!(connecting.wait(), STATUS_CANCELLED);
    closing.wait();
    close!(active.qp, NdkCloseQp);
    active.cq.close();
    close!(active.pd, NdkClosePd);
}

/// The peer has rejected a request of it, and this side has withdrawn one.
//= R-QP-73, R-QP-74, R-CONN-10, R-CLOSE-6
#[test]
fn queue_pair_of_a_closed_connector_may_connect_unless_it_was_connected() {
    let (a, b) = pair();
    let (listener, mut end) = (b.listener(445), a.active());
    for is_rejected in [true, false] {
        let connecting = end.connect(a.at(0), b.at(445), &[]);
        assert!(!connecting.is_inline(), "refused: {:#x}", connecting.wait());
        let incoming = listener.accept();
        let expected = if is_rejected {
            assert_eq!(call!(incoming, NdkReject, null_mut(), 0), STATUS_SUCCESS);
            assert_eq!(connecting.wait(), STATUS_CONNECTION_REFUSED);
            STATUS_CONNECTION_REFUSED
        } else {
            STATUS_CANCELLED
        };
        close!(core::mem::replace(&mut end.connector, a.connector()), NdkCloseConnector);
        assert_eq!(connecting.wait(), expected);
        close!(incoming, NdkCloseConnector);
    }
    let connecting = end.connect(a.at(0), b.at(445), &[]);
    let passive = b.end(listener.accept());
    establish(&end, &passive, &connecting);
    send_one(&end, &passive);
    close!(core::mem::replace(&mut end.connector, a.connector()), NdkCloseConnector);
    assert_eq!(end.connect(a.at(0), b.at(445), &[]).wait(), STATUS_CONNECTION_INVALID);
    end.close();
    passive.close();
    listener.close();
}

//= R-CONN-2, R-CONN-3, R-CONN-5, R-CONN-15, R-CONN-16, R-CREATE-51, R-CREATE-52, R-QP-75
#[test]
fn invalid_connect_fails_inline() {
    let (a, b) = pair();
    let end = a.active();
    let connect =
        |from: core::net::SocketAddr, to: core::net::SocketAddr, data: &[u8]| end.connect(from, to, data);
    assert_eq!(connect(b.at(0), b.at(445), &[]).wait(), STATUS_INVALID_ADDRESS);
    assert_eq!(connect("0.0.0.0:0".parse().unwrap(), b.at(445), &[]).wait(), STATUS_INVALID_ADDRESS);
    assert_eq!(connect(a.at(0), b.at(445), &[0; 57]).wait(), STATUS_INVALID_BUFFER_SIZE);
    let listener = a.listener(7000);
    assert_eq!(connect(a.at(7000), b.at(445), &[]).wait(), STATUS_SHARING_VIOLATION);
    listener.close();
    // After these failures the connector may still connect. The following ones end it.
    for (to, status) in
        [("192.0.2.99:1", STATUS_HOST_UNREACHABLE), ("198.51.100.1:1", STATUS_NETWORK_UNREACHABLE)]
    {
        let end = End { connector: a.connector(), cq: Cq { ..end.cq }, ..end };
        assert_eq!(end.connect(a.at(0), to.parse().unwrap(), &[]).wait(), status);
        close!(end.connector, NdkCloseConnector);
    }
    end.close();
}

//= R-CONN-26, R-CONN-27, R-CONN-57, R-CLOSE-33, R-CONN-4
#[test]
fn shared_endpoint_closes_after_its_connectors() {
    let (a, b) = pair();
    let listener = b.listener(445);
    let endpoint = a.shared_endpoint(5000);
    let active = a.active();
    let connecting = active.connect_with(endpoint, b.at(445));
    let passive = b.end(listener.accept());
    establish(&active, &passive, &connecting);
    let again = a.active();
    assert_eq!(again.connect_with(endpoint, b.at(445)).wait(), STATUS_ADDRESS_ALREADY_EXISTS);
    again.close();
    let closing = begin_close!(endpoint, NdkCloseSharedEndpoint);
    assert_eq!(closing.status, STATUS_PENDING);
    active.close();
    closing.wait();
    passive.close();
    listener.close();
}

//= R-CREATE-2, R-CLOSE-2, R-CREATE-9
#[test]
fn connection_works_when_every_call_pends() {
    let (a, b) = pending_pair();
    let (active, passive, listener) = connect(&a, &b);
    let (source, mut target) = (Memory::new(5000), Memory::new(5000));
    let here = source.register(active.pd, 0);
    let there = target.register(passive.pd, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
    target.bytes().fill(1);
    assert_eq!(active.write(1, &[here.sge()], there.remote()), STATUS_SUCCESS);
    assert_eq!(active.cq.next().Status, STATUS_SUCCESS);
    assert!(target.bytes().iter().all(|byte| *byte == 0));
    here.close();
    there.close();
    active.close();
    passive.close();
    listener.close();
}

//= R-CONN-3, R-CONN-10, R-CONN-58, R-QP-74
#[test]
fn failed_connect_may_be_repeated_with_the_same_connector() {
    let (a, b) = pair();
    let mut active = a.active();
    let elsewhere = "192.0.2.77:445".parse().unwrap();
    for (to, failure) in [(b.at(445), STATUS_CONNECTION_REFUSED), (elsewhere, STATUS_HOST_UNREACHABLE)] {
        assert_eq!(active.connect(a.at(7777), to, b"first").wait(), failure);
    }
    // With another queue pair. The connector no longer holds the first one.
    let first = core::mem::replace(&mut active.qp, qp(active.pd, &active.cq));
    let closing = begin_close!(first, NdkCloseQp);
    assert_eq!(closing.status, STATUS_PENDING);
    let listener = b.listener(445);
    let connecting = active.connect(a.at(7777), b.at(445), b"third");
    closing.wait();
    // Not while it connects.
    //= R-CONN-18
    assert_eq!(active.connect(a.at(7777), b.at(445), &[]).wait(), STATUS_INVALID_DEVICE_STATE);
    let passive = b.end(listener.accept());
    assert_eq!(passive.private_data().unwrap()[..5], *b"third");
    establish(&active, &passive, &connecting);
    assert_eq!(passive.receive(1, &[]), STATUS_SUCCESS);
    assert_eq!(active.send(2, &[], 0), STATUS_SUCCESS);
    assert_eq!([&active, &passive].map(|end| end.cq.next().Status), [STATUS_SUCCESS; 2]);
    // Nor when it was connected.
    let spare = a.active();
    let connected = core::mem::replace(&mut active.qp, spare.qp);
    assert_eq!(active.connect(a.at(7777), b.at(445), &[]).wait(), STATUS_INVALID_DEVICE_STATE);
    active.qp = connected;
    for end in [active, spare, passive] {
        end.close();
    }
    listener.close();
}

/// A consumer that connects again in the completion of the connect that failed.
struct Repeat {
    end: End,
    from: SocketAddr,
    to: SocketAddr,
    statuses: CallbackRecord,
}

unsafe extern "efiapi" fn repeat(context: *mut c_void, status: NTSTATUS) {
    // SAFETY: `Repeat::connect` passes itself, and the test leaks the only one.
    let this = unsafe { &*context.cast::<Repeat>() };
    this.statuses.record(status);
    if this.statuses.count() < 5 {
        assert_eq!(this.connect(), STATUS_PENDING);
    }
}

impl Repeat {
    fn connect(&self) -> NTSTATUS {
        let ((source, length), (target, _)) = (socket_address(self.from), socket_address(self.to));
        let (source, target) = ((&raw const source).cast(), (&raw const target).cast());
        let (connector, qp, context) = (self.end.connector, self.end.qp, core::ptr::from_ref(self));
        let (none, done, context) = (core::ptr::null(), Some(repeat as _), context.cast_mut().cast());
        call!(connector, NdkConnect, qp, source, length, target, length, 1, 1, none, 0, done, context)
    }
}

//= R-CONN-10, R-CREATE-11
#[test]
fn connect_may_be_repeated_in_the_completion_of_the_failed_one() {
    let (a, b) = pair();
    let (end, statuses) = (a.active(), CallbackRecord::default());
    let repeated: &'static Repeat =
        Box::leak(Box::new(Repeat { end, from: a.at(7777), to: b.at(445), statuses }));
    assert_eq!(repeated.connect(), STATUS_PENDING);
    for attempt in 1..=5 {
        assert_eq!(repeated.statuses.wait(attempt), STATUS_CONNECTION_REFUSED);
    }
    assert_eq!(a.provider.performance_counters().ConnectFailure, 5);
    close!(repeated.end.connector, NdkCloseConnector);
    close!(repeated.end.qp, NdkCloseQp);
    close!(repeated.end.cq.raw, NdkCloseCq);
    close!(repeated.end.pd, NdkClosePd);
}

//= R-QP-68, R-QP-69, R-QP-73
#[test]
fn flushed_queue_pair_may_connect_unless_it_was_connected() {
    let (a, b) = pair();
    let listener = b.listener(445);
    let active = a.active();
    assert_eq!(active.receive(1, &[]), STATUS_SUCCESS);
    call!(active.qp, NdkFlush);
    assert_eq!(active.cq.next().Status, STATUS_CANCELLED);
    assert_eq!(active.receive(2, &[]), STATUS_SUCCESS);
    assert!(active.cq.poll().is_none());
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let passive = b.end(listener.accept());
    establish(&active, &passive, &connecting);
    assert_eq!(passive.send(3, &[], 0), STATUS_SUCCESS);
    let received = active.cq.next();
    assert_eq!((received.Status, received.RequestContext), (STATUS_SUCCESS, pointer(2)));
    call!(active.qp, NdkFlush);
    passive.disconnected.wait(1);
    assert_eq!(active.receive(4, &[]), STATUS_SUCCESS);
    assert_eq!(active.cq.next().Status, STATUS_CANCELLED);
    let mut again = a.active();
    let own = core::mem::replace(&mut again.qp, active.qp);
    assert_eq!(again.connect(a.at(0), b.at(445), &[]).wait(), STATUS_CONNECTION_INVALID);
    again.qp = own;
    for end in [again, active, passive] {
        end.close();
    }
    listener.close();
}
