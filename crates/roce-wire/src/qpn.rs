// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pair numbers.

use core::fmt;

use crate::value::newtypes;

/// A queue pair number, 24 bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Qpn(u32);

impl Qpn {
    /// The general services interface (GSI): the queue pair of connection management.
    pub const GSI: Self = Self(1);

    /// Returns the low 24 bits of `value`.
    #[must_use]
    #[inline]
    pub const fn new(value: u32) -> Self {
        Self(value & 0x00FF_FFFF)
    }

    /// Returns the number, below 2^24.
    #[must_use]
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

newtypes! {
    Qpn: u32, Qpn::new, Qpn::value;
}
