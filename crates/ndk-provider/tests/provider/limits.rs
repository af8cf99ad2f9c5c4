// SPDX-License-Identifier: MIT OR Apache-2.0

//! The limits and flags of `NDK_ADAPTER_INFO`: each is kept, and no call contradicts them.

use crate::support::*;
use core::ptr::{null, null_mut};
use ndk_abi::ndk::*;
use ndk_abi::nt::*;

/// Returns what `NdkQueryAdapterInfo` writes, with its padding.
fn info_words(adapter: &OpenAdapter) -> [u64; 13] {
    let (mut words, mut size) = ([u64::MAX; 13], 104);
    let status = call!(adapter.adapter(), NdkQueryAdapterInfo, words.as_mut_ptr().cast(), &raw mut size);
    assert_eq!(status, STATUS_SUCCESS);
    words
}

//= R-INFO-1, R-INFO-9, R-INFO-39
#[test]
fn info_is_returned_inline_and_stays_the_same() {
    let (a, b) = pending_pair();
    let before = info_words(&a);
    let (active, passive, listener) = connect(&a, &b);
    assert_eq!(info_words(&a), before);
    a.provider.set_enabled(false);
    assert_eq!(info_words(&a), before);
    a.provider.set_enabled(true);
    active.close();
    passive.close();
    listener.close();
}

/// Returns an end whose queue pair has one element per request, or the given number.
fn end_with(node: &Node, connector: *mut NDK_CONNECTOR, sges: u32, inline: u32) -> End {
    let (cq, pd) = (node.cq(64), node.pd());
    let qp = create(|done, context, out| {
        call!(pd, NdkCreateQp, cq.raw, cq.raw, QP_CONTEXT, 16, 16, sges, sges, inline, done, context, out)
    })
    .expect("a queue pair");
    End { cq, pd, qp, connector, disconnected: CallbackRecord::new() }
}

//= R-INFO-14, R-CREATE-38
#[test]
fn reads_have_a_limit_of_elements_of_their_own() {
    let (a, b) = pair();
    let listener = b.listener(445);
    let active = end_with(&a, a.connector(), 1, 0);
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let passive = b.end(listener.accept());
    establish(&active, &passive, &connecting);
    let limit = a.info().MaxReadRequestSge as usize;
    let (mut sink, mut source) = (Memory::new(4096), Memory::new(4096));
    source.bytes().fill(3);
    let into = sink.register(active.pd, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
    let from = source.register(passive.pd, NDK_MR_FLAG_ALLOW_REMOTE_READ);
    let elements: Vec<_> = (0..=limit).map(|index| into.part(index * 8, 8)).collect();
    assert_eq!(active.read(1, &elements, from.remote()), STATUS_DATA_OVERRUN);
    assert_eq!(active.send(2, &elements[..2], 0), STATUS_DATA_OVERRUN);
    assert_eq!(active.read(3, &elements[..limit], from.remote()), STATUS_SUCCESS);
    assert_eq!(active.cq.next().Status, STATUS_SUCCESS);
    assert!(sink.bytes()[..limit * 8].iter().all(|byte| *byte == 3));
    into.close();
    from.close();
    active.close();
    passive.close();
    listener.close();
}

/// The elements name no memory: a request within the limit is accepted, and fails when it is executed.
//= R-INFO-16, R-INFO-33
#[test]
fn length_of_a_request_is_limited_and_no_threshold_refuses_one() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let info = a.info();
    let element = |length| NDK_SGE {
        Anonymous: NDK_SGE_Anonymous { VirtualAddress: pointer(0x1000) },
        Length: length,
        MemoryRegionToken: 0x1234_5678,
    };
    let (half, odd) = (element(info.MaxTransferLength / 2), element(info.MaxTransferLength / 2 + 1));
    let remote = (0, 1);
    for refused in [
        active.receive(1, &[half, odd]),
        active.send(2, &[half, odd], 0),
        active.write(3, &[half, odd], remote),
        active.read(4, &[half, odd], remote),
        active.send(5, &[element(u32::MAX), element(u32::MAX)], 0),
    ] {
        assert_eq!(refused, STATUS_BUFFER_OVERFLOW);
    }
    assert_eq!(active.receive(6, &[half, half]), STATUS_SUCCESS);
    // A send above the threshold, a write below it.
    let (mut source, mut target) = (Memory::new(0x8000), Memory::new(0x8000));
    assert!(info.LargeRequestThreshold < 0x8000);
    source.bytes().fill(1);
    let from = source.register(active.pd, 0);
    let to = target.register(passive.pd, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
    assert_eq!(passive.receive(7, &[to.part(0, 0x7000)]), STATUS_SUCCESS);
    assert_eq!(active.send(8, &[from.part(0, 0x7000)], 0), STATUS_SUCCESS);
    assert_eq!(active.cq.next().Status, STATUS_SUCCESS);
    let (address, token) = to.remote();
    assert_eq!(active.write(9, &[from.part(0, 1)], (address + 0x7fff, token)), STATUS_SUCCESS);
    assert_eq!(active.cq.next().Status, STATUS_SUCCESS);
    assert_eq!((target.bytes()[0x6fff], target.bytes()[0x7000], target.bytes()[0x7fff]), (1, 0, 1));
    // The largest send of all, which is accepted.
    assert_eq!(active.send(10, &[half, half], 0), STATUS_SUCCESS);
    assert_eq!(active.cq.next().Status, STATUS_ACCESS_VIOLATION);
    from.close();
    to.close();
    active.close();
    passive.close();
    listener.close();
}

//= R-INFO-17, R-INFO-37
#[test]
fn read_limits_are_those_of_each_queue_pair() {
    let (a, b) = pair();
    let (info, listener) = (a.info(), b.listener(445));
    let ends: Vec<_> = (0..40)
        .map(|_| {
            let active = a.active();
            let record = CallbackRecord::new();
            let ((source, length), (target, _)) = (socket_address(a.at(0)), socket_address(b.at(445)));
            let (source, target) = ((&raw const source).cast(), (&raw const target).cast());
            let (connector, qp) = (active.connector, active.qp);
            let (inbound, outbound) = (info.MaxInboundReadLimit, info.MaxOutboundReadLimit);
            let (done, context) = (Some(on_request as NDK_FN_REQUEST_COMPLETION), record.context());
            let none = null();
            let status = call!(
                connector, NdkConnect, qp, source, length, target, length, inbound, outbound, none, 0, done,
                context
            );
            assert_eq!(status, STATUS_PENDING);
            let passive = b.end(listener.accept());
            let (none, event) = (null_mut(), passive.disconnected.context());
            let accepted = CallbackRecord::new();
            let status = call!(
                passive.connector,
                NdkAccept,
                passive.qp,
                inbound,
                outbound,
                none,
                0,
                Some(on_disconnect),
                event,
                Some(on_request),
                accepted.context()
            );
            assert_eq!(status, STATUS_PENDING);
            assert_eq!(record.wait(1), STATUS_SUCCESS);
            assert_eq!(active.complete(), STATUS_SUCCESS);
            assert_eq!(accepted.wait(1), STATUS_SUCCESS);
            (active, passive)
        })
        .collect();
    for end in ends.iter().flat_map(|(active, passive)| [active, passive]) {
        let (mut inbound, mut outbound) = (0, 0);
        let (first, second, none) = (&raw mut inbound, &raw mut outbound, null_mut());
        assert_eq!(
            call!(end.connector, NdkGetConnectionData, first, second, none, null_mut()),
            STATUS_SUCCESS
        );
        assert_eq!((inbound, outbound), (info.MaxInboundReadLimit, info.MaxOutboundReadLimit));
    }
    for (active, passive) in ends {
        active.close();
        passive.close();
    }
    listener.close();
}

/// Sockets as the sample makes them: one completion queue per direction, each as deep as the queue allows.
//= R-INFO-20, R-INFO-19, R-INFO-18
#[test]
fn sixty_four_sockets_of_the_largest_size_can_be_created() {
    let (a, _b) = pair();
    let info = a.info();
    let depth = |queue: u32| queue.min(info.MaxCqDepth).min(65535);
    let sockets: Vec<_> = (0..64)
        .map(|_| {
            let (receive, initiator) =
                (a.cq(depth(info.MaxReceiveQueueDepth)), a.cq(depth(info.MaxInitiatorQueueDepth)));
            let pd = a.pd();
            let qp: *mut NDK_QP = create(|done, context, out| {
                call!(
                    pd,
                    NdkCreateQp,
                    receive.raw,
                    initiator.raw,
                    null_mut(),
                    depth(info.MaxReceiveQueueDepth),
                    depth(info.MaxInitiatorQueueDepth),
                    info.MaxReceiveRequestSge,
                    info.MaxInitiatorRequestSge,
                    0,
                    done,
                    context,
                    out
                )
            })
            .expect("a queue pair");
            (receive, initiator, pd, qp)
        })
        .collect();
    for (receive, initiator, pd, qp) in sockets {
        close!(qp, NdkCloseQp);
        close!(pd, NdkClosePd);
        receive.close();
        initiator.close();
    }
}

//= R-CREATE-29
#[test]
fn shared_queues_of_the_limits_are_created_and_no_larger_ones() {
    let (a, _b) = pair();
    let info = a.info();
    let pd = a.pd();
    let created = |depth: u32, sges: u32| {
        let created: Result<*mut NDK_SRQ, NTSTATUS> = create(|done, context, out| {
            call!(pd, NdkCreateSrq, depth, sges, 0, None, null_mut(), null_mut(), done, context, out)
        });
        created.map(|srq| close!(srq, NdkCloseSrq))
    };
    let (depth, sges) = (info.MaxSrqDepth, info.MaxReceiveRequestSge);
    assert_eq!([created(1, sges), created(depth, 1)], [Ok(()); 2]);
    let refused = [created(0, 1), created(depth + 1, 1), created(u32::MAX, 1), created(1, sges + 1)];
    assert_eq!(refused, [Err(STATUS_INVALID_PARAMETER); 4]);
    close!(pd, NdkClosePd);
}

//= R-INFO-31, R-CONN-15
#[test]
fn private_data_of_the_largest_size_arrives() {
    let (a, b) = pair();
    let info = a.info();
    let data: Vec<u8> = (1..=200).collect();
    let (request, reply) = (&data[..info.MaxCallerData as usize], &data[..info.MaxCalleeData as usize]);
    let listener = b.listener(445);
    let active = a.active();
    let too_long = active.connect(a.at(0), b.at(445), &data[..=request.len()]);
    assert_eq!(too_long.wait(), STATUS_INVALID_BUFFER_SIZE);
    let connecting = active.connect(a.at(0), b.at(445), request);
    let passive = b.end(listener.accept());
    assert_eq!(passive.private_data().unwrap(), request);
    assert_eq!(passive.accept(&data[..=reply.len()]).wait(), STATUS_INVALID_BUFFER_SIZE);
    let accepting = passive.accept(reply);
    assert_eq!(connecting.wait(), STATUS_SUCCESS);
    assert_eq!(active.private_data().unwrap()[..reply.len()], *reply);
    assert_eq!(active.complete(), STATUS_SUCCESS);
    assert_eq!(accepting.wait(), STATUS_SUCCESS);
    active.close();
    passive.close();
    listener.close();
}

//= R-INFO-26, R-INFO-25, R-CQ-42, R-CQ-44
#[test]
fn flags_of_completion_queues_agree_with_the_calls() {
    let (a, _b) = pair();
    let (flags, cq) = (a.info().AdapterFlags, a.cq(16));
    let resized = request(|done, context| call!(cq.raw, NdkResizeCq, 32, done, context));
    let moderated = call!(cq.raw, NdkControlCqInterruptModeration, 20, 4);
    for (flag, status) in [
        (NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED, resized),
        (NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED, moderated),
    ] {
        let expected = if flags & flag == 0 { STATUS_NOT_SUPPORTED } else { STATUS_SUCCESS };
        assert_eq!(status, expected, "flag {flag:#x}");
    }
    cq.close();
}

/// Whether the token of the sink is still valid after the read is seen by an invalidation of it.
//= R-INFO-27, R-INFO-24
#[test]
fn flag_of_local_invalidation_agrees_with_reads() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let (mut sink, mut source) = (Memory::new(4096), Memory::new(4096));
    source.bytes().fill(9);
    let from = source.register(passive.pd, NDK_MR_FLAG_ALLOW_REMOTE_READ);
    let mapped = Mapped::new(&a, &sink, 4096);
    // The privileged token gives access to a sink.
    let element = privileged(active.pd, mapped.pages()[0], 4096);
    assert_eq!(active.read(1, &[element], from.remote()), STATUS_SUCCESS);
    assert_eq!(active.cq.next().Status, STATUS_SUCCESS);
    assert!(sink.bytes().iter().all(|byte| *byte == 9));
    let mr = fast_mr(active.pd);
    assert_eq!(initialize(mr, 1, 0), STATUS_SUCCESS);
    let (base, array) = (pointer(0x10_0000), mapped.pages().as_ptr().cast());
    let flags = NDK_OP_FLAG_ALLOW_LOCAL_WRITE;
    let registered = call!(active.qp, NdkFastRegister, pointer(2), mr, 1, array, 0, 4096, base, flags);
    assert_eq!(registered, STATUS_SUCCESS);
    assert_eq!(active.cq.next().Status, STATUS_SUCCESS);
    let element = NDK_SGE {
        Anonymous: NDK_SGE_Anonymous { VirtualAddress: base },
        Length: 4096,
        MemoryRegionToken: call!(mr, NdkGetLocalTokenFromMr),
    };
    let (address, token) = from.remote();
    let read = call!(
        active.qp,
        NdkRead,
        pointer(3),
        &raw const element,
        1,
        address,
        token,
        NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE
    );
    assert_eq!(read, STATUS_SUCCESS);
    assert_eq!(active.cq.next().Status, STATUS_SUCCESS);
    assert_eq!(call!(active.qp, NdkInvalidate, pointer(4), mr.cast(), 0), STATUS_SUCCESS);
    let is_offered = a.info().AdapterFlags & NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED != 0;
    let expected = if is_offered { STATUS_INVALID_DEVICE_REQUEST } else { STATUS_SUCCESS };
    assert_eq!(active.cq.next().Status, expected);
    close!(mr, NdkCloseMr);
    drop(mapped);
    from.close();
    active.close();
    passive.close();
    listener.close();
}

//= R-INFO-32
#[test]
fn inline_data_is_accepted_up_to_its_limit() {
    let (a, _b) = pair();
    let limit = a.info().MaxInlineDataSize;
    let (cq, pd) = (a.cq(16), a.pd());
    let make = |inline| {
        create(|done, context, out| {
            call!(pd, NdkCreateQp, cq.raw, cq.raw, null_mut(), 1, 1, 1, 1, inline, done, context, out)
        })
    };
    for inline in [0, limit] {
        let qp: *mut NDK_QP = make(inline).expect("a queue pair");
        close!(qp, NdkCloseQp);
    }
    assert_eq!(make(limit + 1).err(), Some(STATUS_INVALID_PARAMETER));
    close!(pd, NdkClosePd);
    cq.close();
}
