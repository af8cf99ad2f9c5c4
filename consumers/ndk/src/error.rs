// SPDX-License-Identifier: MIT OR Apache-2.0

//! Errors of a session with a peer.

use alloc::boxed::Box;
use core::fmt;

use crate::Status;

/// An error of the system below a consumer: of a file, or of a connection that is not RDMA.
pub type Cause = Box<dyn core::error::Error + Send + Sync>;

/// The reason why a session with a peer failed.
#[derive(Debug)]
pub enum Error {
    /// An NDKPI function failed.
    Call(&'static str, Status),
    /// The connection could not be established.
    Connect(Status),
    /// No peer connected in time.
    NoConnection,
    /// The connection failed: the status of the first request that failed.
    Connection(Status),
    /// The peer disconnected before the session was complete.
    PeerDisconnected,
    /// The peer is reachable but sends no messages.
    PeerSilent,
    /// This number of requests was never completed: a defect of the provider.
    MissingCompletions(u64),
    /// A completion does not match its request: a defect of the provider.
    Mismatch(&'static str),
    /// The peer violated the protocol.
    Protocol(&'static str),
    /// Data that arrived differs from the data sent.
    Digest(&'static str),
    /// The source file could not be read.
    ReadSource(Cause),
    /// The connection of a gateway's other side failed.
    Gateway(Cause),
    /// An error of a consumer in a driver, as its text.
    Other(Cause),
}

impl Error {
    /// Returns whether the error is a lost connection, and not a defect.
    #[must_use]
    pub fn is_connection_loss(&self) -> bool {
        matches!(self, Self::Connection(_) | Self::PeerDisconnected)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(name, status) => write!(f, "{name}: {status}"),
            Self::Connect(status) => write!(f, "cannot connect: {status}"),
            Self::NoConnection => f.write_str("no peer connected in time"),
            Self::Connection(status) => write!(f, "the connection failed: {status}"),
            Self::PeerDisconnected => f.write_str("the peer disconnected too early"),
            Self::PeerSilent => f.write_str("the peer sends no messages"),
            Self::MissingCompletions(count) => write!(f, "{count} requests were never completed"),
            Self::Mismatch(what) => write!(f, "a completion does not match its request: {what}"),
            Self::Protocol(what) => write!(f, "the peer violated the protocol: {what}"),
            Self::Digest(what) => write!(f, "the data differs: {what}"),
            Self::ReadSource(error) => write!(f, "cannot read the source: {error}"),
            Self::Other(error) => error.fmt(f),
            Self::Gateway(error) => write!(f, "the gateway's other connection: {error}"),
        }
    }
}

impl core::error::Error for Error {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Call(_, status) | Self::Connect(status) | Self::Connection(status) => Some(status),
            Self::ReadSource(error) | Self::Gateway(error) | Self::Other(error) => Some(&**error),
            _ => None,
        }
    }
}
