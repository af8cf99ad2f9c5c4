// SPDX-License-Identifier: MIT OR Apache-2.0

//! The bug check of a fault, by address and IRQL (documentation of the bug checks).

use std::hint::black_box;

use crate::kernel::{clocks, options, raise, violation_of};
use nt_sim::{BugCheck, Irql, guest::Guest, image::call};

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
            let _ = black_box(Guest::<u8>::from_address(address).read());
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

/// Panics once it has used about `depth` KiB of its stack.
#[inline(never)]
fn panic_below(depth: usize) {
    let used = [1_u8; 1024];
    black_box(&used);
    assert!(depth > 1, "the handler's own words");
    panic_below(depth - 1);
    black_box(&used);
}

extern "efiapi" fn handler(depth: usize) {
    panic_below(depth);
}

/// The message of a panic may take more of a stack than is left.
#[test]
fn panic_on_a_kernel_stack_is_a_bug_check() {
    for depth in [1, 16, 20] {
        for clock in clocks() {
            let report = violation_of(clock, options(), move || call("handler", || handler(depth)));
            assert_eq!(report.code, BugCheck::KMODE_EXCEPTION_NOT_HANDLED, "{report}");
            for part in [
                "a function in the place of an image's panicked at ",
                "faults.rs:",
                ": the handler's own words",
            ] {
                assert!(report.text.contains(part), "{report}");
            }
        }
    }
}

/// The pages below a stack have no access again.
#[test]
fn overflow_after_a_panic_that_was_caught_is_reported() {
    let report = violation_of(clocks()[1].clone(), options(), || {
        let caught = std::panic::catch_unwind(|| call("handler", || panic!("expected by the test")));
        assert!(caught.is_err());
        call("handler", || handler(64));
    });
    assert_eq!(report.code, BugCheck::UNEXPECTED_KERNEL_MODE_TRAP, "{report}");
}
