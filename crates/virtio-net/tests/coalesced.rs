// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frames that consist of several TCP segments, and headers that lie about that.

use std::ops::ControlFlow;

use crate::fake::{Answer, Driver, Fake, Quirks, over_formats};
use proptest::prelude::*;
use virtio_net::{Coalesced, Features, FrameInfo, HEADER_LEN};

const PAYLOAD: usize = 2500;
const SIZE: u16 = 1000;
/// Length of a receive buffer.
const BUFFER: usize = HEADER_LEN + 1514;

fn coalescing() -> Features {
    Features::GUEST_CSUM
        | Features::MRG_RXBUF
        | Features::CTRL_VQ
        | Features::CTRL_GUEST_OFFLOADS
        | Features::COALESCING
}

fn with(features: Features, test: impl Fn(&Fake, Driver)) {
    over_formats(|quirks| {
        let fake = Fake::new(Quirks { offered: quirks.offered | features, answer: Answer::Ok, ..quirks });
        let driver = fake.bring_up(1514).unwrap();
        test(&fake, driver);
        fake.assert_well_treated();
    });
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

fn tcp() -> Vec<u8> {
    let mut segment = vec![1, 2, 3, 4, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x19, 1, 0, 0xAB, 0xCD, 0, 0];
    segment.extend((0..PAYLOAD).map(|n| (n % 253) as u8));
    segment
}

/// A TCP packet over IPv4, with IP options of `options` 32-bit words and the right checksum of its IP header.
fn ipv4(options: usize) -> Vec<u8> {
    let rest = tcp();
    let mut frame = [&[2; 12][..], &[8, 0, 0x45 + options as u8, 0]].concat();
    frame.extend(((20 + 4 * options + rest.len()) as u16).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 192, 168, 1, 1, 192, 168, 1, 2]);
    frame.extend(vec![1; 4 * options]);
    let checksum = !sum(&frame[14..]);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame.extend(rest);
    frame
}

fn ipv6() -> Vec<u8> {
    let rest = tcp();
    let mut frame = [&[2; 12][..], &[0x86, 0xDD, 0x60, 0, 0, 0]].concat();
    frame.extend((rest.len() as u16).to_be_bytes());
    frame.extend([6, 64]);
    frame.extend([0x20; 16]);
    frame.extend([0x21; 16]);
    frame.extend(rest);
    frame
}

/// The header of a frame of several segments of this kind.
fn header(kind: u8, size: u16) -> [u8; HEADER_LEN] {
    let [low, high] = size.to_le_bytes();
    [1, kind, 0, 0, low, high, 0xFF, 0xFF, 0xFF, 0xFF, 1, 0]
}

/// Delivers a frame with this header as a device does, and receives it.
fn receive(
    fake: &Fake,
    driver: &mut Driver,
    mut header: [u8; HEADER_LEN],
    frame: &[u8],
) -> Option<(Vec<u8>, FrameInfo)> {
    let total = HEADER_LEN + frame.len();
    let parts: Vec<_> = (0..total).step_by(BUFFER).map(|at| BUFFER.min(total - at)).collect();
    header[10..].copy_from_slice(&(parts.len() as u16).to_le_bytes());
    fake.deliver_with(header, frame, &parts);
    let mut received = None;
    driver.poll(1, |frame, info| received = Some((frame.to_vec(), info))).unwrap();
    received
}

/// Completes a frame with this header.
fn complete(header: [u8; HEADER_LEN], frame: &[u8], max_frame: usize) -> Option<(Coalesced, Vec<u8>)> {
    let fake = Fake::new(Quirks {
        offered: Quirks::default().offered | coalescing(),
        answer: Answer::Ok,
        ..Quirks::default()
    });
    let mut driver = fake.bring_up(1514).unwrap();
    let (mut frame, info) = receive(&fake, &mut driver, header, frame)?;
    let coalesced = Coalesced::complete(&mut frame, info.coalesced?, max_frame)?;
    Some((coalesced, frame))
}

//= virtio §9
#[test]
fn frame_of_several_segments_is_counted_and_the_checksum_of_a_single_one_computed() {
    for (frame, kind, start, is_ipv6) in [(ipv4(0), 1, 34, false), (ipv6(), 4, 54, true)] {
        let (coalesced, completed) = complete(header(kind, SIZE), &frame, 1514).unwrap();
        let headers = start + 20;
        let segment_size = usize::from(SIZE);
        let expected =
            Coalesced { is_ipv6, segments: 3, headers, payload: PAYLOAD, segment_size, has_checksum: false };
        assert_eq!(coalesced, expected);
        assert!(completed == frame, "nothing changes");
        // One segment, as long as the frame may be.
        let (coalesced, completed) = complete(header(kind, PAYLOAD as u16), &frame, frame.len()).unwrap();
        let single = Coalesced { segments: 1, segment_size: PAYLOAD, has_checksum: true, ..expected };
        assert_eq!(coalesced, single);
        let addresses = if is_ipv6 { 22..54 } else { 26..34 };
        let len = ((20 + PAYLOAD) as u16).to_be_bytes();
        let covered = [&completed[addresses], &[0, 6], &len, &completed[start..]].concat();
        assert_eq!(sum(&covered), 0xFFFF);
        let mut same = completed.clone();
        same[start + 16..start + 18].copy_from_slice(&frame[start + 16..start + 18]);
        assert!(same == frame, "nothing but the checksum changes");
        assert_eq!(complete(header(kind, PAYLOAD as u16), &frame, frame.len() - 1).unwrap().0.segments, 2);
        assert_eq!(complete(header(kind, 1), &frame, 1514).unwrap().0.segments, PAYLOAD as u16);
    }
}

/// Divides a frame with this header, with at most `most` segments.
fn divide(header: [u8; HEADER_LEN], frame: &[u8], most: usize) -> Vec<Vec<u8>> {
    let (coalesced, mut frame) = complete(header, frame, 1514).unwrap();
    let mut segments = Vec::new();
    let divided = coalesced.divide(&mut frame, |segment| {
        segments.push(segment.to_vec());
        if segments.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(divided, Some(()));
    segments
}

#[test]
fn divided_frame_results_in_the_segments_that_it_was_made_of() {
    for (mut frame, kind, start, is_ipv6) in [(ipv4(0), 1, 34, false), (ipv6(), 4, 54, true)] {
        // FIN, PSH, ACK, CWR. The sequence number overflows.
        frame[start + 13] = 0x99;
        frame[start + 4..start + 8].copy_from_slice(&(u32::MAX - 1500).to_be_bytes());
        let segments = divide(header(kind, SIZE), &frame, usize::MAX);
        let headers = start + 20;
        for (number, segment) in segments.iter().enumerate() {
            let at = number * 1000;
            let payload = &frame[headers + at..frame.len().min(headers + at + 1000)];
            assert!(segment[headers..] == *payload, "{number}");
            let sequence = (u32::MAX - 1500).wrapping_add(at as u32).to_be_bytes();
            assert_eq!(segment[start + 4..start + 8], sequence);
            assert_eq!(segment[start + 13], [0x90, 0x10, 0x19][number], "CWR first, FIN and PSH last");
            let ip = &segment[14..start];
            let len = segment.len() as u16 - 14;
            if is_ipv6 {
                assert_eq!(ip[4..6], (len - 40).to_be_bytes());
            } else {
                assert_eq!(ip[2..4], len.to_be_bytes());
                assert_eq!(
                    ip[4..6],
                    (1 + number as u16).to_be_bytes(),
                    "each has an identification of its own"
                );
                assert_eq!(sum(ip), 0xFFFF);
            }
            let addresses = if is_ipv6 { &ip[8..] } else { &ip[12..] };
            let len = ((segment.len() - start) as u16).to_be_bytes();
            assert_eq!(sum(&[addresses, &[0, 6], &len, &segment[start..]].concat()), 0xFFFF);
            // Nothing else differs.
            let same = if is_ipv6 {
                vec![0..18, 20..58, 62..67, 68..70, 72..74]
            } else {
                vec![0..16, 20..24, 26..38, 42..47, 48..50, 52..54]
            };
            assert!(same.into_iter().all(|range| segment[range.clone()] == frame[range]), "{number}");
        }
        assert_eq!(segments.len(), 3);
        assert_eq!(divide(header(kind, SIZE), &frame, 2), segments[..2]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 64 }, ..ProptestConfig::default() })]

    /// Segments shorter than their headers, and TCP options, included.
    #[test]
    fn segments_of_any_size_have_the_whole_payload(size in 1..1300_u16, options in 0..11_usize, is_ipv6: bool) {
        let mut frame = if is_ipv6 { ipv6() } else { ipv4(0) };
        let start = if is_ipv6 { 54 } else { 34 };
        // The payload begins with the options.
        frame[start + 12] = (5 + options as u8) << 4;
        let headers = start + 20 + 4 * options;
        let segments = divide(header(if is_ipv6 { 4 } else { 1 }, size), &frame, usize::MAX);
        prop_assert!(segments.iter().all(|segment| segment[start + 20..headers] == frame[start + 20..headers]));
        let payloads: Vec<_> = segments.iter().map(|segment| &segment[headers..]).collect();
        prop_assert!(payloads.concat() == frame[headers..]);
        let (last, others) = payloads.split_last().unwrap();
        prop_assert!(others.iter().all(|payload| payload.len() == usize::from(size)) && !last.is_empty());
    }
}

/// Devices with LRO leave the length of the segments at 0, or have coalesced frames of a network with a larger MTU.
#[test]
fn length_of_segments_that_cannot_be_is_replaced_by_the_largest() {
    for (frame, kind, headers) in [(ipv4(0), 1, 54), (ipv6(), 4, 74)] {
        for size in [0, 1514 - headers + 1, u16::MAX] {
            assert_eq!(complete(header(kind, size), &frame, 1514).unwrap().0.segments, 2, "{size}");
        }
        for (max_frame, segments) in
            [(headers + 1, Some(PAYLOAD as u16)), (headers, None), (headers - 1, None)]
        {
            let counted = complete(header(kind, 0), &frame, max_frame.into());
            assert_eq!(counted.map(|(coalesced, _)| coalesced.segments), segments);
        }
    }
}

//= virtio §9
#[test]
fn checksum_that_is_not_partial_must_be_verified_by_the_device_or_right() {
    for (frame, kind) in [(ipv4(0), 1), (ipv6(), 4)] {
        let with = |flags: u8| {
            let [_, rest @ ..] = header(kind, SIZE);
            let mut header = [flags; HEADER_LEN];
            header[1..].copy_from_slice(&rest);
            header
        };
        let expected = complete(with(1), &frame, 1514);
        assert!(!expected.clone().unwrap().0.has_checksum, "partial");
        assert_eq!(complete(with(2), &frame, 1514), expected, "verified");
        assert_eq!(complete(with(3), &frame, 1514), expected);
        assert_eq!(complete(with(0), &frame, 1514), None, "wrong");
        let right = complete(header(kind, PAYLOAD as u16), &frame, frame.len()).unwrap().1;
        let (found, same) = complete(with(0), &right, 1514).unwrap();
        assert_eq!((found.segments, found.has_checksum), (3, true));
        assert!(same == right, "nothing changes");
        let mut wrong = right;
        *wrong.last_mut().unwrap() ^= 1;
        assert_eq!(complete(with(0), &wrong, 1514), None);
    }
}

//= virtio §18
#[test]
fn frame_that_contradicts_its_header_is_refused() {
    let (v4, v6) = (ipv4(0), ipv6());
    let changed = |at: usize, value: u8| {
        let mut frame = v4.clone();
        frame[at] = value;
        frame
    };
    let mut without_payload = v4[..54].to_vec();
    without_payload[16..18].copy_from_slice(&40_u16.to_be_bytes());
    let fixed = |mut frame: Vec<u8>| {
        frame[24..26].fill(0);
        let checksum = !sum(&frame[14..34]);
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        frame
    };
    let mut padded = v4.clone();
    padded.push(0);
    let cases = [
        // Another kind: IP version, UDP, with CWR, unknown.
        (header(4, SIZE), v4.clone()),
        (header(1, SIZE), v6),
        (header(3, SIZE), v4.clone()),
        (header(5, SIZE), v4.clone()),
        (header(0x81, SIZE), v4.clone()),
        // IP options, a wrong checksum of the IP header, a fragment, UDP, padding, a packet longer than the frame.
        (header(1, SIZE), ipv4(1)),
        (header(1, SIZE), changed(22, 63)),
        (header(1, SIZE), fixed(changed(20, 0x20))),
        (header(1, SIZE), fixed(changed(23, 17))),
        (header(1, SIZE), padded),
        (header(1, SIZE), fixed(changed(17, 0xFF))),
        // A TCP header that is too short, or longer than the frame; no payload.
        (header(1, SIZE), changed(46, 0x40)),
        (header(1, SIZE), fixed(without_payload.clone())),
        // SYN, RST, URG.
        (header(1, SIZE), changed(47, 0x12)),
        (header(1, SIZE), changed(47, 0x14)),
        (header(1, SIZE), changed(47, 0x30)),
    ];
    for (number, (header, frame)) in cases.into_iter().enumerate() {
        assert_eq!(complete(header, &frame, 1514), None, "{number}: {header:?}");
    }
    without_payload[46] = 0xF0;
    assert_eq!(complete(header(1, SIZE), &fixed(without_payload), 1514), None);
}

#[test]
fn header_means_nothing_without_the_feature() {
    for without in
        [Features::GUEST_CSUM, Features::MRG_RXBUF, Features::CTRL_VQ, Features::CTRL_GUEST_OFFLOADS]
    {
        with(coalescing() - without, |fake, mut driver| {
            assert!(!fake.accepted().intersects(Features::COALESCING));
            let frame = &ipv4(0)[..1000];
            let mut header = header(1, SIZE);
            header[0] = 2;
            let (received, info) = receive(fake, &mut driver, header, frame).unwrap();
            assert!(received == frame && info.coalesced.is_none());
        });
    }
}

/// The longest frame of several segments fills many buffers; one that is longer, and another that is longer than the MTU, are
/// dropped with all their buffers.
#[test]
fn only_frames_of_several_segments_may_be_longer_than_the_mtu() {
    with(coalescing(), |fake, mut driver| {
        for (kind, len, is_received) in
            [(1, 65_553, true), (1, 65_554, false), (0, 1514, true), (0, 1515, false), (0, 9000, false)]
        {
            let mut header = header(kind, SIZE);
            header[0] = u8::from(kind != 0);
            let before = driver.receive().counters().invalid;
            let received = receive(fake, &mut driver, header, &vec![7; len]);
            assert_eq!(received.as_ref().map(|(frame, _)| frame.len()), is_received.then_some(len));
            assert_eq!(driver.receive().counters().invalid - before, u64::from(!is_received));
            assert!(received.is_none_or(|(_, info)| info.coalesced.is_some() == (kind == 1)));
        }
    });
}

//= virtio §12
#[test]
fn coalescing_is_switched_by_a_command_if_it_changes() {
    with(coalescing(), |fake, mut driver| {
        let mut set = |versions: [bool; 2]| {
            assert_eq!(driver.nic().commands.as_mut().unwrap().set_coalescing(versions, |_| true), Ok(true));
            fake.commands()
        };
        let command = |offloads: u16| {
            let [low, high] = offloads.to_le_bytes();
            vec![5, 0, low, high, 0, 0, 0, 0, 0, 0]
        };
        // All that were negotiated are in force after a reset: GUEST_CSUM and both.
        assert_eq!(set([true; 2]), [[0; 0]; 0]);
        assert_eq!(set([false; 2]), [command(2)]);
        assert_eq!(set([false; 2]), [[0; 0]; 0]);
        assert_eq!(set([true, false]), [command(0x82)]);
        assert_eq!(set([false, true]), [command(0x102)]);
        assert_eq!(set([true; 2]), [command(0x182)]);
        assert_eq!(set([false; 2]), [command(2)]);
        driver.restart().unwrap();
        assert_eq!(driver.nic().commands.as_mut().unwrap().set_coalescing([true; 2], |_| true), Ok(true));
        assert_eq!(fake.commands(), [[0; 0]; 0]);
        fake.change(|quirks| quirks.answer = Answer::Refused(&[5]));
        for _ in 0..2 {
            let set = driver.nic().commands.as_mut().unwrap().set_coalescing([false; 2], |_| true);
            assert_eq!(set, Ok(false));
            assert_eq!(fake.commands(), [command(2)], "the device goes on as before");
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn no_frame_makes_the_driver_read_or_write_beyond_it(
        kind in prop_oneof![Just(1), Just(4), any::<u8>()],
        size in any::<u16>(),
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
        cut in 14..2554_usize,
        is_ipv6 in any::<bool>(),
    ) {
        let mut frame = if is_ipv6 { ipv6() } else { ipv4(0) };
        frame.truncate(cut);
        let at = at.index(frame.len());
        frame[at] = value;
        let len = frame.len();
        if let Some((coalesced, completed)) = complete(header(kind, size), &frame, 1514) {
            prop_assert_eq!(completed.len(), len);
            prop_assert_eq!(coalesced.headers + coalesced.payload, len);
            prop_assert!(coalesced.segments >= 1);
        }
    }
}
