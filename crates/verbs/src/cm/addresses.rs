// SPDX-License-Identifier: MIT OR Apache-2.0

//! Socket addresses.

use core::ffi::c_int;
use core::mem::zeroed;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};
use verbs_core::Error;

/// Returns the address that a program passes.
///
/// # Errors
/// [`Error::Invalid`] if it is null or of another family than IP.
///
/// # Safety
/// Null, or a socket address of its family's length.
pub unsafe fn read(address: *const sockaddr) -> Result<SocketAddr, Error> {
    // SAFETY: by the contract of this function; the family is all that is read of it here.
    let family = unsafe { address.as_ref() }.ok_or(Error::Invalid)?.sa_family;
    match c_int::from(family) {
        libc::AF_INET => {
            // SAFETY: an address of this family has that length; at any alignment.
            let v4 = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Ok(SocketAddr::new(IpAddr::V4(ip), u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: an address of this family has the length of `sockaddr_in6`; at any alignment.
            let v6 = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let ip = IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr)).to_canonical();
            Ok(SocketAddr::new(ip, u16::from_be(v6.sin6_port)))
        }
        _ => Err(Error::Invalid),
    }
}

/// Returns the structure of an address, with zeros behind it.
pub fn storage(address: SocketAddr) -> sockaddr_storage {
    // SAFETY: all-zero bytes are a valid address of no family.
    let mut storage: sockaddr_storage = unsafe { zeroed() };
    let place = &raw mut storage;
    match address.ip() {
        IpAddr::V4(ip) => {
            let v4 = sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(ip).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is larger than the address, and aligned for it.
            unsafe { place.cast::<sockaddr_in>().write(v4) };
        }
        IpAddr::V6(ip) => {
            let v6 = sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: ip.octets() },
                sin6_scope_id: 0,
            };
            // SAFETY: the storage is larger than `sockaddr_in6`, too, and aligned for it.
            unsafe { place.cast::<sockaddr_in6>().write(v6) };
        }
    }
    storage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_was_written() {
        for text in ["1.2.3.4:5", "[fd00::7]:65535", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let storage = storage(address);
            // SAFETY: the storage holds an address.
            assert_eq!(unsafe { read((&raw const storage).cast()) }, Ok(address));
        }
        let mut other = storage("1.2.3.4:5".parse().unwrap());
        other.ss_family = libc::AF_UNIX as u16;
        // SAFETY: null, or storage with a family.
        assert_eq!(unsafe { read(core::ptr::null()) }, Err(Error::Invalid));
        // SAFETY: `other` is storage with a family.
        assert_eq!(unsafe { read((&raw const other).cast()) }, Err(Error::Invalid));
    }
}
