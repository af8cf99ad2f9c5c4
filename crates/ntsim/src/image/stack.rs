//! Call stacks of the image.

use std::fmt;

/// One frame of the image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// File name of the image.
    pub image: String,
    /// Offset of the instruction from the base of the image.
    pub offset: u32,
    /// Function and offset into it, where symbols are at hand.
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

/// The image's part of the calling thread's stack, innermost first: starts where the image called the
/// running import.
#[must_use]
pub fn capture() -> Vec<Frame> {
    Vec::new()
}
