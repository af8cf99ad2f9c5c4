// SPDX-License-Identifier: MIT OR Apache-2.0

//! Faults of the object of a call, of completion callbacks and results, and of create calls.

use super::*;
use Function as F;
use ndk_provider::Mistake as M;

pub static ROWS: &[Fault] = &[
    // The object of the call.
    //= R-CLOSE-37
    alone(row("a null object", any, "object", Refused, None, |a, _| a.object = null_mut())),
    //= R-CLOSE-37
    alone(row("an object of another type", any, "object", Refused, Some(M::WrongObject), |a, w| {
        let kind = kind_of(a.right);
        a.object = of_other_type(w, kind);
    })),
    //= R-CLOSE-12, R-CLOSE-20
    strict(row(
        "a closed object",
        |f| f.object() != Kind::Adapter,
        "object",
        Refused,
        Some(M::UseAfterClose),
        |a, w| a.object = w.closed_of(kind_of(a.right)),
    )),
    //= R-IRQL-1
    strict(row("a call above DISPATCH_LEVEL", any, "level", Refused, Some(M::WrongIrql), |a, w| {
        a.level = w.random.one_of(&[3, 5, 12, 15]);
    })),
    //= R-INFO-1
    strict(row(
        "a query at DISPATCH_LEVEL",
        |f| f == F::QueryAdapterInfo,
        "level",
        Success,
        Some(M::WrongIrql),
        |a, _| {
            a.level = nt::irql::DISPATCH_LEVEL;
        },
    )),
    // What a call that may pend needs.
    row("no variable for the object", Function::is_create, "out", INVALID, Some(M::NullResult), |a, _| {
        a.out = false;
    }),
    //= R-CLOSE-23, R-CREATE-1
    row("no completion callback", may_pend, "completion", Success, Some(M::NoCallback), |a, _| {
        a.completion = false;
    }),
    //= R-LAM-16
    row(
        "a mapping without a callback",
        |f| f == F::BuildLam,
        "completion",
        Success,
        None,
        |a, _| {
            a.completion = false;
        },
    ),
    // Other objects of create calls.
    //= R-CLOSE-37
    row("a null CQ", creates_qp, "cq", INVALID, Some(M::WrongObject), |a, w| match w.random.below(2) {
        0 => a.receive_cq = null_mut(),
        _ => a.initiator_cq = null_mut(),
    }),
    //= R-CLOSE-37
    row("a CQ of another type", creates_qp, "cq", INVALID, Some(M::WrongObject), |a, w| {
        let other = of_other_type(w, Kind::Cq).cast();
        match w.random.below(2) {
            0 => a.receive_cq = other,
            _ => a.initiator_cq = other,
        }
    }),
    //= R-CREATE-36
    row("a CQ of another miniport adapter", creates_qp, "cq", INVALID, Some(M::CreateArguments), |a, w| {
        match w.random.below(2) {
            0 => a.receive_cq = w.foreign.cq,
            _ => a.initiator_cq = w.foreign.cq,
        }
    }),
    //= R-CLOSE-12
    strict(row("a closed CQ", creates_qp, "cq", INVALID, Some(M::UseAfterClose), |a, w| {
        a.initiator_cq = w.closed_of(Kind::Cq).cast();
    })),
    //= R-CLOSE-37
    row(
        "an SRQ of another type",
        |f| f == F::CreateQpWithSrq,
        "srq",
        INVALID,
        Some(M::WrongObject),
        |a, w| {
            a.srq = if w.random.below(2) == 0 { null_mut() } else { of_other_type(w, Kind::Srq).cast() };
        },
    ),
    //= R-CREATE-53
    row(
        "an SRQ of another PD",
        |f| f == F::CreateQpWithSrq,
        "srq",
        INVALID,
        Some(M::CreateArguments),
        |a, w| {
            a.srq = if w.random.below(2) == 0 { w.second.srq } else { w.foreign.srq };
        },
    ),
    //= R-CLOSE-12
    strict(row(
        "a closed SRQ",
        |f| f == F::CreateQpWithSrq,
        "srq",
        INVALID,
        Some(M::UseAfterClose),
        |a, w| {
            a.srq = w.closed_of(Kind::Srq).cast();
        },
    )),
    // Sizes and callbacks of create calls.
    //= R-CREATE-20, R-CREATE-21
    row(
        "a CQ depth out of range",
        |f| f == F::CreateCq,
        "numbers",
        INVALID,
        Some(M::CreateArguments),
        |a, w| {
            a.numbers[0] = w.random.one_of(&[0, 16385, 1 << 31, u32::MAX]);
        },
    ),
    //= R-CREATE-26, R-CREATE-46
    row(
        "no event callback",
        |f| matches!(f, F::CreateCq | F::CreateListener),
        "notification",
        INVALID,
        Some(M::CreateArguments),
        |a, _| a.notification = false,
    ),
    //= R-CREATE-29
    row(
        "an SRQ size above its limit",
        |f| f == F::CreateSrq,
        "numbers",
        INVALID,
        Some(M::CreateArguments),
        |a, w| match w.random.below(2) {
            0 => a.numbers[0] = w.random.one_of(&[8193, u32::MAX]),
            _ => a.numbers[1] = w.random.one_of(&[33, u32::MAX]),
        },
    ),
    //= R-CREATE-32
    row(
        "a QP size above its limit",
        |f| f == F::CreateQp,
        "numbers",
        INVALID,
        Some(M::CreateArguments),
        |a, w| {
            let which = w.random.below(5);
            a.numbers[which] = w.random.one_of(&[[4097, 4097, 33, 33, 129][which], 1 << 31, u32::MAX]);
        },
    ),
    //= R-CREATE-39
    row(
        "an initiator size above its limit",
        |f| f == F::CreateQpWithSrq,
        "numbers",
        INVALID,
        Some(M::CreateArguments),
        |a, w| {
            let which = w.random.one_of(&[1, 3, 4]);
            a.numbers[which] = w.random.one_of(&[[0, 4097, 0, 33, 129][which], u32::MAX]);
        },
    ),
];
