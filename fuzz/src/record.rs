//! Scripts: rows of records of one size.

/// Bytes of a record.
pub const LEN: usize = 12;

/// One step of a script. What its bytes mean is the target's to say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record(pub [u8; LEN]);

impl Record {
    /// The whole records of `bytes`, `max` at most.
    pub fn all(bytes: &[u8], max: usize) -> Vec<Self> {
        bytes.as_chunks().0.iter().take(max).map(|chunk| Self(*chunk)).collect()
    }

    /// The byte at `at`.
    #[allow(clippy::indexing_slicing, reason = "constants below the length")]
    pub fn byte(&self, at: usize) -> u8 {
        self.0[at]
    }

    /// Whether bit `bit` of the byte at `at` is set.
    pub fn flag(&self, at: usize, bit: u32) -> bool {
        self.byte(at) >> bit & 1 != 0
    }

    /// Two bytes from `at` on.
    pub fn word(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.byte(at), self.byte(at + 1)])
    }

    /// One of `values`, by the byte at `at`.
    pub fn pick<T: Copy>(&self, at: usize, values: &[T]) -> T {
        values[usize::from(self.byte(at)) % values.len()]
    }
}
