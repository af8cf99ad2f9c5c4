// SPDX-License-Identifier: MIT OR Apache-2.0

//! The plan of a run: its scenario and the items that it transfers.

use alloc::vec::Vec;

/// The default port of the server.
pub const PORT: u16 = 7471;

/// Private data of a rejection.
pub(super) const REJECT_DATA: &[u8] = b"no thanks";

/// Sizes of the items in bytes.
pub(super) const LADDER: [u32; 13] =
    [0, 1, 3, 64, 1023, 1024, 1025, 4095, 4096, 4097, 65536, 1 << 20, 8 << 20];

/// Number and length in bytes of the item of [`Scenario::Invalidate`].
pub(super) const INVALIDATED_ITEM: (u32, usize) = (1, 256);
/// The item of scenarios with a single item.
pub(super) const ONE_ITEM: u32 = 3;

/// Bytes of a server's receive in addition to the longest item.
pub(super) const MARGIN: usize = 64;
/// Minimum memory of the server in bytes.
pub(super) const SHORTEST_WINDOW: usize = 4096;
/// Maximum memory of the server in bytes.
pub(super) const LONGEST: u32 = 16 << 20;

/// One run of the probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    pub scenario: Scenario,
    /// Length of the longest item in bytes; longer items are skipped.
    pub length: u32,
    /// Number of connections of [`Scenario::Srq`] and [`Scenario::Many`]; of items of [`Scenario::Hold`], 0 for no limit.
    pub count: u32,
}

/// The actions of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Scenario {
    /// The client sends every item.
    Send = 1,
    /// The client writes every item into the server's memory.
    Write = 2,
    /// The client reads the size of every item from the server's memory.
    Read = 3,
    /// The server fast-registers memory, and the client invalidates its key.
    Invalidate = 4,
    /// The server rejects the connection.
    Reject = 5,
    /// A write with a wrong key.
    BadKey = 6,
    /// A write beyond the end of the memory.
    BadRange = 7,
    /// A read with a wrong key.
    ReadKey = 8,
    /// A read beyond the end of the memory.
    ReadRange = 9,
    /// The server disconnects after one item.
    Leave = 10,
    /// The server posts its receive late.
    Rnr = 11,
    /// Many concurrent connections that send to a server with one shared receive queue.
    Srq = 12,
    /// Many concurrent connections that send and write.
    Many = 13,
    /// One item after the other until the connection fails.
    Hold = 14,
    /// A write to memory without remote write access.
    NoWrite = 15,
    /// A read of memory without remote read access.
    NoRead = 16,
    /// A message longer than its receive.
    TooLong = 17,
}

impl Scenario {
    pub const ALL: [Self; 17] = [
        Self::Send,
        Self::Write,
        Self::Read,
        Self::Invalidate,
        Self::Reject,
        Self::BadKey,
        Self::BadRange,
        Self::ReadKey,
        Self::ReadRange,
        Self::Leave,
        Self::Rnr,
        Self::Srq,
        Self::Many,
        Self::Hold,
        Self::NoWrite,
        Self::NoRead,
        Self::TooLong,
    ];

    /// Returns whether the client makes a request that the server must reject.
    #[must_use]
    pub fn is_violation(self) -> bool {
        matches!(
            self,
            Self::BadKey
                | Self::BadRange
                | Self::ReadKey
                | Self::ReadRange
                | Self::NoWrite
                | Self::NoRead
                | Self::TooLong
        )
    }

    /// Returns the number in messages.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Returns the scenario with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|scenario| scenario.number() == number)
    }
}

impl Plan {
    /// Returns the number of connections of one run.
    #[must_use]
    pub fn connections(&self) -> u32 {
        match self.scenario {
            Scenario::Srq | Scenario::Many => self.count.max(1),
            _ => 1,
        }
    }
}

/// Returns the length of the receives of a server in bytes.
#[must_use]
pub fn receive_bytes(length: u32) -> usize {
    length as usize + MARGIN
}

/// Returns the length of the memory of a server in bytes.
#[must_use]
pub fn window_bytes(length: u32) -> usize {
    receive_bytes(length).max(SHORTEST_WINDOW)
}

/// Returns numbers and sizes of the items up to `length` bytes.
pub fn ladder(length: u32) -> impl Iterator<Item = (u32, usize)> {
    (0..).zip(LADDER).filter(move |(_, size)| *size <= length).map(|(item, size)| (item, size as usize))
}

/// Returns the first `length` bytes of an item.
#[must_use]
pub fn pattern(item: u32, length: usize) -> Vec<u8> {
    let from = item.wrapping_mul(31);
    (0..length as u32).map(|at| at.wrapping_mul(7).wrapping_add(at >> 8).wrapping_add(from) as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenario_numbers_are_unique() {
        for scenario in Scenario::ALL {
            assert_eq!(Scenario::from_number(scenario.number()), Some(scenario));
        }
        assert_eq!([0, 18, 255].map(Scenario::from_number), [None; 3]);
    }

    #[test]
    fn items_keep_their_numbers_when_longer_ones_are_skipped() {
        assert_eq!(ladder(64).collect::<Vec<_>>(), [(0, 0), (1, 1), (2, 3), (3, 64)]);
        assert_eq!(ladder(8 << 20).last(), Some((12, 8 << 20)));
    }

    #[test]
    fn pattern_differs_between_packets() {
        let item = pattern(3, 1 << 20);
        assert_eq!(item[..3], [93, 100, 107]);
        let (first, mut rest) = item.split_at(1024);
        while let Some((packet, more)) = rest.split_at_checked(1024) {
            if packet == first {
                // The pattern repeats, but only after more packets than can be outstanding.
                assert!(item.len() - rest.len() >= 64 << 10);
                return;
            }
            rest = more;
        }
    }
}
