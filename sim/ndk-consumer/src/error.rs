//! Why a conversation ended early.

use core::fmt;
use std::io;

use crate::Status;

/// Why a conversation ended early.
#[derive(Debug)]
pub enum Error {
    /// A function of NDKPI refused.
    Call(&'static str, Status),
    /// The connection could not be made.
    Connect(Status),
    /// Nobody connected in time.
    Nobody,
    /// The connection broke: the status of the first request that failed.
    Connection(Status),
    /// The peer ended the connection before the conversation was over.
    PeerLeft,
    /// The peer is there, but says nothing any more.
    Silent,
    /// So many requests were never completed: a provider's fault.
    Lost(u64),
    /// A completion did not match its request: a provider's fault.
    Mismatch(&'static str),
    /// The peer said something it must not say here.
    Protocol(&'static str),
    /// What arrived is not what was sent.
    Digest(&'static str),
    /// The file could not be read.
    Source(io::Error),
}

impl Error {
    /// Whether the peer or the way to it is gone, as opposed to something being wrong.
    pub fn is_connection_loss(&self) -> bool {
        matches!(self, Self::Connection(_) | Self::PeerLeft)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(name, status) => write!(f, "{name}: {status}"),
            Self::Connect(status) => write!(f, "connecting failed: {status}"),
            Self::Nobody => f.write_str("nobody connected"),
            Self::Connection(status) => write!(f, "the connection broke: {status}"),
            Self::PeerLeft => f.write_str("the peer disconnected too early"),
            Self::Silent => f.write_str("the peer says nothing any more"),
            Self::Lost(count) => write!(f, "{count} requests were never completed"),
            Self::Mismatch(what) => write!(f, "a completion does not match its request: {what}"),
            Self::Protocol(what) => write!(f, "the peer breaks the protocol: {what}"),
            Self::Digest(what) => write!(f, "SHA-256 differs: {what}"),
            Self::Source(error) => write!(f, "reading the source failed: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Call(_, status) | Self::Connect(status) | Self::Connection(status) => Some(status),
            Self::Source(error) => Some(error),
            _ => None,
        }
    }
}
