// SPDX-License-Identifier: MIT OR Apache-2.0

//! Parameters and events of connections, as the driver of the engine sees them.
//!
//! A connection is established by three messages: the active side [connects](crate::ConnectionCommands::connect)
//! (REQ), the passive side [accepts](crate::ConnectionCommands::accept) (REP) or [rejects](crate::ConnectionCommands::reject), the
//! active side [completes](crate::ConnectionCommands::complete) (RTU). Both may
//! [disconnect](crate::ConnectionCommands::disconnect), and must finally [release](crate::ConnectionCommands::release) the connection.

use core::time::Duration;

use roce_wire::{Path, PathMtu};

/// Identifies a connection of one engine until it is released. Not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnId(pub(crate) u64);

/// Identifies a listener of one engine. Not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(pub(crate) u64);

/// Private data that consumers exchange while they connect.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrivateData {
    bytes: [u8; Self::MAX],
    len: u8,
}

impl PrivateData {
    /// Maximum length in bytes with a connect: the rest of a REQ's private data after the IP addressing header.
    pub const MAX_CONNECT: usize = 56;
    /// Maximum length in bytes with an accept (REP).
    pub const MAX_ACCEPT: usize = 196;
    /// Maximum length in bytes with a reject (REJ).
    pub const MAX_REJECT: usize = 148;
    /// Maximum length in bytes with a request for the queue pair of a datagram service: the rest of a SIDR_REQ's private data after
    /// the IP addressing header.
    pub const MAX_RESOLVE: usize = 180;
    /// Maximum length in bytes with its answer, or its refusal (SIDR_REP).
    pub const MAX_ANSWER: usize = 136;
    const MAX: usize = 224;

    /// No private data.
    pub const EMPTY: Self = Self { bytes: [0; Self::MAX], len: 0 };

    /// Copies `data`. Returns `None` if it is longer than any message can carry.
    #[must_use]
    pub fn new(data: &[u8]) -> Option<Self> {
        let mut copy = Self::EMPTY;
        copy.bytes.get_mut(..data.len())?.copy_from_slice(data);
        copy.len = u8::try_from(data.len()).ok()?;
        Some(copy)
    }

    /// Returns the bytes. Received private data is padded with zeros to the length of its field: its length is
    /// not transmitted.
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

/// Maximum outstanding RDMA READs of a connection in each direction, from this side's view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadLimits {
    /// Responder resources: READs of the peer that this side serves at a time.
    pub inbound: u8,
    /// Initiator depth: READs of this side that the peer serves at a time. Further READs wait.
    pub outbound: u8,
}

impl ReadLimits {
    /// Returns the minimum of both in each direction.
    pub(crate) fn lowered(self, to: Self) -> Self {
        Self { inbound: self.inbound.min(to.inbound), outbound: self.outbound.min(to.outbound) }
    }
}

/// Parameters of a listener.
#[derive(Clone, Copy, Debug)]
pub struct ListenSpec {
    /// The unspecified address of a family stands for all local addresses of that family at the time of a
    /// request; `None` for all of both families.
    pub ip: Option<core::net::IpAddr>,
    /// Port of the RDMA TCP port space, or for datagrams of the UDP port space.
    pub port: u16,
    /// Peers ask for the queue pair of a datagram service (SIDR), instead of connections.
    pub datagrams: bool,
    /// Maximum requests that wait for the consumer's answer; more are refused.
    pub backlog: u16,
    /// Returned in each [`ConnEvent::Request`].
    pub context: u64,
}

/// Parameters of a connect.
#[derive(Clone, Copy, Debug)]
pub struct ConnectSpec<'a> {
    /// The path to the peer. The engine chooses its UDP source port.
    pub path: Path,
    pub local_port: u16,
    pub remote_port: u16,
    pub mtu: PathMtu,
    /// The limits requested; lowered to those of the engine and of the peer.
    pub reads: ReadLimits,
    /// Up to [`PrivateData::MAX_CONNECT`] bytes; [`PrivateData::MAX_RESOLVE`] for datagrams.
    pub private_data: &'a [u8],
    /// Returned in each event of the connection.
    pub context: u64,
}

/// Parameters of an accept.
#[derive(Clone, Copy, Debug)]
pub struct AcceptSpec<'a> {
    pub reads: ReadLimits,
    /// Up to [`PrivateData::MAX_ACCEPT`] bytes; [`PrivateData::MAX_ANSWER`] for datagrams.
    pub private_data: &'a [u8],
    /// Returned in each later event of the connection.
    pub context: u64,
}

/// A peer's connection request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnRequest {
    /// The path to the source addresses of the request.
    pub path: Path,
    pub local_port: u16,
    pub remote_port: u16,
    pub mtu: PathMtu,
    /// The limits that the peer requested, lowered to the engine's.
    pub reads: ReadLimits,
    pub private_data: PrivateData,
}

/// Reason code of a REJ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RejectReason(pub u16);

impl RejectReason {
    /// Timeout: the peer gave up.
    pub const TIMEOUT: Self = Self(4);
    /// Invalid service ID: no listener on the port.
    pub const INVALID_SERVICE_ID: Self = Self(8);
    /// Stale connection: the peer has an older connection of this queue pair.
    pub const STALE: Self = Self(10);
    /// Invalid path MTU.
    pub const INVALID_MTU: Self = Self(26);
    /// Consumer reject: the peer's consumer refused.
    pub const CONSUMER: Self = Self(28);
}

/// Event of a connection.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant, reason = "one at a time, on the stack, while connecting")]
pub enum ConnEvent {
    /// A request for a listener. The context is the listener's.
    Request(ConnRequest),
    /// The peer accepted. Complete or reject next. [`ConnectionCommands::peer`] has its queue pair. For datagrams, that is all.
    ///
    /// [`ConnectionCommands::peer`]: crate::ConnectionCommands::peer
    Replied { reads: ReadLimits, private_data: PrivateData },
    /// The peer refused the request, or the active side refused the reply. For datagrams, `reason` is the status of the SIDR_REP.
    Refused { reason: RejectReason, private_data: PrivateData },
    /// On the passive side: the active side has completed.
    Established { reads: ReadLimits },
    /// The peer has disconnected. Does not flush local requests.
    //= R-QP-72
    Disconnected,
    /// The disconnect that [`crate::ConnectionCommands::disconnect`] began is over.
    DisconnectDone(DisconnectOutcome),
    /// The connection is broken: a request failed, or the queue pair was flushed or destroyed.
    Aborted,
    /// The peer did not answer while connecting.
    TimedOut,
}

/// How a disconnect ended. The connection is over in every case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisconnectOutcome {
    /// Both sides have disconnected.
    Graceful,
    /// The peer did not answer in time.
    TimedOut,
    /// The connection was aborted before the disconnect.
    Aborted,
    /// The local address was removed before the peer answered.
    //= R-CONN-101
    AddressRemoved,
}

/// Timeouts and retry counts of connections. The defaults suit a local network.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Local ACK timeout: time without an answer after which a requester counts a retry. Rounded up to
    /// 4.096 us * 2^n.
    pub ack_timeout: Duration,
    /// Minimum retransmission timeout (RFC 6298): time without an answer after which a requester sends the oldest packet again, whose
    /// answer shows what the peer has received. Four times as long before the first answer of the connection. That
    /// counts as a retry only after `ack_timeout`.
    pub min_resend: Duration,
    /// Minimum time without an answer after which a requester sends the newest packet again (tail loss probe, RFC 8985). About two round
    /// trips if these are longer; before the first answer of the connection three of connection management. `min_resend` at most
    /// then, or if that has measured none.
    pub min_probe: Duration,
    /// Retry count: retries of a request without progress, 0 to 7.
    pub retries: u8,
    /// RNR NAK timer: the delay that this side requests if no receive is posted. Rounded up to an IBTA encoding.
    pub rnr_timer: Duration,
    /// RNR retry count, 0 to 6; 7 means unlimited until `rnr_limit`.
    pub rnr_retries: u8,
    /// Maximum time that a request waits for a receive at the peer. Also bounds an unlimited RNR retry count.
    pub rnr_limit: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            ack_timeout: Duration::from_millis(268),
            min_resend: Duration::from_millis(1),
            min_probe: Duration::from_micros(500),
            retries: 7,
            rnr_timer: Duration::from_micros(640),
            rnr_retries: 7,
            rnr_limit: Duration::from_secs(30),
        }
    }
}
