// SPDX-License-Identifier: MIT OR Apache-2.0

//! Kernel stacks: the memory that code of an image uses as its stack.
//!
//! A kernel stack is memory of the host like any other: its pages have frame numbers, an MDL can describe them, and
//! they are not physically contiguous. Below it are pages without access, so that an overflow faults at the
//! instruction that causes it. Stacks of threads that ended are reused, the last one first.

use std::ops::Range;

use parking_lot::Mutex;

use super::{
    addresses,
    physical::{PAGE_SIZE, Pfn, Physical},
    space::{Protection, Space},
};

/// Bytes of a kernel stack: 24 KiB on x64, for threads as for DPCs and interrupt service routines.
///
/// Source: WDK, "Using the Kernel Stack"; `KERNEL_STACK_SIZE` of `wdm.h` for x64.
pub const KERNEL_STACK_SIZE: usize = 24 << 10;

/// Pages of a kernel stack.
pub const PAGES: usize = KERNEL_STACK_SIZE / PAGE_SIZE;

/// Pages without access below a stack. Compilers probe each page of a larger frame, so that one would do; with more,
/// code that does not probe is detected, too.
const GUARD_PAGES: usize = 16;

/// Stacks that no thread uses.
#[derive(Default)]
pub struct KernelStacks(Mutex<Vec<KernelStack>>);

/// A kernel stack. It has to be [released](super::Memory::release_stack).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelStack {
    low: usize,
}

impl KernelStack {
    /// Returns the addresses of the stack.
    #[must_use]
    pub fn range(self) -> Range<usize> {
        self.low..self.low + KERNEL_STACK_SIZE
    }

    /// Returns the addresses below the stack whose access is an overflow.
    #[must_use]
    pub fn guard(self) -> Range<usize> {
        self.low - GUARD_PAGES * PAGE_SIZE..self.low
    }

    /// Makes the addresses below the stack accessible, for code that is not the image's, or no longer.
    pub(crate) fn give_room(self, accessible: bool) {
        let bits = if accessible { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
        addresses::protect(self.guard().start, GUARD_PAGES * PAGE_SIZE, bits);
    }
}

impl KernelStacks {
    /// Returns a stack that no thread uses.
    pub fn pop(&self) -> Option<KernelStack> {
        self.0.lock().pop()
    }

    pub fn push(&self, stack: KernelStack) {
        self.0.lock().push(stack);
    }
}

/// Maps `frames`, of which there are [`PAGES`], as a new stack.
pub fn map(physical: &Physical, space: &Space, frames: &[Pfn]) -> Option<KernelStack> {
    let low = space.map_new(physical, frames, Protection::ReadWrite, GUARD_PAGES, 0)?;
    Some(KernelStack { low })
}

#[cfg(test)]
mod tests {
    use super::{addresses::Addresses, *};

    #[test]
    fn guard_pages_below_a_stack_belong_to_it_alone() {
        let addresses = Addresses::take(false);
        let physical = Physical::new(1 << 20, addresses.direct(), fastrand::Rng::with_seed(1)).unwrap();
        let space = Space::new(addresses.space()).unwrap();
        let mut end = addresses.space();
        for _ in 0..2 {
            let frames: Vec<_> = (0..PAGES).map(|_| physical.allocate(1, 1, u64::MAX).unwrap()).collect();
            let stack = map(&physical, &space, &frames).unwrap();
            assert_eq!(stack.guard(), end..end + GUARD_PAGES * PAGE_SIZE);
            assert_eq!(stack.range(), stack.guard().end..stack.guard().end + KERNEL_STACK_SIZE);
            end = stack.range().end;
        }
    }
}
