// SPDX-License-Identifier: MIT OR Apache-2.0

//! Changes of a queue pair that its owner connects without connection management.

use lock_api::RawMutex;

use crate::qp_attributes::QpAttributes;
use crate::region::access_rights::Access;
use roce_wire::{NakCode, Path, PathMtu, Psn, Qpn};

/// A change of a queue pair by [`Engine::modify_qp`](crate::Engine::modify_qp), whose peer is known from elsewhere.
///
/// Source: IBTA Volume 1, section 10.3.1 (states of a queue pair).
#[derive(Clone, Copy, Debug)]
pub enum QpChange {
    /// Init to RTR: requests of the peer are served.
    ReadyToReceive(PeerSpec),
    /// RTR to RTS: requests may be posted.
    ReadyToSend(RequesterSpec),
    /// Init to UnreliableRtr: datagrams of any peer are received, and [sent](crate::Engine::post_datagram) to any from
    /// UnreliableRts on (UD).
    OpenDatagrams(DatagramSpec),
    /// Init to UnreliableRtr: messages of one peer are received, without acknowledgement (UC).
    OpenUnreliable(UnreliableSpec),
    /// UnreliableRtr or UnreliableSqe to UnreliableRts: requests may be posted. Has the PSN of the first packet, which
    /// UnreliableSqe ignores.
    SendUnreliably(Psn),
    /// Rts to Sqd, UnreliableRts to UnreliableSqd: requests that have begun are completed, and no others are begun. If `notify`,
    /// [`EngineEvent::QpDrained`](crate::EngineEvent::QpDrained) follows when they are complete.
    Drain { notify: bool },
    /// Sqd to Rts, UnreliableSqd to UnreliableRts: requests are sent again. Refused before all that were begun are complete.
    Resume,
    /// Changes attributes, not the state.
    Update(QpUpdate),
    /// Any state to Error: outstanding requests and receives complete as flushed, and so do later posts.
    Error,
    /// Any state to Reset: outstanding requests and receives are dropped without completions. Completions in the completion queue
    /// stay.
    Reset,
    /// Reset to Init: receives may be posted.
    Initialize,
}

/// Parameters of a queue pair for datagrams.
#[derive(Clone, Copy, Debug)]
pub struct DatagramSpec {
    /// Datagrams with another Q_Key are dropped.
    pub q_key: u32,
    /// Longest payload of a datagram; at most [`Config::max_mtu`](crate::Config::max_mtu).
    pub mtu: PathMtu,
}

/// The peer of an unreliable connection, and the operations that it may request.
#[derive(Clone, Copy, Debug)]
pub struct UnreliableSpec {
    /// The path to the peer. The engine chooses its UDP source port.
    pub path: Path,
    /// Number of the peer's queue pair.
    pub qpn: Qpn,
    /// At most [`Config::max_mtu`](crate::Config::max_mtu).
    pub mtu: PathMtu,
    /// PSN of the peer's first packet.
    pub receive_psn: Psn,
    /// Operations that the peer may request: [`Access::REMOTE_WRITE`]. Their keys are checked besides.
    pub access: Access,
}

/// The peer of a queue pair, and the operations that it may request.
#[derive(Clone, Copy, Debug)]
pub struct PeerSpec {
    /// The path to the peer. The engine chooses its UDP source port.
    pub path: Path,
    /// Number of the peer's queue pair.
    pub qpn: Qpn,
    /// At most [`Config::max_mtu`](crate::Config::max_mtu).
    pub mtu: PathMtu,
    /// PSN of the peer's first request.
    pub receive_psn: Psn,
    /// READs of the peer that this side serves at a time (responder resources), at most that of
    /// [`Config::max_reads`](crate::Config::max_reads).
    pub inbound_reads: u8,
    /// Code of the RNR NAK timer, 0 to 31.
    pub rnr_timer: u8,
    /// Operations that the peer may request: [`Access::REMOTE_WRITE`], [`Access::REMOTE_READ`], [`Access::REMOTE_ATOMIC`]. Their keys are checked besides.
    pub access: Access,
}

/// Parameters of the requester of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct RequesterSpec {
    /// PSN of the first request.
    pub send_psn: Psn,
    /// READs at a time (initiator depth), at most that of [`Config::max_reads`](crate::Config::max_reads).
    pub outbound_reads: u8,
    /// Retry count, 0 to 7.
    pub retries: u8,
    /// RNR retry count, 0 to 6; 7 for no limit but that of [`Timing::rnr_limit`](crate::Timing::rnr_limit).
    pub rnr_retries: u8,
    /// Code of the local ACK timeout, 4.096 us * 2^code, 0 to 31. 0, which means no timeout, and codes above 18 (1.07 s) count
    /// as 18: a peer that has vanished is detected.
    pub ack_timeout: u8,
}

/// Attributes to change of a queue pair that has a peer or is open for datagrams; `None` for those that stay.
#[derive(Clone, Copy, Debug, Default)]
pub struct QpUpdate {
    /// Operations that the peer may request; not of datagrams.
    pub access: Option<Access>,
    /// Code of the RNR NAK timer, 0 to 31; of a reliable connection.
    pub rnr_timer: Option<u8>,
    /// Of datagrams.
    pub q_key: Option<u32>,
    /// Path to the peer, and the number of its queue pair. In Sqd or UnreliableSqd, drained.
    pub path: Option<(Path, Qpn)>,
    /// Retry counts, timeout and initiator depth of a reliable connection in Sqd, drained. The PSN has no effect.
    pub requester: Option<RequesterSpec>,
    /// Responder resources of a reliable connection in Sqd, drained.
    pub inbound_reads: Option<u8>,
}

/// Why a queue pair that was connected without connection management is in error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QpFault {
    /// A request failed. Its completion tells why.
    Request,
    /// An invalid request of the peer was refused.
    InvalidRequest,
    /// A request of the peer was refused that may not access the memory.
    RemoteAccess,
    /// A request of the peer could not be executed.
    RemoteOperation,
}

impl QpFault {
    /// Returns what a fatal NAK tells; without one, a request of this side has failed.
    pub(crate) const fn of(nak: Option<NakCode>) -> Self {
        match nak {
            None => Self::Request,
            Some(NakCode::REMOTE_ACCESS) => Self::RemoteAccess,
            Some(NakCode::REMOTE_OPERATIONAL) => Self::RemoteOperation,
            Some(_) => Self::InvalidRequest,
        }
    }
}

/// A report of a queue pair that its owner has connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QpReport {
    pub(crate) qpn: Qpn,
    pub(crate) context: u64,
    pub(crate) kind: QpReportKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QpReportKind {
    /// It is in error, for [`EngineEvent::QpFailed`](crate::EngineEvent::QpFailed).
    Failed(QpFault),
    /// Its send queue is drained, for [`EngineEvent::QpDrained`](crate::EngineEvent::QpDrained).
    Drained,
}

impl QpReport {
    pub(crate) fn new<R: RawMutex>(qp: &QpAttributes<R>, kind: QpReportKind) -> Self {
        Self { qpn: qp.qpn, context: qp.context, kind }
    }
}
