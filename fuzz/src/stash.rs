// SPDX-License-Identifier: MIT OR Apache-2.0

//! Target `stash`: messages of a peer whose packets arrive in any order, and at last in order.
//!
//! The first record sets the size of the stash and the number of messages; a record follows for each message, then one for each
//! step. However packets are lost, repeated and reordered meanwhile, messages complete as they do when all arrive in order: once,
//! in order, with the same bytes.

use std::collections::BTreeMap;
use std::time::Duration;

use fallible::Arc;
use roce::{Completion, Qp, RecvRequest, Sge, StashLimits};
use roce_wire::{Ext, Headers, ImmDtRepr, Opcode, PathMtu, RethRepr};

use crate::arena::{ZONE, Zone};
use crate::endpoint::{Endpoint, Link, Lock, MTU, Output, PEER, READS, base};
use crate::forge;
use crate::record::{LEN, Record};

/// Maximum number of records of a script.
pub const STEPS: usize = 128;

/// Messages at most.
const MESSAGES: usize = 8;

/// Receives, and bytes of each.
const RECEIVES: usize = 3;
const RECEIVE: usize = ZONE / RECEIVES;

/// Bytes of a slot of the stash.
const SLOT: u32 = PathMtu::Bytes1024.bytes() as u32 + 128;

/// Offsets of the fields of records.
pub mod field {
    /// Of the first record: slots of the stash for the queue pair and in all, and the number of messages.
    pub const PER_QP: usize = 0;
    pub const TOTAL: usize = 1;
    pub const MESSAGES: usize = 2;
    /// Of a message: what it is, its length, where a WRITE or READ begins, and its bytes.
    pub const KIND: usize = 0;
    pub const LENGTH: usize = 1;
    pub const OFFSET: usize = 3;
    pub const FILL: usize = 5;
    /// Of a step: up to 223 the packet this many after the oldest that has not arrived; above, time passes.
    pub const AHEAD: usize = 0;
    pub const TIME: u8 = 224;
    /// Bit 0: nothing is sent before the next step.
    pub const HELD: usize = 1;
}

/// Runs the script, and the messages without faults.
pub fn run(input: &[u8]) {
    let records = Record::all(input, STEPS);
    let Some((first, rest)) = records.split_first() else { return };
    let count = (usize::from(first.byte(field::MESSAGES)) % MESSAGES + 1).min(rest.len());
    let (messages, steps) = rest.split_at(count);
    let expected = Session::new(first, messages).finish();
    let mut session = Session::new(first, messages);
    session.play(steps);
    assert_eq!(session.finish(), expected, "losses have changed the outcome");
}

/// The messages as a consumer sees them.
#[derive(Debug, PartialEq)]
struct Outcome {
    completions: Vec<Completion>,
    /// The bytes of each message received.
    received: Vec<Vec<u8>>,
    shared: Vec<u8>,
}

struct Session {
    endpoint: Endpoint,
    qp: Arc<Qp<Lock>>,
    packets: Vec<Vec<u8>>,
    /// Which packets have arrived.
    arrived: Vec<bool>,
}

impl Session {
    fn new(first: &Record, messages: &[Record]) -> Self {
        let slots = |at| u32::from(first.byte(at)) % 24 * SLOT;
        let (per_qp, total) = (slots(field::PER_QP), slots(field::TOTAL));
        let mut endpoint = Endpoint::with_stash(StashLimits { per_qp, total });
        for zone in Zone::ALL {
            endpoint.register(zone);
        }
        endpoint.arena.allow(Zone::Sink, 0, ZONE);
        let qp = endpoint.qp();
        let link = endpoint.connect(&qp);
        let key = endpoint.regions[Zone::Sink as usize].as_ref().map_or(0, |region| region.key());
        for context in 0..RECEIVES {
            // In two elements, which do not end with packets.
            let sge = |from: usize, length: usize| Sge {
                address: base(Zone::Sink) + (context * RECEIVE + from) as u64,
                length: length as u32,
                key,
            };
            let sges = [sge(0, 300), sge(300, RECEIVE - 300)];
            let request = RecvRequest { context: context as u64, sges: &sges };
            endpoint.engine.post_recv(&qp, &request).expect("room for a receive");
        }
        let packets = packets(&endpoint, link, messages);
        let arrived = vec![false; packets.len()];
        Self { endpoint, qp, packets, arrived }
    }

    fn play(&mut self, steps: &[Record]) {
        for step in steps {
            match step.byte(field::AHEAD) {
                ahead @ 0..field::TIME => {
                    let oldest = self.arrived.iter().position(|arrived| !arrived).unwrap_or(0);
                    self.deliver((oldest + usize::from(ahead)) % self.packets.len());
                }
                field::TIME.. => {
                    self.endpoint.pass(Duration::from_millis(1));
                }
            }
            if !step.flag(field::HELD, 0) {
                self.endpoint.drive(usize::MAX);
            }
        }
    }

    fn deliver(&mut self, number: usize) {
        self.endpoint.handle(&self.packets[number]);
        self.arrived[number] = true;
    }

    /// The peer sends everything once more, in order, and the connection ends.
    fn finish(mut self) -> Outcome {
        for number in 0..self.packets.len() {
            self.deliver(number);
            self.endpoint.drive(usize::MAX);
        }
        let completions: Vec<_> = self
            .endpoint
            .outputs
            .iter()
            .filter_map(|output| match output {
                Output::Completion(completion) => Some(*completion),
                _ => None,
            })
            .collect();
        let sink = self.endpoint.arena.zone(Zone::Sink);
        let received = completions
            .iter()
            .map(|completion| {
                let start = completion.context as usize * RECEIVE;
                sink[start..start + completion.bytes as usize].to_vec()
            })
            .collect();
        let shared = self.endpoint.arena.zone(Zone::Shared);
        self.endpoint.engine.destroy_qp(&self.qp);
        self.endpoint.run_until_idle(Duration::from_mins(10));
        self.endpoint.arena.check();
        Outcome { completions, received, shared }
    }
}

/// Returns the packets of all messages.
fn packets(endpoint: &Endpoint, link: Link, messages: &[Record]) -> Vec<Vec<u8>> {
    let key = endpoint.regions[Zone::Shared as usize].as_ref().map_or(0, |region| region.key());
    let (mut receives, mut reads, mut psn) = (0, 0, link.psn);
    let mut packets = Vec::new();
    for message in messages {
        let kind = message.byte(field::KIND) % 5;
        receives += usize::from(kind < 3);
        reads += u8::from(kind == 4);
        let kind = match kind {
            0..=2 if receives > RECEIVES => 3,
            // More than the peer may have outstanding.
            4 if reads > READS => 3,
            kind => kind,
        };
        let length = usize::from(message.word(field::LENGTH)) % (RECEIVE + 1);
        let offset = usize::from(message.word(field::OFFSET)) % (ZONE - length);
        let reth =
            RethRepr { address: base(Zone::Shared) + offset as u64, r_key: key, length: length as u32 };
        let imm = ImmDtRepr { data: [message.byte(field::FILL); 4] };
        let count = length.div_ceil(MTU.bytes()).max(1);
        let headers = |opcode, psn, ext| Headers { opcode, solicited: false, ack_req: true, psn, ext };
        if kind == 4 {
            let headers = headers(Opcode::READ_REQUEST, psn, Ext::Reth(reth));
            packets.push(forge::frame(&forge::path(PEER), link.qpn, &headers, &[]));
            psn = psn.add(count as u32);
            continue;
        }
        let bytes: Vec<_> = (0..length).map(|at| message.byte(field::FILL).wrapping_add(at as u8)).collect();
        for number in 0..count {
            let (first, last) = (number == 0, number + 1 == count);
            let (opcode, ext) = packet(kind, first, last, reth, imm);
            let end = length.min((number + 1) * MTU.bytes());
            let headers = headers(opcode, psn, ext);
            let payload = &bytes[number * MTU.bytes()..end];
            packets.push(forge::frame(&forge::path(PEER), link.qpn, &headers, payload));
            psn = psn.next();
        }
    }
    packets
}

/// Returns opcode and headers of a packet of a SEND (0), a SEND or WRITE with immediate data (1, 2), or a WRITE (3).
fn packet(kind: u8, first: bool, last: bool, reth: RethRepr, imm: ImmDtRepr) -> (Opcode, Ext) {
    match (kind, first, last) {
        (0, true, true) => (Opcode::SEND_ONLY, Ext::None),
        (0, false, true) => (Opcode::SEND_LAST, Ext::None),
        (0 | 1, true, false) => (Opcode::SEND_FIRST, Ext::None),
        (0 | 1, false, false) => (Opcode::SEND_MIDDLE, Ext::None),
        (1, true, true) => (Opcode::SEND_ONLY_IMM, Ext::Imm(imm)),
        (1, false, true) => (Opcode::SEND_LAST_IMM, Ext::Imm(imm)),
        (2, true, true) => (Opcode::WRITE_ONLY_IMM, Ext::RethImm(reth, imm)),
        (2, false, true) => (Opcode::WRITE_LAST_IMM, Ext::Imm(imm)),
        (_, true, true) => (Opcode::WRITE_ONLY, Ext::Reth(reth)),
        (_, false, true) => (Opcode::WRITE_LAST, Ext::None),
        (_, true, false) => (Opcode::WRITE_FIRST, Ext::Reth(reth)),
        (_, false, false) => (Opcode::WRITE_MIDDLE, Ext::None),
    }
}

/// Returns scripts of messages of each kind, with stashes of several sizes, whose packets arrive backward, or with gaps.
#[must_use]
pub fn seeds() -> BTreeMap<String, Vec<u8>> {
    let mut seeds = BTreeMap::new();
    for (number, slots) in [(0, 23_u8), (1, 23), (2, 3), (3, 0)] {
        for (name, ahead) in
            [("backward", [7_u8, 6, 5, 4, 3, 2, 1]), ("gaps", [1, 2, 4, 6, 0, 2, 5]), ("late", [3; 7])]
        {
            let mut records = vec![[0; LEN]; 1 + MESSAGES];
            records[0][field::PER_QP..=field::MESSAGES].copy_from_slice(&[slots, slots, 7]);
            for (at, record) in records.iter_mut().skip(1).enumerate() {
                let length = (at * 191 + 100) % RECEIVE;
                record[field::KIND] = (at + number) as u8;
                record[field::LENGTH..field::OFFSET].copy_from_slice(&(length as u16).to_le_bytes());
                record[field::OFFSET..field::FILL].copy_from_slice(&(at as u16 * 170).to_le_bytes());
                record[field::FILL] = at as u8 * 31;
            }
            for ahead in ahead.into_iter().chain([0, field::TIME, 0, 0]) {
                let mut record = [0; LEN];
                record[field::AHEAD] = ahead;
                records.push(record);
            }
            seeds.insert(format!("{name}-{slots}-{number}"), records.concat());
        }
    }
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scripts reach the stash, and packets leave it.
    #[test]
    fn stored_packets_are_executed() {
        let seeds = seeds();
        let records = Record::all(&seeds["backward-23-0"], STEPS);
        let mut session = Session::new(&records[0], &records[1..=MESSAGES]);
        session.play(&records[1 + MESSAGES..]);
        let counters = session.endpoint.counters();
        assert!(counters["rx_stashed"] >= 5 && counters["rx_stash_executed"] > 0, "{counters:?}");
        session.finish();
    }
}
