// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counts of connections per peer address.
//!
//! Only [`Peers::reserve`] allocates.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::index::Index;
use fallible::{AllocError, vec};

/// Counts of one peer. Peers without connections have none.
struct Peer {
    ip: IpAddr,
    connections: usize,
    half_open: usize,
}

#[derive(Default)]
pub(super) struct Peers {
    /// Maps the hash of an address to a place in `all`.
    index: Index,
    all: Vec<Option<Peer>>,
    /// Free places. Has capacity for all.
    free: Vec<u32>,
}

impl Peers {
    /// Reserves capacity for `count` peers in total.
    pub(super) fn reserve(&mut self, count: usize) -> Result<(), AllocError> {
        self.index.reserve(count)?;
        vec::reserve(&mut self.free, count)?;
        vec::reserve_exact(&mut self.all, count)?;
        for place in self.all.len()..count {
            vec::push_within_capacity(&mut self.all, None)?;
            vec::push_within_capacity(&mut self.free, place as u32)?;
        }
        Ok(())
    }

    /// Returns the connections with a peer, and how many of them are half-open.
    pub(super) fn counts(&self, hash: u32, ip: IpAddr) -> (usize, usize) {
        let peer = self.find(hash, ip).and_then(|place| self.all.get(place as usize)?.as_ref());
        peer.map_or((0, 0), |peer| (peer.connections, peer.half_open))
    }

    /// Counts a new connection with a peer. Returns the peer's place, for [`Peers::remove_connection`].
    pub(super) fn add_connection(&mut self, hash: u32, ip: IpAddr) -> u32 {
        let found = self.find(hash, ip);
        let place = found.unwrap_or_else(|| {
            // Places are reserved for all connections.
            let place = self.free.pop().unwrap_or(u32::MAX);
            self.index.insert(hash, place);
            if let Some(room) = self.all.get_mut(place as usize) {
                *room = Some(Peer { ip, connections: 0, half_open: 0 });
            }
            place
        });
        if let Some(peer) = self.at(place) {
            peer.connections = peer.connections.saturating_add(1);
        }
        place
    }

    /// Counts the end of a connection with a peer.
    pub(super) fn remove_connection(&mut self, hash: u32, place: u32) {
        let Some(peer) = self.at(place) else { return };
        peer.connections = peer.connections.saturating_sub(1);
        if peer.connections == 0 {
            self.index.remove(hash, place);
            if let Some(room) = self.all.get_mut(place as usize) {
                *room = None;
            }
            // Capacity is reserved for all places, and each is free once.
            let _ = vec::push_within_capacity(&mut self.free, place);
        }
    }

    /// Counts a connection that became half-open, or no longer is.
    pub(super) fn set_half_open(&mut self, place: u32, is: bool) {
        if let Some(peer) = self.at(place) {
            peer.half_open =
                if is { peer.half_open.saturating_add(1) } else { peer.half_open.saturating_sub(1) };
        }
    }

    fn at(&mut self, place: u32) -> Option<&mut Peer> {
        self.all.get_mut(place as usize)?.as_mut()
    }

    fn find(&self, hash: u32, ip: IpAddr) -> Option<u32> {
        self.index.find(hash, |place| {
            self.all.get(place as usize).is_some_and(|peer| peer.as_ref().is_some_and(|peer| peer.ip == ip))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        // Few addresses, and hashes that collide.
        #[test]
        fn counts_are_those_of_each_address(steps in proptest::collection::vec((0u8..4, 0u8..6), 0..100)) {
            let mut peers = Peers::default();
            peers.reserve(8).unwrap();
            let mut model: BTreeMap<u8, Vec<(u32, bool)>> = BTreeMap::new();
            let ip = |number: u8| IpAddr::from([10, 0, 0, number]);
            let hash = |number: u8| u32::from(number / 2);
            for (step, number) in steps {
                let mine = model.entry(number).or_default();
                match step {
                    0 if mine.len() < 8 => mine.push((peers.add_connection(hash(number), ip(number)), false)),
                    1 => {
                        if let Some((place, half_open)) = mine.last_mut() {
                            *half_open = !*half_open;
                            peers.set_half_open(*place, *half_open);
                        }
                    }
                    _ => {
                        if let Some((place, half_open)) = mine.pop() {
                            if half_open {
                                peers.set_half_open(place, false);
                            }
                            peers.remove_connection(hash(number), place);
                        }
                    }
                }
                for number in 0..6 {
                    let mine = model.get(&number).map_or(&[][..], Vec::as_slice);
                    let half_open = mine.iter().filter(|(_, half_open)| *half_open).count();
                    prop_assert_eq!(peers.counts(hash(number), ip(number)), (mine.len(), half_open));
                }
            }
        }
    }
}
