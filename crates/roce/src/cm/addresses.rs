// SPDX-License-Identifier: MIT OR Apache-2.0

//! Local addresses, and checks of a datagram's source and destination.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::event::Ignored;
use roce_wire::{MacAddr, Packet};

/// The local addresses.
#[derive(Default)]
pub(super) struct Addresses {
    pub(super) all: Vec<IpAddr>,
    /// The next slot whose connection may be at a removed address; `None` if no search is in progress.
    pub(super) sweep: Option<u32>,
}

impl Addresses {
    /// Maximum number of addresses: the GID table size of an rdma_rxe device.
    pub(super) const MAX: usize = 1024;

    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        self.all.contains(&ip)
    }

    /// Returns `true` while a search for connections at removed addresses is in progress.
    pub(super) fn is_sweeping(&self) -> bool {
        self.sweep.is_some()
    }
}

/// Checks that a datagram is to a local address and from a unicast source. An answer to a group address would
/// reach hosts that asked nothing.
pub(super) fn check(addresses: &Addresses, packet: &Packet<'_>) -> Result<(), Ignored> {
    if !addresses.contains(packet.destination()) {
        return Err(Ignored::NotLocal);
    }
    if !is_unicast(packet.source()) || !is_station(packet.eth().source()) {
        return Err(Ignored::InvalidSource);
    }
    Ok(())
}

/// Returns `true` if this can be the address of one host on a network.
pub(super) fn is_unicast(ip: IpAddr) -> bool {
    let not_unicast = ip.is_unspecified() || ip.is_loopback() || ip.is_multicast();
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
