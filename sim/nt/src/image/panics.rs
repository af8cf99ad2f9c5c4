// SPDX-License-Identifier: MIT OR Apache-2.0

//! Panics on a kernel stack.
//!
//! Tests have functions of Rust in the place of an image's, such as the handlers of a miniport, and these run on a kernel stack. The message
//! and the backtrace of a panic may take more of it than is left. An overflow there would stop the thread while it holds the locks of the
//! output, so that no other thread could print or panic. So the pages below the stack are accessible from a panic on, until it has left the
//! stack ([`switch`]).
//!
//! A panic that reaches a function with a C convention, as a handler is, ends the process. It is a bug check of the host here, as a panic of
//! a driver is, in the handler of the signal by which the process would end: the hook of a panic holds a lock that test programs need.

use std::{
    cell::{Cell, RefCell},
    panic::{self, PanicHookInfo},
    ptr,
};

use super::switch;
use crate::{
    memory::KernelStack,
    verifier::{codes::BugCheck, report::violation},
};

/// The message of the second panic, that of a function which must not unwind.
const CANNOT_UNWIND: &str = "panic in a function that cannot unwind";

thread_local! {
    /// Place and message of the last panic on a kernel stack of this thread.
    static REASON: RefCell<Option<String>> = const { RefCell::new(None) };
    /// Whether the process ends next because this thread's panic cannot unwind.
    static ENDING: Cell<bool> = const { Cell::new(false) };
}

/// Handles panics on kernel stacks from now on; all others are handled as before.
pub(super) fn install() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| match switch::kernel_stack() {
        Some(stack) if switch::is_on_kernel_stack() => begin(stack, info, &before),
        _ => before(info),
    }));
    // SAFETY: all-zero is a valid `sigaction`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle_abort as *const () as usize;
    action.sa_flags = libc::SA_ONSTACK;
    // SAFETY: a handler with the signature of one without SA_SIGINFO.
    unsafe { libc::sigaction(libc::SIGABRT, &raw const action, ptr::null_mut()) };
}

/// Handles a panic on `stack`. The message of that which ends the process is the message of the one before it.
fn begin(stack: KernelStack, info: &PanicHookInfo<'_>, before: &dyn Fn(&PanicHookInfo<'_>)) {
    let is_end = info.payload_as_str() == Some(CANNOT_UNWIND) && REASON.with_borrow(Option::is_some);
    if is_end {
        ENDING.set(true);
        return;
    }
    stack.give_room(true);
    let reason = info.payload_as_str().unwrap_or("an unknown reason");
    let place = info.location().map(|location| format!(" at {location}")).unwrap_or_default();
    REASON.set(Some(format!("{place}: {reason}")));
    before(info);
}

extern "C" fn handle_abort(signal: i32) {
    if !ENDING.take() {
        // On return the process ends.
        // SAFETY: restores the default handler of this signal.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    }
    let reason = REASON.take().unwrap_or_default();
    violation(
        BugCheck::KMODE_EXCEPTION_NOT_HANDLED,
        format!("a function in the place of an image's panicked{reason}"),
    )
}
