// SPDX-License-Identifier: MIT OR Apache-2.0

//! Target `transports`: two hosts with a queue pair each, which their owners modify without connection management, and a network that
//! loses, repeats, reorders and damages frames.
//!
//! The first record selects the transport that both begin with: RC, UC, UD, or none, so that the script has to open one. Its steps
//! change states and attributes, in any order, post requests of any kind, whether the transport has it or not, and let frames and time
//! pass.

mod changes;
mod expected;
mod field;

use std::collections::VecDeque;
use std::time::Duration;

use fallible::Arc;
use roce::{
    AtomicOperation, AtomicRequest, CompletionKind, Config, DatagramRequest, Qp, QpChange, QpState,
    RecvRequest, SendData, SendFlags, SendOperation, SendRequest, Sge,
};
use roce_wire::icrc::Crc;
use roce_wire::{Packet, Qpn};

use crate::arena::{ZONE, Zone};
use crate::endpoint::{Endpoint, Lock, base};
use crate::forge;
use crate::record::{LEN, Record};
use changes::Transport;
use expected::{Expected, Posted};

/// Maximum number of records of a script.
pub const STEPS: usize = 96;

/// Most frames under way. Further ones are lost.
const UNDER_WAY: usize = 64;

/// Values of the first byte of a record.
mod action {
    pub(super) const CHANGE: u8 = 0;
    pub(super) const POST: u8 = 48;
    pub(super) const RECEIVE: u8 = 128;
    pub(super) const DELIVER: u8 = 160;
    pub(super) const TIME: u8 = 208;
    pub(super) const SETTLE: u8 = 224;
    pub(super) const MEMORY: u8 = 248;
}

/// Runs the script.
pub fn run(input: &[u8]) {
    let records = Record::all(input, STEPS);
    let Some((first, steps)) = records.split_first() else { return };
    let mut session = Session::new(first.pick(0, &Transport::ALL));
    for step in steps {
        session.step(step);
    }
    session.end();
}

/// A host: an endpoint with the queue pair under test.
struct Host {
    endpoint: Endpoint,
    qp: Arc<Qp<Lock>>,
    expected: Expected,
}

struct Session {
    hosts: [Host; 2],
    /// Frames under way, and the hosts that they go to.
    wire: VecDeque<(usize, Vec<u8>)>,
    context: u64,
}

impl Session {
    fn new(transport: Option<Transport>) -> Self {
        let hosts = [1, 2].map(|number| {
            let mut endpoint = Endpoint::at(number, Config::new(0, [0; 32]).stash);
            for zone in Zone::ALL {
                endpoint.register(zone);
            }
            let qp = endpoint.qp();
            Host { endpoint, qp, expected: Expected::default() }
        });
        let mut session = Self { hosts, wire: VecDeque::new(), context: 0 };
        for host in [0, 1] {
            let changes = transport.map(|transport| transport.opening(host, session.peer_qpn(host)));
            for change in changes.iter().flatten() {
                session.change(host, change);
            }
        }
        session
    }

    /// Returns the number of the other host's queue pair.
    fn peer_qpn(&self, host: usize) -> Qpn {
        self.hosts[1 - host].qp.qpn()
    }

    fn step(&mut self, record: &Record) {
        let host = usize::from(record.flag(field::HOST, 0));
        match record.byte(0) {
            action::CHANGE..action::POST => {
                let change = changes::of_record(host, self.peer_qpn(host), record);
                self.change(host, &change);
            }
            action::POST..action::RECEIVE => self.post(host, record),
            action::RECEIVE..action::DELIVER => self.receive(host, record),
            action::DELIVER..action::TIME => self.deliver(record),
            action::TIME..action::SETTLE => {
                const TIMES: [u64; 6] = [10, 700, 40_000, 300_000, 3_000_000, 40_000_000];
                self.pass(Duration::from_micros(record.pick(field::KIND, &TIMES)));
            }
            action::SETTLE..action::MEMORY => self.settle(),
            action::MEMORY.. => {
                let endpoint = &mut self.hosts[host].endpoint;
                let zone = record.pick(field::KIND, &Zone::ALL);
                match endpoint.regions[zone as usize].take() {
                    Some(region) => assert!(endpoint.engine.memory().deregister(&region), "it is registered"),
                    None => endpoint.register(zone),
                }
            }
        }
        for host in [0, 1] {
            self.drive(host);
        }
    }

    /// Changes a queue pair. A change that is refused changes nothing.
    fn change(&mut self, host: usize, change: &QpChange) {
        self.drive(host);
        let Host { endpoint, qp, expected } = &mut self.hosts[host];
        let (before, was_draining) = (qp.state(), qp.is_draining());
        let changed = endpoint.engine.modify_qp(qp, change);
        if changed.is_ok() {
            expected.changed(change, before);
        } else {
            assert_eq!((qp.state(), qp.is_draining()), (before, was_draining), "{change:?}: {changed:?}");
        }
        self.drive(host);
        if changed.is_ok() && matches!(change, QpChange::Reset) {
            assert_eq!(self.hosts[host].qp.state(), QpState::Reset);
            assert!(self.hosts[host].qp.is_drained(), "a queue pair in Reset has requests");
        }
    }

    /// Posts a request of any kind to the send queue.
    fn post(&mut self, host: usize, record: &Record) {
        self.context += 1;
        let context = self.context;
        let kind = record.byte(field::KIND) % 12;
        let peer = &self.hosts[1 - host];
        let (remote_key, remote) = remote(peer, record);
        let qpn = peer.qp.qpn();
        let (offset, length) = range(record);
        let reads = matches!(kind, 3 | 4);
        let is_atomic = matches!(kind, 5 | 6);
        let Host { endpoint, qp, expected } = &mut self.hosts[host];
        let zone = if reads || is_atomic { Zone::Sink } else { Zone::Source };
        let key = endpoint.regions[zone as usize].as_ref().map_or(0x4_3210, |region| region.key());
        let sge = |from: u16, length: u16| Sge {
            address: base(zone) + u64::from(from),
            length: u32::from(length),
            key,
        };
        let (one, two) = (length / 3, length - length / 3);
        let sges = [sge(offset, one), sge(offset + one, two)];
        let flags = SendFlags::from_bits_truncate(record.byte(field::FLAGS));
        let inline = [record.byte(field::VALUE); 24];
        let pieces = [&inline[..8], &inline[8..]];
        let is_inline = record.byte(field::KEY) % 5 == 4;
        let data = if is_inline { SendData::Inline(&pieces) } else { SendData::Sges(&sges) };
        let value = u64::from(record.word(field::VALUE));
        let operation = match kind {
            0 | 1 => SendOperation::Send,
            3 | 4 => SendOperation::Read { address: remote, key: remote_key },
            7 => SendOperation::SendInvalidate { key: remote_key },
            _ => SendOperation::Write { address: remote, key: remote_key },
        };
        let request = SendRequest { context, operation, flags, data };
        let immediate = inline[..4].try_into().expect("4 bytes");
        let (posted, completes_as) = match kind {
            5 | 6 => {
                let compare_swap = AtomicOperation::CompareSwap { compare: value, swap: value + 1 };
                let (operation, completes_as) = if kind == 5 {
                    (compare_swap, CompletionKind::CompareSwap)
                } else {
                    (AtomicOperation::FetchAdd { add: value }, CompletionKind::FetchAdd)
                };
                // Usually 8 bytes at a multiple of 8.
                let is_odd = record.byte(field::KEY) >= 240;
                let address = if is_odd { remote } else { remote & !7 };
                let sink = sge(offset, if is_odd { length } else { 8 });
                let request = AtomicRequest { context, address, key: remote_key, operation, flags, sink };
                (endpoint.engine.post_atomic(qp, &request), completes_as)
            }
            8 | 9 => {
                (endpoint.engine.post_send_immediate(qp, &request, immediate), operation_kind(operation))
            }
            10 | 11 => {
                let path = forge::path_between(host as u8 + 1, 2 - host as u8);
                let qpn = if record.byte(field::KEY) < 224 { qpn } else { Qpn::new(u32::from(value as u16)) };
                let q_key = record.pick(field::KEY, &[changes::Q_KEY, changes::Q_KEY, 1 << 31, 7]);
                let immediate = (kind == 11).then_some(immediate);
                let request = DatagramRequest { context, path: &path, qpn, q_key, immediate, flags, data };
                (endpoint.engine.post_datagram(qp, &request), CompletionKind::Send)
            }
            _ => (endpoint.engine.post_send(qp, &request), operation_kind(operation)),
        };
        if posted.is_ok() {
            assert_ne!(qp.state(), QpState::Reset, "a post was accepted");
            let silent = flags.contains(SendFlags::SILENT);
            expected.sends.push_back(Posted { context, silent, kind: Some(completes_as), room: u32::MAX });
            if reads || is_atomic {
                let length = if is_atomic { length.max(8) } else { length };
                let end = usize::from(offset + length).min(ZONE);
                endpoint.arena.allow(
                    Zone::Sink,
                    usize::from(offset),
                    end.saturating_sub(usize::from(offset)),
                );
            }
        }
        self.drive(host);
    }

    fn receive(&mut self, host: usize, record: &Record) {
        self.context += 1;
        let context = self.context;
        let (offset, length) = range(record);
        let Host { endpoint, qp, expected } = &mut self.hosts[host];
        let key = endpoint.regions[Zone::Sink as usize].as_ref().map_or(0x4_3210, |region| region.key());
        let sge = Sge { address: base(Zone::Sink) + u64::from(offset), length: u32::from(length), key };
        let sges = [sge];
        // Rarely more elements than the queue pair was created with.
        let sges = if record.byte(field::KEY) < 16 { &sges[..0] } else { &sges[..] };
        if endpoint.engine.post_recv(qp, &RecvRequest { context, sges }).is_ok() {
            let room = sges.iter().map(|sge| sge.length).sum();
            expected.receives.push_back(Posted { context, silent: false, kind: None, room });
            let end = usize::from(offset + length).min(ZONE);
            endpoint.arena.allow(Zone::Sink, usize::from(offset), end.saturating_sub(usize::from(offset)));
        }
        self.drive(host);
    }

    /// Lets frames that are under way arrive, or not.
    fn deliver(&mut self, record: &Record) {
        for _ in 0..=record.byte(field::LENGTH) % 8 {
            let Some((to, mut frame)) = self.wire.pop_front() else { return };
            match record.byte(field::KIND) % 16 {
                0 | 1 => {}
                2 => self.wire.push_back((to, frame)),
                3 => {
                    self.handle(to, &frame);
                    self.handle(to, &frame);
                }
                4 => {
                    let at = usize::from(record.word(field::OFFSET)) % frame.len();
                    frame[at] ^= 1 << (record.byte(field::VALUE) % 8);
                    self.handle(to, &frame);
                }
                // A fault that the ICRC does not show, as of a peer that breaks the rules.
                5 => {
                    let at = usize::from(record.word(field::OFFSET)) % frame.len();
                    frame[at] ^= 1 << (record.byte(field::VALUE) % 8);
                    forge::repair(&mut frame);
                    self.handle(to, &frame);
                }
                _ => self.handle(to, &frame),
            }
        }
    }

    fn handle(&mut self, to: usize, frame: &[u8]) {
        self.hosts[to].endpoint.handle(frame);
        self.drive(to);
    }

    fn drive(&mut self, host: usize) {
        let Host { endpoint, expected, .. } = &mut self.hosts[host];
        let frames = endpoint.drive(usize::MAX);
        expected.observe(&mut endpoint.outputs);
        assert!(endpoint.drained <= expected.drains, "a drained queue was reported that was not drained");
        for frame in frames {
            let packet = Packet::parse(&frame).expect("frames of a host are valid");
            assert!(packet.icrc_valid(Crc::table()), "a frame with a wrong ICRC");
            if self.wire.len() < UNDER_WAY {
                self.wire.push_back((1 - host, frame));
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        for host in [0, 1] {
            let end = self.hosts[host].endpoint.now + time;
            while self.hosts[host].endpoint.step_towards(end) {
                self.drive(host);
            }
        }
    }

    /// Lets all frames arrive, and what they cause, for a while.
    fn settle(&mut self) {
        for _ in 0..4 {
            for _ in 0..200 {
                let Some((to, frame)) = self.wire.pop_front() else { break };
                self.handle(to, &frame);
            }
            self.pass(Duration::from_millis(1));
        }
    }

    /// Ends both queue pairs, and checks that every request has completed and that all objects are free.
    fn end(mut self) {
        for host in [0, 1] {
            self.change(host, &QpChange::Error);
            let Host { qp, expected, .. } = &self.hosts[host];
            assert_eq!(qp.state(), QpState::Error);
            assert!(qp.is_drained(), "a queue pair in Error has requests");
            expected.assert_complete();
        }
        for Host { mut endpoint, qp, mut expected } in self.hosts {
            endpoint.engine.destroy_qp(&qp);
            endpoint.run_until_idle(Duration::from_mins(10));
            expected.observe(&mut endpoint.outputs);
            endpoint.arena.check();
            endpoint.assert_all_released();
        }
    }
}

/// Returns a key of the peer, and an address of its memory.
fn remote(peer: &Host, record: &Record) -> (u32, u64) {
    let zone =
        record.pick(field::KEY, &[Zone::Shared, Zone::Shared, Zone::Shared, Zone::Readable, Zone::Sink]);
    let key = peer.endpoint.regions[zone as usize].as_ref().map_or(0x4_3210, |region| region.key());
    let key = if record.byte(field::KEY) < 248 { key } else { key ^ 1 };
    (key, base(zone) + u64::from(record.word(field::VALUE) % (ZONE as u16 + 16)))
}

/// Returns the place of local memory: usually within the zone.
fn range(record: &Record) -> (u16, u16) {
    let offset = record.word(field::OFFSET) % ZONE as u16;
    let length = record.word(field::LENGTH) % 1200;
    let is_within = record.byte(field::KEY) < 250;
    (offset, if is_within { length.min(ZONE as u16 - offset) } else { length })
}

fn operation_kind(operation: SendOperation) -> CompletionKind {
    match operation {
        SendOperation::Write { .. } => CompletionKind::Write,
        SendOperation::Read { .. } => CompletionKind::Read,
        _ => CompletionKind::Send,
    }
}

/// Returns the seeds: each transport, with requests of each kind, without and with losses, drained, reset and opened again.
#[must_use]
pub fn seeds() -> std::collections::BTreeMap<String, Vec<u8>> {
    let mut seeds = std::collections::BTreeMap::new();
    let record = |bytes: &[u8]| {
        let mut record = [0; LEN];
        record[..bytes.len()].copy_from_slice(bytes);
        record
    };
    for (transport, name) in (0..).zip(["rc", "uc", "ud"]) {
        for (fate, network) in [(15, "clean"), (1, "lossy"), (5, "damaged")] {
            let mut records = vec![record(&[transport])];
            for kind in 0..12 {
                let host = kind % 2;
                for offset in [0, 2] {
                    records.push(record(&[action::RECEIVE, 1 - host, 0, 144, 1, 0, offset, 32]));
                }
                let length = if transport == 2 { 200 } else { 255 };
                records.push(record(&[action::POST, host, kind, length, 0, 64, 1, 0, 0, 16]));
                records.push(record(&[action::DELIVER, 0, fate, 0]));
                records.push(record(&[action::SETTLE]));
            }
            seeds.insert(format!("{name}-{network}"), records.concat());
        }
        let mut records = vec![record(&[transport])];
        for change in changes::kind::ALL {
            records.push(record(&[action::RECEIVE, 1, 0, 144, 1, 0, 0, 32]));
            records.push(record(&[action::POST, 0, 0, 100, 0, 64, 1, 0, 0, 16]));
            records.push(record(&[action::CHANGE, 0, change]));
            records.push(record(&[action::SETTLE]));
        }
        seeds.insert(format!("{name}-changes"), records.concat());
    }
    seeds
}

#[cfg(test)]
mod tests;
