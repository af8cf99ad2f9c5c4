//! Call stacks of the image, and how much of the stack it uses.

use std::{cell::Cell, fmt};

use super::{
    thunk::{self, Caller},
    unwind::{self, Registers},
};
use crate::{
    thread::{KERNEL_STACK_SIZE, Thread, current, try_current},
    verifier::{BugCheck, violation},
};

/// One frame of the image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// File name of the image.
    pub image: String,
    /// Offset of the instruction from the base of the image.
    pub offset: u32,
    /// Function, offset into it and source line, where symbols are at hand.
    pub symbol: Option<String>,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.symbol {
            Some(symbol) => write!(f, "{}!{symbol}", self.image),
            None => write!(f, "{}+{:#x}", self.image, self.offset),
        }
    }
}

/// Frames kept of a walk.
const DEPTH: usize = 24;

/// A walked stack, not yet named: offsets into the image, innermost first.
#[derive(Clone, Copy, Default)]
pub struct Walk {
    offsets: [u32; DEPTH],
    count: usize,
}

impl Walk {
    fn push(&mut self, offset: u32) {
        if let Some(slot) = self.offsets.get_mut(self.count) {
            *slot = offset;
            self.count += 1;
        }
    }

    /// Names the frames by the symbols of the calling thread's host's image.
    #[must_use]
    pub fn frames(&self) -> Vec<Frame> {
        let me = current();
        let Some(image) = me.try_host().and_then(|host| host.image()) else { return Vec::new() };
        self.offsets[..self.count].iter().map(|&offset| image.frame(offset)).collect()
    }
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.offsets[..self.count]).finish()
    }
}

/// A stay of the host inside a call of the image: what [`segment`] was called from.
#[derive(Clone, Copy)]
struct Segment {
    caller: Caller,
    outer: *const Segment,
    /// Bytes of stack that belong to the host, between the thread's start and this call.
    not_image: usize,
    /// Stack pointer where the host called the image.
    entry: usize,
}

thread_local! {
    static INNERMOST: Cell<*const Segment> = const { Cell::new(std::ptr::null()) };
}

/// Runs `callback`, which calls the image, and notes what a later walk needs.
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

/// Bytes of stack that the image's earlier segments use.
fn used_before(outer: *const Segment, caller: Caller, here: usize) -> usize {
    // SAFETY: `INNERMOST` points to a segment of a frame further up this thread's stack, or is null.
    let Some(outer) = (unsafe { outer.as_ref() }) else { return 0 };
    let live = caller.stack >= here && caller.stack <= outer.entry;
    outer.not_image + if live { outer.entry - caller.stack } else { 0 }
}

/// Checks, on entry to an import, that the image keeps to its share of the stack.
#[inline]
pub(crate) fn check_depth() {
    let segment = INNERMOST.get();
    if segment.is_null() {
        return;
    }
    // SAFETY: as in `used_before`, and just checked for null.
    let segment = unsafe { &*segment };
    let used = segment.not_image + segment.entry.saturating_sub(thunk::caller().stack);
    if used > KERNEL_STACK_SIZE && thunk::caller().stack != 0 {
        violation(
            BugCheck::UNEXPECTED_KERNEL_MODE_TRAP,
            format!("kernel stack overflow: the image uses {used} bytes of {KERNEL_STACK_SIZE}"),
        );
    }
}

/// The image's part of the calling thread's stack, innermost first: starts where the image called the
/// running import.
#[must_use]
pub fn capture() -> Walk {
    capture_from(None)
}

/// As [`capture`], starting at `registers` where the image was interrupted by a fault.
pub(super) fn capture_from(registers: Option<Registers>) -> Walk {
    let mut walk = Walk::default();
    let Some(me) = try_current() else { return walk };
    if let Some(registers) = registers {
        walk_segment(&me, &mut walk, registers, false);
    } else {
        walk_caller(&me, &mut walk, thunk::caller());
    }
    let mut segment = INNERMOST.get();
    // SAFETY: the list runs up this thread's stack and ends with null.
    while let Some(this) = unsafe { segment.as_ref() } {
        walk_caller(&me, &mut walk, this.caller);
        segment = this.outer;
    }
    walk
}

fn walk_caller(me: &Thread, walk: &mut Walk, caller: Caller) {
    // A call that has returned lies below what the stack holds now.
    if caller.stack < stack_pointer() && !super::fault::on_alternate_stack() {
        return;
    }
    let stack = me.stack_bounds();
    let Some(ip) = stack.read(caller.stack) else { return };
    walk_segment(me, walk, Registers::at(ip, caller.stack + 8, caller.frame), true);
}

fn walk_segment(me: &Thread, walk: &mut Walk, start: Registers, call: bool) {
    let Some(image) = me.try_host().and_then(|host| host.image()) else { return };
    let stack = me.stack_bounds();
    let mut registers = start;
    let mut call = call;
    for _ in 0..DEPTH {
        if !image.contains(registers.ip) {
            return;
        }
        let offset = u32::try_from(registers.ip - image.base()).unwrap_or(0);
        walk.push(if call { offset.saturating_sub(1) } else { offset });
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
