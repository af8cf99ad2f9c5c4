// SPDX-License-Identifier: MIT OR Apache-2.0

//! The random numbers of a run.

/// A generator (xorshift): the same seed gives the same numbers.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 8
    }

    /// Returns true with a probability of `part` / `of`. Takes no number if `part` is 0.
    pub(crate) fn chance(&mut self, part: u32, of: u32) -> bool {
        part > 0 && self.next() % u64::from(of) < u64::from(part)
    }
}
