// SPDX-License-Identifier: MIT OR Apache-2.0

//! Gap hints: the responder names packets that it misses besides the expected one.
//!
//! A NAK names one packet, and a responder sends the next one only when that has arrived: a loss in each round trip is all that can be
//! repaired. An acknowledgement of nothing new, which every requester ignores, has room for the distance to another missing packet in the
//! reserved bits of its BTH, which are to be ignored, too ([`Bth::gap_hint`](roce_wire::Bth::gap_hint)). It is sent to a peer that has
//! repeated selectively before, as this engine does.
//!
//! Each missing packet is named once, after packets behind it have arrived. One that is sent again and arrives although an earlier
//! one is missing still shows that this is lost again, and all are named again.

use lock_api::RawMutex;

use super::stash::StashMemory;
use crate::transport::env::Env;
use crate::transport::responder::Responder;
use crate::transport::sequence::Sequence;
use roce_wire::MOST_HINTED;

/// As many packets behind a missing one show that it is lost, and not only late.
const REORDERED: u64 = 3;

/// Packets that are looked at for each that arrives.
const LOOKED_AT: u64 = 64;

/// Accounts for the first packet after a gap: those that arrived after gaps before it name no more.
pub(crate) const fn begin(responder: &mut Responder) {
    responder.hints.arrivals = 0;
}

/// Looks for packets that are missing besides the expected one: another one has arrived after a gap. `is_late` tells that it was
/// missing before, at `sequence`.
pub(crate) fn look<R: RawMutex>(responder: &mut Responder, env: &Env<'_, R>, late: Option<Sequence>) {
    if !responder.peer_repeats_selectively || responder.without_receive {
        return;
    }
    let memory = &env.shared.stash;
    responder.hints.arrivals = responder.hints.arrivals.saturating_add(1);
    let first = responder.expected.next();
    if let Some(late) = late
        && late < responder.hints.frontier
        && missing(responder, memory, first, late.min(first.add(LOOKED_AT))).is_some()
    {
        responder.hints.frontier = first;
    }
    if !responder.hints.is_wanted() {
        advance(responder, memory);
    }
}

/// Finds the next packet to name.
pub(crate) fn advance<R: RawMutex>(responder: &mut Responder, memory: &StashMemory<R>) {
    if responder.hints.arrivals == 0 {
        return;
    }
    let first = responder.expected.next();
    let from = responder.hints.frontier.max(first);
    let end = responder.out_of_order.newest().before(REORDERED - 1);
    let end = end.min(from.add(LOOKED_AT)).min(first.add(u64::from(MOST_HINTED)));
    let found = missing(responder, memory, from, end);
    responder.hints.frontier = found.map_or(from.max(end), Sequence::next);
    responder.hints.next = found.unwrap_or(Sequence::MAX);
    responder.ack_pending |= found.is_some();
}

/// Takes the distance of the packet to name from the expected one; `None` if it is no longer missing.
pub(crate) fn take<R: RawMutex>(responder: &mut Responder, memory: &StashMemory<R>) -> Option<u16> {
    let next = core::mem::replace(&mut responder.hints.next, Sequence::MAX);
    let distance = next.checked_since(responder.expected).filter(|&distance| distance > 0)?;
    missing(responder, memory, next, next.next())?;
    u16::try_from(distance).ok().filter(|&distance| distance <= MOST_HINTED)
}

/// Returns the first packet from `from` to before `end` that has not arrived.
fn missing<R: RawMutex>(
    responder: &Responder,
    memory: &StashMemory<R>,
    from: Sequence,
    end: Sequence,
) -> Option<Sequence> {
    let mut at = from;
    loop {
        at = responder.out_of_order.first_missing(at, end)?;
        if !responder.stash.contains(at, memory) {
            return Some(at);
        }
        at = at.next();
    }
}
