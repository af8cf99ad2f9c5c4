//! The driver's image against Linux: a guest with `rdma_rxe` on the same wire, and what both do with each other.
//!
//! [`cases`] lists what is tried, [`run`] does it with one [`guest`] for all cases and a host with the driver of
//! its own for each, [`native`] has the engine without driver and kernel in that host's place where a case takes
//! what NDKPI does not have, [`table`] tells what came of it. `docs/interop.md` is about using it.

pub mod cases;
pub mod guest;
pub mod native;
pub mod run;
pub mod table;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::interop::cases::Family;

/// The viordma host.
pub const HOST_MAC: [u8; 6] = [0x02, 0, 0, 0x77, 0, 0x01];
/// The Linux guest.
pub const GUEST_MAC: [u8; 6] = [0x52, 0x54, 0, 0x77, 0, 0x02];

/// The host's address.
#[must_use]
pub fn host_address(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(192, 168, 77, 1).into(),
        Family::V6 => "fd77::1".parse::<Ipv6Addr>().expect("an address").into(),
        Family::LinkLocal => nt_sim::netio::link_local(HOST_MAC).into(),
    }
}

/// The guest's address.
#[must_use]
pub fn guest_address(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(192, 168, 77, 2).into(),
        Family::V6 => "fd77::2".parse::<Ipv6Addr>().expect("an address").into(),
        Family::LinkLocal => nt_sim::netio::link_local(GUEST_MAC).into(),
    }
}
