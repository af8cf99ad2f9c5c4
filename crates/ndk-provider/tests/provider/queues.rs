// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion queues: resizing, moderation, results, errors.

use crate::support::*;
use core::ptr::{null, null_mut};
use ndk_abi::ndk::*;
use ndk_abi::nt::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const MAX: u32 = u32::MAX;

fn resize(cq: &Cq, depth: u32) -> NTSTATUS {
    request(|done, context| call!(cq.raw, NdkResizeCq, depth, done, context))
}

fn moderate(cq: &Cq, interval: u32, count: u32) -> NTSTATUS {
    call!(cq.raw, NdkControlCqInterruptModeration, interval, count)
}

/// Adds `count` flushed receives to `cq`, by a queue pair that is not connected.
fn flush_into(pd: *mut NDK_PD, cq: &Cq, count: usize) {
    let qp = qp(pd, cq);
    for context in 0..count {
        assert_eq!(call!(qp, NdkReceive, pointer(context as u64), null(), 0), STATUS_SUCCESS);
    }
    close!(qp, NdkCloseQp);
}

fn drain(cq: &Cq) -> usize {
    std::iter::from_fn(|| cq.poll()).count()
}

//= R-CLOSE-37
#[test]
fn poll_without_room_for_results_leaves_the_completions() {
    let (a, _b) = pair();
    let (cq, pd) = (a.cq(4), a.pd());
    flush_into(pd, &cq, 3);
    assert_eq!(call!(cq.raw, NdkGetCqResults, null_mut(), 3), 0);
    assert_eq!(call!(cq.raw, NdkGetCqResultsEx, null_mut(), 3), 0);
    assert_eq!(drain(&cq), 3);
    cq.close();
    close!(pd, NdkClosePd);
}

//= R-CQ-39, R-CQ-40, R-CQ-41, R-CQ-42, R-INFO-26
#[test]
fn queue_is_resized_to_any_supported_depth_that_holds_its_completions() {
    let (a, _b) = pair();
    let info = a.info();
    assert_ne!(info.AdapterFlags & NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED, 0);
    let (cq, pd) = (a.cq(4), a.pd());
    for depth in [0, info.MaxCqDepth + 1, MAX] {
        assert_eq!(resize(&cq, depth), STATUS_INVALID_PARAMETER, "{depth}");
    }
    assert_eq!(resize(&cq, info.MaxCqDepth), STATUS_SUCCESS);
    flush_into(pd, &cq, 6);
    assert_eq!(resize(&cq, 5), STATUS_BUFFER_OVERFLOW);
    assert_eq!(resize(&cq, 6), STATUS_SUCCESS);
    // The completions are there, in their order.
    for context in 0..6 {
        assert_eq!(cq.poll().expect("a completion").RequestContext, pointer(context));
    }
    assert!(cq.poll().is_none());
    // It now holds six completions, and no more.
    flush_into(pd, &cq, 6);
    assert_eq!(drain(&cq), 6);
    cq.arm(NDK_CQ_NOTIFY_ERRORS);
    flush_into(pd, &cq, 7);
    assert_eq!(cq.notified.wait(1), STATUS_BUFFER_OVERFLOW);
    cq.close();
    close!(pd, NdkClosePd);
}

//= R-CQ-43
#[test]
fn a_resize_that_pends_completes_once_with_its_status() {
    let (a, _b) = pending_pair();
    let (cq, pd) = (a.cq(8), a.pd());
    flush_into(pd, &cq, 3);
    for (depth, expected) in [(2, STATUS_BUFFER_OVERFLOW), (0, STATUS_INVALID_PARAMETER), (3, STATUS_SUCCESS)]
    {
        let record = CallbackRecord::new();
        let status = call!(cq.raw, NdkResizeCq, depth, Some(on_request), record.context());
        assert_eq!(status, STATUS_PENDING);
        assert_eq!(record.wait(1), expected, "{depth}");
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(record.count(), 1);
    }
    // Inline there is no callback.
    let (b, _c) = pair();
    let inline = b.cq(8);
    let record = CallbackRecord::new();
    assert_eq!(call!(inline.raw, NdkResizeCq, 9, Some(on_request), record.context()), STATUS_SUCCESS);
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(record.count(), 0);
    inline.close();
    assert_eq!(drain(&cq), 3);
    cq.close();
    close!(pd, NdkClosePd);
}

/// Resizing, moderation, polling and arming while another thread produces.
//= R-CQ-17, R-CQ-18, R-CQ-41, R-CQ-53
#[test]
fn queue_may_be_changed_polled_and_armed_while_completions_arrive() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let stop = AtomicBool::new(false);
    let raw = OnAnyThread(passive.cq.raw);
    let mut received = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0u32;
            let end = Instant::now() + TIMEOUT;
            while Instant::now() < end && !stop.load(Ordering::SeqCst) {
                round += 1;
                // More than the receives that are ever posted: never too small.
                let status = call!(raw.get(), NdkResizeCq, 64 + round % 64, None, null_mut());
                assert_eq!(status, STATUS_SUCCESS);
                let status = call!(raw.get(), NdkControlCqInterruptModeration, 2000 * (round % 2), round % 9);
                assert_eq!(status, STATUS_SUCCESS);
            }
        });
        let (mut posted, mut sent) = (0u64, 0u64);
        while received < 3000 {
            while posted < received + 16 {
                assert_eq!(passive.receive(posted, &[]), STATUS_SUCCESS);
                posted += 1;
            }
            // The queue may be full of sends that the peer has received and not acknowledged yet.
            while sent < posted && active.send(sent, &[], NDK_OP_FLAG_SILENT_SUCCESS) == STATUS_SUCCESS {
                sent += 1;
            }
            passive.cq.arm(NDK_CQ_NOTIFY_ANY);
            while received < sent {
                let result = passive.cq.next();
                assert_eq!((result.Status, result.RequestContext), (STATUS_SUCCESS, pointer(received)));
                received += 1;
            }
        }
        stop.store(true, Ordering::SeqCst);
    });
    active.close();
    passive.close();
    listener.close();
}

//= R-CQ-44, R-CQ-45, R-CQ-46, R-CQ-48, R-CQ-49, R-CQ-53, R-CQ-54, R-INFO-25
#[test]
fn moderation_takes_every_value_but_two_without_a_limit() {
    let (a, _b) = pending_pair();
    assert_ne!(a.info().AdapterFlags & NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED, 0);
    for depth in [1, 8, a.info().MaxCqDepth] {
        let cq = a.cq(depth);
        // What Microsoft's sample asks for.
        assert_eq!(moderate(&cq, 20, MAX), STATUS_SUCCESS);
        for interval in [0, 1, 499, 20_000, MAX - 1, MAX] {
            for count in [0, 1, depth - 1, depth, depth + 1, MAX - 1, MAX] {
                let refused = interval == MAX && count > depth;
                let expected = if refused { STATUS_INVALID_PARAMETER_MIX } else { STATUS_SUCCESS };
                assert_eq!(moderate(&cq, interval, count), expected, "{interval}, {count}, depth {depth}");
            }
        }
        cq.close();
    }
}

//= R-CQ-46, R-CQ-47, R-CQ-51, R-CQ-55
#[test]
fn moderated_callback_comes_with_the_count_or_after_the_interval() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let cq = &passive.cq;
    let send = |count: u64| {
        for context in 0..count {
            assert_eq!(passive.receive(context, &[]), STATUS_SUCCESS);
            assert_eq!(active.send(context, &[], NDK_OP_FLAG_SILENT_SUCCESS), STATUS_SUCCESS);
        }
    };
    // By the count alone.
    assert_eq!(moderate(cq, MAX, 3), STATUS_SUCCESS);
    cq.arm(NDK_CQ_NOTIFY_ANY);
    send(2);
    cq.next();
    cq.next();
    send(2);
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(cq.notified.count(), 0);
    send(1);
    assert_eq!(cq.notified.wait(1), STATUS_SUCCESS);
    assert_eq!(drain(cq), 3);
    // By the interval alone: completions can be polled meanwhile.
    assert_eq!(moderate(cq, 60_000, MAX), STATUS_SUCCESS);
    cq.arm(NDK_CQ_NOTIFY_ANY);
    let begin = Instant::now();
    send(2);
    cq.next();
    assert_eq!(cq.notified.wait(2), STATUS_SUCCESS);
    assert!(begin.elapsed() >= Duration::from_millis(58), "after {:?}", begin.elapsed());
    assert_eq!(drain(cq), 1);
    // None, and none at first.
    for (interval, count) in [(0, MAX), (MAX, 1), (60_000_000, 0)] {
        assert_eq!(moderate(cq, interval, count), STATUS_SUCCESS);
        let before = cq.notified.count();
        cq.arm(NDK_CQ_NOTIFY_ANY);
        send(1);
        cq.notified.wait(before + 1);
        drain(cq);
    }
    active.cq.arm(NDK_CQ_NOTIFY_ANY);
    assert_eq!(passive.receive(1, &[]), STATUS_SUCCESS);
    assert_eq!(active.send(1, &[], 0), STATUS_SUCCESS);
    assert_eq!(active.cq.notified.wait(1), STATUS_SUCCESS);
    active.close();
    passive.close();
    listener.close();
}

/// Has moderation hold back the callback of a receive, and waits for `time`.
fn hold_back(active: &End, passive: &End, time: Duration) {
    let cq = &passive.cq;
    assert_eq!(moderate(cq, MAX, 9), STATUS_SUCCESS);
    cq.arm(NDK_CQ_NOTIFY_ANY);
    assert_eq!(passive.receive(0, &[]), STATUS_SUCCESS);
    assert_eq!(active.send(0, &[], 0), STATUS_SUCCESS);
    active.cq.next();
    std::thread::sleep(time);
    assert_eq!(cq.notified.count(), 0);
}

/// Settings of a queue with a callback that is held back.
//= R-CQ-52
#[test]
fn new_moderation_supersedes_what_was_set_before() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let cq = &passive.cq;
    hold_back(&active, &passive, Duration::from_millis(10));
    for (interval, count) in [(MAX, 5), (3_000_000_000, 5), (2000, MAX)] {
        assert_eq!(moderate(cq, interval, count), STATUS_SUCCESS);
    }
    assert_eq!(cq.notified.wait(1), STATUS_SUCCESS);
    active.close();
    passive.close();
    listener.close();
}

/// A callback that is due by the new setting is made at once, not when something else has the deferred routine run: a timer of the
/// connection does about a second later.
//= R-CQ-52
#[test]
fn a_callback_that_is_held_back_is_made_when_moderation_ends() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let cq = &passive.cq;
    hold_back(&active, &passive, Duration::from_millis(100));
    assert_eq!(moderate(cq, 0, MAX), STATUS_SUCCESS);
    let begin = Instant::now();
    cq.notified.wait(1);
    assert!(begin.elapsed() < Duration::from_millis(500), "after {:?}", begin.elapsed());
    active.close();
    passive.close();
    listener.close();
}

//= R-CQ-32, R-PERF-7
#[test]
fn an_overflow_is_counted_when_it_happens_armed_or_not() {
    let (a, _b) = pair();
    let pd = a.pd();
    let errors = || a.provider.performance_counters().CQError;
    for (round, armed) in [false, true].into_iter().enumerate() {
        let cq = a.cq(2);
        if armed {
            cq.arm(NDK_CQ_NOTIFY_ERRORS);
        }
        flush_into(pd, &cq, 2);
        assert_eq!(errors(), round as u64);
        flush_into(pd, &cq, 1);
        assert_eq!(errors(), round as u64 + 1, "armed: {armed}");
        // Once per queue, whatever follows.
        flush_into(pd, &cq, 3);
        assert_eq!(errors(), round as u64 + 1);
        cq.arm(NDK_CQ_NOTIFY_ANY);
        assert_eq!(cq.notified.wait(1), STATUS_BUFFER_OVERFLOW);
        assert_eq!(errors(), round as u64 + 1);
        cq.close();
    }
    close!(pd, NdkClosePd);
}

//= R-QP-4, R-QP-5, R-QP-14, R-QP-16, R-QP-18, R-QP-20, R-QP-62, R-QP-68, R-CQ-22, R-CQ-27
#[test]
fn unconnected_queue_pair_accepts_receives_and_flushes_them() {
    let (a, _b) = pair();
    let end = a.active();
    assert_eq!(end.send(1, &[], 0), STATUS_CONNECTION_INVALID);
    for context in 0..32 {
        assert_eq!(end.receive(context, &[]), STATUS_SUCCESS);
    }
    assert_eq!(end.receive(32, &[]), 0x8000_001A_u32.cast_signed());
    end.cq.arm(NDK_CQ_NOTIFY_ANY);
    call!(end.qp, NdkFlush);
    call!(end.qp, NdkFlush);
    //= R-CQ-4, R-QP-65
    assert_eq!(end.cq.notified.wait(1), STATUS_SUCCESS);
    for context in 0..32 {
        let result = end.cq.next();
        assert_eq!((result.Status, result.RequestContext), (STATUS_CANCELLED, pointer(context)));
        assert_eq!((result.QPContext, result.Type.0 & 1), (QP_CONTEXT, 1));
    }
    assert_eq!(end.cq.notified.count(), 1);
    end.close();
}

//= R-CQ-10
#[test]
fn arm_notifies_of_an_unread_completion_on_an_idle_link() {
    let (a, _b) = pair();
    let end = a.active();
    assert_eq!(end.receive(1, &[]), STATUS_SUCCESS);
    call!(end.qp, NdkFlush);
    // The DPC that the flush may have queued has run.
    std::thread::sleep(std::time::Duration::from_millis(20));
    end.cq.arm(NDK_CQ_NOTIFY_ANY);
    assert_eq!(end.cq.notified.wait(1), STATUS_SUCCESS);
    end.close();
}

//= R-CQ-19
#[test]
fn one_poll_returns_all_completions_that_fit() {
    let (a, _b) = pair();
    let end = a.active();
    for ex in [false, true] {
        let end = End { qp: qp(end.pd, &end.cq), cq: Cq { ..end.cq }, ..end };
        for context in 0..20 {
            assert_eq!(end.receive(context, &[]), STATUS_SUCCESS);
        }
        call!(end.qp, NdkFlush);
        let mut results = [core::mem::MaybeUninit::<NDK_RESULT_EX>::uninit(); 20];
        let poll = |count| {
            if ex {
                call!(end.cq.raw, NdkGetCqResultsEx, results.as_mut_ptr().cast(), count)
            } else {
                call!(end.cq.raw, NdkGetCqResults, results.as_mut_ptr().cast(), count)
            }
        };
        assert_eq!([20, 20].map(poll), [20, 0]);
        close!(end.qp, NdkCloseQp);
    }
    end.close();
}
