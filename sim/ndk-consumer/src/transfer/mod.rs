//! A file goes there and back.
//!
//! One side [`serve`]s: it listens, takes one connection, and lends memory. The other [`copy`]s: it
//! connects, announces the file with a Send, moves it by RDMA Writes into the memory lent, and reads it back
//! by RDMA Reads. Both keep a SHA-256 of what went through their hands; the serving side writes its own
//! into the copying side's memory at the end, and the copying side compares all three.
//!
//! The file goes in segments, as large as the memory lent, so neither side holds more than that:
//!
//! ```text
//!  copy                                   serve
//!   | Announce{name, size, receipt token} → |
//!   | ← Window{address, token, length}      |
//!   |==== RDMA Write, 1 MiB each ==========>|   for each segment
//!   | Written{offset, length} →             |   (hashes it)
//!   | ← Verified{offset}                    |
//!   |<=== RDMA Read, 1 MiB each ============|
//!   | Finish{digest} →                      |
//!   |<==== RDMA Write of the digest ========|
//!   | ← Receipt                             |
//!   | disconnect                            |
//! ```

mod copy;
mod message;
mod serve;

use core::time::Duration;
use std::fs::File;
use std::io;

use crate::Error;
use crate::books::Books;

pub use copy::copy;
pub use serve::serve;

/// A SHA-256.
pub type Digest = [u8; 32];

/// How to transfer.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of memory the serving side lends at most; the lower of both sides' counts. Not 0.
    pub segment: usize,
    /// Bytes of one RDMA Write or Read. Not 0, below 4 GiB.
    pub chunk: usize,
    /// RDMA requests outstanding at once. Not 0.
    pub outstanding: u32,
    /// How long the serving side waits for a connection.
    pub patience: Duration,
}

/// Where the file comes from.
pub trait Source {
    /// Size in bytes; does not change.
    fn len(&self) -> u64;

    /// Fills `into` from `offset`.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How far the transfer has come. Told on the consumer's thread, at `PASSIVE_LEVEL`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    pub phase: Phase,
    /// Bytes of the file that this phase is done with.
    pub done: u64,
    /// Bytes of the file.
    pub total: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// To the serving side, by RDMA Write.
    Write,
    /// Back, by RDMA Read.
    Read,
}

/// What a side has to tell afterwards.
#[derive(Clone, Default, Debug)]
pub struct Report {
    /// The file's name, as announced.
    pub name: String,
    /// Bytes that have arrived: written on the serving side, read back on the copying side.
    pub bytes: u64,
    /// SHA-256 of what this side has read, or got, when it got all of it.
    pub digest: Option<Digest>,
    /// SHA-256 of what was read back, when all of it was; copying side only.
    pub returned: Option<Digest>,
    /// Time the writes took; copying side only.
    pub write: Duration,
    /// Time the reads took; copying side only.
    pub read: Duration,
    pub books: Books,
}

/// A transfer that ended early, and how far it came.
#[derive(Debug)]
pub struct Failure {
    pub error: Error,
    pub report: Report,
}

impl Default for Options {
    fn default() -> Self {
        Self { segment: 16 << 20, chunk: 1 << 20, outstanding: 8, patience: Duration::from_mins(1) }
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
