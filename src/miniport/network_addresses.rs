// SPDX-License-Identifier: MIT OR Apache-2.0

//! The addresses of the protocols that are bound to an adapter, as `OID_GEN_NETWORK_LAYER_ADDRESSES` sets them.

use ndk_abi::ndis::{NDIS_STATUS, NDIS_STATUS_INVALID_DATA, NDIS_STATUS_INVALID_LENGTH};

/// Most addresses of each protocol that are announced. Further addresses are ignored.
const MAX_ADDRESSES: usize = 12;

/// `NETWORK_ADDRESS_LIST`: number and type of the addresses, before the first.
pub const LIST_HEADER: usize = 6;
/// `NETWORK_ADDRESS`: length and type, before the address.
const ADDRESS_HEADER: usize = 4;
/// `NDIS_PROTOCOL_ID_TCP_IP` and `NDIS_PROTOCOL_ID_IP6`.
const PROTOCOL_IP: u16 = 2;
const PROTOCOL_IP6: u16 = 3;
/// Offsets of the address in `NETWORK_ADDRESS_IP` and `NETWORK_ADDRESS_IP6`.
const IN_ADDRESS_IP: usize = 4;
const IN_ADDRESS_IP6: usize = 8;

/// Addresses of one protocol, and their number.
#[derive(Clone, Copy)]
pub struct List<const LEN: usize>([[u8; LEN]; MAX_ADDRESSES], usize);

impl<const LEN: usize> List<LEN> {
    const EMPTY: Self = Self([[0; LEN]; MAX_ADDRESSES], 0);

    /// Reads `count` structures `NETWORK_ADDRESS`. A structure of type `protocol` has the address at offset `at`; other
    /// types are ignored.
    fn read(count: i32, mut rest: &[u8], protocol: u16, at: usize) -> Result<Self, NDIS_STATUS> {
        let mut list = Self::EMPTY;
        for _ in 0..count {
            let (&[length, length_high, kind, kind_high], behind) =
                rest.split_first_chunk::<ADDRESS_HEADER>().ok_or(NDIS_STATUS_INVALID_LENGTH)?;
            let (address, others) = behind
                .split_at_checked(u16::from_le_bytes([length, length_high]).into())
                .ok_or(NDIS_STATUS_INVALID_LENGTH)?;
            rest = others;
            if u16::from_le_bytes([kind, kind_high]) == protocol {
                let address = address.get(at..).and_then(<[u8]>::first_chunk);
                list.push(*address.ok_or(NDIS_STATUS_INVALID_LENGTH)?);
            }
        }
        Ok(list)
    }

    fn push(&mut self, address: [u8; LEN]) {
        let Self(addresses, count) = self;
        if let Some(free) = addresses.get_mut(*count) {
            *free = address;
            *count += 1;
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8; LEN]> {
        self.0.iter().take(self.1)
    }
}

/// The addresses of the protocols that are bound to the adapter.
#[derive(Clone, Copy)]
pub struct NetworkAddresses {
    pub ipv4: List<4>,
    pub ipv6: List<16>,
}

impl NetworkAddresses {
    pub const fn new() -> Self {
        Self { ipv4: List::EMPTY, ipv6: List::EMPTY }
    }

    /// Replaces the addresses of a protocol.
    pub fn replace(&mut self, by: Replacement) {
        match by {
            Replacement::Ipv4(addresses) => self.ipv4 = addresses,
            Replacement::Ipv6(addresses) => self.ipv6 = addresses,
            Replacement::None => {}
        }
    }
}

/// Addresses of one protocol.
#[derive(Clone, Copy)]
pub enum Replacement {
    Ipv4(List<4>),
    Ipv6(List<16>),
    /// The list is for a protocol whose addresses are not announced.
    None,
}

impl Replacement {
    /// Reads a `NETWORK_ADDRESS_LIST`. Ignores addresses of other protocols than the list's own, and whole lists of protocols whose
    /// addresses are not announced.
    pub fn read(list: &[u8]) -> Result<Self, NDIS_STATUS> {
        let (&[count @ .., low, high], addresses) =
            list.split_first_chunk::<LIST_HEADER>().ok_or(NDIS_STATUS_INVALID_LENGTH)?;
        let (count, protocol) = (i32::from_le_bytes(count), u16::from_le_bytes([low, high]));
        if count < 0 {
            return Err(NDIS_STATUS_INVALID_DATA);
        }
        Ok(match protocol {
            PROTOCOL_IP => Self::Ipv4(List::read(count, addresses, protocol, IN_ADDRESS_IP)?),
            PROTOCOL_IP6 => Self::Ipv6(List::read(count, addresses, protocol, IN_ADDRESS_IP6)?),
            _ => Self::None,
        })
    }
}
