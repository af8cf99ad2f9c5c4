// SPDX-License-Identifier: MIT OR Apache-2.0

//! Exhausted pool at every single allocation of a call: the same status, and no leak.

use crate::support::pool::{FAILS_ONCE, LEFT, LIVE};
use crate::support::*;
use core::cell::Cell;
use core::ptr::{null, null_mut};
use ndk_abi::ndk::*;
use ndk_abi::nt::*;
use ndk_provider::{CallbackDelay, Config, CreateCompletion, StrictSettings};
use std::time::Duration;

/// Closes an object without successors, which completes inline.
macro_rules! close_inline {
    ($object:expr, $member:ident) => {
        assert_eq!(close_with!($object, $member, None, null_mut()), STATUS_SUCCESS)
    };
}

/// Makes `call` with 0, 1, 2, ... allocations granted until it succeeds, then calls `undo`. `call` completes
/// inline and only calls the provider.
pub fn grant_until_success(what: &str, mut call: impl FnMut() -> NTSTATUS, mut undo: impl FnMut()) {
    // The first call grows tables that are never shrunk.
    assert_eq!(call(), STATUS_SUCCESS, "{what}");
    undo();
    for granted in 0.. {
        assert!(granted < 100, "{what} never succeeds");
        let before = LIVE.get();
        LEFT.set(granted);
        let status = call();
        LEFT.set(-1);
        if status == STATUS_SUCCESS {
            assert_ne!(granted, 0, "{what} needs no memory");
            undo();
            assert_eq!(LIVE.get(), before, "{what} leaks after success");
            return;
        }
        assert_eq!(status, STATUS_INSUFFICIENT_RESOURCES, "{what} with {granted} allocations");
        assert_eq!(LIVE.get(), before, "{what} with {granted} allocations leaks");
    }
}

/// Makes a create call as [`grant_until_success`] does, and closes what it has created.
fn grant_until_created<T>(what: &str, create: impl Fn(*mut *mut T) -> NTSTATUS, close: impl Fn(*mut T)) {
    let out = Cell::new(null_mut());
    grant_until_success(what, || create(out.as_ptr()), || close(out.get()));
}

//= R-CREATE-14, R-CREATE-5, R-MR-5, R-LAM-17, R-LAM-18, R-CONN-9, R-CONN-50
#[test]
fn every_call_fails_cleanly_without_memory() {
    let (a, _b) = pair();
    let adapter = a.adapter();
    let (pd, cq) = (a.pd(), a.cq(4));

    let create = |out| call!(adapter, NdkCreatePd, None, null_mut(), out);
    grant_until_created("a PD", create, |domain| close_inline!(domain, NdkClosePd));

    let create =
        |out| call!(adapter, NdkCreateCq, 16, Some(on_cq), null_mut(), null_mut(), None, null_mut(), out);
    grant_until_created("a CQ", create, |queue| close_inline!(queue, NdkCloseCq));

    let create =
        |out| call!(pd, NdkCreateQp, cq.raw, cq.raw, null_mut(), 8, 8, 2, 2, 32, None, null_mut(), out);
    grant_until_created("a QP", create, |qp| close_inline!(qp, NdkCloseQp));

    let create = |out| call!(pd, NdkCreateSrq, 8, 2, 0, None, null_mut(), null_mut(), None, null_mut(), out);
    grant_until_created("an SRQ", create, |srq| close_inline!(srq, NdkCloseSrq));

    let create = |out| call!(adapter, NdkCreateConnector, None, null_mut(), out);
    grant_until_created("a connector", create, |connector| close_inline!(connector, NdkCloseConnector));

    let create = |out| call!(adapter, NdkCreateListener, Some(never), null_mut(), None, null_mut(), out);
    grant_until_created("a listener", create, |listener| close_inline!(listener, NdkCloseListener));

    let (address, length) = socket_address(a.at(5000));
    let create = |out| {
        let address = (&raw const address).cast();
        call!(adapter, NdkCreateSharedEndpoint, address, length, None, null_mut(), out)
    };
    grant_until_created("an endpoint", create, |endpoint| close_inline!(endpoint, NdkCloseSharedEndpoint));

    let memory = Memory::new(100_000);
    let mut out = null_mut();
    assert_eq!(call!(pd, NdkCreateMr, 0, None, null_mut(), &raw mut out), STATUS_SUCCESS);
    let mr: *mut NDK_MR = out;
    grant_until_success(
        "a registration",
        || call!(mr, NdkRegisterMr, memory.mdl(), 100_000, 1, None, null_mut()),
        || assert_eq!(call!(mr, NdkDeregisterMr, None, null_mut()), STATUS_SUCCESS),
    );
    close!(mr, NdkCloseMr);

    let create = |out| call!(pd, NdkCreateMw, None, null_mut(), out);
    grant_until_created("a window", create, |window| close_inline!(window, NdkCloseMw));

    let uninitialized = || {
        let mut out: *mut NDK_MR = null_mut();
        assert_eq!(call!(pd, NdkCreateMr, 1, None, null_mut(), &raw mut out), STATUS_SUCCESS);
        out
    };
    let mr = Cell::new(uninitialized());
    grant_until_success(
        "an initialization",
        || call!(mr.get(), NdkInitializeFastRegisterMr, 256, 1, None, null_mut()),
        || {
            close_inline!(mr.get(), NdkCloseMr);
            mr.set(uninitialized());
        },
    );
    close!(mr.get(), NdkCloseMr);

    let mut lam = [0u64; 32];
    let lam = lam.as_mut_ptr();
    grant_until_success(
        "a mapping",
        || {
            let mut size = 256;
            let size = &raw mut size;
            call!(adapter, NdkBuildLAM, memory.mdl(), 100_000, None, null_mut(), lam.cast(), size, null_mut())
        },
        || call!(adapter, NdkReleaseLAM, lam.cast()),
    );

    let listening = Cell::new(a.idle_listener().raw);
    let listen = || {
        let address = (&raw const address).cast();
        call!(listening.get(), NdkListen, address, length, None, null_mut())
    };
    assert_eq!(listen(), STATUS_SUCCESS);
    close!(listening.replace(a.idle_listener().raw), NdkCloseListener);
    for granted in 0..100 {
        LEFT.set(granted);
        let status = listen();
        LEFT.set(-1);
        if status == STATUS_SUCCESS {
            break;
        }
        assert_eq!(status, STATUS_INSUFFICIENT_RESOURCES);
    }
    close!(listening.get(), NdkCloseListener);
    cq.close();
    close!(pd, NdkClosePd);
}

/// A connect without memory is refused during the call, and may be repeated.
//= R-CONN-9
#[test]
fn connect_fails_without_memory_and_may_be_repeated() {
    let (a, _b) = pair();
    let active = a.active();
    let nowhere = "192.0.2.99:1".parse().unwrap();
    let ((source, source_length), (target, target_length)) =
        (socket_address(a.at(0)), socket_address(nowhere));
    let record = CallbackRecord::new();
    let connect = || {
        call!(
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
            Some(on_request),
            record.context(),
        )
    };
    LEFT.set(0);
    let status = connect();
    LEFT.set(-1);
    assert_eq!(status, STATUS_INSUFFICIENT_RESOURCES);
    assert_eq!(connect(), STATUS_PENDING);
    assert_eq!(record.wait(1), STATUS_HOST_UNREACHABLE);
    active.close();
}

/// Without memory for the work item that would complete a pended call, the callback is made during the call.
//= R-IRQL-5
#[test]
fn callback_is_made_during_the_call_if_there_is_no_memory_for_another_thread() {
    let (a, _b) = pending_pair();
    let pd = a.pd();
    let memory = Memory::new(4096);
    let mr: *mut NDK_MR =
        create(|done, context, out| call!(pd, NdkCreateMr, 0, done, context, out)).expect("an MR");
    let record = CallbackRecord::new();
    // The record's own allocation is made before.
    record.record(STATUS_PENDING);
    LEFT.set(0);
    let status = call!(mr, NdkRegisterMr, memory.mdl(), 4096, 1, Some(on_request), record.context());
    LEFT.set(-1);
    assert_eq!((status, record.count()), (STATUS_PENDING, 2));
    assert_eq!(record.wait(2), STATUS_INSUFFICIENT_RESOURCES);
    close!(mr, NdkCloseMr);
    close!(pd, NdkClosePd);
}

/// A strict provider that finds no memory for what it holds back does it at once.
//= R-CREATE-2, R-CREATE-14
#[test]
fn call_whose_completion_cannot_be_held_back_completes() {
    let delay = Some(CallbackDelay { time: Duration::from_millis(1), random: false });
    let strict = StrictSettings { delay, ..StrictSettings::default() };
    let config = Config { create_completion: CreateCompletion::Pend, strict, ..Config::default() };
    let (a, _b) = pair_with(config);
    FAILS_ONCE.set(true);
    let (mut created, mut refused) = (Vec::with_capacity(100), 0);
    for granted in 0..100 {
        let mut left = 0;
        let outcome = create(|done, context, out| {
            LEFT.set(granted);
            let status = call!(a.adapter(), NdkCreatePd, done, context, out);
            left = LEFT.replace(-1);
            status
        });
        match outcome {
            Ok(pd) => created.push(pd),
            Err(status) => {
                assert_eq!(status, STATUS_INSUFFICIENT_RESOURCES);
                refused += 1;
            }
        }
        if left >= 0 {
            break;
        }
    }
    // One without memory for what is held back, one without memory for the list of that, and one that had enough.
    assert_eq!(created.len(), 3);
    assert_ne!(refused, 0);
    for pd in created {
        close!(pd, NdkClosePd);
    }
}

unsafe extern "efiapi" fn never(_context: *mut core::ffi::c_void, _connector: *mut NDK_CONNECTOR) {
    panic!("no connect event is expected");
}

//= R-CQ-39, R-CQ-50
#[test]
fn a_queue_is_unchanged_by_changes_that_fail_without_memory() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let cq = &passive.cq;
    let moderate = |interval, count| call!(cq.raw, NdkControlCqInterruptModeration, interval, count);
    let without_memory = |call: &dyn Fn() -> NTSTATUS| {
        LEFT.set(0);
        let status = call();
        LEFT.set(-1);
        assert_eq!(status, STATUS_INSUFFICIENT_RESOURCES);
    };
    let send = |context| {
        assert_eq!(passive.receive(context, &[]), STATUS_SUCCESS);
        assert_eq!(active.send(context, &[], 0), STATUS_SUCCESS);
        assert_eq!(active.cq.next().Status, STATUS_SUCCESS);
    };
    assert_eq!(moderate(u32::MAX, 2), STATUS_SUCCESS);
    // The first moderation by time needs a timer.
    without_memory(&|| moderate(2000, u32::MAX));
    without_memory(&|| call!(cq.raw, NdkResizeCq, 300, None, null_mut()));
    cq.arm(NDK_CQ_NOTIFY_ANY);
    send(0);
    std::thread::sleep(core::time::Duration::from_millis(20));
    assert_eq!(cq.notified.count(), 0, "the count still decides");
    send(1);
    assert_eq!(cq.notified.wait(1), STATUS_SUCCESS);
    for context in [0, 1] {
        assert_eq!(cq.next().RequestContext, pointer(context));
    }
    assert_eq!(moderate(2000, u32::MAX), STATUS_SUCCESS);
    assert_eq!(call!(cq.raw, NdkResizeCq, 300, None, null_mut()), STATUS_SUCCESS);
    active.close();
    passive.close();
    listener.close();
}
