// SPDX-License-Identifier: MIT OR Apache-2.0

//! Headers and frames that the captures do not contain.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use crate::icrc::Crc;

fn path(v6: bool, vlan: Option<Vlan>) -> Path {
    let (local, remote) = if v6 {
        ("fd77::1".parse().unwrap(), "fd77::2".parse().unwrap())
    } else {
        ([10, 0, 0, 1].into(), [10, 0, 0, 2].into())
    };
    Path { vlan, ..Path::new(MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]), local, remote) }
}

fn headers(opcode: Opcode, ext: Ext) -> Headers {
    Headers { opcode, solicited: false, ack_req: true, psn: Psn::new(0x00AB_CDEF), ext }
}

/// An ACK over IPv4.
fn ack() -> Vec<u8> {
    build(
        &path(false, None),
        &headers(Opcode::ACKNOWLEDGE, Ext::Aeth(AethRepr { syndrome: Syndrome::ACK, msn: 7 })),
        &[],
    )
}

fn build(path: &Path, headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let mut slot = vec![0xEE; 9000];
    let template = Template::new(path, Qpn::new(0x0012_3456)).unwrap();
    let mut frame = template.begin(Crc::detect(), &mut slot, headers, payload.len()).unwrap();
    frame.write(payload);
    let len = frame.finish();
    slot.truncate(len);
    slot
}

/// Changes a byte of a frame over IPv4 and corrects the header checksum.
fn changed(mut frame: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
    frame[at] = value;
    let header = &mut frame[14..34];
    header[10..12].fill(0);
    let sum = header.chunks(2).fold(0u32, |sum, word| sum + u32::from(word[0]) * 256 + u32::from(word[1]));
    let sum = (sum >> 16) + (sum & 0xFFFF);
    let sum = (sum >> 16) + (sum & 0xFFFF);
    header[10..12].copy_from_slice(&(!sum as u16).to_be_bytes());
    frame
}

fn dropped(frame: &[u8]) -> DropReason {
    assert!(may_be_roce(frame));
    match Packet::parse(frame) {
        Err(ParseError::Malformed(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

//= rocev2 §1
#[test]
fn ack_has_62_bytes_over_ipv4_and_82_over_ipv6() {
    assert_eq!(ack().len(), 62);
    let aeth = Ext::Aeth(AethRepr { syndrome: Syndrome::ACK, msn: 7 });
    assert_eq!(build(&path(true, None), &headers(Opcode::ACKNOWLEDGE, aeth), &[]).len(), 82);
    let template = Template::new(&path(true, None), Qpn::new(1)).unwrap();
    assert_eq!(template.overhead(Opcode::ACKNOWLEDGE), 82);
}

//= rocev2 §1
#[test]
fn frames_to_other_destinations_are_not_roce() {
    let good = ack();
    // Ethertype, protocol, destination port, version; a later fragment.
    for (at, value) in [(12, 0x88), (23, 6), (36, 0x13), (14, 0x65), (21, 1)] {
        let frame = changed(good.clone(), at, value);
        assert!(matches!(Packet::parse(&frame), Err(ParseError::NotRoce)), "byte {at}");
    }
    for len in 0..42 {
        assert!(matches!(Packet::parse(&good[..len]), Err(ParseError::NotRoce)), "{len} bytes");
    }
}

//= rocev2 §1
#[test]
fn few_bytes_are_enough_to_pass_over_other_protocols() {
    for (v6, vlan) in [(false, None), (true, None), (false, Some(Vlan(5))), (true, Some(Vlan(5)))] {
        let good = build(&path(v6, vlan), &headers(Opcode::SEND_ONLY, Ext::None), &[]);
        assert!(may_be_roce(&good));
        let with = |at: usize, value| {
            let mut frame = good.clone();
            frame[at] = value;
            frame
        };
        let ip = if vlan.is_some() { 18 } else { 14 };
        // Ethertype; TCP.
        for (at, value) in [(ip - 2, 0x88), (ip + if v6 { 6 } else { 9 }, 6)] {
            assert!(!may_be_roce(&with(at, value)), "byte {at}");
        }
        // The high byte of the port: the DNS's, for instance.
        let is_other_port = !may_be_roce(&with(ip + 22, 0));
        assert_eq!(is_other_port, !v6, "only an IPv4 header has a usual length");
        assert!(!may_be_roce(&good[..ip + 19]), "no IP header");
    }
}

//= rocev2 §1
#[test]
fn malformed_frames_have_a_drop_reason() {
    let good = ack();
    assert!(Packet::parse(&good).is_ok());
    for len in 42..good.len() {
        assert_eq!(dropped(&good[..len]), DropReason::Truncated, "{len} bytes");
    }
    let mut wrong_sum = good.clone();
    wrong_sum[24] ^= 1;
    assert_eq!(dropped(&wrong_sum), DropReason::HeaderChecksum);
    assert_eq!(dropped(&changed(good.clone(), 20, 0x20)), DropReason::Fragment, "more fragments");
    assert_eq!(dropped(&changed(good.clone(), 39, 28 + 1)), DropReason::UdpLength);
    assert_eq!(dropped(&changed(good.clone(), 17, 48 - 4)), DropReason::UdpLength, "IP length");
    // Without room for BTH and ICRC. The IP length is that of the datagram.
    for (udp, reason) in [(7, DropReason::Truncated), (8, DropReason::UdpLength), (23, DropReason::UdpLength)]
    {
        assert_eq!(dropped(&changed(good.clone(), 17, 20 + udp)), reason, "{udp} bytes");
    }
    let short = changed(changed(good.clone(), 17, 20 + 23), 39, 23);
    assert_eq!(dropped(&short), DropReason::Truncated, "23 bytes, as the UDP header says");
    //= rocev2 §3
    assert_eq!(dropped(&changed(good.clone(), 43, 1)), DropReason::Version);
    //= rocev2 §4
    assert_eq!(dropped(&changed(good.clone(), 42, 0x15)), DropReason::Opcode);
    // An ACK that claims to be an atomic ACK lacks eight bytes.
    assert_eq!(dropped(&changed(good.clone(), 42, 0x12)), DropReason::Truncated);
    assert_eq!(dropped(&changed(good.clone(), 43, 0x10)), DropReason::Pad, "nothing to pad");
    // The four bytes of an AETH are payload behind a SEND Middle.
    assert!(Packet::parse(&changed(good, 42, 0x01)).is_ok());
    let send = build(&path(false, None), &headers(Opcode::SEND_ONLY, Ext::None), &[1; 16]);
    assert_eq!(dropped(&changed(send, 42, 0x11)), DropReason::Payload);
}

//= rocev2 §6
#[test]
fn packet_of_the_reverse_direction_has_both_addresses_exchanged() {
    let headers = headers(Opcode::ACKNOWLEDGE, Ext::Aeth(AethRepr { syndrome: Syndrome::ACK, msn: 7 }));
    let back = |path: Path| Path { local_ip: path.remote_ip, remote_ip: path.local_ip, ..path };
    for (v6, vlan) in [(false, None), (false, Some(Vlan(5))), (true, None), (true, Some(Vlan(5)))] {
        let there = path(v6, vlan);
        let template = Template::new(&there, Qpn::new(1)).unwrap();
        let is_reverse =
            |of: Path| template.is_reverse_of(&Packet::parse(&build(&of, &headers, &[])).unwrap());
        assert!(is_reverse(back(there)), "{there:?}");
        assert!(is_reverse(Path { vlan: None, ..back(there) }), "a switch may remove the tag");
        assert!(!is_reverse(there), "the same direction");
        let other = if v6 { "fd77::3".parse().unwrap() } else { [10, 0, 0, 3].into() };
        assert!(!is_reverse(Path { local_ip: other, ..back(there) }), "another source");
        assert!(!is_reverse(Path { remote_ip: other, ..back(there) }), "another destination");
        assert!(!is_reverse(back(path(!v6, vlan))), "another family");
    }
}

//= rocev2 §1
#[test]
fn frame_with_ipv4_options_is_malformed() {
    let mut frame = ack();
    // Four bytes of options behind the IPv4 header.
    frame.splice(34..34, [1, 1, 1, 1]);
    assert_eq!(dropped(&changed(frame, 14, 0x46)), DropReason::Options);
}

#[test]
fn the_checksum_of_a_header_of_zeros_or_ones_is_known() {
    assert!(!ipv4::Ipv4::new(&[0; 20]).checksum_valid());
    assert!(ipv4::Ipv4::new(&[0xFF; 20]).checksum_valid());
}

//= rocev2 §1
#[test]
fn ethernet_padding_is_not_part_of_a_packet() {
    let send = build(&path(false, None), &headers(Opcode::SEND_ONLY, Ext::None), &[]);
    assert_eq!(send.len(), 58);
    let mut padded = send.clone();
    padded.extend([0xAA; 6]);
    let packet = Packet::parse(&padded).unwrap();
    assert!(packet.payload().is_empty() && packet.icrc_valid(Crc::detect()));
}

//= rocev2 §3
#[test]
fn transport_versions_other_than_zero_are_dropped() {
    for version in 1..16 {
        assert_eq!(dropped(&changed(ack(), 43, version)), DropReason::Version);
    }
}

//= rocev2 §14
#[test]
fn cnp_has_becn_and_sixteen_reserved_bytes() {
    let frame = build(&path(false, None), &headers(Opcode::CNP, Ext::Cnp), &[]);
    let packet = Packet::parse(&frame).unwrap();
    assert!(packet.bth().becn() && !packet.bth().fecn());
    assert_eq!(usize::from(packet.udp().length()), Udp::LEN + 32);
    assert_eq!(packet.info().class, Class::Congestion);
}

//= rocev2 §14
#[test]
fn congestion_mark_is_seen_and_keeps_the_icrc_valid() {
    let frame = changed(ack(), 15, 0x03);
    let packet = Packet::parse(&frame).unwrap();
    assert!(packet.congestion_experienced() && packet.icrc_valid(Crc::detect()));
}

#[test]
fn frame_is_begun_only_if_it_fits_the_slot() {
    let template = Template::new(&path(false, None), Qpn::new(9)).unwrap();
    let send = headers(Opcode::SEND_ONLY, Ext::None);
    let begin = |slot: &mut [u8], headers: &Headers, len| {
        template.begin(Crc::table(), slot, headers, len).map(|mut frame| frame.finish())
    };
    let mut slot = [0; 256];
    assert_eq!(begin(&mut slot[..Template::MIN_SLOT - 1], &send, 0), Err(BuildError::SlotTooSmall));
    // Header and ICRC take 58 bytes.
    assert_eq!(begin(&mut slot, &send, 198), Err(BuildError::SlotTooSmall), "two pad bytes too many");
    assert_eq!(begin(&mut slot, &send, 196), Ok(254));
    let mut large = vec![0; 70_000];
    assert_eq!(begin(&mut large, &send, 65_536), Err(BuildError::PayloadTooLong));
    assert_eq!(begin(&mut large, &send, 65_500), Err(BuildError::PayloadTooLong));
    assert_eq!(begin(&mut large, &send, usize::MAX), Err(BuildError::PayloadTooLong));
    assert_eq!(begin(&mut slot, &headers(Opcode::WRITE_ONLY, Ext::None), 0), Err(BuildError::WrongHeaders));
    assert_eq!(begin(&mut slot, &headers(Opcode(0x15), Ext::None), 0), Err(BuildError::WrongHeaders));
}

#[test]
fn previous_content_of_the_slot_is_never_sent() {
    let mut slot = [0xEE; 256];
    let template = Template::new(&path(false, None), Qpn::new(9)).unwrap();
    let mut frame =
        template.begin(Crc::table(), &mut slot, &headers(Opcode::SEND_ONLY, Ext::None), 21).unwrap();
    assert_eq!(frame.write(&[1; 5]), 5);
    assert_eq!(frame.missing(), 16);
    let len = frame.finish();
    let packet = Packet::parse(&slot[..len]).unwrap();
    assert!(packet.icrc_valid(Crc::table()));
    let mut expected = [0; 21];
    expected[..5].fill(1);
    assert_eq!((packet.payload(), packet.pad()), (&expected[..], &[0; 3][..]));
}

#[test]
fn template_needs_addresses_of_one_family() {
    let mixed = Path { remote_ip: Ipv6Addr::LOCALHOST.into(), ..path(false, None) };
    assert!(Template::new(&mixed, Qpn::new(9)).is_none());
}

//= rocev2 §1
#[test]
fn source_port_is_the_same_in_both_directions_and_in_the_dynamic_range() {
    for (a, b) in [(0x11, 0x12), (0x00FF_FFFE, 2), (0x0012_3456, 0x0065_4321)] {
        let (a, b) = (Qpn::new(a), Qpn::new(b));
        assert_eq!(flow_source_port(a, b), flow_source_port(b, a));
        assert!(flow_source_port(a, b) >= 0xC000);
    }
    assert_ne!(
        flow_source_port(Qpn::new(0x11), Qpn::new(0x12)),
        flow_source_port(Qpn::new(0x11), Qpn::new(0x13))
    );
}

fn ext() -> impl Strategy<Value = Ext> {
    let reth = (any::<u64>(), any::<u32>(), any::<u32>()).prop_map(|(address, r_key, length)| RethRepr {
        address,
        r_key,
        length,
    });
    let aeth =
        (any::<u8>(), 0u32..1 << 24).prop_map(|(code, msn)| AethRepr { syndrome: Syndrome(code), msn });
    let imm = any::<[u8; 4]>().prop_map(|data| ImmDtRepr { data });
    let deth =
        (any::<u32>(), any::<u32>()).prop_map(|(q_key, qpn)| DethRepr { q_key, source_qp: Qpn::new(qpn) });
    let atomic = (any::<u64>(), any::<u32>(), any::<u64>(), any::<u64>()).prop_map(
        |(address, r_key, swap_or_add, compare)| AtomicEthRepr { address, r_key, swap_or_add, compare },
    );
    prop_oneof![
        Just(Ext::None),
        reth.clone().prop_map(Ext::Reth),
        (reth, imm.clone()).prop_map(|(reth, imm)| Ext::RethImm(reth, imm)),
        aeth.clone().prop_map(Ext::Aeth),
        (aeth, any::<u64>()).prop_map(|(aeth, original)| Ext::AtomicAck(aeth, AtomicAckEthRepr { original })),
        imm.clone().prop_map(Ext::Imm),
        deth.clone().prop_map(Ext::Deth),
        (deth, imm).prop_map(|(deth, imm)| Ext::DethImm(deth, imm)),
        atomic.prop_map(Ext::Atomic),
        any::<u32>().prop_map(|r_key| Ext::Ieth(IethRepr { r_key })),
    ]
}

proptest! {
    #[test]
    fn built_frames_parse_to_the_same_fields(
        v6: bool,
        vlan in proptest::option::of(any::<u16>().prop_map(Vlan)),
        ext in ext(),
        pick: prop::sample::Index,
        solicited: bool,
        ack_req: bool,
        psn: u32,
        source_port: u16,
        traffic_class: u8,
        payload in proptest::collection::vec(any::<u8>(), 0..if cfg!(miri) { 100 } else { 5000 }),
        cut: prop::sample::Index,
    ) {
        let fitting: Vec<_> = Opcode::table().iter().filter(|info| info.ext == ext.headers()).collect();
        let info = fitting[pick.index(fitting.len())];
        let payload = if info.payload == PayloadRule::None { &[][..] } else { &payload };
        let path = Path { source_port, traffic_class, ..path(v6, vlan) };
        let headers = Headers { opcode: info.opcode, solicited, ack_req, psn: Psn::new(psn), ext };
        let template = Template::new(&path, Qpn::new(0x0045_6789)).unwrap();
        for crc in [Crc::table(), Crc::detect()] {
            let mut slot = vec![0xEE; 6000];
            let mut frame = template.begin(crc, &mut slot, &headers, payload.len()).unwrap();
            let (first, second) = payload.split_at(cut.index(payload.len() + 1));
            frame.write(first);
            frame.write(second);
            let len = frame.finish();
            prop_assert_eq!(len, template.overhead(info.opcode) + payload.len().next_multiple_of(4));
            let packet = Packet::parse(&slot[..len]).unwrap();
            prop_assert!(packet.icrc_valid(Crc::table()) && packet.icrc_valid(Crc::detect()));
            prop_assert_eq!(packet.ext(), ext);
            prop_assert_eq!(packet.payload(), payload);
            prop_assert_eq!(packet.eth().vlan(), vlan);
            prop_assert_eq!((packet.source(), packet.destination()), (path.local_ip, path.remote_ip));
            prop_assert_eq!((packet.eth().source(), packet.eth().destination()), (path.local_mac, path.remote_mac));
            prop_assert_eq!((packet.udp().source_port(), packet.ip().traffic_class()), (source_port, traffic_class));
            let bth = packet.bth();
            prop_assert_eq!((bth.opcode(), bth.psn(), bth.dest_qp()), (info.opcode, headers.psn, Qpn::new(0x0045_6789)));
            prop_assert_eq!((bth.solicited(), bth.ack_req(), bth.p_key()), (solicited, ack_req, PKEY_DEFAULT));
            prop_assert_eq!(packet.reth().is_some(), ext.headers().contains(ExtHeaders::RETH));
            prop_assert_eq!(packet.aeth().is_some(), ext.headers().contains(ExtHeaders::AETH));
            prop_assert_eq!(packet.ieth().is_some(), ext.headers().contains(ExtHeaders::IETH));
            if let Ext::RethImm(_, imm) | Ext::Imm(imm) | Ext::DethImm(_, imm) = ext {
                prop_assert_eq!(packet.imm_dt().unwrap().data(), imm.data);
            }
            if let Ext::AtomicAck(_, ack) = ext {
                prop_assert_eq!(packet.atomic_ack_eth().unwrap().original(), ack.original);
            }
        }
    }

    #[test]
    fn parse_survives_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(packet) = Packet::parse(&bytes) {
            let _ = (packet.ext(), packet.icrc_valid(Crc::detect()), packet.pad());
        }
    }

    // Random bytes rarely pass the first headers: damage a good frame instead.
    #[test]
    fn parse_survives_any_damage(
        ext in ext(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        len: prop::sample::Index,
        v6: bool,
    ) {
        let info = Opcode::table().iter().find(|info| info.ext == ext.headers()).unwrap();
        let mut frame = build(&path(v6, None), &headers(info.opcode, ext), &[]);
        for (at, value) in changes {
            let at = at.index(frame.len());
            frame[at] = value;
        }
        frame.truncate(len.index(frame.len()) + 1);
        let parsed = Packet::parse(&frame);
        prop_assert!(may_be_roce(&frame) || matches!(parsed, Err(ParseError::NotRoce)));
        if let Ok(packet) = parsed {
            let _ = (packet.ext(), packet.icrc_valid(Crc::detect()), packet.pad(), packet.imm_dt());
            prop_assert!(packet.pad().len() <= 3);
        }
    }

    /// Most values are those that such a frame has, or differ from them in one bit.
    #[test]
    fn frames_of_the_usual_form_are_read_as_all_others(
        syndrome in proptest::option::of(0u8..0x40),
        payload in proptest::collection::vec(any::<u8>(), 0..70),
        tail in 0usize..4,
        cut in proptest::option::of(0usize..140),
        changes in proptest::collection::vec((12usize..62, 0u8..8), 0..3),
        checksum: bool,
    ) {
        let mut frame = match syndrome {
            Some(code) => {
                let aeth = Ext::Aeth(AethRepr { syndrome: Syndrome(code), msn: 7 });
                build(&path(false, None), &headers(Opcode::ACKNOWLEDGE, aeth), &[])
            }
            None => build(&path(false, None), &headers(Opcode::SEND_ONLY, Ext::None), &payload),
        };
        frame.resize(frame.len() + tail, 0);
        for (at, bit) in changes {
            if let Some(byte) = frame.get_mut(at) {
                *byte ^= 1 << bit;
            }
        }
        if checksum {
            frame = changed(frame.clone(), 22, frame[22]);
        }
        frame.truncate(cut.unwrap_or(frame.len()));
        let packet = Packet::parse(&frame);
        let plain = PlainFrame::parse(&frame);
        let is_usual = packet.as_ref().is_ok_and(|packet| {
            let aeth = packet.aeth().map(|aeth| aeth.syndrome().kind());
            let is_of_kind = match packet.bth().opcode() {
                Opcode::ACKNOWLEDGE => packet.pad().is_empty() && matches!(aeth, Some(SyndromeKind::Ack(_))),
                Opcode::SEND_ONLY => frame.len() >= 62 && !packet.payload().is_empty(),
                _ => false,
            };
            is_of_kind && packet.bth().p_key() | 0x8000 == PKEY_DEFAULT && !packet.congestion_experienced()
        });
        prop_assert_eq!(plain.is_some(), is_usual, "{:?}", packet);
        let (Some(plain), Ok(packet)) = (plain, packet) else { return Ok(()) };
        let bth = packet.bth();
        let headers = match plain {
            PlainFrame::Ack(ack) => ack.headers,
            PlainFrame::Send(send) => {
                prop_assert_eq!(send.payload(), packet.payload());
                prop_assert_eq!((send.ack_req(), send.solicited()), (bth.ack_req(), bth.solicited()));
                send.headers
            }
        };
        prop_assert_eq!((headers.dest_qp(), headers.psn()), (bth.dest_qp(), bth.psn()));
        for crc in [Crc::table(), Crc::detect()] {
            let valid = match plain {
                PlainFrame::Ack(ack) => ack.icrc_valid(crc),
                PlainFrame::Send(send) => send.icrc_valid(crc),
            };
            prop_assert_eq!(valid, packet.icrc_valid(crc));
        }
        let peer = Path { local_ip: [10, 0, 0, 2].into(), remote_ip: [10, 0, 0, 1].into(), ..path(false, None) };
        for vlan in [None, Some(Vlan(5))] {
            let template = Template::new(&Path { vlan, ..peer }, Qpn::new(1)).unwrap();
            let is_reverse = template.is_reverse_of_plain(headers);
            prop_assert_eq!(is_reverse, vlan.is_none() && template.is_reverse_of(&packet));
        }
    }

    #[test]
    fn untagged_frames_over_ipv4_are_read_as_all_others(
        ext in ext(),
        payload in proptest::collection::vec(any::<u8>(), 0..20),
        changes in proptest::collection::vec((12usize..60, any::<u8>(), any::<bool>()), 0..4),
        cut in 0usize..40,
    ) {
        let info = Opcode::table().iter().find(|info| info.ext == ext.headers()).unwrap();
        let payload = if info.payload == PayloadRule::None { &[][..] } else { &payload };
        let mut frame = build(&path(false, None), &headers(info.opcode, ext), payload);
        for (at, value, repair) in changes {
            let at = at.min(frame.len() - 1);
            if repair { frame = changed(frame, at, value) } else { frame[at] = value }
        }
        frame.truncate(frame.len() - cut);
        prop_assert_eq!(format!("{:?}", Packet::parse(&frame)), format!("{:?}", Packet::parse_other(&frame)));
    }

    #[test]
    fn the_checksum_of_a_header_is_right_if_its_words_add_up(mut header: [u8; 20], repair: bool) {
        let sum = |header: &[u8; 20]| {
            let words = header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
            let mut sum: u32 = words.sum();
            while sum > 0xFFFF {
                sum = (sum >> 16) + (sum & 0xFFFF);
            }
            sum as u16
        };
        if repair {
            header[10..12].fill(0);
            let checksum = !sum(&header);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        prop_assert_eq!(ipv4::Ipv4::new(&header).checksum_valid(), sum(&header) == 0xFFFF);
    }

    #[test]
    fn headers_survive_parse_and_emit(bytes: [u8; 40]) {
        let bth = BthRepr::parse(&Bth::new_checked(&bytes).unwrap());
        let mut again = [0xEE; Bth::LEN];
        bth.emit(&mut again);
        prop_assert_eq!(BthRepr::parse(&Bth::new(&again)), bth);

        let ip = Ipv6Repr::parse(&Ipv6::new(&bytes));
        let mut again = [0xEE; Ipv6::LEN];
        ip.emit(&mut again);
        prop_assert_eq!(Ipv6Repr::parse(&Ipv6::new(&again)), ip);

        let ip = Ipv4Repr {
            source: Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]),
            destination: Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]),
            traffic_class: bytes[8],
            identification: u16::from_be_bytes([bytes[9], bytes[10]]),
            dont_fragment: bytes[11] & 1 != 0,
            ttl: bytes[12],
            total_length: u16::from_be_bytes([bytes[13], bytes[14]]),
        };
        let mut again = [0xEE; Ipv4::LEN];
        ip.emit(&mut again);
        let view = Ipv4::new(&again);
        prop_assert!(view.checksum_valid() && !view.is_fragment());
        prop_assert_eq!(Ipv4Repr::parse(&view), ip);

        let udp = UdpRepr { source_port: 1, destination_port: 2, length: 3, checksum: 4 };
        let mut again = [0xEE; Udp::LEN];
        udp.emit(&mut again);
        prop_assert_eq!(UdpRepr::parse(&Udp::new(&again)), udp);
    }

    #[test]
    fn cm_messages_survive_parse_and_emit(
        attribute in 0x0010u16..=0x0016,
        transaction: u64,
        body in proptest::collection::vec(any::<u8>(), Mad::BODY_LEN),
    ) {
        let mut mad = [0; Mad::LEN];
        MadHeaderRepr::cm(Attribute(attribute), transaction).emit(mad.first_chunk_mut().unwrap());
        mad[24..].copy_from_slice(&body);
        let message = cm::CmMessage::parse(&Mad::new_checked(&mad).unwrap()).unwrap();
        prop_assert_eq!(message.attribute(), Attribute(attribute));
        let mut again = [0xEE; Mad::LEN];
        message.emit(transaction, &mut again);
        let reread = Mad::new_checked(&again).unwrap();
        prop_assert_eq!(reread.header().transaction_id(), transaction);
        prop_assert_eq!(cm::CmMessage::parse(&reread), Some(message));
    }
}

//= rocev2 §2
#[test]
fn example_frames_of_the_rules_have_a_valid_icrc() {
    let frames = [
        "525400770001525400770002080045000030c375400040115bf3c0a84d02c0a84d01c51412b7001c0000\
         1100ffff0000003c00e447ae1f000001db028462",
        "525400770001525400770002080045000030c374400040115bf4c0a84d02c0a84d01c51412b7001c0000\
         1100ffff0000003c00e447aa60000000ee2fd69d",
        "52540077000152540077000286dd60000000001c1140fd770000000000000000000000000002\
         fd770000000000000000000000000001f93e12b7001c00001100ffff0000002a00a9d1391f000001ccb3080b",
    ];
    for hex in frames {
        let hex: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let frame: Vec<u8> = hex
            .chunks(2)
            .map(|pair| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect();
        assert!(Packet::parse(&frame).unwrap().icrc_valid(Crc::table()));
    }
}

/// Every length modulo the 16 bytes of a block, every offset of the variant fields in their blocks.
//= rocev2 §2
#[test]
fn both_implementations_find_a_changed_byte_of_a_frame_of_any_length() {
    let payload: Vec<u8> =
        (0..if cfg!(miri) { 20 } else { 180 }).map(|at: u8| at.wrapping_mul(7).wrapping_add(1)).collect();
    for (v6, vlan) in [(false, None), (true, None), (false, Some(Vlan(5))), (true, Some(Vlan(5)))] {
        for len in (0..payload.len()).step_by(3) {
            let send = headers(Opcode::SEND_ONLY, Ext::None);
            let frame = build(&path(v6, vlan), &send, &payload[..len]);
            let ip_at = if vlan.is_some() { 18 } else { 14 };
            for at in ip_at..frame.len() {
                let mut damaged = frame.clone();
                damaged[at] ^= 0x10;
                let Ok(packet) = Packet::parse(&damaged) else { continue };
                let valid = [Crc::table(), Crc::detect()].map(|crc| packet.icrc_valid(crc));
                // Traffic class, flow label and hop limit of IPv6, UDP checksum, congestion bits of the BTH.
                let udp_at = ip_at + if v6 { 40 } else { 20 };
                let variant = v6 && [0, 1, 2, 3, 7].contains(&(at - ip_at))
                    || [udp_at + 6, udp_at + 7, udp_at + 12].contains(&at);
                assert_eq!(valid, [variant; 2], "byte {at} of {len} bytes of payload, IPv6 {v6}");
            }
        }
    }
}

#[test]
fn private_data_is_padded_with_zeros_or_rejected() {
    assert_eq!(cm::private_data::<4>(b"ab"), Some(*b"ab\0\0"));
    assert_eq!(cm::private_data::<4>(b"abcd"), Some(*b"abcd"));
    assert_eq!(cm::private_data::<4>(b"abcde"), None);
}

//= rocev2 §11
#[test]
fn service_id_encodes_a_port_of_the_tcp_port_space() {
    assert_eq!(cm::ServiceId::port(445).0, 0x0106_01BD);
    assert_eq!(cm::ServiceId(0x0106_01BD).to_port(), Some(445));
    assert_eq!(cm::ServiceId(0x0111_01BD).to_port(), None, "the UDP space");
    assert_eq!(cm::ServiceId(0x1_0106_01BD).to_port(), None);
}
