// SPDX-License-Identifier: MIT OR Apache-2.0

//! What connection management exchanges with its user: queue pair parameters, events, reasons for statistics.

use crate::conn::{ConnId, ConnRequest, PrivateData, ReadLimits};
use roce_wire::cm::RejReason;
use roce_wire::{Path, PathMtu, Psn, Qpn};

/// The queue pair of this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalQp {
    pub qpn: Qpn,
    /// What the peer's first packet will carry: the "starting PSN" of this side's message.
    pub receive_psn: Psn,
    /// Whether it takes its receives from a shared queue.
    pub srq: bool,
    /// How often either side retries without progress. Of the active side.
    pub retry_count: u8,
    /// How often the peer retries when no receive is posted; 7 for no limit.
    pub rnr_retry_count: u8,
    /// How long the peer waits for an acknowledgement: 4.096 us * 2^code. Of the active side.
    pub ack_timeout: u8,
}

/// What the queue pair of this side has to know to begin, apart from what [`LocalQp`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerQp {
    pub qpn: Qpn,
    /// What this side's first packet must carry.
    pub send_psn: Psn,
    pub mtu: PathMtu,
    /// As this side sees it, lowered to what both can do so far.
    pub reads: ReadLimits,
    pub retry_count: u8,
    /// 7 for no limit.
    pub rnr_retry_count: u8,
    /// How long to wait for an acknowledgement: 4.096 us * 2^code; 0 for ever.
    pub ack_timeout: u8,
    /// Its source port is for the user to choose.
    pub path: Path,
}

/// Something that happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    pub conn: ConnId,
    /// The consumer's: of the listener for [`EventKind::Request`], else of the connection.
    pub context: u64,
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "one at a time, on the stack, while connecting")]
pub enum EventKind {
    /// Somebody asks a listener: accept, reject, or release.
    Request { request: ConnRequest, peer: PeerQp },
    /// The peer accepted: complete, reject, or release.
    Replied { peer: PeerQp, private_data: PrivateData },
    /// The peer has completed.
    Established,
    /// The peer refused.
    Refused { reason: RejReason, private_data: PrivateData },
    /// The peer has said goodbye: disconnect or release.
    Disconnected,
    /// The peer has given up, or [`Cm::abort`] was called, or the peer knows nothing of the connection
    /// any more, or this side has lost its address.
    Aborted,
    /// The peer did not answer while connecting.
    TimedOut,
    /// What [`Cm::disconnect`] began is over; `graceful` when the peer has agreed.
    DisconnectDone { graceful: bool },
}

/// Why a datagram had no effect. For statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ignored {
    /// Not a message of connection management.
    NotCm,
    /// A message that is not spoken here: about datagram services and other paths.
    NotSpoken,
    /// To an address that is not this side's.
    Foreign,
    /// From an address that no single host can have.
    Sender,
    /// A message that contradicts itself or the packet it came in.
    Malformed,
    /// About a connection that is not known, or to another peer.
    Unknown,
    /// Seen before.
    Duplicate,
    /// Not expected in the connection's state.
    Unexpected,
    /// Refused with a REJ.
    Refused,
    /// No memory or no room, and no answer either.
    NoRoom,
}
