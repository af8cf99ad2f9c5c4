// SPDX-License-Identifier: MIT OR Apache-2.0

//! Walks of the calling thread's stack, and the image's use of it.

use std::cell::Cell;

use super::{
    frame::{DEPTH, Frame, Walk},
    registers::Registers,
    thunk::{self, Caller},
    unwind,
};
use crate::thread::current::{Thread, current, try_current};

/// Names the frames by the symbols of the images on the calling thread's host.
#[must_use]
pub fn name(walk: &Walk) -> Vec<Frame> {
    let me = current();
    let Some(host) = me.try_host() else { return Vec::new() };
    walk.addresses().iter().filter_map(|&address| Some(host.images().find(address)?.frame(address))).collect()
}

/// A call of the image by the host, and the import the host was called through before.
#[derive(Clone, Copy)]
struct Segment {
    caller: Caller,
    outer: *const Segment,
    /// Returns the bytes of stack that the image's earlier segments use.
    not_image: usize,
    /// Stack pointer of the host when it called the image.
    entry: usize,
}

thread_local! {
    static INNERMOST: Cell<*const Segment> = const { Cell::new(std::ptr::null()) };
    static ON_ALTERNATE_STACK: Cell<bool> = const { Cell::new(false) };
}

/// From now on the calling thread runs on its alternate stack, where it reports a fault.
pub(super) fn enter_alternate_stack() {
    ON_ALTERNATE_STACK.set(true);
}

/// Runs `callback`, which calls the image, and records what a stack walk needs.
pub(super) fn segment<T>(callback: impl FnOnce() -> T) -> T {
    let outer = INNERMOST.get();
    let here = stack_pointer();
    let caller = thunk::caller();
    let used = used_before(outer, caller, here);
    let segment = Segment { caller, outer, not_image: used, entry: here };
    INNERMOST.set(&raw const segment);
    let result = callback();
    INNERMOST.set(outer);
    thunk::set_caller(caller);
    result
}

/// Returns the bytes of stack that the image's earlier segments use.
fn used_before(outer: *const Segment, caller: Caller, here: usize) -> usize {
    // SAFETY: `INNERMOST` points to a segment of a frame further up this thread's stack, or is null.
    let Some(outer) = (unsafe { outer.as_ref() }) else { return 0 };
    let live = caller.stack >= here && caller.stack <= outer.entry;
    outer.not_image + if live { outer.entry - caller.stack } else { 0 }
}

/// Returns the bytes of the calling thread's stack that the image uses, at an import; 0 when the import
/// was not called by an image.
#[inline]
pub(crate) fn used_by_image() -> usize {
    let (segment, caller) = (INNERMOST.get(), thunk::caller().stack);
    if segment.is_null() || caller == 0 {
        return 0;
    }
    // SAFETY: as in `used_before`, and just checked for null.
    let segment = unsafe { &*segment };
    segment.not_image + segment.entry.saturating_sub(caller)
}

/// Walks the image's frames on the calling thread's stack, starting where the image called the running import.
#[must_use]
pub fn capture() -> Walk {
    capture_from(None, DEPTH)
}

/// As [`capture`], up to `depth` frames.
#[must_use]
pub fn capture_up_to(depth: usize) -> Walk {
    capture_from(None, depth)
}

/// As [`capture`], starting at `registers`, at which a fault interrupted the image.
pub(super) fn capture_from(registers: Option<Registers>, depth: usize) -> Walk {
    let mut walk = Walk::default();
    let Some(me) = try_current() else { return walk };
    if let Some(registers) = registers {
        walk_segment(&me, &mut walk, depth, registers, false);
    } else {
        walk_caller(&me, &mut walk, depth, thunk::caller());
    }
    let mut segment = INNERMOST.get();
    // SAFETY: the list runs up this thread's stack and ends with null.
    while let Some(this) = unsafe { segment.as_ref() } {
        if walk.is_full(depth) {
            break;
        }
        walk_caller(&me, &mut walk, depth, this.caller);
        segment = this.outer;
    }
    walk
}

fn walk_caller(me: &Thread, walk: &mut Walk, depth: usize, caller: Caller) {
    // A caller below the stack pointer has returned already.
    if caller.stack < stack_pointer() && !ON_ALTERNATE_STACK.get() {
        return;
    }
    let stack = me.stack_bounds();
    let Some(ip) = stack.read(caller.stack) else { return };
    walk_segment(me, walk, depth, Registers::at(ip, caller.stack + 8, caller.frame), true);
}

fn walk_segment(me: &Thread, walk: &mut Walk, depth: usize, start: Registers, call: bool) {
    let Some(host) = me.try_host() else { return };
    let stack = me.stack_bounds();
    let mut registers = start;
    let mut call = call;
    while !walk.is_full(depth) {
        // An image may call another one directly.
        let Some(image) = host.images().find(registers.ip) else { return };
        walk.push(if call { registers.ip - 1 } else { registers.ip });
        let Some(next) = unwind::step(image, &stack, &registers, call) else { return };
        registers = next;
        call = true;
    }
}

#[inline]
fn stack_pointer() -> usize {
    let pointer: usize;
    // SAFETY: copies a register.
    unsafe { std::arch::asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
    pointer
}
