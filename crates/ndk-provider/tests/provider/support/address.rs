// SPDX-License-Identifier: MIT OR Apache-2.0

//! Converts socket addresses to and from the consumer's `SOCKADDR`.

use super::*;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};
use ndk_abi::netio::{
    AF_INET, AF_INET6, IN_ADDR, IN_ADDR_S_un, IN6_ADDR, IN6_ADDR_u, SOCKADDR_IN, SOCKADDR_IN6, SOCKADDR_INET,
};

/// Returns an address as a `SOCKADDR`, and its length.
pub fn socket_address(address: SocketAddr) -> (SOCKADDR_INET, u32) {
    match address {
        SocketAddr::V4(v4) => {
            let bytes = SOCKADDR_IN {
                sin_family: AF_INET,
                sin_port: v4.port().to_be(),
                sin_addr: IN_ADDR { S_un: IN_ADDR_S_un { S_addr: u32::from_ne_bytes(v4.ip().octets()) } },
                sin_zero: [0; 8],
            };
            (SOCKADDR_INET { Ipv4: bytes }, 16)
        }
        SocketAddr::V6(v6) => {
            let bytes = SOCKADDR_IN6 {
                sin6_family: AF_INET6,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: IN6_ADDR { u: IN6_ADDR_u { Byte: v6.ip().octets() } },
                sin6_scope_id: v6.scope_id(),
            };
            (SOCKADDR_INET { Ipv6: bytes }, 28)
        }
    }
}

/// Returns the address that `get` writes to a buffer of the given length.
pub fn returned_address(get: impl FnOnce(*mut u8, *mut u32) -> NTSTATUS) -> Result<SocketAddr, NTSTATUS> {
    let (mut bytes, mut length) = ([0u8; 128], 128);
    match get(bytes.as_mut_ptr(), &raw mut length) {
        STATUS_SUCCESS => {}
        status => return Err(status),
    }
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    let scope = u32::from_ne_bytes(*bytes[24..].first_chunk().unwrap());
    Ok(match (u16::from_ne_bytes([bytes[0], bytes[1]]), length) {
        (AF_INET, 16) => SocketAddr::from((Ipv4Addr::from(*bytes[4..].first_chunk::<4>().unwrap()), port)),
        (AF_INET6, 28) => {
            let ip = Ipv6Addr::from(*bytes[8..].first_chunk::<16>().unwrap());
            SocketAddrV6::new(ip, port, 0, scope).into()
        }
        other => panic!("not an address: {other:?}"),
    })
}

/// Calls `NdkGetLocalAddress` of a connector.
pub fn local_address(connector: *mut NDK_CONNECTOR) -> Result<SocketAddr, NTSTATUS> {
    returned_address(|out, length| call!(connector, NdkGetLocalAddress, out.cast(), length))
}

/// Calls `NdkGetPeerAddress` of a connector.
pub fn peer_address(connector: *mut NDK_CONNECTOR) -> Result<SocketAddr, NTSTATUS> {
    returned_address(|out, length| call!(connector, NdkGetPeerAddress, out.cast(), length))
}
