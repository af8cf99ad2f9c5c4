// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reasons for dropping a received frame.

/// Why a received frame was dropped.
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
}
