// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections as the driver of the engine sees them: what it asks for and what it is told.
//!
//! A connection is made by four messages of two sides: the active side [connects](crate::Engine::connect)
//! (REQ), the passive side [accepts](crate::Engine::accept) (REP) or [rejects](crate::Engine::reject), the
//! active side [completes](crate::Engine::complete) (RTU). Both may
//! [disconnect](crate::Engine::disconnect), and must [release](crate::Engine::release) in the end.

use core::time::Duration;

use roce_wire::{Path, PathMtu};

/// Names a connection of one engine, from its first message until it is released. Not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnId(pub(crate) u64);

/// Names a listener of one engine. Not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(pub(crate) u64);

/// Bytes that consumers exchange while they connect.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrivateData {
    bytes: [u8; Self::MAX],
    len: u8,
}

impl PrivateData {
    /// With a connect request: what the REQ has behind its IP header.
    pub const MAX_CONNECT: usize = 56;
    /// With an accept.
    pub const MAX_ACCEPT: usize = 196;
    /// With a reject.
    pub const MAX_REJECT: usize = 148;
    const MAX: usize = 224;

    /// None.
    pub const EMPTY: Self = Self { bytes: [0; Self::MAX], len: 0 };

    /// A copy of `data`; `None` when no message has room for so much.
    #[must_use]
    pub fn new(data: &[u8]) -> Option<Self> {
        let mut copy = Self::EMPTY;
        copy.bytes.get_mut(..data.len())?.copy_from_slice(data);
        copy.len = u8::try_from(data.len()).ok()?;
        Some(copy)
    }

    /// What was sent, and zeros up to the message's room for it: the wire does not carry the length.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl Default for PrivateData {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl core::fmt::Debug for PrivateData {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:02x?}", self.as_slice())
    }
}

/// How many READs may be outstanding on a connection, in either direction, as this side sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadLimits {
    /// READs of the peer that this side serves at a time.
    pub inbound: u8,
    /// READs of this side that the peer serves at a time. Further ones wait.
    pub outbound: u8,
}

impl ReadLimits {
    /// In each direction the lower of both.
    pub(crate) fn lowered(self, to: Self) -> Self {
        Self { inbound: self.inbound.min(to.inbound), outbound: self.outbound.min(to.outbound) }
    }
}

/// What a listener listens to.
#[derive(Clone, Copy, Debug)]
pub struct ListenSpec {
    /// The unspecified address of a family for all of this side's addresses of that family, whichever they
    /// are when a request comes in; `None` for all of both.
    pub ip: Option<core::net::IpAddr>,
    /// Port of the RDMA TCP port space.
    pub port: u16,
    /// Requests that may wait for an answer of the consumer; more are refused.
    pub backlog: u16,
    /// Comes back in each [`ConnEvent::Request`].
    pub context: u64,
}

/// What an active side asks for.
#[derive(Clone, Copy, Debug)]
pub struct ConnectSpec<'a> {
    /// The way to the peer. Its UDP source port is chosen by the engine.
    pub path: Path,
    pub local_port: u16,
    pub remote_port: u16,
    pub mtu: PathMtu,
    /// What the consumer wants; the engine lowers it to its own limits, the peer to its.
    pub reads: ReadLimits,
    /// Up to [`PrivateData::MAX_CONNECT`] bytes.
    pub private_data: &'a [u8],
    /// Comes back in each event of the connection.
    pub context: u64,
}

/// How a passive side answers.
#[derive(Clone, Copy, Debug)]
pub struct AcceptSpec<'a> {
    pub reads: ReadLimits,
    /// Up to [`PrivateData::MAX_ACCEPT`] bytes.
    pub private_data: &'a [u8],
    /// Comes back in each event of the connection from now on.
    pub context: u64,
}

/// Who wants to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnRequest {
    /// The way back to the peer: to the addresses its request came from.
    pub path: Path,
    pub local_port: u16,
    pub remote_port: u16,
    pub mtu: PathMtu,
    /// What the peer asked for, lowered to the engine's limits.
    pub reads: ReadLimits,
    pub private_data: PrivateData,
}

/// Why the peer or its side of the network said no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RejectReason(pub u16);

impl RejectReason {
    /// The peer, or its consumer, took too long.
    pub const TIMEOUT: Self = Self(4);
    /// Nobody listens.
    pub const INVALID_SERVICE_ID: Self = Self(8);
    /// The peer remembers an older connection of this queue pair.
    pub const STALE: Self = Self(10);
    pub const INVALID_MTU: Self = Self(26);
    /// The peer's consumer refused.
    pub const CONSUMER: Self = Self(28);
}

/// What happened to a connection.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant, reason = "one at a time, on the stack, while connecting")]
pub enum ConnEvent {
    /// Somebody asks a listener. The context is the listener's.
    Request(ConnRequest),
    /// The peer accepted: time to complete.
    Replied { reads: ReadLimits, private_data: PrivateData },
    /// The peer refused, or the active side after it was accepted.
    Refused { reason: RejectReason, private_data: PrivateData },
    /// The passive side's connection stands: the active side has completed.
    Established { reads: ReadLimits },
    /// The peer said goodbye. Local requests are not flushed by that.
    //= R-QP-72
    Disconnected,
    /// The peer has said goodbye in turn, or has not in time (`graceful` is `false`): what
    /// [`crate::Engine::disconnect`] began is over.
    DisconnectDone { graceful: bool },
    /// The connection broke: a request failed, or the queue pair was flushed or destroyed.
    Aborted,
    /// The peer did not answer while connecting.
    TimedOut,
}

/// Delays of connection management and transport. The defaults suit a local network.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Longest that a requester goes without an answer before it counts a retry. Rounded up to
    /// 4.096 us * 2^n.
    pub ack_timeout: Duration,
    /// Shortest time after which a requester asks again because nothing came back, however quick the peer answers
    /// otherwise: with one packet, whose answer tells what the peer has. Sixteen times as long before the
    /// first answer has come. Asking again is not counted against the retries before `ack_timeout` has passed.
    pub min_resend: Duration,
    /// How often a request is retried without progress, 0 to 7.
    pub retries: u8,
    /// What this side tells requesters to wait when no receive is posted. Rounded up to the table.
    pub rnr_timer: Duration,
    /// How often a request that found no receive is retried, 0 to 6; 7 means until `rnr_limit`.
    pub rnr_retries: u8,
    /// Longest that a request waits for a receive at the peer. Bounds what the wire calls unlimited.
    pub rnr_limit: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            ack_timeout: Duration::from_millis(268),
            min_resend: Duration::from_millis(1),
            retries: 7,
            rnr_timer: Duration::from_micros(640),
            rnr_retries: 7,
            rnr_limit: Duration::from_secs(30),
        }
    }
}
