// SPDX-License-Identifier: MIT OR Apache-2.0

//! The Toeplitz hash of frames: the documented vectors, the definition bit by bit, and which part of a frame is hashed.

use proptest::prelude::*;
use virtio_net::{HASH_KEY_LEN, HashTypes, Toeplitz};

/// (windows-driver-docs: network/verifying-the-rss-hash-calculation)
const KEY: [u8; HASH_KEY_LEN] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
    0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
    0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Source, destination, hashes of the addresses and of addresses and ports. (the same page)
type Vector<Address> = (Address, u16, Address, u16, u32, u32);
const V4: [Vector<[u8; 4]>; 5] = [
    ([66, 9, 149, 187], 2794, [161, 142, 100, 80], 1766, 0x323e_8fc2, 0x51cc_c178),
    ([199, 92, 111, 2], 14230, [65, 69, 140, 83], 4739, 0xd718_262a, 0xc626_b0ea),
    ([24, 19, 198, 95], 12898, [12, 22, 207, 184], 38024, 0xd2d0_a5de, 0x5c2b_394a),
    ([38, 27, 205, 30], 48228, [209, 142, 163, 6], 2217, 0x8298_9176, 0xafc7_327f),
    ([153, 39, 163, 191], 44251, [202, 188, 127, 2], 1303, 0x5d18_09c5, 0x10e8_28a2),
];
const V6: [Vector<&str>; 3] = [
    ("3ffe:2501:200:1fff::7", 2794, "3ffe:2501:200:3::1", 1766, 0x2cc1_8cd5, 0x4020_7d3d),
    ("3ffe:501:8::260:97ff:fe40:efab", 14230, "ff02::1", 4739, 0x0f0c_461c, 0xdde5_1bbf),
    (
        "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
        44251,
        "fe80::200:f8ff:fe21:67cf",
        38024,
        0x4b61_e985,
        0x02d1_feef,
    ),
];

fn toeplitz() -> Toeplitz {
    Toeplitz::try_new(&KEY).unwrap()
}

fn ports(source: u16, destination: u16) -> Vec<u8> {
    [&source.to_be_bytes()[..], &destination.to_be_bytes(), &[0; 16]].concat()
}

fn ipv4(protocol: u8, fragment: u16, options: usize, addresses: &[u8], payload: &[u8]) -> Vec<u8> {
    let header = 20 + options;
    let mut frame = [&[2; 12][..], &[8, 0, 0x40 | (header / 4) as u8, 0]].concat();
    frame.extend(((header + payload.len()) as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(fragment.to_be_bytes());
    frame.extend([64, protocol, 0, 0]);
    frame.extend(addresses);
    frame.extend(vec![1; options]);
    frame.extend(payload);
    frame
}

fn ipv6(next: u8, addresses: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut frame = [&[2; 12][..], &[0x86, 0xDD, 0x60, 0, 0, 0]].concat();
    frame.extend((payload.len() as u16).to_be_bytes());
    frame.extend([next, 64]);
    frame.extend(addresses);
    frame.extend(payload);
    frame
}

fn first_v4() -> Vec<u8> {
    let (source, from, destination, to, ..) = V4[0];
    ipv4(TCP, 0, 0, &[source, destination].concat(), &ports(from, to))
}

#[test]
fn documented_vectors_are_met() {
    for (source, from, destination, to, of_addresses, of_ports) in V4 {
        let addresses = [source, destination].concat();
        for (protocol, kind) in [(TCP, HashTypes::TCP_IPV4), (UDP, HashTypes::UDP_IPV4)] {
            let frame = ipv4(protocol, 0, 0, &addresses, &ports(from, to));
            assert_eq!(toeplitz().of_frame(&frame, HashTypes::all()), Some((kind, of_ports)));
            assert_eq!(
                toeplitz().of_frame(&frame, HashTypes::IPV4),
                Some((HashTypes::IPV4, of_addresses)),
                "without ports"
            );
        }
    }
    for (source, from, destination, to, of_addresses, of_ports) in V6 {
        let octets = [source, destination].map(|text| text.parse::<std::net::Ipv6Addr>().unwrap().octets());
        for (protocol, kind) in [(TCP, HashTypes::TCP_IPV6), (UDP, HashTypes::UDP_IPV6)] {
            let frame = ipv6(protocol, octets.as_flattened(), &ports(from, to));
            assert_eq!(toeplitz().of_frame(&frame, HashTypes::all()), Some((kind, of_ports)));
            let without = toeplitz().of_frame(&frame, HashTypes::IPV6);
            assert_eq!(without, Some((HashTypes::IPV6, of_addresses)));
        }
    }
}

#[test]
fn hash_covers_ports_only_where_a_packet_has_them_and_their_type_is_wanted() {
    let addresses = [V4[0].0, V4[0].2].concat();
    let of_addresses = Some((HashTypes::IPV4, V4[0].4));
    let of_ports = Some((HashTypes::TCP_IPV4, V4[0].5));
    let payload = ports(V4[0].1, V4[0].3);
    let all = |frame: &[u8]| toeplitz().of_frame(frame, HashTypes::all());
    assert_eq!(all(&ipv4(TCP, 0, 8, &addresses, &payload)), of_ports, "behind options");
    assert_eq!(all(&ipv4(TCP, 0x4000, 0, &addresses, &payload)), of_ports, "not to be fragmented");
    for fragment in [0x2000, 0x2001, 1, 0x1FFF] {
        assert_eq!(all(&ipv4(TCP, fragment, 0, &addresses, &payload)), of_addresses, "a fragment");
    }
    assert_eq!(all(&ipv4(1, 0, 0, &addresses, &payload)), of_addresses, "ICMP");
    let udp = ipv4(UDP, 0, 0, &addresses, &payload);
    let types = HashTypes::IPV4 | HashTypes::TCP_IPV4;
    assert_eq!(toeplitz().of_frame(&udp, types), of_addresses);
    assert_eq!(toeplitz().of_frame(&udp, HashTypes::TCP_IPV4), None);
    assert_eq!(
        toeplitz().of_frame(&udp, HashTypes::all().difference(types)).map(|hash| hash.1),
        Some(V4[0].5)
    );
    let mut tagged = first_v4();
    tagged.splice(12..12, [0x81, 0, 0x60, 5]);
    assert_eq!(all(&tagged), of_ports, "behind a VLAN tag");
    let mut padded = first_v4();
    padded.extend([9; 20]);
    assert_eq!(all(&padded), of_ports);
}

#[test]
fn ports_are_found_behind_extension_headers() {
    let (source, from, destination, to, of_addresses, of_ports) = V6[0];
    let octets = [source, destination].map(|text| text.parse::<std::net::Ipv6Addr>().unwrap().octets());
    let with = |chain: &[u8]| {
        let mut payload = Vec::new();
        for &next in &chain[1..] {
            payload.extend([next, 1]);
            payload.extend([0; 14]);
        }
        payload.extend(ports(from, to));
        toeplitz().of_frame(&ipv6(chain[0], octets.as_flattened(), &payload), HashTypes::all())
    };
    assert_eq!(with(&[0, 43, 60, TCP]), Some((HashTypes::TCP_IPV6, of_ports)));
    assert_eq!(with(&[0, 60, UDP]), Some((HashTypes::UDP_IPV6, of_ports)));
    assert_eq!(with(&[44, TCP]), Some((HashTypes::IPV6, of_addresses)), "a fragment");
    assert_eq!(with(&[0; 9]), Some((HashTypes::IPV6, of_addresses)), "too many");
    assert_eq!(with(&[58]), Some((HashTypes::IPV6, of_addresses)), "ICMP");
}

#[test]
fn frame_that_is_malformed_or_not_ip_has_no_hash() {
    let whole = first_v4();
    let all = |frame: &[u8]| toeplitz().of_frame(frame, HashTypes::all());
    for len in 0..whole.len() {
        assert_eq!(all(&whole[..len]), None, "{len} bytes");
    }
    let edited = |at: usize, value: u8| {
        let mut frame = first_v4();
        frame[at] = value;
        all(&frame)
    };
    assert_eq!(edited(12, 9), None, "not IP");
    assert_eq!(edited(14, 0x65), None, "another version");
    assert_eq!(edited(14, 0x44), None, "a short header");
    assert_eq!(edited(14, 0x4F), None, "a header longer than the packet");
    assert_eq!(edited(17, 23), None, "no ports");
    assert_eq!(edited(16, 0xFF), None, "longer than the frame");
}

#[test]
fn hash_that_the_device_reports_is_used_only_if_it_is_of_the_expected_type() {
    let frame = first_v4();
    let of = |types, reported| toeplitz().of_received(&frame, types, reported);
    let computed = of(HashTypes::all(), None);
    assert!(computed.is_some_and(|(kind, _)| kind == HashTypes::TCP_IPV4));
    assert_eq!(of(HashTypes::all(), Some((HashTypes::TCP_IPV4, 9))), Some((HashTypes::TCP_IPV4, 9)));
    for other in [HashTypes::IPV4, HashTypes::UDP_IPV4, HashTypes::TCP_IPV6] {
        assert_eq!(of(HashTypes::all(), Some((other, 9))), computed, "{other:?}");
    }
    assert_eq!(of(HashTypes::IPV6, Some((HashTypes::TCP_IPV4, 9))), None, "not asked for");
}

/// The hash bit by bit: for each bit of the input that is set, the 32 bits of the key from the same position on.
fn by_definition(key: &[u8; HASH_KEY_LEN], input: &[u8]) -> u32 {
    let bit = |bytes: &[u8], index: usize| u32::from(bytes[index / 8] >> (7 - index % 8) & 1);
    let set = (0..input.len() * 8).filter(|&index| bit(input, index) != 0);
    set.fold(0, |hash, index| hash ^ (0..32).fold(0, |window, offset| window << 1 | bit(key, index + offset)))
}

proptest! {
    #[test]
    fn hash_is_that_of_the_definition(key: [u8; HASH_KEY_LEN], addresses: [u8; 32], from: u16, to: u16) {
        let payload = ports(from, to);
        let input = [&addresses[..], &payload[..4]].concat();
        let toeplitz = Toeplitz::try_new(&key).unwrap();
        let hash = |frame: &[u8]| toeplitz.of_frame(frame, HashTypes::all()).unwrap().1;
        prop_assert_eq!(hash(&ipv6(UDP, &addresses, &payload)), by_definition(&key, &input));
        prop_assert_eq!(hash(&ipv4(1, 0, 0, &addresses[..8], &[])), by_definition(&key, &addresses[..8]));
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>, ether_type in prop::sample::select(vec![[8, 0], [0x86, 0xDD], [0x81, 0]])) {
        let mut frame = [&[2; 12][..], &ether_type, &bytes].concat();
        let _ = toeplitz().of_frame(&frame, HashTypes::all());
        if let Some(first) = frame.get_mut(14) {
            *first = if ether_type == [8, 0] { 0x45 } else { 0x60 };
        }
        let _ = toeplitz().of_frame(&frame, HashTypes::all());
    }
}
