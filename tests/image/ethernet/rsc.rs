// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive segment coalescing. The simulated NDIS checks each frame that is indicated as several segments: that it is like one, that
//! the stack has asked for it, and that its checksums are right, or verified.

use std::time::Duration;

use device_sim::{
    Quirks,
    checksum::{self, Transport},
    virtio_net::{Features, LargeQuirk},
};
use lab::testbed::{Options, Testbed};
use ndis_sim::{offload::encapsulation, tcp_stack::TcpStack};
use ndk_abi::ndis::{
    NDIS_OBJECT_TYPE_DEFAULT, NDIS_OFFLOAD_PARAMETERS_REVISION_3, NDIS_OFFLOAD_PARAMETERS_RSC_DISABLED,
    NDIS_OFFLOAD_PARAMETERS_RSC_ENABLED, NDIS_OFFLOAD_PARAMETERS_TX_ENABLED_RX_DISABLED,
    NDIS_OFFLOAD_PARAMETERS_TX_RX_ENABLED, NDIS_STATUS_INVALID_DATA,
    NDIS_TCP_IP_CHECKSUM_NET_BUFFER_LIST_INFO as Checksum, OID_GEN_RCV_OK, OID_OFFLOAD_ENCAPSULATION,
    OID_TCP_OFFLOAD_PARAMETERS,
};
use nt_sim::delays::Moment;
use support::{
    bed::{counter, finish, miniport, started_with},
    packets::deliver,
    scaling,
    segments::{
        IN_DISCARDS, IN_ERRORS, IN_OCTETS, LATE, LEN, PARAMETERS, RSC, TCP_IPV4, TCP_IPV6, await_reached,
        counts, keyword, options, receive, receiver, segments, set, statistic, statistics, with,
    },
    tcp::{exchange, ipv4, ipv6, stream},
};

/// Bits that are reported of a coalesced packet whose checksum is right.
fn verified(is_ipv6: bool) -> u32 {
    Checksum::RECEIVE_TCP_SUCCEEDED | if is_ipv6 { 0 } else { Checksum::RECEIVE_IP_SUCCEEDED }
}

#[test]
fn tcp_is_coalesced_in_every_ring_format() {
    for format in [Features::default(), Features::RING_PACKED] {
        for without in [Features::default(), Features::EVENT_IDX] {
            for addresses in [ipv4(), ipv6()] {
                let features = Features::DEFAULT.without(without) | format;
                let Some(bed) = started_with(&Options { features, ..options() }) else { return };
                for counters in exchange(&bed, addresses, 1 << 20) {
                    assert!(counters.coalesced >= 20 && counters.invalid == 0, "{counters:?}");
                    assert!(counters.received < 400, "instead of 718 segments: {counters:?}");
                }
                for machine in bed.machines() {
                    let [segments, bytes, frames, aborts] = statistics(&miniport(machine));
                    assert!(frames >= 20 && segments >= 10 * frames && bytes > 1 << 19);
                    assert_eq!(aborts, 0);
                }
                finish(bed);
            }
        }
    }
}

#[test]
fn segments_are_indicated_as_one_and_counted_as_on_the_wire() {
    let Some(bed) = with(Quirks::default()) else { return };
    let receiver = receiver(&bed);
    receiver.start_offloads().unwrap();
    for (is_ipv6, headers) in [(false, 54), (true, 74)] {
        let before = [OID_GEN_RCV_OK, 0].map(|oid| match oid {
            0 => statistic(&receiver, IN_OCTETS),
            oid => counter(&receiver.query(oid, 8).unwrap(), 0),
        });
        let before_all = statistics(&receiver);
        let frames = receive(&bed, is_ipv6, 40);
        assert_eq!(frames.iter().map(|frame| frame.coalesced).collect::<Vec<_>>(), [40]);
        let frame = &frames[0].bytes;
        let found = Transport::find(frame).unwrap();
        assert_ne!(checksum::ipv4_header_is_valid(frame), Some(false));
        assert_eq!(frames[0].checksum, verified(is_ipv6) | Checksum::RECEIVE_TCP_VALUE_INVALID);
        assert!(frame[headers..] == stream(0, 40 * LEN), "the payload of all, in order");
        assert_eq!(frame[found.range.start..][4..8], 1_u32.to_be_bytes(), "the first sequence number");
        assert_eq!(frame[found.range.start + 13], 0x18, "PSH, of the last");
        assert_eq!(counter(&receiver.query(OID_GEN_RCV_OK, 8).unwrap(), 0) - before[0], 40);
        assert_eq!(statistic(&receiver, IN_OCTETS) - before[1], (40 * (headers + LEN)) as u64);
        let after = statistics(&receiver);
        let difference: Vec<_> = after.iter().zip(before_all).map(|(after, before)| after - before).collect();
        assert_eq!(difference, [40, 40 * LEN as u64, 1, 0]);
    }
    // The longest packet, and the next.
    assert_eq!(counts(&bed, false, 70), [65, 5]);
    finish(bed);
}

#[test]
fn coalescing_changes_at_run_time_and_the_change_is_reported() {
    let Some(bed) = with(Quirks::default()) else { return };
    let receiver = receiver(&bed);
    assert_eq!(receiver.offloads().coalescing, [true; 2]);
    assert_eq!(counts(&bed, false, 3), [0; 3], "the stack has not started the offloads");
    receiver.start_offloads().unwrap();
    for (version, is_ipv6) in [(0, false), (1, true)] {
        assert_eq!(counts(&bed, is_ipv6, 3), [3]);
        set(&receiver, RSC + version, NDIS_OFFLOAD_PARAMETERS_RSC_DISABLED);
        let mut expected = [true; 2];
        expected[version] = false;
        assert_eq!(receiver.offloads().coalescing, expected);
        assert_eq!(counts(&bed, is_ipv6, 3), [0; 3]);
        assert_eq!(counts(&bed, !is_ipv6, 3), [3], "the other version is coalesced as before");
        set(&receiver, RSC + version, NDIS_OFFLOAD_PARAMETERS_RSC_ENABLED);
        assert_eq!(receiver.offloads().coalescing, [true; 2]);
        assert_eq!(counts(&bed, is_ipv6, 3), [3]);
        // A coalesced packet is reported with its checksum.
        let member = [TCP_IPV4, TCP_IPV6][version];
        set(&receiver, member, NDIS_OFFLOAD_PARAMETERS_TX_ENABLED_RX_DISABLED);
        assert_eq!(receiver.offloads().coalescing, expected);
        assert_eq!(counts(&bed, is_ipv6, 3), [0; 3]);
        set(&receiver, member, NDIS_OFFLOAD_PARAMETERS_TX_RX_ENABLED);
        assert_eq!(counts(&bed, is_ipv6, 3), [3]);
        let mut on = [true; 2];
        on[version] = false;
        receiver.set(OID_OFFLOAD_ENCAPSULATION, &encapsulation(on)).unwrap();
        assert_eq!(counts(&bed, is_ipv6, 3), [0; 3]);
        receiver.start_offloads().unwrap();
    }
    assert_eq!(statistics(&receiver)[3], 0);
    finish(bed);
}

/// Frames in the receive queue while a DPC or a poll is late, and on their way to another processor, where it is late, too.
#[test]
fn frames_that_were_coalesced_before_the_change_are_indicated_before_the_request_completes() {
    let (interrupt, routine, poll) = (
        Moment::Call("MiniportMessageInterruptDPC"),
        Moment::Call("a DPC routine"),
        Moment::Call("NdisPoll"),
    );
    // What is late before the request, from its begin on, and after that.
    let cases: [(_, _, &[_], &[_]); 4] = [
        (None, interrupt, &[], &[]),
        // The routine that the request has receive frames, and that of the other processor.
        (Some(3), interrupt, &[routine; 2], &[]),
        (None, poll, &[], &[]),
        // The next call of the same object, and that of the other processor.
        (Some(3), poll, &[], &[poll; 2]),
    ];
    for (processor, first, then, last) in cases {
        let keywords = if first == poll { vec![keyword("*NdisPoll", "1")] } else { vec![] };
        let Some(bed) = started_with(&Options { keywords, processors: 4, ..options() }) else { return };
        let receiver = receiver(&bed);
        receiver.start_offloads().unwrap();
        if let Some(processor) = processor {
            receiver.scaling().set(Some(&scaling::parameters(scaling::ALL_TYPES, &[processor]))).unwrap();
        }
        assert_eq!(counts(&bed, false, 3), [3]);
        let late = |moments: &[Moment]| -> Vec<_> {
            moments.iter().map(|&moment| bed.machines()[0].host().delays.add(moment, LATE)).collect()
        };
        let mut delays = late(&[first]);
        let _ = miniport(bed.machines()[1]).send_chain(&segments(false, 3), 0);
        await_reached(&bed, &delays[0]);
        delays.extend(late(then));
        let change = receiver.host().spawn("change", {
            let receiver = receiver.clone();
            move || {
                set(&receiver, RSC, NDIS_OFFLOAD_PARAMETERS_RSC_DISABLED);
                receiver.received_frames()
            }
        });
        let _ = bed.event().wait(LATE / 5);
        delays.extend(late(last));
        let frames = change.join().expect("the request completes");
        let coalesced: Vec<_> = frames.iter().map(|frame| frame.coalesced).collect();
        assert_eq!(coalesced, [3], "{first:?} {processor:?}");
        assert!(delays.iter().all(|delay| delay.is_reached()), "{delays:?}");
        assert_eq!(statistics(&receiver)[2..], [2, 0]);
        finish(bed);
    }
}

/// The device coalesces once it has executed the command, before the driver has seen its answer.
#[test]
fn frames_that_are_coalesced_before_the_answer_is_seen_are_indicated() {
    let Some(bed) = with(Quirks { command_time: Duration::from_micros(50), ..Quirks::default() }) else {
        return;
    };
    let receiver = receiver(&bed);
    receiver.start_offloads().unwrap();
    assert_eq!(counts(&bed, false, 3), [3]);
    set(&receiver, RSC, NDIS_OFFLOAD_PARAMETERS_RSC_DISABLED);
    let delay = bed.machines()[0].host().delays.add(Moment::Return("KeStallExecutionProcessor"), LATE);
    let switch = receiver.host().spawn("switch", {
        let receiver = receiver.clone();
        move || set(&receiver, RSC, NDIS_OFFLOAD_PARAMETERS_RSC_ENABLED)
    });
    await_reached(&bed, &delay);
    let _ = bed.event().wait(Duration::from_millis(1));
    let _ = miniport(bed.machines()[1]).send_chain(&segments(false, 3), 0);
    let _ = bed.event().wait(Duration::from_millis(10));
    let coalesced: Vec<_> = receiver.received_frames().iter().map(|frame| frame.coalesced).collect();
    assert_eq!(coalesced, [3]);
    switch.join().expect("the request completes");
    finish(bed);
}

#[test]
fn keywords_decide_what_is_in_force_at_the_start() {
    for (values, expected) in
        [(["0", "1"], [false, true]), (["1", "0"], [true, false]), (["2", "0"], [true, false])]
    {
        let keywords = vec![keyword("*RscIPv4", values[0]), keyword("*RscIPv6", values[1])];
        let Some(bed) = started_with(&Options { keywords, ..options() }) else { return };
        let receiver = receiver(&bed);
        assert_eq!(receiver.offloads().coalescing, expected);
        assert_eq!(receiver.possible_offloads().coalescing, [true; 2]);
        receiver.start_offloads().unwrap();
        for (version, is_ipv6) in [(0, false), (1, true)] {
            assert_eq!(counts(&bed, is_ipv6, 3), if expected[version] { vec![3] } else { vec![0; 3] });
        }
        finish(bed);
    }
}

#[test]
fn device_without_what_coalescing_needs_is_used_without() {
    for (without, expected) in [
        (Features::GUEST_CSUM, [false; 2]),
        (Features::MRG_RXBUF, [false; 2]),
        (Features::CTRL_VQ, [false; 2]),
        (Features::CTRL_GUEST_OFFLOADS, [false; 2]),
        (Features::GUEST_TSO4, [false, true]),
        (Features::GUEST_TSO6, [true, false]),
    ] {
        let features = Features::DEFAULT.without(without).consistent();
        let Some(bed) = started_with(&Options { features, ..options() }) else { return };
        let receiver = receiver(&bed);
        assert_eq!(receiver.possible_offloads().coalescing, expected, "{without:?}");
        receiver.start_offloads().unwrap();
        for (version, is_ipv6) in [(0, false), (1, true)] {
            assert_eq!(counts(&bed, is_ipv6, 3), if expected[version] { vec![3] } else { vec![0; 3] });
            if !expected[version] {
                let mut change = [0; PARAMETERS];
                change[..3].copy_from_slice(&[
                    NDIS_OBJECT_TYPE_DEFAULT,
                    NDIS_OFFLOAD_PARAMETERS_REVISION_3,
                    PARAMETERS as u8,
                ]);
                change[RSC + version] = NDIS_OFFLOAD_PARAMETERS_RSC_ENABLED;
                let refused = receiver.set(OID_TCP_OFFLOAD_PARAMETERS, &change).unwrap_err();
                assert_eq!(refused.status, NDIS_STATUS_INVALID_DATA);
            }
        }
        finish(bed);
    }
}

#[test]
fn frames_that_are_not_what_their_header_says_are_dropped_and_counted() {
    for quirk in [
        // IPv6, UDP, with the flag CWR, unknown.
        LargeQuirk::Type(4),
        LargeQuirk::Type(3),
        LargeQuirk::Type(0x81),
        LargeQuirk::Type(0xff),
        // The checksum is said to be neither incomplete nor verified, and is wrong.
        LargeQuirk::Flags(0),
        LargeQuirk::Complete { flags: 0, is_right: false },
    ] {
        let Some(bed) = with(Quirks { large: Some(quirk), ..Quirks::default() }) else { return };
        let receiver = receiver(&bed);
        receiver.start_offloads().unwrap();
        let before = statistic(&receiver, IN_ERRORS);
        assert_eq!(receive(&bed, false, 3), [], "{quirk:?}");
        assert_eq!(statistic(&receiver, IN_ERRORS) - before, 1);
        assert_eq!(statistics(&receiver), [0, 0, 0, 1]);
        assert_eq!(counts(&bed, false, 1), [0], "the driver goes on");
        finish(bed);
    }
}

#[test]
fn length_of_the_headers_is_not_relied_on_and_that_of_segments_may_be_any() {
    for (quirk, expected) in [
        (LargeQuirk::HeaderLength(0), 3),
        (LargeQuirk::HeaderLength(u16::MAX), 3),
        (LargeQuirk::SegmentSize(1), 3000),
        (LargeQuirk::SegmentSize(1460), 3),
        // No length, or one that is longer than the MTU: the longest that fits counts.
        (LargeQuirk::SegmentSize(0), 3),
        (LargeQuirk::SegmentSize(1461), 3),
        (LargeQuirk::SegmentSize(u16::MAX), 3),
    ] {
        let Some(bed) = with(Quirks { large: Some(quirk), ..Quirks::default() }) else { return };
        receiver(&bed).start_offloads().unwrap();
        assert_eq!(counts(&bed, false, 3), [expected], "{quirk:?}");
        finish(bed);
    }
}

/// Network cards with LRO verify the segments; the checksum of the whole may be left as that of the first. One that the driver has verified
/// itself is right.
#[test]
fn segments_that_are_verified_are_indicated_as_such_with_a_checksum_that_may_be_of_one() {
    for (flags, is_right) in [(2, false), (2, true), (0, true)] {
        let quirk = LargeQuirk::Complete { flags, is_right };
        let Some(bed) = with(Quirks { large: Some(quirk), ..Quirks::default() }) else { return };
        receiver(&bed).start_offloads().unwrap();
        for is_ipv6 in [false, true] {
            let frames = receive(&bed, is_ipv6, 3);
            assert_eq!(frames.iter().map(|frame| frame.coalesced).collect::<Vec<_>>(), [3], "{quirk:?}");
            let value = if flags == 0 { 0 } else { Checksum::RECEIVE_TCP_VALUE_INVALID };
            assert_eq!(frames[0].checksum, verified(is_ipv6) | value, "{quirk:?}");
        }
        assert_eq!(statistics(&receiver(&bed)), [6, 6000, 2, 0]);
        finish(bed);
    }
}

/// Until a stack wants it, and after it has switched it off.
#[test]
fn frames_that_the_device_coalesces_although_that_is_off_are_divided() {
    let Some(bed) = with(Quirks { large: Some(LargeQuirk::Always), ..Quirks::default() }) else { return };
    let receiver = receiver(&bed);
    for is_ipv6 in [false, true] {
        let (before, octets) =
            (counter(&receiver.query(OID_GEN_RCV_OK, 8).unwrap(), 0), statistic(&receiver, IN_OCTETS));
        let sent = segments(is_ipv6, 40);
        let frames = receive(&bed, is_ipv6, 40);
        assert!(frames.iter().all(|frame| (frame.coalesced, frame.checksum) == (0, 0)));
        // The simulated device numbers no packets; the driver does.
        let ip = if is_ipv6 { 0..0 } else { 18..26 };
        let without = |frame: &[u8]| [&frame[..ip.start], &frame[ip.end..]].concat();
        assert_eq!(frames.len(), 40);
        for (number, (frame, sent)) in frames.iter().zip(&sent).enumerate() {
            assert!(without(&frame.bytes) == without(sent), "{number}: the segment as it was sent");
            assert_ne!(checksum::ipv4_header_is_valid(&frame.bytes), Some(false));
        }
        let after = counter(&receiver.query(OID_GEN_RCV_OK, 8).unwrap(), 0);
        assert_eq!(after - before, 40);
        let bytes: usize = sent.iter().map(Vec::len).sum();
        assert_eq!(statistic(&receiver, IN_OCTETS) - octets, bytes as u64);
    }
    assert_eq!(statistics(&receiver), [0; 4], "nothing is coalesced for the stack");
    receiver.start_offloads().unwrap();
    assert_eq!(counts(&bed, false, 3), [3]);
    set(&receiver, RSC, NDIS_OFFLOAD_PARAMETERS_RSC_DISABLED);
    let frames = receive(&bed, false, 3);
    assert!(
        frames.iter().all(|frame| (frame.coalesced, frame.checksum) == (0, verified(false))),
        "{frames:?}"
    );
    assert_eq!(frames.len(), 3);
    assert_eq!(counts(&bed, true, 3), [3]);
    assert_eq!(statistics(&receiver)[2..], [2, 0]);
    finish(bed);
}

#[test]
fn device_that_refuses_to_switch_is_used() {
    let Some(bed) = with(Quirks { refuses_class: Some(5), ..Quirks::default() }) else { return };
    let receiver = receiver(&bed);
    // It coalesces from its start on.
    assert_eq!(counts(&bed, false, 3), [0; 3]);
    assert_eq!(counts(&bed, false, 1), [0]);
    receiver.start_offloads().unwrap();
    assert_eq!(counts(&bed, false, 3), [3]);
    finish(bed);
}

/// The stack wants no coalescing, or no longer, and the device does not answer: connections go on, although the sender repeats what is lost
/// as the same large packet.
#[test]
fn tcp_goes_on_while_a_device_coalesces_that_does_not_answer() {
    let off = vec![keyword("*RscIPv4", "0"), keyword("*RscIPv6", "0")];
    for (keywords, addresses) in [(off.clone(), ipv4()), (off, ipv6()), (vec![], ipv4()), (vec![], ipv6())] {
        let is_on = keywords.is_empty();
        let Some(bed) = started_with(&Options { keywords, ..options() }) else { return };
        for machine in bed.machines() {
            let miniport = miniport(machine);
            miniport.start_offloads().unwrap();
            // A device delivers what it did before.
            TcpStack::set_filter(&miniport).unwrap();
            machine.nic().pause_commands(Duration::from_hours(1));
            if is_on {
                set(&miniport, RSC, NDIS_OFFLOAD_PARAMETERS_RSC_DISABLED);
                set(&miniport, RSC + 1, NDIS_OFFLOAD_PARAMETERS_RSC_DISABLED);
            } else {
                // It coalesces after a reset.
                machine.nic().need_reset();
            }
        }
        let _ = bed.event().wait(Duration::from_secs(1));
        for counters in exchange(&bed, addresses, 1 << 20) {
            assert_eq!((counters.coalesced, counters.invalid), (0, 0), "{counters:?}");
        }
        finish(bed);
    }
}

/// Far more segments than there are lists for: a frame is divided into the segments that it states, of one byte.
#[test]
fn frame_of_more_segments_than_there_are_lists_stops_nothing() {
    for segment_size in [1, 100] {
        let quirk = LargeQuirk::SegmentSize(segment_size);
        let options = Options {
            quirks: Quirks { large: Some(quirk), refuses_class: Some(5), ..Quirks::default() },
            ..options()
        };
        let Some(bed) = started_with(&options) else { return };
        let receiver = receiver(&bed);
        for keeps in [false, true] {
            receiver.stack().keep(keeps);
            let frames = (0..8).flat_map(|_| segments(false, 30)).collect();
            let indicated = deliver(&bed, 1, frames);
            assert!(indicated.len() >= 64, "{}", indicated.len());
            let longest = 60.max(54 + usize::from(segment_size));
            assert!(indicated.iter().all(|frame| frame.bytes.len() <= longest));
        }
        receiver.stack().keep(false);
        assert_eq!(counts(&bed, false, 1), [0], "the driver goes on");
        finish(bed);
    }
}

#[test]
fn coalescing_goes_on_after_a_reset_and_a_low_power_state() {
    let Some(bed) = with(Quirks::default()) else { return };
    let receiver = receiver(&bed);
    receiver.start_offloads().unwrap();
    set(&receiver, RSC + 1, NDIS_OFFLOAD_PARAMETERS_RSC_DISABLED);
    for step in 0..3 {
        match step {
            0 => {}
            1 => {
                receiver.sleep().unwrap();
                receiver.wake().unwrap();
            }
            _ => {
                bed.machines()[0].nic().need_reset();
                let event = bed.event();
                let wait = move || event.wait(Duration::from_millis(100));
                let _ = receiver.host().spawn("wait", wait).join();
            }
        }
        assert_eq!((counts(&bed, false, 3), counts(&bed, true, 3)), (vec![3], vec![0; 3]), "{step}");
    }
    finish(bed);
}

/// Holds the interrupts of the first host's receive queue back.
fn mask_receive_message(bed: &Testbed, is_masked: bool) {
    const RECEIVE_VECTOR: u16 = 1;
    let machine = bed.machines()[0];
    let nic = machine.nic().clone();
    machine.host().spawn("mask", move || nic.mask_vector(RECEIVE_VECTOR, is_masked)).join().unwrap();
}

/// More frames at once than there are large lists, also while the stack keeps as many as it may.
#[test]
fn every_coalesced_frame_arrives_however_many_arrive_at_once() {
    let Some(bed) = with(Quirks::default()) else { return };
    let receiver = receiver(&bed);
    receiver.start_offloads().unwrap();
    for keeps in [false, true] {
        receiver.stack().keep(keeps);
        mask_receive_message(&bed, true);
        let frames = (0..80).flat_map(|_| segments(false, 3)).collect();
        assert_eq!(deliver(&bed, 1, frames).len(), 0, "they are in the ring");
        mask_receive_message(&bed, false);
        let _ = bed.event().wait(LATE);
        assert_eq!(receiver.received().len(), 80, "{keeps}");
        assert_eq!(counts(&bed, false, 1), [0], "others have lists of their own");
        assert_eq!(receiver.stack().lent() > 8, keeps, "{} lists are kept", receiver.stack().lent());
    }
    assert_eq!(statistic(&receiver, IN_DISCARDS), 0);
    receiver.stack().keep(false);
    for _ in 0..20 {
        assert_eq!(counts(&bed, false, 3), [3]);
    }
    finish(bed);
}

#[test]
fn tagged_segments_are_coalesced_and_polls_indicate_them() {
    for keywords in [vec![keyword("VlanID", "5")], vec![keyword("*NdisPoll", "1")]] {
        let Some(bed) = started_with(&Options { keywords, ..options() }) else { return };
        receiver(&bed).start_offloads().unwrap();
        for is_ipv6 in [false, true] {
            assert_eq!(counts(&bed, is_ipv6, 30), [30]);
        }
        finish(bed);
    }
}
