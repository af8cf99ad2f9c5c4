// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pair parameters and events.

use crate::conn::{ConnId, ConnRequest, DisconnectOutcome, PrivateData, ReadLimits};
use roce_wire::cm::RejReason;
use roce_wire::{Path, PathMtu, Psn, Qpn};

/// Parameters of the local queue pair, sent to the peer in a REQ or REP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalQp {
    pub qpn: Qpn,
    /// PSN of the peer's first packet: the Starting PSN field.
    pub receive_psn: Psn,
    /// `true` if it uses a shared receive queue.
    pub srq: bool,
    /// Retry count of both sides, chosen by the active side.
    pub retry_count: u8,
    /// RNR retry count of the peer; 7 for no limit.
    pub rnr_retry_count: u8,
    /// Local ACK timeout, chosen by the active side: 4.096 us * 2^code.
    pub ack_timeout: u8,
    /// Q_Key of a queue pair for datagrams. The peer is then asked for its queue pair, or gets this one (SIDR); there is no
    /// connection.
    pub q_key: Option<u32>,
}

impl LocalQp {
    /// Maximum retry count, and RNR retry count.
    const MAX_RETRIES: u8 = 7;
    /// Maximum code of an ACK timeout.
    const MAX_TIMEOUT: u8 = 31;

    /// Returns whether a REQ or REP can carry the parameters.
    pub(super) fn is_valid(&self) -> bool {
        is_user_qpn(self.qpn)
            && self.retry_count.max(self.rnr_retry_count) <= Self::MAX_RETRIES
            && self.ack_timeout <= Self::MAX_TIMEOUT
    }
}

/// Parameters that the local queue pair receives from the peer's REQ or REP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerQp {
    pub qpn: Qpn,
    /// PSN of this side's first packet.
    pub send_psn: Psn,
    pub mtu: PathMtu,
    /// Negotiated so far, from this side's view.
    pub reads: ReadLimits,
    pub retry_count: u8,
    /// 7 for no limit.
    pub rnr_retry_count: u8,
    /// ACK timeout: 4.096 us * 2^code; 0 for no timeout.
    pub ack_timeout: u8,
    /// Q_Key of a queue pair for datagrams, from the peer's SIDR_REP.
    pub q_key: u32,
    /// The path to the peer. The caller chooses its UDP source port.
    pub path: Path,
}

/// Returns `true` if a connection can use this queue pair number.
pub(super) fn is_user_qpn(qpn: Qpn) -> bool {
    //= rocev2 §13
    !matches!(qpn.value(), 0 | 1 | 0x00FF_FFFF)
}

/// An event of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CmEvent {
    pub conn: ConnId,
    /// The consumer's context: of the listener for [`CmEventKind::Request`], else of the connection.
    pub context: u64,
    pub kind: CmEventKind,
}

/// Kind of an [`CmEvent`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "one at a time, on the stack, while connecting")]
pub enum CmEventKind {
    /// A REQ for a listener: accept, reject, or release.
    Request { request: ConnRequest, peer: PeerQp },
    /// The peer sent a REP: complete, reject, or release. Or it sent a SIDR_REP with its queue pair: release.
    Replied { peer: PeerQp, private_data: PrivateData },
    /// The peer sent an RTU, or its first packet arrived.
    Established,
    /// The peer sent a REJ, or a SIDR_REP without queue pair: `reason` is its status.
    Refused { reason: RejReason, private_data: PrivateData },
    /// The peer sent a DREQ: disconnect or release.
    Disconnected,
    /// The peer gave up or no longer has the connection, [`Cm::abort`](super::Cm::abort) was called, or the local
    /// address was removed.
    Aborted,
    /// The peer did not answer while connecting.
    TimedOut,
    /// The disconnect that [`Cm::disconnect`](super::Cm::disconnect) began is over.
    DisconnectDone(DisconnectOutcome),
}
