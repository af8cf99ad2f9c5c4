// SPDX-License-Identifier: MIT OR Apache-2.0

//! The driver's calls of the provider: received frames, the end of a batch, transmit slots that become free, removal, and drop. And
//! what the provider asks of the driver in a consumer's call.

use crate::support::manual_hosts::*;
use crate::support::pool::LEFT;
use crate::support::*;
use core::ptr::{null, null_mut};
use ndk_abi::ndk::*;
use ndk_abi::nt::*;
use ndk_provider::environment::ObjectChange;
use ndk_provider::{Config, Verdict};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

//= R-PNP-3, R-OPEN-6
#[test]
fn frames_are_taken_for_this_station_while_the_provider_is_enabled_or_open() {
    let (a, seen) = host(OWN, PEER);
    let opened = OpenAdapter::of(&a, 1);
    let active = opened.active();
    let (frame, connecting) = request_of(&active, &seen);
    let mut foreign = frame.clone();
    foreign[5] ^= 1;
    let (b, _) = host(PEER, OWN);
    let receive = || [&frame, &foreign].map(|frame| b.receive_batch(0).unwrap().receive(frame));
    let (taken, left) = ([Verdict::Consumed, Verdict::NotOurs], [Verdict::NotOurs; 2]);
    assert_eq!(receive(), taken, "enabled, without a consumer");
    let consumer = OpenAdapter::of(&b, 2);
    assert_eq!(receive(), taken, "enabled and open");
    b.set_enabled(false);
    assert_eq!(receive(), taken, "disabled, with a consumer");
    consumer.close();
    assert_eq!(receive(), left, "disabled, without a consumer");
    b.set_enabled(true);
    assert_eq!(receive(), taken, "enabled again");
    active.close();
    assert_eq!(connecting.wait(), STATUS_CANCELLED);
    opened.close();
}

/// Frames to many stations between those of a queue pair: what the batch keeps is released after as many frames of any kind.
#[test]
fn a_batch_keeps_queue_pairs_and_regions_for_a_few_frames_of_any_station() {
    let (a, seen) = host(OWN, PEER);
    let opened = OpenAdapter::of(&a, 1);
    let active = opened.active();
    let (frame, connecting) = request_of(&active, &seen);
    let mut multicast = frame.clone();
    multicast[0] |= 1;
    let (b, _) = host(PEER, OWN);
    // Frames are counted when the batch releases what it keeps.
    let counted = || b.performance_counters().RDMAInFrames;
    let mut batch = b.receive_batch(0).unwrap();
    assert_eq!(batch.receive(&frame), Verdict::Consumed);
    for number in 1..100 {
        assert_eq!(counted(), u64::from(number > 15), "{number}");
        assert_eq!(batch.receive(&multicast), Verdict::NotOurs);
    }
    assert_eq!(batch.receive(&frame), Verdict::Consumed);
    assert_eq!(counted(), 1);
    batch.end();
    assert_eq!(counted(), 2);
    active.close();
    assert_eq!(connecting.wait(), STATUS_CANCELLED);
    opened.close();
}

#[test]
fn frame_that_found_no_slot_is_sent_when_one_becomes_free() {
    let (a, seen) = host(OWN, PEER);
    let opened = OpenAdapter::of(&a, 1);
    let active = opened.active();
    seen.is_full.store(true, Ordering::SeqCst);
    let (from, to) = ((address(OWN), 0).into(), (address(PEER), 445).into());
    let connecting = active.connect(from, to, &[]);
    wait("the request needs a slot", || seen.waits.load(Ordering::SeqCst) != 0);
    assert!(seen.sent().is_empty());
    seen.is_full.store(false, Ordering::SeqCst);
    a.transmit_ready();
    assert_eq!(seen.sent().len(), 1, "sent by the call");
    active.close();
    assert_eq!(connecting.wait(), STATUS_CANCELLED);
    opened.close();
}

/// The system has taken the address away, and the driver has not yet called `set_addresses`.
//= R-CONN-101
#[test]
fn request_to_an_address_that_is_gone_is_refused_at_the_end_of_the_batch() {
    let (a, seen) = host(OWN, PEER);
    let opened = OpenAdapter::of(&a, 1);
    let active = opened.active();
    let (frame, connecting) = request_of(&active, &seen);
    let (b, from_b) = host(PEER, OWN);
    let consumer = OpenAdapter::of(&b, 2);
    let listener = consumer.listener(445);
    from_b.is_homeless.store(true, Ordering::SeqCst);
    let mut batch = b.receive_batch(0).unwrap();
    assert_eq!(batch.receive(&frame), Verdict::Consumed);
    batch.end();
    let sent = from_b.sent();
    assert_eq!(sent.len(), 1, "the refusal is sent by the call");
    assert!(listener.is_idle());
    let mut batch = a.receive_batch(0).unwrap();
    assert_eq!(batch.receive(&sent[0]), Verdict::Consumed);
    batch.end();
    assert_eq!(connecting.wait(), STATUS_CONNECTION_REFUSED);
    active.close();
    opened.close();
    listener.close();
    consumer.close();
}

//= R-PNP-14
#[test]
fn dropped_provider_stops_its_timer_and_frees_everything() {
    let (a, seen) = host(OWN, PEER);
    let opened = OpenAdapter::of(&a, 1);
    let active = opened.active();
    // The timer is set for the repetition of the request.
    let (_, connecting) = request_of(&active, &seen);
    active.close();
    assert_eq!(connecting.wait(), STATUS_CANCELLED);
    opened.close();
    assert_eq!(Arc::strong_count(&seen), 2);
    drop(a);
    assert_eq!(Arc::strong_count(&seen), 1, "the environment is freed with the provider");
}

/// An object of which the creation failed was none.
#[test]
fn changes_of_an_object_are_traced_from_its_creation_to_its_end() {
    let (provider, seen) = host(OWN, PEER);
    let adapter = OpenAdapter::of(&provider, 1);
    seen.changes.lock().unwrap().clear();
    let pd = adapter.pd();
    let failed = create(|done, context, out: *mut *mut NDK_SRQ| {
        let none = core::ptr::null_mut();
        call!(pd, NdkCreateSrq, 0, 1, 0, None, none, none.cast(), done, context, out)
    });
    assert_eq!(failed.err(), Some(STATUS_INVALID_PARAMETER));
    let kind = NDK_OBJECT_TYPE::NdkObjectTypePd.0;
    let object = pd.addr();
    close!(pd, NdkClosePd);
    let expected = [ObjectChange::Created, ObjectChange::Closing, ObjectChange::Closed]
        .map(|change| (kind, object, change));
    assert_eq!(*seen.changes.lock().unwrap(), expected);
    adapter.close();
}

#[test]
fn each_call_of_a_connector_sends_its_message_before_it_returns_and_without_a_lock() {
    let hosts = Hosts::new(Config::default());
    let (seen_a, seen_b) = (&hosts.a.1, &hosts.b.1);
    // Accept and complete.
    let (active, passive) = hosts.connect(hosts.at_a.active());
    let disconnecting = CallbackRecord::new();
    let (status, request) =
        sent_by(seen_a, || call!(active.connector, NdkDisconnect, Some(on_request), disconnecting.context()));
    assert_eq!(status, STATUS_PENDING);
    deliver(&hosts.b.0, &request);
    let (status, reply) = sent_by(seen_b, || passive.disconnect());
    assert_eq!(status, STATUS_SUCCESS);
    deliver(&hosts.a.0, &reply);
    assert_eq!(disconnecting.wait(1), STATUS_SUCCESS);

    let refused = hosts.at_a.active();
    let (refusing, connecting) = hosts.request(&refused);
    let (status, reject) = sent_by(seen_b, || call!(refusing.connector, NdkReject, null_mut(), 0));
    assert_eq!(status, STATUS_SUCCESS);
    deliver(&hosts.a.0, &reject);
    assert_eq!(connecting.wait(), STATUS_CONNECTION_REFUSED);

    let (left, leaving) = hosts.connect(hosts.at_a.active());
    let (closing, request) = sent_by(seen_b, || begin_close!(leaving.connector, NdkCloseConnector));
    closing.wait();
    deliver(&hosts.a.0, &request);
    left.disconnected.wait(1);
    close!(leaving.qp, NdkCloseQp);
    leaving.cq.close();
    close!(leaving.pd, NdkClosePd);
    hosts.close([active, passive, refused, refusing, left]);
}

/// Nothing but the timer repeats it: no frame arrives, and no callback is due.
#[test]
fn message_that_waited_for_a_slot_is_sent_again_without_an_answer() {
    // Not before the test has looked at what the call sends.
    let (hosts, active, passive) = Hosts::without_timers(sending_again_after(Duration::from_millis(500)));
    let seen = &hosts.a.1;
    seen.is_full.store(true, Ordering::SeqCst);
    assert_eq!(active.send(1, &[], 0), STATUS_SUCCESS);
    seen.is_full.store(false, Ordering::SeqCst);
    let ((), message) = sent_by(seen, || hosts.a.0.transmit_ready());
    let mut again = Vec::new();
    wait("the message is sent again", || {
        again.extend(seen.sent());
        !again.is_empty()
    });
    assert_eq!(again[0], message[0]);
    hosts.close([active, passive]);
}

/// Neither an event of the engine nor the resolution of the path completes it.
//= R-PNP-8, R-PNP-10
#[test]
fn removal_completes_a_connect_whose_path_is_being_resolved() {
    let (a, seen) = host(OWN, PEER);
    let gate = Gate::new();
    *seen.paths.lock().unwrap() = Paths::Unknown(gate);
    let opened = OpenAdapter::of(&a, 1);
    let active = opened.active();
    let connecting = active.connect((address(OWN), 0).into(), (address(PEER), 445).into(), &[]);
    gate.wait();
    a.remove();
    assert_eq!(connecting.wait(), STATUS_CONNECTION_ABORTED);
    gate.open();
    active.close();
    opened.close();
}

unsafe extern "efiapi" fn on_request_with_memory(context: *mut core::ffi::c_void, status: NTSTATUS) {
    LEFT.set(-1);
    // SAFETY: `connect_fails_if_no_thread_can_resolve_its_path` passes the context of a record.
    unsafe { on_request(context, status) };
}

//= R-CONN-9
#[test]
fn connect_fails_if_no_thread_can_resolve_its_path() {
    let (a, seen) = host(OWN, PEER);
    *seen.paths.lock().unwrap() = Paths::OutOfMemory;
    let opened = OpenAdapter::of(&a, 1);
    let active = opened.active();
    let (from, to) = ((address(OWN), 0).into(), (address(PEER), 445).into());
    let ((source, source_length), (target, target_length)) = (socket_address(from), socket_address(to));
    let record = CallbackRecord::new();
    let status = call!(
        active.connector,
        NdkConnect,
        active.qp,
        (&raw const source).cast(),
        source_length,
        (&raw const target).cast(),
        target_length,
        1,
        1,
        null(),
        0,
        Some(on_request_with_memory),
        record.context(),
    );
    assert_eq!(status, STATUS_PENDING);
    assert_eq!(record.wait(1), STATUS_INSUFFICIENT_RESOURCES);
    active.close();
    opened.close();
}

/// Binds a window, which completes when it is posted. Returns what has to be closed.
fn bind(end: &End, memory: &Memory) -> (Registered, *mut NDK_MW) {
    let region = memory.register(end.pd, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
    let window: *mut NDK_MW =
        create(|done, context, out| call!(end.pd, NdkCreateMw, done, context, out)).expect("a window");
    let (base, flags) = (pointer(memory.base()), NDK_OP_FLAG_ALLOW_REMOTE_READ);
    let status = call!(end.qp, NdkBind, null_mut(), region.mr, window, base, 4096, flags);
    assert_eq!(status, STATUS_SUCCESS);
    (region, window)
}

/// Nothing is sent for it, and nothing arrives.
//= R-CQ-1
#[test]
fn request_that_completes_when_it_is_posted_is_notified() {
    let (hosts, active, passive) = Hosts::without_timers(Config::default());
    let memory = Memory::new(4096);
    active.cq.arm(NDK_CQ_NOTIFY_ANY);
    let (region, window) = bind(&active, &memory);
    assert_eq!(active.cq.notified.wait(1), STATUS_SUCCESS);
    assert_eq!(active.cq.next().Status, STATUS_SUCCESS);
    assert!(hosts.a.1.sent().is_empty());
    close!(window, NdkCloseMw);
    region.close();
    hosts.close([active, passive]);
}

/// The timer is late, because it makes a callback.
#[test]
fn post_sends_again_what_is_due_before_its_own_message() {
    let hosts = Hosts::new(Config::default());
    let (gate, pd, adapter) = (Gate::new(), hosts.at_a.pd(), hosts.at_a.adapter());
    let raw: *mut NDK_CQ = create(|done, context, out| {
        let (callback, none) = (Some(on_cq_at_gate as NDK_FN_CQ_NOTIFICATION_CALLBACK), null_mut());
        call!(adapter, NdkCreateCq, 8, callback, gate.context(), none, done, context, out)
    })
    .expect("a completion queue");
    let (cq, disconnected) = (Cq { raw, notified: CallbackRecord::new() }, CallbackRecord::new());
    let active = End { qp: qp(pd, &cq), cq, pd, connector: hosts.at_a.connector(), disconnected };
    let (active, passive) = hosts.connect(active);
    assert_eq!(call!(raw, NdkControlCqInterruptModeration, 50_000, u32::MAX), STATUS_SUCCESS);
    active.cq.arm(NDK_CQ_NOTIFY_ANY);
    let memory = Memory::new(4096);
    let (region, window) = bind(&active, &memory);
    gate.wait();
    let seen = &hosts.a.1;
    let (status, first) = sent_by(seen, || active.send(1, &[], 0));
    assert_eq!(status, STATUS_SUCCESS);
    std::thread::sleep(Duration::from_millis(100));
    assert!(seen.sent().is_empty(), "the timer is held");
    assert_eq!(active.send(2, &[], 0), STATUS_SUCCESS);
    let sent = seen.sent();
    assert!(sent.len() >= 2 && sent[0] == first[0], "{} frames", sent.len());
    gate.open();
    close!(window, NdkCloseMw);
    region.close();
    hosts.close([active, passive]);
}

unsafe extern "efiapi" fn on_request_at_gate(context: *mut core::ffi::c_void, _status: NTSTATUS) {
    // SAFETY: the context is a `Gate` that is never freed.
    unsafe { &*context.cast::<Gate>() }.hold();
}

/// A processor is in another callback of the connector when the event becomes due, and leaves it after the disconnect.
//= R-CONN-88
#[test]
fn disconnect_event_that_is_due_is_not_raised_after_a_disconnect() {
    let hosts = Hosts::new(Config::default());
    let (active, gate, b) = (hosts.at_a.active(), Gate::new(), &hosts.b.0);
    let (passive, connecting) = hosts.request(&active);
    let (_, reply) = sent_by(&hosts.b.1, || {
        let (none, disconnected) = (null_mut(), passive.disconnected.context());
        let (event, done) = (Some(on_disconnect as _), Some(on_request_at_gate as _));
        let (connector, qp) = (passive.connector, passive.qp);
        call!(connector, NdkAccept, qp, 1, 1, none, 0, event, disconnected, done, gate.context())
    });
    deliver(&hosts.a.0, &reply);
    assert_eq!(connecting.wait(), STATUS_SUCCESS);
    let (_, rtu) = sent_by(&hosts.a.1, || active.complete());
    // The deferred routine makes the callback, since the batch has no end.
    assert_eq!(b.receive_batch(0).unwrap().receive(&rtu[0]), Verdict::Consumed);
    b.transmit_ready();
    gate.wait();
    assert_eq!(passive.receive(1, &[]), STATUS_SUCCESS);
    passive.cq.arm(NDK_CQ_NOTIFY_ANY);
    let disconnecting = CallbackRecord::new();
    let (_, request) = sent_by(&hosts.a.1, || {
        call!(active.connector, NdkDisconnect, Some(on_request), disconnecting.context())
    });
    deliver(b, &request);
    let (status, reply) = sent_by(&hosts.b.1, || passive.disconnect());
    assert_eq!((status, passive.disconnected.count()), (STATUS_SUCCESS, 0));
    gate.open();
    // By the deferred routine as well, behind all callbacks of the connector.
    assert_eq!(passive.cq.notified.wait(1), STATUS_SUCCESS);
    assert_eq!(passive.disconnected.count(), 0);
    deliver(&hosts.a.0, &reply);
    assert_eq!(disconnecting.wait(1), STATUS_SUCCESS);
    hosts.close([active, passive]);
}

/// Refused because of another object: a region or a window that is closed, or none.
//= R-QP-38
#[test]
fn post_that_a_strict_provider_refuses_starts_deferred_requests() {
    let hosts = Hosts::new(reporting(sending_again_after(Duration::from_secs(3600))));
    let (active, passive) = hosts.connect(hosts.at_a.active());
    let (qp, none) = (active.qp, null_mut());
    let region = fast_mr(active.pd);
    let window: *mut NDK_MW =
        create(|done, context, out| call!(active.pd, NdkCreateMw, done, context, out)).expect("a window");
    close!(region, NdkCloseMr);
    close!(window, NdkCloseMw);
    let refused: [&dyn Fn() -> NTSTATUS; 5] = [
        &|| call!(qp, NdkFastRegister, none, region, 0, null(), 0, 0, none, 0),
        &|| call!(qp, NdkBind, none, region, window, none, 0, 0),
        &|| call!(qp, NdkInvalidate, none, region.cast(), 0),
        &|| call!(qp, NdkInvalidate, none, window.cast(), 0),
        &|| call!(qp, NdkInvalidate, none, none.cast(), 0),
    ];
    for post in refused {
        assert_eq!(passive.receive(1, &[]), STATUS_SUCCESS);
        assert_eq!(active.send(2, &[], NDK_OP_FLAG_DEFER), STATUS_SUCCESS);
        let (status, message) = sent_by(&hosts.a.1, post);
        assert_eq!(status, STATUS_INVALID_PARAMETER);
        deliver(&hosts.b.0, &message);
        deliver(&hosts.a.0, &hosts.b.1.sent());
        assert_eq!([active.cq.next().Status, passive.cq.next().Status], [STATUS_SUCCESS; 2]);
    }
    hosts.close([active, passive]);
}
