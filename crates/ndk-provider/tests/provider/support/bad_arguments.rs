// SPDX-License-Identifier: MIT OR Apache-2.0

//! Generated arguments, and buffers that show whether too much was written.

/// Numbers from a seed (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }
}

/// A buffer whose end must not be written.
pub struct Guarded(pub [u64; 40]);

pub const CANARY: u64 = 0xc0a1_5eed_c0a1_5eed;

impl Guarded {
    pub fn new() -> Box<Self> {
        Box::new(Self([CANARY; 40]))
    }

    pub fn pointer<T>(&mut self) -> *mut T {
        self.0.as_mut_ptr().cast()
    }

    /// Checks that nothing behind `bytes` was written.
    pub fn check(&self, bytes: usize, what: &str) {
        let end = self.0.iter().flat_map(|word| word.to_ne_bytes()).enumerate().skip(bytes);
        for (index, byte) in end {
            assert_eq!(byte, CANARY.to_ne_bytes()[index % 8], "{what} wrote byte {index}");
        }
    }
}
