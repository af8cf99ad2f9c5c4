// SPDX-License-Identifier: MIT OR Apache-2.0

//! Faults of sends, receives and RDMA requests.

use super::*;
use Function as F;
use ndk_provider::Mistake as M;

pub static ROWS: &[Fault] = &[
    // Requests.
    //= R-QP-4
    row(
        "a QP that is not connected",
        is_initiator,
        "state",
        Status(&[STATUS_CONNECTION_INVALID]),
        Some(M::NotConnected),
        |a, w| a.object = w.plain_qp.cast(),
    ),
    //= R-QP-70
    row(
        "a QP that was flushed",
        is_initiator,
        "state",
        Status(&[STATUS_CONNECTION_INVALID]),
        None,
        |a, w| {
            a.object = w.used_qp.cast();
        },
    ),
    //= R-QP-18
    row(
        "a full queue",
        |f| is_initiator(f) || f == F::Receive,
        "state",
        Status(&[STATUS_NO_MORE_ENTRIES]),
        Some(M::QueueFull),
        |a, w| a.object = w.zero.qp.cast(),
    ),
    //= R-SRQ-5
    row(
        "a full SRQ",
        |f| f == F::SrqReceive,
        "state",
        Status(&[STATUS_NO_MORE_ENTRIES]),
        Some(M::QueueFull),
        |a, w| a.object = w.full_srq.cast(),
    ),
    //= R-QP-53
    row(
        "a connection without reads",
        |f| f == F::Read,
        "state",
        Status(&[STATUS_INVALID_DEVICE_REQUEST]),
        Some(M::RegionKind),
        |a, w| a.object = w.mute.qp.cast(),
    ),
    //= R-QP-84
    row(
        "a QP with an SRQ",
        |f| f == F::Receive,
        "state",
        Status(&[STATUS_INVALID_DEVICE_REQUEST]),
        Some(M::ReceiveWithSrq),
        |a, w| a.object = w.srq_qp.cast(),
    ),
    //= R-QP-23
    row("undefined flags", is_data, "flags", INVALID, Some(M::RequestArguments), |a, w| {
        // The data of an inline request would be read.
        a.flags = w.random.one_of(&[8, 0x10, 0x20, 0x30, 0x80, 0x400, 1 << 31, !NDK_OP_FLAG_INLINE]);
    }),
    //= R-QP-23
    row("a solicited RDMA request", is_remote, "flags", INVALID, Some(M::RequestArguments), |a, _| {
        a.flags = NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT;
    }),
    //= R-QP-34
    alone(row(
        "an inline read",
        |f| f == F::Read,
        "flags",
        INVALID,
        Some(M::RequestArguments),
        |a, w| {
            a.flags = NDK_OP_FLAG_INLINE;
            list(a, vec![]);
            let _ = w;
        },
    )),
    //= R-QP-23, R-QP-34
    row("undefined flags of a registration", is_local, "flags", INVALID, Some(M::Registration), |a, w| {
        a.flags |= w.random.one_of(&[NDK_OP_FLAG_INLINE, 4, 0x20, 0x400, 1 << 31]);
    }),
    //= R-QP-16, R-SRQ-5
    row(
        "more elements than the queue allows",
        |f| has_list(f) && f != F::Read,
        "list",
        Status(&[STATUS_DATA_OVERRUN]),
        Some(M::TooManySges),
        |a, w| {
            let count = w.random.one_of(&[5, 32, 33, 64]);
            list(a, vec![w.element(); count]);
        },
    ),
    //= R-QP-17
    row(
        "more elements than a read may have",
        |f| f == F::Read,
        "list",
        Status(&[STATUS_DATA_OVERRUN]),
        Some(M::TooManySges),
        |a, w| {
            let count = w.random.one_of(&[33, 64]);
            list(a, vec![w.element(); count]);
        },
    ),
    row("no list with a count", has_list, "list", INVALID, Some(M::RequestArguments), |a, w| {
        (a.list, a.count) = (None, w.random.one_of(&[1, 4]));
    }),
    //= R-QP-19, R-SRQ-5
    row(
        "more bytes than a request may have",
        has_list,
        "list",
        Status(&[STATUS_BUFFER_OVERFLOW]),
        Some(M::TooLong),
        |a, w| {
            let length = w.random.one_of(&[(1 << 30) + 1, 1 << 31, u32::MAX]);
            // The sum of two exceeds 32 bits, and that of four does not become small.
            let count = w.random.one_of(&[1, 2, 4]);
            list(a, vec![NDK_SGE { Length: length, ..w.element() }; count]);
        },
    ),
    //= R-QP-33
    alone(row(
        "more inline data than the queue pair allows",
        |f| is_data(f) && f != F::Read,
        "list",
        Status(&[STATUS_BUFFER_OVERFLOW]),
        Some(M::TooLong),
        |a, w| {
            static DATA: [u8; 300] = [0; 300];
            let length = w.random.one_of(&[65, 128, 129, 300]);
            let place = NDK_SGE_Anonymous { VirtualAddress: DATA.as_ptr().cast_mut().cast() };
            list(a, vec![NDK_SGE { Anonymous: place, Length: length, MemoryRegionToken: 0 }]);
            a.flags = NDK_OP_FLAG_INLINE;
        },
    )),
    //= R-QP-43, R-QP-44
    accepted(
        row("an unknown local token", is_data, "list", Success, Some(M::UnknownToken), |a, w| {
            let (valid, forged) = (w.element().MemoryRegionToken, w.random.next() as u32 | 1 << 31);
            let of_pd = call!(w.second.mr, NdkGetLocalTokenFromMr);
            let chosen =
                w.random.one_of(&[0, w.stale, valid ^ 1, valid.wrapping_add(256), forged, u32::MAX, of_pd]);
            token(a, w, chosen);
        }),
        VIOLATION,
    ),
    //= R-QP-43
    accepted(
        row("an element outside its region", is_data, "list", Success, Some(M::UnknownToken), |a, w| {
            let base = w.registered.remote().0;
            // The first bytes of the long one are those that the peer has.
            let (long, end) = ((base + 1024, 8192), base + 8185);
            let cases = [(base - 1, 8), (end, 8), long, (0, 8), (u64::MAX, 2), (u64::MAX - 7, 8)];
            let (address, length) = w.random.one_of(&cases);
            element(a, w, address, length);
        }),
        VIOLATION,
    ),
    //= R-QP-43, R-MR-57
    accepted(
        row(
            "a logical address without a mapping",
            is_data,
            "list",
            Success,
            Some(M::UnknownToken),
            |a, w| {
                let address = w.random.one_of(&[0, 77, u64::MAX - 7, w.mapped.pages()[0] + 8190]);
                list(a, vec![privileged(w.pd, address, 8)]);
            },
        ),
        VIOLATION,
    ),
    //= R-QP-45
    accepted(
        row(
            "a read into memory without the right",
            |f| f == F::Read,
            "list",
            Success,
            Some(M::UnknownToken),
            |a, w| {
                list(a, vec![w.readonly.part(1024, 8)]);
            },
        ),
        VIOLATION,
    ),
    //= R-QP-43
    row(
        "an unknown token of a receive",
        |f| matches!(f, F::Receive | F::SrqReceive),
        "list",
        Success,
        Some(M::UnknownToken),
        |a, w| {
            let chosen = w.random.one_of(&[0, w.stale, w.readonly.token(), u32::MAX]);
            token(a, w, chosen);
        },
    ),
    //= R-QP-55, R-QP-56, R-MR-16
    accepted(
        row("a remote token that gives no access", is_remote, "remote", Success, None, |a, w| {
            let (valid, forged) = (a.remote.1, w.random.next() as u32 | 1 << 31);
            //= R-MR-53
            let privileged = roce::PRIVILEGED_KEY;
            let (stale, readonly) = (w.peer_stale, w.peer_readonly.token());
            a.remote.1 = w.random.one_of(&[
                0,
                privileged,
                stale,
                readonly,
                valid ^ 1,
                valid.wrapping_add(256),
                forged,
            ]);
        }),
        VIOLATION,
    ),
    //= R-QP-55, R-QP-56, R-QP-57
    accepted(
        row("a remote address outside the region", is_remote, "remote", Success, None, |a, w| {
            let base = w.peer_registered.remote().0;
            a.remote.0 = w.random.one_of(&[base - 1, base + 8185, base + 8192, 0, u64::MAX, u64::MAX - 7]);
        }),
        VIOLATION,
    ),
    //= R-QP-78, R-QP-79, R-MR-50
    accepted(
        row(
            "a token that the peer cannot invalidate",
            |f| f == F::SendAndInvalidate,
            "remote",
            Success,
            None,
            |a, w| {
                let forged = w.random.next() as u32 | 1 << 31;
                a.remote.1 = w.random.one_of(&[0, w.peer_stale, w.peer_registered.token(), forged, u32::MAX]);
            },
        ),
        &[STATUS_ACCESS_VIOLATION, STATUS_REMOTE_RESOURCES],
    ),
];
