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
pub(super) const DEPTH: usize = 24;

/// A walked stack without names: offsets into the image, innermost first.
#[derive(Clone, Copy, Default)]
pub struct Walk {
    offsets: [u32; DEPTH],
    count: usize,
}

/// A function that walks the calling thread's stack, for code that stands below the stack walker.
pub type Capture = fn() -> Walk;

impl Walk {
    pub(super) fn push(&mut self, offset: u32) {
        if let Some(slot) = self.offsets.get_mut(self.count) {
            *slot = offset;
            self.count += 1;
        }
    }

    /// Returns the offsets of the frames from the base of the image, innermost first.
    #[must_use]
    pub fn offsets(&self) -> &[u32] {
        &self.offsets[..self.count]
    }
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.offsets()).finish()
    }
}
