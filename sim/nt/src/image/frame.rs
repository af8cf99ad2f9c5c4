// SPDX-License-Identifier: MIT OR Apache-2.0

//! A walked stack, and a frame with its name.

use std::fmt;

/// One frame of the image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// File name of the image.
    pub image: String,
    /// Offset of the instruction from the base of the image.
    pub offset: u32,
    /// Function, offset into it and source line, where symbols are available.
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

/// Maximum number of frames of a walk.
pub const DEPTH: usize = 24;

/// A walked stack without names: addresses of code in images, innermost first. The address of a call is that
/// of its last byte.
#[derive(Clone, Copy, Default)]
pub struct Walk {
    addresses: [usize; DEPTH],
    count: usize,
}

/// A function that walks up to a number of frames of the calling thread's stack, for code that stands below the
/// stack walker.
pub type Capture = fn(usize) -> Walk;

impl Walk {
    pub(super) fn push(&mut self, address: usize) {
        if let Some(slot) = self.addresses.get_mut(self.count) {
            *slot = address;
            self.count += 1;
        }
    }

    /// Returns the addresses of the frames, innermost first.
    #[must_use]
    pub fn addresses(&self) -> &[usize] {
        &self.addresses[..self.count]
    }

    /// Returns the address of the innermost frame: whose code called the import. `None` when no image did.
    #[must_use]
    pub fn innermost(&self) -> Option<usize> {
        self.addresses().first().copied()
    }

    pub(super) fn is_full(&self, depth: usize) -> bool {
        self.count >= depth.min(DEPTH)
    }
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.addresses()).finish()
    }
}
