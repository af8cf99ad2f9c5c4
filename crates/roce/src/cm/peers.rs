// SPDX-License-Identifier: MIT OR Apache-2.0

//! How much each peer takes up, by its address.
//!
//! Memory is taken by [`Peers::reserve`] only.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::index::Index;
use fallible::{AllocError, vec};

/// What is counted of one peer. Nothing of a peer without connections.
struct Peer {
    ip: IpAddr,
    connections: usize,
    half_open: usize,
}

#[derive(Default)]
pub(super) struct Peers {
    /// From an address's hash to the place in `all`.
    index: Index,
    all: Vec<Option<Peer>>,
    /// Free places. Has room for all.
    free: Vec<u32>,
}

impl Peers {
    /// Makes room for `count` peers in all.
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

    /// Connections with a peer, and those of them that it has begun and not completed.
    pub(super) fn counts(&self, hash: u32, ip: IpAddr) -> (usize, usize) {
        let peer = self.find(hash, ip).and_then(|place| self.all.get(place as usize)?.as_ref());
        peer.map_or((0, 0), |peer| (peer.connections, peer.half_open))
    }

    /// A connection with a peer begins; gives the peer's place, for [`Peers::leave`].
    pub(super) fn enter(&mut self, hash: u32, ip: IpAddr) -> u32 {
        let found = self.find(hash, ip);
        let place = found.unwrap_or_else(|| {
            // There is a place for each connection.
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

    /// A connection with a peer ends.
    pub(super) fn leave(&mut self, hash: u32, place: u32) {
        let Some(peer) = self.at(place) else { return };
        peer.connections = peer.connections.saturating_sub(1);
        if peer.connections == 0 {
            self.index.remove(hash, place);
            if let Some(room) = self.all.get_mut(place as usize) {
                *room = None;
            }
            // There is room for all places, each of which is free once.
            let _ = vec::push_within_capacity(&mut self.free, place);
        }
    }

    /// A connection that the peer has begun is now half-open, or no longer so.
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
                    0 if mine.len() < 8 => mine.push((peers.enter(hash(number), ip(number)), false)),
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
                            peers.leave(hash(number), place);
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
