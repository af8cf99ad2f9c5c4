// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checksums and segmentation: the headers before frames of both directions.

use crate::fake::{Driver, Fake, Quirks, over_formats};
use proptest::prelude::*;
use virtio_net::{
    Features, FrameInfo, HEADER_LEN, MAX_HEADERS, MAX_LARGE_FRAME, MAX_UDP_SEGMENTS, Offload, Protocol,
    Transport, complete_checksum, ipv4_checksum_is_valid, write_ipv4_checksum,
};

/// Buffers for frames that the device divides.
const LARGE: usize = 16;

fn with(features: Features, test: impl Fn(&Fake, Driver)) {
    over_formats(|quirks| {
        let offered = quirks.offered | features;
        let fake = Fake::new(Quirks { offered, ..quirks });
        let driver = fake.bring_up(1514).unwrap();
        assert!(fake.accepted().contains(features));
        test(&fake, driver);
        fake.assert_well_treated();
    });
}

fn all() -> Features {
    Features::CSUM | Features::GUEST_CSUM | Features::HOST_TSO4 | Features::HOST_TSO6 | Features::HOST_USO
}

/// Sum of 16-bit words by the letter of RFC 1071.
fn sum(bytes: &[u8]) -> u16 {
    let mut total = 0_u32;
    for pair in bytes.chunks(2) {
        total += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
        total = (total & 0xFFFF) + (total >> 16);
    }
    total as u16
}

/// A packet over IPv4 with options of `options` 32-bit words.
fn ipv4(protocol: u8, options: usize, rest: &[u8]) -> Vec<u8> {
    let mut frame = [&[2; 12][..], &[8, 0, 0x45 + options as u8, 0]].concat();
    frame.extend(((20 + 4 * options + rest.len()) as u16).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, protocol, 0, 0, 192, 168, 1, 1, 192, 168, 1, 2]);
    frame.extend(vec![1; 4 * options]);
    frame.extend(rest);
    frame
}

/// A packet over IPv6 with this chain of extension headers of eight bytes.
fn ipv6(protocol: u8, extensions: &[u8], rest: &[u8]) -> Vec<u8> {
    let chain = [extensions, &[protocol]].concat();
    let mut frame = [&[2; 12][..], &[0x86, 0xDD, 0x60, 0, 0, 0]].concat();
    frame.extend(((8 * extensions.len() + rest.len()) as u16).to_be_bytes());
    frame.extend([chain[0], 64]);
    frame.extend([0x20; 16]);
    frame.extend([0x21; 16]);
    for next in &chain[1..] {
        frame.extend([*next, 0, 1, 4, 0, 0, 0, 0]);
    }
    frame.extend(rest);
    frame
}

fn tcp(len: usize) -> Vec<u8> {
    let mut segment = vec![1, 2, 3, 4, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 1, 0, 0xAB, 0xCD, 0, 0];
    segment.extend((0..len).map(|n| (n % 253) as u8));
    segment
}

/// A datagram whose length the stack leaves out.
fn udp(len: usize) -> Vec<u8> {
    [&[1, 2, 3, 4, 0, 0, 0xAB, 0xCD], &tcp(len)[20..]].concat()
}

fn find_large(frame: &[u8]) -> Option<Transport> {
    Transport::find_large(frame, frame.len())
}

#[test]
fn transport_headers_are_found_behind_options_and_extension_headers() {
    let find = |frame: &[u8]| Transport::find(frame).map(|of| (of.protocol, of.is_ipv6, of.start));
    assert_eq!(find(&ipv4(6, 0, &tcp(5))), Some((Protocol::Tcp, false, 34)));
    assert_eq!(find(&ipv4(17, 10, &[0; 8])), Some((Protocol::Udp, false, 74)));
    assert_eq!(find(&ipv6(6, &[], &tcp(5))), Some((Protocol::Tcp, true, 54)));
    assert_eq!(find(&ipv6(17, &[0, 43, 60, 60], &[0; 8])), Some((Protocol::Udp, true, 86)));
    assert_eq!(find(&ipv6(6, &[60; 8], &tcp(0))), Some((Protocol::Tcp, true, 118)));
    for frame in [
        // Too many extension headers, a fragment header, other protocols.
        ipv6(6, &[60; 9], &tcp(0)),
        ipv6(6, &[44], &tcp(0)),
        ipv6(58, &[], &[0; 20]),
        ipv4(1, 0, &[0; 20]),
        // Shorter than the header.
        ipv4(6, 0, &[0; 19]),
        ipv6(17, &[], &[0; 7]),
    ] {
        assert_eq!(Transport::find(&frame), None, "{frame:02x?}");
    }
    let broken = |at: usize, value: u8| {
        let mut frame = ipv4(6, 1, &tcp(5));
        frame[at] = value;
        Transport::find(&frame)
    };
    // EtherType of a VLAN tag, header length, total length, both kinds of fragments.
    for (at, value) in [(12, 0x81), (14, 0x44), (17, 200), (16, 1), (20, 0x20), (21, 1)] {
        assert_eq!(broken(at, value), None, "{at}");
    }
    assert!(broken(20, 0x40).is_some(), "DF is no fragment");
}

#[test]
fn header_of_a_checksum_is_that_of_the_specification_and_its_slot_is_plain_afterwards() {
    with(all(), |fake, mut driver| {
        let udp = ipv6(17, &[60], &[0; 30]);
        for round in 0..600 {
            let queue = driver.transmit();
            let frame = if round % 3 == 0 { &udp } else { &ipv4(6, 0, &tcp(100)) };
            queue.slot().unwrap()[..frame.len()].copy_from_slice(frame);
            match round % 3 {
                0 | 1 => queue.commit_with(frame.len(), &Offload::checksum(&Transport::find(frame).unwrap())),
                _ => queue.commit(frame.len()),
            }
            queue.kick();
            let sent = fake.transmit_with_headers(1);
            let header = match round % 3 {
                0 => [1, 0, 0, 0, 0, 0, 62, 0, 6, 0, 0, 0],
                1 => [1, 0, 0, 0, 0, 0, 34, 0, 16, 0, 0, 0],
                _ => [0; HEADER_LEN],
            };
            assert_eq!(sent, [(header, frame.clone())]);
            // Sometimes one slot is used again and again, sometimes all are outstanding.
            if round % 7 < 4 {
                driver.transmit().reap().unwrap();
            }
        }
        assert_eq!(driver.transmit().counters().frames, 600);
    });
}

#[test]
fn frame_that_is_dropped_leaves_no_header_behind() {
    with(all(), |fake, mut driver| {
        let queue = driver.transmit();
        let offload = Offload::checksum(&Transport::find(&ipv4(6, 0, &tcp(0))).unwrap());
        for len in [0, 1515] {
            queue.slot().unwrap();
            queue.commit_with(len, &offload);
            queue.slot().unwrap()[..60].fill(8);
            queue.commit(60);
            queue.kick();
            assert_eq!(fake.transmit_with_headers(9), [([0; 12], vec![8; 60])]);
            queue.large_slot().unwrap();
            queue.commit_large(if len == 0 { 0 } else { MAX_LARGE_FRAME + 1 }, &offload);
        }
        assert_eq!(queue.counters().bad_length, 4);
        queue.large_slot().unwrap();
        queue.commit_large(MAX_LARGE_FRAME, &offload);
        queue.kick();
        assert_eq!(
            (queue.counters().bad_length, fake.transmit_with_headers(9).len()),
            (4, 1),
            "the longest packet"
        );
        queue.slot().unwrap()[..60].fill(9);
        queue.commit(60);
        queue.kick();
        assert_eq!(fake.transmit_with_headers(9), [([0; 12], vec![9; 60])]);
    });
}

#[test]
fn large_packet_has_the_lengths_and_sums_that_a_device_relies_on() {
    // The stack leaves out the lengths of the IP header, the UDP header and the pseudo-header.
    for (mut frame, protocol, start) in [
        (ipv4(6, 2, &tcp(50_000)), Protocol::Tcp, 42),
        (ipv6(6, &[60], &tcp(60_001)), Protocol::Tcp, 62),
        (ipv4(17, 2, &udp(50_000)), Protocol::Udp, 42),
        (ipv6(17, &[60], &udp(60_001)), Protocol::Udp, 62_u16),
    ] {
        let (is_ipv6, at, len) = (start == 62, usize::from(start), frame.len());
        frame[if is_ipv6 { 18..20 } else { 16..18 }].fill(0);
        let found = find_large(&frame).unwrap();
        assert_eq!((found.protocol, found.start, found.is_ipv6), (protocol, start, is_ipv6));
        let mut expected = frame.clone();
        let offload = Offload::segmentation(&mut frame, &found, 1400).unwrap();
        let mut put = |at: usize, value: usize| {
            expected[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
        };
        if is_ipv6 {
            put(18, len - 54);
        } else {
            put(16, len - 14);
            // It is checked as a whole.
            put(24, u16::from_be_bytes([frame[24], frame[25]]).into());
            assert_eq!(ipv4_checksum_is_valid(&frame), Some(true));
        }
        let addresses = if is_ipv6 { 22..54 } else { 26..34 };
        let pseudo = |number: u8| {
            let rest = [&[0, number][..], &((len - at) as u16).to_be_bytes()].concat();
            sum(&[&frame[addresses], &rest].concat()).into()
        };
        let header = match protocol {
            Protocol::Tcp => {
                put(at + 16, pseudo(6));
                20
            }
            Protocol::Udp => {
                put(at + 4, len - at);
                put(at + 6, pseudo(17));
                8
            }
        };
        assert!(frame == expected, "nothing else has changed");
        assert_eq!(offload.longest_frame(len), at + header + 1400);
    }
    // What fits in one datagram has its checksum completed alone.
    let mut frame = ipv4(17, 0, &udp(1000));
    let found = find_large(&frame).unwrap();
    assert_eq!(Offload::segmentation(&mut frame, &found, 1000), Some(Offload::checksum(&found)));
}

/// Linux drops a UDP packet with more segments. It limits TCP by the length of a packet alone.
#[test]
fn datagram_is_divided_into_at_most_64_segments() {
    let segmentation = |mut frame: Vec<u8>| {
        let found = find_large(&frame).unwrap();
        Offload::segmentation(&mut frame, &found, 536)
    };
    for frame in [ipv4(17, 2, &udp(MAX_UDP_SEGMENTS * 536)), ipv6(17, &[60], &udp(MAX_UDP_SEGMENTS * 536))] {
        assert!(segmentation(frame.clone()).is_some());
        assert_eq!(segmentation([frame, vec![0]].concat()), None);
    }
    assert!(segmentation(ipv4(6, 0, &tcp(64_000))).is_some());
}

#[test]
fn headers_of_a_large_packet_that_are_invalid_are_refused() {
    let mut frame = ipv4(6, 0, &tcp(3000));
    let found = find_large(&frame).unwrap();
    assert_eq!(Offload::segmentation(&mut frame, &found, 0), None);
    for offset in [0x40, 0x00] {
        frame[46] = offset;
        assert_eq!(Offload::segmentation(&mut frame, &found, 1400), None, "{offset:#x}");
    }
    assert_eq!(find_large(&ipv4(1, 0, &[0; 100])), None);
    let mut longest = ipv4(6, 0, &tcp(65_535 - 40));
    let found = find_large(&longest).unwrap();
    assert!(Offload::segmentation(&mut longest, &found, 1400).is_some());
    longest.push(0);
    let found = find_large(&longest).unwrap();
    assert_eq!(Offload::segmentation(&mut longest, &found, 1400), None, "longer than an IPv4 packet");
}

/// The driver copies them from memory that the device may write.
#[test]
fn headers_are_found_and_completed_in_the_first_bytes_of_a_frame() {
    for whole in [ipv4(6, 2, &tcp(50_000)), ipv6(6, &[60; 8], &tcp(2000)), ipv4(17, 0, &udp(3000))] {
        let (mut frame, mut headers) = (whole.clone(), whole[..MAX_HEADERS].to_vec());
        let found = Transport::find_large(&headers, whole.len()).unwrap();
        assert_eq!(Some(found), find_large(&frame));
        assert_eq!(Transport::find_in(&headers, whole.len()), Transport::find(&frame));
        let offload = Offload::segmentation(&mut headers, &found, 1400);
        assert!(offload.is_some());
        assert_eq!(offload, Offload::segmentation(&mut frame, &found, 1400));
        assert!(headers == frame[..MAX_HEADERS] && frame[MAX_HEADERS..] == whole[MAX_HEADERS..]);
        // Without the last byte of the shortest header.
        let end = usize::from(found.start) + if found.protocol == Protocol::Tcp { 20 } else { 8 };
        let mut cut = whole[..end - 1].to_vec();
        assert_eq!(Transport::find_large(&cut, whole.len()), None);
        assert_eq!(Transport::find_in(&cut, whole.len()), None);
        assert_eq!(Offload::segmentation(&mut cut, &found, 1400), None);
    }
    // TCP options that are not in the first bytes.
    let mut frame = ipv4(6, 0, &tcp(3000));
    frame[46] = 0xF0;
    let found = find_large(&frame).unwrap();
    assert_eq!(Offload::segmentation(&mut frame[..14 + 20 + 59], &found, 1400), None);
    assert!(Offload::segmentation(&mut frame[..14 + 20 + 60], &found, 1400).is_some());
}

#[test]
fn header_of_a_datagram_to_be_divided_is_that_of_the_specification() {
    with(all(), |fake, mut driver| {
        for (mut frame, start) in [(ipv4(17, 0, &[0; 3008]), 34), (ipv6(17, &[], &[0; 3008]), 54)] {
            let found = find_large(&frame).unwrap();
            let offload = Offload::segmentation(&mut frame, &found, 1000).unwrap();
            let queue = driver.transmit();
            queue.large_slot().unwrap()[..frame.len()].copy_from_slice(&frame);
            queue.commit_large(frame.len(), &offload);
            queue.kick();
            let [(header, sent)] = &fake.transmit_with_headers(1)[..] else { panic!("one frame") };
            assert!(*header == [1, 5, start + 8, 0, 0xE8, 3, start, 0, 6, 0, 0, 0] && *sent == frame);
        }
        // Three frames each, of which the latter two have headers of their own.
        let counters = driver.transmit().counters();
        assert_eq!((counters.frames, counters.bytes), (6, 3042 + 2 * 42 + 3062 + 2 * 62));
    });
}

/// Also if plain frames are taken before.
#[test]
fn slot_of_a_frame_with_a_request_is_plain_afterwards() {
    with(all(), |fake, mut driver| {
        let frame = ipv4(6, 0, &tcp(10));
        let offload = Offload::checksum(&Transport::find(&frame).unwrap());
        assert!(send_small(&mut driver, 1));
        let queue = driver.transmit();
        queue.slot().unwrap()[..frame.len()].copy_from_slice(&frame);
        queue.commit_with(frame.len(), &offload);
        queue.kick();
        assert_eq!(fake.transmit_with_headers(9).len(), 2);
        assert_eq!(driver.transmit().reap(), Ok(2));
        let plain = |byte| ([0; 12], vec![byte; 60]);
        assert!(send_small(&mut driver, 2) && send_small(&mut driver, 3));
        assert_eq!(fake.transmit_with_headers(9), [plain(2), plain(3)]);
    });
}

/// A VLAN tag, for instance.
#[test]
fn offsets_of_a_header_are_behind_what_is_inserted_before_the_packet() {
    with(all(), |fake, mut driver| {
        let mut frame = ipv4(17, 0, &[0; 3008]);
        let found = find_large(&frame).unwrap();
        let divided = Offload::segmentation(&mut frame, &found, 1000).unwrap();
        for (offload, expected) in [
            (divided, [1, 5, 34 + 8 + 4, 0, 0xE8, 3, 34 + 4, 0, 6, 0, 0, 0]),
            (Offload::checksum(&found), [1, 0, 0, 0, 0, 0, 34 + 4, 0, 6, 0, 0, 0]),
            (Offload::default(), [0; 12]),
        ] {
            let queue = driver.transmit();
            queue.large_slot().unwrap()[..frame.len()].copy_from_slice(&frame);
            queue.commit_large(frame.len(), &offload.behind(4));
            queue.kick();
            assert_eq!(fake.transmit_with_headers(1)[0].0, expected);
            assert_eq!(driver.transmit().reap(), Ok(1));
        }
    });
}

/// A driver that waits for a large buffer is called when one is free, not for slots, of which there are more.
#[test]
fn driver_waits_for_a_large_buffer_only_if_it_got_none() {
    with(all(), |fake, mut driver| {
        while driver.transmit().large_slot().is_some() {
            assert!(send_large(&mut driver, 3000));
        }
        assert!(!driver.transmit().request_interrupt(), "none is free");
        assert_eq!(fake.transmit_with_headers(1).len(), 1);
        assert_eq!(driver.transmit().reap(), Ok(1));
        assert!(driver.transmit().request_interrupt(), "one is free");
        assert!(send_large(&mut driver, 3000));
        assert!(driver.transmit().request_interrupt(), "all are taken, and no other one was wanted");
    });
}

#[test]
fn header_says_that_a_segment_has_cwr_if_the_device_can_divide_such() {
    for (features, gso_type) in [(all(), 1), (all() | Features::HOST_ECN, 0x81)] {
        with(features, |fake, mut driver| {
            for (flags, expected) in [(0x18, 1), (0x98, gso_type)] {
                let mut frame = ipv4(6, 0, &tcp(3000));
                frame[47] = flags;
                let found = find_large(&frame).unwrap();
                let offload = Offload::segmentation(&mut frame, &found, 1000).unwrap();
                let queue = driver.transmit();
                queue.large_slot().unwrap()[..frame.len()].copy_from_slice(&frame);
                queue.commit_large(frame.len(), &offload);
                queue.kick();
                let sent = fake.transmit_with_headers(1);
                assert_eq!((sent[0].0[1], sent[0].1[47]), (expected, flags));
            }
        });
    }
}

fn send_large(driver: &mut Driver, len: usize) -> bool {
    let mut frame = ipv4(6, 0, &tcp(len));
    let found = find_large(&frame).unwrap();
    let offload = Offload::segmentation(&mut frame, &found, 1000).unwrap();
    let queue = driver.transmit();
    let Some(slot) = queue.large_slot() else { return false };
    slot[..frame.len()].copy_from_slice(&frame);
    queue.commit_large(frame.len(), &offload);
    queue.kick();
    true
}

fn send_small(driver: &mut Driver, byte: u8) -> bool {
    let queue = driver.transmit();
    let Some(slot) = queue.slot() else { return false };
    slot[..60].fill(byte);
    queue.commit(60);
    queue.kick();
    true
}

#[test]
fn large_and_small_frames_share_the_ring_in_order() {
    with(all(), |fake, mut driver| {
        for round in 0..60 {
            assert!(send_large(&mut driver, 1000 * round + 1) && send_small(&mut driver, round as u8));
            let sent = fake.transmit_with_headers(2);
            let [(header, large), small] = &sent[..] else { panic!("two frames") };
            let payload = &tcp(1000 * round + 1)[20..];
            if round == 0 {
                // One segment is not divided, but padded.
                assert_eq!(header[..], [1, 0, 0, 0, 0, 0, 34, 0, 16, 0, 0, 0]);
                assert_eq!(large[54..], [payload, &[0; 5]].concat());
            } else {
                assert_eq!(header[..], [1, 1, 54, 0, 0xE8, 3, 34, 0, 16, 0, 0, 0]);
                assert!(large[54..] == *payload);
            }
            assert_eq!(small, &([0; HEADER_LEN], vec![round as u8; 60]));
        }
        // In a buffer that had a longer frame.
        for _ in 0..=LARGE {
            assert!(send_large(&mut driver, 1));
            assert_eq!(fake.transmit_with_headers(1)[0].1[55..], [0; 5]);
        }
        // As on the wire: 1 to 60 segments, each with its headers.
        let counters = driver.transmit().counters();
        assert_eq!(counters.frames, 60 * 61 / 2 + 60 + 17);
        assert_eq!(
            counters.bytes,
            5 + 17 * 60 + (0..60).map(|n| 1000 * n + 1 + 54 * (n + 1) + 60).sum::<u64>()
        );
    });
}

#[test]
fn caller_that_waits_for_a_large_buffer_is_interrupted_when_one_is_free() {
    with(all(), |fake, mut driver| {
        assert_eq!((0..100).take_while(|_| send_large(&mut driver, 5000)).count(), LARGE);
        assert!(send_small(&mut driver, 1), "slots are free");
        let large = |driver: &mut Driver| driver.transmit().large_slot().is_some();
        assert!(!large(&mut driver));
        assert!(!driver.transmit().request_interrupt(), "nothing has been sent");
        assert!(!fake.wants_interrupt(crate::fake::TRANSMIT));
        fake.transmit_with_headers(1);
        assert!(fake.wants_interrupt(crate::fake::TRANSMIT), "the first of them");
        assert!(large(&mut driver));
        assert!(driver.transmit().request_interrupt(), "a buffer is free already");
    });
}

#[test]
fn device_that_divides_no_frames_has_no_large_buffers() {
    let blocks = |features: Features| {
        let fake = Fake::new(Quirks { offered: Quirks::default().offered | features, ..Quirks::default() });
        let mut driver = fake.bring_up(1514).unwrap();
        (fake.blocks(), driver.transmit().large_slot().is_some())
    };
    let (plain, has_large) = blocks(Features::CSUM);
    assert!(!has_large);
    assert_eq!(blocks(Features::CSUM | Features::HOST_TSO6), (plain + LARGE, true));
    // The feature needs the other.
    assert_eq!(blocks(Features::HOST_TSO4), (plain, false));
}

//= virtio §16
#[test]
fn slots_are_plain_and_large_buffers_free_after_a_reset() {
    with(all(), |fake, mut driver| {
        let udp = ipv4(17, 0, &[0; 30]);
        let offload = Offload::checksum(&Transport::find(&udp).unwrap());
        while send_large(&mut driver, 3000) {}
        while driver.transmit().slot().is_some() {
            driver.transmit().commit_with(60, &offload);
        }
        driver.receive().stop();
        driver.transmit().stop();
        driver.restart().unwrap();
        for byte in 0..=255 {
            assert!(send_small(&mut driver, byte));
        }
        assert_eq!(fake.transmitted().len(), 256, "all with headers of zeros");
        assert_eq!((0..100).take_while(|_| send_large(&mut driver, 5000)).count(), LARGE);
    });
}

/// Receives one frame with this header; returns it and whether its checksum is known to be right.
fn receive(
    fake: &Fake,
    driver: &mut Driver,
    header: [u8; HEADER_LEN],
    frame: &[u8],
) -> Option<(Vec<u8>, bool)> {
    fake.deliver_with(header, frame, &[HEADER_LEN + frame.len()]);
    let mut received = None;
    let sink = |frame: &mut [u8], info: FrameInfo| received = Some((frame.to_vec(), info.is_verified));
    driver.poll(1, sink).unwrap();
    received
}

#[test]
fn partial_checksums_are_completed_and_verified_ones_reported() {
    with(all(), |fake, mut driver| {
        for len in [0, 1, 2, 7, 8, 15, 1000] {
            let mut frame = ipv4(6, 0, &tcp(len));
            let seed = sum(&[&frame[26..34], &[0, 6], &((20 + len) as u16).to_be_bytes()].concat());
            frame[50..52].copy_from_slice(&seed.to_be_bytes());
            let mut complete = frame.clone();
            let found = Transport::find(&frame).unwrap();
            let checksum = !sum(&complete[34..]);
            complete[50..52].copy_from_slice(&checksum.to_be_bytes());
            let header = [1, 0, 0, 0, 0, 0, 34, 0, 16, 0, 0, 0];
            assert_eq!(receive(fake, &mut driver, header, &frame), Some((complete.clone(), true)));
            complete_checksum(&mut frame, &found).unwrap();
            assert_eq!(frame, complete);
        }
        let frame = ipv4(6, 0, &tcp(10));
        for (flags, is_verified) in [(0, false), (2, true), (4, false)] {
            let mut header = [0; HEADER_LEN];
            header[0] = flags;
            assert_eq!(receive(fake, &mut driver, header, &frame), Some((frame.clone(), is_verified)));
        }
        assert_eq!(driver.receive().counters().invalid, 0);
        // The field ends behind the frame, or begins there.
        let [at, end] = [63_u16, 64].map(u16::to_le_bytes);
        for place in [[at[0], at[1], 0, 0], [end[0], end[1], 0, 0], [34, 0, 0xFF, 0xFF], [0xFF; 4]] {
            let mut header = [0; HEADER_LEN];
            header[0] = 1;
            header[6..10].copy_from_slice(&place);
            let before = driver.receive().counters();
            assert_eq!(receive(fake, &mut driver, header, &frame), None, "{place:?}");
            let after = driver.receive().counters();
            assert_eq!((after.invalid, after.frames), (before.invalid + 1, before.frames));
        }
        // A datagram whose checksum is 0 has none.
        let mut zero = vec![0; 60];
        zero[20..22].copy_from_slice(&[0xFF, 0xFF]);
        let header = [1, 0, 0, 0, 0, 0, 0, 0, 40, 0, 0, 0];
        let (completed, _) = receive(fake, &mut driver, header, &zero).unwrap();
        assert_eq!(completed[40..42], [0xFF, 0xFF]);
    });
}

/// Offset of the checksum field in a TCP header.
const TCP_FIELD: u16 = 16;

/// Returns the header of a frame whose checksum begins at `start` and is in the field at `offset` from there.
fn partial(start: u16, offset: u16) -> [u8; HEADER_LEN] {
    let ([a, b], [c, d]) = (start.to_le_bytes(), offset.to_le_bytes());
    [1, 0, 0, 0, 0, 0, a, b, c, d, 0, 0]
}

#[test]
fn a_partial_checksum_ends_with_the_packet_and_is_verified_if_it_is_the_transport_headers() {
    with(all(), |fake, mut driver| {
        let mut frame = ipv4(6, 0, &tcp(10));
        let seed = sum(&[&frame[26..34], &[0, 6], &30_u16.to_be_bytes()].concat());
        frame[50..52].copy_from_slice(&seed.to_be_bytes());
        let mut complete = frame.clone();
        complete_checksum(&mut complete, &Transport::find(&frame).unwrap()).unwrap();
        let tagged = |frame: &[u8]| [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat();
        for padding in [&[][..], &[0; 6], &[0xEE; 6], &[0xEE; 7]] {
            let padded = |frame: &[u8]| [frame, padding].concat();
            let received = receive(fake, &mut driver, partial(34, TCP_FIELD), &padded(&frame));
            assert_eq!(received, Some((padded(&complete), true)), "{padding:?}");
            let received = receive(fake, &mut driver, partial(38, TCP_FIELD), &tagged(&padded(&frame)));
            assert_eq!(received, Some((tagged(&padded(&complete)), true)), "tagged, {padding:?}");
        }
        // Not the one that NDIS is to know of: inside of the payload, another field, a packet that is cut off.
        let cut = &frame[..frame.len() - 1];
        for (header, frame) in
            [(partial(54, 6), &frame[..]), (partial(34, 6), &frame), (partial(34, TCP_FIELD), cut)]
        {
            let (_, is_verified) = receive(fake, &mut driver, header, frame).unwrap();
            assert!(!is_verified, "{header:?}");
        }
    });
}

#[test]
fn padding_of_a_frame_is_not_part_of_its_checksum() {
    let mut frame = ipv4(17, 0, &[0, 1, 0, 2, 0, 9, 0, 0, 7]);
    let found = Transport::find(&frame).unwrap();
    let mut padded = [&frame[..], &[0xEE; 17]].concat();
    complete_checksum(&mut frame, &found).unwrap();
    complete_checksum(&mut padded, &found).unwrap();
    assert_eq!(padded[..43], frame);
}

#[test]
fn header_means_nothing_without_the_feature() {
    with(Features::CSUM, |fake, mut driver| {
        let frame = ipv4(6, 0, &tcp(10));
        for flags in 0..8 {
            let header = [flags, 0, 0, 0, 0, 0, 34, 0, 16, 0, 0, 0];
            assert_eq!(receive(fake, &mut driver, header, &frame), Some((frame.clone(), false)));
        }
    });
}

#[test]
fn checksum_of_an_ipv4_header_covers_its_options() {
    for options in 0..=10 {
        let mut frame = ipv4(6, options, &tcp(3));
        assert_eq!(ipv4_checksum_is_valid(&frame), Some(false));
        frame[24..26].fill(0xA5);
        write_ipv4_checksum(&mut frame).unwrap();
        assert_eq!(sum(&frame[14..34 + 4 * options]), 0xFFFF);
        assert_eq!(ipv4_checksum_is_valid(&frame), Some(true));
        frame[33 + 4 * options] ^= 1;
        assert_eq!(ipv4_checksum_is_valid(&frame), Some(false));
    }
    for mut frame in [ipv6(6, &[], &tcp(3)), ipv4(6, 0, &[])[..33].to_vec(), vec![0; 13]] {
        let before = frame.clone();
        assert_eq!((write_ipv4_checksum(&mut frame), ipv4_checksum_is_valid(&frame)), (None, None));
        assert_eq!(frame, before);
    }
}

/// Frames of which some look like packets.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let packet = (0..4_usize, any::<Vec<u8>>(), any::<(prop::sample::Index, u8)>()).prop_map(
        |(kind, rest, (at, value))| {
            let mut frame = match kind {
                0 => ipv4(6, rest.len() % 11, &rest),
                1 => ipv4(17, 0, &rest),
                2 => ipv6(6, &[0, 43, 60][..rest.len() % 4], &rest),
                _ => ipv6(17, &[], &rest),
            };
            let at = at.index(frame.len());
            frame[at] = value;
            frame
        },
    );
    prop_oneof![packet, any::<Vec<u8>>()]
}

proptest! {
    #[test]
    fn no_frame_makes_the_driver_read_or_write_beyond_it(mut frame in frames(), size in any::<u16>()) {
        let len = frame.len();
        if let Some(found) = Transport::find(&frame) {
            prop_assert!(usize::from(found.start) + 8 <= len);
            prop_assert!(complete_checksum(&mut frame, &found).is_some());
        }
        if let Some(found) = find_large(&frame) {
            let _ = Offload::segmentation(&mut frame, &found, size);
        }
        let _ = write_ipv4_checksum(&mut frame);
        prop_assert_eq!(frame.len(), len);
    }
}
