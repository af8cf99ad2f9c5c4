// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tracing: what an engine reports of packets and queue pairs while it works.
//!
//! Reported are rare events only, so that tracing costs nothing on the path of packets that arrive and are sent in order, whether
//! it is on or off.

use core::fmt;

use crate::cm::Ignored;
use crate::drop_reason::DropReason;
use crate::stats;
use crate::transport::state::State;
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
        }
    }
}

impl fmt::Display for TraceRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QP {:#08x}, PSN {:#08x}: ", self.qpn.value(), self.psn.value())?;
        self.event.text().into_iter().try_for_each(|part| f.write_str(part))
    }
}
