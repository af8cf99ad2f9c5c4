// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive side scaling between the two hosts of a testbed: parameters of NDIS, and flows of frames.

use std::{collections::BTreeMap, time::Duration};

use crate::bed::miniport;
use device_sim::{checksum, virtio_net::Features};
use lab::{
    machine::Machine,
    testbed::{Options, Testbed},
};
use ndis_sim::{Keyword, Miniport, RssParameters};
use ndk_abi::ndis::{
    NDIS_HASH_IPV4, NDIS_HASH_IPV6, NDIS_HASH_TCP_IPV4, NDIS_HASH_TCP_IPV6, NDIS_HASH_UDP_IPV4,
    NDIS_HASH_UDP_IPV6, NDIS_PACKET_TYPE_DIRECTED, OID_GEN_CURRENT_PACKET_FILTER,
};

pub const MOMENT: Duration = Duration::from_secs(20);
pub const SOON: Duration = Duration::from_millis(100);
/// Longer than frames may still be received as before a change.
pub const SETTLED: Duration = Duration::from_millis(30);

pub const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
    0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
    0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];
pub const ALL_TYPES: u32 = NDIS_HASH_IPV4
    | NDIS_HASH_TCP_IPV4
    | NDIS_HASH_UDP_IPV4
    | NDIS_HASH_IPV6
    | NDIS_HASH_TCP_IPV6
    | NDIS_HASH_UDP_IPV6;
/// Parameters that Windows' stack asks for.
pub const TCP_TYPES: u32 = NDIS_HASH_IPV4 | NDIS_HASH_TCP_IPV4 | NDIS_HASH_IPV6 | NDIS_HASH_TCP_IPV6;

pub fn parameters(types: u32, table: &[u8]) -> RssParameters {
    // Not that of the first entry, where a hash of 0 would be.
    let default_processor = table[table.len() - 1];
    RssParameters { types, key: KEY, table: table.to_vec(), default_processor }
}

pub fn options(pairs: u16, processors: u32) -> Options {
    Options { features: Features::DEFAULT | Features::MQ, pairs, processors, ..Options::default() }
}

/// As `options`, with poll objects.
pub fn polled(mut options: Options) -> Options {
    options.keywords.push(("*NdisPoll", Keyword::Text("1".into())));
    options
}

pub fn over_formats(test: impl Fn(Features)) {
    for format in [Features::default(), Features::RING_PACKED] {
        test(format);
    }
}

/// A packet from the first host to the second, of the flow with this source port. The protocol is TCP or UDP.
pub fn ipv4(protocol: u8, port: u16, number: u32) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    frame[12..18].copy_from_slice(&[0x08, 0x00, 0x45, 0, 0, 46]);
    (frame[22], frame[23]) = (64, protocol);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    frame[36..38].copy_from_slice(&9_u16.to_be_bytes());
    frame[46..50].copy_from_slice(&number.to_be_bytes());
    with_header_checksum(frame)
}

/// Bridges drop packets with a wrong checksum of the IPv4 header.
fn with_header_checksum(mut frame: Vec<u8>) -> Vec<u8> {
    frame[24..26].fill(0);
    let sum = !checksum::sum(&frame[14..34], 0);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

pub fn udp(port: u16, number: u32) -> Vec<u8> {
    ipv4(17, port, number)
}

/// Frames with and without a hash: TCP, UDP and ICMP over IPv4, TCP and UDP over IPv6, a fragment, and a frame that is not IP.
pub fn mixture() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for port in 0..40 {
        frames.extend([6, 17, 1].map(|protocol| ipv4(protocol, port, 0)));
        for protocol in [6, 17] {
            let mut frame = ipv4(protocol, port, 0);
            frame.resize(100, 0);
            frame[12..22].copy_from_slice(&[0x86, 0xDD, 0x60, 0, 0, 0, 0, 46, protocol, 64]);
            frame[54..56].copy_from_slice(&port.to_be_bytes());
            frames.push(frame);
        }
        let mut fragment = udp(port, 0);
        fragment[20] = 0x20;
        frames.push(with_header_checksum(fragment));
        let mut other = udp(port, 0);
        other[12..14].copy_from_slice(&[0x88, 0xB5]);
        frames.push(other);
    }
    frames
}

pub fn receive_directed(receiver: &Miniport) {
    receiver.set(OID_GEN_CURRENT_PACKET_FILTER, &NDIS_PACKET_TYPE_DIRECTED.to_le_bytes()).unwrap();
    let _ = receiver.received();
}

/// Takes received frames until there are `count`.
pub fn arrived(bed: &Testbed, count: usize) -> Vec<Vec<u8>> {
    let receiver = miniport(bed.machines()[1]);
    let mut arrived = receiver.received();
    let deadline = bed.now() + MOMENT;
    while arrived.len() < count && bed.now() < deadline && bed.violations().is_empty() {
        let _ = bed.event().wait(SOON);
        arrived.extend(receiver.received());
    }
    assert_eq!(arrived.len(), count, "{}", bed.violations().join("\n"));
    arrived
}

/// Sends frames to the second host: all arrive.
pub fn send(bed: &Testbed, frames: &[Vec<u8>]) {
    let [sender, receiver] = bed.machines().map(miniport);
    receive_directed(&receiver);
    for chain in frames.chunks(500) {
        let _ = sender.send_chain(chain, 0);
        let _ = arrived(bed, chain.len());
    }
}

/// Sends `count` frames of each of `flows` flows, by turns. All arrive, those of a flow in order.
pub fn send_flows(bed: &Testbed, flows: u16, count: u32) {
    send_flows_from(bed, &(1000..1000 + flows).collect::<Vec<_>>(), count);
}

/// Sends a flow from each of these source ports.
pub fn send_flows_from(bed: &Testbed, ports: &[u16], count: u32) {
    let [sender, receiver] = bed.machines().map(miniport);
    receive_directed(&receiver);
    let frames: Vec<_> =
        (0..count).flat_map(|number| ports.iter().map(move |&port| udp(port, number))).collect();
    let mut next = BTreeMap::new();
    for chain in frames.chunks(200) {
        let _ = sender.send_chain(chain, 0);
        for frame in arrived(bed, chain.len()) {
            let flow = u16::from_be_bytes(frame[34..36].try_into().unwrap());
            let number = u32::from_be_bytes(frame[46..50].try_into().unwrap());
            let expected = next.entry(flow).or_insert(0);
            assert_eq!(number, *expected, "flow {flow}");
            *expected += 1;
        }
    }
}

/// Overwrites bytes of a request.
pub fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Waits until what is under way has ended: settings of the device, and frames that wait for their processor.
pub fn settle(bed: &Testbed) {
    let deadline = bed.now() + SETTLED;
    while bed.now() < deadline {
        let _ = bed.event().wait(deadline.saturating_sub(bed.now()));
    }
}

pub fn handed_over(machine: &Machine) -> u64 {
    machine.counters()["rx_handed_over"]
}
