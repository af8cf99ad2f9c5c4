// SPDX-License-Identifier: MIT OR Apache-2.0

//! The frames of a host's IP stack: ARP, neighbor discovery, echo.
//!
//! Pure functions: from a frame and the host's addresses to an answer and an update of the neighbor cache. smoltcp
//! encodes and decodes the formats. (RFC 826, RFC 792, RFC 4443, RFC 4861)

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use smoltcp::{
    phy::ChecksumCapabilities,
    wire::{
        ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr,
        Icmpv4Packet, Icmpv4Repr, Icmpv6Packet, Icmpv6Repr, IpProtocol, Ipv4Packet, Ipv4Repr, Ipv6Packet,
        Ipv6Repr, NdiscNeighborFlags, NdiscRepr, RawHardwareAddress,
    },
};

pub type Mac = [u8; 6];

/// Hop limit of neighbor discovery messages: proves that they were sent on the link. (RFC 4861 §7.1)
const HOP_LIMIT: u8 = 255;
const ECHO_HOP_LIMIT: u8 = 64;

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// An update of the neighbor cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Learned {
    pub address: IpAddr,
    pub mac: Mac,
    pub how: How,
}

/// Kind of frame that an update comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// An answer to this host: the neighbor is reachable.
    Answered,
    /// A request to this host that contains the sender's link address.
    Asked,
    /// An unsolicited announcement. Ignored unless the neighbor is known.
    Announced,
}

/// Reaction to a frame.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Reaction {
    pub learned: Option<Learned>,
    pub answer: Option<Vec<u8>>,
}

/// Returns the address that a frame of another node claims. A host must not use that address if it is tentative.
/// (RFC 4862 §5.4, RFC 5227 §2.1.1)
pub fn claim(mac: Mac, frame: &[u8]) -> Option<IpAddr> {
    let ethernet = EthernetFrame::new_checked(frame).ok()?;
    if ethernet.src_addr().0 == mac {
        return None;
    }
    match ethernet.ethertype() {
        EthernetProtocol::Arp => {
            let packet = ArpPacket::new_checked(ethernet.payload()).ok()?;
            let ArpRepr::EthernetIpv4 { source_protocol_addr: sender, target_protocol_addr: target, .. } =
                ArpRepr::parse(&packet).ok()?
            else {
                return None;
            };
            Some(if sender.is_unspecified() { target } else { sender }.into())
        }
        EthernetProtocol::Ipv6 => {
            let packet = Ipv6Packet::new_checked(ethernet.payload()).ok()?;
            let header = Ipv6Repr::parse(&packet).ok()?;
            if header.next_header != IpProtocol::Icmpv6 || header.hop_limit != HOP_LIMIT {
                return None;
            }
            let message = Icmpv6Packet::new_checked(packet.payload()).ok()?;
            let checksums = ChecksumCapabilities::default();
            match Icmpv6Repr::parse(&header.src_addr, &header.dst_addr, &message, &checksums).ok()? {
                Icmpv6Repr::Ndisc(NdiscRepr::NeighborAdvert { target_addr, .. }) => Some(target_addr.into()),
                Icmpv6Repr::Ndisc(NdiscRepr::NeighborSolicit { target_addr, .. })
                    if header.src_addr.is_unspecified() =>
                {
                    Some(target_addr.into())
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// Processes a frame for the host with the link address `mac` and these addresses. Malformed frames and those for
/// other nodes have no effect.
pub fn react(mac: Mac, addresses: &[IpAddr], frame: &[u8]) -> Reaction {
    let Ok(ethernet) = EthernetFrame::new_checked(frame) else { return Reaction::default() };
    let (from, payload) = (ethernet.src_addr(), ethernet.payload());
    let reaction = match ethernet.ethertype() {
        EthernetProtocol::Arp => arp(mac, addresses, payload),
        EthernetProtocol::Ipv4 => ipv4(mac, addresses, from, payload),
        EthernetProtocol::Ipv6 => ipv6(mac, addresses, from, payload),
        EthernetProtocol::Unknown(_) => None,
    };
    reaction.unwrap_or_default()
}

fn arp(mac: Mac, addresses: &[IpAddr], packet: &[u8]) -> Option<Reaction> {
    let ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: from,
        source_protocol_addr: sender,
        target_protocol_addr: target,
        ..
    } = ArpRepr::parse(&ArpPacket::new_checked(packet).ok()?).ok()?
    else {
        return None;
    };
    let for_us = addresses.contains(&target.into());
    let how = match operation {
        _ if sender == target => How::Announced,
        ArpOperation::Request if for_us => How::Asked,
        ArpOperation::Reply if for_us => How::Answered,
        _ => How::Announced,
    };
    // The sender of an ARP probe has no address yet.
    let usable = from.is_unicast() && !sender.is_unspecified();
    let learned = usable.then(|| Learned { address: sender.into(), mac: from.0, how });
    let answer = (operation == ArpOperation::Request && for_us).then(|| {
        let answer = ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Reply,
            source_hardware_addr: EthernetAddress(mac),
            source_protocol_addr: target,
            target_hardware_addr: from,
            target_protocol_addr: sender,
        };
        arp_frame(mac, from, &answer)
    });
    Some(Reaction { learned, answer })
}

fn ipv4(mac: Mac, addresses: &[IpAddr], from: EthernetAddress, packet: &[u8]) -> Option<Reaction> {
    let checksums = ChecksumCapabilities::default();
    let packet = Ipv4Packet::new_checked(packet).ok()?;
    let header = Ipv4Repr::parse(&packet, &checksums).ok()?;
    // Fragments are not reassembled.
    if header.next_header != IpProtocol::Icmp
        || packet.more_frags()
        || packet.frag_offset() != 0
        || !addresses.contains(&header.dst_addr.into())
    {
        return None;
    }
    let message = Icmpv4Packet::new_checked(packet.payload()).ok()?;
    let Icmpv4Repr::EchoRequest { ident, seq_no, data } = Icmpv4Repr::parse(&message, &checksums).ok()?
    else {
        return None;
    };
    let answer = Icmpv4Repr::EchoReply { ident, seq_no, data };
    let header = Ipv4Repr {
        src_addr: header.dst_addr,
        dst_addr: header.src_addr,
        next_header: IpProtocol::Icmp,
        payload_len: answer.buffer_len(),
        hop_limit: ECHO_HOP_LIMIT,
    };
    let answer =
        ethernet(mac, from, EthernetProtocol::Ipv4, header.buffer_len() + answer.buffer_len(), |to| {
            let mut packet = Ipv4Packet::new_unchecked(to);
            header.emit(&mut packet, &checksums);
            answer.emit(&mut Icmpv4Packet::new_unchecked(packet.payload_mut()), &checksums);
        });
    Some(Reaction { learned: None, answer: Some(answer) })
}

fn ipv6(mac: Mac, addresses: &[IpAddr], from: EthernetAddress, packet: &[u8]) -> Option<Reaction> {
    let packet = Ipv6Packet::new_checked(packet).ok()?;
    let header = Ipv6Repr::parse(&packet).ok()?;
    if header.next_header != IpProtocol::Icmpv6 {
        return None;
    }
    let (sender, to) = (header.src_addr, header.dst_addr);
    let message = Icmpv6Packet::new_checked(packet.payload()).ok()?;
    let is_own = |address: Ipv6Addr| addresses.contains(&address.into());
    let message = Icmpv6Repr::parse(&sender, &to, &message, &ChecksumCapabilities::default()).ok()?;
    match message {
        Icmpv6Repr::EchoRequest { ident, seq_no, data } if is_own(to) => {
            let answer = Icmpv6Repr::EchoReply { ident, seq_no, data };
            let answer = icmpv6_frame(mac, from, to, sender, ECHO_HOP_LIMIT, &answer);
            Some(Reaction { learned: None, answer: Some(answer) })
        }
        Icmpv6Repr::Ndisc(message) if header.hop_limit == HOP_LIMIT => match message {
            NdiscRepr::NeighborSolicit { target_addr, lladdr } if is_own(target_addr) => {
                // The sender has no address yet (duplicate address detection): the answer goes to all nodes.
                let detects = sender.is_unspecified();
                let link = lladdr.and_then(link_address).filter(|_| !detects);
                let learned = link.map(|mac| Learned { address: sender.into(), mac, how: How::Asked });
                let (link, receiver) =
                    if detects { (multicast(ALL_NODES), ALL_NODES) } else { (from, sender) };
                let answer = advert(mac, target_addr, !detects);
                let answer = icmpv6_frame(mac, link, target_addr, receiver, HOP_LIMIT, &answer);
                Some(Reaction { learned, answer: Some(answer) })
            }
            NdiscRepr::NeighborAdvert { flags, target_addr, lladdr } => {
                let how = if flags.contains(NdiscNeighborFlags::SOLICITED) && is_own(to) {
                    How::Answered
                } else {
                    How::Announced
                };
                let mac = link_address(lladdr?)?;
                let learned = Learned { address: target_addr.into(), mac, how };
                Some(Reaction { learned: Some(learned), answer: None })
            }
            _ => None,
        },
        _ => None,
    }
}

/// Builds a request for the link address of `target`, from an address of the same family.
pub fn solicitation(mac: Mac, source: IpAddr, target: IpAddr) -> Option<Vec<u8>> {
    match (source, target) {
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            let request = ArpRepr::EthernetIpv4 {
                operation: ArpOperation::Request,
                source_hardware_addr: EthernetAddress(mac),
                source_protocol_addr: source,
                target_hardware_addr: EthernetAddress([0; 6]),
                target_protocol_addr: target,
            };
            Some(arp_frame(mac, EthernetAddress::BROADCAST, &request))
        }
        (IpAddr::V6(source), IpAddr::V6(target)) => {
            let solicit = Icmpv6Repr::Ndisc(NdiscRepr::NeighborSolicit {
                target_addr: target,
                lladdr: Some(EthernetAddress(mac).into()),
            });
            let group = solicited_node(target);
            Some(icmpv6_frame(mac, multicast(group), source, group, HOP_LIMIT, &solicit))
        }
        _ => None,
    }
}

/// Builds a probe whether another node uses `address`, for duplicate address detection.
pub fn probe(mac: Mac, address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => {
            let request = ArpRepr::EthernetIpv4 {
                operation: ArpOperation::Request,
                source_hardware_addr: EthernetAddress(mac),
                source_protocol_addr: Ipv4Addr::UNSPECIFIED,
                target_hardware_addr: EthernetAddress([0; 6]),
                target_protocol_addr: address,
            };
            arp_frame(mac, EthernetAddress::BROADCAST, &request)
        }
        IpAddr::V6(address) => {
            let solicit =
                Icmpv6Repr::Ndisc(NdiscRepr::NeighborSolicit { target_addr: address, lladdr: None });
            let group = solicited_node(address);
            icmpv6_frame(mac, multicast(group), Ipv6Addr::UNSPECIFIED, group, HOP_LIMIT, &solicit)
        }
    }
}

/// Builds an announcement to all nodes that `address` is at `mac`.
pub fn announcement(mac: Mac, address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => {
            let request = ArpRepr::EthernetIpv4 {
                operation: ArpOperation::Request,
                source_hardware_addr: EthernetAddress(mac),
                source_protocol_addr: address,
                target_hardware_addr: EthernetAddress([0; 6]),
                target_protocol_addr: address,
            };
            arp_frame(mac, EthernetAddress::BROADCAST, &request)
        }
        IpAddr::V6(address) => {
            let advert = advert(mac, address, false);
            icmpv6_frame(mac, multicast(ALL_NODES), address, ALL_NODES, HOP_LIMIT, &advert)
        }
    }
}

/// Returns the Ethernet multicast groups that a host with these addresses receives.
pub fn groups(addresses: &[IpAddr]) -> Vec<Mac> {
    let mut groups = vec![multicast(ALL_NODES).0, [0x01, 0x00, 0x5e, 0, 0, 1]];
    for address in addresses {
        if let IpAddr::V6(address) = address {
            groups.push(multicast(solicited_node(*address)).0);
        }
    }
    groups.sort_unstable();
    groups.dedup();
    groups
}

/// Returns the link-local address of a link address. (RFC 4291 appendix A)
#[must_use]
pub fn link_local(mac: Mac) -> Ipv6Addr {
    let mut octets = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 0];
    octets[8..11].copy_from_slice(&mac[..3]);
    octets[13..].copy_from_slice(&mac[3..]);
    // The universal/local bit is inverted in an interface identifier.
    octets[8] ^= 2;
    octets.into()
}

fn advert(mac: Mac, target_addr: Ipv6Addr, solicited: bool) -> Icmpv6Repr<'static> {
    let mut flags = NdiscNeighborFlags::OVERRIDE;
    flags.set(NdiscNeighborFlags::SOLICITED, solicited);
    Icmpv6Repr::Ndisc(NdiscRepr::NeighborAdvert {
        flags,
        target_addr,
        lladdr: Some(EthernetAddress(mac).into()),
    })
}

fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// Returns the Ethernet group of an IPv6 group. (RFC 2464 §7)
fn multicast(group: Ipv6Addr) -> EthernetAddress {
    let [.., a, b, c, d] = group.octets();
    EthernetAddress([0x33, 0x33, a, b, c, d])
}

fn link_address(raw: RawHardwareAddress) -> Option<Mac> {
    let mac = EthernetAddress(raw.as_bytes().try_into().ok()?);
    mac.is_unicast().then_some(mac.0)
}

fn ethernet(
    from: Mac,
    to: EthernetAddress,
    ethertype: EthernetProtocol,
    length: usize,
    fill: impl FnOnce(&mut [u8]),
) -> Vec<u8> {
    let header = EthernetRepr { src_addr: EthernetAddress(from), dst_addr: to, ethertype };
    let mut bytes = vec![0; header.buffer_len() + length];
    let mut frame = EthernetFrame::new_unchecked(&mut bytes);
    header.emit(&mut frame);
    fill(frame.payload_mut());
    bytes
}

fn arp_frame(from: Mac, to: EthernetAddress, packet: &ArpRepr) -> Vec<u8> {
    ethernet(from, to, EthernetProtocol::Arp, packet.buffer_len(), |bytes| {
        packet.emit(&mut ArpPacket::new_unchecked(bytes));
    })
}

fn icmpv6_frame(
    from: Mac,
    link: EthernetAddress,
    src_addr: Ipv6Addr,
    dst_addr: Ipv6Addr,
    hop_limit: u8,
    message: &Icmpv6Repr<'_>,
) -> Vec<u8> {
    let payload_len = message.buffer_len();
    let header = Ipv6Repr { src_addr, dst_addr, next_header: IpProtocol::Icmpv6, payload_len, hop_limit };
    ethernet(from, link, EthernetProtocol::Ipv6, header.buffer_len() + payload_len, |bytes| {
        let mut packet = Ipv6Packet::new_unchecked(bytes);
        header.emit(&mut packet);
        let mut body = Icmpv6Packet::new_unchecked(packet.payload_mut());
        message.emit(&src_addr, &dst_addr, &mut body, &ChecksumCapabilities::default());
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Mac = [2, 0, 0, 0, 0, 1];
    const PEER: Mac = [2, 0, 0, 0, 0, 2];

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn ours() -> [IpAddr; 2] {
        [address("10.0.0.1"), address("fe80::1")]
    }

    fn peers() -> [IpAddr; 2] {
        [address("10.0.0.2"), address("fe80::2")]
    }

    /// Returns the reaction of `to` to a frame.
    fn reaction(to: Mac, addresses: &[IpAddr], frame: &[u8]) -> Reaction {
        react(to, addresses, frame)
    }

    #[test]
    fn request_is_answered_and_both_nodes_learn() {
        for (ours, theirs) in ours().into_iter().zip(peers()) {
            let question = solicitation(PEER, theirs, ours).unwrap();
            let Reaction { learned, answer } = reaction(US, &[ours], &question);
            assert_eq!(learned, Some(Learned { address: theirs, mac: PEER, how: How::Asked }));
            let answer = answer.expect("an answer");
            assert_eq!(answer[..6], PEER, "the answer goes to the sender");
            let Reaction { learned, answer } = reaction(PEER, &[theirs], &answer);
            assert_eq!(learned, Some(Learned { address: ours, mac: US, how: How::Answered }));
            assert_eq!(answer, None);
        }
    }

    #[test]
    fn requests_for_other_addresses_are_not_answered() {
        for (ours, theirs) in ours().into_iter().zip(peers()) {
            let question = solicitation(PEER, theirs, ours).unwrap();
            assert_eq!(reaction(US, &[], &question).answer, None);
        }
    }

    #[test]
    fn announcement_is_recognized() {
        for theirs in peers() {
            let Reaction { learned, answer } = reaction(US, &ours(), &announcement(PEER, theirs));
            assert_eq!(learned, Some(Learned { address: theirs, mac: PEER, how: How::Announced }));
            assert_eq!(answer, None);
        }
    }

    #[test]
    fn probe_for_an_address_in_use_is_answered_to_all_nodes() {
        let probe = probe(PEER, ours()[1]);
        let Reaction { learned, answer } = reaction(US, &ours(), &probe);
        assert_eq!(learned, None, "the sender of a probe has no address");
        assert_eq!(answer.expect("an answer")[..6], multicast(ALL_NODES).0);
    }

    #[test]
    fn probes_announcements_and_answers_of_others_are_claims() {
        for (theirs, ours) in peers().into_iter().zip(ours()) {
            assert_eq!(claim(US, &probe(PEER, theirs)), Some(theirs), "a probe claims");
            assert_eq!(claim(US, &announcement(PEER, theirs)), Some(theirs), "an announcement claims");
            let answer = reaction(PEER, &[theirs], &solicitation(US, ours, theirs).unwrap()).answer.unwrap();
            assert_eq!(claim(US, &answer), Some(theirs), "an answer claims");
            assert_eq!(claim(PEER, &probe(PEER, theirs)), None, "a host's own frame does not claim");
        }
        let [_, theirs] = peers();
        let question = solicitation(PEER, theirs, ours()[1]).unwrap();
        assert_eq!(claim(US, &question), None, "a request does not claim");
    }

    #[test]
    fn neighbor_discovery_with_another_hop_limit_is_ignored() {
        let theirs = "fe80::2".parse().unwrap();
        let advert = advert(PEER, theirs, false);
        let frame = icmpv6_frame(PEER, multicast(ALL_NODES), theirs, ALL_NODES, HOP_LIMIT - 1, &advert);
        assert_eq!(reaction(US, &ours(), &frame), Reaction::default());
    }

    #[test]
    fn damaged_frames_are_ignored() {
        for (ours, theirs) in ours().into_iter().zip(peers()) {
            let question = solicitation(PEER, theirs, ours).unwrap();
            for length in 0..question.len() {
                assert_eq!(reaction(US, &[ours], &question[..length]), Reaction::default(), "{length} bytes");
            }
        }
        let question = solicitation(PEER, peers()[1], ours()[1]).unwrap();
        for byte in 14 + 8..question.len() {
            let mut damaged = question.clone();
            damaged[byte] ^= 0x10;
            assert_eq!(
                reaction(US, &ours(), &damaged),
                Reaction::default(),
                "byte {byte} is covered by the checksum"
            );
        }
    }

    #[test]
    fn multicast_groups_follow_from_the_addresses() {
        let groups = groups(&[address("10.0.0.1"), address("fe80::1:2:3"), address("fd00::1:2:3")]);
        assert_eq!(groups, [[1, 0, 0x5e, 0, 0, 1], [0x33, 0x33, 0, 0, 0, 1], [0x33, 0x33, 0xff, 2, 0, 3]]);
    }

    #[test]
    fn link_local_address_follows_from_the_link_address() {
        assert_eq!(
            link_local([0x52, 0x54, 0, 0x77, 0, 2]),
            "fe80::5054:ff:fe77:2".parse::<Ipv6Addr>().unwrap()
        );
    }
}
