// SPDX-License-Identifier: MIT OR Apache-2.0

//! A unicast address, its family and its subnet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ndk_abi::netio::{ADDRESS_FAMILY, AF_INET, AF_INET6, AF_UNSPEC, NL_DAD_STATE};

/// A unicast address of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unicast {
    pub address: IpAddr,
    /// Length of the subnet's prefix in bits.
    pub prefix: u8,
    /// State of duplicate address detection.
    pub dad: NL_DAD_STATE,
}

impl Unicast {
    /// Returns whether the host may use the address: it is preferred or deprecated.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        [NL_DAD_STATE::IpDadStatePreferred, NL_DAD_STATE::IpDadStateDeprecated].contains(&self.dad)
    }
}

/// Returns whether an address is of the family, or the family is unspecified.
pub fn matches(family: ADDRESS_FAMILY, address: IpAddr) -> bool {
    match family {
        AF_INET => address.is_ipv4(),
        AF_INET6 => address.is_ipv6(),
        _ => family == AF_UNSPEC,
    }
}

/// Returns whether two addresses are in one subnet with a prefix of this length.
pub fn same_subnet(a: IpAddr, b: IpAddr, prefix: u8) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    };
    let ((a_bits, a_len), (b_bits, b_len)) = (bits(a), bits(b));
    let mask = if prefix == 0 { 0 } else { u128::MAX << (128 - u32::from(prefix.min(a_len))) };
    a_len == b_len && (a_bits ^ b_bits) & mask == 0
}

/// Returns the unspecified address of the same family.
pub fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_subnet_compares_the_prefix() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(same_subnet(address("10.0.0.1"), address("10.0.0.254"), 24));
        assert!(!same_subnet(address("10.0.0.1"), address("10.0.1.1"), 24));
        assert!(same_subnet(address("10.0.0.1"), address("192.168.0.1"), 0));
        assert!(same_subnet(address("fd00::1"), address("fd00::2"), 64));
        assert!(!same_subnet(address("fd00::1"), address("10.0.0.1"), 0));
    }
}
