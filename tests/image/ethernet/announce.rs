// SPDX-License-Identifier: MIT OR Apache-2.0

//! Announcements of an adapter's addresses that its device asks for, as after a migration. (virtio GUEST_ANNOUNCE)

use std::time::Duration;

use device_sim::virtio_net::Features;
use lab::{
    image,
    testbed::{Options, Testbed},
};
use ndis_sim::Keyword;
use ndk_abi::ndis::{
    NDIS_PACKET_TYPE_PROMISCUOUS, NDIS_STATUS_INVALID_DATA, NDIS_STATUS_INVALID_LENGTH,
    OID_GEN_CURRENT_PACKET_FILTER, OID_GEN_NETWORK_LAYER_ADDRESSES, OID_GEN_STATISTICS,
};
use smoltcp::wire::Ipv4Address;
use support::{
    announcements::{
        Announced, COMMAND_LATE, IP, IP6, IPX, OUT_BROADCAST, OUT_MULTICAST, V4, V6, announced, events, ip,
        ip6, list, parse, set,
    },
    bed::{counter, finish, miniport, started, started_with},
};

#[test]
fn addresses_are_announced_and_the_request_is_acknowledged_in_every_ring_format() {
    for features in [Features::DEFAULT, Features::DEFAULT | Features::RING_PACKED] {
        let Some(bed) = started_with(&Options { features, ..Options::default() }) else { return };
        let sender = miniport(bed.machines()[0]);
        assert_eq!(announced(&bed), [[0; 0]; 0], "no addresses: acknowledged all the same");
        set(&sender, &list(IP, &V4.map(ip)));
        set(&sender, &list(IP6, &[ip6(V6)]));
        // A protocol without announcements.
        set(&sender, &list(IPX, &[(IPX, vec![1; 10])]));
        let sent = || {
            let all = sender.query(OID_GEN_STATISTICS, 0x98).unwrap();
            [OUT_MULTICAST, OUT_BROADCAST].map(|at| counter(&all, at))
        };
        for _ in 0..2 {
            let before = sent();
            let frames: Vec<_> = announced(&bed).iter().map(|frame| parse(frame)).collect();
            assert_eq!(frames, [Announced::V4(V4[0]), Announced::V4(V4[1]), Announced::V6(V6)]);
            assert_eq!(sent(), [before[0] + 1, before[1] + 2]);
        }
        // Each list replaces that of its protocol.
        set(&sender, &list(IP, &[ip(V4[1]), (IPX, vec![1; 10])]));
        set(&sender, &list(IP6, &[]));
        let frames: Vec<_> = announced(&bed).iter().map(|frame| parse(frame)).collect();
        assert_eq!(frames, [Announced::V4(V4[1])]);
        assert_eq!(events(bed.machines()[0]), [0_u32; 0]);
        finish(bed);
    }
}

/// The device asked while no driver was there: its interrupt came to none.
#[test]
fn a_request_that_was_made_before_the_start_is_acknowledged() {
    let Some(image) = image() else { return };
    let mut bed = Testbed::new(&image, &Options::default()).expect("the image can be loaded");
    bed.machines()[0].nic().announce();
    bed.start().expect("both drivers start");
    let _ = bed.event().wait(Duration::from_secs(5));
    assert!(!bed.machines()[0].nic().is_announcement_asked());
    finish(bed);
}

#[test]
fn more_addresses_than_are_kept_are_accepted() {
    let Some(bed) = started(&[]) else { return };
    let sender = miniport(bed.machines()[0]);
    let many: Vec<_> = (0..100).map(|last| ip(Ipv4Address::new(10, 1, 1, last))).collect();
    set(&sender, &list(IP, &many));
    assert_eq!(announced(&bed).len(), 12);
    finish(bed);
}

#[test]
fn malformed_lists_get_their_documented_status_and_change_nothing() {
    let Some(bed) = started(&[]) else { return };
    let sender = miniport(bed.machines()[0]);
    set(&sender, &list(IP, &[ip(V4[0])]));
    let right = list(IP, &V4.map(ip));
    let changed = |at: usize, value: u8| {
        let mut list = right.clone();
        list[at] = value;
        list
    };
    let short = list(IP, &[(IP, vec![0; 7])]);
    let short6 = list(IP6, &[(IP6, vec![0; 23])]);
    for len in 0..right.len() {
        let error = sender.set(OID_GEN_NETWORK_LAYER_ADDRESSES, &right[..len]).unwrap_err();
        assert_eq!(error.status, NDIS_STATUS_INVALID_LENGTH, "{len} bytes");
        // Number and type of the addresses, of which a list has one at least.
        assert_eq!(error.needed, if len < 6 { 6 } else { 0 }, "{len} bytes");
    }
    for (list, status) in [
        // More addresses than bytes; a negative number; an address that is longer than the list.
        (changed(0, 3), NDIS_STATUS_INVALID_LENGTH),
        (changed(3, 0x80), NDIS_STATUS_INVALID_DATA),
        (changed(3, 0x7f), NDIS_STATUS_INVALID_LENGTH),
        (changed(27, 0xff), NDIS_STATUS_INVALID_LENGTH),
        (short, NDIS_STATUS_INVALID_LENGTH),
        (short6, NDIS_STATUS_INVALID_LENGTH),
    ] {
        let error = sender.set(OID_GEN_NETWORK_LAYER_ADDRESSES, &list).unwrap_err();
        assert_eq!(error.status, status, "{list:02x?}");
    }
    let frames: Vec<_> = announced(&bed).iter().map(|frame| parse(frame)).collect();
    assert_eq!(frames, [Announced::V4(V4[0])]);
    finish(bed);
}

#[test]
fn announcement_is_in_the_adapters_vlan() {
    let keywords = vec![("VlanID", Keyword::Text("5".into()))];
    let Some(bed) = started_with(&Options { keywords, ..Options::default() }) else { return };
    set(&miniport(bed.machines()[0]), &list(IP, &[ip(V4[0])]));
    // The second host is in the VLAN, too.
    let frames: Vec<_> = announced(&bed).iter().map(|frame| parse(frame)).collect();
    assert_eq!(frames, [Announced::V4(V4[0])]);
    finish(bed);
}

/// A device that was reset, or had no power, may still ask.
#[test]
fn request_that_is_made_while_the_device_does_not_run_is_answered_when_it_does() {
    let Some(bed) = started(&[]) else { return };
    let [first, second] = bed.machines();
    let (sender, receiver) = (miniport(first), miniport(second));
    set(&sender, &list(IP6, &[ip6(V6)]));
    receiver.set(OID_GEN_CURRENT_PACKET_FILTER, &NDIS_PACKET_TYPE_PROMISCUOUS.to_le_bytes()).unwrap();
    sender.sleep().unwrap();
    let _ = receiver.received();
    first.nic().announce();
    sender.wake().unwrap();
    let _ = bed.event().wait(Duration::from_millis(100));
    assert!(!first.nic().is_announcement_asked());
    let frames: Vec<_> = receiver.received().iter().map(|frame| parse(frame)).collect();
    assert_eq!(frames, [Announced::V6(V6)]);
    finish(bed);
}

#[test]
fn acknowledgment_that_the_device_does_not_take_is_waited_for() {
    let Some(bed) = started(&[]) else { return };
    let machine = bed.machines()[0];
    machine.nic().pause_commands(Duration::from_secs(5));
    machine.nic().announce();
    let _ = bed.event().wait(Duration::from_secs(4));
    assert!(machine.nic().is_announcement_asked());
    assert_eq!(events(machine), [COMMAND_LATE]);
    let _ = bed.event().wait(Duration::from_secs(2));
    assert!(!machine.nic().is_announcement_asked());
    finish(bed);
}
