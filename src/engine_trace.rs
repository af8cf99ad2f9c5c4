// SPDX-License-Identifier: MIT OR Apache-2.0

//! Records of the engine's trace as events of ETW. IRQL <= `DISPATCH_LEVEL`, with locks of the engine held.

use roce::{ConnectionChange, TraceEvent, TraceRecord, reason_text};
use viordma_inf::tracing::keywords;

use crate::etw::{self, Activity, table};

/// Keywords of the events that come from the engine.
const KEYWORDS: u64 = keywords::CONNECTION
    | keywords::DROP
    | keywords::RETRANSMISSION
    | keywords::CONGESTION
    | keywords::QUEUE
    | keywords::SEQUENCE;

/// Queue pairs with a connection of their own. Lower numbers are those of connection management.
const FIRST_USER: u32 = 2;

/// Writes the event of a record of the adapter with this interface, if a session wants it.
#[inline]
pub fn report(interface: u32, record: &TraceRecord) {
    if etw::wants(KEYWORDS) {
        write(interface, record);
    }
}

#[cold]
#[inline(never)]
fn write(interface: u32, record: &TraceRecord) {
    let queue_pair = record.qpn.value();
    let activity = (queue_pair >= FIRST_USER).then_some(Activity { interface, queue_pair });
    let [name, _, last] = record.event.text();
    match record.event {
        TraceEvent::Dropped(_) => {
            etw::write(activity, || table::FrameDropped { interface, queue_pair, reason: name });
        }
        TraceEvent::Ignored(_) => {
            etw::write(activity, || table::MessageIgnored { interface, reason: name });
        }
        TraceEvent::Retransmitted => {
            etw::write(activity, || table::Retransmitted { interface, queue_pair });
        }
        TraceEvent::TimedOut => etw::write(activity, || table::TimedOut { interface, queue_pair }),
        TraceEvent::State { .. } => {
            let (from, to) = (name, last);
            etw::write(activity, || table::QueuePairChanged { interface, queue_pair, from, to });
        }
        TraceEvent::Flushed(cause) => {
            etw::write(activity, || table::QueuePairFlushed { interface, queue_pair, cause });
        }
        TraceEvent::CqOverflow => etw::write(activity, || table::CqOverflowed { interface, queue_pair }),
        TraceEvent::RateReduced => etw::write(activity, || table::RateReduced { interface, queue_pair }),
        TraceEvent::CongestionNotified => {
            etw::write(activity, || table::CongestionNotified { interface, queue_pair });
        }
        TraceEvent::Connection(change) => connection(activity, interface, queue_pair, change),
        TraceEvent::Refused { reason, ends } => etw::write(activity, || table::RequestRefused {
            interface,
            local: ends.local,
            remote: ends.remote,
            reason: reason_text(reason),
        }),
    }
    if has_sequence(record.event) {
        let psn = record.psn.value();
        etw::write(activity, || table::SequenceNumber { interface, queue_pair, psn, event: name });
    }
}

/// Returns whether an event is about a packet, whose sequence number is of interest.
const fn has_sequence(event: TraceEvent) -> bool {
    matches!(event, TraceEvent::Dropped(_) | TraceEvent::Retransmitted | TraceEvent::TimedOut)
}

fn connection(activity: Option<Activity>, interface: u32, queue_pair: u32, change: ConnectionChange) {
    let ConnectionChange { ends, from, to, input, reason } = change;
    let (local, remote) = (ends.local, ends.remote);
    if let Some(reason) = reason {
        let reason = reason_text(reason);
        etw::write(activity, || table::ConnectionRefused {
            interface,
            queue_pair,
            local,
            remote,
            input,
            reason,
        });
    }
    etw::write(activity, || table::ConnectionChanged {
        interface,
        queue_pair,
        local,
        remote,
        from,
        to,
        input,
    });
}
