// SPDX-License-Identifier: MIT OR Apache-2.0

//! The RSS hash, which spreads received frames over queues and processors: the Toeplitz hash of addresses and ports. (virtio §13; Windows'
//! receive side scaling uses the same function and types)

use alloc::vec::Vec;

use bitflags::bitflags;
use fallible::vec;

use crate::error::Error;

/// Length of the key in bytes.
pub const HASH_KEY_LEN: usize = 40;
/// Longest input: two IPv6 addresses and two ports.
const MAX_INPUT: usize = 36;

const ETHERNET: usize = 14;
const VLAN_TAG: usize = 4;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xDD];
const VLAN: [u8; 2] = [0x81, 0x00];
const MIN_IPV4: usize = 20;
const IPV6_HEADER: usize = 40;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Mask of the flag "more fragments" and the fragment offset of an IPv4 packet.
const FRAGMENT: u16 = 0x3FFF;
/// IPv6 extension headers that are skipped to find ports: hop-by-hop options, routing, destination options.
const EXTENSIONS: [u8; 3] = [0, 43, 60];
const MAX_EXTENSIONS: usize = 8;

bitflags! {
    /// Hash types: the fields that a hash covers.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct HashTypes: u32 {
        /// Addresses of any IPv4 packet.
        const IPV4 = 1 << 0;
        /// Addresses and ports of TCP over IPv4.
        const TCP_IPV4 = 1 << 1;
        /// The same, of UDP.
        const UDP_IPV4 = 1 << 2;
        /// Addresses of any IPv6 packet.
        const IPV6 = 1 << 3;
        /// Addresses and ports of TCP over IPv6.
        const TCP_IPV6 = 1 << 4;
        /// The same, of UDP.
        const UDP_IPV6 = 1 << 5;
    }
}

impl HashTypes {
    /// Returns the hash type with this number in the header of a received frame; `None` if the frame has no hash, or a hash of an
    /// unsupported type.
    //= virtio §13
    pub(crate) fn of_report(number: u16) -> Option<Self> {
        let bit = u32::from(number).checked_sub(1)?;
        Self::from_bits(1_u32.checked_shl(bit)?)
    }
}

/// The Toeplitz function for a key, as a table of results for each half of each input byte.
#[derive(Debug)]
pub struct Toeplitz {
    /// For each byte of the input: the results of its upper and its lower half.
    halves: Vec<[[u32; 16]; 2]>,
}

impl Toeplitz {
    /// Computes the table, of 4608 bytes.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn try_new(key: &[u8; HASH_KEY_LEN]) -> Result<Self, Error> {
        let mut halves = vec::with_capacity(MAX_INPUT)?;
        for windows in key.windows(5).take(MAX_INPUT) {
            let bits = windows.iter().fold(0_u64, |bits, &byte| bits << 8 | u64::from(byte));
            // The 32 bits of the key from each bit of this byte on.
            let half = |first: u32| {
                let mut results = [0; 16];
                for (value, result) in (0_u32..).zip(&mut results) {
                    for bit in 0..4 {
                        if value & 8_u32.wrapping_shr(bit) != 0 {
                            *result ^= bits.wrapping_shr(8_u32.wrapping_sub(first.wrapping_add(bit))) as u32;
                        }
                    }
                }
                results
            };
            vec::push_within_capacity(&mut halves, [half(0), half(4)])?;
        }
        Ok(Self { halves })
    }

    /// Returns the hash of a frame and its type, the most specific one of `types`; `None` if no type applies to the frame, or if the frame
    /// is malformed.
    #[must_use]
    pub fn of_frame(&self, frame: &[u8], types: HashTypes) -> Option<(HashTypes, u32)> {
        self.of_received(frame, types, None)
    }

    /// Returns the hash of a frame: the `reported` one of the device if it has the right type, otherwise a computed one.
    #[must_use]
    pub fn of_received(
        &self,
        frame: &[u8],
        types: HashTypes,
        reported: Option<(HashTypes, u32)>,
    ) -> Option<(HashTypes, u32)> {
        let (kind, input) = Input::find(frame, types)?;
        match reported {
            Some((of, value)) if of == kind => Some((kind, value)),
            _ => Some((kind, self.of(&input))),
        }
    }

    fn of(&self, input: &Input<'_>) -> u32 {
        let bytes = input.addresses.iter().chain(input.ports);
        let of_half = |half: &[u32; 16], value: u8| half.get(usize::from(value)).copied().unwrap_or(0);
        bytes.zip(&self.halves).fold(0, |hash, (byte, [upper, lower])| {
            hash ^ of_half(upper, byte >> 4) ^ of_half(lower, byte & 0xF)
        })
    }
}

/// The fields of a frame that are hashed.
struct Input<'a> {
    addresses: &'a [u8],
    /// Empty if the hash covers no ports.
    ports: &'a [u8],
}

impl<'a> Input<'a> {
    /// Returns the type of a frame's hash, which is one of `types`, and the hash's input.
    fn find(frame: &'a [u8], types: HashTypes) -> Option<(HashTypes, Self)> {
        let (mut ether_type, mut packet) = (frame.get(12..ETHERNET)?, frame.get(ETHERNET..)?);
        if ether_type == VLAN {
            (ether_type, packet) = (packet.get(2..VLAN_TAG)?, packet.get(VLAN_TAG..)?);
        }
        let is_ipv6 = ether_type == IPV6;
        let (addresses, protocol, ports) = if is_ipv6 {
            ipv6(packet)?
        } else if ether_type == IPV4 {
            ipv4(packet)?
        } else {
            return None;
        };
        let (of_addresses, of_ports) = match (is_ipv6, protocol) {
            (false, TCP) => (HashTypes::IPV4, HashTypes::TCP_IPV4),
            (false, _) => (HashTypes::IPV4, HashTypes::UDP_IPV4),
            (true, TCP) => (HashTypes::IPV6, HashTypes::TCP_IPV6),
            (true, _) => (HashTypes::IPV6, HashTypes::UDP_IPV6),
        };
        if !ports.is_empty() && types.contains(of_ports) {
            return Some((of_ports, Self { addresses, ports }));
        }
        types.contains(of_addresses).then_some((of_addresses, Self { addresses, ports: &[] }))
    }
}

/// Addresses, transport protocol and ports of a packet; no ports if it has none.
type Parsed<'a> = (&'a [u8], u8, &'a [u8]);

fn ipv4(packet: &[u8]) -> Option<Parsed<'_>> {
    let packet = packet.get(..usize::from(word(packet, 2)?))?;
    let first = *packet.first()?;
    let header = usize::from(first & 0xF).checked_mul(4)?;
    if first >> 4 != 4 || header < MIN_IPV4 {
        return None;
    }
    let is_fragment = word(packet, 6)? & FRAGMENT != 0;
    let protocol = *packet.get(9)?;
    let ports = ports(protocol, is_fragment, packet.get(header..)?)?;
    Some((packet.get(12..MIN_IPV4)?, protocol, ports))
}

fn ipv6(packet: &[u8]) -> Option<Parsed<'_>> {
    let packet = packet.get(..usize::from(word(packet, 4)?).checked_add(IPV6_HEADER)?)?;
    if packet.first()? >> 4 != 6 {
        return None;
    }
    let (mut next, mut rest) = (*packet.get(6)?, packet.get(IPV6_HEADER..)?);
    for _ in 0..MAX_EXTENSIONS {
        if !EXTENSIONS.contains(&next) {
            break;
        }
        let &[following, units] = rest.first_chunk()?;
        next = following;
        rest = rest.get(usize::from(units).checked_add(1)?.checked_mul(8)?..)?;
    }
    // A fragment header is not skipped.
    Some((packet.get(8..IPV6_HEADER)?, next, ports(next, false, rest)?))
}

/// Returns the ports of a TCP or UDP header; no bytes for a fragment or another protocol; `None` if the header is too short.
fn ports(protocol: u8, is_fragment: bool, header: &[u8]) -> Option<&[u8]> {
    let len = if !is_fragment && matches!(protocol, TCP | UDP) { 4 } else { 0 };
    header.get(..len)
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}
