// SPDX-License-Identifier: MIT OR Apache-2.0

//! Addresses of the host with the driver and of the Linux guest.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// MAC address of the host with the driver.
pub const HOST_MAC: [u8; 6] = [0x02, 0, 0, 0x77, 0, 0x01];
/// MAC address of the Linux guest.
pub const GUEST_MAC: [u8; 6] = linux_guest::MAC;
/// IPv4 address of the guest.
pub const GUEST_V4: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 2);
/// IPv6 address of the guest.
pub const GUEST_V6: Ipv6Addr = Ipv6Addr::new(0xFD77, 0, 0, 0, 0, 0, 0, 2);

/// The kind of address that a case uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    V4,
    V6,
    LinkLocal,
}

/// Returns the address of the host with the driver.
#[must_use]
pub fn host_address(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(192, 168, 77, 1).into(),
        Family::V6 => "fd77::1".parse::<Ipv6Addr>().expect("an address").into(),
        Family::LinkLocal => ndis_sim::netio::link_local(HOST_MAC).into(),
    }
}

/// Returns the address of the guest.
#[must_use]
pub fn guest_address(family: Family) -> IpAddr {
    match family {
        Family::V4 => GUEST_V4.into(),
        Family::V6 => GUEST_V6.into(),
        Family::LinkLocal => ndis_sim::netio::link_local(GUEST_MAC).into(),
    }
}
