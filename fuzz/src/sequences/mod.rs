// SPDX-License-Identifier: MIT OR Apache-2.0

//! Target `sequences`: a connected queue pair with posted requests, and a peer that sends any packets.
//!
//! Frames come from the peer, whose next PSN is tracked, or are forged: from other addresses, to other queue pairs, with
//! other partition keys, or with a wrong ICRC. A second run without the forged frames must have the same outputs.
//!
//! The consumer registers memory and binds a window by requests, and receives from a shared receive queue if the lowest bit of the
//! first record is set.

mod outputs;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use fallible::Arc;
use roce::{
    PRIVILEGED_KEY, Qp, RecvRequest, SendData, SendFlags, SendOperation, SendRequest, Sge, Srq, SrqSpec,
    Verdict,
};
use roce_wire::{
    AethRepr, AtomicAckEthRepr, AtomicEthRepr, Class, Ext, ExtHeaders, Headers, IethRepr, ImmDtRepr, Opcode,
    Packet, PayloadRule, Qpn, RethRepr, Syndrome,
};

use crate::arena::{ZONE, Zone};
use crate::endpoint::{ENDPOINT_PSN, Endpoint, Link, Lock, MTU, Output, PEER, base};
use crate::forge;
use crate::keys::{Keys, Request, Which};
use crate::record::{self, Record};
use outputs::{Expected, Posted};

/// Maximum number of records of a script.
const STEPS: usize = 96;

/// Values of the first byte of a record.
pub mod action {
    pub const FRAME: u8 = 0;
    pub const POST: u8 = 160;
    pub const TIME: u8 = 200;
    pub const DRIVE: u8 = 220;
    pub const COMMAND: u8 = 240;
}

/// Offsets of the fields of a frame record.
pub mod frame {
    /// Index into the opcode table.
    pub const OPCODE: usize = 1;
    /// From `FORGED` on, a forged frame.
    pub const SENDER: usize = 2;
    pub const FORGED: u8 = 224;
    /// Signed offset to the expected PSN.
    pub const PSN: usize = 3;
    pub const FLAGS: usize = 4;
    pub const ACK_REQ: u32 = 0;
    pub const SOLICITED: u32 = 1;
    pub const MARKED: u32 = 2;
    /// More frames arrive before the endpoint sends.
    pub const HELD: u32 = 3;
    /// A response is relative to the latest request instead of the oldest.
    pub const LATEST: u32 = 4;
    pub const OTHER_PORT: u32 = 5;
    /// Payload length: up to 99 bytes; 100 for the correct length; above, steps of 8 bytes around the MTU.
    pub const PAYLOAD: usize = 5;
    pub const CORRECT: u8 = 100;
    pub const KEY: usize = 6;
    pub const OFFSET: usize = 7;
    pub const LENGTH: usize = 9;
    pub const SYNDROME: usize = 10;
    pub const FILL: usize = 11;
}

/// Runs the script, and again without the forged frames if there are any.
pub fn run(input: &[u8]) {
    let records = Record::all(input, STEPS);
    let shares = records.first().is_some_and(|record| record.flag(record::LEN - 1, 0));
    let with = Session::new(true, shares).play(&records);
    if records.iter().any(is_forged) {
        let without = Session::new(false, shares).play(&records);
        assert_eq!(with, without, "a forged frame had an effect");
    }
}

fn is_forged(record: &Record) -> bool {
    record.byte(0) < action::POST && record.byte(frame::SENDER) >= frame::FORGED
}

struct Session {
    endpoint: Endpoint,
    qp: Arc<Qp<Lock>>,
    srq: Option<Arc<Srq<Lock>>>,
    keys: Keys,
    link: Link,
    expected: Expected,
    /// Whether forged frames are delivered.
    forged: bool,
    context: u64,
    deregistered_key: u32,
    /// Outputs that were checked.
    checked: Vec<Output>,
}

impl Session {
    fn new(forged: bool, shares: bool) -> Self {
        let mut endpoint = Endpoint::new();
        for zone in Zone::ALL {
            endpoint.register(zone);
        }
        let keys = Keys::new(&endpoint);
        let spec = SrqSpec { depth: 16, sges: 2, threshold: 2, context: 5 };
        let srq = shares.then(|| endpoint.engine.create_srq(&spec).expect("room for a queue"));
        let qp = endpoint.qp_with(srq.clone());
        let link = endpoint.connect(&qp);
        Self {
            endpoint,
            qp,
            srq,
            keys,
            expected: Expected::of(link.psn),
            link,
            forged,
            context: 0,
            deregistered_key: 0x1234_5678,
            checked: Vec::new(),
        }
    }

    /// Runs the script; returns all outputs.
    fn play(mut self, records: &[Record]) -> Vec<Output> {
        for record in records {
            match record.byte(0) {
                action::FRAME..action::POST => self.frame(record),
                action::POST..action::TIME => self.post(record),
                action::TIME..action::DRIVE => {
                    const TIMES: [u64; 6] = [10, 700, 40_000, 300_000, 3_000_000, 40_000_000];
                    let frames = self.endpoint.pass(Duration::from_micros(record.pick(1, &TIMES)));
                    self.observe(&frames);
                    self.drive(usize::MAX);
                }
                action::DRIVE..action::COMMAND => self.drive(usize::from(record.byte(1) % 8)),
                action::COMMAND.. => self.command(record),
            }
        }
        self.end()
    }

    fn drive(&mut self, budget: usize) {
        let frames = self.endpoint.drive(budget);
        self.observe(&frames);
    }

    /// Delivers a frame.
    fn frame(&mut self, record: &Record) {
        let forged = is_forged(record);
        let bytes = self.forge(record);
        if !forged {
            self.count_request(record, &bytes);
        } else if self.forged {
            let verdict = self.endpoint.handle(&bytes);
            // One that is not to this host's address goes to the network stack.
            assert_ne!(verdict, Verdict::Consumed, "a forged frame was consumed");
        }
        if !record.flag(frame::FLAGS, frame::HELD) {
            self.drive(usize::MAX);
        }
    }

    /// Counts the responses that a frame of the peer allows, and updates the state of the peer.
    fn count_request(&mut self, record: &Record, bytes: &[u8]) {
        let packet = Packet::parse(bytes).expect("a valid frame");
        let counts = &mut self.expected.counts;
        let mut packets = 1;
        if packet.info().class == Class::Request {
            counts.requests += 1;
            counts.request_bytes += bytes.len() as u64;
        }
        if packet.bth().opcode() == Opcode::READ_REQUEST
            && let Some(reth) = packet.reth()
        {
            packets = reth.length().div_ceil(MTU.bytes() as u32).max(1);
            counts.read_packets += u64::from(packets);
        }
        counts.marks += u64::from(packet.congestion_experienced());
        let verdict = self.endpoint.handle(bytes);
        let in_order = record.byte(frame::PSN) == 0;
        match packet.info().class {
            Class::Request if in_order && verdict == Verdict::Consumed => {
                self.expected.next = self.expected.next.add(packets);
            }
            Class::Response => self.expected.acknowledged(packet.bth().psn()),
            _ => {}
        }
    }

    fn forge(&self, record: &Record) -> Vec<u8> {
        let table = Opcode::table();
        let info = &table[usize::from(record.byte(frame::OPCODE)) % table.len()];
        let is_response = info.class == Class::Response;
        let expected_psn = match (is_response, record.flag(frame::FLAGS, frame::LATEST)) {
            (false, _) => self.expected.next,
            (true, false) => {
                self.expected.pending_requests.front().map_or(ENDPOINT_PSN, |request| request.psn)
            }
            (true, true) => self.expected.pending_requests.back().map_or(ENDPOINT_PSN, |request| request.psn),
        };
        let delta = i32::from(record.byte(frame::PSN).cast_signed());
        let psn = expected_psn.add(delta.cast_unsigned());

        let payload_len = match (info.payload, record.byte(frame::PAYLOAD)) {
            (PayloadRule::None, _) => 0,
            (_, len @ 0..frame::CORRECT) => usize::from(len),
            (PayloadRule::Full, frame::CORRECT) => MTU.bytes(),
            (_, frame::CORRECT) if is_response => self.expected.correct_response_length(psn),
            (_, frame::CORRECT) => usize::from(record.byte(frame::FILL) % 64) + 1,
            (_, len) => usize::from(len - frame::CORRECT - 1) * 8,
        };
        let (key, first) = self.key(record.byte(frame::KEY));
        let address = first.wrapping_add(u64::from(record.word(frame::OFFSET) % (ZONE as u16 + 64)));
        let length = match record.byte(frame::LENGTH) {
            0..128 => payload_len as u32,
            n => [0, 1, 255, 256, 257, 600, 1024, 2047, 2048, 2049, 1 << 31, u32::MAX][usize::from(n) % 12],
        };
        let reth = RethRepr { address, r_key: key, length };
        let fill = record.byte(frame::FILL);
        let imm = ImmDtRepr { data: [fill; 4] };
        let aeth = AethRepr {
            syndrome: Syndrome(record.byte(frame::SYNDROME)),
            msn: u32::from(record.word(frame::OFFSET)),
        };
        let ext = match info.ext {
            ext if ext == ExtHeaders::RETH => Ext::Reth(reth),
            ext if ext == ExtHeaders::RETH | ExtHeaders::IMM_DT => Ext::RethImm(reth, imm),
            ext if ext == ExtHeaders::AETH => Ext::Aeth(aeth),
            ext if ext == ExtHeaders::AETH | ExtHeaders::ATOMIC_ACK_ETH => {
                Ext::AtomicAck(aeth, AtomicAckEthRepr { original: address })
            }
            ext if ext == ExtHeaders::ATOMIC_ETH => {
                Ext::Atomic(AtomicEthRepr { address, r_key: key, swap_or_add: 1, compare: 2 })
            }
            ext if ext == ExtHeaders::IMM_DT => Ext::Imm(imm),
            ext if ext == ExtHeaders::IETH => Ext::Ieth(IethRepr { r_key: key }),
            ext => Ext::parse(ext, &[fill; Ext::MAX_LEN]).expect("the headers of an opcode"),
        };
        let headers = Headers {
            opcode: info.opcode,
            solicited: record.flag(frame::FLAGS, frame::SOLICITED),
            ack_req: record.flag(frame::FLAGS, frame::ACK_REQ),
            psn,
            ext,
        };
        let mut path = forge::path(PEER);
        if record.flag(frame::FLAGS, frame::OTHER_PORT) {
            path.source_port = 0x1234;
        }
        if record.flag(frame::FLAGS, frame::MARKED) {
            path.traffic_class |= 3;
        }
        let mut to = self.link.qpn;
        let (mut partition, mut wrong_icrc) = (0xFFFF_u16, false);
        if is_forged(record) {
            match record.byte(frame::SENDER) % 8 {
                0 | 1 => path.local_ip = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3)),
                2 => path.remote_ip = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 4)),
                3 => {
                    path.local_ip = IpAddr::V6(Ipv4Addr::new(10, 0, 0, PEER).to_ipv6_mapped());
                    path.remote_ip = IpAddr::V6(forge::HOST.to_ipv6_mapped());
                }
                4 => to = Qpn::new(to.value() ^ u32::from(fill).max(1)),
                5 => to = Qpn::new(0),
                6 => partition = 0x7FFE,
                _ => wrong_icrc = true,
            }
        }
        let mut bytes = forge::frame(&path, to, &headers, &vec![fill; payload_len]);
        if partition != 0xFFFF {
            bytes[44..46].copy_from_slice(&partition.to_be_bytes());
            forge::repair(&mut bytes);
        }
        if wrong_icrc {
            let last = bytes.len() - 1;
            bytes[last] ^= 1 << (fill % 8);
        }
        bytes
    }

    /// Returns a key and the first address of its memory.
    fn key(&self, selector: u8) -> (u32, u64) {
        let first = base(Zone::ALL[usize::from(selector) % Zone::ALL.len()]);
        let region_key = |zone: Zone| {
            self.endpoint.regions[zone as usize].as_ref().map_or(self.deregistered_key, |r| r.key())
        };
        let key = match selector {
            0..200 => region_key(Zone::ALL[usize::from(selector) % Zone::ALL.len()]),
            200..210 => region_key(Zone::Shared) ^ 1,
            210..220 => region_key(Zone::Sink),
            220..230 => 0,
            230..235 => PRIVILEGED_KEY,
            235..240 => self.deregistered_key,
            240..248 => return self.keys.granted(Which::Fast),
            _ => return self.keys.granted(Which::Window),
        };
        (key, first)
    }

    /// Posts a request.
    fn post(&mut self, record: &Record) {
        let length = record.word(3) % 1200;
        let offset = record.word(5) % ZONE as u16;
        // Usually within the region.
        let length = if record.byte(7) < 240 { length.min(ZONE as u16 - offset) } else { length };
        let kind = record.byte(1) % 8;
        let writes_sink = kind < 4;
        let zone = if writes_sink { Zone::Sink } else { Zone::Source };
        let key = self.endpoint.regions[zone as usize]
            .as_ref()
            .map_or(self.deregistered_key, |region| region.key());
        let sge =
            |from: u16, len: u16| Sge { address: base(zone) + u64::from(from), length: u32::from(len), key };
        let (one, two) = (length / 3, length - length / 3);
        let sges = [sge(offset, one), sge(offset + one, two)];
        self.context += 1;
        let context = self.context;
        let accepted = if kind < 2 {
            let request = RecvRequest { context, sges: &sges };
            let posted = match &self.srq {
                Some(srq) => self.endpoint.engine.post_srq(srq, &request).is_ok(),
                None => self.endpoint.engine.post_recv(&self.qp, &request).is_ok(),
            };
            if posted {
                self.expected.receives.push_back(Posted { context, silent: false });
            }
            posted
        } else {
            let (address, key) = (0x5000 + u64::from(offset), u32::from(record.byte(8)) << 8);
            let operation = match kind {
                2 | 3 => SendOperation::Read { address, key },
                4 => SendOperation::Write { address, key },
                5 => SendOperation::SendInvalidate { key },
                _ => SendOperation::Send,
            };
            let flags = SendFlags::from_bits_truncate(record.byte(2));
            let inline = [record.byte(11); 24];
            let pieces = [&inline[..8], &inline[8..]];
            let data = if kind == 7 { SendData::Inline(&pieces) } else { SendData::Sges(&sges) };
            let request = SendRequest { context, operation, flags, data };
            let posted = self.endpoint.engine.post_send(&self.qp, &request).is_ok();
            if posted {
                self.expected.sends.push_back(Posted { context, silent: flags.contains(SendFlags::SILENT) });
            }
            posted
        };
        if accepted && writes_sink {
            let end = usize::from(offset + length).min(ZONE);
            self.endpoint.arena.allow(Zone::Sink, usize::from(offset), end - usize::from(offset));
        }
        self.drive(usize::MAX);
    }

    /// Runs a rare consumer command.
    fn command(&mut self, record: &Record) {
        let zone = record.pick(2, &Zone::ALL);
        match record.byte(1) % 12 {
            0..=3 => {
                if let Some(region) = self.endpoint.regions[zone as usize].take() {
                    assert!(
                        self.endpoint.engine.memory().deregister(&region),
                        "the region is not registered"
                    );
                    self.deregistered_key = region.key();
                } else {
                    self.endpoint.register(zone);
                }
            }
            4 => self.endpoint.engine.flush(&self.qp),
            5 => {
                // Fails if the connection is no longer established.
                let _ = self.endpoint.engine.connections().disconnect(self.endpoint.now, self.link.conn);
            }
            6 | 7 => self.endpoint.engine.undefer(&self.qp),
            8 => self.post_local(Which::Fast, Request::Grant, record),
            9 => self.post_local(Which::Window, Request::Grant, record),
            10 => self.post_local(Which::Fast, Request::Invalidate, record),
            _ => self.post_local(Which::Window, Request::Invalidate, record),
        }
        self.drive(usize::MAX);
    }

    /// Posts a request that changes a key.
    fn post_local(&mut self, which: Which, request: Request, record: &Record) {
        self.context += 1;
        let (context, qp) = (self.context, self.qp.clone());
        let flags = SendFlags::from_bits_truncate(record.byte(2));
        let mut accepted = false;
        self.keys.post(&mut self.endpoint, which, request, record, |endpoint, operation, data| {
            let request = SendRequest { context, operation, flags, data };
            accepted = endpoint.engine.post_send(&qp, &request).is_ok();
            accepted
        });
        if accepted {
            self.expected.sends.push_back(Posted { context, silent: flags.contains(SendFlags::SILENT) });
        }
    }

    fn observe(&mut self, frames: &[Vec<u8>]) {
        self.expected.observe(frames, &self.endpoint.outputs);
        self.checked.append(&mut self.endpoint.outputs);
    }

    /// Destroys everything and checks that all objects are free.
    fn end(mut self) -> Vec<Output> {
        self.endpoint.engine.destroy_qp(&self.qp);
        assert!(self.qp.is_drained());
        self.drive(usize::MAX);
        // Unused receives of a shared queue stay there.
        assert!(self.expected.receives.is_empty() || self.srq.is_some(), "a receive never completed");
        let pending = self.expected.sends.iter().any(|posted| !posted.silent);
        assert!(!pending, "a request never completed");
        self.endpoint.engine.connections().release(self.endpoint.now, self.link.conn);
        self.endpoint.run_until_idle(Duration::from_mins(10));
        self.observe(&[]);
        self.endpoint.arena.check();
        self.keys.free(&self.endpoint);
        if let Some(srq) = &self.srq {
            let _ = self.endpoint.engine.destroy_srq(srq);
        }
        self.endpoint.assert_all_released();
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(key: u8, offset: u8) -> Record {
        let opcode = Opcode::table().iter().position(|info| info.opcode == Opcode::WRITE_ONLY);
        let opcode = opcode.expect("an opcode") as u8;
        Record([action::FRAME, opcode, 0, 0, 1, 8, key, offset, 0, 0, 0, 7])
    }

    /// Peers write through a window and a fast registration as long as they are valid, and not beyond them.
    #[test]
    fn scripts_reach_the_memory_of_fast_registrations_and_windows() {
        for (grant, key) in [(8, 240), (9, 255)] {
            // A window has no right of this side.
            let access = if grant == 8 { 7 } else { 6 };
            let command = |kind| Record([action::COMMAND, kind, 0, 100, 0, 16, 0, access, 0, 3, 0, 0]);
            // The registration begins at offset 100, and so does its base; the window is named by the zone's address.
            let first = if grant == 8 { 0 } else { 100 };
            for (offset, revoked, executed) in [(0, false, 1), (8, false, 1), (9, false, 0), (0, true, 0)] {
                let mut session = Session::new(true, false);
                session.command(&command(grant));
                if revoked {
                    session.command(&command(grant + 2));
                }
                session.frame(&write(key, first + offset));
                let writes = session.endpoint.counters()["rx_writes"];
                assert_eq!(writes, executed, "{grant}, at {offset}, revoked: {revoked}");
                session.end();
            }
        }
    }

    #[test]
    fn scripts_reach_the_receives_of_a_shared_queue() {
        let mut session = Session::new(true, true);
        let opcode = Opcode::table().iter().position(|info| info.opcode == Opcode::SEND_ONLY);
        let opcode = opcode.expect("an opcode") as u8;
        session.post(&Record([action::POST, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0, 0]));
        session.frame(&Record([action::FRAME, opcode, 0, 0, 1, 8, 0, 0, 0, 0, 0, 7]));
        assert_eq!(session.endpoint.counters()["rx_sends"], 1);
        session.end();
    }
}
