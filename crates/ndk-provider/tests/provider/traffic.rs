// SPDX-License-Identifier: MIT OR Apache-2.0

//! Data transfer over a connection: sends, writes, reads, and their completions.

use crate::support::*;
use core::ptr::null_mut;

//= R-QP-48, R-QP-49, R-QP-50, R-QP-51, R-QP-57, R-CQ-21, R-CQ-22, R-CQ-23, R-CQ-24, R-CQ-57, R-MR-6
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
fn requests_of_length_zero_complete() {
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

//= R-QP-30, R-QP-32, R-QP-33, R-IRQL-7
#[test]
fn inline_data_is_copied_during_the_call() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let mut target = Memory::new(64);
    let there = target.register(passive.pd, 1);
    assert_eq!(passive.receive(1, &[there.sge()]), STATUS_SUCCESS);
    let mut bytes = *b"copied during the call";
    // More elements than the queue pair has, each with an invalid token.
    let pieces: Vec<NDK_SGE> = bytes
        .iter_mut()
        .map(|byte| NDK_SGE {
            Anonymous: NDK_SGE_Anonymous { VirtualAddress: core::ptr::from_mut(byte).cast() },
            Length: 1,
            MemoryRegionToken: 0xdead,
        })
        .collect();
    // The frame is lost: the data is transmitted again after the call.
    a.host.cut();
    assert_eq!(active.send(2, &pieces, NDK_OP_FLAG_INLINE), STATUS_SUCCESS);
    bytes.fill(0);
    a.host.restore();
    assert_eq!(passive.cq.next().BytesTransferred, 22);
    assert_eq!(&target.bytes()[..22], b"copied during the call");
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
fn privileged_token_gives_access_to_mapped_memory() {
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
    let sge = privileged(active.pd, words[2] + u64::from(fbo), 9000);
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

//= R-QP-18, R-QP-37, R-QP-38, R-QP-61
#[test]
fn failed_post_starts_deferred_requests() {
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
fn post_with_an_invalid_list_or_object_starts_deferred_requests() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let element = NDK_SGE {
        Anonymous: NDK_SGE_Anonymous { VirtualAddress: null_mut() },
        Length: 0,
        MemoryRegionToken: 0,
    };
    let (list, qp) = ([element; 129], active.qp);
    let failing_posts: [(&dyn Fn() -> NTSTATUS, NTSTATUS); 6] = [
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
    for (context, (post, status)) in failing_posts.into_iter().enumerate() {
        let context = context as u64;
        assert_eq!(passive.receive(context, &[]), STATUS_SUCCESS);
        assert_eq!(active.send(context, &[], NDK_OP_FLAG_DEFER), STATUS_SUCCESS);
        assert_eq!(post(), status);
        let result = active.cq.next();
        assert_eq!((result.Status, result.RequestContext), (STATUS_SUCCESS, pointer(context)));
    }
    active.close();
    passive.close();
    listener.close();
}

//= R-CQ-1, R-CQ-3, R-CQ-5, R-CQ-9, R-CQ-10
#[test]
fn arm_causes_one_notification() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    for context in 0..4 {
        assert_eq!(passive.receive(context, &[]), STATUS_SUCCESS);
    }
    assert_eq!(active.send(1, &[], 0), STATUS_SUCCESS);
    passive.cq.next();
    assert_eq!(passive.cq.notified.count(), 0);
    passive.cq.arm(NDK_CQ_NOTIFY_SOLICITED);
    assert_eq!(active.send(2, &[], 0), STATUS_SUCCESS);
    passive.cq.next();
    assert_eq!(passive.cq.notified.count(), 0);
    assert_eq!(active.send(3, &[], NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT), STATUS_SUCCESS);
    assert_eq!(passive.cq.notified.wait(1), STATUS_SUCCESS);
    passive.cq.next();
    assert_eq!(active.send(4, &[], 0), STATUS_SUCCESS);
    // When all four are acknowledged, all four have arrived.
    for _ in 0..4 {
        assert_eq!(active.cq.next().Status, STATUS_SUCCESS);
    }
    //= R-CQ-20
    assert_eq!(call!(passive.cq.raw, NdkGetCqResults, null_mut(), 0), 0);
    passive.cq.arm(NDK_CQ_NOTIFY_ANY);
    assert_eq!(passive.cq.notified.wait(2), STATUS_SUCCESS);
    passive.cq.next();
    assert_eq!(passive.cq.notified.count(), 2);
    active.close();
    passive.close();
    listener.close();
}

//= R-CQ-32, R-CQ-35, R-CQ-36, R-CQ-37, R-PERF-7
#[test]
fn completion_queue_overflow_ends_the_connection() {
    let (a, b) = pair();
    let listener = b.listener(445);
    let active = a.active();
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let small = b.cq(2);
    let pd = b.pd();
    let qp = qp(pd, &small);
    let passive =
        End { cq: small, pd, qp, connector: listener.accept(), disconnected: CallbackRecord::new() };
    establish(&active, &passive, &connecting);
    for context in 0..3 {
        assert_eq!(passive.receive(context, &[]), STATUS_SUCCESS);
    }
    for context in 0..3 {
        assert_eq!(active.send(context, &[], 0), STATUS_SUCCESS);
    }
    passive.disconnected.wait(1);
    active.disconnected.wait(1);
    passive.cq.arm(NDK_CQ_NOTIFY_ERRORS);
    assert_eq!(passive.cq.notified.wait(1), STATUS_BUFFER_OVERFLOW);
    assert_eq!(
        [passive.cq.next().RequestContext, passive.cq.next().RequestContext],
        [pointer(0), pointer(1)]
    );
    assert!(passive.cq.poll().is_none());
    assert_eq!(b.provider.performance_counters().CQError, 1);
    active.close();
    passive.close();
    listener.close();
}

//= R-SRQ-1, R-SRQ-2, R-SRQ-3, R-SRQ-6, R-SRQ-7, R-SRQ-8, R-SRQ-14, R-SRQ-22, R-QP-84, R-CREATE-40
#[test]
fn shared_receive_queue_supplies_receives_and_notifies_at_its_threshold() {
    let (a, b) = pair();
    let listener = b.listener(445);
    let active = a.active();
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let (cq, pd, low) = (b.cq(16), b.pd(), CallbackRecord::new());
    let srq: *mut NDK_SRQ = create(|done, context, out| {
        call!(pd, NdkCreateSrq, 8, 2, 2, Some(on_cq), low.context(), null_mut(), done, context, out)
    })
    .expect("a shared queue");
    let qp: *mut NDK_QP = create(|done, context, out| {
        call!(pd, NdkCreateQpWithSrq, cq.raw, cq.raw, srq, QP_CONTEXT, 4, 1, 0, done, context, out)
    })
    .expect("a queue pair");
    let passive = End { cq, pd, qp, connector: listener.accept(), disconnected: CallbackRecord::new() };
    assert_eq!(passive.receive(1, &[]), STATUS_INVALID_DEVICE_REQUEST);
    for context in 10..12 {
        assert_eq!(call!(srq, NdkSrqReceive, pointer(context), core::ptr::null(), 0), STATUS_SUCCESS);
    }
    establish(&active, &passive, &connecting);
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
