// SPDX-License-Identifier: MIT OR Apache-2.0

//! No received frame causes a larger answer (amplification).

use roce_wire::cm::{CmMessage, CommId, DreqRepr, RtuRepr};
use roce_wire::{Class, DethRepr, Ext, Mad, Opcode, Packet, Psn, Qpn, Syndrome};
use std::net::{IpAddr, Ipv4Addr};

use super::forger::{Forger, Options, frame, harmless, payload};

/// Length by which an ACK (62 bytes) may exceed the shortest request (58). An Ethernet frame has at least 60
/// bytes.
const ACK_EXCESS: usize = 4;

#[test]
fn a_duplicate_packet_causes_at_most_one_acknowledgement() {
    for info in Opcode::table().iter().filter(|info| info.class == Class::Request) {
        let mut forger = Forger::new(Options::default());
        // Duplicates one and many PSNs old.
        for distance in [1, 1000] {
            let frame = forger.frame(info.opcode, forger.psn.sub(distance), harmless(info), &payload(info));
            forger.give(&frame);
            let answers = forger.sent();
            assert!(answers.len() <= 1, "{}: {} answers", info.name, answers.len());
            let longest = answers.iter().map(Vec::len).max().unwrap_or(0);
            assert!(longest <= frame.len() + ACK_EXCESS, "{}: {longest} bytes", info.name);
        }
    }
}

#[test]
fn a_burst_of_duplicate_packets_causes_one_acknowledgement() {
    let mut forger = Forger::new(Options::default());
    let frame = forger.frame(Opcode::SEND_ONLY, forger.psn.prev(), Ext::None, &[]);
    for _ in 0..1000 {
        forger.give(&frame);
    }
    assert_eq!(forger.sent().len(), 1);
    assert_eq!(forger.stat("rx_duplicates"), 1000);
}

#[test]
fn out_of_order_packets_cause_at_most_one_nak_each_and_one_per_gap() {
    let mut forger = Forger::new(Options::default());
    let mut answers = 0;
    for ahead in 1..=500 {
        let frame = forger.frame(Opcode::SEND_ONLY, forger.psn.add(ahead), Ext::None, b"much later");
        forger.give(&frame);
        answers += forger.sent().len();
    }
    assert_eq!(answers, 1, "one NAK per gap");
    // Decreasing PSNs look like a sender that goes back N.
    for ahead in (1..=500).rev() {
        let frame = forger.frame(Opcode::SEND_ONLY, forger.psn.add(ahead), Ext::None, b"much later");
        forger.give(&frame);
        assert!(forger.sent().len() <= 1);
    }
}

#[test]
fn responses_and_datagrams_are_not_answered() {
    for info in Opcode::table().iter().filter(|info| info.class != Class::Request) {
        let mut forger = Forger::new(Options::default());
        let to = if info.class == Class::Datagram { Qpn::GSI } else { forger.bob() };
        for psn in [forger.psn, forger.bobs, forger.bobs.prev(), Psn::new(0)] {
            let frame = frame(&forger.path, to, info.opcode, psn, harmless(info), &payload(info));
            forger.give(&frame);
        }
        assert_eq!(forger.sent(), Vec::<Vec<u8>>::new(), "{}", info.name);
    }
}

/// Returns a CM datagram that belongs to no connection.
fn datagram(from: Ipv4Addr, forger: &Forger, message: &CmMessage) -> Vec<u8> {
    let mut mad = [0; Mad::LEN];
    message.emit(1, &mut mad);
    let path = roce_wire::Path { local_ip: IpAddr::V4(from), ..forger.path };
    frame(&path, Qpn::GSI, Opcode::UD_SEND_ONLY, Psn::new(0), Ext::Deth(DethRepr::GSI), &mad)
}

#[test]
fn a_datagram_without_connection_causes_at_most_one_answer_of_its_length() {
    let mut forger = Forger::new(Options::default());
    let (mine, theirs) = (CommId(0x1234), CommId(0x5678));
    let dreq = DreqRepr {
        local_comm_id: mine,
        remote_comm_id: theirs,
        remote_qpn: forger.bob(),
        private_data: [0; 220],
    };
    let rtu = RtuRepr { local_comm_id: mine, remote_comm_id: theirs, private_data: [0; 224] };
    for message in [CmMessage::Dreq(dreq), CmMessage::Rtu(rtu)] {
        for last in 1..=200 {
            let request = datagram(Ipv4Addr::new(10, 0, 1, last), &forger, &message);
            forger.give(&request);
            let answers = forger.sent();
            assert!(answers.len() <= 1);
            for answer in answers {
                assert!(answer.len() <= request.len());
                let (answer, request) = (Packet::parse(&answer).unwrap(), Packet::parse(&request).unwrap());
                assert_eq!(answer.destination(), request.source());
            }
        }
    }
    // No state is left behind.
    assert_eq!(forger.stat("connections_aborted"), 0);
}

#[test]
fn datagrams_from_non_unicast_sources_are_not_answered() {
    let mut forger = Forger::new(Options::default());
    let dreq = CmMessage::Dreq(DreqRepr {
        local_comm_id: CommId(1),
        remote_comm_id: CommId(2),
        remote_qpn: forger.bob(),
        private_data: [0; 220],
    });
    for source in
        [Ipv4Addr::BROADCAST, Ipv4Addr::UNSPECIFIED, Ipv4Addr::LOCALHOST, Ipv4Addr::new(224, 0, 0, 1)]
    {
        let request = datagram(source, &forger, &dreq);
        forger.give(&request);
        assert_eq!(forger.sent(), Vec::<Vec<u8>>::new(), "{source}");
    }
    let mut request = datagram(Ipv4Addr::new(10, 0, 0, 9), &forger, &dreq);
    request[6..12].fill(0xFF);
    forger.give(&request);
    assert_eq!(forger.sent(), Vec::<Vec<u8>>::new(), "broadcast MAC address");
}

#[test]
fn a_fatal_nak_is_sent_once() {
    let mut forger = Forger::new(Options::default());
    let reth = roce_wire::RethRepr { address: 0, r_key: 0x1234_5678, length: 4 };
    let frame = forger.frame(Opcode::WRITE_ONLY, forger.psn, Ext::Reth(reth), b"evil");
    forger.give(&frame);
    let naks = |frames: &[Vec<u8>]| {
        let packets = frames.iter().map(|frame| Packet::parse(frame).unwrap());
        packets.filter_map(|packet| packet.aeth()).filter(|aeth| aeth.syndrome() != Syndrome::ACK).count()
    };
    let sent = forger.sent();
    assert_eq!(naks(&sent), 1);
    for _ in 0..100 {
        forger.give(&frame);
    }
    assert_eq!(naks(&forger.sent()), 0);
    assert_eq!(forger.stat("drop_state"), 100);
}
