// SPDX-License-Identifier: MIT OR Apache-2.0

//! State of one connection.

use core::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use super::{
    event::{LocalQp, PeerQp},
    state::State,
    table::Idle,
};
use crate::{
    conn::{DisconnectOutcome, ListenerId, PrivateData, ReadLimits},
    time::Instant,
};
use roce_wire::{
    Attribute, MacAddr, Mad, Path, PathMtu, Psn, Qpn,
    cm::{CmMessage, CommId, RejReason},
};

bitflags::bitflags! {
    /// Events to report to the consumer, in the order of the bits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct Pending: u8 {
        const REQUEST = 1 << 0;
        const REPLIED = 1 << 1;
        const ESTABLISHED = 1 << 2;
        const REFUSED = 1 << 3;
        const DISCONNECTED = 1 << 4;
        const ABORTED = 1 << 5;
        const TIMED_OUT = 1 << 6;
        const DISCONNECT_DONE = 1 << 7;
    }
}

/// Progress of the consumer's disconnect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DisconnectProgress {
    /// Not requested.
    None,
    /// Requested, and its end is not reported yet.
    Requested,
    /// Its end was reported. The DREQ may still be retried.
    Reported,
}

/// Maximum time by which MRAs of the peer extend the wait for an answer to one message.
const MAX_MRA_WAIT: Duration = Duration::from_mins(10);

/// Half of the maximum time for which a refusal is remembered.
const MAX_REFUSAL_MEMORY: Duration = Duration::from_secs(5);

pub(super) struct Conn {
    pub(super) state: State,
    /// Generation of the slot, see [`super::table`].
    pub(super) generation: u32,
    /// `true` while the consumer owns this connection: from the first call or event until the release. Other
    /// connections free themselves.
    pub(super) owned: bool,
    /// `true` once it was established.
    pub(super) was_established: bool,
    pub(super) disconnect_progress: DisconnectProgress,
    /// How the disconnect ended, once that is reported.
    pub(super) disconnect_outcome: DisconnectOutcome,
    /// Whether the queue pair of a datagram service is asked for (SIDR), instead of a connection.
    pub(super) datagrams: bool,
    /// The consumer's context.
    pub(super) context: u64,
    /// Listener that received the request, on the passive side.
    pub(super) listener: Option<ListenerId>,

    pub(super) local_id: CommId,
    /// The peer's communication ID; 0 while it is not known.
    pub(super) remote_id: CommId,
    pub(super) remote_guid: u64,
    /// Transaction ID of the present exchange.
    pub(super) transaction: u64,
    pub(super) path: Path,
    pub(super) local_port: u16,
    pub(super) remote_port: u16,
    pub(super) local: LocalQp,
    pub(super) peer: PeerQp,
    /// Read limits that this side requests or grants.
    pub(super) reads: ReadLimits,
    /// When it became half-open.
    pub(super) since: Instant,
    /// Position of the peer's counts while this connection is counted.
    pub(super) peer_place: Option<u32>,
    /// Failover Accepted field of the REP: 0 if the REQ has no alternate path, 1 for "not supported".
    pub(super) failover_accepted: u8,
    /// Hashes of its entries in the indices.
    pub(super) id_hash: Option<u32>,
    pub(super) qpn_hash: Option<u32>,

    /// The last message, for retries.
    pub(super) message: [u8; Mad::LEN],
    pub(super) sent: Option<Attribute>,
    /// Time between retries.
    pub(super) interval: Duration,
    /// Retries left.
    pub(super) retries: u8,
    /// How often the message was sent, and when last.
    pub(super) transmissions: u8,
    pub(super) sent_at: Instant,
    /// The time from the only transmission of a REQ or REP to its first answer, in nanoseconds.
    pub(super) round_trip: Option<u64>,
    /// Time by which MRAs of the peer may still extend the wait for an answer to the message.
    pub(super) mra_budget: Duration,
    /// Duration of TIMEWAIT.
    pub(super) time_wait: Duration,

    pub(super) pending: Pending,
    /// Private data of the peer's last REQ, REP or REJ.
    pub(super) data: PrivateData,
    pub(super) reason: RejReason,
}

impl Idle for Conn {
    const IDLE: Self = Self {
        state: State::Idle,
        generation: 0,
        owned: false,
        was_established: false,
        disconnect_progress: DisconnectProgress::None,
        disconnect_outcome: DisconnectOutcome::Aborted,
        datagrams: false,
        context: 0,
        listener: None,
        local_id: CommId(0),
        remote_id: CommId(0),
        remote_guid: 0,
        transaction: 0,
        path: UNSPECIFIED_PATH,
        local_port: 0,
        remote_port: 0,
        local: LocalQp {
            qpn: Qpn::new(0),
            receive_psn: Psn::new(0),
            srq: false,
            retry_count: 0,
            rnr_retry_count: 0,
            ack_timeout: 0,
            q_key: None,
        },
        peer: PeerQp {
            qpn: Qpn::new(0),
            send_psn: Psn::new(0),
            mtu: PathMtu::Bytes256,
            reads: ReadLimits { inbound: 0, outbound: 0 },
            retry_count: 0,
            rnr_retry_count: 0,
            ack_timeout: 0,
            q_key: 0,
            path: UNSPECIFIED_PATH,
        },
        reads: ReadLimits { inbound: 0, outbound: 0 },
        since: Instant::from_nanos(0),
        peer_place: None,
        failover_accepted: 0,
        id_hash: None,
        qpn_hash: None,
        message: [0; Mad::LEN],
        sent: None,
        interval: Duration::ZERO,
        retries: 0,
        transmissions: 0,
        sent_at: Instant::from_nanos(0),
        round_trip: None,
        mra_budget: Duration::ZERO,
        time_wait: Duration::ZERO,
        pending: Pending::empty(),
        data: PrivateData::EMPTY,
        reason: RejReason(0),
    };
}

const UNSPECIFIED_PATH: Path = Path::new(
    MacAddr([0; 6]),
    MacAddr([0; 6]),
    IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    IpAddr::V4(Ipv4Addr::UNSPECIFIED),
);

impl Conn {
    /// Sets the message to send and to retry up to `retries` times.
    pub(super) fn set_message(&mut self, message: &CmMessage, transaction: u64, retries: u8) {
        message.emit(transaction, &mut self.message);
        self.sent = Some(message.attribute());
        self.retries = retries;
        self.transmissions = 0;
        self.mra_budget = MAX_MRA_WAIT;
    }

    /// Records that the message is sent, the first time or again.
    pub(super) fn record_transmission(&mut self, now: Instant) {
        self.transmissions = self.transmissions.saturating_add(1);
        self.sent_at = now;
    }

    /// Measures the round trip by an answer to the REQ or REP, the first one: an MRA comes at once, a REP or RTU when the peer's consumer
    /// has answered. A message that was sent twice measures nothing (Karn's algorithm, RFC 6298 section 3).
    pub(super) fn measure_round_trip(&mut self, now: Instant) {
        if self.transmissions == 1 && matches!(self.state, State::ReqSent | State::RepSent) {
            self.round_trip.get_or_insert(now.nanos_since(self.sent_at));
        }
    }

    /// Keeps the last message to the peer for longer than the peer repeats its own. It may be lost: a duplicate draws it again.
    pub(super) fn keep_answer(&mut self) {
        self.time_wait = self.time_wait.max(self.interval.min(MAX_REFUSAL_MEMORY).saturating_mul(2));
    }

    /// Adds pending events, if a consumer owns the connection.
    pub(super) fn notify(&mut self, what: Pending) {
        if self.owned {
            self.pending |= what;
        }
    }
}
