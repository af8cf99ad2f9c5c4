// SPDX-License-Identifier: MIT OR Apache-2.0

//! The side of a gateway that has no RDMA.

use core::time::Duration;
use std::io;

use ndk_consumer::Error;

/// Time until the plain side is asked for messages again.
pub const POLL: Duration = Duration::from_millis(1);

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

/// What a gateway has transferred.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Messages in both directions.
    pub messages: u64,
    /// READs and WRITEs whose data went by RDMA, and their bytes.
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
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
        Err(error) => Err(Error::Gateway(error)),
    }
}
