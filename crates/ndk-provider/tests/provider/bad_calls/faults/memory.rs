// SPDX-License-Identifier: MIT OR Apache-2.0

//! Faults of queues, memory regions, mappings, fast registrations and windows.

use super::*;
use Function as F;
use ndk_provider::Mistake as M;

pub static ROWS: &[Fault] = &[
    // Completion queues and shared receive queues.
    //= R-CQ-39
    row(
        "a CQ depth above its limit",
        |f| f == F::ResizeCq,
        "numbers",
        INVALID,
        Some(M::QueueSize),
        |a, w| {
            a.numbers[0] = w.random.one_of(&[16385, 1 << 31, u32::MAX]);
        },
    ),
    //= R-CQ-40
    alone(row(
        "a CQ depth below what is unread",
        |f| f == F::ResizeCq,
        "numbers",
        Status(&[STATUS_BUFFER_OVERFLOW]),
        Some(M::QueueSize),
        |a, w| {
            on_object(a, w.unread_cq.cast());
            a.numbers[0] = 1;
        },
    )),
    //= R-CQ-48
    row(
        "moderation without a limit",
        |f| f == F::ControlModeration,
        "numbers",
        Status(&[STATUS_INVALID_PARAMETER_MIX]),
        Some(M::QueueSize),
        |a, w| {
            a.numbers[0] = u32::MAX;
            a.numbers[1] = w.random.one_of(&[16385, 1 << 31, u32::MAX]);
        },
    ),
    //= R-SRQ-11
    row(
        "an SRQ depth above its limit",
        |f| f == F::ModifySrq,
        "numbers",
        INVALID,
        Some(M::QueueSize),
        |a, w| {
            a.numbers[0] = w.random.one_of(&[8193, 1 << 31, u32::MAX]);
        },
    ),
    //= R-SRQ-12
    alone(row(
        "an SRQ depth below what is posted",
        |f| f == F::ModifySrq,
        "numbers",
        Status(&[STATUS_BUFFER_OVERFLOW]),
        Some(M::QueueSize),
        |a, w| {
            on_object(a, w.full_srq.cast());
            a.numbers[0] = 1;
        },
    )),
    // Memory regions and mappings.
    //= R-MR-1
    row(
        "a chain with a gap",
        |f| f == F::RegisterMr,
        "mdl",
        INVALID,
        Some(M::Registration),
        |a, w| {
            (a.mdl, a.length) = (w.chain_with_gap(), 8193);
        },
    ),
    //= R-MR-2, R-MR-3, R-MR-4
    row(
        "a length that does not fit",
        |f| f == F::RegisterMr,
        "mdl",
        INVALID,
        Some(M::Registration),
        |a, w| {
            a.length = w.random.one_of(&[0, 8193, 0x7fff_f001, 1 << 32, usize::MAX - 4095, usize::MAX]);
        },
    ),
    row("no chain", |f| f == F::RegisterMr, "mdl", INVALID, Some(M::Registration), |a, _| a.mdl = null_mut()),
    //= R-MR-9
    row(
        "undefined rights",
        |f| f == F::RegisterMr,
        "flags",
        INVALID,
        Some(M::Registration),
        |a, w| {
            a.flags = w.random.one_of(&[16, 0x30, 1 << 31, u32::MAX]);
        },
    ),
    //= R-CREATE-42, R-CREATE-43
    row(
        "a region for fast registration",
        |f| matches!(f, F::RegisterMr | F::DeregisterMr),
        "state",
        Status(&[STATUS_INVALID_DEVICE_REQUEST]),
        Some(M::RegionKind),
        |a, w| a.object = w.fast.cast(),
    ),
    //= R-MR-19
    row(
        "a region that is registered",
        |f| f == F::RegisterMr,
        "state",
        Status(&[STATUS_INVALID_DEVICE_STATE, STATUS_INVALID_DEVICE_REQUEST]),
        Some(M::RegionState),
        |a, w| a.object = w.registered.mr.cast(),
    ),
    //= R-MR-18
    row(
        "a region that is not registered",
        |f| f == F::DeregisterMr,
        "state",
        Status(&[STATUS_INVALID_DEVICE_STATE, STATUS_INVALID_DEVICE_REQUEST]),
        Some(M::RegionState),
        |_, w| w.deregister(),
    ),
    //= R-MR-20
    alone(row(
        "a region with a window bound",
        |f| f == F::DeregisterMr,
        "state",
        Status(&[STATUS_DEVICE_BUSY]),
        Some(M::RegionState),
        |a, w| {
            w.bind();
            a.object = w.registered.mr.cast();
        },
    )),
    //= R-MR-24, R-CREATE-43
    row(
        "a normal region",
        |f| f == F::InitializeFast,
        "state",
        Status(&[STATUS_INVALID_DEVICE_REQUEST]),
        Some(M::RegionKind),
        |a, w| a.object = w.registered.mr.cast(),
    ),
    //= R-MR-26
    row(
        "no pages",
        |f| f == F::InitializeFast,
        "numbers",
        INVALID,
        Some(M::Registration),
        |a, _| {
            a.numbers[0] = 0;
        },
    ),
    //= R-MR-25
    row(
        "more pages than the adapter supports",
        |f| f == F::InitializeFast,
        "numbers",
        Status(&[STATUS_IMPLEMENTATION_LIMIT]),
        Some(M::Registration),
        |a, w| a.numbers[0] = w.random.one_of(&[513, 1 << 31, u32::MAX]),
    ),
    //= R-MR-28
    alone(row(
        "a region in which memory is registered",
        |f| f == F::InitializeFast,
        "state",
        Status(&[STATUS_INVALID_DEVICE_STATE]),
        Some(M::RegionState),
        |_, w| w.register_fast(),
    )),
    //= R-LAM-1
    row(
        "a chain to map with a gap",
        |f| f == F::BuildLam,
        "mdl",
        INVALID,
        Some(M::MappingArguments),
        |a, w| {
            (a.mdl, a.length) = (w.chain_with_gap(), 8193);
        },
    ),
    //= R-LAM-2, R-LAM-3
    row(
        "a length to map that does not fit",
        |f| f == F::BuildLam,
        "mdl",
        INVALID,
        Some(M::MappingArguments),
        |a, w| {
            a.length = w.random.one_of(&[0, 8193, 1 << 32, usize::MAX - 4095, usize::MAX]);
        },
    ),
    row(
        "no chain to map",
        |f| f == F::BuildLam,
        "mdl",
        INVALID,
        Some(M::MappingArguments),
        |a, _| {
            a.mdl = null_mut();
        },
    ),
    //= R-LAM-4, R-LAM-5
    row(
        "a buffer too small for the pages",
        |f| f == F::BuildLam,
        "size",
        Status(&[STATUS_BUFFER_TOO_SMALL]),
        None,
        |a, w| match w.random.below(3) {
            0 => (a.buffer, a.size) = (false, Some(0)),
            _ => a.size = Some(w.random.below(32) as u32),
        },
    ),
    row(
        "no size of the pages",
        |f| f == F::BuildLam,
        "size",
        INVALID,
        Some(M::MappingArguments),
        |a, _| {
            a.size = None;
        },
    ),
    // Fast registration, windows, invalidation.
    //= R-CLOSE-37
    row("a region of another type", has_mr, "mr", INVALID, Some(M::WrongObject), |a, w| {
        a.mr = if w.random.below(2) == 0 { null_mut() } else { of_other_type(w, Kind::Mr).cast() };
    }),
    //= R-MR-52
    row("a region of another PD", has_mr, "mr", INVALID, Some(M::Registration), |a, w| {
        a.mr = if w.random.below(2) == 0 { w.second.mr } else { w.foreign.mr };
    }),
    //= R-CLOSE-12
    strict(row("a closed region", has_mr, "mr", INVALID, Some(M::UseAfterClose), |a, w| {
        a.mr = w.closed_of(Kind::Mr).cast();
    })),
    //= R-CLOSE-37
    row(
        "a window of another type",
        |f| f == F::Bind,
        "mw",
        INVALID,
        Some(M::WrongObject),
        |a, w| {
            a.mw = if w.random.below(2) == 0 { null_mut() } else { of_other_type(w, Kind::Mw).cast() };
        },
    ),
    //= R-MR-52
    row(
        "a window of another PD",
        |f| f == F::Bind,
        "mw",
        INVALID,
        Some(M::Registration),
        |a, w| {
            a.mw = if w.random.below(2) == 0 { w.second.mw } else { w.foreign.mw };
        },
    ),
    //= R-CLOSE-12
    strict(row(
        "a closed window",
        |f| f == F::Bind,
        "mw",
        INVALID,
        Some(M::UseAfterClose),
        |a, w| {
            a.mw = w.closed_of(Kind::Mw).cast();
        },
    )),
    //= R-CLOSE-37
    row(
        "neither a region nor a window",
        |f| f == F::Invalidate,
        "target",
        INVALID,
        Some(M::WrongObject),
        |a, w| {
            let other = w.random.one_of(&[Kind::Pd, Kind::Cq, Kind::Qp, Kind::Connector]);
            a.target = if w.random.below(3) == 0 { null_mut() } else { w.object(other).cast() };
        },
    ),
    //= R-MR-52
    row(
        "an object of another PD to invalidate",
        |f| f == F::Invalidate,
        "target",
        INVALID,
        Some(M::Registration),
        |a, w| {
            let others = [w.second.mr.cast(), w.second.mw.cast(), w.foreign.mr.cast(), w.foreign.mw.cast()];
            a.target = w.random.one_of(&others);
        },
    ),
    //= R-CLOSE-12
    strict(row(
        "a closed object to invalidate",
        |f| f == F::Invalidate,
        "target",
        INVALID,
        Some(M::UseAfterClose),
        |a, w| {
            let kind = w.random.one_of(&[Kind::Mr, Kind::Mw]);
            a.target = w.closed_of(kind).cast();
        },
    )),
    //= R-MR-43
    row(
        "a normal region to invalidate",
        |f| f == F::Invalidate,
        "target",
        Status(&[STATUS_INVALID_DEVICE_REQUEST]),
        Some(M::RegionKind),
        |a, w| a.target = w.registered.mr.cast(),
    ),
    //= R-MR-45, R-MR-46
    accepted(
        row(
            "an invalidation of what is invalid",
            |f| f == F::Invalidate,
            "target",
            Success,
            None,
            |a, w| {
                a.target = if w.random.below(2) == 0 { w.local_fast.cast() } else { w.mw.cast() };
            },
        ),
        &[STATUS_INVALID_DEVICE_REQUEST],
    ),
    //= R-CREATE-42, R-MR-67
    row(
        "a region of the other kind",
        has_mr,
        "mr",
        Status(&[STATUS_INVALID_DEVICE_REQUEST]),
        Some(M::RegionKind),
        |a, w| a.mr = if a.mr == w.fast { w.registered.mr } else { w.fast },
    ),
    //= R-MR-12
    row(
        "a region that is not initialized",
        |f| f == F::FastRegister,
        "mr",
        Status(&[STATUS_INVALID_DEVICE_REQUEST]),
        Some(M::RegionKind),
        |a, w| a.mr = w.raw_fast,
    ),
    //= R-MR-31
    row(
        "remote rights that the region was not given",
        |f| f == F::FastRegister,
        "mr",
        Status(&[STATUS_ACCESS_VIOLATION]),
        Some(M::MissingRight),
        |a, w| {
            a.mr = w.local_fast;
            a.flags = w.random.one_of(&[8, 0x30, 0x38]);
        },
    ),
    //= R-MR-41
    accepted(
        alone(row(
            "a region that is registered already",
            |f| f == F::FastRegister,
            "mr",
            Success,
            None,
            |_, w| {
                w.register_fast();
            },
        )),
        &[STATUS_INVALID_DEVICE_REQUEST],
    ),
    //= R-MR-32
    row(
        "a page array that does not fit",
        |f| f == F::FastRegister,
        "pages",
        INVALID,
        Some(M::Registration),
        |a, w| {
            let page = w.mapped.pages()[0];
            match w.random.below(4) {
                0 => a.pages = None,
                1 => (a.pages, a.count) = (Some(vec![page]), 0),
                2 => (a.pages, a.count) = (Some(vec![page; 17]), 17),
                _ => (a.pages, a.count) = (Some(vec![page; 513]), 513),
            }
        },
    ),
    //= R-MR-33
    row(
        "a page that is not aligned",
        |f| f == F::FastRegister,
        "pages",
        INVALID,
        Some(M::Registration),
        |a, w| {
            let wrong = w.random.one_of(&[1, 8, 2048, 4095]);
            let pages = w.mapped.pages();
            a.pages = Some(vec![pages[0], pages[1] + wrong]);
        },
    ),
    //= R-MR-34, R-MR-36
    row(
        "an offset that does not fit",
        |f| f == F::FastRegister,
        "offset",
        INVALID,
        Some(M::Registration),
        |a, w| {
            a.offset = w.random.one_of(&[1, 4095, 4096, 8192, 1 << 31, u32::MAX]);
        },
    ),
    //= R-MR-35
    row(
        "a length beyond the pages",
        |f| f == F::FastRegister,
        "length",
        INVALID,
        Some(M::Registration),
        |a, w| {
            a.length = w.random.one_of(&[8193, 1 << 32, usize::MAX - 4095, usize::MAX]);
        },
    ),
    //= R-MR-36
    row(
        "a base that is not congruent",
        |f| f == F::FastRegister,
        "base",
        INVALID,
        Some(M::Registration),
        |a, w| {
            a.base = w.random.one_of(&[1, 0x1_0001, 0x1_0fff, u64::MAX]);
        },
    ),
    //= R-MR-38
    row(
        "a base whose region wraps",
        |f| f == F::FastRegister,
        "base",
        INVALID,
        Some(M::Registration),
        |a, _| {
            a.base = u64::MAX - 4095;
        },
    ),
    //= R-MR-58, R-MR-62
    row(
        "a window outside its region",
        |f| f == F::Bind,
        "base",
        INVALID,
        Some(M::Registration),
        |a, w| {
            let base = w.registered.remote().0;
            let cases = [
                (base - 1, 8),
                (base + 8192, 1),
                (base + 8185, 8),
                (base, 8193),
                (base, 0x7fff_f001),
                (base, usize::MAX),
                (u64::MAX - 7, 8),
                (base, 0),
            ];
            (a.base, a.length) = w.random.one_of(&cases);
        },
    ),
    //= R-MR-60
    row(
        "a window without rights",
        |f| f == F::Bind,
        "flags",
        INVALID,
        Some(M::Registration),
        |a, w| {
            a.flags = w.random.one_of(&[0, 0x10, 0x80, 1]);
        },
    ),
    //= R-MR-59
    row(
        "a window with a right that the region lacks",
        |f| f == F::Bind,
        "mr",
        Status(&[STATUS_ACCESS_VIOLATION]),
        Some(M::MissingRight),
        |a, w| {
            a.mr = w.readonly.mr;
            a.flags = NDK_OP_FLAG_ALLOW_REMOTE_WRITE;
        },
    ),
    //= R-MR-67
    row(
        "a window of memory that is not registered",
        |f| f == F::Bind,
        "mr",
        Status(&[STATUS_INVALID_DEVICE_REQUEST]),
        Some(M::RegionKind),
        |a, w| a.mr = w.idle_mr,
    ),
];
