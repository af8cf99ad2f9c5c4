// SPDX-License-Identifier: MIT OR Apache-2.0

//! Who may take up how much.
//!
//! A connection is half-open from its REQ until it is established: that far, anybody gets it who can send a
//! datagram in somebody's name. Half-open connections are bounded per peer and in all. When a bound is
//! reached, the oldest one gives way if it has had its time, [`GRACE`]; otherwise the newcomer is refused, so
//! that a flood does not wash away those who are about to complete. Established connections are never ended
//! for others; those that are over and wait for late messages always give way.

use core::{net::IpAddr, time::Duration};

use super::{Cm, State, state::Input};
use crate::error::ConnError;
use crate::time::Instant;
use roce_wire::cm::RejReason;

/// How long a half-open connection keeps its place against newcomers.
const GRACE: Duration = Duration::from_secs(2);

impl Cm {
    /// Whether a stranger may begin one more connection; makes room for it in the counts.
    pub(super) fn admits(&mut self, now: Instant, peer: IpAddr) -> bool {
        let (connections, half_open) = self.peers.counts(self.ip_hash(peer), peer);
        if connections >= self.config.max_per_peer {
            return false;
        }
        if half_open >= self.config.max_half_open_per_peer {
            return self.evict(now, Some(peer));
        }
        self.half_open.len() < self.config.max_half_open || self.evict(now, None)
    }

    /// Ends the oldest half-open connection, of all or of one peer, if it is old enough.
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

    /// Makes room in the table for one more connection.
    pub(super) fn make_room(&mut self, now: Instant) -> Result<(), ConnError> {
        if self.conns.has_free() {
            return Ok(());
        }
        if self.conns.capacity() < self.config.max_connections.min(1 << 16) {
            return self.grow();
        }
        if self.fading.is_empty() {
            // It fades at once if no consumer has it in hand.
            self.evict(now, None);
        }
        match self.fading.first() {
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
        self.telling.reserve(slots)?;
        self.half_open.reserve(slots)?;
        self.fading.reserve(slots)?;
        self.conns.grow()?;
        Ok(())
    }

    /// Keeps the counts when a connection goes from `before` to another state.
    pub(super) fn account(&mut self, now: Instant, index: u32, before: State) {
        let Some(conn) = self.conns.get_mut(index) else { return };
        let (after, ip) = (conn.state, conn.path.remote_ip);
        let hash = self.prf.hash_ip(ip);
        if after.is_live() && conn.peer_place.is_none() {
            conn.peer_place = Some(self.peers.enter(hash, ip));
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
            self.peers.leave(hash, place);
        }
        self.note_fading(index);
    }

    /// Notes whether a connection is only there for late messages.
    pub(super) fn note_fading(&mut self, index: u32) {
        let fades = self.conns.get(index).is_some_and(|conn| conn.state == State::TimeWait && !conn.owned);
        if fades {
            self.fading.push(index);
        } else {
            self.fading.remove(index);
        }
    }

    fn ip_hash(&self, ip: IpAddr) -> u32 {
        self.prf.hash_ip(ip)
    }
}
