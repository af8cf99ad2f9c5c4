// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets that the peer has named as missing, besides the one of its NAK: see
//! [`gaps::hints`](crate::transport::responder::gaps::hints). They are sent again one by one, and the requester continues where it was.

use super::Recovery;
use super::retransmission::{Resend, Retransmission};
use super::round_trip::Rtt;
use crate::time::Instant;
use crate::transport::sequence::Sequence;

/// Bounds of the packets that a requester has sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// The oldest unacknowledged packet.
    pub(crate) una: Sequence,
    /// The next packet to send.
    pub(crate) next: Sequence,
    /// The peer may store packets before it.
    pub(crate) storable: Sequence,
    /// The first packet that was never sent.
    pub(crate) high: Sequence,
}

/// Returns whether the packet at `una` was sent again because the peer has named it, and can be on its way.
pub(crate) fn is_on_its_way(recovery: &Recovery, una: Sequence, now: Instant) -> bool {
    let wait = recovery.rtt.map_or(0, Rtt::answer_time);
    recovery.hinted.sent(una).is_some_and(|at| now.nanos_since(at) < wait)
}

/// Returns whether a gap hint shows that the oldest packet is missing, and it was not sent again: the NAK is lost.
pub(crate) fn is_unreported(recovery: &Recovery, sent: Sent) -> bool {
    recovery.hinted.sent(sent.una).is_none() && recovery.is_unhandled_loss(sent.una, sent.next)
}

/// Handles a gap hint: the peer misses the packet at `missing`, too. Returns the packet to send next, if that is another one now.
pub(crate) fn handle_hint(
    recovery: &mut Recovery,
    missing: Sequence,
    sent: Sent,
    now: Instant,
) -> Option<Sequence> {
    let Sent { una, next, storable, high } = sent;
    let Some(Retransmission { kind: Resend::Selective { run_end, resume }, .. }) = recovery.retransmission
    else {
        return None;
    };
    let in_run = next < run_end;
    let is_sending = recovery.hinted.resume != Sequence::MAX;
    let passed_over = if in_run {
        (run_end..resume).contains(&missing)
    } else {
        missing < if is_sending { recovery.hinted.resume } else { next }
    };
    let may_repeat = recovery.peer_stores && recovery.rnr_until.is_none();
    if !may_repeat || !passed_over || missing <= una || missing >= storable {
        return None;
    }
    let round_trip = recovery.window.round_trip();
    if !recovery.hinted.add(una, missing, |at| now.nanos_since(at) >= round_trip) {
        return None;
    }
    recovery.window.lose(missing, high, recovery.connecting);
    recovery.record_repair(high);
    if in_run || is_sending { None } else { recovery.hinted.before(una, next) }
}

/// Accounts for the packet resent at `sequence`, up to `end`. Returns the next packet to send.
pub(crate) fn resume_after_resend(
    recovery: &mut Recovery,
    una: Sequence,
    (sequence, end): (Sequence, Sequence),
    now: Instant,
) -> Sequence {
    let next = if let Some(resume) = recovery.hinted.leave() {
        recovery.hinted.mark_sent(sequence, now);
        resume
    } else if let Some(retransmission) = &mut recovery.retransmission {
        retransmission.resume_after(sequence, end)
    } else {
        end
    };
    recovery.hinted.before(una, next).unwrap_or(next)
}
