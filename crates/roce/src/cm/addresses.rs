// SPDX-License-Identifier: MIT OR Apache-2.0

//! Local addresses, and checks of a datagram's source and destination.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::net::IpAddr;
use core::ops::Range;

use crate::error::ConnError;
use crate::ignored::Ignored;
use fallible::vec;
use roce_wire::{MacAddr, Packet};

/// Slots that one call checks after an address was removed. Bounds the duration of the call.
const SWEEP_BUDGET: u32 = 256;

/// The local addresses.
#[derive(Default)]
pub(super) struct Addresses {
    /// Sorted by address, each once: dropped frames of any sender are looked up here with a lock held.
    all: Vec<Address>,
    /// The next slot whose connection may be at a removed address; `None` if no search is in progress.
    sweep: Option<u32>,
}

struct Address {
    ip: IpAddr,
    /// Used by [`Addresses::replace`].
    stays: bool,
}

impl Addresses {
    /// Maximum number of addresses: the GID table size of an rdma_rxe device.
    pub(super) const MAX: usize = 1024;

    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        self.search(|known| known.cmp(&ip)).is_ok()
    }

    /// Returns the index of the address that `compare` finds equal, or the index at which it belongs.
    fn search(&self, mut compare: impl FnMut(IpAddr) -> Ordering) -> Result<usize, usize> {
        self.all.binary_search_by(|known| compare(known.ip))
    }

    /// Replaces all addresses, and begins a search for connections if one was removed.
    ///
    /// # Errors
    /// [`ConnError::OutOfMemory`], [`ConnError::TooMany`]: some of the new addresses were not added; all removed
    /// addresses are removed.
    pub(super) fn replace(&mut self, addresses: &[IpAddr]) -> Result<(), ConnError> {
        for known in &mut self.all {
            known.stays = false;
        }
        for ip in addresses {
            if let Ok(index) = self.search(|known| known.cmp(ip))
                && let Some(known) = self.all.get_mut(index)
            {
                known.stays = true;
            }
        }
        let before = self.all.len();
        self.all.retain(|known| known.stays);
        if self.all.len() < before {
            self.sweep = Some(0);
        }
        for &ip in addresses {
            if let Err(index) = self.search(|known| known.cmp(&ip)) {
                if self.all.len() >= Self::MAX {
                    return Err(ConnError::TooMany);
                }
                vec::insert(&mut self.all, index, Address { ip, stays: true })?;
            }
        }
        Ok(())
    }

    /// Takes the next slots to search for connections at removed addresses, of `slots`, a bounded number; `None` if no search is in
    /// progress.
    pub(super) fn next_to_sweep(&mut self, slots: usize) -> Option<Range<u32>> {
        let first = self.sweep.take()?;
        let end = first.saturating_add(SWEEP_BUDGET);
        if (end as usize) < slots {
            self.sweep = Some(end);
        }
        Some(first..end.min(slots as u32))
    }

    /// Returns `true` while a search for connections at removed addresses is in progress.
    pub(super) fn is_sweeping(&self) -> bool {
        self.sweep.is_some()
    }
}

/// Checks that a datagram is to a local address and from a unicast source, which may be a loopback address if `loopback`. An
/// answer to a group address would reach hosts that asked nothing.
pub(super) fn check(addresses: &Addresses, packet: &Packet<'_>, loopback: bool) -> Result<(), Ignored> {
    if !addresses.contains(packet.destination()) {
        return Err(Ignored::NotLocal);
    }
    if !is_unicast(packet.source(), loopback) || !is_station(packet.eth().source()) {
        return Err(Ignored::InvalidSource);
    }
    Ok(())
}

/// Returns `true` if this can be the address of one host on a network, or, if `loopback`, a loopback address.
pub(super) fn is_unicast(ip: IpAddr, loopback: bool) -> bool {
    let not_unicast = ip.is_unspecified() || ip.is_loopback() && !loopback || ip.is_multicast();
    let other_family = match ip {
        IpAddr::V4(ip) => ip.is_broadcast(),
        IpAddr::V6(ip) => ip.to_ipv4_mapped().is_some(),
    };
    !not_unicast && !other_family
}

/// Returns `true` if this can be the MAC address of one station.
fn is_station(mac: MacAddr) -> bool {
    let [first, ..] = mac.0;
    first & 1 == 0 && mac.0 != [0; 6]
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_lookup_compares_few_addresses() {
        let all: Vec<IpAddr> =
            (0..Addresses::MAX as u32).rev().map(|number| Ipv4Addr::from_bits(number * 2).into()).collect();
        let mut addresses = Addresses::default();
        addresses.replace(&all).unwrap();
        for number in 0..2 * Addresses::MAX as u32 {
            let ip = IpAddr::from(Ipv4Addr::from_bits(number));
            let mut compared = 0;
            let found = addresses.search(|known| {
                compared += 1;
                known.cmp(&ip)
            });
            assert_eq!(found.is_ok(), number % 2 == 0, "{ip}");
            assert_eq!(addresses.contains(ip), found.is_ok());
            assert!(compared <= 11, "{compared} addresses were compared with {ip}");
        }
    }

    #[test]
    fn a_search_takes_a_bounded_number_of_slots_at_a_time() {
        let mut addresses = Addresses::default();
        addresses.replace(&[[10, 0, 0, 1].into()]).unwrap();
        assert_eq!(addresses.next_to_sweep(1000), None);
        addresses.replace(&[]).unwrap();
        let taken: Vec<_> = core::iter::from_fn(|| addresses.next_to_sweep(300)).collect();
        assert_eq!(taken, [0..256, 256..300]);
        assert!(!addresses.is_sweeping());
    }

    #[test]
    fn replacing_keeps_common_addresses_and_notices_removed_ones() {
        let v4 = |last| IpAddr::from([10, 0, 0, last]);
        let mut addresses = Addresses::default();
        addresses.replace(&[v4(5), v4(1), v4(5), "::1".parse().unwrap(), v4(3)]).unwrap();
        assert!(!addresses.is_sweeping());
        assert_eq!(addresses.all.len(), 4);
        addresses.replace(&[v4(2), "::1".parse().unwrap(), v4(3), v4(1), v4(5)]).unwrap();
        assert!(!addresses.is_sweeping(), "none was removed");
        addresses.replace(&[v4(2), v4(3)]).unwrap();
        assert!(addresses.is_sweeping());
        let left: Vec<IpAddr> = addresses.all.iter().map(|known| known.ip).collect();
        assert_eq!(left, [v4(2), v4(3)]);
    }
}
