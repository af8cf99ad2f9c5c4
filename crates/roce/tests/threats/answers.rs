// SPDX-License-Identifier: MIT OR Apache-2.0

//! Nothing that comes in draws more than it cost.

use roce_wire::cm::{CmMessage, CommId, DreqRepr, RtuRepr};
use roce_wire::{Class, DethRepr, Ext, Mad, Opcode, Packet, Psn, Qpn, Syndrome};
use std::net::{IpAddr, Ipv4Addr};

use crate::forger::{Forger, Options, frame, harmless, payload};

/// An ACK is 62 bytes, and the shortest request that asks for one 58: what Ethernet carries is 60 at least.
const ACK_EXCESS: usize = 4;

#[test]
fn a_packet_that_comes_again_draws_one_acknowledgement_at_most() {
    for info in Opcode::table().iter().filter(|info| info.class == Class::Request) {
        let mut forger = Forger::new(Options::default());
        // Old, by one and by many.
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
fn a_burst_of_packets_that_come_again_draws_one_acknowledgement_for_all() {
    let mut forger = Forger::new(Options::default());
    let frame = forger.frame(Opcode::SEND_ONLY, forger.psn.prev(), Ext::None, &[]);
    for _ in 0..1000 {
        forger.give(&frame);
    }
    assert_eq!(forger.sent().len(), 1);
    assert_eq!(forger.stat("rx_duplicates"), 1000);
}

#[test]
fn a_packet_out_of_order_draws_one_refusal_and_a_flood_of_them_no_more_than_one_each() {
    let mut forger = Forger::new(Options::default());
    let mut answers = 0;
    for ahead in 1..=500 {
        let frame = forger.frame(Opcode::SEND_ONLY, forger.psn.add(ahead), Ext::None, b"much later");
        forger.give(&frame);
        answers += forger.sent().len();
    }
    assert_eq!(answers, 1, "a gap is told of once");
    // Numbers that fall look like a sender that goes back.
    for ahead in (1..=500).rev() {
        let frame = forger.frame(Opcode::SEND_ONLY, forger.psn.add(ahead), Ext::None, b"much later");
        forger.give(&frame);
        assert!(forger.sent().len() <= 1);
    }
}

#[test]
fn answers_are_not_answered() {
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

/// A datagram of connection management about no connection.
fn datagram(from: Ipv4Addr, forger: &Forger, message: &CmMessage) -> Vec<u8> {
    let mut mad = [0; Mad::LEN];
    message.emit(1, &mut mad);
    let path = roce_wire::Path { local_ip: IpAddr::V4(from), ..forger.path };
    frame(&path, Qpn::GSI, Opcode::UD_SEND_ONLY, Psn::new(0), Ext::Deth(DethRepr::GSI), &mad)
}

#[test]
fn a_datagram_about_nothing_draws_one_answer_of_its_own_length_at_most() {
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
            let question = datagram(Ipv4Addr::new(10, 0, 1, last), &forger, &message);
            forger.give(&question);
            let answers = forger.sent();
            assert!(answers.len() <= 1);
            for answer in answers {
                assert!(answer.len() <= question.len());
                let (answer, question) = (Packet::parse(&answer).unwrap(), Packet::parse(&question).unwrap());
                assert_eq!(answer.destination(), question.source());
            }
        }
    }
    // Nothing of it is waited for.
    assert_eq!(forger.stat("connections_aborted"), 0);
}

#[test]
fn answers_to_a_group_of_hosts_are_not_given() {
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
        let question = datagram(source, &forger, &dreq);
        forger.give(&question);
        assert_eq!(forger.sent(), Vec::<Vec<u8>>::new(), "{source}");
    }
    let mut question = datagram(Ipv4Addr::new(10, 0, 0, 9), &forger, &dreq);
    question[6..12].fill(0xFF);
    forger.give(&question);
    assert_eq!(forger.sent(), Vec::<Vec<u8>>::new(), "a broadcast station");
}

#[test]
fn a_fatal_refusal_is_told_once_and_then_nothing() {
    let mut forger = Forger::new(Options::default());
    let reth = roce_wire::RethRepr { address: 0, r_key: 0x1234_5678, length: 4 };
    let frame = forger.frame(Opcode::WRITE_ONLY, forger.psn, Ext::Reth(reth), b"evil");
    forger.give(&frame);
    let refusals = |frames: &[Vec<u8>]| {
        let packets = frames.iter().map(|frame| Packet::parse(frame).unwrap());
        packets.filter_map(|packet| packet.aeth()).filter(|aeth| aeth.syndrome() != Syndrome::ACK).count()
    };
    let sent = forger.sent();
    assert_eq!(refusals(&sent), 1);
    for _ in 0..100 {
        forger.give(&frame);
    }
    assert_eq!(refusals(&forger.sent()), 0);
    assert_eq!(forger.stat("drop_state"), 100);
}
