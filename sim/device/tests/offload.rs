// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checksums and segmentation of the device: what it puts on the wire, what it reports, and requests that break the rules.

use std::sync::Arc;

use crate::bench::{Bench, Driver, Machine};
use device_sim::{
    NicOptions,
    checksum::{self, Transport},
    link::{Wire, WireOptions},
    virtio_net::Features,
};
use virtio_net::{HEADER_LEN, Offload, Transport as Headers};

const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

fn pair(features: Features) -> [Bench; 2] {
    let machine = Arc::new(Machine::default());
    let wire = Wire::new(WireOptions::ten_gigabit());
    [0, 1].map(|end| {
        let bench = Bench::on(&machine, NicOptions { features, ..NicOptions::new(MACS[end]) });
        bench.nic.connect(wire.port(end));
        bench
    })
}

/// A TCP packet over IPv4 with `len` bytes of payload, FIN, PSH and CWR, without checksums.
fn tcp(len: usize) -> Vec<u8> {
    let mut frame = [&MACS[1][..], &MACS[0][..], &[8, 0, 0x45, 0]].concat();
    frame.extend(((40 + len) as u16).to_be_bytes());
    frame.extend([0xff, 0xff, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([1, 2, 3, 4, 0xff, 0xff, 0xff, 0, 0, 0, 0, 2, 0x50, 0x99, 1, 0, 0, 0, 0, 0]);
    frame.extend((0..len).map(|n| (n % 249) as u8));
    frame
}

fn send_large(driver: &mut Driver, mut frame: Vec<u8>, size: u16) {
    let found = Headers::find_large(&frame, frame.len()).unwrap();
    let offload = Offload::segmentation(&mut frame, &found, size).unwrap();
    let queue = driver.transmit(0);
    queue.large_slot().unwrap()[..frame.len()].copy_from_slice(&frame);
    queue.commit_large(frame.len(), &offload);
    queue.kick();
}

#[test]
fn segments_have_their_own_numbers_flags_and_checksums() {
    for format in [Features::default(), Features::RING_PACKED] {
        let [left, right] = pair(Features::DEFAULT | format);
        let (mut sender, mut receiver) = (left.bring_up().unwrap(), right.bring_up().unwrap());
        send_large(&mut sender, tcp(2500), 1000);
        left.machine.settle();
        let frames = receiver.received().unwrap();
        let expected = [(1000, 0xffff, 0xffff_ff00, 0x90), (1000, 0, 0x02e8, 0x10), (500, 1, 0x06d0, 0x19)];
        assert_eq!(frames.len(), expected.len());
        for (number, (frame, (len, id, sequence, flags))) in frames.iter().zip(expected).enumerate() {
            assert_eq!(frame.len(), 54 + len);
            assert!(frame[54..] == tcp(2500)[54 + 1000 * number..][..len]);
            assert_eq!(frame[16..18], ((40 + len) as u16).to_be_bytes());
            assert_eq!(frame[18..20], u16::to_be_bytes(id));
            assert_eq!(frame[38..42], u32::to_be_bytes(sequence));
            assert_eq!(frame[47], flags, "CWR in the first, FIN and PSH in the last");
            assert_eq!(checksum::ipv4_header_is_valid(frame), Some(true));
            assert!(Transport::find(frame).unwrap().is_valid(frame));
        }
        assert_eq!(left.nic.counters().sent_frames, 3);
        assert_eq!(left.machine.misuse(), [""; 0]);
    }
}

/// A datagram over IPv6 with `len` bytes of payload, without checksum.
fn udp(len: usize) -> Vec<u8> {
    let mut frame = [&MACS[1][..], &MACS[0][..], &[0x86, 0xdd, 0x60, 0, 0, 0]].concat();
    frame.extend(((8 + len) as u16).to_be_bytes());
    frame.extend([17, 64]);
    frame.extend([0xfd; 32]);
    frame.extend([1, 2, 3, 4]);
    frame.extend(((8 + len) as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend((0..len).map(|n| (n % 249) as u8));
    frame
}

#[test]
fn datagrams_are_divided_into_such_with_their_own_lengths_and_checksums() {
    for format in [Features::default(), Features::RING_PACKED] {
        let [left, right] = pair(Features::DEFAULT | format);
        let (mut sender, mut receiver) = (left.bring_up().unwrap(), right.bring_up().unwrap());
        send_large(&mut sender, udp(2500), 1000);
        left.machine.settle();
        let frames = receiver.received().unwrap();
        assert_eq!(frames.len(), 3);
        for (number, (frame, len)) in frames.iter().zip([1000, 1000, 500]).enumerate() {
            assert_eq!(frame.len(), 62 + len);
            assert!(frame[62..] == udp(2500)[62 + 1000 * number..][..len]);
            assert_eq!(frame[18..20], ((8 + len) as u16).to_be_bytes());
            assert_eq!(frame[58..60], ((8 + len) as u16).to_be_bytes());
            let found = Transport::find(frame).unwrap();
            assert!(found.is_valid(frame) && frame[found.checksum()] != [0, 0]);
        }
        assert_eq!(left.machine.misuse(), [""; 0]);
    }
}

#[test]
fn verified_checksums_are_reported_and_wrong_ones_are_not() {
    let [left, right] = pair(Features::DEFAULT);
    let (mut sender, mut receiver) = (left.bring_up().unwrap(), right.bring_up().unwrap());
    let mut right_one = tcp(100);
    let found = Transport::find(&right_one).unwrap();
    let seed = found.pseudo_header(&right_one, found.range.len());
    let sum = !checksum::sum(&right_one[found.range.clone()], seed.into());
    found.write(&mut right_one, sum);
    let mut wrong = right_one.clone();
    wrong[100] ^= 1;
    let mut other = right_one.clone();
    other[12] = 0x88;
    for frame in [&right_one, &wrong, &other] {
        assert!(sender.send(frame));
    }
    sender.kick();
    left.machine.settle();
    let mut verified = Vec::new();
    receiver.poll(0, 10, |_, info| verified.push(info.is_verified)).unwrap();
    assert_eq!(verified, [true, false, false]);
}

/// Sends `frame` behind `header` through a device with these features. Returns the misuse that it reports, and the number of
/// frames on the wire.
fn misuse(features: Features, header: [u8; HEADER_LEN], frame: &[u8]) -> (Vec<String>, u64) {
    let [left, _right] = pair(features);
    let mut driver = left.bring_up().unwrap();
    assert!(driver.send(frame));
    // The first descriptor of the split ring: the address of the slot.
    let descriptor = left.area(1, 0);
    let slot = left.peek(descriptor);
    for (at, byte) in (0..).zip(header) {
        left.poke(slot + at, 1, byte.into());
    }
    driver.kick();
    left.machine.settle();
    (left.machine.misuse(), left.nic.counters().sent_frames)
}

#[test]
fn requests_that_break_the_rules_are_misuse() {
    let all = Features::DEFAULT;
    let frame = {
        let mut frame = tcp(1000);
        let found = Headers::find_large(&frame, frame.len()).unwrap();
        let _ = Offload::segmentation(&mut frame, &found, 400).unwrap();
        frame
    };
    let tso = [1, 0x81, 54, 0, 144, 1, 34, 0, 16, 0, 0, 0];
    let with = |at: usize, value: u8| {
        let mut header = tso;
        header[at] = value;
        header
    };
    let changed = |at: usize, value: u8| {
        let mut frame = frame.clone();
        frame[at] = value;
        frame
    };
    assert_eq!(misuse(all, tso, &frame), (vec![], 3));
    let datagram = {
        let mut frame = udp(1000);
        let found = Headers::find_large(&frame, frame.len()).unwrap();
        let _ = Offload::segmentation(&mut frame, &found, 400).unwrap();
        frame
    };
    let uso = [1, 5, 62, 0, 144, 1, 54, 0, 6, 0, 0, 0];
    let mut short = datagram.clone();
    short[59] -= 1;
    assert_eq!(misuse(all, uso, &datagram), (vec![], 3));
    assert_eq!(misuse(all, [1, 5, 62, 0, 16, 0, 54, 0, 6, 0, 0, 0], &datagram), (vec![], 63));
    assert_eq!(misuse(all, [1, 0, 0, 0, 0, 0, 34, 0, 16, 0, 0, 0], &frame), (vec![], 1));
    let cases = [
        (all, with(0, 2), frame.clone(), "has fields of received frames"),
        (all, with(10, 1), frame.clone(), "has fields of received frames"),
        (all, with(0, 0), frame.clone(), "an offload without NEEDS_CSUM"),
        (all, with(1, 3), frame.clone(), "a segmentation that was not negotiated"),
        (
            all.without(Features::HOST_TSO4),
            with(1, 1),
            frame.clone(),
            "a segmentation that was not negotiated",
        ),
        (
            all.without(Features::HOST_TSO6),
            with(1, 4),
            frame.clone(),
            "a segmentation that was not negotiated",
        ),
        (
            all.without(Features::OFFLOADS),
            [1, 0, 0, 0, 0, 0, 34, 0, 16, 0, 0, 0],
            frame.clone(),
            "CSUM was not negotiated",
        ),
        (all, with(7, 5), frame.clone(), "the checksum is not in the frame"),
        (all, with(1, 0), frame.clone(), "a segmentation that it does not request"),
        (all, with(1, 4), frame.clone(), "is not the packet of which"),
        (all, tso, changed(23, 17), "is not the packet of which"),
        (all, tso, changed(17, 0), "is not the packet of which"),
        (all, tso, changed(46, 0x40), "a wrong header length, or no segment size"),
        (
            all,
            [1, 1, 54, 0, 0, 0, 34, 0, 16, 0, 0, 0],
            frame.clone(),
            "a wrong header length, or no segment size",
        ),
        (all, with(2, 50), frame.clone(), "contradicts the packet"),
        (all, with(6, 30), frame.clone(), "contradicts the packet"),
        (all, with(8, 6), frame.clone(), "contradicts the packet"),
        (all, tso, changed(22, 1), "the IPv4 header checksum"),
        (all.without(Features::HOST_USO), uso, datagram.clone(), "a segmentation that was not negotiated"),
        (all, tso, changed(47, 0x19), "is not the flag CWR"),
        (all, with(1, 1), frame.clone(), "is not the flag CWR"),
        (all.without(Features::HOST_ECN), with(1, 0x81), frame.clone(), "HOST_ECN was not negotiated"),
        (all, [1, 0x80, 0, 0, 0, 0, 34, 0, 16, 0, 0, 0], frame.clone(), "without a segmentation"),
        (all, uso, short, "the length in the header of a UDP datagram"),
        (all, uso, frame.clone(), "is not the packet of which"),
        (all, [1, 5, 62, 0, 15, 0, 54, 0, 6, 0, 0, 0], datagram.clone(), "more than 64 segments"),
        (all, [1, 5, 61, 0, 144, 1, 54, 0, 6, 0, 0, 0], datagram.clone(), "contradicts the packet"),
    ];
    for (features, header, frame, expected) in cases {
        let (misuse, sent) = misuse(features, header, &frame);
        assert!(misuse.len() == 1 && misuse[0].contains(expected), "expected '{expected}', got {misuse:?}");
        assert_eq!(sent, 0);
    }
}
