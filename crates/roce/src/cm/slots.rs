// SPDX-License-Identifier: MIT OR Apache-2.0

//! The slots of connections, and everything that refers to a connection by its slot: indices, counts per peer, queues, deadlines.
//!
//! Changes no state of a connection. Only [`Slots::grow`] allocates.

use core::net::IpAddr;

use super::{
    conn::Conn, deadlines::Deadlines, index::Index, peers::Peers, prf::Prf, queue::Queue, state::State,
    table::Table,
};
use crate::{conn::ConnId, error::ConnError, time::Instant};
use roce_wire::{Qpn, cm::CommId};

/// The connections by slot.
pub(super) struct Slots {
    pub(super) prf: Prf,
    conns: Table<Conn>,
    /// Connections by the peer's GUID and communication ID: finds duplicate REQs.
    by_id: Index,
    /// Connections by the peer's GUID and QPN: finds stale connections.
    by_qpn: Index,
    peers: Peers,
    pub(super) deadlines: Deadlines,
    /// Connections that peers began and that are not established, the oldest first.
    pub(super) half_open: Queue,
    /// Released connections in TIMEWAIT, the oldest first: their slots can be reused.
    pub(super) reclaimable: Queue,
    /// Connections with a message to send.
    pub(super) outbox: Queue,
    /// Connections with an event for the consumer.
    pub(super) pending_events: Queue,
}

impl Slots {
    pub(super) fn new(prf: Prf) -> Self {
        Self {
            prf,
            conns: Table::new(),
            by_id: Index::default(),
            by_qpn: Index::default(),
            peers: Peers::default(),
            deadlines: Deadlines::default(),
            half_open: Queue::new(),
            reclaimable: Queue::new(),
            outbox: Queue::new(),
            pending_events: Queue::new(),
        }
    }

    /// Returns the number of slots in use.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.conns.len()
    }

    /// Returns the number of slots, including free ones.
    pub(super) fn capacity(&self) -> usize {
        self.conns.capacity()
    }

    pub(super) fn has_free(&self) -> bool {
        self.conns.has_free()
    }

    /// Allocates more slots, with room for them in all that refers to them.
    ///
    /// # Errors
    /// [`ConnError::OutOfMemory`].
    pub(super) fn grow(&mut self) -> Result<(), ConnError> {
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

    /// Takes a free slot for an idle connection, which gets its communication ID.
    pub(super) fn claim(&mut self) -> Option<(u32, &mut Conn)> {
        let (index, generation) = self.conns.claim()?;
        let local_id = self.comm_id(index, generation);
        let conn = self.conns.get_mut(index)?;
        conn.generation = generation;
        conn.local_id = local_id;
        Some((index, conn))
    }

    pub(super) fn get(&self, index: u32) -> Option<&Conn> {
        self.conns.get(index)
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Conn> {
        self.conns.get_mut(index)
    }

    /// Returns the communication ID of a slot: unique among slots, and unpredictable for peers.
    pub(super) fn comm_id(&self, index: u32, generation: u32) -> CommId {
        let place = generation << 16 | index & 0xFFFF;
        // 0 is not a valid ID. Flipping the top bit of the generation gives another one.
        match self.prf.permute(place) {
            0 => CommId(self.prf.permute(place ^ self.prf.top_bit())),
            id => CommId(id),
        }
    }

    /// Returns another communication ID for a connection than its present one. There are two for each generation of a slot.
    pub(super) fn other_comm_id(&self, index: u32) -> CommId {
        let Some(conn) = self.conns.get(index) else { return CommId(0) };
        let flipped = conn.generation ^ self.prf.top_bit() >> 16;
        let [first, second] = [conn.generation, flipped].map(|generation| self.comm_id(index, generation));
        if conn.local_id == first { second } else { first }
    }

    /// Finds the connection with the local communication ID `id`.
    pub(super) fn find(&self, id: CommId) -> Option<(u32, &Conn)> {
        let index = self.prf.unpermute(id.0) & 0xFFFF;
        let conn = self.conns.get(index)?;
        (conn.local_id == id).then_some((index, conn))
    }

    /// Finds the slot of a handle.
    ///
    /// # Errors
    /// [`ConnError::Unknown`].
    pub(super) fn resolve(&self, id: ConnId) -> Result<(u32, &Conn), ConnError> {
        let (index, generation) = (id.0 as u32, (id.0 >> 32) as u32);
        let conn = self.conns.get_generation(index, generation).filter(|conn| conn.owned);
        conn.map(|conn| (index, conn)).ok_or(ConnError::Unknown)
    }

    /// Returns the handle of a connection.
    pub(super) fn id_of(&self, index: u32) -> ConnId {
        let generation = self.conns.get(index).map_or(0, |conn| conn.generation);
        ConnId(u64::from(generation) << 32 | u64::from(index))
    }

    /// Finds the connection with a peer's communication ID for which `is_it` returns `true`.
    pub(super) fn find_by_id(&self, guid: u64, id: CommId, is_it: impl Fn(&Conn) -> bool) -> Option<u32> {
        self.by_id.find(self.id_hash(guid, id), |index| {
            self.conns
                .get(index)
                .is_some_and(|conn| conn.remote_guid == guid && conn.remote_id == id && is_it(conn))
        })
    }

    /// Finds the connection with a peer's queue pair for which `is_it` returns `true`.
    pub(super) fn find_by_qpn(&self, guid: u64, qpn: Qpn, is_it: impl Fn(&Conn) -> bool) -> Option<u32> {
        self.by_qpn.find(self.qpn_hash(guid, qpn), |index| {
            self.conns
                .get(index)
                .is_some_and(|conn| conn.remote_guid == guid && conn.peer.qpn == qpn && is_it(conn))
        })
    }

    /// Makes a connection known by its peer's communication ID.
    pub(super) fn index_by_id(&mut self, index: u32) {
        let Some(conn) = self.conns.get(index) else { return };
        let hash = self.id_hash(conn.remote_guid, conn.remote_id);
        if let Some(conn) = self.conns.get_mut(index) {
            conn.id_hash = Some(hash);
            self.by_id.insert(hash, index);
        }
    }

    /// Makes a connection known by its peer's queue pair.
    pub(super) fn index_by_qpn(&mut self, index: u32) {
        let Some(conn) = self.conns.get(index) else { return };
        let hash = self.qpn_hash(conn.remote_guid, conn.peer.qpn);
        if let Some(conn) = self.conns.get_mut(index) {
            conn.qpn_hash = Some(hash);
            self.by_qpn.insert(hash, index);
        }
    }

    fn id_hash(&self, guid: u64, id: CommId) -> u32 {
        self.prf.hash(guid, u64::from(id.0))
    }

    fn qpn_hash(&self, guid: u64, qpn: Qpn) -> u32 {
        self.prf.hash(guid, 1 << 32 | u64::from(qpn.value()))
    }

    /// Returns the connections with a peer, and how many of them are half-open.
    pub(super) fn counts(&self, peer: IpAddr) -> (usize, usize) {
        self.peers.counts(self.prf.hash_ip(peer), peer)
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

    /// Makes a connection unknown by its peer's queue pair.
    pub(super) fn forget_qpn(&mut self, index: u32) {
        if let Some(hash) = self.conns.get_mut(index).and_then(|conn| conn.qpn_hash.take()) {
            self.by_qpn.remove(hash, index);
        }
    }

    /// Removes an idle connection from the indices, and frees its slot if the consumer has released it.
    pub(super) fn forget(&mut self, index: u32) {
        self.forget_qpn(index);
        let Some(conn) = self.conns.get_mut(index) else { return };
        if let Some(hash) = conn.id_hash.take() {
            self.by_id.remove(hash, index);
        }
        if !conn.owned {
            self.pending_events.remove(index);
            self.reclaimable.remove(index);
            self.conns.free(index);
        }
    }

    /// Queues a connection for [`Cm::poll_event`](super::Cm::poll_event) if it has a pending event.
    pub(super) fn queue_event(&mut self, index: u32) {
        if self.conns.get(index).is_some_and(|conn| !conn.pending.is_empty()) {
            self.pending_events.push(index);
        }
    }

    /// Queues a connection's message for sending, the first time or as a retry.
    pub(super) fn queue_message(&mut self, now: Instant, index: u32) {
        self.outbox.push(index);
        // The retry timer also runs if no transmit slot becomes free.
        self.arm(now, index);
    }

    /// Starts the retry timer, in states that retry.
    pub(super) fn arm(&mut self, now: Instant, index: u32) {
        if let Some(conn) = self.conns.get(index)
            && conn.state.repeats()
        {
            self.deadlines.set(index, Some(now + conn.interval));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots() -> Slots {
        let mut slots = Slots::new(Prf::new(&[7; 32], crate::number_prefix::NumberPrefix::NONE));
        slots.grow().unwrap();
        slots
    }

    #[test]
    fn a_connection_is_found_by_what_its_peer_calls_it_until_it_is_forgotten() {
        let mut slots = slots();
        let (index, conn) = slots.claim().unwrap();
        (conn.remote_guid, conn.remote_id, conn.peer.qpn) = (5, CommId(6), Qpn::new(17));
        let any = |_: &Conn| true;
        assert_eq!(slots.find_by_id(5, CommId(6), any), None);
        slots.index_by_id(index);
        slots.index_by_qpn(index);
        assert_eq!(slots.find_by_id(5, CommId(6), any), Some(index));
        assert_eq!(slots.find_by_qpn(5, Qpn::new(17), any), Some(index));
        assert_eq!(slots.find_by_id(4, CommId(6), any), None, "of another host");
        assert_eq!(slots.find_by_qpn(5, Qpn::new(17), |_| false), None, "refused");
        slots.forget(index);
        assert_eq!(slots.find_by_id(5, CommId(6), any), None);
        assert_eq!(slots.find_by_qpn(5, Qpn::new(17), any), None);
        assert_eq!(slots.len(), 0, "no consumer had it");
    }

    #[test]
    fn a_handle_is_valid_while_a_consumer_owns_the_connection() {
        let mut slots = slots();
        let (index, _) = slots.claim().unwrap();
        let id = slots.id_of(index);
        assert!(slots.resolve(id).is_err());
        slots.get_mut(index).unwrap().owned = true;
        assert_eq!(slots.resolve(id).unwrap().0, index);
        let local_id = slots.get(index).unwrap().local_id;
        assert_eq!(slots.find(local_id).unwrap().0, index);
        slots.forget(index);
        assert!(slots.resolve(id).is_ok(), "an idle connection that is not released stays");
    }

    #[test]
    fn half_open_connections_are_counted_for_their_peer() {
        let mut slots = slots();
        let (index, conn) = slots.claim().unwrap();
        let peer = IpAddr::from([10, 0, 0, 9]);
        conn.path.remote_ip = peer;
        let now = Instant::from_nanos(1);
        let enter = |slots: &mut Slots, state| {
            let before = core::mem::replace(&mut slots.get_mut(index).unwrap().state, state);
            slots.account(now, index, before);
            (slots.counts(peer), slots.half_open.len(), slots.reclaimable.len())
        };
        assert_eq!(enter(&mut slots, State::ReqReceived), ((1, 1), 1, 0));
        assert_eq!(enter(&mut slots, State::Established), ((1, 0), 0, 0));
        assert_eq!(enter(&mut slots, State::TimeWait), ((0, 0), 0, 1));
    }
}
