// SPDX-License-Identifier: MIT OR Apache-2.0

//! The time for which stored packets wait for the missing one: a peer that no longer sends it does not hold the stash of all.

use core::time::Duration;

use lock_api::RawMutex;

use super::stash::Standstill;
use crate::time::Instant;
use crate::transport::env::Env;
use crate::transport::responder::Responder;

/// Time after which the stored packets of a queue pair are freed if the same packet is missing all the while; twice as long at most.
/// About the longest ACK timeout: after it a peer sends everything again.
const LIMIT: Duration = Duration::from_secs(1);

/// Records that a packet was stored.
pub(super) fn watch(responder: &mut Responder, now: Instant) {
    let missing = responder.expected;
    responder.standstill.get_or_insert(Standstill { missing, since: now });
}

/// Returns when [`handle`] is to be called, if packets were stored and one before them is missing.
#[inline]
pub(crate) fn deadline(responder: &Responder) -> Option<Instant> {
    // A field that each packet uses.
    responder.newest_after_gap?;
    responder.standstill.map(|standstill| standstill.since + LIMIT)
}

/// Frees the stored packets if the missing one has not come for the limit.
pub(crate) fn handle<R: RawMutex>(responder: &mut Responder, env: &Env<'_, R>) {
    let Some(Standstill { missing, since }) = responder.standstill else { return };
    if since + LIMIT > env.now {
        return;
    }
    responder.standstill = None;
    if missing == responder.expected {
        responder.stash.clear(&env.shared.stash);
    } else if !responder.stash.is_empty() {
        watch(responder, env.now);
    }
}
