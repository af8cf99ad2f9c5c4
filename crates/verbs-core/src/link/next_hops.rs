// SPDX-License-Identifier: MIT OR Apache-2.0

//! MAC addresses of next hops, which the kernel resolves.
//!
//! A frame without a known next hop leaves as a datagram of a socket: the kernel asks the network for the MAC address then, or verifies that
//! it is still right. No other packet is made for that.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::HashMap;

use roce::Instant;
use roce_wire::MacAddr;

use super::headers::Outgoing;
use crate::sys::{Neighbor, Netlink, Route};

/// How long an answer of the kernel is valid.
const VALID: Duration = Duration::from_secs(1);

/// After how long the kernel is asked again that does not know a neighbor.
const UNKNOWN: Duration = Duration::from_millis(1);

/// Destinations that are remembered at most.
const MOST: usize = 4096;

/// Routes and neighbors.
pub trait Kernel {
    fn route(&mut self, source: IpAddr, destination: IpAddr) -> Option<Route>;
    fn neighbor(&mut self, interface: u32, ip: IpAddr) -> Option<Neighbor>;
}

impl Kernel for Netlink {
    fn route(&mut self, source: IpAddr, destination: IpAddr) -> Option<Route> {
        Self::route(self, source, destination)
    }

    fn neighbor(&mut self, interface: u32, ip: IpAddr) -> Option<Neighbor> {
        Self::neighbor(self, interface, ip)
    }
}

/// The next hops of an address on an interface.
#[derive(Debug)]
pub struct NextHops<K> {
    kernel: K,
    address: IpAddr,
    interface: u32,
    mac: MacAddr,
    known: HashMap<IpAddr, NextHop>,
}

#[derive(Clone, Copy, Debug)]
struct NextHop {
    /// `None`: what goes there leaves as a datagram.
    mac: Option<MacAddr>,
    until: Instant,
}

impl<K: Kernel> NextHops<K> {
    /// `mac` is that of the interface.
    pub fn new(kernel: K, address: IpAddr, interface: u32, mac: MacAddr) -> Self {
        Self { kernel, address, interface, mac, known: HashMap::new() }
    }

    /// Writes the MAC addresses of a frame. Returns whether the next hop is known; otherwise the frame is to leave as a datagram.
    pub fn complete(&mut self, now: Instant, frame: &mut [u8]) -> bool {
        let Some(parts) = Outgoing::of(frame) else { return false };
        let destination = parts.destination;
        let Some(next_hop) = self.find(now, destination) else { return false };
        if let Some((addresses, _)) = frame.split_first_chunk_mut::<12>() {
            addresses[..6].copy_from_slice(&next_hop.0);
            addresses[6..].copy_from_slice(&self.mac.0);
        }
        true
    }

    fn find(&mut self, now: Instant, destination: IpAddr) -> Option<MacAddr> {
        if let Some(known) = self.known.get(&destination)
            && now < known.until
        {
            return known.mac;
        }
        let (next_hop, is_usable) = self.ask(now, destination);
        if self.known.len() >= MOST {
            self.known.clear();
        }
        self.known.insert(destination, next_hop);
        next_hop.mac.filter(|_| is_usable)
    }

    /// Asks the kernel. Returns the next hop, and whether frames may be sent there before the kernel has verified it.
    fn ask(&mut self, now: Instant, destination: IpAddr) -> (NextHop, bool) {
        let datagrams = |time| (NextHop { mac: None, until: now + time }, false);
        let Some(route) = self.kernel.route(self.address, destination) else { return datagrams(UNKNOWN) };
        if route.is_local || route.interface != self.interface {
            return datagrams(VALID);
        }
        match self.kernel.neighbor(route.interface, route.next_hop) {
            None => datagrams(UNKNOWN),
            Some(Neighbor { mac, is_confirmed }) => {
                (NextHop { mac: Some(MacAddr(mac)), until: now + VALID }, is_confirmed)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 8]);
    const ROUTER: [u8; 6] = [2, 0, 0, 0, 0, 9];

    /// Destinations in 10.0.0.0/8 have a router by interface 3, which has this neighbor.
    struct Fake(Option<Neighbor>);

    impl Kernel for Fake {
        fn route(&mut self, _: IpAddr, destination: IpAddr) -> Option<Route> {
            let IpAddr::V4(v4) = destination else { return None };
            Some(match v4.octets() {
                [10, ..] => Route { is_local: false, interface: 3, next_hop: [10, 0, 0, 254].into() },
                [127, ..] => Route { is_local: true, interface: 1, next_hop: destination },
                _ => Route { is_local: false, interface: 4, next_hop: destination },
            })
        }

        fn neighbor(&mut self, interface: u32, ip: IpAddr) -> Option<Neighbor> {
            assert_eq!((interface, ip), (3, [10, 0, 0, 254].into()));
            self.0
        }
    }

    fn hops(neighbor: Option<Neighbor>) -> NextHops<Fake> {
        NextHops::new(Fake(neighbor), [10, 0, 0, 1].into(), 3, OWN)
    }

    fn confirmed(is_confirmed: bool) -> Neighbor {
        Neighbor { mac: ROUTER, is_confirmed }
    }

    #[test]
    fn a_frame_goes_to_the_next_hop_once_the_kernel_knows_it() {
        let (start, destination) = (Instant::from_nanos(1), IpAddr::from([10, 9, 0, 1]));
        let mut hops = hops(None);
        assert_eq!(hops.find(start, destination), None);
        hops.kernel.0 = Some(confirmed(true));
        assert_eq!(hops.find(start, destination), None, "the kernel is not asked for each frame");
        assert_eq!(hops.find(start + UNKNOWN, destination), Some(MacAddr(ROUTER)));
        hops.kernel.0 = None;
        assert_eq!(hops.find(start + UNKNOWN + VALID / 2, destination), Some(MacAddr(ROUTER)));
        assert_eq!(hops.find(start + UNKNOWN + VALID, destination), None, "the neighbor is gone");
    }

    #[test]
    fn a_frame_now_and_then_lets_the_kernel_verify_the_next_hop() {
        let (start, destination) = (Instant::from_nanos(1), IpAddr::from([10, 9, 0, 1]));
        let mut hops = hops(Some(confirmed(false)));
        let found: Vec<_> = [0, 1, 500, 1000, 1001]
            .map(|millis| hops.find(start + Duration::from_millis(millis), destination).is_some())
            .into();
        assert_eq!(found, [false, true, true, false, true]);
    }

    #[test]
    fn a_destination_of_another_interface_or_of_this_host_is_not_on_the_link() {
        let (start, mut hops) = (Instant::from_nanos(1), hops(Some(confirmed(true))));
        for destination in [[127, 0, 0, 1], [192, 0, 2, 1]] {
            assert_eq!(hops.find(start, destination.into()), None);
        }
        assert_eq!(hops.find(start, "fd00::1".parse().unwrap()), None);
    }

    #[test]
    fn few_destinations_are_remembered() {
        let (start, mut hops) = (Instant::from_nanos(1), hops(Some(confirmed(true))));
        for number in 0..5000u32 {
            let destination = (0x0A00_0000 + number).to_be_bytes();
            assert!(hops.find(start, destination.into()).is_some());
            assert!(hops.known.len() <= MOST);
        }
    }
}
