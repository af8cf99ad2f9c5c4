// SPDX-License-Identifier: MIT OR Apache-2.0

//! Seeds of the target `smb-direct`: each Linux peer of the captures as the peer of a script.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use roce_wire::{Operation, Packet};
use smb_direct::wire::DataTransfer;

use crate::captured::{Captured, read};
use crate::record::Record;
use crate::smb_direct::{action, field};

/// Captures that begin with the negotiation.
const CAPTURES: [&str; 5] =
    ["00-mount", "whole-credits", "whole-keepalive", "whole-mtu1500", "whole-server-ends"];

/// Maximum number of records of a seed.
const RECORDS: usize = 96;

/// Messages of a capture after the negotiation, each with the address of its sender.
fn messages(name: &str) -> Vec<(IpAddr, Vec<u8>)> {
    let mut unfinished = HashMap::<_, Vec<u8>>::new();
    let mut messages = Vec::new();
    for Captured { bytes, .. } in read(&format!("consumers/smb-direct/tests/vectors/linux/{name}")) {
        let packet = Packet::parse(&bytes).expect("filtered");
        let info = packet.info();
        if !packet.bth().opcode().is_rc() || info.operation != Operation::Send {
            continue;
        }
        let message = unfinished.entry(packet.bth().dest_qp().value()).or_default();
        message.extend_from_slice(packet.payload());
        if info.last {
            messages.push((packet.source(), std::mem::take(message)));
        }
    }
    messages
}

/// Returns a script for each side of each capture, by name.
pub fn make() -> BTreeMap<String, Vec<u8>> {
    let mut seeds = BTreeMap::new();
    for name in CAPTURES {
        let messages = messages(name);
        let [(client, _), (server, _), data @ ..] = messages.as_slice() else { continue };
        for (role, peer) in [("from-client", client), ("from-server", server)] {
            let mut first = Record::default();
            first.0[field::ROLE] = u8::from(peer == server);
            first.0[field::CREDITS..field::CREDITS + 3].fill(255);
            let others = data.iter().flat_map(|(source, message)| records(source == peer, message));
            let records: Vec<u8> =
                std::iter::once(first).chain(others).take(RECORDS).flat_map(|record| record.0).collect();
            seeds.insert(format!("{name}-{role}"), records);
        }
    }
    seeds
}

/// A message of the peer, or one that the connection is to send.
fn records(is_peer: bool, message: &[u8]) -> Vec<Record> {
    let (header, payload) = DataTransfer::parse(message).expect("a message of Linux");
    let mut record = Record::default();
    let [low, high] = (payload.len() as u16).to_le_bytes();
    (record.0[field::LENGTH], record.0[field::LENGTH + 1]) = (low, high);
    record.0[field::FILL] = payload.last().copied().unwrap_or_default();
    let mut transmit = Record::default();
    (transmit.0[0], transmit.0[1]) = (action::TRANSMIT, 1);
    if !is_peer {
        record.0[0] = action::SEND;
        return if payload.is_empty() { vec![transmit] } else { vec![record, transmit] };
    }
    record.0[0] = action::RECEIVE;
    record.0[field::REQUESTED] = header.credits_requested as u8;
    record.0[field::GRANTED] = header.credits_granted as u8;
    record.0[field::FLAGS] = header.flags as u8;
    if header.remaining_data_length > 0 {
        let remaining = header.remaining_data_length.min(0xFFFF) as u16;
        let [low, high] = remaining.to_le_bytes();
        (record.0[field::REMAINING], record.0[field::REMAINING + 1]) = (low, high);
        record.0[field::KIND] = 1;
    }
    let mut post = Record::default();
    (post.0[0], post.0[1]) = (action::POST, 1);
    vec![record, post]
}
