// SPDX-License-Identifier: MIT OR Apache-2.0

//! Compiler support: the C run-time functions that `ntoskrnl.exe` exports.
//!
//! They run at any IRQL and at full speed: they do not advance the deterministic clock.

use std::{arch::naked_asm, ffi::c_void};

use crate::{
    image::switch::on_host_stack,
    import::table::{Import, Kind},
    irql::Limit,
    verifier::{BugCheck, broken, rules, violation},
};

extern "efiapi" fn memcpy(target: *mut u8, source: *const u8, count: usize) -> *mut u8 {
    // SAFETY: the image's obligation; an invalid pointer faults and is reported. Kernel memcpy allows overlap.
    unsafe { libc::memmove(target.cast(), source.cast(), count) };
    target
}

extern "efiapi" fn memset(target: *mut u8, byte: i32, count: usize) -> *mut u8 {
    // SAFETY: the image's obligation; an invalid pointer faults and is reported.
    unsafe { libc::memset(target.cast(), byte, count) };
    target
}

extern "efiapi" fn memcmp(left: *const u8, right: *const u8, count: usize) -> i32 {
    // SAFETY: the image's obligation; an invalid pointer faults and is reported.
    unsafe { libc::memcmp(left.cast(), right.cast(), count) }
}

extern "efiapi" fn strlen(text: *const libc::c_char) -> usize {
    // SAFETY: the image's obligation; an invalid pointer faults and is reported.
    unsafe { libc::strlen(text) }
}

/// Probes each page of the `rax` bytes below the caller's frame; preserves all registers but `r10` and `r11`.
#[unsafe(naked)]
extern "efiapi" fn chkstk() {
    naked_asm!(
        "lea r10, [rsp + 8]",
        "mov r11, r10",
        "sub r11, rax",
        "2:",
        "sub r10, 4096",
        "cmp r10, r11",
        "jb 3f",
        "test [r10], r10",
        "jmp 2b",
        "3:",
        "test [r11], r11",
        "ret",
    )
}

extern "efiapi" fn c_specific_handler(_: *mut c_void, _: *mut c_void, _: *mut c_void, _: *mut c_void) -> i32 {
    on_host_stack(|| {
        broken(
            rules::RAISED,
            BugCheck::KMODE_EXCEPTION_NOT_HANDLED,
            "structured exception handling is not simulated",
        )
    })
}

extern "efiapi" fn purecall() {
    on_host_stack(|| violation(BugCheck::KMODE_EXCEPTION_NOT_HANDLED, "a pure virtual function was called"));
}

const fn import(name: &'static str, address: fn() -> usize) -> Import {
    Import { kind: Kind::Function, module: "ntoskrnl.exe", name, limit: Limit::ANY, address }
}

/// The imports declared in this module.
pub const IMPORTS: &[Import] = &[
    import("memcpy", || memcpy as *const () as usize),
    import("memmove", || memcpy as *const () as usize),
    import("memset", || memset as *const () as usize),
    import("memcmp", || memcmp as *const () as usize),
    import("strlen", || strlen as *const () as usize),
    import("__chkstk", || chkstk as *const () as usize),
    import("_purecall", || purecall as *const () as usize),
    import("__C_specific_handler", || c_specific_handler as *const () as usize),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_compared_and_text_measured() {
        let compare = |left: &[u8], right: &[u8]| memcmp(left.as_ptr(), right.as_ptr(), left.len()).signum();
        assert_eq!([compare(b"ab", b"ab"), compare(b"ab", b"aa"), compare(b"aa", b"ab")], [0, 1, -1]);
        assert_eq!([strlen(c"".as_ptr()), strlen(c"abc".as_ptr())], [0, 3]);
    }
}
