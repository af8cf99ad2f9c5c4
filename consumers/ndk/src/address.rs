// SPDX-License-Identifier: MIT OR Apache-2.0

//! Conversion of socket addresses to and from `SOCKADDR`.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use ndk_abi::netio::{
    AF_INET, AF_INET6, IN_ADDR, IN_ADDR_S_un, IN6_ADDR, IN6_ADDR_u, SOCKADDR, SOCKADDR_IN, SOCKADDR_IN6,
    SOCKADDR_INET,
};

use crate::Status;

/// A `SOCKADDR`.
pub struct RawAddress {
    address: SOCKADDR_INET,
    length: u32,
}

impl RawAddress {
    pub fn as_ptr(&self) -> *const SOCKADDR {
        (&raw const self.address).cast()
    }

    /// Returns the size of the address in bytes.
    pub fn length(&self) -> u32 {
        self.length
    }

    /// Queries an address with `get`, which takes a buffer and its size.
    pub fn query(get: impl FnOnce(*mut SOCKADDR, *mut u32) -> Status) -> Result<SocketAddr, Status> {
        let mut raw = Self { address: SOCKADDR_INET::zeroed(), length: size_of::<SOCKADDR_INET>() as u32 };
        get((&raw mut raw.address).cast(), &raw mut raw.length).check()?;
        raw.decode().ok_or(Status::INVALID_ADDRESS)
    }

    fn decode(&self) -> Option<SocketAddr> {
        // SAFETY: every member of the union begins with the family, and all its bytes are initialized.
        let family = unsafe { self.address.si_family };
        match family {
            AF_INET => {
                // SAFETY: all bytes are initialized, and any are an IPv4 address.
                let v4 = unsafe { self.address.Ipv4 };
                let ip = Ipv4Addr::from(v4.sin_addr.S_un.S_addr.to_ne_bytes());
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            AF_INET6 => {
                // SAFETY: all bytes are initialized, and any are an IPv6 address.
                let v6 = unsafe { self.address.Ipv6 };
                // SAFETY: both members of the union are 16 initialized bytes.
                let ip = Ipv6Addr::from(unsafe { v6.sin6_addr.u.Byte });
                let port = u16::from_be(v6.sin6_port);
                Some(SocketAddrV6::new(ip, port, u32::from_be(v6.sin6_flowinfo), v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

impl From<SocketAddr> for RawAddress {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => Self {
                address: SOCKADDR_INET {
                    Ipv4: SOCKADDR_IN {
                        sin_family: AF_INET,
                        sin_port: v4.port().to_be(),
                        sin_addr: IN_ADDR {
                            S_un: IN_ADDR_S_un { S_addr: u32::from_ne_bytes(v4.ip().octets()) },
                        },
                        sin_zero: [0; 8],
                    },
                },
                length: size_of::<SOCKADDR_IN>() as u32,
            },
            SocketAddr::V6(v6) => Self {
                address: SOCKADDR_INET {
                    Ipv6: SOCKADDR_IN6 {
                        sin6_family: AF_INET6,
                        sin6_port: v6.port().to_be(),
                        sin6_flowinfo: v6.flowinfo().to_be(),
                        sin6_addr: IN6_ADDR { u: IN6_ADDR_u { Byte: v6.ip().octets() } },
                        sin6_scope_id: v6.scope_id(),
                    },
                },
                length: size_of::<SOCKADDR_IN6>() as u32,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_conversion_in_both_directions() {
        for text in ["192.0.2.1:4791", "[2001:db8::1]:445"] {
            let address: SocketAddr = text.parse().unwrap();
            let raw = RawAddress::from(address);
            let back = RawAddress::query(|into, length| {
                // SAFETY: `query` passes a buffer of `*length` bytes, enough for any address.
                unsafe { into.cast::<u8>().copy_from(raw.as_ptr().cast(), raw.length() as usize) };
                // SAFETY: `query` passes a valid length.
                unsafe { *length = raw.length() };
                Status::SUCCESS
            });
            assert_eq!(back, Ok(address));
        }
    }

    #[test]
    fn ports_and_addresses_are_in_network_byte_order() {
        let raw = RawAddress::from("1.2.3.4:258".parse::<SocketAddr>().unwrap());
        // SAFETY: an IPv4 address has 8 initialized bytes.
        let bytes = unsafe { raw.as_ptr().cast::<[u8; 8]>().read() };
        assert_eq!(bytes[2..], [1, 2, 1, 2, 3, 4]);
    }
}
