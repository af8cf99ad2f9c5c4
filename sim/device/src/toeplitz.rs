// SPDX-License-Identifier: MIT OR Apache-2.0

//! The hashes of receive side scaling, bit by bit, as the documentation of Windows and virtio defines them.
//! (windows-driver-docs: network/rss-hashing-functions, network/rss-hashing-types; virtio §13)

/// Length of the key, in bytes.
pub const KEY_LEN: usize = 40;

/// Types of hashes, as virtio numbers them. (virtio §13)
pub const HASH_IPV4: u32 = 1 << 0;
pub const HASH_TCP_IPV4: u32 = 1 << 1;
pub const HASH_UDP_IPV4: u32 = 1 << 2;
pub const HASH_IPV6: u32 = 1 << 3;
pub const HASH_TCP_IPV6: u32 = 1 << 4;
pub const HASH_UDP_IPV6: u32 = 1 << 5;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_VLAN: u16 = 0x8100;
const ETHERTYPE_IPV6: u16 = 0x86dd;

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Next headers of IPv6 that are skipped: hop-by-hop options, routing, destination options.
const SKIPPED: [u8; 3] = [0, 43, 60];
const IPV6_HEADER_LEN: usize = 40;
/// Largest number of extension headers that are skipped. Our choice: none is documented.
const MAX_EXTENSIONS: usize = 8;

/// Returns the Toeplitz hash of `input`, of at most 36 bytes.
#[must_use]
pub fn toeplitz(key: &[u8; KEY_LEN], input: &[u8]) -> u32 {
    let bit = |bytes: &[u8], index: usize| u32::from(bytes[index / 8] >> (7 - index % 8) & 1);
    // The 32 bits of the key from each bit of the input on.
    let mut window = (0..32).fold(0, |window, index| window << 1 | bit(key, index));
    let mut result = 0;
    for index in 0..input.len() * 8 {
        if bit(input, index) != 0 {
            result ^= window;
        }
        window = window << 1 | bit(key, index + 32);
    }
    result
}

/// The hash types of one version of IP: addresses only, with TCP ports, with UDP ports.
struct Types {
    addresses: u32,
    tcp: u32,
    udp: u32,
}

const IPV4: Types = Types { addresses: HASH_IPV4, tcp: HASH_TCP_IPV4, udp: HASH_UDP_IPV4 };
const IPV6: Types = Types { addresses: HASH_IPV6, tcp: HASH_TCP_IPV6, udp: HASH_UDP_IPV6 };

/// Returns the hash type of an Ethernet frame, one of `types`, and the input of its hash. `None` if the frame is of none of the
/// types, or malformed.
fn input(frame: &[u8], types: u32) -> Option<(u32, Vec<u8>)> {
    let mut start = 14;
    let word = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    let mut ethertype = word(12)?;
    if ethertype == ETHERTYPE_VLAN {
        (ethertype, start) = (word(16)?, 18);
    }
    let packet = frame.get(start..)?;
    let (of, addresses, protocol, ports) = match ethertype {
        ETHERTYPE_IPV4 => parse_ipv4(packet)?,
        ETHERTYPE_IPV6 => parse_ipv6(packet)?,
        _ => return None,
    };
    let wanted = if protocol == TCP { of.tcp } else { of.udp };
    if !ports.is_empty() && types & wanted != 0 {
        return Some((wanted, [addresses, ports].concat()));
    }
    (types & of.addresses != 0).then(|| (of.addresses, addresses.to_vec()))
}

/// The types of a packet's version, its addresses, its transport protocol, and its ports; no bytes if it has none.
type Parsed<'a> = (&'static Types, &'a [u8], u8, &'a [u8]);

fn parse_ipv4(packet: &[u8]) -> Option<Parsed<'_>> {
    let length = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
    let packet = packet.get(..length)?;
    let header = usize::from(packet.first()? & 0xf) * 4;
    if packet[0] >> 4 != 4 || header < 20 || header > packet.len() {
        return None;
    }
    let is_fragment = u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff != 0;
    let ports = ports(packet[9], is_fragment, &packet[header..])?;
    Some((&IPV4, &packet[12..20], packet[9], ports))
}

fn parse_ipv6(packet: &[u8]) -> Option<Parsed<'_>> {
    let length = usize::from(u16::from_be_bytes([*packet.get(4)?, *packet.get(5)?]));
    let packet = packet.get(..IPV6_HEADER_LEN + length)?;
    if packet[0] >> 4 != 6 {
        return None;
    }
    let (mut next, mut rest) = (packet[6], &packet[IPV6_HEADER_LEN..]);
    for _ in 0..MAX_EXTENSIONS {
        if !SKIPPED.contains(&next) {
            break;
        }
        let extension = (usize::from(*rest.get(1)?) + 1) * 8;
        (next, rest) = (rest[0], rest.get(extension..)?);
    }
    // The header of a fragment is not skipped: it is another protocol than those with ports.
    let ports = ports(next, false, rest)?;
    Some((&IPV6, &packet[8..40], next, ports))
}

/// Returns the ports of a transport header, no bytes of a fragment or another protocol; `None` if the header is too short.
fn ports(protocol: u8, is_fragment: bool, header: &[u8]) -> Option<&[u8]> {
    let len = if is_fragment || ![TCP, UDP].contains(&protocol) { 0 } else { 4 };
    header.get(..len)
}

/// Returns the hash type of an Ethernet frame, one of `types`, and its hash; `None` if the frame is of none of the types, or
/// malformed. Types of IPv6 with extension headers (`_EX`) are not supported.
#[must_use]
pub fn hash(frame: &[u8], types: u32, key: &[u8; KEY_LEN]) -> Option<(u32, u32)> {
    let (kind, input) = input(frame, types)?;
    Some((kind, toeplitz(key, &input)))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    /// (windows-driver-docs: network/verifying-the-rss-hash-calculation)
    pub const KEY: [u8; KEY_LEN] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
        0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
        0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    /// Destination, source, hashes of the addresses and of addresses and ports.
    const V4: [(&str, u16, &str, u16, u32, u32); 5] = [
        ("161.142.100.80", 1766, "66.9.149.187", 2794, 0x323e_8fc2, 0x51cc_c178),
        ("65.69.140.83", 4739, "199.92.111.2", 14230, 0xd718_262a, 0xc626_b0ea),
        ("12.22.207.184", 38024, "24.19.198.95", 12898, 0xd2d0_a5de, 0x5c2b_394a),
        ("209.142.163.6", 2217, "38.27.205.30", 48228, 0x8298_9176, 0xafc7_327f),
        ("202.188.127.2", 1303, "153.39.163.191", 44251, 0x5d18_09c5, 0x10e8_28a2),
    ];
    const V6: [(&str, u16, &str, u16, u32, u32); 3] = [
        ("3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x2cc1_8cd5, 0x4020_7d3d),
        ("ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0x0f0c_461c, 0xdde5_1bbf),
        (
            "fe80::200:f8ff:fe21:67cf",
            38024,
            "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
            44251,
            0x4b61_e985,
            0x02d1_feef,
        ),
    ];

    fn transport(source: u16, destination: u16) -> Vec<u8> {
        [&source.to_be_bytes()[..], &destination.to_be_bytes(), &[0; 16]].concat()
    }

    fn ipv4(protocol: u8, fragment: u16, options: usize, addresses: &[u8], payload: &[u8]) -> Vec<u8> {
        let header = 20 + options;
        let mut packet = vec![0x40 | (header / 4) as u8, 0];
        packet.extend(((header + payload.len()) as u16).to_be_bytes());
        packet.extend([0, 0]);
        packet.extend(fragment.to_be_bytes());
        packet.extend([64, protocol, 0, 0]);
        packet.extend(addresses);
        packet.resize(header, 1);
        packet.extend(payload);
        ethernet(ETHERTYPE_IPV4, &packet)
    }

    fn ipv6(next: u8, addresses: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0];
        packet.extend((payload.len() as u16).to_be_bytes());
        packet.extend([next, 64]);
        packet.extend(addresses);
        packet.extend(payload);
        ethernet(ETHERTYPE_IPV6, &packet)
    }

    fn ethernet(ethertype: u16, packet: &[u8]) -> Vec<u8> {
        [&[2; 12][..], &ethertype.to_be_bytes(), packet].concat()
    }

    const FRAGMENT: u8 = 44;
    const ALL4: u32 = HASH_IPV4 | HASH_TCP_IPV4 | HASH_UDP_IPV4;
    const ALL6: u32 = HASH_IPV6 | HASH_TCP_IPV6 | HASH_UDP_IPV6;

    #[test]
    fn documented_vectors_of_ipv4() {
        for (destination, to, source, from, addresses, with_ports) in V4 {
            let octets = |text: &str| text.parse::<Ipv4Addr>().unwrap().octets();
            let pair = [octets(source), octets(destination)].concat();
            let ports = transport(from, to);
            let tcp = ipv4(TCP, 0x4000, 0, &pair, &ports);
            assert_eq!(hash(&tcp, ALL4, &KEY), Some((HASH_TCP_IPV4, with_ports)));
            assert_eq!(hash(&tcp, HASH_IPV4, &KEY), Some((HASH_IPV4, addresses)));
            assert_eq!(hash(&tcp, HASH_UDP_IPV4 | ALL6, &KEY), None);
            let udp = ipv4(UDP, 0, 8, &pair, &ports);
            assert_eq!(hash(&udp, ALL4, &KEY), Some((HASH_UDP_IPV4, with_ports)), "options are skipped");
            let not_udp = HASH_IPV4 | HASH_TCP_IPV4;
            assert_eq!(hash(&udp, not_udp, &KEY), Some((HASH_IPV4, addresses)));
            for fragment in [0x2000, 1] {
                let frame = ipv4(TCP, fragment, 0, &pair, &ports);
                assert_eq!(hash(&frame, ALL4, &KEY), Some((HASH_IPV4, addresses)));
                assert_eq!(hash(&frame, HASH_TCP_IPV4, &KEY), None);
            }
            let icmp = ipv4(1, 0, 0, &pair, &ports);
            assert_eq!(hash(&icmp, ALL4, &KEY), Some((HASH_IPV4, addresses)));
            let tagged = [&tcp[..12], &[0x81, 0, 0, 5], &tcp[12..]].concat();
            assert_eq!(hash(&tagged, ALL4, &KEY), Some((HASH_TCP_IPV4, with_ports)));
        }
    }

    #[test]
    fn documented_vectors_of_ipv6() {
        for (destination, to, source, from, addresses, with_ports) in V6 {
            let octets = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
            let pair = [octets(source), octets(destination)].concat();
            let ports = transport(from, to);
            let tcp = ipv6(TCP, &pair, &ports);
            assert_eq!(hash(&tcp, ALL6, &KEY), Some((HASH_TCP_IPV6, with_ports)));
            assert_eq!(hash(&tcp, HASH_IPV6, &KEY), Some((HASH_IPV6, addresses)));
            assert_eq!(hash(&tcp, ALL4, &KEY), None);
            let extended =
                ipv6(0, &pair, &[&[60, 0, 0, 0, 0, 0, 0, 0][..], &[UDP, 1], &[0; 14], &ports].concat());
            assert_eq!(hash(&extended, ALL6, &KEY), Some((HASH_UDP_IPV6, with_ports)));
            let routed = ipv6(43, &pair, &[&[TCP, 0, 0, 0, 0, 0, 0, 0][..], &ports].concat());
            assert_eq!(hash(&routed, ALL6, &KEY), Some((HASH_TCP_IPV6, with_ports)));
            let fragment = ipv6(FRAGMENT, &pair, &[&[TCP, 0, 0, 1, 0, 0, 0, 0][..], &ports].concat());
            assert_eq!(hash(&fragment, ALL6, &KEY), Some((HASH_IPV6, addresses)));
        }
    }

    #[test]
    fn malformed_frame_has_no_hash() {
        let tcp = ipv4(TCP, 0, 0, &[1; 8], &transport(1, 2));
        let tcp6 = ipv6(TCP, &[1; 32], &transport(1, 2));
        for frame in [&tcp, &tcp6] {
            for len in 0..frame.len() {
                assert_eq!(hash(&frame[..len], ALL4 | ALL6, &KEY), None, "{len} bytes");
            }
        }
        let mut short = ipv4(TCP, 0, 0, &[1; 8], &[0; 3]);
        short.extend([0; 20]);
        assert_eq!(hash(&short, ALL4, &KEY), None, "the ports would be padding");
        let mut version = tcp.clone();
        version[14] = 0x65;
        assert_eq!(hash(&version, ALL4, &KEY), None);
        let mut header = tcp;
        for words in [4, 15] {
            header[14] = 0x40 | words;
            assert_eq!(hash(&header, ALL4, &KEY), None, "a header of {words} words");
        }
        let mut version = tcp6;
        version[14] = 0x40;
        assert_eq!(hash(&version, ALL6, &KEY), None);
        let long = ipv6(60, &[1; 32], &[UDP, 9, 0, 0, 0, 0, 0, 0]);
        assert_eq!(hash(&long, ALL6, &KEY), None, "an extension header beyond the packet");
        assert_eq!(hash(&ethernet(0x0806, &[0; 46]), ALL4 | ALL6, &KEY), None);
    }
}
