// SPDX-License-Identifier: MIT OR Apache-2.0

//! The watchdog of code that does not end: a driver that loops without a call of the kernel stops for no check of an import, and under the
//! deterministic clock no other thread runs meanwhile. Such threads are found by a signal.

use std::{
    cell::Cell,
    fs, ptr,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use super::{frame::DEPTH, registers::FaultContext, stack};
use crate::{
    irql::Irql,
    thread::current::try_current,
    verifier::{codes::BugCheck, report},
};

/// Consecutive samples of a thread in the code of an image, after which it counts as endless: other threads pass through images, too.
const SAMPLES: u32 = 5;

/// The text of the report.
static TEXT: Mutex<String> = Mutex::new(String::new());
/// Whether a thread was found.
static FOUND: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Samples of the thread, one after the other, in the code of an image.
    static SEEN: Cell<u32> = const { Cell::new(0) };
}

/// Samples all threads of the process once. A thread that was in the code of an image in several samples, one after the other, gets a bug
/// check with `text`, and its host is dead. Returns whether a thread has got one since the process began.
///
/// Called by a thread outside of all simulations, some milliseconds apart.
pub fn sample(text: &str) -> bool {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(install);
    text.clone_into(&mut TEXT.lock());
    // SAFETY: no arguments, and it cannot fail.
    let process = unsafe { libc::getpid() };
    // SAFETY: no arguments, and it cannot fail.
    let me = unsafe { libc::gettid() };
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let numbers = threads.filter_map(|entry| entry.file_name().to_string_lossy().parse::<i32>().ok());
    for thread in numbers {
        if thread != me {
            // SAFETY: a signal whose handler is installed, for a thread of this process; one that has ended is an error.
            unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal()) };
        }
    }
    FOUND.load(Relaxed)
}

/// A signal that nothing else uses.
fn signal() -> i32 {
    libc::SIGRTMIN() + 3
}

fn install() {
    // SAFETY: all-zero is a valid `sigaction`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: a handler with the signature that SA_SIGINFO requires.
    unsafe { libc::sigaction(signal(), &raw const action, ptr::null_mut()) };
}

extern "C" fn handle(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(me) = try_current() else { return };
    // SAFETY: with SA_SIGINFO the third argument is the interrupted context.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let registers = FaultContext::new(context).registers();
    let in_image = me.try_host().is_some_and(|host| host.images().find(registers.ip).is_some());
    SEEN.set(if in_image { SEEN.get() + 1 } else { 0 });
    if SEEN.get() < SAMPLES {
        return;
    }
    // The thread is in the code of an image, and holds no lock of the host.
    FOUND.store(true, Relaxed);
    let code = if me.irql() >= Irql::DISPATCH_LEVEL {
        BugCheck::DPC_WATCHDOG_VIOLATION
    } else {
        BugCheck::THREAD_STUCK_IN_DEVICE_DRIVER
    };
    let text = TEXT.lock().clone();
    report::report(code, text, stack::capture_from(Some(registers), DEPTH));
}
