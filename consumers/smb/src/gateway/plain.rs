// SPDX-License-Identifier: MIT OR Apache-2.0

//! The side of a gateway that has no RDMA.

use alloc::vec::Vec;
use core::ops::AddAssign;
use core::time::Duration;
use std::io;

use ndk_consumer::Error;

/// Time until the plain side is asked for messages again.
pub const POLL: Duration = Duration::from_millis(1);

/// Error of a server that returns more data than a READ asks for.
pub const MORE_THAN_ASKED: &str = "more data than were asked for";

/// The connection to the implementation without RDMA.
pub trait Plain {
    /// Sends a message.
    ///
    /// # Errors
    /// The connection has failed.
    fn send(&mut self, message: &[u8]) -> io::Result<()>;

    /// Returns the next message, or `None` if none has arrived. Does not wait.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if the other side has closed the connection; others if it has failed.
    fn receive(&mut self) -> io::Result<Option<Vec<u8>>>;
}

/// The messages and bytes that a gateway has transferred.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Messages in both directions.
    pub messages: u64,
    /// READs and WRITEs whose data went by RDMA, and their bytes.
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    /// Bytes of the longest of them.
    pub longest: u32,
    /// The largest number of them that the server had at one time.
    pub outstanding: usize,
}

impl Counts {
    /// Counts a READ.
    pub(super) fn read(&mut self, length: u32) {
        self.reads += 1;
        self.read_bytes += u64::from(length);
        self.longest = self.longest.max(length);
    }

    /// Counts a WRITE.
    pub(super) fn write(&mut self, length: u32) {
        self.writes += 1;
        self.written_bytes += u64::from(length);
        self.longest = self.longest.max(length);
    }

    /// Notes the number of requests that the server has.
    pub(super) fn outstanding(&mut self, now: usize) {
        self.outstanding = self.outstanding.max(now);
    }
}

impl AddAssign for Counts {
    /// Adds the counts of another gateway. The longest request and the largest number are those of one of them.
    fn add_assign(&mut self, other: Self) {
        self.messages += other.messages;
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.writes += other.writes;
        self.written_bytes += other.written_bytes;
        self.longest = self.longest.max(other.longest);
        self.outstanding = self.outstanding.max(other.outstanding);
    }
}

/// The next message of the plain side.
pub enum Next {
    Message(Vec<u8>),
    Nothing,
    Closed,
}

/// Returns the next message without waiting.
pub fn next(plain: &mut impl Plain) -> Result<Next, Error> {
    match plain.receive() {
        Ok(Some(message)) => Ok(Next::Message(message)),
        Ok(None) => Ok(Next::Nothing),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Next::Closed),
        Err(error) => Err(Error::Gateway(error.into())),
    }
}
