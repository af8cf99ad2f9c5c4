//! Target: a connected queue pair with requests posted, and a peer that sends anything.
//!
//! The script's frames come from the peer, whose next sequence number is kept track of, or from strangers: other
//! addresses, other queue pairs, other partitions, a wrong ICRC. A second run without what the strangers sent
//! must look the same from outside.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use fallible::Arc;
use roce::{
    CompletionStatus, PRIVILEGED_KEY, Qp, RecvRequest, SendData, SendFlags, SendOperation, SendRequest, Sge,
    Verdict,
};
use roce_wire::icrc::Crc;
use roce_wire::{
    AethRepr, AtomicAckEthRepr, AtomicEthRepr, Class, Ext, ExtHeaders, Headers, IethRepr, ImmDtRepr, Opcode,
    Operation as WireOperation, Packet, PayloadRule, Psn, Qpn, RethRepr, Syndrome,
};

use crate::arena::{ZONE, Zone};
use crate::forge;
use crate::host::{HOST_PSN, Host, Link, Lock, MTU, PEER, Seen, THEIR_QPN, base};
use crate::record::Record;

/// Records of a script at most.
const STEPS: usize = 96;

/// How a record's first byte is read.
pub mod action {
    pub const FRAME: u8 = 0;
    pub const POST: u8 = 160;
    pub const TIME: u8 = 200;
    pub const DRIVE: u8 = 220;
    pub const COMMAND: u8 = 240;
}

/// What a record's bytes are, of a frame.
pub mod frame {
    /// Into the table of opcodes.
    pub const OPCODE: usize = 1;
    /// From `STRANGERS` on, one of those.
    pub const SENDER: usize = 2;
    pub const STRANGERS: u8 = 224;
    /// Signed, added to the honest sequence number.
    pub const PSN: usize = 3;
    pub const FLAGS: usize = 4;
    pub const ACK_REQ: u32 = 0;
    pub const SOLICITED: u32 = 1;
    pub const MARKED: u32 = 2;
    /// More frames come before anything is sent.
    pub const HELD: u32 = 3;
    /// A response counts from the latest request, not from the oldest.
    pub const LATEST: u32 = 4;
    pub const OTHER_PORT: u32 = 5;
    /// Up to 99 itself; 100: what is honest; above: steps of 8 bytes around the MTU.
    pub const PAYLOAD: usize = 5;
    pub const HONEST: u8 = 100;
    pub const KEY: usize = 6;
    pub const OFFSET: usize = 7;
    pub const LENGTH: usize = 9;
    pub const SYNDROME: usize = 10;
    pub const FILL: usize = 11;
}

/// Plays the script, and again without strangers if there are any in it.
pub fn run(input: &[u8]) {
    let records = Record::all(input, STEPS);
    let heard = World::new(true).play(&records);
    if records.iter().any(is_strangers) {
        let unheard = World::new(false).play(&records);
        assert_eq!(heard, unheard, "what strangers sent had an effect");
    }
}

fn is_strangers(record: &Record) -> bool {
    record.byte(0) < action::POST && record.byte(frame::SENDER) >= frame::STRANGERS
}

/// A request that was accepted and has not completed.
struct Posted {
    context: u64,
    silent: bool,
}

/// A request packet that the host sent, as far as it is to be answered.
#[derive(Clone, Copy)]
struct Asked {
    psn: Psn,
    /// Numbers that it takes.
    packets: u32,
    /// Bytes, of a READ.
    read: Option<u32>,
}

struct World {
    host: Host,
    qp: Arc<Qp<Lock>>,
    link: Link,
    /// Whether what strangers send arrives.
    strangers: bool,
    /// The number of the next request of an honest peer.
    next: Psn,
    /// Requests of the host that the peer has not answered, oldest first.
    asked: VecDeque<Asked>,
    sends: VecDeque<Posted>,
    receives: VecDeque<Posted>,
    failed: bool,
    /// A request of the send queue has failed, or was flushed.
    sends_failed: bool,
    context: u64,
    dead_key: u32,
    books: Books,
    /// What was looked at.
    kept: Vec<Seen>,
}

/// What was asked of the host, and what it has answered.
#[derive(Default)]
struct Books {
    requests: u64,
    request_bytes: u64,
    read_packets: u64,
    marks: u64,
    acks: u64,
    ack_bytes: u64,
    responses: u64,
    cnps: u64,
}

impl World {
    fn new(strangers: bool) -> Self {
        let mut host = Host::new();
        for zone in Zone::ALL {
            host.register(zone);
        }
        let qp = host.qp();
        let link = host.connect(&qp);
        Self {
            host,
            qp,
            link,
            strangers,
            next: link.psn,
            asked: VecDeque::new(),
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            failed: false,
            sends_failed: false,
            context: 0,
            dead_key: 0x1234_5678,
            books: Books::default(),
            kept: Vec::new(),
        }
    }

    /// Everything that was seen.
    fn play(mut self, records: &[Record]) -> Vec<Seen> {
        for record in records {
            match record.byte(0) {
                action::FRAME..action::POST => self.frame(record),
                action::POST..action::TIME => self.post(record),
                action::TIME..action::DRIVE => {
                    const TIMES: [u64; 6] = [10, 700, 40_000, 300_000, 3_000_000, 40_000_000];
                    let frames = self.host.pass(Duration::from_micros(record.pick(1, &TIMES)));
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
        let frames = self.host.drive(budget);
        self.observe(&frames);
    }

    /// A frame arrives.
    fn frame(&mut self, record: &Record) {
        let stranger = is_strangers(record);
        let bytes = self.forge(record);
        if !stranger {
            self.heard(record, &bytes);
        } else if self.strangers {
            let verdict = self.host.handle(&bytes);
            assert!(matches!(verdict, Verdict::Dropped(_)), "a stranger's frame was {verdict:?}");
        }
        if !record.flag(frame::FLAGS, frame::HELD) {
            self.drive(usize::MAX);
        }
    }

    /// A frame of the peer arrives: what it may be answered with, and what the peer goes on with.
    fn heard(&mut self, record: &Record, bytes: &[u8]) {
        let packet = Packet::parse(bytes).expect("forged well");
        let books = &mut self.books;
        let mut packets = 1;
        if packet.info().class == Class::Request {
            books.requests += 1;
            books.request_bytes += bytes.len() as u64;
        }
        if packet.bth().opcode() == Opcode::READ_REQUEST
            && let Some(reth) = packet.reth()
        {
            packets = reth.length().div_ceil(MTU.bytes() as u32).max(1);
            books.read_packets += u64::from(packets);
        }
        books.marks += u64::from(packet.congestion_experienced());
        let verdict = self.host.handle(bytes);
        let honest = record.byte(frame::PSN) == 0;
        match packet.info().class {
            Class::Request if honest && verdict == Verdict::Consumed => self.next = self.next.add(packets),
            Class::Response => self.answered(packet.bth().psn()),
            _ => {}
        }
    }

    /// The peer has answered everything up to `psn`.
    fn answered(&mut self, psn: Psn) {
        while let Some(asked) = self.asked.front()
            && psn.distance_from(asked.psn.add(asked.packets - 1)) >= 0
        {
            self.asked.pop_front();
        }
    }

    fn forge(&self, record: &Record) -> Vec<u8> {
        let table = Opcode::table();
        let info = &table[usize::from(record.byte(frame::OPCODE)) % table.len()];
        let is_response = info.class == Class::Response;
        let honest_psn = match (is_response, record.flag(frame::FLAGS, frame::LATEST)) {
            (false, _) => self.next,
            (true, false) => self.asked.front().map_or(HOST_PSN, |asked| asked.psn),
            (true, true) => self.asked.back().map_or(HOST_PSN, |asked| asked.psn),
        };
        let delta = i32::from(record.byte(frame::PSN).cast_signed());
        let psn = honest_psn.add(delta.cast_unsigned());

        let payload_len = match (info.payload, record.byte(frame::PAYLOAD)) {
            (PayloadRule::None, _) => 0,
            (_, len @ 0..frame::HONEST) => usize::from(len),
            (PayloadRule::Full, frame::HONEST) => MTU.bytes(),
            (_, frame::HONEST) if is_response => self.honest_response(psn),
            (_, frame::HONEST) => usize::from(record.byte(frame::FILL) % 64) + 1,
            (_, len) => usize::from(len - frame::HONEST - 1) * 8,
        };
        let key = self.key(record.byte(frame::KEY));
        let zone = record.pick(frame::KEY, &Zone::ALL);
        let address = base(zone).wrapping_add(u64::from(record.word(frame::OFFSET) % (ZONE as u16 + 64)));
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
            ext => Ext::parse(ext, &[fill; Ext::MAX_LEN]).expect("the shape of an opcode"),
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
        let (mut partition, mut broken) = (0xFFFF_u16, false);
        if is_strangers(record) {
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
                _ => broken = true,
            }
        }
        let mut bytes = forge::frame(&path, to, &headers, &vec![fill; payload_len]);
        if partition != 0xFFFF {
            bytes[44..46].copy_from_slice(&partition.to_be_bytes());
            forge::repair(&mut bytes);
        }
        if broken {
            let last = bytes.len() - 1;
            bytes[last] ^= 1 << (fill % 8);
        }
        bytes
    }

    /// Bytes of the packet `psn` of a READ response, as it was asked for.
    fn honest_response(&self, psn: Psn) -> usize {
        let rest = self.asked.iter().find_map(|asked| {
            let into =
                u32::try_from(psn.distance_from(asked.psn)).ok().filter(|&into| into < asked.packets)?;
            Some((asked.read? as usize).saturating_sub(into as usize * MTU.bytes()))
        });
        rest.unwrap_or_default().min(MTU.bytes())
    }

    fn key(&self, selector: u8) -> u32 {
        let of = |zone: Zone| self.host.regions[zone as usize].as_ref().map_or(self.dead_key, |r| r.key());
        match selector {
            0..200 => of(Zone::ALL[usize::from(selector) % Zone::ALL.len()]),
            200..210 => of(Zone::Shared) ^ 1,
            210..220 => of(Zone::Sink),
            220..230 => 0,
            230..240 => PRIVILEGED_KEY,
            _ => self.dead_key,
        }
    }

    /// The consumer posts a request.
    fn post(&mut self, record: &Record) {
        let length = record.word(3) % 1200;
        let offset = record.word(5) % ZONE as u16;
        // Mostly inside.
        let length = if record.byte(7) < 240 { length.min(ZONE as u16 - offset) } else { length };
        let kind = record.byte(1) % 8;
        let into_sink = kind < 4;
        let zone = if into_sink { Zone::Sink } else { Zone::Source };
        let key = self.host.regions[zone as usize].as_ref().map_or(self.dead_key, |region| region.key());
        let sge =
            |from: u16, len: u16| Sge { address: base(zone) + u64::from(from), length: u32::from(len), key };
        let (one, two) = (length / 3, length - length / 3);
        let sges = [sge(offset, one), sge(offset + one, two)];
        self.context += 1;
        let context = self.context;
        let accepted = if kind < 2 {
            let posted = self.host.engine.post_recv(&self.qp, &RecvRequest { context, sges: &sges }).is_ok();
            if posted {
                self.receives.push_back(Posted { context, silent: false });
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
            let posted = self.host.engine.post_send(&self.qp, &request).is_ok();
            if posted {
                self.sends.push_back(Posted { context, silent: flags.contains(SendFlags::SILENT) });
            }
            posted
        };
        if accepted && into_sink {
            let end = usize::from(offset + length).min(ZONE);
            self.host.arena.allow(Zone::Sink, usize::from(offset), end - usize::from(offset));
        }
        self.drive(usize::MAX);
    }

    /// Something that consumers do rarely.
    fn command(&mut self, record: &Record) {
        let zone = record.pick(2, &Zone::ALL);
        match record.byte(1) % 8 {
            0..=3 => {
                if let Some(region) = self.host.regions[zone as usize].take() {
                    assert!(self.host.engine.deregister(&region), "a region was gone");
                    self.dead_key = region.key();
                } else {
                    self.host.register(zone);
                }
            }
            4 => self.host.engine.flush(&self.qp),
            5 => {
                // An error when it is not established any more.
                let _ = self.host.engine.disconnect(self.host.now, self.link.conn);
            }
            _ => self.host.engine.undefer(&self.qp),
        }
        self.drive(usize::MAX);
    }

    /// What the host let be seen: frames for the peer, completions for the consumer.
    fn observe(&mut self, frames: &[Vec<u8>]) {
        for bytes in frames {
            let packet = Packet::parse(bytes).expect("a frame of the host parses");
            assert!(packet.icrc_valid(Crc::table()), "a frame of the host with a wrong ICRC");
            let (ip, mac) = forge::address(PEER);
            assert_eq!((packet.destination(), packet.eth().destination()), (ip, mac), "to somebody else");
            if packet.bth().dest_qp() == THEIR_QPN {
                self.observe_packet(&packet, bytes.len() as u64);
            }
        }
        let books = &self.books;
        assert!(books.acks <= books.requests, "{} requests, {} answers", books.requests, books.acks);
        // An ACK is four bytes longer than the shortest request that asks for one.
        let cost = books.request_bytes + 4 * books.requests;
        assert!(books.ack_bytes <= cost, "{cost} bytes, answered by {}", books.ack_bytes);
        assert!(books.responses <= books.read_packets, "more READ responses than were asked for");
        assert!(books.cnps <= books.marks, "more CNPs than marks");
        for seen in std::mem::take(&mut self.host.seen) {
            self.completed(&seen);
            self.kept.push(seen);
        }
    }

    fn observe_packet(&mut self, packet: &Packet<'_>, len: u64) {
        let psn = packet.bth().psn();
        match (packet.info().class, packet.info().operation) {
            (Class::Congestion, _) => self.books.cnps += 1,
            (Class::Response, WireOperation::Read) => self.books.responses += 1,
            (Class::Response, _) => {
                self.books.acks += 1;
                self.books.ack_bytes += len;
                if packet.aeth().is_some_and(|aeth| aeth.syndrome() != Syndrome::ACK) {
                    // An honest peer goes on from there.
                    self.next = psn;
                }
            }
            (_, operation) => {
                let read =
                    packet.reth().filter(|_| operation == WireOperation::Read).map(|reth| reth.length());
                let packets = read.map_or(1, |length| length.div_ceil(MTU.bytes() as u32).max(1));
                // Sent again.
                self.asked.retain(|asked| psn.distance_from(asked.psn) > 0);
                self.asked.push_back(Asked { psn, packets, read });
            }
        }
    }

    /// A completion is of the oldest request of its queue, and nothing succeeds after a failure.
    fn completed(&mut self, seen: &Seen) {
        let Seen::Completion(completion) = seen else { return };
        let success = completion.status == CompletionStatus::Success;
        let queue = if completion.kind.is_receive() { &mut self.receives } else { &mut self.sends };
        while let Some(oldest) = queue.pop_front() {
            if oldest.context == completion.context {
                assert!(!(oldest.silent && success), "a silent request was told of");
                assert!(!(self.failed && success), "success after failure");
                if !completion.kind.is_receive() {
                    assert!(!self.failed || completion.status == CompletionStatus::Flushed, "two failures");
                    self.sends_failed |= !success;
                }
                self.failed |= !success;
                return;
            }
            // Silent ones that have succeeded before.
            assert!(
                oldest.silent && !self.sends_failed,
                "request {} did not complete in turn",
                oldest.context
            );
        }
        panic!("{completion:?} is of no request");
    }

    /// Destroys everything; nothing may be left.
    fn end(mut self) -> Vec<Seen> {
        self.host.engine.destroy_qp(&self.qp);
        assert!(self.qp.is_drained());
        self.drive(usize::MAX);
        assert!(self.receives.is_empty(), "a receive never completed");
        let owed = self.sends.iter().any(|posted| !posted.silent);
        assert!(!owed, "a request never completed");
        self.host.engine.release(self.host.now, self.link.conn);
        self.host.settle(Duration::from_mins(10));
        self.observe(&[]);
        self.host.arena.check();
        self.host.nothing_is_left();
        self.kept
    }
}
