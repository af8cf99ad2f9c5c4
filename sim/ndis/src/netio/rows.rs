// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rows of MIB tables.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ndk_abi::{
    netio::{
        AF_INET, AF_INET6, IN_ADDR, IN_ADDR_S_un, IN6_ADDR, IN6_ADDR_u, IP_ADDRESS_PREFIX,
        MIB_IPFORWARD_ROW2, MIB_IPINTERFACE_ROW, MIB_IPNET_ROW2, MIB_UNICASTIPADDRESS_ROW, NET_LUID,
        NL_NEIGHBOR_STATE, NL_PREFIX_ORIGIN, NL_ROUTE_ORIGIN, NL_ROUTE_PROTOCOL, NL_SUFFIX_ORIGIN,
        SOCKADDR_IN, SOCKADDR_IN6, SOCKADDR_INET,
    },
    nt::BOOLEAN,
};

use super::unicast::{Unicast, unspecified};
use crate::interface::Interface;

const TRUE: BOOLEAN = 1;
const FOR_EVER: u32 = u32::MAX;

/// Returns a value of zeros.
///
/// # Safety
/// `T` consists of integers, addresses and unions of them.
unsafe fn zeroed<T: Copy>() -> T {
    // SAFETY: the caller names a type of integers, for which zeros are a value.
    unsafe { std::mem::zeroed() }
}

/// Returns the address in a socket address; `None` for other families.
pub fn read_address(from: &SOCKADDR_INET) -> Option<IpAddr> {
    // SAFETY: every member of the union begins with the family.
    match unsafe { from.si_family } {
        AF_INET => {
            // SAFETY: integers: any bits are a value.
            let v4 = unsafe { from.Ipv4 };
            Some(Ipv4Addr::from(v4.sin_addr.S_un.S_addr.to_ne_bytes()).into())
        }
        AF_INET6 => {
            // SAFETY: integers: any bits are a value.
            let v6 = unsafe { from.Ipv6 };
            // SAFETY: both members of the union are plain bytes.
            Some(Ipv6Addr::from(unsafe { v6.sin6_addr.u.Byte }).into())
        }
        _ => None,
    }
}

/// Returns the scope ID in a socket address; 0 for IPv4.
pub fn scope_id(from: &SOCKADDR_INET) -> u32 {
    // SAFETY: every member of the union begins with the family.
    if unsafe { from.si_family } != AF_INET6 {
        return 0;
    }
    // SAFETY: integers: any bits are a value.
    unsafe { from.Ipv6 }.sin6_scope_id
}

/// Returns a socket address. The scope ID of a link-local address is that of the interface.
pub fn socket_address(address: IpAddr, interface: Option<&Interface>) -> SOCKADDR_INET {
    // SAFETY: the alternatives of the union consist of integers.
    let mut to: SOCKADDR_INET = unsafe { zeroed() };
    match address {
        IpAddr::V4(v4) => {
            let sin_addr = IN_ADDR { S_un: IN_ADDR_S_un { S_addr: u32::from_ne_bytes(v4.octets()) } };
            to.Ipv4 = SOCKADDR_IN { sin_family: AF_INET, sin_port: 0, sin_addr, sin_zero: [0; 8] };
        }
        IpAddr::V6(v6) => {
            to.Ipv6 = SOCKADDR_IN6 {
                sin6_family: AF_INET6,
                sin6_port: 0,
                sin6_flowinfo: 0,
                sin6_addr: IN6_ADDR { u: IN6_ADDR_u { Byte: v6.octets() } },
                sin6_scope_id: match interface {
                    Some(interface) if v6.is_unicast_link_local() => interface.index(),
                    _ => 0,
                },
            };
        }
    }
    to
}

pub fn unicast(unicast: Unicast, interface: &Interface) -> MIB_UNICASTIPADDRESS_ROW {
    // SAFETY: the row consists of integers and of unions of integers.
    let row: MIB_UNICASTIPADDRESS_ROW = unsafe { zeroed() };
    MIB_UNICASTIPADDRESS_ROW {
        Address: socket_address(unicast.address, Some(interface)),
        InterfaceLuid: NET_LUID { Value: interface.luid },
        InterfaceIndex: interface.index(),
        PrefixOrigin: NL_PREFIX_ORIGIN::IpPrefixOriginManual,
        SuffixOrigin: NL_SUFFIX_ORIGIN::IpSuffixOriginManual,
        ValidLifetime: FOR_EVER,
        PreferredLifetime: FOR_EVER,
        OnLinkPrefixLength: unicast.prefix,
        DadState: unicast.dad,
        ..row
    }
}

pub fn route(destination: IpAddr, prefix: u8, interface: &Interface) -> MIB_IPFORWARD_ROW2 {
    // SAFETY: the row consists of integers and of unions of integers.
    let row: MIB_IPFORWARD_ROW2 = unsafe { zeroed() };
    MIB_IPFORWARD_ROW2 {
        InterfaceLuid: NET_LUID { Value: interface.luid },
        InterfaceIndex: interface.index(),
        DestinationPrefix: IP_ADDRESS_PREFIX {
            Prefix: socket_address(network(destination, prefix), Some(interface)),
            PrefixLength: prefix,
        },
        // On link.
        NextHop: socket_address(unspecified(destination), None),
        ValidLifetime: FOR_EVER,
        PreferredLifetime: FOR_EVER,
        Metric: 256,
        Protocol: NL_ROUTE_PROTOCOL::RouteProtocolLocal,
        Immortal: TRUE,
        Origin: NL_ROUTE_ORIGIN::NlroManual,
        ..row
    }
}

/// Returns the first address of a subnet.
fn network(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
            Ipv4Addr::from_bits(v4.to_bits() & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
            Ipv6Addr::from_bits(v6.to_bits() & mask).into()
        }
    }
}

/// Returns a row with an address only.
pub fn empty_neighbor(address: IpAddr, interface: &Interface) -> MIB_IPNET_ROW2 {
    // SAFETY: the row consists of integers and of unions of integers.
    let row: MIB_IPNET_ROW2 = unsafe { zeroed() };
    MIB_IPNET_ROW2 { Address: socket_address(address, Some(interface)), ..row }
}

pub fn neighbor(
    named: MIB_IPNET_ROW2,
    interface: &Interface,
    mac: [u8; 6],
    state: NL_NEIGHBOR_STATE,
) -> MIB_IPNET_ROW2 {
    let mut physical = [0; 32];
    physical[..6].copy_from_slice(&mac);
    MIB_IPNET_ROW2 {
        InterfaceIndex: interface.index(),
        InterfaceLuid: NET_LUID { Value: interface.luid },
        PhysicalAddress: physical,
        PhysicalAddressLength: 6,
        State: state,
        ..named
    }
}

pub fn interface(named: MIB_IPINTERFACE_ROW, interface: &Interface, mtu: u32) -> MIB_IPINTERFACE_ROW {
    MIB_IPINTERFACE_ROW {
        InterfaceLuid: NET_LUID { Value: interface.luid },
        InterfaceIndex: interface.index(),
        NlMtu: mtu,
        Metric: 25,
        Connected: TRUE,
        SupportsNeighborDiscovery: TRUE,
        ..named
    }
}
