// SPDX-License-Identifier: MIT OR Apache-2.0

//! Decodes every RoCE frame of the captures and encodes it again, byte for byte.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests panic on failure")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::path::Path as FilePath;

use pcap_file::pcap::PcapReader;
use roce_wire::cm::{CmMessage, CmPath, CmPathRepr, IpCm, IpCmRepr, IpEnds};
use roce_wire::icrc::Crc;
use roce_wire::{
    Bth, BthRepr, Eth, EthRepr, Ext, Headers, Ip, Ipv4, Ipv4Repr, Ipv6, Ipv6Repr, Mad, MadHeaderRepr, Opcode,
    Packet, ParseError, Path, Syndrome, SyndromeKind, Template, Udp, UdpRepr,
};

/// Each capture with its number of RoCE frames, as listed in the README.
const CAPTURES: [(&str, usize); 55] = [
    ("rping_v4", 41),
    ("rping_v6", 41),
    ("rping_v4_mtu4096", 37),
    ("rdma_client_server", 10),
    ("reject_no_listener", 2),
    ("reject_by_consumer", 2),
    ("send_bw_1024", 25),
    ("write_bw_1024", 25),
    ("read_bw_1024", 25),
    ("write_lat_1024", 20),
    ("send_lat_1024", 20),
    ("read_lat_1024", 10),
    ("atomic_bw", 10),
    ("send_bw_rdmacm_1024", 69),
    ("send_bw_4096", 20),
    ("write_bw_4096", 20),
    ("read_bw_4096", 20),
    ("rc_pingpong", 40),
    ("rc_pingpong_v6", 18),
    ("srq_pingpong", 78),
    ("sizes", 132),
    ("immediate", 17),
    ("immediate_v6", 17),
    ("zero_length", 13),
    ("atomic_cas_faa", 11),
    ("reads_outstanding", 31),
    ("long_write_ack_request", 103),
    ("psn_wrap", 16),
    ("write_then_send", 29),
    ("send_invalidate", 13),
    ("send_invalidate_bad_key", 7),
    ("nak_write_bad_rkey", 7),
    ("nak_write_out_of_range", 10),
    ("nak_read_bad_rkey", 7),
    ("nak_read_out_of_range", 7),
    ("nak_atomic_bad_rkey", 7),
    ("nak_send_too_long", 10),
    ("rnr_then_ok", 13),
    ("retry_exceeded", 8),
    ("loss_write_middle", 20),
    ("loss_write_last", 29),
    ("loss_send_first", 23),
    ("loss_ack", 29),
    ("loss_read_request", 15),
    ("loss_read_response_middle", 19),
    ("loss_nak", 25),
    ("duplicate_write", 15),
    ("duplicate_send", 8),
    ("corrupt_icrc", 29),
    ("ecn_marked", 14),
    ("cm_loss_req", 8),
    ("cm_loss_rep", 7),
    ("cm_loss_rtu", 16),
    ("cm_loss_dreq", 8),
    ("cm_unanswered", 8),
];

/// Returns all frames of a capture.
fn frames(capture: &str) -> Vec<Vec<u8>> {
    let file = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/rxe").join(capture);
    let mut reader = PcapReader::new(File::open(file.with_extension("pcap")).unwrap()).unwrap();
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.unwrap();
        assert_eq!(packet.data.len(), packet.orig_len as usize, "{capture} has cut frames");
        frames.push(packet.data.into_owned());
    }
    frames
}

/// Returns the RoCE frames of a capture. No other frame may parse as one.
fn roce_frames(capture: &str) -> Vec<Vec<u8>> {
    let mut frames = frames(capture);
    frames.retain(|frame| match Packet::parse(frame) {
        Ok(_) => true,
        Err(ParseError::NotRoce) => false,
        Err(ParseError::Malformed(reason)) => panic!("{capture}: {}: {frame:02x?}", reason.name()),
    });
    frames
}

fn for_every_frame(mut check: impl FnMut(&str, &[u8], &Packet<'_>)) {
    for (capture, _) in CAPTURES {
        for frame in roce_frames(capture) {
            check(capture, &frame, &Packet::parse(&frame).unwrap());
        }
    }
}

#[test]
fn captures_have_the_number_of_frames_in_the_readme() {
    for (capture, count) in CAPTURES {
        assert_eq!(roce_frames(capture).len(), count, "{capture}");
    }
    assert_eq!(CAPTURES.iter().map(|(_, count)| count).sum::<usize>(), 1264);
    let directory = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/rxe");
    let files = directory.read_dir().unwrap().map(|entry| entry.unwrap().path());
    assert_eq!(files.filter(|path| path.extension().is_some_and(|ext| ext == "pcap")).count(), 55);
}

#[test]
fn captures_decode_to_the_packets_in_the_readme() {
    let mut report = String::new();
    for (capture, _) in CAPTURES {
        let mut kinds = BTreeMap::<String, usize>::new();
        for frame in roce_frames(capture) {
            *kinds.entry(kind(&Packet::parse(&frame).unwrap())).or_default() += 1;
        }
        let kinds: Vec<_> = kinds.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        writeln!(report, "{capture}: {}", kinds.join(", ")).unwrap();
    }
    insta::assert_snapshot!(report);
}

/// Returns the kind of a packet for the report.
fn kind(packet: &Packet<'_>) -> String {
    match (packet.ext(), packet.bth().opcode()) {
        (Ext::Deth(_), _) => {
            let mad = Mad::new_checked(packet.payload()).unwrap();
            match CmMessage::parse(&mad).unwrap() {
                CmMessage::Req(_) => "CM REQ".into(),
                CmMessage::Mra(_) => "CM MRA".into(),
                CmMessage::Rej(rej) => format!("CM REJ ({:?})", rej.reason),
                CmMessage::Rep(_) => "CM REP".into(),
                CmMessage::Rtu(_) => "CM RTU".into(),
                CmMessage::Dreq(_) => "CM DREQ".into(),
                CmMessage::Drep(_) => "CM DREP".into(),
            }
        }
        (Ext::Aeth(aeth), Opcode::ACKNOWLEDGE) => format!("{:?}", aeth.syndrome),
        (_, opcode) => format!("{opcode:?}"),
    }
}

//= rocev2 §2
#[test]
fn every_frame_has_a_valid_icrc_by_both_implementations() {
    for_every_frame(|capture, frame, packet| {
        assert!(packet.icrc_valid(Crc::table()), "{capture}: {frame:02x?}");
        assert!(packet.icrc_valid(Crc::detect()), "{capture}: {frame:02x?}");
    });
}

//= rocev2 §2
#[test]
fn flipped_bit_is_detected_exactly_where_the_icrc_covers_it() {
    // One frame of each IP version.
    for capture in ["sizes", "rping_v6"] {
        let frame = roce_frames(capture).into_iter().find(|frame| frame.len() < 200).unwrap();
        let ip_len = if capture == "sizes" { 20 } else { 40 };
        let uncovered: Vec<usize> = if capture == "sizes" {
            // Type of service, TTL, header checksum.
            vec![15, 22, 24, 25]
        } else {
            // Traffic class, flow label, hop limit.
            vec![15, 16, 17, 21]
        };
        let (udp_checksum, congestion) = ([14 + ip_len + 6, 14 + ip_len + 7], 14 + ip_len + 8 + 4);
        for at in 14..frame.len() {
            let mut flipped = frame.clone();
            flipped[at] ^= 0x10;
            // A changed frame may parse in many ways; it must not pass the ICRC check.
            let passes = Packet::parse(&flipped).is_ok_and(|packet| packet.icrc_valid(Crc::detect()));
            let header_checksum = capture == "sizes" && (14..34).contains(&at);
            let free = uncovered.contains(&at) || udp_checksum.contains(&at) || at == congestion;
            // The IPv4 header has a checksum of its own.
            assert_eq!(passes, free && !header_checksum, "{capture} byte {at}");
        }
    }
}

#[test]
fn every_frame_survives_parse_and_emit_of_its_headers() {
    for_every_frame(|capture, frame, packet| {
        let mut again = Vec::new();
        let eth = EthRepr::parse(&packet.eth());
        let mut bytes = [0; Eth::LEN + Eth::TAG_LEN];
        eth.emit(&mut bytes).unwrap();
        again.extend_from_slice(&bytes[..eth.header_len()]);
        match packet.ip() {
            Ip::V4(ip) => {
                let mut bytes = [0; Ipv4::LEN];
                Ipv4Repr::parse(&ip).emit(&mut bytes);
                again.extend_from_slice(&bytes);
            }
            Ip::V6(ip) => {
                let mut bytes = [0; Ipv6::LEN];
                Ipv6Repr::parse(&ip).emit(&mut bytes);
                again.extend_from_slice(&bytes);
            }
        }
        let mut bytes = [0; Udp::LEN];
        UdpRepr::parse(&packet.udp()).emit(&mut bytes);
        again.extend_from_slice(&bytes);
        let mut bytes = [0; Bth::LEN];
        BthRepr::parse(&packet.bth()).emit(&mut bytes);
        again.extend_from_slice(&bytes);
        let mut bytes = [0; Ext::MAX_LEN];
        let len = packet.ext().emit(&mut bytes);
        again.extend_from_slice(&bytes[..len]);
        again.extend_from_slice(packet.payload());
        again.extend_from_slice(packet.pad());
        again.extend_from_slice(&packet.icrc());
        assert_eq!(again, frame, "{capture}");
    });
}

#[test]
fn template_writes_every_frame() {
    for crc in [Crc::table(), Crc::detect()] {
        for_every_frame(|capture, frame, packet| {
            let (identification, hop_limit) = match packet.ip() {
                Ip::V4(ip) => (ip.identification(), ip.ttl()),
                Ip::V6(ip) => (0, ip.hop_limit()),
            };
            let path = Path {
                source_port: packet.udp().source_port(),
                traffic_class: packet.ip().traffic_class(),
                hop_limit,
                ..Path::new(
                    packet.eth().source(),
                    packet.eth().destination(),
                    packet.source(),
                    packet.destination(),
                )
            };
            let bth = packet.bth();
            let template = Template::with_identification(&path, bth.dest_qp(), identification).unwrap();
            let headers = Headers {
                opcode: bth.opcode(),
                solicited: bth.solicited(),
                ack_req: bth.ack_req(),
                psn: bth.psn(),
                ext: packet.ext(),
            };
            let mut slot = vec![0xEE; 9018];
            let mut out = template.begin(crc, &mut slot, &headers, packet.payload().len()).unwrap();
            // In pieces, as from a scatter list.
            let (first, second) = packet.payload().split_at(packet.payload().len() / 3);
            assert_eq!(out.write(first) + out.write(second), packet.payload().len());
            assert_eq!(out.missing(), 0);
            let len = out.finish();
            assert_eq!(&slot[..len], frame, "{capture}");
            let behind = slot.iter().skip(len.max(Template::MIN_SLOT));
            assert!(behind.into_iter().all(|&byte| byte == 0xEE), "wrote beyond the frame");
        });
    }
}

//= rocev2 §11
#[test]
fn every_cm_message_survives_parse_and_emit() {
    let mut messages = 0;
    for_every_frame(|capture, _, packet| {
        if packet.bth().opcode() != Opcode::UD_SEND_ONLY {
            return;
        }
        messages += 1;
        let mad = Mad::new_checked(packet.payload()).unwrap();
        assert_eq!(packet.payload().len(), Mad::LEN);
        let header = MadHeaderRepr::parse(&mad.header());
        let message = CmMessage::parse(&mad).unwrap();
        assert_eq!(header, MadHeaderRepr::cm(message.attribute(), header.transaction_id));
        let mut again = [0xEE; Mad::LEN];
        message.emit(header.transaction_id, &mut again);
        assert_eq!(again, packet.payload(), "{capture}");

        if let CmMessage::Req(req) = message {
            let path = CmPathRepr::parse(&CmPath::new(&req.primary_path));
            let mut again = [0xEE; CmPath::LEN];
            path.emit(&mut again);
            assert_eq!(again, req.primary_path, "{capture}");
            assert_eq!(
                (path.local_gid.to_ip(), path.remote_gid.to_ip()),
                (packet.source(), packet.destination())
            );
            assert_eq!(req.alternate_path, [0; 44]);

            let ip_cm = IpCm::new_checked(&req.private_data).unwrap();
            let mut again = [0xEE; IpCm::LEN];
            IpCmRepr::parse(&ip_cm).emit(&mut again);
            assert_eq!(again, req.private_data[..IpCm::LEN], "{capture}");
            let ends = IpEnds::parse(&ip_cm).unwrap();
            assert_eq!((ends.source, ends.destination), (packet.source(), packet.destination()));
            assert_eq!(ends.repr(), IpCmRepr::parse(&ip_cm));
        }
    });
    assert_eq!(messages, 224);
}

//= rocev2 §11
#[test]
fn cm_fields_are_those_that_linux_sent() {
    let mut report = String::new();
    for capture in ["rping_v4", "rping_v6", "reject_by_consumer", "cm_unanswered"] {
        let mut seen = Vec::new();
        for frame in roce_frames(capture) {
            let packet = Packet::parse(&frame).unwrap();
            let Some(mad) = packet.deth().and_then(|_| Mad::new_checked(packet.payload()).ok()) else {
                continue;
            };
            let message = CmMessage::parse(&mad).unwrap();
            if seen.contains(&message.attribute()) {
                continue;
            }
            seen.push(message.attribute());
            writeln!(report, "== {capture}, {:#x}", mad.header().transaction_id()).unwrap();
            describe(&mut report, &message);
        }
    }
    insta::assert_snapshot!(report);
}

/// Prints a message field by field; byte fields without trailing zeros.
fn describe(report: &mut String, message: &CmMessage) {
    let text = |bytes: &[u8]| {
        let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        format!("{end} of {} bytes: \"{}\"", bytes.len(), bytes[..end].escape_ascii())
    };
    match message {
        CmMessage::Req(req) => {
            let path = CmPathRepr::parse(&CmPath::new(&req.primary_path));
            let ends = IpEnds::parse(&IpCm::new_checked(&req.private_data).unwrap()).unwrap();
            let data = text(&req.private_data[IpCm::LEN..]);
            // Printed on their own lines.
            let rest = format!("{req:?}");
            let rest = rest.split(", primary_path").next().unwrap();
            writeln!(report, "{rest}\n{path:?}\n{ends:?}\n{data}").unwrap();
        }
        CmMessage::Rej(rej) => {
            let rest = format!("{rej:?}");
            let rest = rest.split(", information: ").next().unwrap();
            writeln!(report, "{rest}\n{}\n{}", text(&rej.information), text(&rej.private_data)).unwrap();
        }
        other => {
            let rest = format!("{other:?}");
            let rest = rest.split(", private_data").next().unwrap();
            writeln!(report, "{rest}").unwrap();
        }
    }
}

#[test]
fn nak_and_rnr_nak_syndromes_are_distinguished() {
    let kinds = |capture: &str| {
        let frames = roce_frames(capture);
        let syndromes =
            frames.iter().filter_map(|frame| Packet::parse(frame).unwrap().aeth().map(|a| a.syndrome()));
        syndromes.filter(|s| !matches!(s.kind(), SyndromeKind::Ack(_))).collect::<Vec<_>>()
    };
    assert_eq!(kinds("nak_read_bad_rkey"), [Syndrome(0x62)]);
    assert_eq!(kinds("nak_send_too_long"), [Syndrome(0x63)]);
    assert_eq!(kinds("rnr_then_ok"), [Syndrome(0x20), Syndrome(0x60)]);
}
