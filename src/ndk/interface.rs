// SPDX-License-Identifier: MIT OR Apache-2.0

//! The network interface of an adapter, and socket addresses on it.

use core::mem::zeroed;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ndk_abi::netio::{
    AF_INET, AF_INET6, IN_ADDR, IN_ADDR_S_un, IN6_ADDR, IN6_ADDR_u, NET_LUID, SOCKADDR_IN, SOCKADDR_IN6,
    SOCKADDR_INET,
};

/// The system's network interface of an adapter.
#[derive(Clone, Copy)]
pub struct Interface {
    pub luid: NET_LUID,
    /// The interface index: the scope of link-local addresses.
    pub index: u32,
}

impl Interface {
    /// Returns the socket address of `address` without a port; the scope of a link-local address is the interface.
    pub fn socket_address(self, address: IpAddr) -> SOCKADDR_INET {
        // SAFETY: integers only: all zeroes is a value (family unspecified).
        let mut to: SOCKADDR_INET = unsafe { zeroed() };
        match address {
            IpAddr::V4(v4) => {
                to.Ipv4 = SOCKADDR_IN {
                    sin_family: AF_INET,
                    sin_port: 0,
                    sin_addr: IN_ADDR { S_un: IN_ADDR_S_un { S_addr: u32::from_ne_bytes(v4.octets()) } },
                    sin_zero: [0; 8],
                };
            }
            IpAddr::V6(v6) => {
                to.Ipv6 = SOCKADDR_IN6 {
                    sin6_family: AF_INET6,
                    sin6_port: 0,
                    sin6_flowinfo: 0,
                    sin6_addr: IN6_ADDR { u: IN6_ADDR_u { Byte: v6.octets() } },
                    sin6_scope_id: if v6.is_unicast_link_local() { self.index } else { 0 },
                };
            }
        }
        to
    }
}

/// Returns the IP address of a socket address; `None` for other families.
pub fn address(from: &SOCKADDR_INET) -> Option<IpAddr> {
    // SAFETY: every member of the union begins with the family.
    match unsafe { from.si_family } {
        AF_INET => {
            // SAFETY: the family says which member it is.
            let v4 = unsafe { from.Ipv4 };
            Some(IpAddr::V4(Ipv4Addr::from(v4.sin_addr.S_un.S_addr.to_ne_bytes())))
        }
        AF_INET6 => {
            // SAFETY: the family says which member it is.
            let v6 = unsafe { from.Ipv6 };
            // SAFETY: every view of an IPv6 address is plain bytes.
            let bytes = unsafe { v6.sin6_addr.u.Byte };
            Some(IpAddr::V6(Ipv6Addr::from(bytes)))
        }
        _ => None,
    }
}
