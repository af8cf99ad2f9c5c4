//! Connecting, moving data, parting: two providers on one wire, driven through the dispatch tables.

#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a consumer's call through a table is several")]
#![allow(clippy::macro_metavars_in_unsafe, reason = "a test's call is unsafe as a whole")]

mod support;

use core::ptr::null_mut;
use ndk_abi::ndk::*;
use ndk_abi::nt::*;
use support::*;

//= R-CONN-11, R-CONN-33, R-CONN-34, R-CONN-38, R-CONN-67, R-CONN-68, R-CONN-72, R-CONN-77, R-CONN-78
#[test]
fn two_sides_connect_and_learn_of_each_other() {
    let (a, b) = pair();
    let listener = b.listener(445);
    let active = a.active();
    //= R-CONN-74, R-CONN-79
    assert_eq!(active.private_data(), Err(STATUS_CONNECTION_INVALID));
    let connecting = active.connect(a.at(0), b.at(445), b"who");
    let passive = b.passive(listener.accept());
    let data = passive.private_data().expect("the request's data");
    assert_eq!((&data[..3], data.len()), (&b"who"[..], 56));
    assert!(data[3..].iter().all(|byte| *byte == 0));
    //= R-CONN-11
    assert!(!connecting.is_done());
    let accepting = passive.accept(b"me");
    assert_eq!(connecting.wait(), STATUS_SUCCESS);
    assert_eq!(&active.private_data().expect("the answer's data")[..2], b"me");
    std::thread::sleep(core::time::Duration::from_millis(20));
    assert!(!accepting.is_done());
    assert_eq!(active.complete(), STATUS_SUCCESS);
    assert_eq!(accepting.wait(), STATUS_SUCCESS);

    let address = |connector: *mut NDK_CONNECTOR, peer: bool| {
        let (mut bytes, mut length) = ([0u8; 128], 128);
        let (out, length_out) = (bytes.as_mut_ptr().cast(), &raw mut length);
        let status = if peer {
            call!(connector, NdkGetPeerAddress, out, length_out)
        } else {
            call!(connector, NdkGetLocalAddress, out, length_out)
        };
        assert_eq!((status, length), (STATUS_SUCCESS, 16));
        (u16::from_be_bytes([bytes[2], bytes[3]]), [bytes[4], bytes[5], bytes[6], bytes[7]])
    };
    let port = address(active.connector, false).0;
    //= R-CONN-1, R-CONN-77
    assert!(port >= 49152);
    assert_eq!(address(active.connector, true), (445, b.ip.octets()));
    assert_eq!(address(passive.connector, true), (port, a.ip.octets()));
    assert_eq!(address(passive.connector, false), (445, b.ip.octets()));

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
    // 8 and 8 were asked for, 16 and 4 answered.
    assert_eq!(limits(active.connector), (4, 8));
    assert_eq!(limits(passive.connector), (8, 4));

    //= R-PERF-2, R-PERF-3, R-PERF-6, R-OIDNDK-19, R-OIDNDK-23, R-OIDNDK-27
    let mut connections = 0;
    a.provider.core().connections(|_| connections += 1);
    let mut endpoints = Vec::new();
    b.provider.core().local_endpoints(|endpoint| endpoints.push(endpoint.Listener));
    assert_eq!((connections, endpoints), (1, vec![1]));
    let (at_a, at_b) = (a.provider.core().performance(), b.provider.core().performance());
    assert_eq!([at_a.Connect, at_a.ActiveConnection, at_b.Accept, at_b.ActiveConnection], [1; 4]);
    active.close();
    passive.close();
    listener.close();
    assert_eq!(a.provider.core().performance().ActiveConnection, 0);
}

//= R-QP-48, R-QP-49, R-QP-51, R-QP-57, R-CQ-21, R-CQ-22, R-CQ-23, R-CQ-24, R-CQ-57, R-MR-6
#[test]
fn data_moves_by_send_write_and_read() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let (mut source, mut target) = (Memory::at_offset(40_000, 100), Memory::at_offset(40_000, 7));
    source.bytes().iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 7 % 251) as u8);
    let here = source.register(active.pd, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
    let there = target.register(passive.pd, NDK_MR_FLAG_ALLOW_REMOTE_WRITE | NDK_MR_FLAG_ALLOW_REMOTE_READ);

    assert_eq!(passive.receive(7, &[there.part(0, 6000)]), STATUS_SUCCESS);
    assert_eq!(active.send(1, &[here.part(0, 3000), here.part(3000, 2000)], 0), STATUS_SUCCESS);
    let sent = active.cq.next();
    assert_eq!((sent.Status, sent.RequestContext, sent.Type.0), (STATUS_SUCCESS, pointer(1), 2));
    let received = passive.cq.next();
    assert_eq!(
        (received.Status, received.RequestContext, received.Type.0, received.BytesTransferred),
        (STATUS_SUCCESS, pointer(7), 1, 5000)
    );
    assert_eq!(target.bytes()[..5000], source.bytes()[..5000]);

    let (base, token) = there.remote();
    assert_eq!(active.write(2, &[here.part(5000, 35_000)], (base + 5000, token)), STATUS_SUCCESS);
    let written = active.cq.next();
    assert_eq!((written.Status, written.Type.0, written.QPContext), (STATUS_SUCCESS, 64, QP_CONTEXT));
    assert_eq!(target.bytes(), source.bytes());

    source.bytes().fill(0);
    assert_eq!(active.read(3, &[here.sge()], (base, token)), STATUS_SUCCESS);
    let read = active.cq.next();
    assert_eq!((read.Status, read.Type.0), (STATUS_SUCCESS, 32));
    assert_eq!(target.bytes(), source.bytes());

    here.close();
    there.close();
    active.close();
    passive.close();
    listener.close();
}

//= R-QP-14, R-QP-87
#[test]
fn nothing_is_a_message_too() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    assert_eq!(passive.receive(1, &[]), STATUS_SUCCESS);
    assert_eq!(active.send(2, &[], 0), STATUS_SUCCESS);
    assert_eq!(active.write(3, &[], (0, 0)), STATUS_SUCCESS);
    assert_eq!(active.read(4, &[], (0, 0)), STATUS_SUCCESS);
    for context in [2, 3, 4] {
        let result = active.cq.next();
        assert_eq!((result.Status, result.RequestContext), (STATUS_SUCCESS, pointer(context)));
    }
    assert_eq!(passive.cq.next().BytesTransferred, 0);
    active.close();
    passive.close();
    listener.close();
}

//= R-QP-30, R-QP-32, R-QP-33
#[test]
fn inline_data_is_taken_during_the_call() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let mut target = Memory::new(64);
    let there = target.register(passive.pd, 1);
    assert_eq!(passive.receive(1, &[there.sge()]), STATUS_SUCCESS);
    let mut bytes = *b"taken during the call";
    // More elements than the queue pair was made for, each with a token that is none.
    let pieces: Vec<NDK_SGE> = bytes
        .iter_mut()
        .map(|byte| NDK_SGE {
            Anonymous: NDK_SGE_Anonymous { VirtualAddress: core::ptr::from_mut(byte).cast() },
            Length: 1,
            MemoryRegionToken: 0xdead,
        })
        .collect();
    assert_eq!(active.send(2, &pieces, NDK_OP_FLAG_INLINE), STATUS_SUCCESS);
    bytes.fill(0);
    assert_eq!(passive.cq.next().BytesTransferred, 21);
    assert_eq!(&target.bytes()[..21], b"taken during the call");
    let mut long = [0u8; 65];
    let beyond = NDK_SGE {
        Anonymous: NDK_SGE_Anonymous { VirtualAddress: long.as_mut_ptr().cast() },
        Length: 65,
        MemoryRegionToken: 0,
    };
    assert_eq!(active.send(3, &[beyond], NDK_OP_FLAG_INLINE), STATUS_BUFFER_OVERFLOW);
    there.close();
    active.close();
    passive.close();
    listener.close();
}

//= R-LAM-8, R-QP-41, R-QP-42, R-MR-53, R-MR-56, R-INFO-24
#[test]
fn the_privileged_token_reaches_mapped_memory() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let (mut source, mut target) = (Memory::at_offset(9000, 1234), Memory::new(9000));
    source.bytes().fill(0x5c);
    let there = target.register(passive.pd, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
    let (mut words, mut size, mut fbo) = ([0u64; 8], 64, 0);
    let status = call!(
        a.adapter(),
        NdkBuildLAM,
        source.mdl(),
        9000,
        None,
        null_mut(),
        words.as_mut_ptr().cast(),
        &raw mut size,
        &raw mut fbo
    );
    assert_eq!(status, STATUS_SUCCESS);
    let mut token = 0;
    call!(active.pd, NdkGetPrivilegedMemoryRegionToken, &raw mut token);
    let sge = NDK_SGE {
        Anonymous: NDK_SGE_Anonymous {
            LogicalAddress: LARGE_INTEGER { QuadPart: words[2].cast_signed() + i64::from(fbo) },
        },
        Length: 9000,
        MemoryRegionToken: token,
    };
    assert_eq!(active.write(1, &[sge], there.remote()), STATUS_SUCCESS);
    assert_eq!(active.cq.next().Status, STATUS_SUCCESS);
    assert_eq!(target.bytes(), source.bytes());
    call!(a.adapter(), NdkReleaseLAM, words.as_mut_ptr().cast());
    //= R-MR-57
    assert_eq!(active.write(2, &[sge], there.remote()), STATUS_SUCCESS);
    assert_eq!(active.cq.next().Status, STATUS_ACCESS_VIOLATION);
    there.close();
    active.close();
    passive.close();
    listener.close();
}

//= R-QP-55, R-QP-56, R-QP-58, R-QP-59, R-QP-60, R-CONN-87, R-MR-10, R-PERF-5
#[test]
fn a_violation_ends_the_connection_on_both_sides() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let (source, mut target) = (Memory::new(100), Memory::new(100));
    let here = source.register(active.pd, 0);
    let there = target.register(passive.pd, NDK_MR_FLAG_ALLOW_REMOTE_READ);
    assert_eq!(passive.receive(9, &[]), STATUS_SUCCESS);
    // Together, or the failure of the first may come before the post of the second.
    assert_eq!(active.write_flagged(1, &[here.sge()], there.remote(), NDK_OP_FLAG_DEFER), STATUS_SUCCESS);
    assert_eq!(active.write(2, &[here.sge()], there.remote()), STATUS_SUCCESS);
    assert_eq!(active.cq.next().Status, STATUS_ACCESS_VIOLATION);
    assert_eq!(active.cq.next().Status, STATUS_CANCELLED);
    assert_eq!(passive.cq.next().Status, STATUS_CANCELLED);
    active.disconnected.wait(1);
    passive.disconnected.wait(1);
    assert!(target.bytes().iter().all(|byte| *byte == 0));
    assert_eq!(active.send(3, &[], 0), STATUS_CONNECTION_INVALID);
    here.close();
    there.close();
    let (gone, left) = (active.disconnected, passive.disconnected);
    active.close();
    passive.close();
    listener.close();
    assert_eq!([gone.count(), left.count()], [1, 1]);
}

//= R-CONN-80, R-CONN-83, R-CONN-84, R-CONN-87, R-CONN-88, R-CONN-90, R-CONN-91, R-QP-71, R-QP-72
#[test]
fn both_sides_say_goodbye() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    for end in [&active, &passive] {
        assert_eq!(end.receive(1, &[]), STATUS_SUCCESS);
    }
    let parting = Seen::new();
    let status = call!(active.connector, NdkDisconnect, Some(on_request), parting.context());
    assert_eq!(status, STATUS_PENDING);
    passive.disconnected.wait(1);
    // The peer's goodbye neither flushes nor completes anything here.
    assert!(passive.cq.poll().is_none());
    assert_eq!(parting.count(), 0);
    assert_eq!(passive.disconnect(), STATUS_SUCCESS);
    // Over when the call is: its receives are back already.
    assert_eq!(passive.cq.poll().map(|result| result.Status), Some(STATUS_CANCELLED));
    assert_eq!(parting.wait(1), STATUS_SUCCESS);
    assert_eq!(active.cq.poll().map(|result| result.Status), Some(STATUS_CANCELLED));
    assert_eq!((active.disconnected.count(), passive.disconnected.count()), (0, 1));
    //= R-CONN-86, R-CONN-93
    assert_eq!(active.disconnect(), STATUS_CONNECTION_INVALID);
    active.close();
    passive.close();
    listener.close();
}

//= R-CONN-84, R-CONN-91, R-CONN-94, R-QP-71
#[test]
fn a_goodbye_that_crosses_the_peers_succeeds() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    assert_eq!(passive.receive(1, &[]), STATUS_SUCCESS);
    // The peer's goodbye is in, and nobody has been told of it when this side says its own.
    let held = b.hold_batches();
    let before = b.counter("rx_datagrams");
    let parting = Seen::new();
    let status = call!(active.connector, NdkDisconnect, Some(on_request), parting.context());
    assert_eq!(status, STATUS_PENDING);
    wait("the goodbye is in", || b.counter("rx_datagrams") > before);
    assert_eq!(passive.disconnect(), STATUS_SUCCESS);
    assert_eq!(passive.cq.poll().map(|result| result.Status), Some(STATUS_CANCELLED));
    drop(held);
    assert_eq!(parting.wait(1), STATUS_SUCCESS);
    //= R-CONN-88
    assert_eq!(passive.disconnected.count(), 0);
    active.close();
    passive.close();
    listener.close();
}

//= R-CLOSE-30, R-CONN-87, R-CONN-89, R-CONN-96, R-QP-66
#[test]
fn closing_a_connected_connector_takes_the_connection_down() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    assert_eq!(active.receive(1, &[]), STATUS_SUCCESS);
    close!(active.connector, NdkCloseConnector);
    assert_eq!(active.cq.next().Status, STATUS_CANCELLED);
    passive.disconnected.wait(1);
    assert_eq!(active.disconnected.count(), 0);
    close!(active.qp, NdkCloseQp);
    active.cq.close();
    close!(active.pd, NdkClosePd);
    passive.close();
    listener.close();
}

//= R-CONN-6, R-CONN-10, R-CONN-59, R-CONN-60, R-CLOSE-16, R-QP-74, R-PERF-4
#[test]
fn nobody_there_is_refused_and_the_queue_pair_tries_again() {
    let (a, b) = pair();
    let end = a.active();
    assert_eq!(end.receive(5, &[]), STATUS_SUCCESS);
    assert_eq!(end.connect(a.at(0), b.at(445), &[]).wait(), STATUS_CONNECTION_REFUSED);
    //= R-CONN-18
    assert_eq!(end.connect(a.at(0), b.at(445), &[]).wait(), STATUS_INVALID_DEVICE_STATE);
    close!(end.connector, NdkCloseConnector);

    let listener = b.listener(445);
    call!(listener.raw, NdkControlConnectEvents, 1);
    let paused = End { connector: a.connector(), ..end };
    assert_eq!(paused.connect(a.at(0), b.at(445), &[]).wait(), STATUS_CONNECTION_REFUSED);
    close!(paused.connector, NdkCloseConnector);
    call!(listener.raw, NdkControlConnectEvents, 0);

    let active = End { connector: a.connector(), ..paused };
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let passive = b.passive(listener.accept());
    let accepting = passive.accept(&[]);
    assert_eq!(connecting.wait(), STATUS_SUCCESS);
    assert_eq!(active.complete(), STATUS_SUCCESS);
    assert_eq!(accepting.wait(), STATUS_SUCCESS);
    assert_eq!(passive.send(1, &[], 0), STATUS_SUCCESS);
    assert_eq!(active.cq.next().RequestContext, pointer(5));
    assert_eq!(a.provider.core().performance().ConnectFailure, 2);
    active.close();
    passive.close();
    listener.close();
}

//= R-CONN-36, R-CONN-38, R-CONN-40, R-CONN-46
#[test]
fn a_rejected_request_carries_the_reason() {
    let (a, b) = pair();
    let listener = b.listener(445);
    let active = a.active();
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let incoming = listener.accept();
    //= R-CONN-15, R-CONN-16
    assert_eq!(call!(incoming, NdkReject, [0u8; 149].as_ptr().cast(), 149), STATUS_INVALID_BUFFER_SIZE);
    assert_eq!(call!(incoming, NdkReject, null_mut(), 1), STATUS_INVALID_PARAMETER);
    assert_eq!(call!(incoming, NdkReject, b"no".as_ptr().cast(), 2), STATUS_SUCCESS);
    assert_eq!(call!(incoming, NdkReject, null_mut(), 0), STATUS_CONNECTION_INVALID);
    assert_eq!(connecting.wait(), STATUS_CONNECTION_REFUSED);
    assert_eq!(&active.private_data().expect("the reason")[..2], b"no");
    close!(incoming, NdkCloseConnector);
    active.close();
    listener.close();
}

//= R-CLOSE-31, R-CLOSE-15
#[test]
fn a_connector_closed_unanswered_refuses_and_holds_its_listener() {
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
fn the_active_side_may_still_say_no() {
    let (a, b) = pair();
    let listener = b.listener(445);
    let active = a.active();
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let passive = b.passive(listener.accept());
    let accepting = passive.accept(&[]);
    assert_eq!(connecting.wait(), STATUS_SUCCESS);
    assert_eq!(call!(active.connector, NdkReject, null_mut(), 0), STATUS_SUCCESS);
    assert_eq!(accepting.wait(), STATUS_CONNECTION_REFUSED);
    assert_eq!(passive.disconnected.count(), 0);
    // Both queue pairs knew their peer: neither can be used again. //= R-QP-73
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

//= R-CONN-37, R-CONN-41
#[test]
fn a_request_whose_peer_has_left_unheard_is_answered_as_aborted() {
    let (a, b) = pair();
    let listener = b.listener(445);
    let active = a.active();
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let passive = b.passive(listener.accept());
    // The peer's word is in, and nobody has been told.
    let held = b.hold_batches();
    let before = b.counter("rx_datagrams");
    let closing = begin_close!(active.connector, NdkCloseConnector);
    wait("the peer's word is in", || b.counter("rx_datagrams") > before);
    // The counter moves a moment before what it counts is done.
    std::thread::sleep(core::time::Duration::from_millis(20));
    assert_eq!(passive.accept(&[]).wait(), STATUS_CONNECTION_ABORTED);
    assert_eq!(call!(passive.connector, NdkReject, null_mut(), 0), STATUS_CONNECTION_ABORTED);
    drop(held);
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
fn closing_a_connector_cancels_what_it_waits_for() {
    let (a, b) = pair();
    // Requests go nowhere.
    a.cut();
    let active = a.active();
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let closing = begin_close!(active.connector, NdkCloseConnector);
    assert_eq!(connecting.wait(), STATUS_CANCELLED);
    closing.wait();
    close!(active.qp, NdkCloseQp);
    active.cq.close();
    close!(active.pd, NdkClosePd);
}

//= R-CONN-2, R-CONN-3, R-CONN-5, R-CONN-15, R-CONN-16, R-CREATE-51, R-CREATE-52, R-QP-75
#[test]
fn a_connect_is_refused_inline_for_what_is_wrong_with_it() {
    let (a, b) = pair();
    let end = a.active();
    let answer =
        |from: core::net::SocketAddr, to: core::net::SocketAddr, data: &[u8]| end.connect(from, to, data);
    assert_eq!(answer(b.at(0), b.at(445), &[]).wait(), STATUS_INVALID_ADDRESS);
    assert_eq!(answer("0.0.0.0:0".parse().unwrap(), b.at(445), &[]).wait(), STATUS_INVALID_ADDRESS);
    assert_eq!(answer(a.at(0), b.at(445), &[0; 57]).wait(), STATUS_INVALID_BUFFER_SIZE);
    let listener = a.listener(7000);
    assert_eq!(answer(a.at(7000), b.at(445), &[]).wait(), STATUS_SHARING_VIOLATION);
    listener.close();
    // None of these used the connector up; these do.
    for (to, status) in
        [("192.0.2.99:1", STATUS_HOST_UNREACHABLE), ("198.51.100.1:1", STATUS_NETWORK_UNREACHABLE)]
    {
        let end = End { connector: a.connector(), cq: Cq { ..end.cq }, ..end };
        assert_eq!(end.connect(a.at(0), to.parse().unwrap(), &[]).wait(), status);
        close!(end.connector, NdkCloseConnector);
    }
    end.close();
}

//= R-QP-18, R-QP-37, R-QP-38, R-QP-61
#[test]
fn a_refused_post_starts_what_was_deferred_before_it() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    for context in 0..3 {
        assert_eq!(passive.receive(context, &[]), STATUS_SUCCESS);
    }
    assert_eq!(active.send(1, &[], NDK_OP_FLAG_DEFER), STATUS_SUCCESS);
    assert_eq!(active.send(2, &[], NDK_OP_FLAG_DEFER), STATUS_SUCCESS);
    assert_eq!(active.send(3, &[], 1 << 31), STATUS_INVALID_PARAMETER);
    for context in [1, 2] {
        let result = active.cq.next();
        assert_eq!((result.Status, result.RequestContext), (STATUS_SUCCESS, pointer(context)));
    }
    assert_eq!(active.send(4, &[], 0), STATUS_SUCCESS);
    assert_eq!(active.cq.next().RequestContext, pointer(4));
    active.close();
    passive.close();
    listener.close();
}

//= R-QP-14, R-QP-32, R-QP-38
#[test]
fn a_post_with_an_unreadable_list_or_of_no_object_starts_what_was_deferred_too() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let element = NDK_SGE {
        Anonymous: NDK_SGE_Anonymous { VirtualAddress: null_mut() },
        Length: 0,
        MemoryRegionToken: 0,
    };
    let (list, qp) = ([element; 129], active.qp);
    let refusals: [(&dyn Fn() -> NTSTATUS, NTSTATUS); 6] = [
        (&|| active.send(9, &list[..33], 0), STATUS_DATA_OVERRUN),
        (&|| active.send(9, &list, NDK_OP_FLAG_INLINE), STATUS_DATA_OVERRUN),
        (&|| call!(qp, NdkSend, pointer(9), core::ptr::null(), 1, 0), STATUS_INVALID_PARAMETER),
        (
            &|| call!(qp, NdkBind, pointer(9), null_mut(), null_mut(), null_mut(), 0, 0),
            STATUS_INVALID_PARAMETER,
        ),
        (&|| call!(qp, NdkInvalidate, pointer(9), null_mut(), 0), STATUS_INVALID_PARAMETER),
        (
            &|| call!(qp, NdkSendAndInvalidate, pointer(9), core::ptr::null(), 1, 0, 0),
            STATUS_INVALID_PARAMETER,
        ),
    ];
    for (context, (refusal, status)) in refusals.into_iter().enumerate() {
        let context = context as u64;
        assert_eq!(passive.receive(context, &[]), STATUS_SUCCESS);
        assert_eq!(active.send(context, &[], NDK_OP_FLAG_DEFER), STATUS_SUCCESS);
        assert_eq!(refusal(), status);
        let result = active.cq.next();
        assert_eq!((result.Status, result.RequestContext), (STATUS_SUCCESS, pointer(context)));
    }
    active.close();
    passive.close();
    listener.close();
}

//= R-CQ-1, R-CQ-3, R-CQ-5, R-CQ-9, R-CQ-10
#[test]
fn an_arm_is_told_once() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    for context in 0..4 {
        assert_eq!(passive.receive(context, &[]), STATUS_SUCCESS);
    }
    assert_eq!(active.send(1, &[], 0), STATUS_SUCCESS);
    passive.cq.next();
    assert_eq!(passive.cq.seen.count(), 0);
    passive.cq.arm(NDK_CQ_NOTIFY_SOLICITED);
    assert_eq!(active.send(2, &[], 0), STATUS_SUCCESS);
    passive.cq.next();
    assert_eq!(passive.cq.seen.count(), 0);
    assert_eq!(active.send(3, &[], NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT), STATUS_SUCCESS);
    assert_eq!(passive.cq.seen.wait(1), STATUS_SUCCESS);
    passive.cq.next();
    assert_eq!(active.send(4, &[], 0), STATUS_SUCCESS);
    // All four have arrived when all four are acknowledged.
    for _ in 0..4 {
        assert_eq!(active.cq.next().Status, STATUS_SUCCESS);
    }
    //= R-CQ-20
    assert_eq!(call!(passive.cq.raw, NdkGetCqResults, null_mut(), 0), 0);
    passive.cq.arm(NDK_CQ_NOTIFY_ANY);
    assert_eq!(passive.cq.seen.wait(2), STATUS_SUCCESS);
    passive.cq.next();
    assert_eq!(passive.cq.seen.count(), 2);
    active.close();
    passive.close();
    listener.close();
}

//= R-CQ-32, R-CQ-35, R-CQ-36, R-CQ-37, R-PERF-7
#[test]
fn an_overflowing_queue_takes_its_connection_down() {
    let (a, b) = pair();
    let listener = b.listener(445);
    let active = a.active();
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let small = b.cq(2);
    let pd = b.pd();
    let qp = qp(pd, &small);
    let passive = End { cq: small, pd, qp, connector: listener.accept(), disconnected: Seen::new() };
    let accepting = passive.accept(&[]);
    assert_eq!(connecting.wait(), STATUS_SUCCESS);
    assert_eq!(active.complete(), STATUS_SUCCESS);
    assert_eq!(accepting.wait(), STATUS_SUCCESS);
    for context in 0..3 {
        assert_eq!(passive.receive(context, &[]), STATUS_SUCCESS);
    }
    for context in 0..3 {
        assert_eq!(active.send(context, &[], 0), STATUS_SUCCESS);
    }
    passive.disconnected.wait(1);
    active.disconnected.wait(1);
    passive.cq.arm(NDK_CQ_NOTIFY_ERRORS);
    assert_eq!(passive.cq.seen.wait(1), STATUS_BUFFER_OVERFLOW);
    assert_eq!(
        [passive.cq.next().RequestContext, passive.cq.next().RequestContext],
        [pointer(0), pointer(1)]
    );
    assert!(passive.cq.poll().is_none());
    assert_eq!(b.provider.core().performance().CQError, 1);
    active.close();
    passive.close();
    listener.close();
}

//= R-SRQ-1, R-SRQ-2, R-SRQ-3, R-SRQ-6, R-SRQ-7, R-SRQ-8, R-SRQ-14, R-SRQ-22, R-QP-84, R-CREATE-40
#[test]
fn receives_are_shared() {
    let (a, b) = pair();
    let listener = b.listener(445);
    let active = a.active();
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let (cq, pd, low) = (b.cq(16), b.pd(), Seen::new());
    let srq: *mut NDK_SRQ = create(|done, context, out| {
        call!(pd, NdkCreateSrq, 8, 2, 2, Some(on_cq), low.context(), null_mut(), done, context, out)
    })
    .expect("a shared queue");
    let qp: *mut NDK_QP = create(|done, context, out| {
        call!(pd, NdkCreateQpWithSrq, cq.raw, cq.raw, srq, QP_CONTEXT, 4, 1, 0, done, context, out)
    })
    .expect("a queue pair");
    let passive = End { cq, pd, qp, connector: listener.accept(), disconnected: Seen::new() };
    assert_eq!(passive.receive(1, &[]), STATUS_INVALID_DEVICE_REQUEST);
    for context in 10..12 {
        assert_eq!(call!(srq, NdkSrqReceive, pointer(context), core::ptr::null(), 0), STATUS_SUCCESS);
    }
    let accepting = passive.accept(&[]);
    assert_eq!(connecting.wait(), STATUS_SUCCESS);
    assert_eq!(active.complete(), STATUS_SUCCESS);
    assert_eq!(accepting.wait(), STATUS_SUCCESS);
    assert_eq!(low.count(), 0);
    assert_eq!(active.send(1, &[], 0), STATUS_SUCCESS);
    let received = passive.cq.next();
    assert_eq!((received.RequestContext, received.QPContext), (pointer(10), QP_CONTEXT));
    assert_eq!(low.wait(1), STATUS_SUCCESS);
    assert_eq!(active.send(2, &[], 0), STATUS_SUCCESS);
    passive.cq.next();
    assert_eq!(low.count(), 1);
    let modify =
        |depth, threshold| request(|done, context| call!(srq, NdkModifySrq, depth, threshold, done, context));
    assert_eq!(modify(0, 1), STATUS_SUCCESS);
    assert_eq!(low.wait(2), STATUS_SUCCESS);
    let closing = begin_close!(srq, NdkCloseSrq);
    assert_eq!(closing.status, STATUS_PENDING);
    active.close();
    passive.close();
    closing.wait();
    listener.close();
}

//= R-CONN-26, R-CONN-27, R-CONN-57, R-CLOSE-33, R-CONN-4
#[test]
fn a_shared_endpoint_is_held_by_its_connectors() {
    let (a, b) = pair();
    let listener = b.listener(445);
    let (bytes, length) = socket_address(a.at(5000));
    let endpoint: *mut NDK_SHARED_ENDPOINT = create(|done, context, out| {
        call!(a.adapter(), NdkCreateSharedEndpoint, (&raw const bytes).cast(), length, done, context, out)
    })
    .expect("an endpoint");
    let connect = |end: &End| {
        let (target, length) = socket_address(b.at(445));
        let target = (&raw const target).cast();
        let none = core::ptr::null();
        let (connector, qp) = (end.connector, end.qp);
        request(|done, context| {
            call!(
                connector,
                NdkConnectWithSharedEndpoint,
                qp,
                endpoint,
                target,
                length,
                1,
                1,
                none,
                0,
                done,
                context
            )
        })
    };
    let active = a.active();
    let passive = std::thread::scope(|scope| {
        let (active, connect) = (Moved(&active), Moved(&connect));
        let connecting = scope.spawn(move || {
            let (active, connect) = (active, connect);
            (connect.0)(active.0)
        });
        let passive = b.passive(listener.accept());
        let accepting = passive.accept(&[]);
        assert_eq!(connecting.join().unwrap(), STATUS_SUCCESS);
        (passive, accepting)
    });
    assert_eq!(active.complete(), STATUS_SUCCESS);
    assert_eq!(passive.1.wait(), STATUS_SUCCESS);
    let again = a.active();
    assert_eq!(connect(&again), STATUS_ADDRESS_ALREADY_EXISTS);
    again.close();
    let closing = begin_close!(endpoint, NdkCloseSharedEndpoint);
    assert_eq!(closing.status, STATUS_PENDING);
    active.close();
    closing.wait();
    passive.0.close();
    listener.close();
}

struct Moved<'a, T>(&'a T);
// SAFETY: what the tests move to another thread is only used there while this one waits.
unsafe impl<T> Send for Moved<'_, T> {}

//= R-CREATE-2, R-CLOSE-2, R-CREATE-9
#[test]
fn a_connection_works_when_every_call_pends() {
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

//= R-PNP-8, R-PNP-9, R-PNP-10, R-CLOSE-35
#[test]
fn a_device_that_is_pulled_ends_everything_once() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    assert_eq!(active.receive(1, &[]), STATUS_SUCCESS);
    a.pull();
    active.disconnected.wait(1);
    assert_eq!(active.cq.next().Status, STATUS_CANCELLED);
    assert_eq!(active.send(1, &[], 0), STATUS_CONNECTION_INVALID);
    let disconnected = active.disconnected;
    active.close();
    assert_eq!(disconnected.count(), 1);
    passive.close();
    listener.close();
}

//= R-CONN-101
#[test]
fn connections_end_with_their_address() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    b.set_addresses(&[b.ip.into(), a.ip.into()]);
    assert_eq!(passive.disconnected.count(), 0);
    b.set_addresses(&[a.ip.into()]);
    passive.disconnected.wait(1);
    active.disconnected.wait(1);
    active.close();
    passive.close();
    listener.close();
}

//= R-QP-90, R-CONN-87, R-QP-59
#[test]
fn a_peer_that_vanishes_is_noticed() {
    let timing = provider::Timing {
        ack_timeout: core::time::Duration::from_millis(20),
        retries: 3,
        ..Default::default()
    };
    let (a, b) = pair_with(provider::Config { timing, ..Default::default() });
    let (active, passive, listener) = connect(&a, &b);
    b.cut();
    assert_eq!(active.send(1, &[], 0), STATUS_SUCCESS);
    assert_eq!(active.send(2, &[], 0), STATUS_SUCCESS);
    assert_eq!(active.cq.next().Status, STATUS_IO_TIMEOUT);
    assert_eq!(active.cq.next().Status, STATUS_CANCELLED);
    active.disconnected.wait(1);
    active.close();
    passive.close();
    listener.close();
}
