//! The neighbor cache: link addresses of addresses on the link, and how sure they are.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use ndk_abi::netio::NL_NEIGHBOR_STATE;
use nt_sim::{Event, services::Slot};
use parking_lot::Mutex;

use super::frames::{How, Learned, Mac};

/// The neighbor cache of a host.
pub(crate) static NEIGHBORS: Slot<Neighbors> = Slot::new();

/// How long an answer makes a neighbor reachable. (RFC 4861 §10)
pub const REACHABLE: Duration = Duration::from_secs(30);

/// What a host knows of its neighbors.
#[derive(Default)]
pub struct Neighbors(Mutex<Cache>);

#[derive(Default)]
struct Cache {
    entries: BTreeMap<IpAddr, Entry>,
    /// Who waits for an answer of whom, by number.
    waiting: BTreeMap<u64, (IpAddr, Event)>,
    next: u64,
}

struct Entry {
    mac: Mac,
    /// It is stale from then on.
    reachable_until: u64,
}

/// Names somebody who waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket(u64);

impl Neighbors {
    /// The link address of a neighbor, if it is known at the time `now`.
    pub fn get(&self, address: IpAddr, now: u64) -> Option<(Mac, NL_NEIGHBOR_STATE)> {
        self.0.lock().entries.get(&address).map(|entry| entry.told(now))
    }

    /// All that are known.
    pub fn list(&self, now: u64) -> Vec<(IpAddr, Mac, NL_NEIGHBOR_STATE)> {
        let told = |(&address, entry): (&IpAddr, &Entry)| {
            let (mac, state) = entry.told(now);
            (address, mac, state)
        };
        self.0.lock().entries.iter().map(told).collect()
    }

    /// Notes what was learned at the time `now`, and wakes who waited for it.
    pub fn learn(&self, learned: Learned, now: u64) {
        let Learned { address, mac, how } = learned;
        let woken: Vec<_> = {
            let mut cache = self.0.lock();
            if how == How::Announced && !cache.entries.contains_key(&address) {
                return;
            }
            let entry = cache.entries.entry(address).or_insert(Entry { mac, reachable_until: 0 });
            if how == How::Answered {
                entry.reachable_until = now + REACHABLE.as_nanos() as u64;
            } else if entry.mac != mac {
                entry.reachable_until = 0;
            }
            entry.mac = mac;
            let answers = |(of, _): &&(IpAddr, Event)| *of == address && how == How::Answered;
            cache.waiting.values().filter(answers).map(|(_, event)| event.clone()).collect()
        };
        for event in woken {
            event.set();
        }
    }

    /// Forgets `address` and has `answered` set whenever it answers, until [`Neighbors::unwatch`].
    pub fn watch(&self, address: IpAddr, answered: Event) -> Ticket {
        let mut cache = self.0.lock();
        cache.entries.remove(&address);
        cache.next += 1;
        let number = cache.next;
        cache.waiting.insert(number, (address, answered));
        Ticket(number)
    }

    pub fn unwatch(&self, Ticket(number): Ticket) {
        self.0.lock().waiting.remove(&number);
    }

    /// Forgets those that `chosen` says.
    pub fn forget(&self, chosen: impl Fn(IpAddr) -> bool) {
        self.0.lock().entries.retain(|&address, _| !chosen(address));
    }
}

impl Entry {
    fn told(&self, now: u64) -> (Mac, NL_NEIGHBOR_STATE) {
        let reachable = now < self.reachable_until;
        let state = if reachable { NL_NEIGHBOR_STATE::NlnsReachable } else { NL_NEIGHBOR_STATE::NlnsStale };
        (self.mac, state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
    const MAC: Mac = [2, 0, 0, 0, 0, 2];
    const OTHER: Mac = [2, 0, 0, 0, 0, 3];

    fn learned(mac: Mac, how: How) -> Learned {
        Learned { address: ADDRESS, mac, how }
    }

    #[test]
    fn an_answer_makes_reachable_for_a_while() {
        let cache = Neighbors::default();
        cache.learn(learned(MAC, How::Answered), 5);
        assert_eq!(cache.get(ADDRESS, 6), Some((MAC, NL_NEIGHBOR_STATE::NlnsReachable)));
        let later = 5 + REACHABLE.as_nanos() as u64;
        assert_eq!(cache.get(ADDRESS, later), Some((MAC, NL_NEIGHBOR_STATE::NlnsStale)));
    }

    #[test]
    fn who_asks_is_known_but_not_reachable_and_who_announces_is_not_even_known() {
        let cache = Neighbors::default();
        cache.learn(learned(MAC, How::Announced), 0);
        assert_eq!(cache.get(ADDRESS, 0), None);
        cache.learn(learned(MAC, How::Asked), 0);
        assert_eq!(cache.get(ADDRESS, 0), Some((MAC, NL_NEIGHBOR_STATE::NlnsStale)));
    }

    #[test]
    fn a_neighbor_that_moved_has_to_answer_anew() {
        let cache = Neighbors::default();
        cache.learn(learned(MAC, How::Answered), 0);
        cache.learn(learned(MAC, How::Announced), 1);
        assert_eq!(cache.get(ADDRESS, 2), Some((MAC, NL_NEIGHBOR_STATE::NlnsReachable)));
        cache.learn(learned(OTHER, How::Announced), 3);
        assert_eq!(cache.get(ADDRESS, 4), Some((OTHER, NL_NEIGHBOR_STATE::NlnsStale)));
    }
}
