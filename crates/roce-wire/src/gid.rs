// SPDX-License-Identifier: MIT OR Apache-2.0

//! Global identifiers (GIDs), which are IP addresses in RoCEv2 (IBTA Vol 1 Annex A17).

use core::{fmt, net::IpAddr};

use crate::value::newtypes;

/// A 128-bit global identifier.
///
/// Source: rocev2 §13.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// Returns the IP address; an IPv4 address if the identifier is an IPv4-mapped one.
    #[must_use]
    pub fn to_ip(self) -> IpAddr {
        IpAddr::from(self.0).to_canonical()
    }
}

impl From<IpAddr> for Gid {
    fn from(ip: IpAddr) -> Self {
        //= rocev2 §13
        Self(match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        })
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        IpAddr::from(self.0).fmt(f)
    }
}

newtypes! {
    Gid: [u8; 16], Gid, |gid: Gid| gid.0;
}

#[cfg(test)]
mod tests {
    use super::*;

    //= rocev2 §13
    #[test]
    fn an_ipv4_address_is_a_mapped_identifier() {
        let ip = IpAddr::from([192, 168, 77, 1]);
        let gid = Gid::from(ip);
        assert_eq!(gid.0, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 192, 168, 77, 1]);
        assert_eq!(gid.to_ip(), ip);
        let ip: IpAddr = "fe80::5054:ff:fe77:1".parse().unwrap();
        assert_eq!(Gid::from(ip).to_ip(), ip);
    }
}
