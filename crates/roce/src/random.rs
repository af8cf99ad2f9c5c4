//! Numbers that strangers should not guess, from a seed that the driver of the engine brings.
//!
//! Reproducible: the same seed gives the same numbers, so that a simulation replays. Good enough to make
//! blind guesses of queue pair numbers, keys and sequence numbers hopeless within their 24 to 32 bits; not
//! for secrets that protect anything else.

/// A generator with 256 bits of state (xoshiro256++).
#[derive(Clone, Debug)]
pub(crate) struct Random([u64; 4]);

impl Random {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        let mut state = [0; 4];
        for (word, bytes) in state.iter_mut().zip(seed.chunks_exact(8)) {
            *word = bytes.try_into().map_or(0, u64::from_le_bytes);
        }
        // The state of zeros would stay there; any other is as good as the next after a few steps.
        if state == [0; 4] {
            state = [1; 4];
        }
        let mut random = Self(state);
        for _ in 0..16 {
            random.next_u64();
        }
        random
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    pub(crate) fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        (u64::from(self.next_u32()).wrapping_mul(u64::from(bound)) >> 32) as u32
    }

    /// A generator of its own.
    pub(crate) fn fork(&mut self) -> Self {
        let mut seed = [0; 32];
        for bytes in seed.chunks_exact_mut(8) {
            bytes.copy_from_slice(&self.next_u64().to_le_bytes());
        }
        Self::new(seed)
    }
}

/// A keyed permutation of the 24-bit numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permutation {
    /// Odd factors and their inverses modulo 2^24.
    factors: [(u32, u32); 3],
    mask: u32,
}

const BITS: u32 = 0x00FF_FFFF;

impl Permutation {
    pub(crate) fn new(random: &mut Random) -> Self {
        let mut factors = [(1, 1); 3];
        for pair in &mut factors {
            let factor = random.next_u32() & BITS | 1;
            *pair = (factor, inverse(factor));
        }
        Self { factors, mask: random.next_u32() & BITS }
    }

    /// The image of `value`, of which the low 24 bits count.
    #[inline]
    pub(crate) const fn apply(&self, value: u32) -> u32 {
        let [(a, _), (b, _), (c, _)] = self.factors;
        let mut v = (value ^ self.mask).wrapping_mul(a) & BITS;
        v ^= v >> 12;
        v = v.wrapping_mul(b) & BITS;
        v ^= v >> 13;
        v.wrapping_mul(c) & BITS
    }

    /// What has the image `value`.
    #[inline]
    pub(crate) const fn undo(&self, value: u32) -> u32 {
        let [(_, a), (_, b), (_, c)] = self.factors;
        // A shift by at least half of the bits is undone by itself.
        let mut v = value.wrapping_mul(c) & BITS;
        v ^= v >> 13;
        v = v.wrapping_mul(b) & BITS;
        v ^= v >> 12;
        (v.wrapping_mul(a) ^ self.mask) & BITS
    }
}

/// The inverse of an odd number modulo 2^24 (Newton's iteration doubles the right bits).
const fn inverse(odd: u32) -> u32 {
    let mut x = odd;
    let mut round = 0;
    while round < 4 {
        x = x.wrapping_mul(2u32.wrapping_sub(odd.wrapping_mul(x)));
        round += 1;
    }
    x & BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn a_permutation_is_undone(seed: [u8; 32], value in 0..=BITS) {
            let permutation = Permutation::new(&mut Random::new(seed));
            let image = permutation.apply(value);
            proptest::prop_assert!(image <= BITS);
            proptest::prop_assert_eq!(permutation.undo(image), value);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let (mut a, mut b, mut c) = (Random::new([1; 32]), Random::new([1; 32]), Random::new([2; 32]));
        let numbers: Vec<_> = (0..8).map(|_| a.next_u64()).collect();
        assert!(numbers.iter().all(|&n| n == b.next_u64()));
        assert!(numbers.iter().any(|&n| n != c.next_u64()));
        assert!((0..100).all(|_| a.below(7) < 7));
        assert_ne!(Random::new([0; 32]).next_u64(), 0);
    }
}
