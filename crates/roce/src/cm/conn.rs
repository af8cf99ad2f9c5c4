// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is known of one connection.

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
    conn::{ListenerId, PrivateData, ReadLimits},
    time::Instant,
};
use roce_wire::{
    Attribute, MacAddr, Mad, Path, PathMtu, Psn, Qpn,
    cm::{CmMessage, CommId, RejReason},
};

bitflags::bitflags! {
    /// What the consumer is still to be told, in the order of the bits.
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
    /// It has, and waits to be told.
    Requested,
    /// It was told that it is over, though this side may still repeat its DREQ.
    Reported,
}

/// The longest that MRAs of a peer have this side wait for an answer to one message.
const MAX_PATIENCE: Duration = Duration::from_mins(10);

pub(super) struct Conn {
    pub(super) state: State,
    /// Of the slot, see [`super::table`].
    pub(super) generation: u32,
    /// Whether a consumer has this connection in hand: from the first call or event until it is released.
    /// What is not owned frees itself.
    pub(super) owned: bool,
    /// Whether it has ever been established.
    pub(super) stood: bool,
    pub(super) disconnect_progress: DisconnectProgress,
    /// Whether its end was agreed by both sides.
    pub(super) graceful: bool,
    /// The consumer's.
    pub(super) context: u64,
    /// Who is to be told of the request; of a passive connection before it is accepted.
    pub(super) listener: Option<ListenerId>,

    pub(super) local_id: CommId,
    /// 0 as long as it is not known.
    pub(super) remote_id: CommId,
    pub(super) remote_guid: u64,
    /// Of the REQ and its answers.
    pub(super) transaction: u64,
    pub(super) path: Path,
    pub(super) local_port: u16,
    pub(super) remote_port: u16,
    pub(super) local: LocalQp,
    pub(super) peer: PeerQp,
    /// What this side asks for or grants.
    pub(super) reads: ReadLimits,
    /// Since when it is half-open, if it is.
    pub(super) since: Instant,
    /// Where the peer is counted, as long as the connection is.
    pub(super) peer_place: Option<u32>,
    /// What a REP says about the path that the REQ offered to fail over to: 0 if it offered none, 1 that
    /// there is no failover here.
    pub(super) failover_accepted: u8,
    /// Under which hashes the indices have it.
    pub(super) id_hash: Option<u32>,
    pub(super) qpn_hash: Option<u32>,

    /// The last message, as it is repeated.
    pub(super) message: [u8; Mad::LEN],
    pub(super) sent: Option<Attribute>,
    /// Between repetitions.
    pub(super) interval: Duration,
    /// Repetitions still allowed.
    pub(super) retries: u8,
    /// How long the peer's MRAs may still have this side wait for an answer to the message.
    pub(super) patience: Duration,
    /// How long late messages are waited for in the end.
    pub(super) time_wait: Duration,

    pub(super) pending: Pending,
    /// What came with the peer's last message that carries a consumer's data.
    pub(super) data: PrivateData,
    pub(super) reason: RejReason,
}

impl Idle for Conn {
    const IDLE: Self = Self {
        state: State::Idle,
        generation: 0,
        owned: false,
        stood: false,
        disconnect_progress: DisconnectProgress::None,
        graceful: false,
        context: 0,
        listener: None,
        local_id: CommId(0),
        remote_id: CommId(0),
        remote_guid: 0,
        transaction: 0,
        path: NOWHERE,
        local_port: 0,
        remote_port: 0,
        local: LocalQp {
            qpn: Qpn::new(0),
            receive_psn: Psn::new(0),
            srq: false,
            retry_count: 0,
            rnr_retry_count: 0,
            ack_timeout: 0,
        },
        peer: PeerQp {
            qpn: Qpn::new(0),
            send_psn: Psn::new(0),
            mtu: PathMtu::Bytes256,
            reads: ReadLimits { inbound: 0, outbound: 0 },
            retry_count: 0,
            rnr_retry_count: 0,
            ack_timeout: 0,
            path: NOWHERE,
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
        patience: Duration::ZERO,
        time_wait: Duration::ZERO,
        pending: Pending::empty(),
        data: PrivateData::EMPTY,
        reason: RejReason(0),
    };
}

const NOWHERE: Path = Path::new(
    MacAddr([0; 6]),
    MacAddr([0; 6]),
    IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    IpAddr::V4(Ipv4Addr::UNSPECIFIED),
);

impl Conn {
    /// Sets the message that is to be sent, and repeated up to `retries` times.
    pub(super) fn set_message(&mut self, message: &CmMessage, transaction: u64, retries: u8) {
        message.emit(transaction, &mut self.message);
        self.sent = Some(message.attribute());
        self.retries = retries;
        self.patience = MAX_PATIENCE;
    }

    /// Notes that the consumer is to be told, if there is one.
    pub(super) fn tell(&mut self, what: Pending) {
        if self.owned {
            self.pending |= what;
        }
    }
}
