//! The addresses of this side, and of those it talks to.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::{Cm, Ignored};
use crate::{error::ConnError, time::Instant};
use fallible::vec;
use roce_wire::{MacAddr, Packet};

/// Slots that one call looks at after an address has gone: bounds the time it takes.
const SWEEP_BUDGET: u32 = 256;

/// What this side answers to.
#[derive(Default)]
pub(super) struct Addresses {
    all: Vec<IpAddr>,
    /// The next slot whose connection may be at an address that has gone; `None` when there is none such.
    sweep: Option<u32>,
}

impl Addresses {
    /// As many as a rdma_rxe device has.
    const MAX: usize = 1024;

    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        self.all.contains(&ip)
    }

    /// Whether connections are still to be looked at.
    pub(super) fn is_sweeping(&self) -> bool {
        self.sweep.is_some()
    }
}

impl Cm {
    /// Says which addresses are this side's from now on. Connections at others are aborted by
    /// [`Cm::handle_timeout`], a bounded number at a time; their peers are told once, and what they answer is
    /// not heard.
    ///
    /// # Errors
    /// [`ConnError::OutOfMemory`], [`ConnError::TooMany`]: some of the new ones are not known, all that went
    /// are forgotten.
    //= R-CONN-101
    pub fn set_addresses(&mut self, addresses: &[IpAddr]) -> Result<(), ConnError> {
        let known = &mut self.addresses;
        let before = known.all.len();
        known.all.retain(|ip| addresses.contains(ip));
        if known.all.len() < before {
            known.sweep = Some(0);
        }
        for &ip in addresses {
            if !known.contains(ip) {
                if known.all.len() >= Addresses::MAX {
                    return Err(ConnError::TooMany);
                }
                vec::push(&mut known.all, ip)?;
            }
        }
        Ok(())
    }

    /// Goes on looking for connections at addresses that have gone.
    pub(super) fn sweep(&mut self, now: Instant) {
        let Some(first) = self.addresses.sweep.take() else { return };
        let end = first.saturating_add(SWEEP_BUDGET);
        for index in first..end.min(self.conns.capacity() as u32) {
            if self.conns.get(index).is_some_and(|conn| !self.addresses.contains(conn.path.local_ip)) {
                self.lose_address(now, index);
            }
        }
        if (end as usize) < self.conns.capacity() {
            self.addresses.sweep = Some(end);
        }
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
