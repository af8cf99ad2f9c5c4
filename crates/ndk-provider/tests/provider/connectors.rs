// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connectors and listeners whose calls cross an event, or come at a moment at which they are refused.

use crate::support::*;
use core::ffi::c_void;
use core::ptr::null_mut;
use ndk_abi::ndk::*;
use ndk_abi::nt::*;
use ndk_provider::{CallbackDelay, Config, StrictSettings};
use std::sync::mpsc::{Sender, channel};
use std::thread::{ThreadId, current};
use std::time::Duration;

//= R-CONN-49, R-CONN-59, R-CONN-61
#[test]
fn request_that_arrived_before_a_pause_raises_no_event_after_it() {
    let (a, b) = pair();
    let (listener, active) = (b.listener(445), a.active());
    let held = b.hold_callbacks();
    let before = b.counter("rx_datagrams");
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    wait("the request has arrived", || b.counter("rx_datagrams") > before);
    // The frame is counted shortly before it is processed.
    std::thread::sleep(Duration::from_millis(20));
    call!(listener.raw, NdkControlConnectEvents, 1);
    drop(held);
    assert_eq!(connecting.wait(), STATUS_CONNECTION_REFUSED);
    assert!(listener.is_idle());
    active.close();
    listener.close();
}

/// The engine refuses it, as for a port without a listener, and keeps no connection for it.
//= R-CONN-59, R-CONN-61
#[test]
fn request_for_a_listener_that_was_paused_before_it_listens_is_refused_by_the_engine() {
    let (a, b) = pair();
    let (listener, active) = (b.idle_listener(), a.active());
    call!(listener.raw, NdkControlConnectEvents, 1);
    assert_eq!(listener.listen(b.at(445)), STATUS_SUCCESS);
    assert_eq!(active.connect(a.at(0), b.at(445), &[]).wait(), STATUS_CONNECTION_REFUSED);
    assert_eq!(b.counter("cm_refused"), 1);
    assert!(listener.is_idle());
    active.close();
    listener.close();
}

/// The connector of another request keeps the listener, whose callback must no longer be called.
//= R-CONN-49, R-CLOSE-16
#[test]
fn request_that_arrived_before_the_close_of_its_listener_raises_no_event_after_it() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let other = a.active();
    let held = b.hold_callbacks();
    let before = b.counter("rx_datagrams");
    let connecting = other.connect(a.at(0), b.at(445), &[]);
    wait("the request has arrived", || b.counter("rx_datagrams") > before);
    std::thread::sleep(Duration::from_millis(20));
    let closing = begin_close!(listener.raw, NdkCloseListener);
    assert_eq!(closing.status, STATUS_PENDING);
    drop(held);
    assert_eq!(connecting.wait(), STATUS_CONNECTION_REFUSED);
    assert!(listener.is_idle());
    for end in [other, active, passive] {
        end.close();
    }
    closing.wait();
}

//= R-CONN-10
#[test]
fn connect_on_a_connected_connector_is_refused_and_leaves_its_connection() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let again = active.connect(a.at(0), b.at(445), &[]);
    assert!(again.is_inline());
    assert_eq!(again.wait(), STATUS_INVALID_DEVICE_STATE);
    send_one(&active, &passive);
    send_one(&passive, &active);
    active.close();
    passive.close();
    listener.close();
}

//= R-CONN-10, R-CONN-8
#[test]
fn failed_connect_is_not_repeated_before_its_completion() {
    // Long enough for the calls below on a machine under load: if it is not, the test fails.
    let delay = Some(CallbackDelay { time: Duration::from_secs(2), random: false });
    let strict = StrictSettings { delay, ..StrictSettings::default() };
    let (a, _b) = pair_with(Config { strict, ..Config::default() });
    let active = a.active();
    let nowhere = "192.0.2.99:1".parse().unwrap();
    let connecting = active.connect(a.at(0), nowhere, &[]);
    wait("the connect has failed", || a.provider.performance_counters().ConnectFailure == 1);
    let early = active.connect(a.at(0), nowhere, &[]);
    assert!(early.is_inline());
    assert_eq!(early.wait(), STATUS_INVALID_DEVICE_STATE);
    assert!(!connecting.is_done());
    assert_eq!(connecting.wait(), STATUS_HOST_UNREACHABLE);
    assert_eq!(active.connect(a.at(0), nowhere, &[]).wait(), STATUS_HOST_UNREACHABLE);
    active.close();
}

//= R-CONN-17
#[test]
fn addresses_that_cannot_be_connected_are_refused_inline() {
    let (a, b) = pair();
    let active = a.active();
    for to in [b.at_v6(445), b.at(0)] {
        let connecting = active.connect(a.at(0), to, &[]);
        assert!(connecting.is_inline(), "to {to}");
        assert_eq!(connecting.wait(), STATUS_INVALID_PARAMETER, "to {to}");
    }
    active.close();
}

//= R-CONN-4, R-CONN-26
#[test]
fn shared_endpoint_connects_to_a_peer_of_another_connection() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let endpoint = a.shared_endpoint(9000);
    // Connections with the same local address, and one with the same remote address.
    let second = b.listener(446);
    let connections: Vec<_> = [&listener, &second]
        .into_iter()
        .map(|listener| {
            let shared = a.active();
            let connecting = shared.connect_with(endpoint, listener.address().unwrap());
            assert!(!connecting.is_inline(), "refused: {:#x}", connecting.wait());
            let accepted = b.end(listener.accept());
            establish(&shared, &accepted, &connecting);
            send_one(&shared, &accepted);
            (shared, accepted)
        })
        .collect();
    send_one(&active, &passive);
    for (shared, accepted) in connections {
        shared.close();
        accepted.close();
    }
    close!(endpoint, NdkCloseSharedEndpoint);
    active.close();
    passive.close();
    listener.close();
    second.close();
}

/// The passive side leaves after its reply.
//= R-CONN-29, R-PERF-4
#[test]
fn connect_that_the_peer_leaves_before_its_completion_has_failed() {
    let (a, b) = pair();
    let (listener, active) = (b.listener(445), a.active());
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let passive = b.end(listener.accept());
    let accepting = passive.accept(&[]);
    assert_eq!(connecting.wait(), STATUS_SUCCESS);
    let before = a.provider.performance_counters().ConnectFailure;
    close!(passive.connector, NdkCloseConnector);
    assert_eq!(accepting.wait(), STATUS_CANCELLED);
    wait("the connect has failed", || a.provider.performance_counters().ConnectFailure == before + 1);
    assert_eq!(active.complete(), STATUS_CONNECTION_ABORTED);
    close!(passive.qp, NdkCloseQp);
    passive.cq.close();
    close!(passive.pd, NdkClosePd);
    active.close();
    listener.close();
}

/// An address that the close callback of its owner reserves.
struct Reserve {
    adapter: *mut NDK_ADAPTER,
    address: SocketAddr,
    result: Sender<Result<usize, NTSTATUS>>,
}

unsafe extern "efiapi" fn reserve(context: *mut c_void) {
    // SAFETY: `expect_free_at_close` leaks the `Reserve` and does not use it itself.
    let this = unsafe { &*context.cast::<Reserve>() };
    let (address, length) = socket_address(this.address);
    let mut endpoint = null_mut::<NDK_SHARED_ENDPOINT>();
    let bytes = (&raw const address).cast();
    let (never, out) = (never as NDK_FN_CREATE_COMPLETION, &raw mut endpoint);
    match call!(this.adapter, NdkCreateSharedEndpoint, bytes, length, Some(never), null_mut(), out) {
        STATUS_SUCCESS => this.result.send(Ok(endpoint.expose_provenance())).unwrap(),
        status => this.result.send(Err(status)).unwrap(),
    }
}

unsafe extern "efiapi" fn never(_: *mut c_void, _: NTSTATUS, _: *mut NDK_OBJECT_HEADER) {
    panic!("the call completes inline");
}

/// Closes `owner`, then runs `release`. The close callback, which must come, reserves `address`.
macro_rules! expect_free_at_close {
    ($node:expr, $address:expr, $owner:expr, $close:ident, $release:expr) => {{
        let (result, results) = channel();
        let reserving = Reserve { adapter: $node.adapter(), address: $address, result };
        let context: *const Reserve = Box::leak(Box::new(reserving));
        let owner = $owner;
        let status = close_with!(owner, $close, Some(reserve), context.cast_mut().cast());
        assert_eq!(status, STATUS_PENDING);
        $release;
        let reserved = results.recv_timeout(TIMEOUT).expect("the close callback");
        let endpoint = reserved.unwrap_or_else(|status| panic!("{} is in use: {status:#x}", $address));
        let endpoint: *mut NDK_SHARED_ENDPOINT = core::ptr::with_exposed_provenance_mut(endpoint);
        close!(endpoint, NdkCloseSharedEndpoint);
    }};
}

//= R-CLOSE-33, R-CONN-56, R-CONN-57, R-CONN-58
#[test]
fn address_is_free_in_the_close_callback_of_its_owner() {
    let (a, b) = pair();
    a.host.cut();
    let (endpoint, active) = (a.shared_endpoint(7000), a.active());
    let connecting = active.connect_with(endpoint, b.at(445));
    expect_free_at_close!(a, a.at(7000), endpoint, NdkCloseSharedEndpoint, active.close());
    assert_eq!(connecting.wait(), STATUS_CANCELLED);

    let active = a.active();
    let connecting = active.connect(a.at(7001), b.at(445), &[]);
    let held = a.hold_callbacks();
    expect_free_at_close!(a, a.at(7001), active.connector, NdkCloseConnector, drop(held));
    assert_eq!(connecting.wait(), STATUS_CANCELLED);
    close!(active.qp, NdkCloseQp);
    active.cq.close();
    close!(active.pd, NdkClosePd);
}

unsafe extern "efiapi" fn send_thread(context: *mut c_void) {
    // SAFETY: the test leaks the sender; this is its only callback.
    let sender = unsafe { &*context.cast::<Sender<ThreadId>>() };
    sender.send(current().id()).unwrap();
}

/// A list of the connections, for an OID, holds each connector while its entry is passed on.
//= R-IRQL-4, R-CLOSE-34
#[test]
fn close_callback_of_a_connector_does_not_run_in_a_list_of_connections() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let (sender, threads) = channel();
    let sender: *const Sender<ThreadId> = Box::leak(Box::new(sender));
    let context = sender.cast_mut().cast();
    let mut listed = 0;
    a.provider.connections(|_| {
        listed += 1;
        let status = close_with!(active.connector, NdkCloseConnector, Some(send_thread), context);
        assert_eq!(status, STATUS_PENDING);
    });
    assert_eq!(listed, 1);
    let closed_on = threads.recv_timeout(TIMEOUT).expect("the close callback");
    assert_ne!(closed_on, current().id());
    close!(active.qp, NdkCloseQp);
    active.cq.close();
    close!(active.pd, NdkClosePd);
    passive.close();
    listener.close();
}
