// SPDX-License-Identifier: MIT OR Apache-2.0

//! Walks of the calling thread's stack.

use std::cell::Cell;

use super::{
    frame::{DEPTH, Frame, Walk},
    registers::{Registers, StackBounds},
    switch,
    thunk::{self, Caller},
    unwind,
};
use crate::{
    guest::Guest,
    memory::KernelStack,
    thread::current::{Thread, current, try_current},
};

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
    /// The kernel stack that `caller` is on.
    stack: Option<KernelStack>,
    outer: *const Segment,
}

thread_local! {
    static INNERMOST: Cell<*const Segment> = const { Cell::new(std::ptr::null()) };
}

/// Runs `callback`, which calls the image, on the thread's kernel stack, and records what a stack walk needs.
pub(super) fn segment(callback: &mut dyn FnMut()) {
    let outer = INNERMOST.get();
    let caller = thunk::caller();
    let segment = Segment { caller, stack: switch::kernel_stack(), outer };
    INNERMOST.set(&raw const segment);
    // The image has called no import yet.
    thunk::set_caller(Caller::default());
    switch::on_kernel_stack(callback);
    INNERMOST.set(outer);
    thunk::set_caller(caller);
}

/// Returns where the running import's fifth argument is, and the ones after it; null when no image called it.
#[must_use]
pub fn stack_arguments() -> Guest<usize> {
    // Behind the return address and room for four registers.
    const OFFSET: usize = 0x28;
    match thunk::caller().stack {
        0 => Guest::null(),
        stack => Guest::from_address(stack + OFFSET),
    }
}

/// Returns whether code at the stack pointer `pointer` runs inside an import that the image called.
pub(super) fn is_in_import(pointer: usize) -> bool {
    let caller = thunk::caller().stack;
    caller != 0 && (!switch::is_on_kernel_stack() || caller >= pointer)
}

/// Runs `dpcs`, which calls DPCs of images, on a kernel stack of its own: the interrupted thread's frames count neither
/// as used nor as callers.
pub(crate) fn on_dpc_stack<T>(dpcs: impl FnOnce() -> T) -> T {
    let (outer, caller) = (INNERMOST.replace(std::ptr::null()), thunk::caller());
    thunk::set_caller(Caller::default());
    let result = switch::with_new_stack(dpcs);
    INNERMOST.set(outer);
    thunk::set_caller(caller);
    result
}

/// Returns the addresses of the stack that the image runs on: a kernel stack, or on a thread that belongs to no host,
/// the thread's own.
pub(super) fn bounds(me: &Thread) -> StackBounds {
    bounds_of(me, switch::kernel_stack())
}

fn bounds_of(me: &Thread, stack: Option<KernelStack>) -> StackBounds {
    match stack {
        Some(stack) => StackBounds { low: stack.range().start, high: stack.range().end },
        None => me.stack_bounds(),
    }
}

/// Walks the image's frames on the calling thread's stack, starting where the image called the running import.
#[must_use]
pub fn capture() -> Walk {
    capture_from(None, DEPTH)
}

/// Captures the stack as [`capture`] does, up to `depth` frames.
#[must_use]
pub fn capture_up_to(depth: usize) -> Walk {
    capture_from(None, depth)
}

/// Captures the stack as [`capture`] does, starting at `registers`, at which a fault interrupted the image.
pub(super) fn capture_from(registers: Option<Registers>, depth: usize) -> Walk {
    let mut walk = Walk::default();
    let Some(me) = try_current() else { return walk };
    let stack = bounds(&me);
    if let Some(registers) = registers {
        walk_segment(&me, &stack, &mut walk, depth, registers, false);
    } else {
        walk_caller(&me, &stack, &mut walk, depth, thunk::caller());
    }
    let mut segment = INNERMOST.get();
    // SAFETY: the list runs up this thread's stack and ends with null.
    while let Some(this) = unsafe { segment.as_ref() } {
        if walk.is_full(depth) {
            break;
        }
        walk_caller(&me, &bounds_of(&me, this.stack), &mut walk, depth, this.caller);
        segment = this.outer;
    }
    walk
}

fn walk_caller(me: &Thread, stack: &StackBounds, walk: &mut Walk, depth: usize, caller: Caller) {
    let Some(ip) = stack.read(caller.stack) else { return };
    walk_segment(me, stack, walk, depth, Registers::at(ip, caller.stack + 8, caller.frame), true);
}

fn walk_segment(
    me: &Thread,
    stack: &StackBounds,
    walk: &mut Walk,
    depth: usize,
    start: Registers,
    call: bool,
) {
    let Some(host) = me.try_host() else { return };
    let mut registers = start;
    let mut call = call;
    while !walk.is_full(depth) {
        // An image may call another one directly.
        let Some(image) = host.images().find(registers.ip) else { return };
        walk.push(if call { registers.ip - 1 } else { registers.ip });
        let Some(next) = unwind::step(image, stack, &registers, call) else { return };
        registers = next;
        call = true;
    }
}
