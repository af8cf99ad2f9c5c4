// SPDX-License-Identifier: MIT OR Apache-2.0

//! Faults of a wire, decided by a seed.

use std::time::Duration;

/// Faults of one direction, as probabilities per frame. At most one fault happens to a frame.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Faults {
    /// The frame is lost.
    pub loss: f64,
    /// The frame arrives twice, the second time up to `jitter` later.
    pub duplication: f64,
    /// One bit after the Ethernet header is flipped.
    pub corruption: f64,
    /// The frame arrives up to `jitter` later, so that others overtake it.
    pub reordering: f64,
    /// The frame, if it is ECN-capable, is marked as having met congestion (CE), as by a switch whose queue is long.
    pub marking: f64,
    /// Maximum delay of a frame.
    pub jitter: Duration,
}

impl Faults {
    /// No faults.
    pub const NONE: Self = Self {
        loss: 0.0,
        duplication: 0.0,
        corruption: 0.0,
        reordering: 0.0,
        marking: 0.0,
        jitter: Duration::from_micros(100),
    };

    /// Returns the fault of the `number`-th frame of direction `direction`.
    #[must_use]
    pub fn fate(&self, seed: u64, direction: usize, number: u64) -> Fate {
        if *self == (Self { jitter: self.jitter, ..Self::NONE }) {
            return Fate::Delivered;
        }
        // A generator per frame: a frame's fault does not depend on those of others.
        let seed = mix(mix(seed ^ (direction as u64 + 1).rotate_left(56)) ^ number);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut draw = random.f64();
        let mut hits = |probability: f64| {
            let hit = draw < probability;
            draw -= probability;
            hit
        };
        if hits(self.loss) {
            Fate::Lost
        } else if hits(self.duplication) {
            Fate::Duplicated { delay: self.hold(&mut random) }
        } else if hits(self.corruption) {
            Fate::Corrupted { bit: random.u64(..) }
        } else if hits(self.reordering) {
            Fate::Delayed { delay: self.hold(&mut random) }
        } else if hits(self.marking) {
            Fate::Marked
        } else {
            Fate::Delivered
        }
    }

    fn hold(&self, random: &mut fastrand::Rng) -> u64 {
        random.u64(1..=nanos(self.jitter).max(1))
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self::NONE
    }
}

/// The fault of a frame. Delays are in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Delivered,
    Lost,
    Duplicated {
        delay: u64,
    },
    /// The bit to flip, modulo the bits after the Ethernet header.
    Corrupted {
        bit: u64,
    },
    Delayed {
        delay: u64,
    },
    Marked,
}

/// Bytes of an Ethernet header. Bits are not flipped there: the frame would go to another address or protocol.
const ETHERNET_HEADER: usize = 14;

/// Flips one bit after the Ethernet header.
pub(super) fn flip(frame: &mut [u8], bit: u64) {
    let Some(body) = frame.get_mut(ETHERNET_HEADER..).filter(|body| !body.is_empty()) else { return };
    let bit = (bit % (body.len() as u64 * 8)) as usize;
    body[bit / 8] ^= 1 << (bit % 8);
}

/// Sets CE in an IP packet whose sender is ECN-capable. Returns whether it is. (RFC 3168, section 5)
pub(super) fn mark(frame: &mut [u8]) -> bool {
    const CE: u8 = 3;
    let Some((ethernet, packet)) = frame.split_at_mut_checked(ETHERNET_HEADER) else { return false };
    match (&ethernet[12..], packet) {
        // The type of service, and the header with its checksum.
        ([0x08, 0x00], [_, service, .., _]) if *service & CE != 0 => {
            let before = *service;
            *service |= CE;
            let added = *service - before;
            let Some([high, low]) = frame.get_mut(ETHERNET_HEADER + 10..ETHERNET_HEADER + 12) else {
                return false;
            };
            // The sum of the header's words in ones' complement grows by `added`, its complement falls. (RFC 1624)
            let (checksum, borrow) = u16::from_be_bytes([*high, *low]).overflowing_sub(added.into());
            [*high, *low] = checksum.wrapping_sub(borrow.into()).to_be_bytes();
            true
        }
        // The traffic class follows the version, 4 bits each.
        ([0x86, 0xdd], [_, class, ..]) if *class >> 4 & CE != 0 => {
            *class |= CE << 4;
            true
        }
        _ => false,
    }
}

/// Whole nanoseconds of a duration.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The finalizer of SplitMix64: every input bit reaches every output bit.
fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
