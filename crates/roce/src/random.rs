// SPDX-License-Identifier: MIT OR Apache-2.0

//! Unpredictable numbers, from a seed that the driver of the engine provides.
//!
//! A peer sees the QPN, keys and starting PSN of each of its connections; those of other connections must not be
//! predictable from them. So all numbers are SipHash-2-4 in counter mode, with a key derived from the seed; codes
//! of slots come from a permutation whose tables are drawn from it.
//!
//! Deterministic: the same seed gives the same numbers, so that a simulation can be replayed.

use alloc::vec::Vec;
use core::hash::Hasher as _;

use siphasher::sip::SipHasher24;

use fallible::AllocError;
use fallible::vec;

/// Returns SipHash-2-4 of three words: a pseudo-random function for anyone without the key.
pub(crate) fn siphash(key: [u64; 2], input: [u64; 3]) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(key[0], key[1]);
    for word in input {
        hasher.write_u64(word);
    }
    hasher.finish()
}

/// Derives a key of [`siphash`] from all 32 bytes of a seed: the second half, hashed with the first as key.
pub(crate) fn key_of(seed: &[u8; 32]) -> [u64; 2] {
    let word = |bytes: &[u8]| bytes.iter().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
    let (first, second) = seed.split_at(16);
    let (a, b) = first.split_at(8);
    let (c, d) = second.split_at(8);
    let outer = [word(a), word(b)];
    [siphash(outer, [0, word(c), word(d)]), siphash(outer, [1, word(c), word(d)])]
}

/// A deterministic random number generator.
pub(crate) struct Random {
    key: [u64; 2],
    count: u64,
}

impl Random {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self { key: key_of(&seed), count: 0 }
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.count = self.count.wrapping_add(1);
        siphash(self.key, [0, self.count, 0])
    }

    pub(crate) fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// Returns a number less than `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        (u64::from(self.next_u32()).wrapping_mul(u64::from(bound)) >> 32) as u32
    }

    /// Returns an independent generator.
    pub(crate) fn fork(&mut self) -> Self {
        let mut seed = [0; 32];
        for bytes in seed.chunks_exact_mut(8) {
            bytes.copy_from_slice(&self.next_u64().to_le_bytes());
        }
        Self::new(seed)
    }
}

/// A keyed pseudo-random permutation of the 24-bit numbers, or of those of a smaller even number of bits: a Feistel network over
/// halves of 12 bits, or less, each round with its own secret function. Every packet needs a lookup, so the functions are tables: four accesses, about
/// 10 ns, 32 KiB in total.
///
/// With four rounds (Luby and Rackoff) an observer of some outputs cannot distinguish it from a random permutation.
/// It hides the slot of a code and the next code; it is not a cipher for other purposes.
pub(crate) struct Permutation {
    /// The function tables of all rounds, one after the other.
    rounds: Vec<u16>,
    /// Bits of a half, at most [`HALF`].
    half: u32,
}

/// Miri, which takes seconds for each table, gets by with one round of which few values are drawn: a permutation, too.
const ROUNDS: usize = if cfg!(miri) { 1 } else { 4 };
const DRAWN: usize = if cfg!(miri) { 64 } else { HALVES };
const HALF: u32 = 12;
const HALF_MASK: u32 = (1 << HALF) - 1;
const HALVES: usize = 1 << HALF;

impl Permutation {
    /// Creates a permutation of the numbers of `bits` bits, an even number up to 24.
    pub(crate) fn try_new(random: &mut Random, bits: u32) -> Result<Self, AllocError> {
        #[cfg(not(miri))]
        let mut rounds = vec::filled(ROUNDS * HALVES, 0)?;
        // One by one, it takes Miri a second to write them.
        #[cfg(miri)]
        let mut rounds = alloc::vec![0; ROUNDS * HALVES];
        for function in rounds.chunks_exact_mut(HALVES) {
            // A random number for each value of either half of the argument. The two are added because the network
            // itself uses XOR: so they do not cancel out.
            let (lower, upper) = (draw(random), draw(random));
            let sums = upper.iter().flat_map(|upper| lower.iter().map(|lower| lower.wrapping_add(*upper)));
            for (value, sum) in function.iter_mut().take(DRAWN).zip(sums) {
                *value = sum & HALF_MASK as u16;
            }
        }
        Ok(Self { rounds, half: (bits / 2).min(HALF) })
    }

    /// Returns whether it permutes all 24-bit numbers.
    #[inline]
    pub(crate) fn is_of_all_bits(&self) -> bool {
        self.half == HALF
    }

    /// Returns the image of `value`, which has no more bits than the permutation.
    pub(crate) fn apply(&self, value: u32) -> u32 {
        let (half, mask) = (self.half, (1 << self.half) - 1);
        self.functions().into_iter().flatten().fold(value, |value, function| {
            let (left, right) = (value >> half, value & mask);
            right << half | left ^ at(function, right) & mask
        })
    }

    /// Inverse of [`Permutation::apply`], for a permutation [of all bits](Self::is_of_all_bits): a lookup of each packet.
    #[inline]
    pub(crate) fn undo(&self, value: u32) -> u32 {
        self.undo_halves(value, HALF)
    }

    /// Inverse of [`Permutation::apply`], for a permutation of any number of bits.
    #[inline(never)]
    pub(crate) fn undo_fewer(&self, value: u32) -> u32 {
        self.undo_halves(value, self.half)
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "so that a constant number of bits is one in the code")]
    fn undo_halves(&self, value: u32, half: u32) -> u32 {
        let Some(functions) = self.functions() else { return value };
        let mask = (1 << half) - 1;
        functions.iter().rev().fold(value, |value, function| {
            let (right, mixed) = (value >> half, value & mask);
            (mixed ^ at(function, right) & mask) << half | right
        })
    }

    /// Returns the function tables as arrays of constant size, which avoids bounds checks. Never `None`.
    #[inline]
    fn functions(&self) -> Option<&[[u16; HALVES]; ROUNDS]> {
        self.rounds.as_chunks().0.first_chunk()
    }
}

/// Draws a number for each 6-bit value.
fn draw(random: &mut Random) -> [u16; 64] {
    let mut numbers = [0; 64];
    for number in &mut numbers {
        *number = random.next_u32() as u16;
    }
    numbers
}

#[inline]
fn at(function: &[u16; HALVES], half: u32) -> u32 {
    function.get((half & HALF_MASK) as usize).copied().unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BITS: u32 = 24;

    fn permutation(seed: u8) -> Permutation {
        Permutation::try_new(&mut Random::new([seed; 32]), BITS).unwrap()
    }

    #[test]
    fn fewer_bits_are_permuted_among_themselves() {
        for bits in [8, 16] {
            let permutation = Permutation::try_new(&mut Random::new([2; 32]), bits).unwrap();
            let images: std::collections::HashSet<u32> =
                (0..1 << bits).map(|value| permutation.apply(value)).collect();
            assert_eq!(images.len(), 1 << bits);
            assert!(images.iter().all(|&image| image >> bits == 0));
            assert!((0..1 << bits).all(|value| permutation.undo_fewer(permutation.apply(value)) == value));
        }
    }

    proptest::proptest! {
        #[test]
        fn undo_is_the_inverse_of_apply(seed: u8, value in 0u32..1 << BITS) {
            let permutation = permutation(seed);
            let image = permutation.apply(value);
            proptest::prop_assert!(image < 1 << BITS);
            proptest::prop_assert_eq!(permutation.undo(image), value);
            proptest::prop_assert_eq!(permutation.undo_fewer(image), value);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_gives_others() {
        let numbers = |seed: [u8; 32]| {
            let mut random = Random::new(seed);
            std::array::from_fn::<_, 8, _>(|_| random.next_u64())
        };
        assert_eq!(numbers([1; 32]), numbers([1; 32]));
        for byte in [0, 7, 8, 15, 16, 31] {
            let mut other = [1; 32];
            other[byte] ^= 0x80;
            assert_ne!(numbers([1; 32]), numbers(other), "byte {byte} of the seed has no effect");
        }
        let mut random = Random::new([0; 32]);
        assert!((0..100).all(|_| random.below(7) < 7));
        assert_ne!(random.fork().next_u64(), random.next_u64());
    }

    /// Strict avalanche criterion: each input bit flips each output bit half of the time. (A multiplication, for
    /// example, does not affect lower bits.)
    #[test]
    fn every_bit_of_a_code_depends_on_every_bit_of_its_slot() {
        const TRIES: u32 = 4000;
        let permutation = permutation(3);
        let mut random = Random::new([9; 32]);
        let mut flips = [[0_u32; BITS as usize]; BITS as usize];
        for _ in 0..TRIES {
            let value = random.next_u32() >> 8;
            for (input, row) in flips.iter_mut().enumerate() {
                let changed = permutation.apply(value) ^ permutation.apply(value ^ 1 << input);
                for (output, count) in row.iter_mut().enumerate() {
                    *count += changed >> output & 1;
                }
            }
        }
        // 2000 on average; six standard deviations are 190.
        let expected = TRIES / 2 - 200..TRIES / 2 + 200;
        for (input, row) in flips.iter().enumerate() {
            for (output, count) in row.iter().enumerate() {
                assert!(expected.contains(count), "bit {input} flips bit {output} {count} times of {TRIES}");
            }
        }
    }

    /// Slot numbers are consecutive: the difference of two codes must not reveal the difference of their slots.
    #[test]
    fn differences_of_consecutive_codes_do_not_repeat() {
        let permutation = permutation(5);
        let mut differences: Vec<_> = (0..4096)
            .map(|slot| permutation.apply(slot + 1).wrapping_sub(permutation.apply(slot)) % (1 << BITS))
            .collect();
        differences.sort_unstable();
        differences.dedup();
        // Of 4096 random differences, 0.5 duplicates are expected.
        assert!(differences.len() >= 4090, "only {} differences", differences.len());
    }
}
