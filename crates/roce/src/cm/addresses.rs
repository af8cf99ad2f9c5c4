// SPDX-License-Identifier: MIT OR Apache-2.0

//! The addresses of this side, and of those it talks to.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::event::Ignored;
use roce_wire::{MacAddr, Packet};

/// What this side answers to.
#[derive(Default)]
pub(super) struct Addresses {
    pub(super) all: Vec<IpAddr>,
    /// The next slot whose connection may be at an address that has gone; `None` when there is none such.
    pub(super) sweep: Option<u32>,
}

impl Addresses {
    /// As many as a rdma_rxe device has.
    pub(super) const MAX: usize = 1024;

    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        self.all.contains(&ip)
    }

    /// Whether connections are still to be looked at.
    pub(super) fn is_sweeping(&self) -> bool {
        self.sweep.is_some()
    }
}

/// Whether a datagram is to this side, from somebody who can be answered: an answer to a group would be
/// heard by more than asked.
pub(super) fn check(addresses: &Addresses, packet: &Packet<'_>) -> Result<(), Ignored> {
    if !addresses.contains(packet.destination()) {
        return Err(Ignored::Foreign);
    }
    if !is_unicast(packet.source()) || !is_station(packet.eth().source()) {
        return Err(Ignored::Sender);
    }
    Ok(())
}

/// Whether this can be the address of one host on a network.
pub(super) fn is_unicast(ip: IpAddr) -> bool {
    let of_none = ip.is_unspecified() || ip.is_loopback() || ip.is_multicast();
    let other_family = match ip {
        IpAddr::V4(ip) => ip.is_broadcast(),
        IpAddr::V6(ip) => ip.to_ipv4_mapped().is_some(),
    };
    !of_none && !other_family
}

/// Whether this can be the address of one station on an Ethernet.
fn is_station(mac: MacAddr) -> bool {
    let [first, ..] = mac.0;
    first & 1 == 0 && mac.0 != [0; 6]
}
