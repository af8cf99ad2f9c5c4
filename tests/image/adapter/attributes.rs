// SPDX-License-Identifier: MIT OR Apache-2.0

//! The miniport's reports to NDIS: attributes, station addresses, and the OIDs of an Ethernet adapter.

use std::{fs, net::Ipv4Addr, time::Duration};

use device_sim::{Quirks, link::Faults, virtio_net::Features};
use lab::{
    image,
    machine::{AdapterOptions, Machine, MachineOptions},
    testbed::{Options, Testbed},
};
use ndis_sim::{Keyword, NdisHost as _};
#[allow(clippy::wildcard_imports, reason = "OIDs, statuses and flags")]
use ndk_abi::ndis::*;
use nt_sim::ClockKind;
use support::{
    bed::{counter, finish, miniport, started, started_with, word},
    captures,
    copying::try_copy,
    faults::event::INVALID_KEYWORD,
};
use viordma_inf::keywords;

#[test]
fn attributes_describe_an_ethernet_adapter() {
    let Some(bed) = started(&[]) else { return };
    let machine = bed.machines()[0];
    let attributes = miniport(machine).attributes();
    let registration = attributes.registration.unwrap();
    // Hardware, bus master, surprise removal. (WDK: NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES)
    assert_eq!(registration.AttributeFlags, 0x1 | 0x40 | 0x4);
    let general = attributes.general.unwrap();
    // (WDK: NDIS_MAC_OPTION_COPY_LOOKAHEAD_DATA, _TRANSFERS_NOT_PEND, _NO_LOOPBACK, _8021P_PRIORITY, _8021Q_VLAN)
    assert_eq!(general.MacOptions, 0x1 | 0x4 | 0x8 | 0x40 | 0x200);
    assert_eq!(general.MacAddressLength, 6);
    let mut address = [0; 32];
    address[..6].copy_from_slice(&machine.nic().mac());
    assert_eq!((general.PermanentMacAddress, general.CurrentMacAddress), (address, address));
    finish(bed);
}

/// (WDK: NDIS_LINK_SPEED_UNKNOWN, NET_IF_MEDIA_DUPLEX_STATE)
#[test]
fn link_that_is_down_at_the_start_has_an_unknown_speed_and_duplex_state() {
    for is_up in [true, false] {
        let Some(image) = image() else { return };
        let mut bed = Testbed::new(&image, &Options::default()).expect("the image can be loaded");
        let machine = bed.machines()[0];
        let nic = machine.nic().clone();
        machine.host().spawn("link", move || nic.set_link(is_up)).join().expect("no violation");
        bed.start().expect("both drivers start");
        let general = miniport(bed.machines()[0]).attributes().general.unwrap();
        let (connected, duplex, speed) = if is_up {
            let connected = NET_IF_MEDIA_CONNECT_STATE::MediaConnectStateConnected;
            (connected, NET_IF_MEDIA_DUPLEX_STATE::MediaDuplexStateFull, general.MaxXmitLinkSpeed)
        } else {
            let connected = NET_IF_MEDIA_CONNECT_STATE::MediaConnectStateDisconnected;
            (connected, NET_IF_MEDIA_DUPLEX_STATE::MediaDuplexStateUnknown, NDIS_LINK_SPEED_UNKNOWN)
        };
        assert_eq!((general.MediaConnectState, general.MediaDuplexState), (connected, duplex));
        assert_eq!((general.XmitLinkSpeed, general.RcvLinkSpeed), (speed, speed));
        assert!(general.MaxXmitLinkSpeed < NDIS_LINK_SPEED_UNKNOWN, "that of the adapter is known");
        finish(bed);
    }
}

/// With the number of the setting, and the value if it is a number.
//= R-PNP-13
#[test]
fn value_that_is_not_allowed_is_replaced_by_the_default_with_an_event() {
    let cases = [
        ("*RSS", "7", [keywords::RSS.number, 7]),
        ("*JumboPacket", "100000", [keywords::JUMBO_PACKET.number, 100_000]),
        ("QueuePairs", "many", [keywords::QUEUE_PAIRS.number, u32::MAX]),
    ];
    for (name, value, expected) in cases {
        let Some(bed) = started(&[(name, value)]) else { return };
        let log = bed.machines()[0].event_log();
        let found: Vec<_> = log.iter().map(|entry| (entry.code & 0xFFFF, &entry.data[..])).collect();
        assert_eq!(found, [(INVALID_KEYWORD, &expected[..])], "{name}");
        finish(bed);
    }
}

#[test]
fn valid_network_address_replaces_the_current_address_and_no_other_value_does() {
    let own = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];
    // A group address, the null address, and what is no address.
    let values = ["021122334455", "031122334455", "000000000000", "0211"];
    for (value, expected) in values.into_iter().zip([Some(own), None, None, None]) {
        let Some(bed) = started(&[("NetworkAddress", value)]) else { return };
        let machine = bed.machines()[0];
        let general = miniport(machine).attributes().general.unwrap();
        let permanent = [2, 0, 0, 0, 0, 1];
        assert_eq!(general.PermanentMacAddress[..6], permanent, "{value}");
        assert_eq!(general.CurrentMacAddress[..6], expected.unwrap_or(permanent), "{value}");
        assert_eq!(machine.nic().mac(), expected.unwrap_or(permanent), "{value}: the device's");
        finish(bed);
    }
}

#[test]
fn device_without_an_address_gets_one_that_is_local_and_unicast() {
    let quirks = Quirks { no_mac: true, ..Quirks::default() };
    let Some(bed) = started_with(&Options { quirks, ..Options::default() }) else { return };
    let general = miniport(bed.machines()[0]).attributes().general.unwrap();
    assert_eq!(general.PermanentMacAddress, general.CurrentMacAddress);
    let [first, rest @ ..] = &general.PermanentMacAddress[..6] else { unreachable!() };
    assert_eq!(*first, 2);
    assert!(rest.iter().any(|byte| *byte != rest[0]), "{rest:x?} is not random");
    finish(bed);
}

/// Runs `check` on a machine with a device of this MTU and these features.
fn with_mtu(mtu: u16, features: Features, check: impl FnOnce(&Machine)) {
    let Some(image) = image() else { return };
    let mut sim = ndis_sim::builder().clock(ClockKind::Deterministic { seed: 0 }).build();
    let adapter = AdapterOptions::new([2, 0, 0, 0, 0, 1], vec![(Ipv4Addr::new(10, 0, 0, 1).into(), 24)]);
    let adapter = AdapterOptions { features, queue_sizes: [1024; 2], ..adapter };
    let options = MachineOptions { mtu, path_mtu: 1024, ..MachineOptions::new("alpha", vec![adapter]) };
    let mut machine = Machine::new(&mut sim, &image, &options).expect("the image can be loaded");
    machine.start().unwrap_or_else(|error| panic!("MTU {mtu}: {error}\n{}", sim.verdict()));
    check(&machine);
    machine.stop().expect("the driver stops");
    assert!(sim.verdict().is_clean(), "{}", sim.verdict());
}

/// The driver must have room for each frame that the device's MTU allows, in 8 MiB at most, if a frame takes one buffer.
#[test]
fn number_of_receive_buffers_is_limited_by_their_memory() {
    for (mtu, buffers) in [(1500, 1024), (8174, 1024), (8175, 512), (65_535, 64)] {
        let features = Features::DEFAULT.without(Features::MRG_RXBUF);
        with_mtu(mtu, features, |machine| assert_eq!(machine.nic().queue_sizes()[0], buffers, "MTU {mtu}"));
    }
}

/// An MTU of the device below the minimum of IPv4 does not count: the driver does not accept the feature.
#[test]
fn frames_are_as_long_as_the_mtu_allows() {
    for (mtu, frame) in [(1500, 1514), (1000, 1014), (577, 591), (576, 590), (575, 1514), (68, 1514)] {
        with_mtu(mtu, Features::DEFAULT, |machine| {
            let answer = miniport(machine).query(OID_GEN_MAXIMUM_TOTAL_SIZE, 4).unwrap();
            assert_eq!(word(&answer, 0), frame, "MTU {mtu}");
        });
    }
}

#[test]
fn oids_of_an_ethernet_adapter_are_answered() {
    let Some(bed) = started(&[]) else { return };
    let miniport = miniport(bed.machines()[0]);
    let frame = word(&miniport.query(OID_GEN_MAXIMUM_TOTAL_SIZE, 4).unwrap(), 0);
    for oid in [OID_GEN_RECEIVE_BLOCK_SIZE, OID_GEN_TRANSMIT_BLOCK_SIZE, OID_GEN_CURRENT_LOOKAHEAD] {
        assert_eq!(word(&miniport.query(oid, 4).unwrap(), 0), frame, "{oid:#x}");
    }
    for oid in [OID_GEN_RECEIVE_BUFFER_SPACE, OID_GEN_TRANSMIT_BUFFER_SPACE] {
        assert_eq!(word(&miniport.query(oid, 4).unwrap(), 0), 256 * frame, "{oid:#x}");
    }
    assert_eq!(word(&miniport.query(OID_GEN_VENDOR_ID, 4).unwrap(), 0), 0x00FF_FFFF);
    let number = |text: &str| text.parse::<u32>().unwrap();
    let version = number(env!("CARGO_PKG_VERSION_MAJOR")) << 16 | number(env!("CARGO_PKG_VERSION_MINOR"));
    assert_eq!(word(&miniport.query(OID_GEN_VENDOR_DRIVER_VERSION, 4).unwrap(), 0), version);
    // The look-ahead may be as long as the longest frame.
    let set = |value: u32| miniport.set(OID_GEN_CURRENT_LOOKAHEAD, &value.to_le_bytes());
    for value in [128, frame] {
        set(value).unwrap();
        assert_eq!(word(&miniport.query(OID_GEN_CURRENT_LOOKAHEAD, 4).unwrap(), 0), value);
    }
    assert_eq!(set(frame + 1).unwrap_err().status, NDIS_STATUS_INVALID_DATA);
    assert_eq!(word(&miniport.query(OID_GEN_CURRENT_LOOKAHEAD, 4).unwrap(), 0), frame);
    // Type, revision and size; no flags; moderation is on (2), or off (3).
    let moderation = |value: u8| [0x80, 1, 12, 0, 0, 0, 0, 0, value, 0, 0, 0];
    for value in [2, 3, 2] {
        miniport.set(OID_GEN_INTERRUPT_MODERATION, &moderation(value)).unwrap();
        assert_eq!(miniport.query(OID_GEN_INTERRUPT_MODERATION, 12).unwrap(), moderation(value));
    }
    for value in [0, 1, 4] {
        let refused = miniport.set(OID_GEN_INTERRUPT_MODERATION, &moderation(value)).unwrap_err();
        assert_eq!(refused.status, NDIS_STATUS_INVALID_DATA, "{value}");
    }
    let refused = miniport.set(OID_GEN_INTERRUPT_MODERATION, &moderation(2)[..11]).unwrap_err();
    assert_eq!((refused.status, refused.needed), (NDIS_STATUS_INVALID_LENGTH, 12));
    // Type, revision and size. What follows has no effect.
    let mut link = [[0x80, 1, 0x20, 0], [0; 4]].concat();
    link.resize(40, 0);
    miniport.set(OID_GEN_LINK_PARAMETERS, &link).unwrap();
    miniport.set(OID_GEN_LINK_PARAMETERS, &link[..32]).unwrap();
    for length in [0, 4, 31] {
        let refused = miniport.set(OID_GEN_LINK_PARAMETERS, &link[..length]).unwrap_err();
        assert_eq!((refused.status, refused.needed), (NDIS_STATUS_INVALID_LENGTH, 32), "{length} bytes");
    }
    for (at, wrong) in [(0, 0x81), (1, 0), (2, 0x1f)] {
        let mut link = link.clone();
        link[at] = wrong;
        let refused = miniport.set(OID_GEN_LINK_PARAMETERS, &link).unwrap_err();
        assert_eq!(refused.status, NDIS_STATUS_INVALID_PARAMETER);
    }
    finish(bed);
}

/// Frames of all three kinds, in different numbers.
#[test]
fn counters_of_directed_multicast_and_broadcast_frames_add_up() {
    let Some(bed) = started(&[]) else { return };
    let [from, to] = bed.machines();
    let (sender, own) = (miniport(from), from.nic().mac());
    let groups = [[1, 0, 0x5E, 0, 0, 1]; 4];
    // The device drops frames to groups that are not asked for.
    miniport(to).set(OID_GEN_CURRENT_PACKET_FILTER, &NDIS_PACKET_TYPE_ALL_MULTICAST.to_le_bytes()).unwrap();
    for target in [[0xFF; 6], to.nic().mac(), to.nic().mac()].iter().chain(&groups) {
        let frame = [&target[..], &own, &[0x88, 0xB5], &[0; 46]].concat();
        assert_eq!(sender.send(&frame, Duration::from_secs(5)), Some(NDIS_STATUS_SUCCESS));
    }
    // Frames without a whole header are not sent.
    for _ in 0..3 {
        assert_ne!(sender.send(&[0xFF; 13], Duration::from_secs(5)), Some(NDIS_STATUS_SUCCESS));
    }
    let all = sender.query(OID_GEN_STATISTICS, 152).unwrap();
    assert_eq!(counter(&all, 88), 3);
    // NDIS_STATISTICS_FLAGS_VALID_*: all of them.
    assert_eq!(word(&all, 4), 0x003f_87ff);
    for (machine, ok, packets, octets) in [
        (from, OID_GEN_XMIT_OK, [64, 72, 80], [56, 128, 136, 144]),
        (to, OID_GEN_RCV_OK, [32, 40, 48], [24, 104, 112, 120]),
    ] {
        let miniport = miniport(machine);
        // Once the frames have arrived; others may be sent meanwhile.
        let mut attempts = 0;
        let (all, wide) = loop {
            let before = miniport.query(ok, 8).unwrap();
            let all = miniport.query(OID_GEN_STATISTICS, 152).unwrap();
            let has_arrived = counter(&all, packets[1]) >= 4 && counter(&all, packets[0]) >= 2;
            if has_arrived && miniport.query(ok, 8).unwrap() == before {
                break (all, before);
            }
            attempts += 1;
            assert!(attempts < 500, "the frames do not arrive");
            let _ = bed.event().wait(Duration::from_millis(10));
        };
        assert_eq!(wide.len(), 8);
        let [directed, multicast, broadcast] = packets.map(|at| counter(&all, at));
        assert!(directed >= 2 && multicast >= 4 && broadcast >= 1, "{directed}, {multicast}, {broadcast}");
        assert_eq!(directed + multicast + broadcast, counter(&wide, 0));
        let [total, parts @ ..] = octets.map(|at| counter(&all, at));
        assert_eq!(parts.into_iter().sum::<u64>(), total);
        let [_, multicast, broadcast] = parts;
        assert!(multicast >= 4 * 60 && broadcast >= 60, "{multicast} and {broadcast} bytes");
        // A buffer of 32 bits gets the low half.
        let narrow = miniport.query(ok, 4).unwrap();
        assert!(u64::from(word(&narrow, 0)) >= counter(&wide, 0));
        assert_eq!(miniport.query(ok, 3).unwrap_err().status, NDIS_STATUS_BUFFER_TOO_SHORT);
    }
    finish(bed);
}

/// Frames are ECN-capable if the rate reacts to marks, and only then.
#[test]
fn frames_are_ecn_capable_if_congestion_control_reacts() {
    for (value, capable) in [("0", false), ("1", false), ("2", true)] {
        let capture = captures::path(&format!("congestion control {value}"));
        let keywords = vec![("RoCECongestionControl", Keyword::Text(value.into()))];
        let options = Options { keywords, capture: Some(capture.clone()), ..Options::default() };
        let Some(bed) = started_with(&options) else { return };
        for end in try_copy(&bed, 1 << 16, |_| {}) {
            end.expect("the data is copied");
        }
        finish(bed);
        let frames = fs::read(capture).unwrap();
        // IPv4 and UDP to port 4791, with the service class at 15.
        let is_roce = |frame: &&[u8]| {
            frame[12..15] == [8, 0, 0x45] && frame[23] == 17 && frame[36..38] == 4791_u16.to_be_bytes()
        };
        let marks: Vec<u8> = frames.windows(38).filter(is_roce).map(|frame| frame[15] & 3).collect();
        assert!(marks.len() > 16, "{} frames", marks.len());
        assert_eq!(marks.iter().any(|mark| *mark != 0), capable, "RoCECongestionControl {value}");
    }
}

/// The link marks the frames of the first host, which reacts to congestion. The second one notifies it, unless it ignores marks.
#[test]
fn congestion_notifications_are_sent_unless_marks_are_ignored() {
    const KEYWORD: &str = "RoCECongestionControl";
    let Some(image) = image() else { return };
    for (value, notifies) in [("0", false), ("1", true), ("2", true)] {
        let keywords = vec![(KEYWORD, Keyword::Text("2".into()))];
        let mut bed = Testbed::new(&image, &Options { keywords, ..Options::default() }).unwrap();
        bed.machines()[1].host().set_keyword(KEYWORD, Keyword::Text(value.into()));
        bed.wire().set_faults(0, Faults { marking: 1.0, ..Faults::NONE });
        bed.start().expect("both drivers start");
        for end in try_copy(&bed, 1 << 16, |_| {}) {
            end.expect("the data is copied");
        }
        assert!(bed.wire().counters(0).marked > 16);
        let sent = bed.machines()[1].counters()["tx_cnp"];
        assert_eq!(sent != 0, notifies, "{KEYWORD} {value}: {sent} notifications");
        finish(bed);
    }
}

/// Without early placement, what follows a lost packet is dropped, and the peer sends all of it again.
#[test]
fn packets_after_a_lost_one_are_sent_again_without_early_placement() {
    let frames = ["1", "0"].map(|value| {
        let keywords = vec![("RoCEEarlyPlacement", Keyword::Text(value.into()))];
        let faults = Faults { loss: 0.01, ..Faults::NONE };
        // Losses behind a queue make the window smaller: on this link, there is none.
        let options =
            Options { keywords, faults, path_mtu: 1024, rate: 400_000_000_000, ..Options::default() };
        let bed = started_with(&options)?;
        for end in try_copy(&bed, 1 << 20, |_| {}) {
            end.expect("the data is copied");
        }
        assert!([0, 1].iter().any(|&end| bed.wire().counters(end).lost > 3), "frames were lost");
        let frames = bed.wire_figures().frames;
        finish(bed);
        Some(frames)
    });
    let [Some(with), Some(without)] = frames else { return };
    assert!(without > with + 1000, "{with} frames with early placement, {without} without");
}
