// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive side scaling and hash reports: what the driver sets by commands, and the hash and the receive queue of a frame. (virtio §13)

use crate::{
    registers::Misuse,
    toeplitz::{self, KEY_LEN},
};

/// `hash_report` of a frame without a hash.
const NO_HASH: u16 = 0;

/// Capabilities of the device, as its configuration states them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RssLimits {
    pub key_len: u8,
    /// Entries of the indirection table.
    pub entries: u16,
    /// Types of hashes.
    pub types: u32,
}

impl Default for RssLimits {
    fn default() -> Self {
        Self { key_len: KEY_LEN as u8, entries: 128, types: 0x3f }
    }
}

/// Which hashes the device computes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hashing {
    pub types: u32,
    key: [u8; KEY_LEN],
}

/// How the device steers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scaling {
    pub hashing: Hashing,
    /// The pair of frames without a hash.
    unclassified: u16,
    /// The pair of each value of a hash's low bits.
    pub table: Vec<u16>,
    /// Pairs that may send.
    pub transmit_pairs: u16,
}

impl Hashing {
    /// Reads the data of HASH_CONFIG.
    pub fn parse(mut data: &[u8], limits: RssLimits) -> Result<Self, Misuse> {
        let types = u32::from_le_bytes(array(&mut data)?);
        let reserved: [u8; 8] = array(&mut data)?;
        if reserved != [0; 8] {
            return Err(broken("the reserved field of HASH_CONFIG is not zero"));
        }
        Self::parse_key(types, data, limits)
    }

    fn parse_key(types: u32, mut data: &[u8], limits: RssLimits) -> Result<Self, Misuse> {
        let [len] = array(&mut data)?;
        if types & !limits.types != 0 {
            return Err(broken(&format!(
                "hash types {types:#x} are set, but the device has {:#x}",
                limits.types
            )));
        }
        if usize::from(len) != data.len() || len > limits.key_len {
            let given = data.len();
            return Err(broken(&format!("{given} bytes of a hash key of {len}; at most {}", limits.key_len)));
        }
        if len == 0 && types != 0 {
            return Err(broken("hashes without a key"));
        }
        let mut key = [0; KEY_LEN];
        key.iter_mut().zip(data).for_each(|(to, from)| *to = *from);
        Ok(Self { types, key })
    }

    fn of(&self, frame: &[u8]) -> Option<(u32, u32)> {
        toeplitz::hash(frame, self.types, &self.key)
    }

    /// Returns `hash_value` and `hash_report` of a frame.
    pub fn report(&self, frame: &[u8]) -> (u32, u16) {
        self.of(frame).map_or((0, NO_HASH), |(kind, value)| (value, kind.trailing_zeros() as u16 + 1))
    }
}

impl Scaling {
    /// Reads the data of RSS_CONFIG, for a device with `pairs` pairs.
    pub fn parse(mut data: &[u8], limits: RssLimits, pairs: u16) -> Result<Self, Misuse> {
        let types = u32::from_le_bytes(array(&mut data)?);
        let entries = 1 + u32::from(word(&mut data)?);
        let unclassified = word(&mut data)?;
        if !entries.is_power_of_two() || entries > limits.entries.into() {
            return Err(broken(&format!(
                "an indirection table of {entries} entries; at most {}",
                limits.entries
            )));
        }
        let table = (0..entries).map(|_| word(&mut data)).collect::<Result<Vec<_>, _>>()?;
        let transmit_pairs = word(&mut data)?;
        if !(1..=pairs).contains(&transmit_pairs) {
            return Err(broken(&format!("{transmit_pairs} transmit queues are used of {pairs}")));
        }
        let hashing = Hashing::parse_key(types, data, limits)?;
        Ok(Self { hashing, unclassified, table, transmit_pairs })
    }

    /// Returns the number of pairs that frames are received by, or may be sent by.
    pub fn pairs(&self) -> usize {
        let receive =
            self.table.iter().chain([&self.unclassified]).max().map_or(0, |&last| usize::from(last) + 1);
        receive.max(self.transmit_pairs.into())
    }

    /// Returns the pair of a received frame.
    pub fn pair_of(&self, frame: &[u8]) -> usize {
        let entry = self.hashing.of(frame).map(|(_, hash)| hash as usize & (self.table.len() - 1));
        entry.map_or(self.unclassified, |entry| self.table[entry]).into()
    }
}

fn array<const LEN: usize>(data: &mut &[u8]) -> Result<[u8; LEN], Misuse> {
    let (first, rest) = data.split_first_chunk().ok_or_else(|| broken("a command is too short"))?;
    *data = rest;
    Ok(*first)
}

fn word(data: &mut &[u8]) -> Result<u16, Misuse> {
    array(data).map(u16::from_le_bytes)
}

fn broken(what: &str) -> Misuse {
    Misuse::ring(format!("{what} (virtio 5.1.6.5.7)"))
}
