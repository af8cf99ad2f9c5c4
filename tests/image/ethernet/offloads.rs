// SPDX-License-Identifier: MIT OR Apache-2.0

//! Task offloads on the image: TCP that uses them, single packets, requests that contradict their frame, keywords.

use device_sim::{Quirks, checksum::Transport, virtio_net::Features};
use lab::{
    device::{DeviceKind, QemuVariant},
    has_qemu,
    testbed::{Options, Testbed},
};
use ndis_sim::{Keyword, Miniport, Offloads, SendRequest, offload::encapsulation};
use ndk_abi::ndis::{
    NDIS_STATUS_FAILURE, NDIS_STATUS_INVALID_LENGTH, NDIS_STATUS_SUCCESS,
    NDIS_TCP_IP_CHECKSUM_NET_BUFFER_LIST_INFO as Checksum,
    NDIS_TCP_LARGE_SEND_OFFLOAD_NET_BUFFER_LIST_INFO as LargeSend,
    NDIS_UDP_SEGMENTATION_OFFLOAD_NET_BUFFER_LIST_INFO as UdpSegmentation, OID_GEN_STATISTICS,
    OID_OFFLOAD_ENCAPSULATION,
};
use support::{
    bed::{counter, finish, miniport, started_with},
    packets::{
        bytes, complete, deliver, deliver_requests, everything, frame4, frame6, packets, tcp, udp, udp4,
    },
    tcp::{exchange, ipv4, ipv6},
};

/// Two hosts on a link with an MTU of 1500.
fn options() -> Options {
    Options { path_mtu: 1024, ..Options::default() }
}

/// Coalescing has a test file of its own.
fn with(features: Features, quirks: Quirks) -> Option<Testbed> {
    let features = features.without(Features::COALESCING);
    started_with(&Options { features, quirks, ..options() })
}

#[test]
fn tcp_uses_all_offloads_in_every_ring_format() {
    for format in [Features::default(), Features::RING_PACKED] {
        for without in [Features::default(), Features::EVENT_IDX, Features::MRG_RXBUF] {
            for addresses in [ipv4(), ipv6()] {
                let Some(bed) = with(Features::DEFAULT.without(without) | format, Quirks::default()) else {
                    return;
                };
                for counters in exchange(&bed, addresses, 1 << 20) {
                    assert!(counters.large_sends >= 10, "{counters:?}");
                    assert!(counters.sent < 300, "instead of 718 segments: {counters:?}");
                    assert!(counters.received >= 718, "each of 1460 bytes at most: {counters:?}");
                    assert!(counters.verified >= 718 && counters.invalid == 0, "{counters:?}");
                }
                finish(bed);
            }
        }
    }
}

#[test]
fn tcp_works_with_any_part_of_the_offloads() {
    let none = Features::DEFAULT.without(Features::OFFLOADS);
    for some in
        [Features::default(), Features::CSUM, Features::GUEST_CSUM, Features::CSUM | Features::HOST_TSO4]
    {
        for addresses in [ipv4(), ipv6()] {
            let Some(bed) = with(none | some, Quirks::default()) else { return };
            for counters in exchange(&bed, addresses, 100_000) {
                let has = |feature: Features| some.contains(feature);
                assert_eq!(counters.checksums > 0, has(Features::CSUM), "{counters:?}");
                assert_eq!(counters.verified > 0, has(Features::GUEST_CSUM), "{counters:?}");
                assert_eq!((counters.large_sends, counters.invalid), (0, 0), "{counters:?}");
            }
            finish(bed);
        }
    }
}

#[test]
fn partial_checksums_of_guests_on_the_same_machine_are_completed() {
    let quirks = Quirks { partial_checksums: Some(None), ..Quirks::default() };
    for addresses in [ipv4(), ipv6()] {
        let Some(bed) = with(Features::DEFAULT, quirks) else { return };
        let [client, _] = exchange(&bed, addresses, 100_000);
        // The simulated NDIS computes each checksum that is reported.
        assert!(client.verified >= 69 && client.invalid == 0, "{client:?}");
        finish(bed);
    }
}

#[test]
fn frame_whose_checksum_would_be_outside_of_it_is_dropped_and_counted() {
    for place in [(1500, 16), (34, 0xffff), (0xffff, 0xffff), (73, 0)] {
        let quirks = Quirks { partial_checksums: Some(Some(place)), ..Quirks::default() };
        let Some(bed) = with(Features::DEFAULT, quirks) else { return };
        let receiver = miniport(bed.machines()[0]);
        let errors = || {
            let all = receiver.query(OID_GEN_STATISTICS, 0x98).unwrap();
            [IN_ERRORS, IN_DISCARDS].map(|at| counter(&all, at))
        };
        let before = errors();
        let frame = udp4(1, 0, 32);
        assert_eq!(frame.len(), 74);
        assert_eq!(deliver(&bed, 1, vec![complete(frame)]), []);
        assert_eq!(errors(), before.map(|count| count + 1), "{place:?}");
        finish(bed);
    }
}

/// Offsets of `ifInErrors`, and of `ifInDiscards`, which includes it, in NDIS_STATISTICS_INFO.
const IN_DISCARDS: usize = 8;
const IN_ERRORS: usize = 16;

#[test]
fn requested_checksums_are_on_the_wire_whether_the_device_or_the_driver_computes_them() {
    for without in [Features::default(), Features::OFFLOADS] {
        let Some(bed) = with(Features::DEFAULT.without(without), Quirks::default()) else { return };
        let all = Offloads { send: everything(), ..Offloads::default() };
        let request = |mut frame: Vec<u8>| {
            let request = SendRequest::checksums(&mut frame, &all);
            (frame, request)
        };
        let (statuses, received) = deliver_requests(&bed, 0, packets().into_iter().map(request).collect());
        assert_eq!(statuses, vec![NDIS_STATUS_SUCCESS; 40]);
        let expected: Vec<_> = packets().into_iter().map(complete).collect();
        assert!(bytes(received) == expected, "each packet arrives with the checksums of its bytes");
        // A slot that had a request is used without.
        assert!(bytes(deliver(&bed, 0, vec![udp4(0, 0, 100); 300])) == vec![udp4(0, 0, 100); 300]);
        finish(bed);
    }
}

#[test]
fn large_packets_are_divided_with_their_options_and_more_of_them_than_there_are_buffers() {
    let Some(bed) = with(Features::DEFAULT, Quirks::default()) else { return };
    let packets = || {
        let (v4, v6) = (frame4(0, 6, 3, &tcp(3, 60_000)), frame6(0, 6, 2, &tcp(1, 64_000)));
        [v4, v6].into_iter().cycle().take(40)
    };
    let request = |mut frame: Vec<u8>| {
        let request = SendRequest::large_send(&mut frame, 1400);
        (frame, request)
    };
    let (statuses, received) = deliver_requests(&bed, 0, packets().map(request).collect());
    assert_eq!(statuses, vec![NDIS_STATUS_SUCCESS; 40]);
    assert_eq!(received.len(), 20 * (60_000_usize.div_ceil(1400) + 64_000_usize.div_ceil(1400)));
    let mut segments = received.iter();
    for packet in packets() {
        let whole = Transport::find(&packet).unwrap();
        let header = if whole.is_ipv6 { 20 + 4 } else { 20 + 12 };
        let payload = &packet[whole.range.start + header..];
        for (number, part) in payload.chunks(1400).enumerate() {
            let segment = &segments.next().unwrap().bytes;
            let found = Transport::find(segment).unwrap();
            assert!(
                found.is_valid(segment) && device_sim::checksum::ipv4_header_is_valid(segment) != Some(false)
            );
            assert_eq!(found.range.start, whole.range.start, "IP options and extension headers are copied");
            let (head, data) = segment[found.range].split_at(header);
            assert!(data == part, "each segment has its part of the payload");
            assert_eq!(head[4..8], (1 + 1400 * number as u32).to_be_bytes());
            assert_eq!(head[20..], packet[whole.range.start..][20..header], "TCP options are copied");
            let is_last = (number + 1) * 1400 >= payload.len();
            assert_eq!(head[13], if is_last { 0x18 } else { 0x10 }, "PSH is in the last segment");
        }
    }
    finish(bed);
}

#[test]
fn large_datagrams_are_divided_with_their_options_and_more_of_them_than_there_are_buffers() {
    for format in [Features::default(), Features::RING_PACKED] {
        let Some(bed) = with(Features::DEFAULT | format, Quirks::default()) else { return };
        let packets = || {
            let (v4, v6) = (udp4(0, 3, 34_000), frame6(0, 17, 2, &udp(34_304)));
            [v4, v6].into_iter().cycle().take(40)
        };
        let request = |mut frame: Vec<u8>| {
            let request = SendRequest::udp_segmentation(&mut frame, 1400);
            (frame, request)
        };
        let (statuses, received) = deliver_requests(&bed, 0, packets().map(request).collect());
        assert_eq!(statuses, vec![NDIS_STATUS_SUCCESS; 40]);
        let mut segments = received.iter();
        for packet in packets() {
            let whole = Transport::find(&packet).unwrap();
            for part in packet[whole.range.start + 8..].chunks(1400) {
                let segment = &segments.next().unwrap().bytes;
                let found = Transport::find(segment).unwrap();
                assert!(
                    found.is_valid(segment)
                        && device_sim::checksum::ipv4_header_is_valid(segment) != Some(false)
                );
                assert_eq!(found.range.start, whole.range.start, "options and extension headers are copied");
                let (head, data) = segment[found.range].split_at(8);
                assert!(data == part, "each datagram has its part of the payload");
                assert_eq!(head[..4], packet[whole.range.start..][..4]);
                assert_eq!(head[4..6], ((8 + part.len()) as u16).to_be_bytes());
            }
        }
        assert_eq!(segments.next(), None);
        finish(bed);
    }
}

/// The device is notified when the lock of the transmit queue is released. For each part of a packet the driver copies the packet, and it
/// copies as many bytes as 128 frames have before it releases the lock: less than four times 64,000.
#[test]
fn large_datagram_in_many_parts_does_not_hold_the_transmit_lock_for_all_of_them() {
    let Some(bed) = with(Features::DEFAULT, Quirks::default()) else { return };
    let sender = bed.machines()[0];
    let releases =
        || sender.nic().counters().notifications + sender.counters()["tx_notifications_suppressed"];
    let mut frame = udp4(0, 0, 64_000);
    let request = SendRequest::udp_segmentation(&mut frame, 100);
    let before = releases();
    let (statuses, received) = deliver_requests(&bed, 0, vec![(frame, request)]);
    assert_eq!((statuses, received.len()), (vec![NDIS_STATUS_SUCCESS], 640));
    let releases = releases() - before;
    assert!(releases >= 4, "ten parts, {releases} batches");
    finish(bed);
}

/// Linux's vhost and tap drop a UDP packet with more segments, without a report to the driver: it gets them in several packets.
#[test]
fn large_datagram_with_more_than_64_segments_is_sent_in_several_packets() {
    let Some(bed) = with(Features::DEFAULT, Quirks::default()) else { return };
    let longest = miniport(bed.machines()[0]).possible_offloads().udp_segmentation[0].unwrap().0 as usize;
    let send = |payload: usize, mss: u32| {
        let whole = [udp4(0, 0, payload), frame6(0, 17, 0, &udp(payload))];
        let frames = [udp4(0, 0, payload), frame6(0, 17, 0, &udp(payload))].map(|mut frame| {
            let request = SendRequest::udp_segmentation(&mut frame, mss);
            (frame, request)
        });
        let (statuses, received) = deliver_requests(&bed, 0, frames.into());
        let mut rest = received.iter();
        for whole in whole {
            let start = Transport::find(&whole).unwrap().range.start + 8;
            let segments = whole[start..].chunks(mss as usize).zip(0_u16..);
            for ((part, number), frame) in segments.zip(&mut rest) {
                assert!(frame.bytes[start..].starts_with(part), "segment {number} of {payload} bytes");
                let id = |frame: &[u8]| u16::from_be_bytes([frame[18], frame[19]]);
                assert!(start != 42 || id(&frame.bytes) == id(&whole).wrapping_add(number));
            }
        }
        (statuses, received.len())
    };
    // 536 bytes are the payload of IPv4's smallest MTU.
    assert_eq!(send(longest, 536), (vec![NDIS_STATUS_SUCCESS; 2], 128));
    assert_eq!(send(longest + 1, 536), (vec![NDIS_STATUS_SUCCESS; 2], 130));
    assert_eq!(send(64_000, 536), (vec![NDIS_STATUS_SUCCESS; 2], 240));
    assert_eq!(send(longest, 100), (vec![NDIS_STATUS_SUCCESS; 2], 688));
    assert_eq!(send(64_000, 1000), (vec![NDIS_STATUS_SUCCESS; 2], 128));
    finish(bed);
}

/// Of a frame, each MDL describes a few bytes: also of its headers, and many more than a ring has descriptors.
#[test]
fn frames_of_more_than_64_fragments_arrive_in_every_ring_format() {
    for format in [Features::default(), Features::RING_PACKED] {
        let Some(bed) = with(Features::DEFAULT | format, Quirks::default()) else { return };
        let all = Offloads { send: everything(), ..Offloads::default() };
        let frames = |mdl_len: usize| {
            let (mut small, mut large) = (frame4(0, 6, 3, &tcp(3, 1300)), frame6(0, 6, 2, &tcp(1, 64_000)));
            let mut datagrams = udp4(0, 3, 34_000);
            let requests = [
                SendRequest::checksums(&mut small, &all),
                SendRequest::large_send(&mut large, 1400),
                SendRequest::udp_segmentation(&mut datagrams, 1400),
            ];
            let requests = requests.map(|request| SendRequest { mdl_len, ..request });
            let plain = SendRequest { mdl_len: mdl_len / 16, ..SendRequest::default() };
            let mut frames: Vec<_> = [small, large, datagrams].into_iter().zip(requests).collect();
            frames.push((udp4(0, 0, 1400), plain));
            frames
        };
        let (statuses, whole) = deliver_requests(&bed, 0, frames(0));
        assert_eq!(statuses, [NDIS_STATUS_SUCCESS; 4]);
        assert_eq!(whole.len(), 2 + 64_000_usize.div_ceil(1400) + 34_000_usize.div_ceil(1400));
        for mdl_len in [16, 100] {
            let (statuses, received) = deliver_requests(&bed, 0, frames(mdl_len));
            assert_eq!(statuses, [NDIS_STATUS_SUCCESS; 4]);
            assert!(received == whole, "MDLs of {mdl_len} bytes");
        }
        finish(bed);
    }
}

#[test]
fn flag_cwr_is_in_the_first_segment_alone_where_the_device_has_the_feature() {
    for (without, repeated) in [(Features::default(), 0), (Features::HOST_ECN, 0x80)] {
        let Some(bed) = with(Features::DEFAULT.without(without), Quirks::default()) else { return };
        for mut frame in [frame4(0, 6, 0, &tcp(0, 3000)), frame6(0, 6, 0, &tcp(0, 3000))] {
            let start = Transport::find(&frame).unwrap().range.start;
            frame[start + 13] |= 0x80;
            let request = SendRequest::large_send(&mut frame, 1400);
            let (statuses, received) = deliver_requests(&bed, 0, vec![(frame, request)]);
            assert_eq!(statuses, [NDIS_STATUS_SUCCESS]);
            let flags: Vec<_> = received.iter().map(|frame| frame.bytes[start + 13] & 0x80).collect();
            assert_eq!(flags, [0x80, repeated, repeated]);
        }
        finish(bed);
    }
}

/// Bits of a request for a checksum or segmentation.
const V4: u32 = Checksum::TRANSMIT_IS_IPV4;
const V6: u32 = Checksum::TRANSMIT_IS_IPV6;
const TCP: u32 = Checksum::TRANSMIT_TCP_CHECKSUM;
const UDP: u32 = Checksum::TRANSMIT_UDP_CHECKSUM;
const IP: u32 = Checksum::TRANSMIT_IP_HEADER_CHECKSUM;
const LSO2: u32 = LargeSend::TYPE_V2;
const USO_IPV6: u32 = UdpSegmentation::IPV6;

/// Bits of the report about the checksums of a received frame.
const IP_FAILED: u32 = Checksum::RECEIVE_IP_FAILED;
const IP_SUCCEEDED: u32 = Checksum::RECEIVE_IP_SUCCEEDED;
const TCP_SUCCEEDED: u32 = Checksum::RECEIVE_TCP_SUCCEEDED;
const UDP_SUCCEEDED: u32 = Checksum::RECEIVE_UDP_SUCCEEDED;

#[test]
fn request_that_contradicts_its_frame_fails_and_sends_nothing() {
    let Some(bed) = with(Features::DEFAULT, Quirks::default()) else { return };
    let (tcp4, tcp6) = (frame4(0, 6, 0, &tcp(0, 3000)), frame6(0, 6, 0, &tcp(0, 3000)));
    let (small4, small6) = (frame4(0, 6, 0, &tcp(0, 100)), frame6(0, 6, 0, &tcp(0, 100)));
    let udp = udp4(0, 0, 100);
    let large_udp4 = udp4(0, 0, 3000);
    let large_udp6 = frame6(0, 17, 0, &self::udp(3000));
    let checksum = |checksum: u32| SendRequest { checksum, ..SendRequest::default() };
    let large = |mss: u32, offset: u32, bits: u32| SendRequest {
        large_send: mss | offset << 20 | bits,
        ..SendRequest::default()
    };
    let datagram = |mss: u32, offset: u32, bits: u32| SendRequest {
        udp_segmentation: mss | offset << 20 | bits,
        ..SendRequest::default()
    };
    let mut fragment = udp.clone();
    fragment[20] = 0x20;
    let mut short_header = tcp4.clone();
    short_header[46] = 0x40;
    let mut long_header = small4.clone();
    long_header[14] = 0x4f;
    let mut other = udp.clone();
    other[12..14].copy_from_slice(&[0x88, 0xb5]);
    let cases = [
        // Both IP versions, or not that of the frame.
        (small4.clone(), checksum(V4 | V6 | TCP | 34 << 16)),
        (small4.clone(), checksum(V6 | TCP | 34 << 16)),
        (small6.clone(), checksum(V4 | TCP | 54 << 16)),
        // Both protocols, or not that of the frame.
        (small4.clone(), checksum(V4 | TCP | UDP | 34 << 16)),
        (small4.clone(), checksum(V4 | UDP)),
        (udp.clone(), checksum(V4 | TCP | 34 << 16)),
        // Another offset of the TCP header.
        (small4.clone(), checksum(V4 | TCP | 35 << 16)),
        // No IPv4 header.
        (small6.clone(), checksum(V6 | IP)),
        (other.clone(), checksum(V4 | IP)),
        // No transport header.
        (other, checksum(V4 | UDP)),
        (fragment, checksum(V4 | UDP)),
        (long_header, checksum(V4 | TCP | 34 << 16)),
        (udp[..40].to_vec(), checksum(V4 | UDP)),
        // Version 1.
        (tcp4.clone(), large(1460, 34, 0)),
        // Not the IP version of the frame, another offset of the TCP header, another protocol.
        (tcp4.clone(), large(1460, 34, LSO2 | LargeSend::V2_IPV6)),
        (tcp6.clone(), large(1440, 54, LSO2)),
        (tcp4.clone(), large(1460, 54, LSO2)),
        (udp, large(1460, 34, LSO2)),
        // Segments of no bytes, and such that are longer than the MTU.
        (tcp4.clone(), large(0, 34, LSO2)),
        (tcp4.clone(), large(1461, 34, LSO2)),
        (tcp4, large(0x1_0000, 34, LSO2)),
        (short_header, large(1460, 34, LSO2)),
        // UDP: the same.
        (large_udp4.clone(), datagram(1472, 34, USO_IPV6)),
        (large_udp6, datagram(1452, 54, 0)),
        (large_udp4.clone(), datagram(1472, 54, 0)),
        (tcp6.clone(), datagram(1440, 54, USO_IPV6)),
        (large_udp4.clone(), datagram(0, 34, 0)),
        (large_udp4.clone(), datagram(1473, 34, 0)),
        (large_udp4, datagram(0x1_0000, 34, 0)),
    ];
    for (frame, request) in cases {
        let (statuses, received) = deliver_requests(&bed, 0, vec![(frame.clone(), request)]);
        assert_eq!((statuses, received), (vec![NDIS_STATUS_FAILURE], vec![]), "{request:x?}, {frame:02x?}");
    }
    // Longer than any buffer.
    let long = frame4(0, 6, 0, &tcp(0, 65_500));
    let (statuses, _) = deliver_requests(&bed, 0, vec![(long, large(1460, 34, LSO2))]);
    assert_eq!(statuses, [NDIS_STATUS_INVALID_LENGTH]);
    // The driver goes on.
    let mut frame = tcp6;
    let request = SendRequest::large_send(&mut frame, 1440);
    let (statuses, received) = deliver_requests(&bed, 0, vec![(frame, request)]);
    assert_eq!((statuses, received.len()), (vec![NDIS_STATUS_SUCCESS], 3));
    finish(bed);
}

#[test]
fn received_checksums_are_reported_once_the_stack_has_started_the_offloads() {
    let Some(bed) = with(Features::DEFAULT, Quirks::default()) else { return };
    let receiver = miniport(bed.machines()[1]);
    let right: Vec<_> = packets().into_iter().map(complete).collect();
    let reported = |frames: Vec<Vec<u8>>| {
        deliver(&bed, 0, frames).into_iter().map(|frame| frame.checksum).collect::<Vec<_>>()
    };
    assert_eq!(reported(right.clone()), [0; 40]);
    receiver.start_offloads().unwrap();
    let expected =
        [IP_SUCCEEDED | UDP_SUCCEEDED, IP_SUCCEEDED | TCP_SUCCEEDED, UDP_SUCCEEDED, TCP_SUCCEEDED].repeat(10);
    assert_eq!(reported(right.clone()), expected);
    // Wrong checksums of TCP and UDP are left to the stack.
    let wrong = right.iter().cloned().map(|mut frame| {
        let last = frame.len() - 1;
        frame[last] ^= 1;
        frame
    });
    let expected = [IP_SUCCEEDED, IP_SUCCEEDED, 0, 0].repeat(10);
    // The last byte of a packet without payload may be in its header.
    assert_eq!(reported(wrong.skip(8).collect())[..], expected[8..]);
    let mut wrong = complete(udp4(0, 0, 100));
    wrong[22] ^= 1;
    assert_eq!(reported(vec![wrong])[0] & (IP_SUCCEEDED | IP_FAILED), IP_FAILED);
    for (on, expected) in
        [([false, true], [0, TCP_SUCCEEDED]), ([true, false], [IP_SUCCEEDED | TCP_SUCCEEDED, 0])]
    {
        receiver.set(OID_OFFLOAD_ENCAPSULATION, &encapsulation(on)).unwrap();
        let frames = [frame4(0, 6, 0, &tcp(0, 100)), frame6(0, 6, 0, &tcp(0, 100))].map(complete);
        assert_eq!(reported(frames.to_vec()), expected);
    }
    finish(bed);
}

#[test]
fn keywords_decide_what_is_in_force_at_the_start() {
    let checksums = [
        "*IPChecksumOffloadIPv4",
        "*TCPChecksumOffloadIPv4",
        "*UDPChecksumOffloadIPv4",
        "*TCPChecksumOffloadIPv6",
        "*UDPChecksumOffloadIPv6",
    ];
    // Each keyword with a value of its own.
    for (first, lso) in [(0, ["0", "1"]), (1, ["1", "0"])] {
        let values = ["0", "1", "2", "3", "4", "0"];
        let mut keywords: Vec<_> =
            checksums.into_iter().zip(&values[first..]).map(|(name, &value)| (name, value)).collect();
        keywords.extend(["*LsoV2IPv4", "*LsoV2IPv6"].into_iter().zip(lso));
        keywords.extend(["*UsoIPv6", "*UsoIPv4"].into_iter().zip(lso));
        let keywords =
            keywords.into_iter().map(|(name, value)| (name, Keyword::Text(value.into()))).collect();
        let Some(bed) = started_with(&Options { keywords, ..options() }) else { return };
        let miniport: Miniport = miniport(bed.machines()[0]);
        let now = miniport.offloads();
        let of = |checksums: ndis_sim::offload::Checksums| {
            [checksums.ipv4, checksums.tcp4, checksums.udp4, checksums.tcp6, checksums.udp6]
        };
        // 4 is no value: the default, both.
        let expected =
            [[false, false], [true, false], [false, true], [true, true], [true, true], [false, false]];
        let expected = &expected[first..first + 5];
        assert_eq!(of(now.send)[..], expected.iter().map(|&[send, _]| send).collect::<Vec<_>>());
        assert_eq!(of(now.receive)[..], expected.iter().map(|&[_, receive]| receive).collect::<Vec<_>>());
        assert_eq!(now.large_send.map(|of| of.is_some()), lso.map(|value| value == "1"));
        assert_eq!(now.udp_segmentation.map(|of| of.is_some()), lso.map(|value| value == "0"));
        let possible = miniport.possible_offloads();
        assert_eq!((possible.send, possible.receive), (everything(), everything()));
        finish(bed);
    }
}

#[test]
fn qemus_device_without_a_backend_for_offloads_is_used_without() {
    if !has_qemu() {
        return;
    }
    let device = DeviceKind::Qemu(QemuVariant::default());
    let Some(bed) = started_with(&Options { device, real_time: true, ..options() }) else { return };
    assert_eq!(miniport(bed.machines()[0]).possible_offloads(), Offloads::default());
    for counters in exchange(&bed, ipv4(), 100_000) {
        assert_eq!((counters.checksums, counters.large_sends, counters.verified), (0, 0, 0));
    }
    finish(bed);
}
