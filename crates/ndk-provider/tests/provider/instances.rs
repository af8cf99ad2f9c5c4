// SPDX-License-Identifier: MIT OR Apache-2.0

//! Objects of several NDK adapters that are open on one miniport adapter, and objects of another miniport adapter.

use crate::support::*;
use core::ffi::c_void;
use core::ptr::null_mut;
use ndk_abi::ndk::*;
use ndk_abi::nt::*;
use std::sync::Mutex;
use std::thread::{JoinHandle, ThreadId, current, sleep, spawn};
use std::time::Duration;

/// Sends an empty message each way.
fn exchange(left: &End, right: &End) {
    for (from, to) in [(left, right), (right, left)] {
        assert_eq!(to.receive(1, &[]), STATUS_SUCCESS);
        assert_eq!(from.send(2, &[], 0), STATUS_SUCCESS);
        for end in [from, to] {
            let result = end.cq.next();
            assert_eq!((result.Status, result.QPContext), (STATUS_SUCCESS, QP_CONTEXT));
        }
    }
}

/// Connects `a` to a listener of `listening`, which is accepted with objects of `accepting`.
fn connect_across(a: &OpenAdapter, listener: &Listener, accepting: &OpenAdapter) -> (End, End) {
    let active = a.active();
    let connecting = active.connect(a.at(0), listener.address().unwrap(), &[]);
    let passive = accepting.end(listener.accept());
    establish(&active, &passive, &connecting);
    (active, passive)
}

/// Closes an adapter on a thread of its own and returns after a while, with the close in progress.
fn close_on_a_thread(adapter: OpenAdapter) -> JoinHandle<()> {
    let closing = spawn(move || adapter.close());
    sleep(Duration::from_millis(20));
    assert!(!closing.is_finished(), "the adapter closed before its objects");
    closing
}

//= R-CONN-19, R-CONSUMER-1
#[test]
fn connector_is_accepted_with_a_queue_pair_of_another_adapter() {
    let (a, b) = pair();
    // The adapter of the accepted connection is opened after the request has arrived, with another version.
    let listener = b.listener(445);
    let active = a.active();
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let connector = listener.accept();
    let second = b.open(1, 0);
    let passive = second.end(connector);
    establish(&active, &passive, &connecting);
    exchange(&active, &passive);
    assert_eq!(b.provider.open_adapters(), 2);
    active.close();
    passive.disconnected.wait(1);
    passive.close();
    second.close();
    listener.close();
    assert_eq!(b.provider.open_adapters(), 1);
}

//= R-CONN-19, R-CLOSE-14, R-CLOSE-15, R-OPEN-24
#[test]
fn adapter_of_the_listener_stays_until_the_connector_is_closed() {
    let (a, b) = pair();
    let first = b.open(2, 0);
    let listener = first.listener(445);
    let (active, passive) = connect_across(&a, &listener, &b);
    let closing = begin_close!(listener.raw, NdkCloseListener);
    assert_eq!(closing.status, STATUS_PENDING);
    let adapter = close_on_a_thread(first);
    exchange(&active, &passive);
    assert!(!closing.is_done());
    close!(passive.connector, NdkCloseConnector);
    adapter.join().unwrap();
    closing.wait();
    // The queue pair, of the other adapter, is not affected.
    assert_eq!(passive.receive(3, &[]), STATUS_SUCCESS);
    assert_eq!(passive.cq.next().Status, STATUS_CANCELLED);
    close!(passive.qp, NdkCloseQp);
    passive.cq.close();
    close!(passive.pd, NdkClosePd);
    active.close();
    assert_eq!(b.provider.open_adapters(), 1);
}

//= R-CONN-19, R-CLOSE-14, R-OPEN-24
#[test]
fn adapter_of_the_queue_pair_stays_until_the_connector_is_closed() {
    let (a, b) = pair();
    let (listener, second) = (b.listener(445), b.open(2, 1));
    let (active, passive) = connect_across(&a, &listener, &second);
    exchange(&active, &passive);
    let qp = begin_close!(passive.qp, NdkCloseQp);
    let cq = begin_close!(passive.cq.raw, NdkCloseCq);
    let pd = begin_close!(passive.pd, NdkClosePd);
    assert_eq!([qp.status, cq.status, pd.status], [STATUS_PENDING; 3]);
    let adapter = close_on_a_thread(second);
    assert!(!qp.is_done() && !cq.is_done() && !pd.is_done());
    close!(passive.connector, NdkCloseConnector);
    for closing in [qp, cq, pd] {
        closing.wait();
    }
    adapter.join().unwrap();
    active.disconnected.wait(1);
    active.close();
    listener.close();
}

//= R-CONN-19, R-CONN-26
#[test]
fn connector_connects_with_objects_of_other_adapters() {
    let (a, b) = pair();
    let (listener, second, third) = (b.listener(445), a.open(1, 2), a.open(2, 0));
    // Queue pair of one adapter, connector of another one.
    let active = second.end(a.connector());
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let passive = b.end(listener.accept());
    establish(&active, &passive, &connecting);
    exchange(&active, &passive);
    active.close();
    passive.close();

    // With a shared endpoint of a third one.
    let endpoint = third.shared_endpoint(9000);
    let active = second.end(a.connector());
    let connecting = active.connect_with(endpoint, b.at(445));
    let passive = b.end(listener.accept());
    establish(&active, &passive, &connecting);
    exchange(&active, &passive);
    let closing = begin_close!(endpoint, NdkCloseSharedEndpoint);
    assert_eq!(closing.status, STATUS_PENDING);
    active.close();
    closing.wait();
    passive.close();
    listener.close();
    second.close();
    third.close();
}

//= R-CREATE-36, R-CLOSE-14
#[test]
fn queue_pair_uses_completion_queues_of_other_adapters() {
    let (a, _b) = pair();
    let (second, third) = (a.open(1, 2), a.open(2, 0));
    let (pd, receives, sends) = (a.pd(), second.cq(4), third.cq(4));
    let qp: *mut NDK_QP = create(|done, context, out| {
        let (receives, sends) = (receives.raw, sends.raw);
        call!(pd, NdkCreateQp, receives, sends, QP_CONTEXT, 4, 4, 1, 1, 0, done, context, out)
    })
    .expect("a queue pair");
    receives.arm(NDK_CQ_NOTIFY_ANY);
    assert_eq!(call!(qp, NdkReceive, pointer(1), core::ptr::null(), 0), STATUS_SUCCESS);
    call!(qp, NdkFlush);
    assert_eq!(receives.notified.wait(1), STATUS_SUCCESS);
    assert_eq!(receives.next().Status, STATUS_CANCELLED);
    let closing = begin_close!(receives.raw, NdkCloseCq);
    assert_eq!(closing.status, STATUS_PENDING);
    let adapter = close_on_a_thread(second);
    close!(qp, NdkCloseQp);
    closing.wait();
    adapter.join().unwrap();
    sends.close();
    close!(pd, NdkClosePd);
    third.close();
}

//= R-CREATE-36
#[test]
fn completion_queue_of_another_miniport_adapter_is_refused_in_either_place() {
    let (a, b) = pair();
    let (pd, own, foreign) = (a.pd(), a.cq(4), b.cq(4));
    for (receives, sends) in [(foreign.raw, own.raw), (own.raw, foreign.raw), (foreign.raw, foreign.raw)] {
        let created: Result<*mut NDK_QP, _> = create(|done, context, out| {
            call!(pd, NdkCreateQp, receives, sends, QP_CONTEXT, 4, 4, 1, 1, 0, done, context, out)
        });
        assert_eq!(created.err(), Some(STATUS_INVALID_PARAMETER));
    }
    close!(pd, NdkClosePd);
    own.close();
    foreign.close();
}

//= R-CREATE-53
#[test]
fn shared_receive_queue_of_another_domain_is_refused() {
    let (a, _b) = pair();
    let (cq, first, second) = (a.cq(4), a.pd(), a.pd());
    let srq: *mut NDK_SRQ = create(|done, context, out| {
        let none = null_mut();
        call!(first, NdkCreateSrq, 4, 1, 0, None, none, none.cast(), done, context, out)
    })
    .expect("a shared queue");
    let qp = |pd: *mut NDK_PD| {
        create(|done, context, out| {
            call!(pd, NdkCreateQpWithSrq, cq.raw, cq.raw, srq, null_mut(), 1, 1, 0, done, context, out)
        })
    };
    assert_eq!(qp(second).err(), Some(STATUS_INVALID_PARAMETER));
    close!(qp(first).expect("a queue pair"), NdkCloseQp);
    close!(srq, NdkCloseSrq);
    for pd in [first, second] {
        close!(pd, NdkClosePd);
    }
    cq.close();
}

/// Builds a mapping of a page, and returns its description.
fn map(adapter: &OpenAdapter, memory: &Memory) -> [u64; 3] {
    let (mut words, mut size) = ([0u64; 3], 24);
    let into = words.as_mut_ptr().cast();
    let (size, none) = (&raw mut size, null_mut());
    let status =
        call!(adapter.adapter(), NdkBuildLAM, memory.mdl(), 4096, None, none, into, size, none.cast());
    assert_eq!(status, STATUS_SUCCESS);
    words
}

fn release(adapter: &OpenAdapter, words: &mut [u64; 3]) {
    call!(adapter.adapter(), NdkReleaseLAM, words.as_mut_ptr().cast());
}

//= R-LAM-27, R-OPEN-29, R-CONSUMER-6
#[test]
fn mapping_is_used_through_every_adapter_and_released_by_its_own() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let (source, mut target) = (Memory::new(4096), Memory::new(4096));
    let second = a.open(2, 0);
    let to = target.register(passive.pd, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
    let (mut first, mut other) = (map(&a, &source), map(&second, &source));
    let write = |mapping: &[u64; 3]| {
        assert_eq!(active.write(1, &[privileged(active.pd, mapping[2], 4096)], to.remote()), STATUS_SUCCESS);
        active.cq.next().Status
    };
    assert_eq!(write(&other), STATUS_SUCCESS);
    // An adapter releases its own mappings only, whatever the description says.
    release(&second, &mut first);
    release(&a, &mut other);
    assert_eq!([write(&first), write(&other)], [STATUS_SUCCESS; 2]);
    // A description that was released once releases no later mapping.
    release(&a, &mut first);
    let mut third = map(&a, &source);
    release(&a, &mut first);
    assert_eq!(write(&third), STATUS_SUCCESS);
    release(&a, &mut third);
    // The other one ends with its adapter.
    second.close();
    assert_eq!(write(&other), STATUS_ACCESS_VIOLATION);
    assert!(target.bytes().iter().all(|byte| *byte == 0));
    to.close();
    active.close();
    passive.close();
    listener.close();
}

//= R-CONN-19, R-CREATE-36, R-MR-52
#[test]
fn objects_of_another_miniport_adapter_are_refused() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    // Connect, with and without a shared endpoint.
    let (mut here, there) = (a.active(), b.active());
    let own = core::mem::replace(&mut here.qp, there.qp);
    assert_eq!(here.connect(a.at(0), b.at(445), &[]).wait(), STATUS_INVALID_PARAMETER);
    here.qp = own;
    there.close();
    let endpoint = b.shared_endpoint(9000);
    assert_eq!(here.connect_with(endpoint, b.at(445)).wait(), STATUS_INVALID_PARAMETER);
    close!(endpoint, NdkCloseSharedEndpoint);
    // Accept. The request can still be accepted with a queue pair of the right adapter.
    let connecting = here.connect(a.at(0), b.at(445), &[]);
    let connector = listener.accept();
    let mut wrong = a.active();
    let own = core::mem::replace(&mut wrong.connector, connector);
    assert_eq!(wrong.accept(&[]).wait(), STATUS_INVALID_PARAMETER);
    wrong.connector = own;
    wrong.close();
    let right = b.end(connector);
    establish(&here, &right, &connecting);
    // Requests that name a region or a window.
    let memory = Memory::new(4096);
    let (normal, own) = (memory.register(passive.pd, 7), memory.register(active.pd, 7));
    let [mw, own_mw]: [*mut NDK_MW; 2] = [passive.pd, active.pd]
        .map(|pd| create(|done, context, out| call!(pd, NdkCreateMw, done, context, out)).expect("a window"));
    let fast: *mut NDK_MR =
        create(|done, context, out| call!(passive.pd, NdkCreateMr, 1, done, context, out)).expect("an MR");
    let initialized = request(|done, context| call!(fast, NdkInitializeFastRegisterMr, 1, 1, done, context));
    assert_eq!(initialized, STATUS_SUCCESS);
    let pages = [0x10_0000_u64];
    let flags = NDK_OP_FLAG_ALLOW_REMOTE_READ;
    let base = pointer(memory.base());
    for status in [
        call!(active.qp, NdkFastRegister, null_mut(), fast, 1, pages.as_ptr().cast(), 0, 1, base, flags),
        call!(active.qp, NdkInvalidate, null_mut(), fast.cast(), 0),
        call!(active.qp, NdkInvalidate, null_mut(), mw.cast(), 0),
        call!(active.qp, NdkBind, null_mut(), normal.mr, own_mw, base, 1, flags),
        call!(active.qp, NdkBind, null_mut(), own.mr, mw, base, 1, flags),
    ] {
        assert_eq!(status, STATUS_INVALID_PARAMETER);
    }
    // The connection is not affected, and nothing of it keeps the region.
    exchange(&active, &passive);
    normal.close();
    own.close();
    close!(mw, NdkCloseMw);
    close!(own_mw, NdkCloseMw);
    close!(fast, NdkCloseMr);
    for end in [here, right, active, passive] {
        end.close();
    }
    listener.close();
}

//= R-CONN-19, R-OPEN-23, R-CREATE-17, R-CONSUMER-1
#[test]
fn adapters_are_opened_and_closed_for_one_connection_each_by_many_threads() {
    let (a, b) = pair();
    let listener = b.listener(445);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let adapter = a.open(2, 0);
                    let active = adapter.active();
                    let connecting = active.connect(a.at(0), b.at(445), &[]);
                    assert_eq!(connecting.wait(), STATUS_SUCCESS);
                    assert_eq!(active.receive(1, &[]), STATUS_SUCCESS);
                    assert_eq!(active.complete(), STATUS_SUCCESS);
                    assert_eq!(active.cq.next().Status, STATUS_SUCCESS);
                    active.close();
                    adapter.close();
                }
            });
            scope.spawn(|| {
                for _ in 0..10 {
                    let connector = listener.accept();
                    let adapter = b.open(1, 2);
                    let passive = adapter.end(connector);
                    assert_eq!(passive.accept(&[]).wait(), STATUS_SUCCESS);
                    assert_eq!(passive.send(1, &[], 0), STATUS_SUCCESS);
                    passive.disconnected.wait(1);
                    passive.close();
                    adapter.close();
                }
            });
        }
    });
    assert_eq!([&a, &b].map(|node| node.provider.open_adapters()), [1, 1]);
    listener.close();
}

/// The thread on which the close callback of a test ran.
static CLOSED_ON: Mutex<Option<ThreadId>> = Mutex::new(None);

unsafe extern "efiapi" fn note_thread(_context: *mut c_void) {
    *CLOSED_ON.lock().unwrap() = Some(current().id());
}

/// One consumer's shared endpoint is held by a connect of another consumer that failed. The next call of the latter releases
/// it: that consumer may hold a lock that the close callback of the former takes.
//= R-IRQL-4, R-CLOSE-34
#[test]
fn close_callback_does_not_run_in_a_call_of_another_consumer() {
    let (a, b) = pair();
    let owner = a.open(2, 1);
    let endpoint = owner.shared_endpoint(7000);
    let end = a.active();
    assert_eq!(end.connect_with(endpoint, b.at(445)).wait(), STATUS_CONNECTION_REFUSED);
    // SAFETY: the endpoint is closed once.
    let status = unsafe {
        let close = (*(*endpoint).Dispatch).NdkCloseSharedEndpoint.expect("no member is null");
        close(endpoint.cast(), Some(note_thread), null_mut())
    };
    assert_eq!(status, STATUS_PENDING, "the connector holds the endpoint");
    let connecting = end.connect(a.at(0), b.at(445), &[]);
    let closed_on = loop {
        if let Some(thread) = *CLOSED_ON.lock().unwrap() {
            break thread;
        }
        sleep(Duration::from_millis(1));
    };
    assert_ne!(closed_on, current().id(), "the callback ran inside of NdkConnect");
    assert_eq!(connecting.wait(), STATUS_CONNECTION_REFUSED);
    end.close();
    owner.close();
}
