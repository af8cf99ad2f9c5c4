// SPDX-License-Identifier: MIT OR Apache-2.0

//! Announcements of an adapter's addresses that its device asks for, as after a migration. (virtio GUEST_ANNOUNCE)

use std::time::Duration;

use device_sim::{Quirks, virtio_net::Features};
use lab::{
    machine::Machine,
    testbed::{Options, Testbed},
};
use ndis_sim::{Keyword, Miniport};
use ndk_abi::ndis::{
    NDIS_PACKET_TYPE_PROMISCUOUS, NDIS_STATUS_INVALID_DATA, NDIS_STATUS_INVALID_LENGTH,
    OID_GEN_CURRENT_PACKET_FILTER, OID_GEN_NETWORK_LAYER_ADDRESSES, OID_GEN_STATISTICS,
};
use smoltcp::{
    phy::ChecksumCapabilities,
    wire::{
        ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, Icmpv6Packet,
        Icmpv6Repr, Ipv4Address, Ipv6Address, Ipv6Packet, NdiscNeighborFlags, NdiscRepr, RawHardwareAddress,
    },
};
use support::bed::{counter, finish, miniport, started, started_with};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// `NDIS_PROTOCOL_ID_TCP_IP`, `NDIS_PROTOCOL_ID_IP6`, and another.
const IP: u16 = 2;
const IP6: u16 = 3;
const IPX: u16 = 6;
/// Offsets of packets in NDIS_STATISTICS_INFO.
const OUT_MULTICAST: usize = 72;
const OUT_BROADCAST: usize = 80;
/// Event numbers of the driver's event table.
const COMMAND_TIMEOUT: u32 = 28;
const RECOVERED: u32 = 41;

/// A NETWORK_ADDRESS_LIST.
fn list(protocol: u16, addresses: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut list = [&(addresses.len() as u32).to_le_bytes()[..], &protocol.to_le_bytes()].concat();
    for (kind, address) in addresses {
        list.extend((address.len() as u16).to_le_bytes());
        list.extend(kind.to_le_bytes());
        list.extend(address);
    }
    list
}

/// A NETWORK_ADDRESS_IP: port, address, zeros; and a NETWORK_ADDRESS_IP6: port, flow, address, scope.
fn ip(address: Ipv4Address) -> (u16, Vec<u8>) {
    (IP, [&[0; 4], &address.octets()[..], &[0; 8]].concat())
}

fn ip6(address: Ipv6Address) -> (u16, Vec<u8>) {
    (IP6, [&[0; 8], &address.octets()[..], &[0; 4]].concat())
}

const V4: [Ipv4Address; 2] = [Ipv4Address::new(10, 0, 0, 1), Ipv4Address::new(192, 0, 2, 77)];
const V6: Ipv6Address = Ipv6Address::new(0xfe80, 0, 0, 0, 0xffff, 0xfedc, 0xba98, 0x7654);

fn set(miniport: &Miniport, list: &[u8]) {
    miniport.set(OID_GEN_NETWORK_LAYER_ADDRESSES, list).unwrap();
}

/// What an announcement says: an ARP request or an advertisement for this address.
#[derive(Debug, PartialEq, Eq)]
enum Announced {
    V4(Ipv4Address),
    V6(Ipv6Address),
}

fn parse(frame: &[u8]) -> Announced {
    let ethernet = EthernetFrame::new_checked(frame).unwrap();
    let mac = EthernetAddress(MAC);
    assert_eq!(ethernet.src_addr(), mac);
    if ethernet.ethertype() == EthernetProtocol::Arp {
        assert!(ethernet.dst_addr().is_broadcast());
        let ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr,
            source_protocol_addr,
            target_protocol_addr,
            ..
        } = ArpRepr::parse(&ArpPacket::new_checked(ethernet.payload()).unwrap()).unwrap()
        else {
            panic!("another kind of ARP")
        };
        assert_eq!((operation, source_hardware_addr), (ArpOperation::Request, mac));
        assert_eq!(source_protocol_addr, target_protocol_addr);
        return Announced::V4(source_protocol_addr);
    }
    assert_eq!(ethernet.dst_addr(), EthernetAddress([0x33, 0x33, 0, 0, 0, 1]));
    let packet = Ipv6Packet::new_checked(ethernet.payload()).unwrap();
    assert_eq!((packet.hop_limit(), packet.dst_addr()), (255, Ipv6Address::new(0xff02, 0, 0, 0, 0, 0, 0, 1)));
    let message = Icmpv6Packet::new_checked(packet.payload()).unwrap();
    let checksums = ChecksumCapabilities::default();
    let parsed = Icmpv6Repr::parse(&packet.src_addr(), &packet.dst_addr(), &message, &checksums).unwrap();
    let Icmpv6Repr::Ndisc(NdiscRepr::NeighborAdvert { flags, target_addr, lladdr }) = parsed else {
        panic!("{parsed:?}")
    };
    assert_eq!(flags, NdiscNeighborFlags::OVERRIDE);
    assert_eq!((target_addr, lladdr), (packet.src_addr(), Some(RawHardwareAddress::from(mac))));
    Announced::V6(target_addr)
}

/// Has the first device ask for an announcement. Returns what the second host receives, once it was acknowledged.
fn announced(bed: &Testbed) -> Vec<Vec<u8>> {
    let [first, second] = bed.machines();
    let receiver = miniport(second);
    receiver.set(OID_GEN_CURRENT_PACKET_FILTER, &NDIS_PACKET_TYPE_PROMISCUOUS.to_le_bytes()).unwrap();
    let _ = receiver.received();
    first.nic().announce();
    let deadline = bed.now() + Duration::from_secs(20);
    while first.nic().is_announcement_asked() {
        assert!(bed.now() < deadline, "not acknowledged\n{}", bed.violations().join("\n"));
        let _ = bed.event().wait(Duration::from_millis(1));
    }
    let _ = bed.event().wait(Duration::from_millis(20));
    receiver.received()
}

fn events(machine: &Machine) -> Vec<u32> {
    machine.event_log().iter().map(|entry| entry.code & 0xffff).collect()
}

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
fn device_that_does_not_take_the_acknowledgment_is_reset() {
    // After the filters of the start, which take three commands and no command for VLANs.
    let quirks = Quirks { commands_unanswered_from: Some(4), ..Quirks::default() };
    let Some(bed) = started_with(&Options { quirks, ..Options::default() }) else { return };
    bed.machines()[0].nic().announce();
    let _ = bed.event().wait(Duration::from_secs(3));
    let all = events(bed.machines()[0]);
    assert_eq!(all[..2], [COMMAND_TIMEOUT, RECOVERED], "{all:?}");
    finish(bed);
}
