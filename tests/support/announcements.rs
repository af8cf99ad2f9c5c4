// SPDX-License-Identifier: MIT OR Apache-2.0

//! Announcements of an adapter's addresses that its device asks for, as after a migration. (virtio GUEST_ANNOUNCE)

use std::time::Duration;

use crate::bed::miniport;
use lab::{machine::Machine, testbed::Testbed};
use ndis_sim::Miniport;
use ndk_abi::ndis::{
    NDIS_PACKET_TYPE_PROMISCUOUS, OID_GEN_CURRENT_PACKET_FILTER, OID_GEN_NETWORK_LAYER_ADDRESSES,
};
use smoltcp::{
    phy::ChecksumCapabilities,
    wire::{
        ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, Icmpv6Packet,
        Icmpv6Repr, Ipv4Address, Ipv6Address, Ipv6Packet, NdiscNeighborFlags, NdiscRepr, RawHardwareAddress,
    },
};

pub const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// `NDIS_PROTOCOL_ID_TCP_IP`, `NDIS_PROTOCOL_ID_IP6`, and another.
pub const IP: u16 = 2;
pub const IP6: u16 = 3;
pub const IPX: u16 = 6;

/// Offsets of packets in NDIS_STATISTICS_INFO.
pub const OUT_MULTICAST: usize = 72;
pub const OUT_BROADCAST: usize = 80;

/// Event numbers of the driver's event table.
pub const COMMAND_LATE: u32 = 28;
pub const RECOVERED: u32 = 41;

/// A NETWORK_ADDRESS_LIST.
pub fn list(protocol: u16, addresses: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut list = [&(addresses.len() as u32).to_le_bytes()[..], &protocol.to_le_bytes()].concat();
    for (kind, address) in addresses {
        list.extend((address.len() as u16).to_le_bytes());
        list.extend(kind.to_le_bytes());
        list.extend(address);
    }
    list
}

/// A NETWORK_ADDRESS_IP: port, address, zeros; and a NETWORK_ADDRESS_IP6: port, flow, address, scope.
pub fn ip(address: Ipv4Address) -> (u16, Vec<u8>) {
    (IP, [&[0; 4], &address.octets()[..], &[0; 8]].concat())
}

pub fn ip6(address: Ipv6Address) -> (u16, Vec<u8>) {
    (IP6, [&[0; 8], &address.octets()[..], &[0; 4]].concat())
}

pub const V4: [Ipv4Address; 2] = [Ipv4Address::new(10, 0, 0, 1), Ipv4Address::new(192, 0, 2, 77)];
pub const V6: Ipv6Address = Ipv6Address::new(0xfe80, 0, 0, 0, 0xffff, 0xfedc, 0xba98, 0x7654);

pub fn set(miniport: &Miniport, list: &[u8]) {
    miniport.set(OID_GEN_NETWORK_LAYER_ADDRESSES, list).unwrap();
}

/// Content of an announcement: an ARP request or an advertisement for this address.
#[derive(Debug, PartialEq, Eq)]
pub enum Announced {
    V4(Ipv4Address),
    V6(Ipv6Address),
}

pub fn parse(frame: &[u8]) -> Announced {
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
pub fn announced(bed: &Testbed) -> Vec<Vec<u8>> {
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

pub fn events(machine: &Machine) -> Vec<u32> {
    machine.event_log().iter().map(|entry| entry.code & 0xffff).collect()
}
