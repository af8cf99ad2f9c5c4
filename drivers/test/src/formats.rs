// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls of variadic functions.

use ndk_abi::nt::{DbgPrint, DbgPrintEx};

/// All services of this file.
pub const ALL: &[(&str, fn())] = &[("formats", formats)];

fn formats() {
    let eight = c"eight".as_ptr();
    let (one, two, three, four) = (1_u64, 22_u64, 333_u64, 4444_u64);
    // SAFETY: each format and its arguments agree.
    unsafe { DbgPrint(c"%d %d %d %d %d %d %d %s".as_ptr(), 1, 2, 3, 4, 5, 6, 7, eight) };
    // SAFETY: each conversion of the format has an argument of its type, and the format ends with a zero.
    unsafe { DbgPrintEx(0, 0, c"%d %d %d %d %d %d".as_ptr(), 1, 2, 3, 4, 5, 6) };
    // SAFETY: each conversion of the format has an argument of its type, and the format ends with a zero.
    unsafe { DbgPrint(c"<%I64d %I64d %I64d %I64d>".as_ptr(), one, two, three, four) };
    crate::memory::stay();
}
