// SPDX-License-Identifier: MIT OR Apache-2.0

//! The time for which stored packets wait for the missing one: a peer that no longer sends it does not hold the stash of all.

use core::time::Duration;

use lock_api::RawMutex;

use crate::time::Instant;
use crate::transport::env::Env;
use crate::transport::responder::Responder;
use crate::transport::sequence::Sequence;

/// Time after which the stored packets of a queue pair are freed if the same packet is missing all the while; twice as long at most.
/// About the longest ACK timeout: after it a peer sends everything again.
const LIMIT: Duration = Duration::from_secs(1);

/// The packet that was missing at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standstill {
    missing: Sequence,
    since: Instant,
}

impl Responder {
    /// Records that a packet was stored.
    pub(super) fn watch_stash(&mut self, now: Instant) {
        let missing = self.expected;
        self.standstill.get_or_insert(Standstill { missing, since: now });
    }

    /// Returns when [`Responder::handle_standstill`] is to be called, if packets were stored.
    pub(crate) fn standstill_deadline(&self) -> Option<Instant> {
        self.standstill.map(|standstill| standstill.since + LIMIT)
    }

    /// Frees the stored packets if the missing one has not come for the limit.
    pub(crate) fn handle_standstill<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        if self.standstill_deadline().is_none_or(|deadline| deadline > env.now) {
            return;
        }
        let before = self.standstill.take().map(|standstill| standstill.missing);
        if before == Some(self.expected) {
            self.stash.clear(&env.shared.stash);
        } else if !self.stash.is_empty() {
            self.watch_stash(env.now);
        }
    }
}
