// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pseudo-random function of the CM: hashes and identifiers that peers cannot predict.
//!
//! One primitive, SipHash-2-4 under a secret key, hashes table keys that peers choose and permutes slot numbers into
//! communication IDs. The same seed gives the same numbers. [`Random`](crate::random::Random) generates those that are drawn one
//! after the other.

use crate::number_prefix::NumberPrefix;
use crate::random::{key_of, siphash};

/// A keyed pseudo-random function.
pub(super) struct Prf {
    key: [u64; 2],
    /// Of the permuted numbers.
    prefix: NumberPrefix,
    /// Bits of a half of what is permuted.
    half: u32,
}

/// Domain separation: outputs for equal inputs of different uses are unrelated. 0 is [`Random`](crate::random::Random)'s.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Use {
    Index = 2,
    Permutation = 3,
}

impl Prf {
    pub(super) fn new(seed: &[u8; 32], prefix: NumberPrefix) -> Self {
        Self { key: key_of(seed), prefix, half: (32 - prefix.bits()) / 2 }
    }

    /// Returns the hash of a key of an [`Index`](super::index::Index).
    pub(super) fn hash(&self, a: u64, b: u64) -> u32 {
        siphash(self.key, [Use::Index as u64, a, b]) as u32
    }

    /// Returns the hash of an address.
    pub(super) fn hash_ip(&self, ip: core::net::IpAddr) -> u32 {
        let bits = match ip {
            core::net::IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
            core::net::IpAddr::V6(ip) => ip.to_bits(),
        };
        self.hash((bits >> 64) as u64, bits as u64)
    }

    /// Permutes the numbers of as many bits as the prefix leaves of 32, and puts the prefix before them: a Feistel network of four
    /// rounds. Further bits of `value` have no effect.
    pub(super) fn permute(&self, value: u32) -> u32 {
        let mask = self.mask();
        let permuted = (0..4).fold(value, |value, round| {
            let (left, right) = (value >> self.half & mask, value & mask);
            right << self.half | left ^ self.round(round, right)
        });
        self.prefix.before(permuted, 32)
    }

    /// Inverse of [`Prf::permute`]. The prefix has no effect.
    pub(super) fn unpermute(&self, value: u32) -> u32 {
        let mask = self.mask();
        (0..4).rev().fold(value, |value, round| {
            let (right, mixed) = (value >> self.half & mask, value & mask);
            (mixed ^ self.round(round, right)) << self.half | right
        })
    }

    /// Returns the uppermost bit of what [`Prf::permute`] permutes.
    pub(super) const fn top_bit(&self) -> u32 {
        1 << (self.half * 2 - 1)
    }

    /// Returns the bits of a half.
    const fn mask(&self) -> u32 {
        (1 << self.half) - 1
    }

    fn round(&self, round: u64, half: u32) -> u32 {
        siphash(self.key, [Use::Permutation as u64, round, u64::from(half)]) as u32 & self.mask()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_identifiers_and_another_gives_others() {
        let numbers = |seed: [u8; 32]| {
            let prf = Prf::new(&seed, NumberPrefix::NONE);
            std::array::from_fn::<_, 8, _>(|value| (prf.permute(value as u32), prf.hash(value as u64, 0)))
        };
        assert_eq!(numbers([7; 32]), numbers([7; 32]));
        for byte in [0, 15, 31] {
            let mut other = [7; 32];
            other[byte] ^= 1;
            assert_ne!(numbers([7; 32]), numbers(other), "byte {byte} of the seed has no effect");
        }
    }

    #[test]
    fn keys_and_addresses_have_different_hashes_under_each_seed() {
        let hashes = |seed| {
            let prf = Prf::new(&[seed; 32], NumberPrefix::NONE);
            let keys = (0..100).flat_map(|key| [prf.hash(key, 0), prf.hash(0, key << 32 | 1)]);
            let v4 = (0..100).map(|last| prf.hash_ip([192, 0, 2, last].into()));
            let v6 = (0..100).map(|last| prf.hash_ip([0x2001, 0xdb8, last, 0, 0, 0, 0, 0].into()));
            keys.chain(v4).chain(v6).collect::<HashSet<u32>>()
        };
        let (one, other) = (hashes(1), hashes(2));
        assert_eq!((one.len(), other.len()), (400, 400));
        assert!(one.is_disjoint(&other));
    }

    #[test]
    fn permutation_is_injective_and_invertible() {
        let prf = Prf::new(&[1; 32], NumberPrefix::NONE);
        let permuted: HashSet<u32> = (0..10_000).map(|value| prf.permute(value)).collect();
        assert_eq!(permuted.len(), 10_000);
        assert!((0..10_000).all(|value| prf.unpermute(prf.permute(value)) == value));
        // Consecutive numbers are not permuted to consecutive ones.
        assert!(permuted.iter().filter(|&&value| value < 1 << 16).count() < 10);
    }

    #[test]
    fn a_prefix_leaves_the_other_bits_to_be_permuted() {
        let prf = Prf::new(&[1; 32], NumberPrefix::new(0x2B, 6).unwrap());
        let permuted: HashSet<u32> = (0..10_000).map(|value| prf.permute(value)).collect();
        assert_eq!(permuted.len(), 10_000);
        assert!(permuted.iter().all(|id| id >> 26 == 0x2B));
        assert!((0..10_000).all(|value| prf.unpermute(prf.permute(value)) == value));
        assert_eq!(prf.top_bit(), 1 << 25);
        assert_eq!(prf.permute(7 | 1 << 26), prf.permute(7), "further bits have no effect");
    }
}
