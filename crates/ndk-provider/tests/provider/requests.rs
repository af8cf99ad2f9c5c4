// SPDX-License-Identifier: MIT OR Apache-2.0

//! Work requests: what a post returns, limits, flush, shared receive queues, counters.

use crate::support::*;
use core::mem::{MaybeUninit, offset_of};
use core::ptr::{null, null_mut};
use ndk_abi::ndk::*;
use ndk_abi::nt::*;
use std::collections::BTreeSet;
use std::time::Duration;

/// An element that is refused, or not looked at, before its token matters.
const fn element(length: u32) -> NDK_SGE {
    NDK_SGE {
        Anonymous: NDK_SGE_Anonymous { VirtualAddress: null_mut() },
        Length: length,
        MemoryRegionToken: 0x1234_5600,
    }
}

//= R-QP-1, R-QP-13
#[test]
fn posts_never_pend_and_copy_their_elements() {
    let (a, b) = pending_pair();
    let (active, passive, listener) = connect(&a, &b);
    let (mut source, mut target) = (Memory::new(4096), Memory::new(4096));
    source.bytes().fill(7);
    let here = source.register(active.pd, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
    let there = target.register(passive.pd, NDK_MR_FLAG_ALLOW_REMOTE_WRITE | NDK_MR_FLAG_ALLOW_REMOTE_READ);
    let mut list = [there.part(0, 64)];
    assert_eq!(passive.receive(1, &list), STATUS_SUCCESS);
    list[0] = element(1);
    core::hint::black_box(&list);
    let (to, mut list) = (there.remote(), [here.part(0, 64)]);
    // All wait for the first one's acknowledgment: the elements are read after the array has changed.
    let held = b.hold_callbacks();
    for post in 0..3 {
        list[0] = here.part(64 * post, 64);
        let status = match post {
            0 => active.send(10, &list, 0),
            1 => active.write(11, &list, (to.0 + 64, to.1)),
            _ => active.read(12, &list, to),
        };
        assert_eq!(status, STATUS_SUCCESS);
        list[0] = element(1);
        core::hint::black_box(&list);
    }
    drop(held);
    for context in 10..13 {
        let result = active.cq.next();
        assert_eq!((result.Status, result.RequestContext), (STATUS_SUCCESS, pointer(context)));
    }
    assert_eq!(passive.cq.next().Status, STATUS_SUCCESS);
    assert_eq!(target.bytes()[..128], [7; 128]);
    assert_eq!(target.bytes()[128..], [0; 4096 - 128]);
    here.close();
    there.close();
    active.close();
    passive.close();
    listener.close();
}

//= R-QP-17, R-QP-19
#[test]
fn requests_beyond_the_limits_fail_inline() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let info = a.info();
    let many = vec![element(1); info.MaxReadRequestSge as usize + 1];
    assert_eq!(active.read(1, &many, (0, 0)), STATUS_DATA_OVERRUN);
    let long = [element(info.MaxTransferLength), element(1)];
    assert_eq!(active.send(1, &long, 0), STATUS_BUFFER_OVERFLOW);
    assert_eq!(active.write(1, &long, (0, 0)), STATUS_BUFFER_OVERFLOW);
    assert_eq!(active.read(1, &long, (0, 0)), STATUS_BUFFER_OVERFLOW);
    assert_eq!(active.receive(1, &long), STATUS_BUFFER_OVERFLOW);
    // At the limit a request is accepted; that its token is none is found later.
    assert_eq!(active.read(2, &many[1..], (0, 0)), STATUS_SUCCESS);
    let result = active.cq.next();
    assert_eq!(result.RequestContext, pointer(2), "the refused ones do not complete");
    assert_ne!(result.Status, STATUS_SUCCESS);
    assert!(active.cq.poll().is_none());
    active.close();
    passive.close();
    listener.close();
}

//= R-QP-64, R-QP-65, R-QP-66
#[test]
fn flushed_requests_come_back_before_anything_is_closed() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    for context in 0..16 {
        assert_eq!(passive.receive(context, &[]), STATUS_SUCCESS);
    }
    passive.cq.arm(NDK_CQ_NOTIFY_ANY);
    call!(passive.qp, NdkFlush);
    assert_eq!(passive.cq.notified.wait(1), STATUS_SUCCESS);
    for context in 0..16 {
        let result = passive.cq.next();
        assert_eq!((result.Status, result.RequestContext), (STATUS_CANCELLED, pointer(context)));
    }
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!((passive.cq.notified.count(), passive.cq.poll().is_none()), (1, true));
    // The same by closing the connector, without a flush.
    for context in 0..16 {
        assert_eq!(active.receive(context, &[]), STATUS_SUCCESS);
    }
    close!(active.connector, NdkCloseConnector);
    for context in 0..16 {
        assert_eq!(active.cq.next().RequestContext, pointer(context));
    }
    close!(active.qp, NdkCloseQp);
    active.cq.close();
    close!(active.pd, NdkClosePd);
    passive.close();
    listener.close();
}

//= R-QP-80
#[test]
fn send_and_invalidate_is_there_from_version_1_2_on() {
    let (a, _b) = pair();
    for (major, minor) in [(1, 2), (2, 0), (2, 1)] {
        let opened = a.open(major, minor);
        let (cq, pd) = (opened.cq(8), opened.pd());
        let qp = qp(pd, &cq);
        // SAFETY: the queue pair is closed below; its table is static.
        assert!(unsafe { (*(*qp).Dispatch).NdkSendAndInvalidate }.is_some());
        let status = call!(qp, NdkSendAndInvalidate, null_mut(), null(), 0, 0, 0);
        assert_eq!(status, STATUS_CONNECTION_INVALID, "not connected");
        close!(qp, NdkCloseQp);
        cq.close();
        close!(pd, NdkClosePd);
        opened.close();
    }
}

//= R-CQ-29, R-CQ-34
#[test]
fn results_have_no_private_code_at_any_version() {
    let (a, _b) = pair();
    assert_eq!(offset_of!(NDK_RESULT_EX, ProviderErrorCode), 28);
    for (major, minor) in [(1, 2), (2, 0), (2, 1)] {
        let opened = a.open(major, minor);
        let (cq, pd) = (opened.cq(8), opened.pd());
        let qp = qp(pd, &cq);
        cq.arm(NDK_CQ_NOTIFY_ANY);
        assert_eq!(call!(qp, NdkReceive, null_mut(), null(), 0), STATUS_SUCCESS);
        call!(qp, NdkFlush);
        assert_eq!(cq.notified.wait(1), STATUS_SUCCESS);
        let mut result = MaybeUninit::<NDK_RESULT_EX>::uninit();
        // SAFETY: the bytes of the result.
        unsafe { result.as_mut_ptr().cast::<[u8; 40]>().write([0xee; 40]) };
        assert_eq!(call!(cq.raw, NdkGetCqResultsEx, result.as_mut_ptr(), 1), 1);
        // SAFETY: written above and by the call.
        let code = unsafe { result.as_ptr().cast::<u8>().add(28).cast::<[u8; 4]>().read() };
        assert_eq!(code, [0; 4]);
        close!(qp, NdkCloseQp);
        cq.close();
        close!(pd, NdkClosePd);
        opened.close();
    }
}

/// An SRQ of depth 8 with `threshold`, and a connection whose passive end uses it. Five receives are posted.
struct SharedReceives {
    srq: *mut NDK_SRQ,
    active: End,
    passive: End,
    listener: Listener,
}

impl SharedReceives {
    fn new((a, b): (&Node, &Node), threshold: u32, low: Option<&'static CallbackRecord>) -> Self {
        let listener = b.listener(445);
        let active = a.active();
        let connecting = active.connect(a.at(0), b.at(445), &[]);
        let (cq, pd) = (b.cq(16), b.pd());
        let notification = low.map(|_| on_cq as NDK_FN_SRQ_NOTIFICATION_CALLBACK);
        let context = low.map_or(null_mut(), CallbackRecord::context);
        // Of a group that does not exist.
        let mut affinity = GROUP_AFFINITY { Mask: 1 << 63, Group: 77, Reserved: [0; 3] };
        let affinity = &raw mut affinity;
        let srq: *mut NDK_SRQ = create(|done, request, out| {
            call!(pd, NdkCreateSrq, 8, 1, threshold, notification, context, affinity, done, request, out)
        })
        .expect("a shared queue");
        let qp: *mut NDK_QP = create(|done, context, out| {
            call!(pd, NdkCreateQpWithSrq, cq.raw, cq.raw, srq, QP_CONTEXT, 4, 1, 0, done, context, out)
        })
        .expect("a queue pair");
        for context in 0..5 {
            assert_eq!(call!(srq, NdkSrqReceive, pointer(context), null(), 0), STATUS_SUCCESS);
        }
        let passive = End { cq, pd, qp, connector: listener.accept(), disconnected: CallbackRecord::new() };
        establish(&active, &passive, &connecting);
        Self { srq, active, passive, listener }
    }

    fn consume(&self, count: usize) {
        for _ in 0..count {
            assert_eq!(self.active.send(1, &[], NDK_OP_FLAG_SILENT_SUCCESS), STATUS_SUCCESS);
            assert_eq!(self.passive.cq.next().Status, STATUS_SUCCESS);
        }
    }

    fn modify(&self, depth: u32, threshold: u32) -> NTSTATUS {
        request(|done, context| call!(self.srq, NdkModifySrq, depth, threshold, done, context))
    }

    fn close(self) {
        let closing = begin_close!(self.srq, NdkCloseSrq);
        self.active.close();
        self.passive.close();
        closing.wait();
        self.listener.close();
    }
}

//= R-SRQ-15, R-SRQ-16
#[test]
fn shared_queue_notifies_only_with_a_threshold_and_a_callback() {
    let (a, b) = pair();
    let low = CallbackRecord::new();
    for (threshold, callback, expected) in [(0, true, 0), (3, false, 0), (3, true, 1)] {
        let shared = SharedReceives::new((&a, &b), threshold, callback.then_some(low));
        shared.consume(5);
        if expected != 0 {
            assert_eq!(low.wait(1), STATUS_SUCCESS);
        }
        // No notification comes after the close.
        shared.close();
        assert_eq!(low.count(), expected);
    }
}

//= R-SRQ-8
#[test]
fn shared_queue_that_is_below_its_new_threshold_notifies_at_once() {
    let (a, _b) = pair();
    let (pd, low) = (a.pd(), CallbackRecord::new());
    let srq: *mut NDK_SRQ = create(|done, request, out| {
        let (notification, none) = (Some(on_cq as NDK_FN_SRQ_NOTIFICATION_CALLBACK), null_mut());
        call!(pd, NdkCreateSrq, 8, 1, 1, notification, low.context(), none, done, request, out)
    })
    .expect("a shared queue");
    for context in 0..3 {
        assert_eq!(call!(srq, NdkSrqReceive, pointer(context), null(), 0), STATUS_SUCCESS);
    }
    assert_eq!(request(|done, context| call!(srq, NdkModifySrq, 0, 3, done, context)), STATUS_SUCCESS);
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(low.count(), 0);
    assert_eq!(request(|done, context| call!(srq, NdkModifySrq, 0, 6, done, context)), STATUS_SUCCESS);
    // No traffic has the deferred routine run.
    assert_eq!(low.wait(1), STATUS_SUCCESS);
    close!(srq, NdkCloseSrq);
    close!(pd, NdkClosePd);
}

//= R-SRQ-11
#[test]
fn shared_queue_is_not_modified_beyond_the_limit() {
    let (a, b) = pair();
    let low = CallbackRecord::new();
    let shared = SharedReceives::new((&a, &b), 0, Some(low));
    let limit = b.info().MaxSrqDepth;
    for depth in [limit + 1, u32::MAX] {
        // Nor is the threshold, which would notify at once.
        assert_eq!(shared.modify(depth, 7), STATUS_INVALID_PARAMETER);
    }
    for context in 5..8 {
        assert_eq!(call!(shared.srq, NdkSrqReceive, pointer(context), null(), 0), STATUS_SUCCESS);
    }
    assert_ne!(call!(shared.srq, NdkSrqReceive, null_mut(), null(), 0), STATUS_SUCCESS, "the depth is 8");
    assert_eq!(shared.modify(limit, 0), STATUS_SUCCESS);
    assert_eq!(call!(shared.srq, NdkSrqReceive, null_mut(), null(), 0), STATUS_SUCCESS);
    // No notification comes after the close.
    shared.close();
    assert_eq!(low.count(), 0);
}

//= R-SRQ-13
#[test]
fn a_modification_that_pends_completes_once_with_its_status() {
    let (a, b) = pending_pair();
    let shared = SharedReceives::new((&a, &b), 0, None);
    for (depth, expected) in
        [(4, STATUS_BUFFER_OVERFLOW), (u32::MAX, STATUS_INVALID_PARAMETER), (5, STATUS_SUCCESS)]
    {
        let record = CallbackRecord::new();
        let status = call!(shared.srq, NdkModifySrq, depth, 0, Some(on_request), record.context());
        assert_eq!(status, STATUS_PENDING);
        assert_eq!(record.wait(1), expected);
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(record.count(), 1);
    }
    shared.close();
}

//= R-PERF-1, R-PERF-10
#[test]
fn counters_are_where_their_numbers_say_and_the_others_are_zero() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let counters = a.provider.performance_counters();
    let at = |offset: usize| offset / 8;
    let offsets = [
        (at(offset_of!(NDIS_NDK_PERFORMANCE_COUNTERS, Connect)), 0, counters.Connect),
        (at(offset_of!(NDIS_NDK_PERFORMANCE_COUNTERS, Accept)), 1, counters.Accept),
        (at(offset_of!(NDIS_NDK_PERFORMANCE_COUNTERS, ConnectFailure)), 2, counters.ConnectFailure),
        (at(offset_of!(NDIS_NDK_PERFORMANCE_COUNTERS, ConnectionError)), 3, counters.ConnectionError),
        (at(offset_of!(NDIS_NDK_PERFORMANCE_COUNTERS, ActiveConnection)), 4, counters.ActiveConnection),
        (at(offset_of!(NDIS_NDK_PERFORMANCE_COUNTERS, CQError)), 25, counters.CQError),
        (at(offset_of!(NDIS_NDK_PERFORMANCE_COUNTERS, RDMAInOctets)), 26, counters.RDMAInOctets),
        (at(offset_of!(NDIS_NDK_PERFORMANCE_COUNTERS, RDMAOutOctets)), 27, counters.RDMAOutOctets),
        (at(offset_of!(NDIS_NDK_PERFORMANCE_COUNTERS, RDMAInFrames)), 28, counters.RDMAInFrames),
        (at(offset_of!(NDIS_NDK_PERFORMANCE_COUNTERS, RDMAOutFrames)), 29, counters.RDMAOutFrames),
    ];
    // SAFETY: thirty counters of eight bytes.
    let words: [u64; 30] = unsafe { core::mem::transmute(counters) };
    for (offset, number, value) in offsets {
        assert_eq!((offset, words[number]), (number, value));
    }
    assert_eq!(words[5..25], [0; 20]);
    assert_eq!(words[..5], [1, 0, 0, 0, 1]);
    active.close();
    passive.close();
    listener.close();
}

/// Ethernet, IPv4, UDP and BTH headers, and the ICRC.
const OVERHEAD: usize = 14 + 20 + 8 + 12 + 4;
const AETH: usize = 4;
const RETH: usize = 16;
/// A datagram of the connection manager: DETH and MAD.
const MAD: usize = OVERHEAD + 8 + 256;

/// The counts do not depend on how often a frame is sent: on a loaded machine some are retransmitted.
//= R-PERF-8, R-PERF-9, R-PERF-11
#[test]
fn octets_and_frames_are_counted_as_on_the_wire_for_every_operation() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let (source, target) = (Memory::new(4096), Memory::new(4096));
    let here = source.register(active.pd, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
    let there = target.register(passive.pd, NDK_MR_FLAG_ALLOW_REMOTE_WRITE | NDK_MR_FLAG_ALLOW_REMOTE_READ);
    let (to, list) = (there.remote(), [here.part(0, 1000)]);
    assert_eq!(passive.receive(1, &[there.sge()]), STATUS_SUCCESS);
    let (send, write, read) =
        (|| active.send(1, &list, 0), || active.write(1, &list, to), || active.read(1, &list, to));
    // One after the other, as requests that arrive together are acknowledged together.
    for post in [&send as &dyn Fn() -> NTSTATUS, &write, &read] {
        assert_eq!(post(), STATUS_SUCCESS);
        assert_eq!(active.cq.next().Status, STATUS_SUCCESS);
    }
    let requests = BTreeSet::from([MAD, OVERHEAD + 1000, OVERHEAD + RETH + 1000, OVERHEAD + RETH]);
    let responses = BTreeSet::from([MAD, OVERHEAD + AETH, OVERHEAD + AETH + 1000]);
    for (sender, receiver, lengths) in [(&a, &b, requests), (&b, &a, responses)] {
        wait("all frames are counted where they were sent and where they arrived", || {
            let [at_sender, at_receiver] =
                [sender, receiver].map(|host| host.provider.performance_counters());
            let frames = sender.host.transmitted();
            let count = (frames.len() as u64, frames.iter().sum::<usize>() as u64);
            (at_sender.RDMAOutFrames, at_sender.RDMAOutOctets) == count
                && (at_receiver.RDMAInFrames, at_receiver.RDMAInOctets) == count
        });
        assert_eq!(BTreeSet::from_iter(sender.host.transmitted()), lengths);
    }
    here.close();
    there.close();
    active.close();
    passive.close();
    listener.close();
}
