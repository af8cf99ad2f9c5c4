// SPDX-License-Identifier: MIT OR Apache-2.0

//! Options, progress and results of a file transfer.

use alloc::boxed::Box;
use alloc::string::String;
use core::time::Duration;

use crate::stats::RequestStats;
use crate::{Cause, Error};

/// A SHA-256 digest.
pub type Digest = [u8; 32];

/// Options of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Maximum memory of the serving side in bytes, at least 1; the lower value of both sides is used.
    pub segment: usize,
    /// Length of one RDMA Write or Read in bytes; at least 1, below 4 GiB.
    pub chunk: usize,
    /// Maximum number of outstanding RDMA requests, at least 1.
    pub outstanding: u32,
    /// Time that the serving side waits for a connection.
    pub timeout: Duration,
}

/// The source of a file.
pub trait Source {
    /// Returns the size in bytes, which must not change.
    fn len(&self) -> u64;

    /// Fills `into` from `offset`.
    ///
    /// # Errors
    /// If the source cannot be read.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Cause>;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The progress of a transfer. Reported on the consumer's thread at `PASSIVE_LEVEL`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    pub phase: Phase,
    /// Bytes of the file that this phase has completed.
    pub done: u64,
    /// Size of the file in bytes.
    pub total: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// To the serving side, by RDMA Write.
    Write,
    /// Back, by RDMA Read.
    Read,
}

/// The result of one side.
#[derive(Clone, Default, Debug)]
pub struct Report {
    /// The file's name, as announced.
    pub name: String,
    /// Bytes that have arrived: written to the serving side, or read back to the copying side.
    pub bytes: u64,
    /// SHA-256 of the file that this side has read or received, if complete.
    pub digest: Option<Digest>,
    /// SHA-256 of the data that was read back, if complete; copying side only.
    pub returned: Option<Digest>,
    /// Duration of the writes; copying side only.
    pub write: Duration,
    /// Duration of the reads; copying side only.
    pub read: Duration,
    pub stats: RequestStats,
}

impl Report {
    /// Returns the report of a transfer with this outcome.
    ///
    /// # Errors
    /// The error of the transfer, with this report.
    pub fn of(self, outcome: Result<(), Error>) -> Result<Self, Box<Failure>> {
        match outcome {
            Ok(()) => Ok(self),
            Err(error) => Err(Box::new(Failure { error, report: self })),
        }
    }
}

/// A failed transfer, with its result so far.
#[derive(Debug)]
pub struct Failure {
    pub error: Error,
    pub report: Report,
}

impl Default for Options {
    fn default() -> Self {
        Self { segment: 16 << 20, chunk: 1 << 20, outstanding: 8, timeout: Duration::from_mins(1) }
    }
}

impl Source for [u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Cause> {
        let from = usize::try_from(offset).ok().and_then(|offset| self.get(offset..)?.get(..into.len()));
        into.copy_from_slice(from.ok_or("the end is reached")?);
        Ok(())
    }
}

/// Pseudorandom bytes that are not stored: a function of seed and offset.
pub struct Generated {
    pub seed: u64,
    pub bytes: u64,
}

impl Source for Generated {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Cause> {
        for (at, byte) in (offset..).zip(into) {
            // SplitMix64 of the number of the word.
            let z = (self.seed ^ (at / 8)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            *byte = (z >> (at % 8 * 8)) as u8;
        }
        Ok(())
    }
}
