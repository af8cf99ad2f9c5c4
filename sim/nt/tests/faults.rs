// SPDX-License-Identifier: MIT OR Apache-2.0

//! The bug check of a fault, by address and IRQL (documentation of the bug checks).

use crate::kernel::{clocks, options, raise, violation_of};
use nt_sim::{BugCheck, Irql, guest::Guest};

/// Nothing is mapped at the lowest 64 KiB, nor right behind them.
const NULL_PAGES: usize = 0x1_0000;

#[test]
fn the_bug_check_of_a_fault_follows_from_address_and_level() {
    let null = BugCheck::SYSTEM_THREAD_EXCEPTION_NOT_HANDLED;
    let unmapped = BugCheck::PAGE_FAULT_IN_NONPAGED_AREA;
    let at_dispatch = BugCheck::DRIVER_IRQL_NOT_LESS_OR_EQUAL;
    for (address, level, code, text) in [
        (8, Irql::PASSIVE_LEVEL, null, "read of 0x8 (null pointer), which is not mapped"),
        (8, Irql::APC_LEVEL, null, "read of 0x8 (null pointer), which is not mapped"),
        (8, Irql::DISPATCH_LEVEL, at_dispatch, "read of 0x8 (null pointer), which is not mapped"),
        (NULL_PAGES, Irql::PASSIVE_LEVEL, unmapped, "read of 0x10000, which is not mapped"),
        (NULL_PAGES, Irql::APC_LEVEL, unmapped, "read of 0x10000, which is not mapped"),
        (NULL_PAGES, Irql::DISPATCH_LEVEL, at_dispatch, "read of 0x10000, which is not mapped"),
    ] {
        let report = violation_of(clocks()[1].clone(), options(), move || {
            raise(level);
            let _ = std::hint::black_box(Guest::<u8>::from_address(address).read());
        });
        assert_eq!(report.code, code, "{address:#x} at {level}: {report}");
        assert!(report.text.starts_with(text), "{report}");
    }
}

#[test]
fn a_write_is_called_one() {
    let report = violation_of(clocks()[1].clone(), options(), || Guest::<u8>::from_address(8).write(1));
    assert!(report.text.starts_with("write to 0x8 (null pointer)"), "{report}");
}

#[test]
fn a_breakpoint_without_a_debugger_is_a_bug_check() {
    let report = violation_of(clocks()[1].clone(), options(), || {
        // SAFETY: the simulated kernel handles the trap.
        unsafe { std::arch::asm!("int3") };
    });
    assert_eq!(report.code, BugCheck::KMODE_EXCEPTION_NOT_HANDLED);
    assert!(report.text.starts_with("breakpoint, and no debugger is attached"), "{report}");
}
