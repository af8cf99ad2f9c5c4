// SPDX-License-Identifier: MIT OR Apache-2.0

//! Options, progress and results of a file transfer.

use core::time::Duration;
use std::fs::File;
use std::io;

use crate::Error;
use crate::stats::RequestStats;

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
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

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

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|offset| self.get(offset..)?.get(..into.len()));
        into.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// A file of fixed size.
pub struct FileSource {
    file: File,
    length: u64,
}

impl FileSource {
    /// Returns the source for an open file.
    ///
    /// # Errors
    /// If the size cannot be read.
    pub fn new(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(Self { file, length })
    }
}

impl Source for FileSource {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        read_exact_at(&self.file, into, offset)
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, into: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, into, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut into: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !into.is_empty() {
        let count = std::os::windows::fs::FileExt::seek_read(file, into, offset)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        into = &mut into[count..];
        offset += count as u64;
    }
    Ok(())
}
