//! The project's own probe: what the packaged tools do not show.
//!
//! The client acts, one [`Scenario`] a run, and the server watches and says what it saw. Everything on the
//! wire is big-endian; the messages are in [`message`]. Before it accepts, the server has a receive of
//! [`receive_bytes`] posted; the client has receives for control messages only.
//!
//! Data are a function of item and place ([`pattern`]), the items a ladder of sizes ([`ladder`]). After each
//! item the server sends a verdict; at the end the client disconnects, and the server waits for that.

mod client;
pub mod message;
mod server;

use crate::Error;

pub use client::client;
pub use server::serve;

/// Where the server listens.
pub const PORT: u16 = 7471;

/// What a server refuses with.
const NO_THANKS: &[u8] = b"no thanks";

/// Sizes of the items, in bytes.
const LADDER: [u32; 13] = [0, 1, 3, 64, 1023, 1024, 1025, 4095, 4096, 4097, 65536, 1 << 20, 8 << 20];

/// Number and bytes of the item of [`Scenario::Invalidate`].
const LENT_ITEM: (u32, usize) = (1, 256);
/// The item of scenarios that have but one.
const ONE_ITEM: u32 = 3;

/// Bytes that a server's receive has beyond the longest item.
const MARGIN: usize = 64;
/// Bytes of the shortest window that a server lends.
const SHORTEST_WINDOW: usize = 4096;
/// Bytes that a server lends at most.
const LONGEST: u32 = 16 << 20;

/// One run of the probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    pub scenario: Scenario,
    /// Bytes of the longest item; longer ones are left out.
    pub length: u32,
    /// Connections of [`Scenario::Srq`] and [`Scenario::Many`]; items of [`Scenario::Hold`], 0 for no end.
    pub count: u32,
}

/// What happens in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Scenario {
    /// The client sends every item.
    Send = 1,
    /// The client writes every item into the server's memory.
    Write = 2,
    /// The client reads so much of the server's memory.
    Read = 3,
    /// The server lends memory by a key of its own, and the client invalidates the key.
    Invalidate = 4,
    /// The server refuses.
    Reject = 5,
    /// A write with a wrong key.
    BadKey = 6,
    /// A write that goes beyond the end.
    BadRange = 7,
    /// A read with a wrong key.
    ReadKey = 8,
    /// A read that goes beyond the end.
    ReadRange = 9,
    /// The server disconnects after one item.
    Leave = 10,
    /// The server posts its receive late.
    Rnr = 11,
    /// Many connections at once that send, to a server with one shared receive queue.
    Srq = 12,
    /// Many connections at once that send and write.
    Many = 13,
    /// One item after the other until somebody dies.
    Hold = 14,
    /// A write to memory that may not be written.
    NoWrite = 15,
    /// A read of memory that may not be read.
    NoRead = 16,
    /// A message longer than the receive it meets.
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

    /// Whether the client does what the server must refuse.
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

    pub fn number(self) -> u8 {
        self as u8
    }

    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|scenario| scenario.number() == number)
    }
}

impl Plan {
    /// Connections of one run.
    pub fn connections(&self) -> u32 {
        match self.scenario {
            Scenario::Srq | Scenario::Many => self.count.max(1),
            _ => 1,
        }
    }
}

/// Bytes of every receive of a server.
pub fn receive_bytes(length: u32) -> usize {
    length as usize + MARGIN
}

/// Bytes of the memory that a server lends.
pub fn window_bytes(length: u32) -> usize {
    receive_bytes(length).max(SHORTEST_WINDOW)
}

/// Numbers and sizes of the items that are not longer than `length`.
pub fn ladder(length: u32) -> impl Iterator<Item = (u32, usize)> {
    (0..).zip(LADDER).filter(move |(_, size)| *size <= length).map(|(item, size)| (item, size as usize))
}

/// The first `length` bytes of an item.
pub fn pattern(item: u32, length: usize) -> Vec<u8> {
    let from = item.wrapping_mul(31);
    (0..length as u32).map(|at| at.wrapping_mul(7).wrapping_add(at >> 8).wrapping_add(from) as u8).collect()
}

/// What a side has seen of one connection.
#[derive(Default)]
pub(super) struct Seen {
    pub items: u64,
    pub bytes: u64,
    pub notes: Vec<String>,
}

impl Seen {
    /// The connection may break where that is what a scenario waits for.
    fn settle(mut self, scenario: Scenario, outcome: Result<(), Error>) -> Result<Self, Error> {
        match outcome {
            Err(error) if scenario == Scenario::Hold && error.is_connection_loss() => {
                self.notes.push(format!("after {} items: {error}", self.items));
                Ok(self)
            }
            outcome => outcome.map(|()| self),
        }
    }

    fn item(&mut self, length: usize) {
        self.items += 1;
        self.bytes += length as u64;
    }
}

/// What comes of a request that the peer refuses: that it failed so, or what is wrong.
fn failed_as<T>(
    outcome: Result<T, Error>,
    expected: &[crate::Status],
    what: &'static str,
) -> Result<String, Error> {
    match outcome {
        Err(Error::Connection(status)) if expected.contains(&status) => Ok(format!("{what}: {status}")),
        Err(error) => Err(error),
        Ok(_) => Err(Error::Protocol("the peer lets pass what it must refuse")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_survives_the_way_over_the_wire() {
        for scenario in Scenario::ALL {
            assert_eq!(Scenario::from_number(scenario.number()), Some(scenario));
        }
        assert_eq!([0, 18, 255].map(Scenario::from_number), [None; 3]);
    }

    #[test]
    fn items_keep_their_numbers_when_longer_ones_are_left_out() {
        assert_eq!(ladder(64).collect::<Vec<_>>(), [(0, 0), (1, 1), (2, 3), (3, 64)]);
        assert_eq!(ladder(8 << 20).last(), Some((12, 8 << 20)));
    }

    #[test]
    fn a_packet_in_the_wrong_place_shows_in_the_pattern() {
        let item = pattern(3, 1 << 20);
        assert_eq!(item[..3], [93, 100, 107]);
        let (first, mut rest) = item.split_at(1024);
        while let Some((packet, more)) = rest.split_at_checked(1024) {
            if packet == first {
                // The pattern repeats, but not sooner than any window of packets.
                assert!(item.len() - rest.len() >= 64 << 10);
                return;
            }
            rest = more;
        }
    }
}
