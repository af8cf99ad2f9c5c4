// SPDX-License-Identifier: MIT OR Apache-2.0

//! Limits on connections, and eviction: protection against floods of REQs from spoofed sources.
//!
//! A connection is half-open from its REQ until it is established; until then its source address is unverified,
//! as with a TCP SYN (RFC 4987). Half-open connections are bounded per peer and in total. At a bound, the oldest
//! one is evicted if it is older than [`GRACE`]; otherwise the new request is dropped, so that a flood does not
//! evict connections that are about to complete, and a peer that repeats its request is admitted in between. Established connections are never evicted; released connections
//! in TIMEWAIT always can be.

use core::{net::IpAddr, time::Duration};

use super::{Cm, State, state::Input};
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

impl Cm {
    /// Returns whether a peer may begin one more connection. Evicts a half-open connection if necessary.
    pub(super) fn admission(&mut self, now: Instant, peer: IpAddr) -> Admission {
        let (connections, half_open) = self.peers.counts(self.ip_hash(peer), peer);
        // Anyone can begin connections in the name of this peer, but not establish them.
        if connections.saturating_sub(half_open) >= self.config.max_per_peer {
            return Admission::Never;
        }
        let is_full = connections >= self.config.max_per_peer;
        let evicted = if is_full || half_open >= self.config.max_half_open_per_peer {
            self.evict(now, Some(peer))
        } else {
            self.half_open.len() < self.config.max_half_open || self.evict(now, None)
        };
        if evicted { Admission::Now } else { Admission::Later }
    }

    /// Aborts the oldest half-open connection, of all or of one peer, if it is older than [`GRACE`].
    fn evict(&mut self, now: Instant, peer: Option<IpAddr>) -> bool {
        let conns = &self.conns;
        let oldest = self
            .half_open
            .iter()
            .filter_map(|index| Some((index, conns.get(index)?)))
            .take_while(|(_, conn)| now.duration_since(conn.since) >= GRACE)
            .find(|(_, conn)| peer.is_none_or(|peer| conn.path.remote_ip == peer))
            .map(|(index, _)| index);
        let Some(index) = oldest else { return false };
        self.end(now, index, Input::Abort, RejReason::NO_RESOURCES);
        true
    }

    /// Makes a slot available for one more connection.
    pub(super) fn make_room(&mut self, now: Instant) -> Result<(), ConnError> {
        if self.conns.has_free() {
            return Ok(());
        }
        if self.conns.capacity() < self.config.max_connections.min(1 << 16) {
            return self.grow();
        }
        if self.reclaimable.is_empty() {
            // It becomes reclaimable at once unless the consumer owns it.
            self.evict(now, None);
        }
        match self.reclaimable.first() {
            Some(index) if self.advance(now, index, Input::Expire) => Ok(()),
            _ => Err(ConnError::TooMany),
        }
    }

    fn grow(&mut self) -> Result<(), ConnError> {
        let slots = self.conns.next_capacity();
        self.by_id.reserve(slots)?;
        self.by_qpn.reserve(slots)?;
        self.peers.reserve(slots)?;
        self.deadlines.reserve(slots)?;
        self.outbox.reserve(slots)?;
        self.pending_events.reserve(slots)?;
        self.half_open.reserve(slots)?;
        self.reclaimable.reserve(slots)?;
        self.conns.grow()?;
        Ok(())
    }

    /// Updates the counts after a transition from `before` to the present state.
    pub(super) fn account(&mut self, now: Instant, index: u32, before: State) {
        let Some(conn) = self.conns.get_mut(index) else { return };
        let (after, ip) = (conn.state, conn.path.remote_ip);
        let hash = self.prf.hash_ip(ip);
        if after.is_live() && conn.peer_place.is_none() {
            conn.peer_place = Some(self.peers.add_connection(hash, ip));
        }
        let Some(place) = conn.peer_place else { return };
        if before.is_half_open() != after.is_half_open() {
            self.peers.set_half_open(place, after.is_half_open());
            if after.is_half_open() {
                conn.since = now;
                self.half_open.push(index);
            } else {
                self.half_open.remove(index);
            }
        }
        if !after.is_live() {
            conn.peer_place = None;
            self.peers.remove_connection(hash, place);
        }
        self.update_reclaimable(index);
    }

    /// Adds a connection to the reclaimable ones if it is released and in TIMEWAIT, or removes it.
    pub(super) fn update_reclaimable(&mut self, index: u32) {
        let fades = self.conns.get(index).is_some_and(|conn| conn.state == State::TimeWait && !conn.owned);
        if fades {
            self.reclaimable.push(index);
        } else {
            self.reclaimable.remove(index);
        }
    }

    fn ip_hash(&self, ip: IpAddr) -> u32 {
        self.prf.hash_ip(ip)
    }
}
