// SPDX-License-Identifier: MIT OR Apache-2.0

//! The neighbor caches of a host's interfaces: link addresses of neighbors and their reachability. (RFC 4861 §5.1)

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use ndk_abi::netio::NL_NEIGHBOR_STATE;
use nt_sim::{Event, services::Slot};
use parking_lot::Mutex;

use super::frames::{How, Learned, Mac};

/// The neighbor caches of a host.
pub(crate) static NEIGHBORS: Slot<Neighbors> = Slot::new();

/// Time for which an answer makes a neighbor reachable: `REACHABLE_TIME`. (RFC 4861 §10)
pub const REACHABLE: Duration = Duration::from_secs(30);

/// The neighbor caches of one host.
#[derive(Default)]
pub struct Neighbors(Mutex<Cache>);

#[derive(Default)]
struct Cache {
    entries: BTreeMap<Neighbor, Entry>,
    /// The waits for answers, by number.
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
}

/// A neighbor: the LUID of the interface, and an address.
type Neighbor = (u64, IpAddr);

struct Waiting {
    neighbor: Neighbor,
    answered: Event,
    /// The link address of the first answer.
    answer: Option<Mac>,
}

struct Entry {
    mac: Mac,
    /// Time from which on the entry is stale.
    reachable_until: u64,
}

/// Identifies a wait for an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket(u64);

impl Neighbors {
    /// Returns the link address of a neighbor and its state at the time `now`.
    pub fn get(&self, luid: u64, address: IpAddr, now: u64) -> Option<(Mac, NL_NEIGHBOR_STATE)> {
        self.0.lock().entries.get(&(luid, address)).map(|entry| entry.at(now))
    }

    /// Returns all neighbors: LUID of the interface, address, link address, state.
    pub fn list(&self, now: u64) -> Vec<(u64, IpAddr, Mac, NL_NEIGHBOR_STATE)> {
        let row = |(&(luid, address), entry): (&Neighbor, &Entry)| {
            let (mac, state) = entry.at(now);
            (luid, address, mac, state)
        };
        self.0.lock().entries.iter().map(row).collect()
    }

    /// Updates the cache of an interface at the time `now` and wakes threads that wait for the answer.
    pub fn learn(&self, luid: u64, learned: Learned, now: u64) {
        let Learned { address, mac, how } = learned;
        let neighbor = (luid, address);
        let woken: Vec<_> = {
            let mut cache = self.0.lock();
            if how == How::Announced && !cache.entries.contains_key(&neighbor) {
                return;
            }
            let entry = cache.entries.entry(neighbor).or_insert(Entry { mac, reachable_until: 0 });
            if how == How::Answered {
                entry.reachable_until = now + REACHABLE.as_nanos() as u64;
            } else if entry.mac != mac {
                entry.reachable_until = 0;
            }
            entry.mac = mac;
            let waits = cache.waiting.values_mut();
            let answered = waits.filter(|waiting| waiting.neighbor == neighbor && how == How::Answered);
            answered
                .map(|waiting| {
                    waiting.answer.get_or_insert(mac);
                    waiting.answered.clone()
                })
                .collect()
        };
        for event in woken {
            event.set();
        }
    }

    /// Removes `address` and sets `answered` whenever it answers, until [`Neighbors::unwatch`].
    pub fn watch(&self, luid: u64, address: IpAddr, answered: Event) -> Ticket {
        let mut cache = self.0.lock();
        cache.entries.remove(&(luid, address));
        cache.next += 1;
        let number = cache.next;
        cache.waiting.insert(number, Waiting { neighbor: (luid, address), answered, answer: None });
        Ticket(number)
    }

    /// Ends a wait. Returns the link address of the answer, if there was one: another wait may have removed the entry since.
    pub fn unwatch(&self, Ticket(number): Ticket) -> Option<Mac> {
        self.0.lock().waiting.remove(&number)?.answer
    }

    /// Removes the neighbors for which `chosen` returns `true`.
    pub fn forget(&self, chosen: impl Fn(u64, IpAddr) -> bool) {
        self.0.lock().entries.retain(|&(luid, address), _| !chosen(luid, address));
    }
}

impl Entry {
    fn at(&self, now: u64) -> (Mac, NL_NEIGHBOR_STATE) {
        let reachable = now < self.reachable_until;
        let state = if reachable { NL_NEIGHBOR_STATE::NlnsReachable } else { NL_NEIGHBOR_STATE::NlnsStale };
        (self.mac, state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LUID: u64 = 6 << 48;
    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
    const MAC: Mac = [2, 0, 0, 0, 0, 2];
    const OTHER: Mac = [2, 0, 0, 0, 0, 3];

    fn learned(mac: Mac, how: How) -> Learned {
        Learned { address: ADDRESS, mac, how }
    }

    #[test]
    fn answer_makes_a_neighbor_reachable_for_a_time() {
        let cache = Neighbors::default();
        cache.learn(LUID, learned(MAC, How::Answered), 5);
        assert_eq!(cache.get(LUID, ADDRESS, 6), Some((MAC, NL_NEIGHBOR_STATE::NlnsReachable)));
        let later = 5 + REACHABLE.as_nanos() as u64;
        assert_eq!(cache.get(LUID, ADDRESS, later), Some((MAC, NL_NEIGHBOR_STATE::NlnsStale)));
    }

    #[test]
    fn wait_that_begins_later_does_not_take_an_answer_away() {
        let cache = Neighbors::default();
        let sim = nt_sim::Sim::builder().build();
        let first = cache.watch(LUID, ADDRESS, sim.event());
        cache.learn(LUID, learned(MAC, How::Answered), 0);
        let second = cache.watch(LUID, ADDRESS, sim.event());
        assert_eq!((cache.unwatch(first), cache.unwatch(second)), (Some(MAC), None));
    }

    #[test]
    fn interfaces_have_caches_of_their_own() {
        let cache = Neighbors::default();
        cache.learn(LUID, learned(MAC, How::Answered), 0);
        cache.learn(LUID + 1, learned(OTHER, How::Answered), 0);
        assert_eq!(cache.get(LUID, ADDRESS, 1), Some((MAC, NL_NEIGHBOR_STATE::NlnsReachable)));
        cache.forget(|luid, _| luid == LUID);
        assert_eq!(cache.get(LUID, ADDRESS, 1), None);
        assert_eq!(cache.get(LUID + 1, ADDRESS, 1), Some((OTHER, NL_NEIGHBOR_STATE::NlnsReachable)));
    }

    #[test]
    fn request_creates_a_stale_entry_and_announcement_creates_none() {
        let cache = Neighbors::default();
        cache.learn(LUID, learned(MAC, How::Announced), 0);
        assert_eq!(cache.get(LUID, ADDRESS, 0), None);
        cache.learn(LUID, learned(MAC, How::Asked), 0);
        assert_eq!(cache.get(LUID, ADDRESS, 0), Some((MAC, NL_NEIGHBOR_STATE::NlnsStale)));
    }

    #[test]
    fn announcement_with_another_link_address_makes_the_entry_stale() {
        let cache = Neighbors::default();
        cache.learn(LUID, learned(MAC, How::Answered), 0);
        cache.learn(LUID, learned(MAC, How::Announced), 1);
        assert_eq!(cache.get(LUID, ADDRESS, 2), Some((MAC, NL_NEIGHBOR_STATE::NlnsReachable)));
        cache.learn(LUID, learned(OTHER, How::Announced), 3);
        assert_eq!(cache.get(LUID, ADDRESS, 4), Some((OTHER, NL_NEIGHBOR_STATE::NlnsStale)));
    }
}
