// SPDX-License-Identifier: MIT OR Apache-2.0

//! Scripts: sequences of records of one size.

/// Length of a record in bytes.
pub const LEN: usize = 12;

/// One step of a script. The target defines the meaning of the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record(pub [u8; LEN]);

impl Record {
    /// Returns the complete records of `bytes`, at most `max`.
    #[must_use]
    pub fn all(bytes: &[u8], max: usize) -> Vec<Self> {
        bytes.as_chunks().0.iter().take(max).map(|chunk| Self(*chunk)).collect()
    }

    /// Returns the byte at `at`.
    #[must_use]
    #[allow(clippy::indexing_slicing, reason = "constants below the length")]
    pub fn byte(&self, at: usize) -> u8 {
        self.0[at]
    }

    /// Returns whether bit `bit` of the byte at `at` is set.
    #[must_use]
    pub fn flag(&self, at: usize, bit: u32) -> bool {
        self.byte(at) >> bit & 1 != 0
    }

    /// Returns the two bytes at `at`, little-endian.
    #[must_use]
    pub fn word(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.byte(at), self.byte(at + 1)])
    }

    /// Returns one of `values`, selected by the byte at `at`.
    #[must_use]
    pub fn pick<T: Copy>(&self, at: usize, values: &[T]) -> T {
        values[usize::from(self.byte(at)) % values.len()]
    }
}
