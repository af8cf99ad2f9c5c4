// SPDX-License-Identifier: MIT OR Apache-2.0

//! 802.1Q tags on the image: priorities and VLANs of sent and received frames, an adapter's own VLAN, the device's filter, and
//! tagged frames with checksum and segmentation offloads.

use std::{fs, path::Path, time::Duration};

use device_sim::{Quirks, checksum::Transport, virtio_net::Features};
use lab::{
    device::{DeviceKind, QemuVariant},
    has_qemu,
    testbed::{Options, Testbed},
};
use ndis_sim::{Offloads, SendRequest, priority_vlan::tag};
use ndk_abi::ndis::{
    NDIS_PACKET_TYPE_DIRECTED, NDIS_PACKET_TYPE_PROMISCUOUS, NDIS_STATUS_INVALID_DATA,
    NDIS_STATUS_INVALID_LENGTH, NDIS_STATUS_INVALID_PACKET, NDIS_STATUS_NOT_SUPPORTED,
    OID_GEN_CURRENT_PACKET_FILTER, OID_GEN_MAXIMUM_TOTAL_SIZE, OID_GEN_VLAN_ID,
};
use support::{
    bed::{finish, miniport, started_with, word},
    captures,
    copying::{copy, try_copy},
    packets::{self, bytes, complete, deliver_requests, everything, frame4, packets, udp4},
    tags::{
        COMMAND_REFUSED, MOMENT, OK, SETTING, VLAN, frame, keyword, options, requesting, second_in_vlan,
        send, tagged,
    },
    tcp::{MACS, exchange, ipv4, ipv6},
};

#[test]
fn tags_of_lists_are_inserted_and_those_of_received_frames_removed_and_reported_in_every_ring_format() {
    for format in [Features::default(), Features::RING_PACKED] {
        for without in [Features::default(), Features::EVENT_IDX, Features::MRG_RXBUF] {
            let features = Features::DEFAULT.without(without) | format;
            let Some(bed) = started_with(&Options { features, ..options() }) else { return };
            for (priority, id) in [(0, 0), (1, 0), (7, 0), (0, 1), (0, 4094), (5, 0x123)] {
                let reported = tag(priority as u8, id);
                // The stack's own tag, which the driver sends as it is, says what is on the wire.
                let sent = send(&bed, 0, tagged(frame(0), priority, id), 0);
                assert_eq!(sent, (OK, vec![(frame(0), reported)]), "{priority}, {id}");
                assert_eq!(send(&bed, 0, frame(0), reported), (OK, vec![(frame(0), reported)]));
                // A second tag is data.
                let sent = send(&bed, 0, tagged(tagged(frame(0), 3, 9), priority, id), 0);
                assert_eq!(sent, (OK, vec![(tagged(frame(0), 3, 9), reported)]));
            }
            assert_eq!(send(&bed, 0, frame(0), 0), (OK, vec![(frame(0), 0)]), "no tag of an earlier frame");
            finish(bed);
        }
    }
}

#[test]
fn tag_that_is_invalid_is_not_sent() {
    let Some(bed) = started_with(&options()) else { return };
    // Not the canonical format; an ID that is reserved.
    for request in [1 << 3 | tag(0, 5), tag(0, 4095)] {
        assert_eq!(send(&bed, 0, frame(0), request), (NDIS_STATUS_INVALID_PACKET, vec![]));
    }
    finish(bed);
}

#[test]
fn keyword_decides_what_is_sent_and_what_is_reported() {
    // No loopback, and so on; priorities are 0x40, VLANs 0x200. (WDK: NDIS_MAC_OPTION_8021P_PRIORITY, _8021Q_VLAN)
    for (setting, options_of_mac, mask) in
        [(0, 0, 0), (1, 0x40, tag(7, 0)), (2, 0x200, tag(0, 0xfff)), (3, 0x240, tag(7, 0xfff))]
    {
        let keywords = vec![keyword(SETTING, setting)];
        let Some(bed) = started_with(&Options { keywords, ..options() }) else { return };
        let miniport = miniport(bed.machines()[1]);
        assert_eq!(miniport.attributes().general.unwrap().MacOptions & !0xd, options_of_mac);
        let sent = send(&bed, 0, frame(0), tag(5, 0x123));
        assert_eq!(sent, (OK, vec![(frame(0), tag(5, 0x123) & mask)]), "{setting}");
        assert_eq!(
            send(&bed, 0, tagged(frame(0), 5, 0), 0),
            (OK, vec![(frame(0), tag(5, 0) & mask)]),
            "{setting}"
        );
        // Frames of VLANs are not for an adapter that has none.
        let received = if setting & 2 == 0 { vec![] } else { vec![(frame(0), tag(5, 0x123) & mask)] };
        assert_eq!(send(&bed, 0, tagged(frame(0), 5, 0x123), 0), (OK, received), "{setting}");
        let id = 5_u32.to_le_bytes();
        let changed = miniport.set(OID_GEN_VLAN_ID, &id).map_err(|error| error.status);
        assert_eq!(changed, if setting & 2 == 0 { Err(NDIS_STATUS_NOT_SUPPORTED) } else { Ok(()) });
        finish(bed);
    }
}

/// Asserts which frames an adapter with a VLAN receives, and on which conditions it sends. (WDK: tables of 802.1Q-marked packets)
fn in_vlan(bed: &Testbed) {
    const NONE: Vec<(Vec<u8>, u32)> = vec![];
    let received = |data: Vec<u8>, request| {
        let (status, received) = send(bed, 0, data, request);
        assert_eq!(status, OK);
        received
    };
    assert_eq!(received(frame(0), tag(3, 5)), [(frame(0), tag(3, 5))]);
    assert_eq!(received(tagged(frame(0), 0, 5), 0), [(frame(0), tag(0, 5))]);
    for request in [0, tag(3, 0), tag(0, 6), tag(0, 4), tag(0, 0x105)] {
        assert_eq!(received(frame(0), request), NONE, "{request:#x}");
    }
    // The first host, which is in no VLAN, receives what the second one sends.
    let sent = |data: Vec<u8>, request| send(bed, 1, data, request);
    for (request, reported) in [(0, tag(0, 5)), (tag(2, 0), tag(2, 5)), (tag(2, 5), tag(2, 5))] {
        assert_eq!(sent(frame(1), request), (OK, vec![(frame(1), reported)]));
    }
    assert_eq!(sent(frame(1), tag(0, 6)), (NDIS_STATUS_INVALID_PACKET, NONE));
    // Frames that the stack has tagged.
    assert_eq!(sent(tagged(frame(1), 4, 5), 0), (OK, vec![(frame(1), tag(4, 5))]));
    assert_eq!(sent(tagged(frame(1), 4, 0), 0), (OK, vec![(frame(1), tag(4, 5))]));
    assert_eq!(sent(tagged(frame(1), 4, 6), 0), (NDIS_STATUS_INVALID_PACKET, NONE));
}

#[test]
fn adapter_in_a_vlan_sends_and_receives_frames_of_that_vlan_alone() {
    for without in [Features::default(), Features::CTRL_VLAN] {
        let options = Options { features: Features::DEFAULT.without(without), ..options() };
        let Some(bed) = second_in_vlan(5, &options) else { return };
        let filter = (without == Features::default()).then(|| vec![5]);
        assert_eq!(bed.machines()[1].nic().vlans(), filter, "the device's filter");
        in_vlan(&bed);
        let dropped = bed.machines()[1].nic().counters().filtered;
        assert_eq!(dropped > 0, filter.is_some(), "{dropped} frames dropped by the device");
        // The filter ends with a reset, and with the power.
        bed.machines()[1].nic().need_reset();
        let _ = bed.event().wait(Duration::from_millis(100));
        assert_eq!(bed.machines()[1].nic().vlans(), filter);
        in_vlan(&bed);
        miniport(bed.machines()[1]).sleep().unwrap();
        miniport(bed.machines()[1]).wake().unwrap();
        assert_eq!(bed.machines()[1].nic().vlans(), filter);
        in_vlan(&bed);
        finish(bed);
    }
}

/// Link aggregation and registration of VLANs are between the host and its bridge.
#[test]
fn untagged_frames_between_bridges_are_received_in_any_vlan() {
    // The device filters, or the driver alone.
    for without in [Features::default(), Features::CTRL_VLAN] {
        let features = options().features.without(without);
        let Some(bed) = second_in_vlan(5, &Options { features, ..options() }) else { return };
        let receiver = miniport(bed.machines()[1]);
        let sender = miniport(bed.machines()[0]);
        receiver.set(OID_GEN_CURRENT_PACKET_FILTER, &NDIS_PACKET_TYPE_PROMISCUOUS.to_le_bytes()).unwrap();
        let _ = receiver.received();
        for (last, arrives) in [(0x00, true), (0x02, true), (0x21, true), (0x2f, true), (0x30, false)] {
            let mut frame = [&[0x01, 0x80, 0xc2, 0, 0, last][..], &MACS[0], &[0x88, 0x09]].concat();
            frame.resize(60, 0);
            assert_eq!(sender.send(&frame, MOMENT), Some(OK));
            let _ = bed.event().wait(Duration::from_millis(20));
            assert_eq!(receiver.received(), if arrives { vec![frame.clone()] } else { vec![] }, "{last:#x}");
            assert_eq!(sender.send(&tagged(frame, 0, 6), MOMENT), Some(OK));
            let _ = bed.event().wait(Duration::from_millis(20));
            assert_eq!(receiver.received(), [[0; 0]; 0], "{last:#x} in another VLAN");
        }
        finish(bed);
    }
}

/// Returns VLANs of the first adapter's filter after NDIS has set `id`.
fn filter_of(bed: &Testbed, id: u32) -> Option<Vec<u16>> {
    let miniport = miniport(bed.machines()[0]);
    miniport.set(OID_GEN_VLAN_ID, &id.to_le_bytes()).unwrap();
    assert_eq!(word(&miniport.query(OID_GEN_VLAN_ID, 4).unwrap(), 0), id);
    bed.machines()[0].nic().vlans()
}

#[test]
fn vlan_changes_at_run_time() {
    let keywords = vec![keyword(VLAN, 5)];
    let Some(bed) = started_with(&Options { keywords, ..options() }) else { return };
    let changed = miniport(bed.machines()[0]);
    assert_eq!(word(&changed.query(OID_GEN_VLAN_ID, 4).unwrap(), 0), 5);
    for (value, status) in [
        (&4095_u32.to_le_bytes()[..], NDIS_STATUS_INVALID_DATA),
        (&0x1_0005_u32.to_le_bytes(), NDIS_STATUS_INVALID_DATA),
        (&[5, 0, 0], NDIS_STATUS_INVALID_LENGTH),
    ] {
        assert_eq!(changed.set(OID_GEN_VLAN_ID, value).unwrap_err().status, status);
    }
    assert_eq!(send(&bed, 0, frame(0), 0).1, [(frame(0), tag(0, 5))]);
    assert_eq!(filter_of(&bed, 4094), Some(vec![4094]));
    assert_eq!(send(&bed, 0, frame(0), 0).1, []);
    assert_eq!(send(&bed, 1, frame(1), 0).1, []);
    assert_eq!(filter_of(&bed, 0), Some((0..4095).collect()), "frames of all VLANs");
    assert_eq!(send(&bed, 1, frame(1), tag(6, 5)).1, [(frame(1), tag(6, 5))]);
    assert_eq!(send(&bed, 0, frame(0), tag(6, 5)).1, [(frame(0), tag(6, 5))]);
    assert_eq!(filter_of(&bed, 5), Some(vec![5]));
    assert_eq!(send(&bed, 0, frame(0), 0).1, [(frame(0), tag(0, 5))]);
    // RDMA is in the VLAN, too.
    copy(&bed);
    finish(bed);
    // Without a VLAN at the start, the driver has no use for the filter.
    let Some(bed) = started_with(&options()) else { return };
    assert_eq!(bed.machines()[0].nic().vlans(), None);
    assert_eq!(filter_of(&bed, 5), None);
    assert_eq!(send(&bed, 0, frame(0), 0).1, [(frame(0), tag(0, 5))]);
    assert_eq!(send(&bed, 1, frame(1), tag(0, 6)).1, []);
    finish(bed);
}

#[test]
fn device_that_refuses_vlans_delivers_every_frame_and_the_driver_filters() {
    const VLAN_CLASS: u8 = 2;
    let quirks = Quirks { refuses_class: Some(VLAN_CLASS), ..Quirks::default() };
    let keywords = vec![keyword(VLAN, 5)];
    let Some(bed) = started_with(&Options { quirks, keywords, ..options() }) else { return };
    assert_eq!(send(&bed, 1, frame(1), 0).1, [(frame(1), tag(0, 5))]);
    let (receiver, nic) = (miniport(bed.machines()[0]), bed.machines()[0].nic());
    assert_eq!(nic.vlans(), Some(vec![]));
    // From the wire, because the second host, which is in the same VLAN, sends no frames of others.
    for (id, is_received) in [(6, false), (4, false), (0x105, false), (4094, false), (5, true)] {
        let delivered = nic.counters().received_frames;
        bed.wire().port(1).transmit(bed.now().as_nanos() as u64, tagged(frame(1), 3, id));
        let _ = bed.event().wait(Duration::from_millis(20));
        assert_eq!(nic.counters().received_frames, delivered + 1, "the device delivers frames of VLAN {id}");
        let arrived = receiver.received();
        assert_eq!(arrived, if is_received { vec![frame(1)] } else { vec![] }, "VLAN {id}");
    }
    let untagged = nic.counters().received_frames;
    bed.wire().port(1).transmit(bed.now().as_nanos() as u64, frame(1));
    let _ = bed.event().wait(Duration::from_millis(20));
    assert_eq!(nic.counters().received_frames, untagged + 1);
    assert_eq!(receiver.received(), [[0; 0]; 0], "a frame without a tag");
    assert_eq!(nic.counters().filtered, 0);
    let events: Vec<_> = bed.machines()[0].event_log().iter().map(|entry| entry.code & 0xffff).collect();
    assert!(!events.contains(&COMMAND_REFUSED), "{events:?}");
    finish(bed);
}

/// A tagged frame is four bytes longer than the longest one without a tag.
#[test]
fn longest_frames_can_be_tagged() {
    for (mtu, total) in [(1500, 1514), (9000, 9014)] {
        for without in [Features::default(), Features::MRG_RXBUF] {
            let keywords = vec![keyword("*JumboPacket", total)];
            let features = Features::DEFAULT.without(without);
            let options =
                Options { path_mtu: 1024, mtu: Some(mtu), keywords, features, ..Options::default() };
            let Some(bed) = started_with(&options) else { return };
            let answer = miniport(bed.machines()[0]).query(OID_GEN_MAXIMUM_TOTAL_SIZE, 4).unwrap();
            assert_eq!(word(&answer, 0), total);
            let longest = |len: usize| {
                let mut frame = frame(0);
                frame.resize(len, 9);
                frame
            };
            let total = total as usize;
            for request in [tag(1, 2), 0] {
                let sent = send(&bed, 0, longest(total), request);
                assert!(sent == (OK, vec![(longest(total), request)]), "{total} bytes");
                assert_eq!(send(&bed, 0, longest(total + 1), request), (NDIS_STATUS_INVALID_LENGTH, vec![]));
            }
            // The stack has inserted the tag.
            let sent = send(&bed, 0, tagged(longest(total), 1, 2), 0);
            assert!(sent == (OK, vec![(longest(total), tag(1, 2))]), "{total} bytes and a tag");
            // Too long without the tag, or with another one.
            for (len, request) in [(total + 1, 0), (total, tag(3, 9))] {
                let sent = send(&bed, 0, tagged(longest(len), 1, 2), request);
                assert_eq!(sent, (NDIS_STATUS_INVALID_LENGTH, vec![]), "{len}, {request:#x}");
            }
            let filter = NDIS_PACKET_TYPE_DIRECTED.to_le_bytes();
            miniport(bed.machines()[0]).set(OID_GEN_CURRENT_PACKET_FILTER, &filter).unwrap();
            // With two tags, a received frame is as long as one with one tag at most.
            for (len, arrives) in [(total - 4, true), (total, false)] {
                let mut from_second = longest(len);
                from_second[..12].rotate_left(6);
                let on_wire = tagged(tagged(from_second.clone(), 3, 9), 1, 2);
                bed.wire().port(1).transmit(bed.now().as_nanos() as u64, on_wire);
                let _ = bed.event().wait(Duration::from_millis(20));
                let expected = if arrives { vec![tagged(from_second, 3, 9)] } else { vec![] };
                assert!(miniport(bed.machines()[0]).received() == expected, "{len}");
            }
            finish(bed);
        }
    }
}

#[test]
fn longest_frames_that_the_stack_has_tagged_are_sent_in_the_adapters_vlan_alone() {
    let Some(bed) = second_in_vlan(5, &options()) else { return };
    let longest = |len: usize| {
        let mut frame = frame(1);
        frame.resize(len, 9);
        frame
    };
    for id in [5, 0] {
        let sent = send(&bed, 1, tagged(longest(1514), 4, id), 0);
        assert!(sent == (OK, vec![(longest(1514), tag(4, 5))]), "{id}");
    }
    let refused = |frame: Vec<u8>, status| assert_eq!(send(&bed, 1, frame, 0), (status, vec![]));
    refused(tagged(longest(1514), 4, 6), NDIS_STATUS_INVALID_PACKET);
    refused(tagged(longest(1515), 4, 5), NDIS_STATUS_INVALID_LENGTH);
    refused(longest(1515), NDIS_STATUS_INVALID_LENGTH);
    assert_eq!(send(&bed, 1, frame(1), 0), (OK, vec![(frame(1), tag(0, 5))]), "the driver goes on");
    finish(bed);
}

#[test]
fn tcp_in_a_vlan_uses_all_offloads_in_every_ring_format() {
    for format in [Features::default(), Features::RING_PACKED] {
        for addresses in [ipv4(), ipv6()] {
            let keywords = vec![keyword(VLAN, 5)];
            let features = Features::DEFAULT | format;
            let Some(bed) = started_with(&Options { keywords, features, ..options() }) else { return };
            for counters in exchange(&bed, addresses, 1 << 20) {
                assert!(counters.large_sends >= 10, "{counters:?}");
                assert!(counters.received < 400, "instead of 718 segments: {counters:?}");
                assert!(counters.coalesced >= 20 && counters.invalid == 0, "{counters:?}");
            }
            finish(bed);
        }
    }
}

#[test]
fn checksums_of_tagged_frames_are_computed_completed_and_reported() {
    for (without, partial) in
        [(Features::default(), None), (Features::default(), Some(None)), (Features::OFFLOADS, None)]
    {
        let features = Features::DEFAULT.without(without);
        let quirks = Quirks { partial_checksums: partial, ..Quirks::default() };
        let Some(bed) = started_with(&Options { features, quirks, ..options() }) else { return };
        let all = Offloads { send: everything(), ..Offloads::default() };
        // From the second host, because the first one's device leaves checksums to its driver.
        miniport(bed.machines()[0]).start_offloads().unwrap();
        let of_second = |mut frame: Vec<u8>| {
            frame[..12].rotate_left(6);
            frame
        };
        let requests = packets().into_iter().map(of_second).map(|mut frame| {
            let request = SendRequest::checksums(&mut frame, &all);
            (frame, SendRequest { priority_vlan: tag(6, 77), ..request })
        });
        let (statuses, received) = deliver_requests(&bed, 1, requests.collect());
        assert_eq!(statuses, vec![OK; 40]);
        assert!(received.iter().all(|frame| frame.priority_vlan == tag(6, 77)));
        assert_eq!(received.iter().all(|frame| frame.checksum != 0), without == Features::default());
        let expected: Vec<_> = packets().into_iter().map(of_second).map(complete).collect();
        assert!(bytes(received) == expected, "each packet arrives with the checksums of its bytes");
        finish(bed);
    }
}

#[test]
fn large_packets_are_divided_into_tagged_frames() {
    let Some(bed) = started_with(&options()) else { return };
    let tcp = frame4(0, 6, 3, &packets::tcp(3, 60_000));
    let udp = udp4(0, 3, 34_000);
    for (mut frame, is_tcp) in [(tcp, true), (udp, false)] {
        let whole = Transport::find(&frame).unwrap().range;
        let header = if is_tcp { 20 + 12 } else { 8 };
        let payload = frame[whole.start + header..].to_vec();
        let request = if is_tcp {
            SendRequest::large_send(&mut frame, 1400)
        } else {
            SendRequest::udp_segmentation(&mut frame, 1400)
        };
        let request = SendRequest { priority_vlan: tag(2, 4000), ..request };
        let (statuses, received) = deliver_requests(&bed, 0, vec![(frame, request)]);
        assert_eq!((statuses, received.len()), (vec![OK], payload.len().div_ceil(1400)));
        for (segment, part) in received.iter().zip(payload.chunks(1400)) {
            assert_eq!(segment.priority_vlan, tag(2, 4000));
            let found = Transport::find(&segment.bytes).unwrap();
            assert!(found.is_valid(&segment.bytes));
            assert!(
                segment.bytes[found.range][header..] == *part,
                "each segment has its part of the payload"
            );
        }
    }
    finish(bed);
}

/// Returns the numbers of RoCE frames in a capture: without a tag, and with that of VLAN 5 and priority 0.
fn roce_frames(capture: &Path) -> [usize; 2] {
    let bytes = fs::read(capture).unwrap();
    let is_roce = |ip: &[u8]| ip[..2] == [8, 0] && ip[11] == 17 && ip[24..26] == 4791_u16.to_be_bytes();
    // Behind the addresses of both hosts, in either direction.
    let of_hosts = |frame: &&[u8]| frame[..12] == MACS.concat() || frame[..12] == [MACS[1], MACS[0]].concat();
    let frames = || bytes.windows(50).filter(of_hosts);
    let untagged = frames().filter(|frame| is_roce(&frame[12..])).count();
    let tagged = frames().filter(|frame| frame[12..16] == [0x81, 0, 0, 5] && is_roce(&frame[16..])).count();
    [untagged, tagged]
}

#[test]
fn rdma_of_an_adapter_in_a_vlan_is_in_that_vlan() {
    for (name, features, pairs) in [
        ("vlan split", Features::DEFAULT, 1),
        ("vlan packed", Features::DEFAULT | Features::RING_PACKED | Features::MQ, 2),
    ] {
        let capture = captures::path(name);
        let keywords = vec![keyword(VLAN, 5), keyword("*JumboPacket", 9014)];
        let options =
            Options { keywords, features, pairs, capture: Some(capture.clone()), ..Options::default() };
        let Some(bed) = started_with(&options) else { return };
        copy(&bed);
        finish(bed);
        let [untagged, tagged] = roce_frames(&capture);
        assert!(untagged == 0 && tagged > 500, "{untagged} RoCE frames without a tag, {tagged} with one");
    }
}

#[test]
fn rdma_does_not_connect_hosts_in_different_vlans() {
    let Some(bed) = second_in_vlan(5, &Options::default()) else { return };
    let [client, _] = try_copy(&bed, 1 << 16, |_| {});
    assert!(client.is_err(), "the first host is in no VLAN");
    finish(bed);
}

/// QEMU's device drops tagged frames of VLANs that were not added, priority-tagged ones included.
#[test]
fn qemus_device_filters_vlans() {
    if !has_qemu() {
        return;
    }
    let device = DeviceKind::Qemu(QemuVariant::default());
    let options = Options { device, real_time: true, ..options() };
    let Some(bed) = second_in_vlan(5, &options) else { return };
    let filter = NDIS_PACKET_TYPE_DIRECTED.to_le_bytes();
    let [sender, receiver] = bed.machines().map(miniport);
    receiver.set(OID_GEN_CURRENT_PACKET_FILTER, &filter).unwrap();
    let arrives = |request| {
        let _ = receiver.received();
        let ids = sender.send_requests(vec![(frame(0), requesting(request))]);
        assert_eq!(sender.send_status(ids[0], MOMENT), Some(OK));
        let _ = bed.event().wait(Duration::from_millis(200));
        receiver.received_frames().into_iter().any(|received| received.bytes == frame(0))
    };
    let delivered = || {
        let answer = receiver.query(ndk_abi::ndis::OID_GEN_RCV_OK, 8).unwrap();
        u64::from_le_bytes(answer.try_into().unwrap())
    };
    assert!(arrives(tag(1, 5)));
    let before = delivered();
    assert!(!arrives(tag(1, 6)) && !arrives(tag(1, 0)));
    assert_eq!(delivered(), before, "the device drops them");
    finish(bed);
}

/// RDMA follows to a VLAN that is set at run time: frames of both adapters are in it.
#[test]
fn rdma_moves_to_the_vlan_that_is_set_while_the_adapters_run() {
    let Some(bed) = started_with(&Options { path_mtu: 1024, ..Options::default() }) else { return };
    for machine in bed.machines() {
        miniport(machine).set(OID_GEN_VLAN_ID, &5_u32.to_le_bytes()).expect("set");
    }
    copy(&bed);
    finish(bed);
}
