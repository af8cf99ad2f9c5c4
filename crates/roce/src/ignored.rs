// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reasons for ignoring a received datagram of connection management.

use core::fmt;

/// The reason why a datagram had no effect on a connection. For statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ignored {
    /// Not a CM message.
    NotCm,
    /// A CM message that this side does not implement: LAP, APR and unknown attributes.
    Unsupported,
    /// To an address that is not local.
    NotLocal,
    /// From a source address that is not unicast.
    InvalidSource,
    /// Fields contradict each other or the packet.
    Malformed,
    /// No such connection, or its peer has another address.
    Unknown,
    /// A duplicate of an earlier message.
    Duplicate,
    /// Not expected in the connection's state.
    Unexpected,
    /// Refused with a REJ.
    Refused,
    /// Dropped without an answer: the half-open connections are at a bound, the answer queue is full or memory is short.
    NoRoom,
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotCm => "not a CM message",
            Self::Unsupported => "unsupported CM message",
            Self::NotLocal => "not to a local address",
            Self::InvalidSource => "not from a unicast address",
            Self::Malformed => "malformed",
            Self::Unknown => "no such connection",
            Self::Duplicate => "duplicate",
            Self::Unexpected => "unexpected in the connection's state",
            Self::Refused => "refused",
            Self::NoRoom => "dropped at a limit",
        })
    }
}

impl core::error::Error for Ignored {}
