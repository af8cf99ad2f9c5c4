// SPDX-License-Identifier: MIT OR Apache-2.0

//! The settings for authors of consumers: calls that pend, a create call that fails, callbacks that are held back.

use crate::support::*;
use core::ptr::null_mut;
use ndk_abi::ndk::*;
use ndk_abi::nt::*;
use ndk_provider::{CallbackDelay, Config, CreateCompletion, FailCreate, StrictSettings};
use std::time::{Duration, Instant};

fn strict(settings: StrictSettings) -> Config {
    Config { strict: settings, ..Config::default() }
}

/// Returns the statuses of three create calls of protection domains, with a completion queue after the first.
fn three_pds(node: &Node) -> [Option<NTSTATUS>; 3] {
    let pd = || create(|done, context, out| call!(node.adapter(), NdkCreatePd, done, context, out));
    [0, 1, 2].map(|index| {
        let created: Result<*mut NDK_PD, _> = pd();
        if index == 0 {
            node.cq(1).close();
        }
        created.map(|pd| close!(pd, NdkClosePd)).err()
    })
}

#[test]
fn chosen_create_call_fails_and_no_other() {
    for pending in [CreateCompletion::Auto, CreateCompletion::Pend] {
        let settings = |object| StrictSettings {
            fail_create: Some(FailCreate { number: 3, object }),
            ..StrictSettings::default()
        };
        let config = |object| Config { create_completion: pending, ..strict(settings(object)) };
        let (a, _b) = pair_with(config(None));
        assert_eq!(three_pds(&a), [None, Some(STATUS_INSUFFICIENT_RESOURCES), None]);
        let (a, _b) = pair_with(config(Some(NDK_OBJECT_TYPE::NdkObjectTypePd)));
        assert_eq!(three_pds(&a), [None, None, Some(STATUS_INSUFFICIENT_RESOURCES)]);
    }
}

/// Builds a mapping of one page. Returns the status of the call and the number of its callbacks.
fn build_lam(node: &Node) -> (NTSTATUS, NTSTATUS) {
    let (memory, record) = (Memory::new(4096), CallbackRecord::new());
    let (mut lam, mut size, mut offset) = ([0u64; 8], 64, 7);
    let status = call!(
        node.adapter(),
        NdkBuildLAM,
        memory.mdl(),
        4096,
        Some(on_request),
        record.context(),
        lam.as_mut_ptr().cast(),
        &raw mut size,
        &raw mut offset
    );
    let outcome = if status == STATUS_PENDING { record.wait(1) } else { status };
    assert_eq!((lam[1] & 0xffff_ffff, size, offset), (1, 24, 0));
    call!(node.adapter(), NdkReleaseLAM, lam.as_mut_ptr().cast());
    (status, outcome)
}

//= R-LAM-14, R-CONSUMER-4
#[test]
fn mapping_pends_only_if_all_calls_shall() {
    let (a, _b) = pair_with(Config { create_completion: CreateCompletion::Pend, ..Config::default() });
    assert_eq!(build_lam(&a), (STATUS_SUCCESS, STATUS_SUCCESS));
    let (a, _b) = pair_with(Config { create_completion: CreateCompletion::PendAll, ..Config::default() });
    assert_eq!(build_lam(&a), (STATUS_PENDING, STATUS_SUCCESS));
    // Without a callback it cannot.
    //= R-LAM-16
    let (memory, mut size) = (Memory::new(4096), 0);
    let null = null_mut();
    let probe =
        call!(a.adapter(), NdkBuildLAM, memory.mdl(), 1, None, null, null.cast(), &raw mut size, null.cast());
    assert_eq!((probe, size), (STATUS_BUFFER_TOO_SMALL, 24));
}

#[test]
fn disconnect_pends_even_if_the_peer_has_disconnected() {
    for (pending, expected) in
        [(CreateCompletion::Auto, STATUS_SUCCESS), (CreateCompletion::Pend, STATUS_PENDING)]
    {
        let (a, b) = pair_with(Config { create_completion: pending, ..Config::default() });
        let (active, passive, listener) = connect(&a, &b);
        let closing = begin_close!(passive.connector, NdkCloseConnector);
        active.disconnected.wait(1);
        let record = CallbackRecord::new();
        let status = call!(active.connector, NdkDisconnect, Some(on_request), record.context());
        assert_eq!(status, expected);
        if status == STATUS_PENDING {
            assert_eq!(record.wait(1), STATUS_SUCCESS);
        }
        closing.wait();
        close!(passive.qp, NdkCloseQp);
        passive.cq.close();
        close!(passive.pd, NdkClosePd);
        active.close();
        listener.close();
    }
}

const DELAY: Duration = Duration::from_millis(40);

fn delayed(random: bool) -> Config {
    let delay = Some(CallbackDelay { time: DELAY, random });
    Config {
        create_completion: CreateCompletion::Pend,
        ..strict(StrictSettings { delay, ..StrictSettings::default() })
    }
}

#[test]
fn callbacks_are_held_back_for_the_set_time() {
    let (a, _b) = pair_with(delayed(false));
    let start = Instant::now();
    let pd = a.pd();
    assert!(start.elapsed() >= DELAY, "the create callback came after {:?}", start.elapsed());
    let cq = a.cq(4);
    let qp = qp(pd, &cq);
    cq.arm(NDK_CQ_NOTIFY_ANY);
    assert_eq!(call!(qp, NdkReceive, null_mut(), core::ptr::null(), 0), STATUS_SUCCESS);
    let start = Instant::now();
    call!(qp, NdkFlush);
    // The completion is there at once; only its notification is late.
    //= R-CQ-55
    assert_eq!(cq.next().Status, STATUS_CANCELLED);
    assert_eq!(call!(qp, NdkReceive, null_mut(), core::ptr::null(), 0), STATUS_SUCCESS);
    call!(qp, NdkFlush);
    assert_eq!(cq.notified.wait(1), STATUS_SUCCESS);
    assert!(start.elapsed() >= DELAY, "the notification came after {:?}", start.elapsed());
    let start = Instant::now();
    close!(qp, NdkCloseQp);
    assert!(start.elapsed() >= DELAY, "the close callback came after {:?}", start.elapsed());
    cq.close();
    close!(pd, NdkClosePd);
}

#[test]
fn connections_and_traffic_work_while_callbacks_are_held_back() {
    for random in [false, true] {
        let (a, b) = pair_with(delayed(random));
        let (active, passive, listener) = connect(&a, &b);
        assert_eq!(passive.receive(1, &[]), STATUS_SUCCESS);
        assert_eq!(active.send(2, &[], 0), STATUS_SUCCESS);
        assert_eq!(active.cq.next().Status, STATUS_SUCCESS);
        assert_eq!(passive.cq.next().Status, STATUS_SUCCESS);
        active.close();
        passive.disconnected.wait(1);
        passive.close();
        listener.close();
    }
}
