// SPDX-License-Identifier: MIT OR Apache-2.0

//! Limits on connections, and eviction: protection against floods of REQs from spoofed sources.
//!
//! A connection is half-open from its REQ until it is established; until then its source address is unverified,
//! as with a TCP SYN (RFC 4987). Half-open connections are bounded per peer and in total. At a bound, the oldest
//! one is evicted if it is older than [`GRACE`]; otherwise the new request is dropped, so that a flood does not
//! evict connections that are about to complete, and a peer that repeats its request is admitted in between. Established connections are never evicted; released connections
//! in TIMEWAIT always can be.

use core::{net::IpAddr, time::Duration};

use super::{conn::Conn, conn_set::ConnSet, state::Input};
use crate::error::ConnError;
use crate::time::Instant;
use roce_wire::cm::RejReason;

/// Whether a peer may begin a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Now,
    /// The half-open connections are at a bound, or fill another one. The REQ is dropped: the peer repeats it, and a REJ would end its attempt.
    Later,
    /// The peer has too many established connections: the REQ is refused.
    Never,
}

/// Age below which a half-open connection is not evicted.
const GRACE: Duration = Duration::from_secs(2);

impl ConnSet {
    /// Returns whether a peer may begin one more connection. Evicts a half-open connection if necessary.
    pub(super) fn admission(&mut self, now: Instant, peer: IpAddr) -> Admission {
        let (connections, half_open) = self.slots.counts(peer);
        // Anyone can begin connections in the name of this peer, but not establish them.
        if connections.saturating_sub(half_open) >= self.config.max_per_peer {
            return Admission::Never;
        }
        let is_full = connections >= self.config.max_per_peer;
        let evicted = if is_full || half_open >= self.config.max_half_open_per_peer {
            self.evict(now, Some(peer))
        } else {
            self.slots.half_open.len() < self.config.max_half_open || self.evict(now, None)
        };
        if evicted { Admission::Now } else { Admission::Later }
    }

    /// Aborts the oldest half-open connection, of all or of one peer, if it is older than [`GRACE`].
    fn evict(&mut self, now: Instant, peer: Option<IpAddr>) -> bool {
        let slots = &self.slots;
        let oldest = slots
            .half_open
            .iter()
            .filter_map(|index| Some((index, slots.get(index)?)))
            .take_while(|(_, conn)| now.duration_since(conn.since) >= GRACE)
            .find(|(_, conn)| peer.is_none_or(|peer| conn.path.remote_ip == peer))
            .map(|(index, _)| index);
        let Some(index) = oldest else { return false };
        self.end(now, index, Input::Abort, RejReason::NO_RESOURCES);
        true
    }

    /// Makes a slot available for one more connection.
    fn make_room(&mut self, now: Instant) -> Result<(), ConnError> {
        if self.slots.has_free() {
            return Ok(());
        }
        if self.slots.capacity() < self.config.max_connections.min(1 << 16) {
            return self.slots.grow();
        }
        if self.slots.reclaimable.is_empty() {
            // It becomes reclaimable at once unless the consumer owns it.
            self.evict(now, None);
        }
        match self.slots.reclaimable.first() {
            Some(index) if self.advance(now, index, Input::Expire) => Ok(()),
            _ => Err(ConnError::TooMany),
        }
    }

    /// Creates a connection in state `Idle` and initializes it by `fill`.
    ///
    /// # Errors
    /// [`ConnError::OutOfMemory`], [`ConnError::TooMany`].
    pub(super) fn create(&mut self, now: Instant, fill: impl FnOnce(&mut Conn)) -> Result<u32, ConnError> {
        self.make_room(now)?;
        let (index, conn) = self.slots.claim().ok_or(ConnError::TooMany)?;
        conn.interval = self.config.interval();
        conn.time_wait = self.config.time_wait;
        fill(conn);
        Ok(index)
    }
}
