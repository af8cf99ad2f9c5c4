// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tracing: what an engine reports of packets and queue pairs while it works.
//!
//! Reported are rare events only, so that tracing costs nothing on the path of packets that arrive and are sent in order, whether
//! it is on or off.

use core::fmt;
use core::net::SocketAddr;

use crate::drop_reason::DropReason;
use crate::ignored::Ignored;
use crate::stats;
use crate::transport::state::State;
use roce_wire::cm::RejReason;
use roce_wire::{Psn, Qpn};

/// Where an engine reports to.
#[derive(Clone, Copy, Debug)]
pub struct Trace {
    /// Called with `context` at IRQL <= `DISPATCH_LEVEL`, with locks of the engine held: it must not call the engine.
    pub sink: fn(context: u64, record: &TraceRecord),
    pub context: u64,
}

/// A queue pair, a packet, and what happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// The local queue pair; 1 for connection management, 0 if the packet does not say.
    pub qpn: Qpn,
    /// Of the packet; for a queue pair, of the oldest request packet that is not acknowledged.
    pub psn: Psn,
    pub event: TraceEvent,
}

/// Kind of a traced event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// A received frame was dropped.
    Dropped(DropReason),
    /// A message of connection management had no effect.
    Ignored(Ignored),
    /// A request packet was sent again.
    Retransmitted,
    /// No answer arrived in time.
    TimedOut,
    /// The queue pair changed its state.
    State { from: State, to: State },
    /// The queue pair failed or was closed, and its requests are flushed: the cause, in words.
    Flushed(&'static str),
    /// A completion queue of the queue pair has no room for a completion.
    CqOverflow,
    /// A CNP of the peer lowered the rate of the queue pair.
    RateReduced,
    /// A packet with a congestion mark had the queue pair notify its peer by a CNP.
    CongestionNotified,
    /// A connection changed its state. The queue pair is 0 before a request is accepted.
    Connection(ConnectionChange),
    /// A REQ or REP was refused by a REJ, and belongs to no connection. The addresses are those of the refused message.
    Refused { reason: RejReason, ends: Ends },
}

/// The addresses of the two sides of a connection, with the ports of the RDMA port space; 0 if a port is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

/// A transition of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionChange {
    pub ends: Ends,
    /// Names of the states and of the input, as the table of connection states has them.
    pub from: &'static str,
    pub to: &'static str,
    pub input: &'static str,
    /// Of a REJ that was sent or received.
    pub reason: Option<RejReason>,
}

/// Returns the text of the reason of a REJ.
#[must_use]
pub const fn reason_text(reason: RejReason) -> &'static str {
    match reason.name() {
        Some(name) => name,
        None => "unknown reason",
    }
}

impl TraceEvent {
    /// Returns the event as text, in parts: the name of the counter of a frame or message that had no effect, the states of a
    /// queue pair. At most 32 bytes in all.
    #[must_use]
    pub fn text(&self) -> [&'static str; 3] {
        match *self {
            Self::Dropped(reason) => [stats::drop_name(reason), "", ""],
            Self::Ignored(reason) => [stats::ignored_name(reason), "", ""],
            Self::Retransmitted => ["retransmitted", "", ""],
            Self::TimedOut => ["timeout", "", ""],
            Self::State { from, to } => [from.name(), " to ", to.name()],
            Self::Flushed(cause) => ["flushed: ", cause, ""],
            Self::CqOverflow => ["CQ overflow", "", ""],
            Self::RateReduced => ["rate reduced", "", ""],
            Self::CongestionNotified => ["congestion notified", "", ""],
            Self::Connection(change) => ["connection ", change.to, ""],
            Self::Refused { reason, .. } => ["refused: ", reason_text(reason), ""],
        }
    }
}

impl fmt::Display for TraceRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QP {:#08x}, PSN {:#08x}: ", self.qpn.value(), self.psn.value())?;
        self.event.text().into_iter().try_for_each(|part| f.write_str(part))
    }
}
