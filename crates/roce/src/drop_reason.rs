// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reasons for dropping a received frame.

use core::fmt;

/// The reason why a received frame was dropped.
///
/// A dropped frame changes a counter and nothing else, except that a request packet after a gap
/// ([`DropReason::Sequence`]) is answered by one NAK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Inconsistent headers, or a wrong ICRC.
    Malformed(roce_wire::DropReason),
    /// Addressed to QP 1 (GSI), with another length than a management datagram.
    Datagram,
    /// No queue pair has this number.
    NoQp,
    /// Not from the address of the queue pair's peer.
    Address,
    /// Wrong partition key.
    PKey,
    /// The queue pair does not accept packets in its state.
    State,
    /// The opcode is not allowed on this queue pair.
    Opcode,
    /// Unexpected PSN or length.
    Sequence,
    /// A datagram with another Q_Key than that of the queue pair.
    QKey,
    /// A datagram, or a message of an unreliable connection, for which no receive is posted.
    NoReceive,
    /// A WRITE of an unreliable connection that may not access the memory.
    Access,
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed(reason) => return write!(f, "malformed: {reason}"),
            Self::Datagram => "not of the length of a management datagram",
            Self::NoQp => "no such queue pair",
            Self::Address => "not from the address of the queue pair's peer",
            Self::PKey => "wrong partition key",
            Self::State => "the queue pair's state does not accept packets",
            Self::Opcode => "the opcode is not allowed on the queue pair",
            Self::Sequence => "unexpected PSN or length",
            Self::QKey => "wrong queue key",
            Self::NoReceive => "no receive is posted for the datagram or message",
            Self::Access => "the memory may not be written",
        })
    }
}

impl core::error::Error for DropReason {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_frame_is_described_by_what_is_wrong_with_it() {
        assert_eq!(DropReason::Malformed(roce_wire::DropReason::Icrc).to_string(), "malformed: ICRC");
        assert_eq!(DropReason::NoQp.to_string(), "no such queue pair");
    }
}
