// SPDX-License-Identifier: MIT OR Apache-2.0

//! How connections end: by either side, by an error, by removal of a device or an address.

use crate::support::*;
use ndk_abi::ndk::*;
use ndk_abi::nt::*;

//= R-CONN-80, R-CONN-83, R-CONN-84, R-CONN-87, R-CONN-88, R-CONN-90, R-CONN-91, R-QP-71, R-QP-72
#[test]
fn connection_ends_when_both_sides_disconnect() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    for end in [&active, &passive] {
        assert_eq!(end.receive(1, &[]), STATUS_SUCCESS);
    }
    let disconnecting = CallbackRecord::new();
    let status = call!(active.connector, NdkDisconnect, Some(on_request), disconnecting.context());
    assert_eq!(status, STATUS_PENDING);
    passive.disconnected.wait(1);
    // The peer's disconnect neither flushes nor completes anything on this side.
    assert!(passive.cq.poll().is_none());
    assert_eq!(disconnecting.count(), 0);
    assert_eq!(passive.disconnect(), STATUS_SUCCESS);
    // Completes inline: the receives are flushed when the call returns.
    assert_eq!(passive.cq.poll().map(|result| result.Status), Some(STATUS_CANCELLED));
    assert_eq!(disconnecting.wait(1), STATUS_SUCCESS);
    assert_eq!(active.cq.poll().map(|result| result.Status), Some(STATUS_CANCELLED));
    assert_eq!((active.disconnected.count(), passive.disconnected.count()), (0, 1));
    //= R-CONN-86, R-CONN-93
    assert_eq!(active.disconnect(), STATUS_CONNECTION_INVALID);
    active.close();
    passive.close();
    listener.close();
}

//= R-CONN-83, R-CONN-84
#[test]
fn disconnect_that_completes_inline_has_flushed() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    assert_eq!(passive.receive(1, &[]), STATUS_SUCCESS);
    let disconnecting = CallbackRecord::new();
    let status = call!(active.connector, NdkDisconnect, Some(on_request), disconnecting.context());
    assert_eq!(status, STATUS_PENDING);
    passive.disconnected.wait(1);
    // Only the call itself can flush now.
    let held = b.hold_callbacks();
    assert_eq!(passive.disconnect(), STATUS_SUCCESS);
    assert_eq!(passive.cq.poll().map(|result| result.Status), Some(STATUS_CANCELLED));
    drop(held);
    assert_eq!(disconnecting.wait(1), STATUS_SUCCESS);
    active.close();
    passive.close();
    listener.close();
}

//= R-CONN-84, R-CONN-91, R-CONN-94, R-QP-71
#[test]
fn disconnect_that_crosses_the_peers_succeeds() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    assert_eq!(passive.receive(1, &[]), STATUS_SUCCESS);
    // The peer's disconnect has been processed but not reported when this side disconnects.
    let held = b.hold_callbacks();
    let before = b.counter("rx_datagrams");
    let disconnecting = CallbackRecord::new();
    let status = call!(active.connector, NdkDisconnect, Some(on_request), disconnecting.context());
    assert_eq!(status, STATUS_PENDING);
    wait("the peer's disconnect has arrived", || b.counter("rx_datagrams") > before);
    let crossing = CallbackRecord::new();
    let status = call!(passive.connector, NdkDisconnect, Some(on_request), crossing.context());
    assert_eq!(status, STATUS_PENDING);
    drop(held);
    assert_eq!([crossing.wait(1), disconnecting.wait(1)], [STATUS_SUCCESS; 2]);
    assert_eq!(passive.cq.poll().map(|result| result.Status), Some(STATUS_CANCELLED));
    //= R-CONN-88
    assert_eq!(passive.disconnected.count(), 0);
    active.close();
    passive.close();
    listener.close();
}

//= R-CLOSE-30, R-CONN-87, R-CONN-89, R-CONN-96, R-QP-66
#[test]
fn closing_a_connected_connector_ends_the_connection() {
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

//= R-QP-55, R-QP-56, R-QP-58, R-QP-59, R-QP-60, R-CONN-87, R-MR-10, R-PERF-5
#[test]
fn access_violation_ends_the_connection_on_both_sides() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let (source, mut target) = (Memory::new(100), Memory::new(100));
    let here = source.register(active.pd, 0);
    let there = target.register(passive.pd, NDK_MR_FLAG_ALLOW_REMOTE_READ);
    assert_eq!(passive.receive(9, &[]), STATUS_SUCCESS);
    // Deferred to be sent together: otherwise the first may fail before the second is posted.
    assert_eq!(active.write_flagged(1, &[here.sge()], there.remote(), NDK_OP_FLAG_DEFER), STATUS_SUCCESS);
    assert_eq!(active.write(2, &[here.sge()], there.remote()), STATUS_SUCCESS);
    assert_eq!(active.cq.next().Status, STATUS_ACCESS_VIOLATION);
    assert_eq!(active.cq.next().Status, STATUS_CANCELLED);
    assert_eq!(passive.cq.next().Status, STATUS_CANCELLED);
    active.disconnected.wait(1);
    passive.disconnected.wait(1);
    assert!(target.bytes().iter().all(|byte| *byte == 0));
    assert_eq!(active.send(3, &[], 0), STATUS_CONNECTION_INVALID);
    let errors = || [&a, &b].map(|node| node.provider.performance_counters().ConnectionError);
    assert_eq!(errors(), [1, 1]);
    here.close();
    there.close();
    let records = [active.disconnected, passive.disconnected];
    active.close();
    passive.close();
    listener.close();
    assert_eq!(records.map(CallbackRecord::count), [1, 1]);
    assert_eq!(errors(), [1, 1]);
}

//= R-PNP-8, R-PNP-9, R-PNP-10, R-CLOSE-35
#[test]
fn surprise_removal_ends_connections_with_one_event() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    assert_eq!(active.receive(1, &[]), STATUS_SUCCESS);
    a.host.remove_device();
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
fn connection_ends_when_its_address_is_removed() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    b.host.set_addresses(&[b.at(0).ip(), a.at(0).ip()]);
    assert_eq!(passive.disconnected.count(), 0);
    b.host.set_addresses(&[a.at(0).ip()]);
    passive.disconnected.wait(1);
    active.disconnected.wait(1);
    active.close();
    passive.close();
    listener.close();
}

//= R-QP-90, R-CONN-87, R-QP-59
#[test]
fn unresponsive_peer_is_detected_by_retry_timeout() {
    let timing = ndk_provider::Timing {
        ack_timeout: core::time::Duration::from_millis(20),
        retries: 3,
        ..Default::default()
    };
    let (a, b) = pair_with(ndk_provider::Config { timing, ..Default::default() });
    let (active, passive, listener) = connect(&a, &b);
    b.host.cut();
    assert_eq!(active.send(1, &[], 0), STATUS_SUCCESS);
    assert_eq!(active.send(2, &[], 0), STATUS_SUCCESS);
    assert_eq!(active.cq.next().Status, STATUS_IO_TIMEOUT);
    assert_eq!(active.cq.next().Status, STATUS_CANCELLED);
    active.disconnected.wait(1);
    active.close();
    passive.close();
    listener.close();
}

//= R-CONN-81, R-CONN-88, R-PERF-5
#[test]
fn disconnect_after_an_abort_that_is_not_reported_yet_fails_with_the_abort() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let errors = a.provider.performance_counters().ConnectionError;
    let source = Memory::new(100);
    let here = source.register(active.pd, 0);
    // The peer refuses the token. Its NAK has been processed but not reported when the consumer disconnects.
    let held = a.hold_callbacks();
    assert_eq!(active.write(1, &[here.sge()], (0, 0x1234_5678)), STATUS_SUCCESS);
    wait("the NAK has arrived", || active.cq.poll().is_some());
    let disconnecting = CallbackRecord::new();
    let status = call!(active.connector, NdkDisconnect, Some(on_request), disconnecting.context());
    let member = observed::last();
    drop(held);
    assert_eq!(status, STATUS_PENDING);
    let status = disconnecting.wait(1);
    observed::completion(member, status);
    assert_eq!(status, STATUS_CONNECTION_ABORTED);
    assert_eq!(active.disconnected.count(), 0);
    // It failed before the consumer disconnected it.
    assert_eq!(a.provider.performance_counters().ConnectionError, errors + 1);
    here.close();
    active.close();
    passive.close();
    listener.close();
}

/// The peer does not disconnect.
//= R-PERF-6, R-OIDNDK-27, R-QP-73
#[test]
fn connection_and_its_queue_pair_are_out_of_use_when_the_disconnect_is_called() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    // Returns whether a connection is counted, whether one is listed, and the status of another connect with the queue pair.
    let state = |node: &Node, qp: *mut NDK_QP| {
        let (mut listed, spare) = (0, node.active());
        node.provider.connections(|_| listed += 1);
        let own = spare.qp;
        let end = End { qp, ..spare };
        let again = end.connect(node.at(0), node.at(1), &[]);
        assert!(again.is_inline());
        let status = again.wait();
        End { qp: own, ..end }.close();
        (node.provider.performance_counters().ActiveConnection, listed, status)
    };
    assert_eq!(state(&a, active.qp), (1, 1, STATUS_CONNECTION_ACTIVE));
    let disconnecting = CallbackRecord::new();
    let status = call!(active.connector, NdkDisconnect, Some(on_request), disconnecting.context());
    assert_eq!(status, STATUS_PENDING);
    assert_eq!(state(&a, active.qp), (0, 0, STATUS_CONNECTION_INVALID));
    passive.disconnected.wait(1);
    assert_eq!(state(&b, passive.qp), (0, 0, STATUS_CONNECTION_ACTIVE), "the event was raised");
    assert_eq!(disconnecting.count(), 0);
    assert_eq!(passive.disconnect(), STATUS_SUCCESS);
    assert_eq!(state(&b, passive.qp), (0, 0, STATUS_CONNECTION_INVALID));
    assert_eq!(disconnecting.wait(1), STATUS_SUCCESS);
    active.close();
    passive.close();
    listener.close();
}
