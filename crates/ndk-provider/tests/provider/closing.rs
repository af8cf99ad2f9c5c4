// SPDX-License-Identifier: MIT OR Apache-2.0

//! Objects that are closed before those that depend on them: what a strict provider reports, and where the close callback runs.

use crate::support::*;
use core::ffi::c_void;
use core::ptr::null_mut;
use ndk_abi::ndk::*;
use ndk_abi::nt::*;
use ndk_provider::Mistake;
use std::sync::mpsc::{Sender, channel};
use std::thread::{ThreadId, current};

fn window(pd: *mut NDK_PD) -> *mut NDK_MW {
    create(|done, context, out| call!(pd, NdkCreateMw, done, context, out)).expect("a window")
}

fn shared_queue(pd: *mut NDK_PD) -> *mut NDK_SRQ {
    create(|done, context, out| {
        call!(pd, NdkCreateSrq, 8, 1, 0, None, null_mut(), null_mut(), done, context, out)
    })
    .expect("a shared receive queue")
}

fn qp_of(pd: *mut NDK_PD, [receive, initiator]: [*mut NDK_CQ; 2], srq: *mut NDK_SRQ) -> *mut NDK_QP {
    create(|done, context, out| {
        call!(pd, NdkCreateQpWithSrq, receive, initiator, srq, null_mut(), 1, 1, 0, done, context, out)
    })
    .expect("a queue pair")
}

/// Expects the report that an antecedent was closed before `dependent`.
fn expect_report<T>(node: &Node, dependent: *mut T) {
    let reports: Vec<_> = node.reports().iter().map(|report| (report.mistake, report.detail)).collect();
    assert_eq!(reports, [(Mistake::AntecedentClosed, dependent.addr() as u32)]);
}

//= R-CLOSE-9
#[test]
fn each_dependent_of_a_closed_object_is_reported_and_no_other() {
    let (a, _b) = checked_pair();
    // Open all the time, and dependents of none of the closed objects.
    let others = (a.pd(), a.cq(1), a.shared_endpoint(7000), a.listener(446));
    let other_window = window(others.0);
    let other_queue = shared_queue(others.0);
    let other_pair = qp_of(others.0, [others.1.raw; 2], other_queue);
    let other_region = fast_mr(others.0);

    let pd = a.pd();
    close!(pd, NdkClosePd);
    assert_eq!(a.mistakes(), [], "nothing depended on it");

    let pd = a.pd();
    let region = fast_mr(pd);
    let closing = begin_close!(pd, NdkClosePd);
    expect_report(&a, region);
    close!(region, NdkCloseMr);
    closing.wait();

    let pd = a.pd();
    let mw = window(pd);
    let closing = begin_close!(pd, NdkClosePd);
    expect_report(&a, mw);
    close!(mw, NdkCloseMw);
    closing.wait();

    let pd = a.pd();
    let srq = shared_queue(pd);
    let closing = begin_close!(pd, NdkClosePd);
    expect_report(&a, srq);
    close!(srq, NdkCloseSrq);
    closing.wait();

    let (pd, receive, initiator) = (a.pd(), a.cq(1), a.cq(1));
    let srq = shared_queue(pd);
    let pair = qp_of(pd, [receive.raw, initiator.raw], srq);
    let on_srq = begin_close!(srq, NdkCloseSrq);
    expect_report(&a, pair);
    let on_receive = begin_close!(receive.raw, NdkCloseCq);
    expect_report(&a, pair);
    let on_initiator = begin_close!(initiator.raw, NdkCloseCq);
    expect_report(&a, pair);
    let on_pd = begin_close!(pd, NdkClosePd);
    expect_report(&a, pair);
    close!(pair, NdkCloseQp);
    [on_srq, on_receive, on_initiator, on_pd].into_iter().for_each(Closing::wait);

    close!(other_pair, NdkCloseQp);
    close!(other_queue, NdkCloseSrq);
    close!(other_window, NdkCloseMw);
    close!(other_region, NdkCloseMr);
    let (pd, cq, endpoint, listener) = others;
    close!(pd, NdkClosePd);
    cq.close();
    close!(endpoint, NdkCloseSharedEndpoint);
    listener.close();
    assert_eq!(a.mistakes(), []);
}

/// Creates an object of an adapter. Returns its address, and what closes it.
type Make = fn(&OpenAdapter) -> (usize, Box<dyn FnOnce()>);

//= R-CLOSE-9, R-CLOSE-36
#[test]
fn each_object_of_an_adapter_that_is_closed_before_it_is_reported() {
    let (a, _b) = checked_pair();
    let makes: [Make; 4] = [
        |adapter| {
            let pd = adapter.pd();
            (pd.addr(), Box::new(move || close!(pd, NdkClosePd)))
        },
        |adapter| {
            let cq = adapter.cq(1);
            (cq.raw.addr(), Box::new(move || cq.close()))
        },
        |adapter| {
            let listener = adapter.idle_listener();
            (listener.raw.addr(), Box::new(move || listener.close()))
        },
        |adapter| {
            let endpoint = adapter.shared_endpoint(7000);
            (endpoint.addr(), Box::new(move || close!(endpoint, NdkCloseSharedEndpoint)))
        },
    ];
    for make in makes {
        let adapter = a.open(2, 1);
        let (address, close) = make(&adapter);
        std::thread::scope(|scope| {
            scope.spawn(|| adapter.close());
            let mut reports = Vec::new();
            wait("the report is there", || {
                reports.extend(a.reports());
                !reports.is_empty()
            });
            let report = &reports[0];
            assert_eq!((report.mistake, report.detail), (Mistake::AntecedentClosed, address as u32));
            close();
        });
    }
}

unsafe extern "efiapi" fn send_thread(context: *mut c_void) {
    // SAFETY: `expect_own_stack` leaks the sender, and has no other thread use it.
    let sender = unsafe { &*context.cast::<Sender<ThreadId>>() };
    sender.send(current().id()).unwrap();
}

/// Closes `antecedent`, then its dependent by `release`. The callback of the former must not run in the call of the latter.
macro_rules! expect_own_stack {
    ($antecedent:expr, $close:ident, $release:expr) => {{
        let (sender, threads) = channel();
        let sender: &'static Sender<ThreadId> = Box::leak(Box::new(sender));
        let antecedent = $antecedent;
        let context = core::ptr::from_ref(sender).cast_mut().cast();
        let status = close_with!(antecedent, $close, Some(send_thread), context);
        assert_eq!(status, STATUS_PENDING, "{}", stringify!($close));
        $release;
        let closed_on = threads.recv_timeout(TIMEOUT).expect("the close callback");
        assert_ne!(closed_on, current().id(), "{} on the stack of another close", stringify!($close));
    }};
}

/// Consumers may hold a lock while they close an object, which the close callback of another object takes.
//= R-IRQL-4, R-CLOSE-34
#[test]
fn close_callback_does_not_run_in_the_close_of_a_dependent() {
    let (a, b) = pair();
    let pd = a.pd();
    let region = fast_mr(pd);
    expect_own_stack!(pd, NdkClosePd, close!(region, NdkCloseMr));

    let (pd, receive, initiator) = (a.pd(), a.cq(1), a.cq(1));
    let srq = shared_queue(pd);
    let pair = qp_of(pd, [receive.raw, initiator.raw], srq);
    expect_own_stack!(srq, NdkCloseSrq, close!(pair, NdkCloseQp));
    let srq = shared_queue(pd);
    let pair = qp_of(pd, [receive.raw, initiator.raw], srq);
    expect_own_stack!(receive.raw, NdkCloseCq, close!(pair, NdkCloseQp));
    close!(srq, NdkCloseSrq);
    close!(pd, NdkClosePd);
    initiator.close();

    let (active, passive, listener) = connect(&a, &b);
    expect_own_stack!(active.qp, NdkCloseQp, close!(active.connector, NdkCloseConnector));
    close!(active.pd, NdkClosePd);
    active.cq.close();
    passive.disconnected.wait(1);
    expect_own_stack!(listener.raw, NdkCloseListener, passive.close());
}

//= R-IRQL-4, R-CLOSE-34
#[test]
fn close_callback_of_a_region_does_not_run_in_the_close_of_a_window() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let memory = Memory::new(4096);
    let region = memory.register(active.pd, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
    let mw = window(active.pd);
    let base = pointer(memory.base());
    let flags = NDK_OP_FLAG_ALLOW_REMOTE_READ;
    assert_eq!(call!(active.qp, NdkBind, null_mut(), region.mr, mw, base, 4096, flags), STATUS_SUCCESS);
    assert_eq!(active.cq.next().Status, STATUS_SUCCESS);
    expect_own_stack!(region.mr, NdkCloseMr, close!(mw, NdkCloseMw));
    active.close();
    passive.close();
    listener.close();
}

//= R-MR-21
#[test]
fn memory_released_while_a_shared_receive_queue_uses_it_is_reported() {
    let (a, _b) = checked_pair();
    let pd = a.pd();
    let srq = shared_queue(pd);
    let memory = Memory::new(4096);
    let [used, unused] = [memory.register(pd, 1), memory.register(pd, 1)];
    let sge = used.sge();
    assert_eq!(call!(srq, NdkSrqReceive, null_mut(), &raw const sge, 1), STATUS_SUCCESS);
    unused.close();
    assert_eq!(a.mistakes(), []);
    used.close();
    assert_eq!(a.mistakes(), [Mistake::MemoryInUse]);
    close!(srq, NdkCloseSrq);
    close!(pd, NdkClosePd);
}
