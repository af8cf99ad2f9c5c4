// SPDX-License-Identifier: MIT OR Apache-2.0

//! Converts between `SOCKADDR` of the consumer and `core::net` addresses.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use ndk_abi::netio::{
    AF_INET, AF_INET6, IN_ADDR, IN_ADDR_S_un, IN6_ADDR, IN6_ADDR_u, SOCKADDR_IN, SOCKADDR_IN6, SOCKADDR_INET,
};

/// Bytes of a `SOCKADDR_IN`.
pub const IN_SIZE: usize = 16;
/// Bytes of a `SOCKADDR_IN6`.
pub const IN6_SIZE: usize = 28;

/// Parses a consumer's `SOCKADDR_IN` (at least 16 bytes, family 2) or `SOCKADDR_IN6` (at least 28 bytes,
/// family 23).
//= R-CREATE-51
//= R-OPEN-32
pub fn parse(bytes: &[u8]) -> Option<SocketAddr> {
    let (family, rest) = bytes.split_first_chunk::<2>()?;
    let (port, rest) = rest.split_first_chunk::<2>()?;
    let port = u16::from_be_bytes(*port);
    match u16::from_ne_bytes(*family) {
        AF_INET => {
            bytes.get(..IN_SIZE)?;
            Some(SocketAddr::from((Ipv4Addr::from(*rest.first_chunk::<4>()?), port)))
        }
        AF_INET6 => {
            bytes.get(..IN6_SIZE)?;
            let (_flow, rest) = rest.split_first_chunk::<4>()?;
            let (ip, rest) = rest.split_first_chunk::<16>()?;
            let scope = u32::from_ne_bytes(*rest.first_chunk::<4>()?);
            Some(SocketAddrV6::new(Ipv6Addr::from(*ip), port, 0, scope).into())
        }
        _ => None,
    }
}

/// Normalizes the scope of an address, so that equal addresses compare equal: link-local addresses get the
/// link's `scope`, all others get none. Returns `None` for a link-local address of another link.
pub fn normalize(address: SocketAddr, scope: u32) -> Option<SocketAddr> {
    let named = match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => v6.scope_id(),
        _ => 0,
    };
    // A consumer may omit the scope: the adapter is on one link.
    (named == 0 || named == scope).then(|| with_scope(address.ip(), address.port(), scope))
}

/// Returns the normalized form of an address on the link with this scope.
pub fn with_scope(ip: IpAddr, port: u16, scope: u32) -> SocketAddr {
    match ip {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => SocketAddrV6::new(v6, port, 0, scope).into(),
        ip => SocketAddr::new(ip, port),
    }
}

/// Returns an address as `SOCKADDR_IN` or `SOCKADDR_IN6`, and its length in bytes.
pub fn format(address: SocketAddr) -> ([u8; IN6_SIZE], usize) {
    let mut bytes = [0; IN6_SIZE];
    let size = match address.ip() {
        IpAddr::V4(_) => IN_SIZE,
        IpAddr::V6(_) => IN6_SIZE,
    };
    let mut fields = bytes.iter_mut();
    let mut put = |field: &[u8]| field.iter().zip(&mut fields).for_each(|(from, to)| *to = *from);
    match address {
        SocketAddr::V4(v4) => {
            put(&AF_INET.to_ne_bytes());
            put(&v4.port().to_be_bytes());
            put(&v4.ip().octets());
        }
        SocketAddr::V6(v6) => {
            put(&AF_INET6.to_ne_bytes());
            put(&v6.port().to_be_bytes());
            put(&v6.flowinfo().to_be_bytes());
            put(&v6.ip().octets());
            put(&v6.scope_id().to_ne_bytes());
        }
    }
    (bytes, size)
}

/// Returns an address as the `SOCKADDR_INET` of an OID's result.
pub fn inet(address: SocketAddr) -> SOCKADDR_INET {
    // Starts with the longer member of the union, so that the rest of the shorter one is zero.
    let mut inet = SOCKADDR_INET {
        Ipv6: SOCKADDR_IN6 {
            sin6_family: AF_INET6,
            sin6_port: address.port().to_be(),
            sin6_flowinfo: 0,
            sin6_addr: IN6_ADDR { u: IN6_ADDR_u { Byte: [0; 16] } },
            sin6_scope_id: 0,
        },
    };
    match address {
        SocketAddr::V4(v4) => {
            inet.Ipv4 = SOCKADDR_IN {
                sin_family: AF_INET,
                sin_port: v4.port().to_be(),
                sin_addr: IN_ADDR { S_un: IN_ADDR_S_un { S_addr: u32::from_ne_bytes(v4.ip().octets()) } },
                sin_zero: [0; 8],
            };
        }
        SocketAddr::V6(v6) => {
            inet.Ipv6 = SOCKADDR_IN6 {
                sin6_family: AF_INET6,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo().to_be(),
                sin6_addr: IN6_ADDR { u: IN6_ADDR_u { Byte: v6.ip().octets() } },
                sin6_scope_id: v6.scope_id(),
            };
        }
    }
    inet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatted_address_parses_to_the_same_address() {
        for address in ["192.0.2.7:445", "[2001:db8::1]:5445"] {
            let address: SocketAddr = address.parse().unwrap();
            let (bytes, size) = format(address);
            assert_eq!(parse(&bytes[..size]), Some(address));
        }
    }

    //= R-CREATE-51
    #[test]
    fn short_address_or_unknown_family_is_rejected() {
        let (bytes, size) = format("192.0.2.7:445".parse().unwrap());
        assert!((0..size).all(|length| parse(&bytes[..length]).is_none()));
        let (bytes, size) = format("[2001:db8::1]:5445".parse().unwrap());
        assert!((0..size).all(|length| parse(&bytes[..length]).is_none()));
        assert_eq!(parse(&[1; 128]), None);
    }

    #[test]
    fn only_link_local_addresses_keep_a_scope() {
        let on = |address: &str| normalize(address.parse().unwrap(), 7).map(|address| address.to_string());
        assert_eq!(on("[fe80::1]:445").as_deref(), Some("[fe80::1%7]:445"));
        assert_eq!(on("[fe80::1%7]:445").as_deref(), Some("[fe80::1%7]:445"));
        assert_eq!(on("[fe80::1%8]:445"), None);
        assert_eq!(on("[2001:db8::1%8]:445").as_deref(), Some("[2001:db8::1]:445"));
        assert_eq!(on("192.0.2.7:445").as_deref(), Some("192.0.2.7:445"));
    }

    #[test]
    fn trailing_bytes_are_ignored() {
        let (bytes, size) = format("192.0.2.7:445".parse().unwrap());
        let mut storage = [0xee; 128];
        storage[..size].copy_from_slice(&bytes[..size]);
        assert_eq!(parse(&storage), Some("192.0.2.7:445".parse().unwrap()));
    }

    #[allow(unsafe_code, reason = "reads the members of a union")]
    #[test]
    fn address_for_ndis_has_family_port_and_address() {
        let v4 = inet("192.0.2.7:445".parse().unwrap());
        // SAFETY: the member of the address's family.
        let v4 = unsafe { v4.Ipv4 };
        let ip = v4.sin_addr.S_un.S_addr.to_ne_bytes();
        assert_eq!((v4.sin_family, u16::from_be(v4.sin_port)), (AF_INET, 445));
        assert_eq!((ip, v4.sin_zero), ([192, 0, 2, 7], [0; 8]));
        let v6 = inet(SocketAddrV6::new("fe80::1".parse().unwrap(), 445, 5, 7).into());
        // SAFETY: the member of the address's family.
        let v6 = unsafe { v6.Ipv6 };
        // SAFETY: any bits are an array of bytes.
        let ip = unsafe { v6.sin6_addr.u.Byte };
        assert_eq!((v6.sin6_family, u16::from_be(v6.sin6_port)), (AF_INET6, 445));
        assert_eq!((Ipv6Addr::from(ip), v6.sin6_scope_id), ("fe80::1".parse().unwrap(), 7));
        assert_eq!(u32::from_be(v6.sin6_flowinfo), 5);
    }
}
