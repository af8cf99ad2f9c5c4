// SPDX-License-Identifier: MIT OR Apache-2.0

//! Seeds: the traffic of Linux peers as inputs of the targets.
//!
//! [`make`] creates them from the captures in `crates/roce-wire/tests/vectors/rxe` and `consumers/smb-direct/tests/vectors`;
//! `cd xtask && cargo run -p roce-fuzz --bin seeds` writes them to `seeds/`. A frame is used as it is. For a
//! connection, each side is the peer of a script in turn: its packets become frames or datagrams, and the packets of the
//! other side become consumer requests. Lengths are reduced to the path MTU of the endpoint under test.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use roce_wire::{Class, Ip, Opcode, Operation, Packet, PayloadRule, Psn, Qpn, Syndrome};

use crate::captured::{Captured, read};
use crate::datagrams::{self, datagram};
use crate::endpoint::MTU;
use crate::forge;
use crate::frames::repairs;
use crate::record::Record;
use crate::sequences::{self, frame};
use crate::smb_direct_seeds;
use crate::stash;
use crate::transports;

/// Captures with different sequences of RC packets.
const SEQUENCES: [&str; 20] = [
    "rping_v4",
    "send_bw_1024",
    "write_bw_1024",
    "read_bw_1024",
    "sizes",
    "immediate",
    "zero_length",
    "atomic_cas_faa",
    "reads_outstanding",
    "send_invalidate",
    "nak_write_bad_rkey",
    "nak_read_out_of_range",
    "nak_send_too_long",
    "rnr_then_ok",
    "retry_exceeded",
    "loss_write_middle",
    "loss_ack",
    "loss_read_response_middle",
    "duplicate_write",
    "ecn_marked",
];

/// Captures with different sequences of CM messages.
const DATAGRAMS: [&str; 8] = [
    "rdma_client_server",
    "reject_no_listener",
    "reject_by_consumer",
    "cm_loss_req",
    "cm_loss_rep",
    "cm_loss_rtu",
    "cm_loss_dreq",
    "cm_unanswered",
];

/// Maximum number of records of a seed.
const RECORDS: usize = 40;

/// Returns all seeds of a target, by name.
#[must_use]
pub fn make(target: &str) -> BTreeMap<String, Vec<u8>> {
    match target {
        "frames" => frames(),
        "datagrams" => scripts(&DATAGRAMS, datagrams_of),
        "sequences" => scripts(&SEQUENCES, sequence_of),
        "stash" => stash::seeds(),
        "transports" => transports::seeds(),
        "smb-direct" => smb_direct_seeds::make(),
        _ => BTreeMap::new(),
    }
}

fn capture(name: &str) -> Vec<Captured> {
    read(&format!("crates/roce-wire/tests/vectors/rxe/{name}"))
}

/// Returns the shortest frame of each kind, with the payload truncated to the path MTU of the endpoint.
fn frames() -> BTreeMap<String, Vec<u8>> {
    let mut seeds = BTreeMap::<String, Vec<u8>>::new();
    let names: BTreeSet<&str> = SEQUENCES.into_iter().chain(DATAGRAMS).chain(["rping_v6"]).collect();
    for name in names {
        for Captured { mut bytes, .. } in capture(name) {
            let packet = Packet::parse(&bytes).expect("filtered");
            let kind = kind(&packet);
            let mut mode = repairs::SUMS;
            if matches!(packet.ip(), Ip::V4(_)) && packet.bth().opcode().is_rc() {
                mode |= repairs::ADDRESSES | repairs::QPN | repairs::PSN;
            }
            if let Some(excess) = packet.payload().len().checked_sub(MTU.bytes())
                && packet.bth().dest_qp() != Qpn::GSI
            {
                bytes.truncate(bytes.len() - excess);
                forge::repair(&mut bytes);
            }
            bytes.insert(0, mode);
            let shortest = seeds.entry(kind).or_insert_with(|| bytes.clone());
            if bytes.len() < shortest.len() {
                *shortest = bytes;
            }
        }
    }
    seeds
}

/// Returns the kind of a packet, which names the seed.
fn kind(packet: &Packet<'_>) -> String {
    let family = if matches!(packet.ip(), Ip::V4(_)) { "v4" } else { "v6" };
    let what = match (forge::cm_message(packet), packet.aeth()) {
        (Some((message, _)), _) => format!("cm-{:02x}", message.attribute().0),
        (_, Some(aeth)) if packet.bth().opcode() == Opcode::ACKNOWLEDGE => {
            format!("acknowledge-{:02x}", aeth.syndrome().0)
        }
        _ => packet.info().name.to_lowercase().replace(' ', "-"),
    };
    format!("{family}-{what}")
}

/// Translates a capture to a script; the address is that of the peer.
type Translate = fn(&str, &[Captured], IpAddr) -> Vec<Record>;

/// Returns the scripts of each capture from either side, without duplicates.
fn scripts(names: &[&str], side: Translate) -> BTreeMap<String, Vec<u8>> {
    let mut seeds = BTreeMap::new();
    let mut known = BTreeSet::new();
    for name in names {
        let captured = capture(name);
        let first = Packet::parse(&captured[0].bytes).expect("filtered");
        for (role, peer) in [("from-active", first.source()), ("from-passive", first.destination())] {
            let mut records = side(name, &captured, peer);
            records.truncate(RECORDS);
            let bytes: Vec<u8> = records.iter().flat_map(|record| record.0).collect();
            if !bytes.is_empty() && known.insert(bytes.clone()) {
                seeds.insert(format!("{name}-{role}"), bytes);
            }
        }
    }
    seeds
}

fn record(fields: &[(usize, u8)]) -> Record {
    let mut record = Record::default();
    for &(at, value) in fields {
        record.0[at] = value;
    }
    record
}

/// Translates CM messages; `peer` is the peer of the script.
fn datagrams_of(_: &str, captured: &[Captured], peer: IpAddr) -> Vec<Record> {
    use datagrams::action;
    /// Selector of the peer's own identifier and transaction.
    const THEIRS: u8 = 3;
    /// Selector of the transaction of the endpoint's latest message.
    const LATEST: u8 = 16;
    let mut records = Vec::new();
    let mut before = captured[0].at;
    let mut endpoint_is_active = false;
    for Captured { at, bytes } in captured {
        let packet = Packet::parse(bytes).expect("filtered");
        let Some((message, _)) = forge::cm_message(&packet) else { continue };
        let pause = at.saturating_sub(before);
        before = *at;
        if pause > Duration::from_secs(1) {
            // The fourth and fifth time of the target.
            let time = if pause > Duration::from_secs(3) { 4 } else { 3 };
            records.push(record(&[(0, action::TIME), (1, time)]));
        }
        let code = message.attribute().0 as u8;
        if packet.source() == peer {
            let kind = match code {
                0x10 => datagram::REQ,
                0x11 => datagram::MRA,
                0x12 => datagram::REJ,
                0x13 => datagram::REP,
                0x14 => datagram::RTU,
                0x15 => datagram::DREQ,
                _ => datagram::DREP,
            };
            // Replies to the endpoint's request have its transaction ID.
            let transaction = if endpoint_is_active || kind == datagram::DREP { LATEST } else { THEIRS };
            records.push(record(&[
                (0, action::DATAGRAM),
                (datagram::KIND, kind),
                (datagram::PEER_ID, THEIRS),
                (datagram::TRANSACTION, transaction),
            ]));
            continue;
        }
        // REQ, REJ, REP, RTU, DREQ and DREP are caused by consumer commands.
        let command = match code {
            0x10 => 0,
            0x12 => 8,
            0x13 => 5,
            0x14 => 7,
            0x15 | 0x16 => 9,
            _ => continue,
        };
        endpoint_is_active |= code == 0x10;
        records.push(record(&[(0, action::COMMAND), (1, command)]));
    }
    records
}

/// Translates RC packets; `peer` is the peer of the script.
fn sequence_of(name: &str, captured: &[Captured], peer: IpAddr) -> Vec<Record> {
    use sequences::action;
    let receive = record(&[(0, action::POST), (1, 0), (3, 88), (4, 2)]);
    let mut records = vec![receive; 4];
    let (mut ours, mut theirs) = (Side::default(), Side::default());
    for Captured { bytes, .. } in captured {
        let packet = Packet::parse(bytes).expect("filtered");
        if !packet.bth().opcode().is_rc() {
            continue;
        }
        if packet.source() == peer {
            theirs.send(name, &packet, &mut records);
        } else {
            ours.post(&packet, &mut records);
        }
    }
    records
}

/// The state of one side during the translation.
#[derive(Default)]
struct Side {
    seen: BTreeSet<u32>,
    /// Packets of the current message so far.
    packets: u8,
}

impl Side {
    /// Translates a packet of the peer to a frame. Messages of many packets are reduced to three, of 256, 256 and 88 bytes.
    fn send(&mut self, name: &str, packet: &Packet<'_>, records: &mut Vec<Record>) {
        let info = packet.info();
        self.packets = if info.first { 0 } else { self.packets.saturating_add(1) };
        if self.packets > 1 && !info.last {
            return;
        }
        let is_response = info.class == Class::Response;
        let again = !self.seen.insert(packet.bth().psn().value()) && !is_response;
        let mut flags = u8::from(packet.bth().ack_req()) << frame::ACK_REQ;
        flags |= u8::from(packet.bth().solicited()) << frame::SOLICITED;
        flags |= u8::from(packet.congestion_experienced()) << frame::MARKED;
        let syndrome = packet.aeth().map_or(Syndrome::ACK, |aeth| aeth.syndrome());
        if info.operation == Operation::Acknowledge && syndrome == Syndrome::ACK {
            flags |= 1 << frame::LATEST;
        }
        let psn = match (is_response, info.operation, again) {
            // Relative to the first packet of the response.
            (true, Operation::Read, _) => {
                if info.last && self.packets > 0 {
                    2
                } else {
                    self.packets.min(2)
                }
            }
            (_, _, true) => 0xFF,
            _ => 0,
        };
        let payload = match info.payload {
            PayloadRule::Full => frame::CORRECT,
            _ if is_response => frame::CORRECT,
            _ if !info.first => 88,
            _ => packet.payload().len().min(64) as u8,
        };
        let opcode = Opcode::table().iter().position(|other| other.opcode == info.opcode).unwrap_or(0);
        let key = match info.operation {
            _ if name.contains("bad_rkey") => 255,
            Operation::Read => 1,
            _ => 0,
        };
        // The sixth length of the target is that of a message of three packets.
        let long = info.operation == Operation::Read || !info.last;
        let length = if long && packet.reth().is_some() { 137 } else { 0 };
        let offset = if name.contains("out_of_range") { 0x07FF_u16 } else { 64 };
        let [low, high] = offset.to_le_bytes();
        records.push(record(&[
            (0, sequences::action::FRAME),
            (frame::OPCODE, opcode as u8),
            (frame::PSN, psn),
            (frame::FLAGS, flags),
            (frame::PAYLOAD, payload),
            (frame::KEY, key),
            (frame::OFFSET, low),
            (frame::OFFSET + 1, high),
            (frame::LENGTH, length),
            (frame::SYNDROME, syndrome.0),
            (frame::FILL, packet.bth().psn().value() as u8),
        ]));
    }

    /// Translates the first packet of a request of this side to a post.
    fn post(&mut self, packet: &Packet<'_>, records: &mut Vec<Record>) {
        let info = packet.info();
        let psn: Psn = packet.bth().psn();
        if info.class != Class::Request || !info.first || !self.seen.insert(psn.value()) {
            return;
        }
        let kind = match info.operation {
            Operation::Read => 2,
            Operation::Write => 4,
            Operation::Send if packet.ieth().is_some() => 5,
            Operation::Send => 6,
            _ => return,
        };
        let is_short = info.last && kind != 2;
        let length = if is_short { packet.payload().len().min(64) as u16 } else { 600 };
        let [low, high] = length.to_le_bytes();
        records.push(record(&[(0, sequences::action::POST), (1, kind), (3, low), (4, high)]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repair_keeps_captured_frames() {
        for name in SEQUENCES.into_iter().chain(DATAGRAMS).chain(["rping_v6"]) {
            for Captured { bytes, .. } in capture(name) {
                let packet = Packet::parse(&bytes).unwrap();
                let end = bytes.len() - trailing(&bytes, &packet);
                let mut repaired = bytes[..end].to_vec();
                assert!(forge::repair(&mut repaired));
                assert_eq!(repaired, bytes[..end], "{name}");
            }
        }
    }

    /// Returns the number of bytes behind the ICRC: Ethernet padding.
    fn trailing(bytes: &[u8], packet: &Packet<'_>) -> usize {
        let icrc = packet.icrc();
        (0..16).find(|&behind| bytes[..bytes.len() - behind].ends_with(&icrc)).unwrap()
    }
}
