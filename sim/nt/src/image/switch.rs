// SPDX-License-Identifier: MIT OR Apache-2.0

//! The two stacks of a thread: code of the image runs on a kernel stack, host-side code on the thread's own.
//!
//! A kernel stack has the size that Windows gives it, and pages without access below it: whatever exceeds it faults at
//! once. Host-side code needs more, and must not count as the image's. So a call of the image continues on the kernel
//! stack, and an import continues on the host's stack, below the frames that called the image:
//!
//! ```text
//! host's stack                      kernel stack
//! thread's body
//! call("DriverEntry")        --->   DriverEntry
//! KeInsertQueueDpc           <---   (calls an import)
//! call("a DPC routine")      --->   the routine, below DriverEntry's frames
//! ```
//!
//! Each direction stores where the stack that it leaves continues. A thread gets its kernel stack with the first call
//! of an image, and returns it with [`end_thread`].

use std::{
    arch::asm,
    cell::Cell,
    mem::{ManuallyDrop, MaybeUninit},
    panic::{self, AssertUnwindSafe},
    ptr,
};

use crate::{
    memory::KernelStack,
    thread::current::{current, try_current},
};

/// Bytes left free at the start of a kernel stack. A variadic import reads more arguments than its caller passed.
const START: usize = 256;

struct Stacks {
    /// The kernel stack that the image runs on, or ran on last.
    own: Cell<Option<KernelStack>>,
    /// Where the kernel stack continues while host-side code runs.
    kernel: Cell<usize>,
    /// Where the host's stack continues while the thread runs on its kernel stack; 0 while it does not.
    host: Cell<usize>,
}

thread_local! {
    static STACKS: Stacks = const {
        Stacks { own: Cell::new(None), kernel: Cell::new(0), host: Cell::new(0) }
    };
}

/// Returns the kernel stack that the calling thread's image runs on, or ran on last.
pub(super) fn kernel_stack() -> Option<KernelStack> {
    STACKS.with(|stacks| stacks.own.get())
}

/// Returns whether the calling thread runs on its kernel stack.
pub(super) fn is_on_kernel_stack() -> bool {
    STACKS.with(|stacks| stacks.host.get() != 0)
}

/// Has `run` run `body`, once: so that what is around it is compiled once, not for each body.
///
/// # Panics
/// If `run` returns and has not run it.
pub(super) fn once<T>(body: impl FnOnce() -> T, run: impl FnOnce(&mut dyn FnMut())) -> T {
    let (mut body, mut result) = (Some(body), None);
    run(&mut || result = body.take().map(|body| body()));
    result.expect("it ran")
}

/// Runs `body`, which calls the image, on the thread's kernel stack. A thread that belongs to no host has none.
pub(super) fn on_kernel_stack(body: &mut dyn FnMut()) {
    STACKS.with(|stacks| {
        if stacks.host.get() != 0 || !prepare(stacks) {
            return body();
        }
        let kernel = stacks.kernel.get();
        let result = switch(kernel, stacks.host.as_ptr(), || panic::catch_unwind(AssertUnwindSafe(body)));
        stacks.host.set(0);
        stacks.kernel.set(kernel);
        result.unwrap_or_else(|panic| {
            if let Some(stack) = stacks.own.get() {
                stack.give_room(false);
            }
            panic::resume_unwind(panic)
        });
    });
}

/// Runs `body` on the host's stack, for a function that an image called: an import, or a callback of a simulated
/// consumer. A panic of `body` ends the process, as it does in any function that an image calls.
#[inline]
pub fn on_host_stack<T>(body: impl FnOnce() -> T) -> T {
    STACKS.with(|stacks| {
        let host = stacks.host.get();
        if host == 0 {
            return body();
        }
        stacks.host.set(0);
        let result = switch(host, stacks.kernel.as_ptr(), body);
        stacks.host.set(host);
        result
    })
}

/// Runs `body`, host-side code, on a thread whose kernel stack is a new one meanwhile, as DPCs and interrupt service
/// routines have another stack than the thread that they interrupt.
pub fn with_new_stack<T>(body: impl FnOnce() -> T) -> T {
    on_host_stack(|| {
        STACKS.with(|stacks| {
            let before = (stacks.own.take(), stacks.kernel.replace(0));
            let result = body();
            release(stacks);
            stacks.own.set(before.0);
            stacks.kernel.set(before.1);
            result
        })
    })
}

/// Returns the calling thread's kernel stack to its host, at the end of the thread.
pub(crate) fn end_thread() {
    STACKS.with(release);
}

fn release(stacks: &Stacks) {
    stacks.kernel.set(0);
    if let Some(stack) = stacks.own.take()
        && let Some(host) = current().try_host()
    {
        host.memory.release_stack(stack);
    }
}

/// Gives the thread a kernel stack unless it has one; returns whether it has.
fn prepare(stacks: &Stacks) -> bool {
    if stacks.kernel.get() != 0 {
        return true;
    }
    let me = try_current();
    let Some(stack) = me.as_ref().and_then(|me| me.try_host()?.memory.allocate_stack()) else { return false };
    stacks.own.set(Some(stack));
    stacks.kernel.set(stack.range().end - START);
    true
}

/// The body of a switch, and its result.
struct Job<F, T> {
    body: ManuallyDrop<F>,
    result: MaybeUninit<T>,
}

extern "sysv64" fn run<F: FnOnce() -> T, T>(job: &mut Job<F, T>) {
    // SAFETY: `switch` runs each job once, and does not use the body afterwards.
    let body = unsafe { ManuallyDrop::take(&mut job.body) };
    job.result.write(body());
}

/// Runs `body` on the stack that continues at `to`, and stores to `from` where the present one continues.
#[inline]
fn switch<F: FnOnce() -> T, T>(to: usize, from: *mut usize, body: F) -> T {
    let mut job = Job { body: ManuallyDrop::new(body), result: MaybeUninit::uninit() };
    // The Microsoft calling convention has no red zone, that of Linux has one of 128 bytes.
    let to = (to - 128) & !15;
    // SAFETY: `to` is on a stack of this thread that no code uses below it until this returns. `from` points to a cell
    // of this thread. The function has the given convention, and its argument lives on.
    unsafe {
        asm!(
            "mov r12, rsp",
            "mov [{from}], rsp",
            "mov rsp, {to}",
            "call {run}",
            "mov rsp, r12",
            from = in(reg) from,
            to = in(reg) to,
            run = in(reg) run::<F, T> as *const (),
            in("rdi") ptr::from_mut(&mut job),
            out("r12") _,
            clobber_abi("sysv64"),
        );
    }
    // SAFETY: `run` wrote it; a panic in it ends the process.
    unsafe { job.result.assume_init() }
}
