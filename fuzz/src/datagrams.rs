//! Target: connection management, between datagrams of several peers, its consumers' commands, and time.
//!
//! The script's datagrams name identifiers that the host has used in what it sent, or others; its peers' own
//! numbers come from small sets, so that requests repeat and collide.

use std::collections::BTreeMap;
use std::time::Duration;

use fallible::Arc;
use roce::{AcceptSpec, ConnId, ConnectSpec, ListenerId, Qp, ReadLimits};
use roce_wire::cm::{
    About, CmMessage, CommId, DrepRepr, DreqRepr, MraRepr, RejReason, RejRepr, RepRepr, RtuRepr, ServiceId,
    TransportService,
};
use roce_wire::icrc::Crc;
use roce_wire::{DethRepr, Ext, Headers, Mad, MtuCode, Opcode, Packet, Psn, Qpn};

use crate::forge;
use crate::host::{Host, Lock, MTU, PORT, READS, Seen, THEIR_GUID, Told, request};
use crate::record::Record;

/// Records of a script at most.
const STEPS: usize = 64;
/// Queue pairs that the consumer has.
const QPS: usize = 4;
/// What a listener of [`Host::listen`] lets wait.
const BACKLOG: usize = 4;

/// How a record's first byte is read.
pub mod action {
    pub const DATAGRAM: u8 = 0;
    pub const COMMAND: u8 = 160;
    pub const TIME: u8 = 230;
}

/// What a record's bytes are, of a datagram.
pub mod datagram {
    pub const KIND: usize = 1;
    /// Number of the sender's address.
    pub const FROM: usize = 2;
    pub const THEIR_ID: usize = 3;
    pub const HOST_ID: usize = 4;
    pub const TRANSACTION: usize = 5;
    pub const GUID: usize = 6;
    pub const QPN: usize = 7;
    /// What is wrong with it, if anything.
    pub const TWIST: usize = 8;
    /// Timeout codes, reasons, counts.
    pub const CODE: usize = 9;
    /// From `SPOILT` on, something around the message is wrong.
    pub const AROUND: usize = 10;
    pub const SPOILT: u8 = 224;
    pub const FILL: usize = 11;

    pub const REQ: u8 = 0;
    pub const REP: u8 = 1;
    pub const RTU: u8 = 2;
    pub const MRA: u8 = 3;
    pub const REJ: u8 = 4;
    pub const DREQ: u8 = 5;
    pub const DREP: u8 = 6;
}

/// Plays the script.
pub fn run(input: &[u8]) {
    World::new().play(&Record::all(input, STEPS));
}

/// A connection that the host told of or was asked for.
#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "what has happened, each on its own")]
struct Known {
    told: Vec<Told>,
    /// Asked for by the consumer.
    active: bool,
    accepted: bool,
    /// Answered by the consumer with anything.
    answered: bool,
    released: bool,
}

struct World {
    host: Host,
    qps: Vec<Arc<Qp<Lock>>>,
    listener: Option<ListenerId>,
    /// Listeners so far: what one was told of stays when it ends.
    listeners: usize,
    conns: BTreeMap<usize, (ConnId, Known)>,
    /// Identifiers and transactions that the host has used, latest last.
    host_ids: Vec<CommId>,
    transactions: Vec<u64>,
    /// How many of [`Host::seen`] were looked at.
    looked: usize,
}

impl World {
    fn new() -> Self {
        let host = Host::new();
        let qps = (0..QPS).map(|_| host.qp()).collect();
        let listener = Some(host.listen());
        Self {
            host,
            qps,
            listener,
            listeners: 1,
            conns: BTreeMap::new(),
            host_ids: vec![CommId(0)],
            transactions: vec![0],
            looked: 0,
        }
    }

    fn play(mut self, records: &[Record]) {
        for record in records {
            match record.byte(0) {
                action::DATAGRAM..action::COMMAND => self.datagram(record),
                action::COMMAND..action::TIME => {
                    self.command(record);
                    self.drive();
                }
                action::TIME.. => {
                    const TIMES: [u64; 7] = [1, 20, 500, 1200, 5000, 20_000, 120_000];
                    let frames = self.host.pass(Duration::from_millis(record.pick(1, &TIMES)));
                    self.observe(&frames);
                    self.drive();
                }
            }
        }
        self.end();
    }

    fn drive(&mut self) -> Vec<Vec<u8>> {
        let frames = self.host.drive(usize::MAX);
        self.observe(&frames);
        frames
    }

    /// A datagram arrives, and is answered.
    fn datagram(&mut self, record: &Record) {
        let question = self.forge(record);
        self.host.handle(&question);
        let answers = self.drive();
        let asked = Packet::parse(&question).expect("forged well");
        let (mut direct, mut stale, mut ousted) = (0, 0, 0);
        for answer in &answers {
            assert!(answer.len() <= question.len(), "an answer longer than the question");
            let packet = Packet::parse(answer).expect("a frame of the host parses");
            let goes_back = forge::is_answer_to(&packet, &asked);
            match forge::cm_message(&packet).map(|(message, _)| message) {
                // What gives way to a newcomer has cost its peer a request, too.
                Some(CmMessage::Rej(rej))
                    if rej.reason == RejReason::NO_RESOURCES && rej.local_comm_id != CommId(0) =>
                {
                    ousted += 1;
                }
                Some(CmMessage::Dreq(_)) if goes_back => stale += 1,
                Some(CmMessage::Rej(rej)) if goes_back && rej.local_comm_id != CommId(0) => stale += 1,
                _ if goes_back => direct += 1,
                message => panic!("an answer to somebody else: {message:?}"),
            }
        }
        // Beside the answer, a goodbye to a connection that the question shows to be stale. A REP that is refused
        // as stale is answered with an identifier as well.
        assert!(direct <= 1 && direct + stale <= 2 && ousted <= 1, "{direct}, {stale}, {ousted} answers");
    }

    fn forge(&self, record: &Record) -> Vec<u8> {
        let from = record.pick(datagram::FROM, &[2, 2, 2, 3, 4, 5]);
        let code = record.byte(datagram::CODE);
        let fill = record.byte(datagram::FILL);
        let local_comm_id = CommId(u32::from(record.byte(datagram::THEIR_ID) % 8));
        let remote_comm_id = recent(&self.host_ids, record.byte(datagram::HOST_ID));
        let guid = THEIR_GUID + u64::from(record.byte(datagram::GUID) % 3);
        let qpn = match record.byte(datagram::QPN) {
            selector @ 0..200 => Qpn::new(0x22 + u32::from(selector % 6)),
            200..220 => record.pick(datagram::FILL, &[Qpn::new(0), Qpn::GSI, Qpn::new(0x00FF_FFFF)]),
            selector => self.qps[usize::from(selector) % QPS].qpn(),
        };
        let twist = record.byte(datagram::TWIST);
        let message = match record.byte(datagram::KIND) % 10 {
            datagram::REP => CmMessage::Rep(RepRepr {
                local_comm_id,
                remote_comm_id,
                local_q_key: 0,
                local_qpn: qpn,
                vendor_id: 0,
                local_eecn: 0,
                starting_psn: Psn::new(u32::from(fill) << 16),
                responder_resources: code,
                initiator_depth: fill,
                target_ack_delay: code,
                failover_accepted: 0,
                end_to_end_flow_control: false,
                rnr_retry_count: code & 7,
                srq: twist & 1 != 0,
                local_ca_guid: guid,
                private_data: [fill; 196],
            }),
            datagram::RTU => {
                CmMessage::Rtu(RtuRepr { local_comm_id, remote_comm_id, private_data: [fill; 224] })
            }
            datagram::MRA => CmMessage::Mra(MraRepr {
                local_comm_id,
                remote_comm_id,
                about: About(twist & 3),
                service_timeout: code & 31,
                private_data: [fill; 222],
            }),
            datagram::REJ => {
                let mut information = [fill; 72];
                information[..8].copy_from_slice(&guid.to_be_bytes());
                CmMessage::Rej(RejRepr {
                    local_comm_id,
                    remote_comm_id,
                    about: About(twist & 3),
                    information_len: record.pick(datagram::TWIST, &[8, 8, 0, 72, 127]),
                    reason: if code < 128 { RejReason::TIMEOUT } else { RejReason(u16::from(code & 63)) },
                    information,
                    private_data: [fill; 148],
                })
            }
            datagram::DREQ => CmMessage::Dreq(DreqRepr {
                local_comm_id,
                remote_comm_id,
                remote_qpn: self.qps[usize::from(record.byte(datagram::QPN)) % QPS].qpn(),
                private_data: [fill; 220],
            }),
            datagram::DREP => {
                CmMessage::Drep(DrepRepr { local_comm_id, remote_comm_id, private_data: [fill; 224] })
            }
            _ => CmMessage::Req(Self::req(record, from, local_comm_id, qpn, guid)),
        };
        let transaction = match record.byte(datagram::TRANSACTION) {
            own @ 0..16 => u64::from(own),
            selector => recent(&self.transactions, selector),
        };
        let mut mad = [0; Mad::LEN];
        message.emit(transaction, &mut mad);
        around(record, from, &mut mad)
    }

    fn req(record: &Record, from: u8, id: CommId, qpn: Qpn, guid: u64) -> roce_wire::cm::ReqRepr {
        let code = record.byte(datagram::CODE);
        let mut req = request(from, id, qpn, guid);
        match record.byte(datagram::TWIST) {
            200 => req.service_id = ServiceId::port(PORT + 1),
            201 => req.service_id = ServiceId(u64::from(code)),
            202 => req.primary_path[4 + usize::from(code % 40)] ^= 1,
            203 => req.private_data[usize::from(code % 36)] ^= 0x11,
            204 => req.transport_service = TransportService(code & 3),
            205 => req.path_mtu = MtuCode(code & 15),
            206 => req.max_cm_retries = code & 15,
            207 => req.local_cm_response_timeout = code & 31,
            208 => req.extended_transport = code & 7,
            209 => req.primary_path = [code; 44],
            210 => (req.responder_resources, req.initiator_depth) = (code, !code),
            211 => req.retry_count = code & 7,
            _ => {}
        }
        req
    }

    /// The consumer does something.
    fn command(&mut self, record: &Record) {
        let now = self.host.now;
        let qp = self.qps[usize::from(record.byte(3)) % QPS].clone();
        let chosen = usize::from(record.byte(2)) % self.conns.len().max(1);
        let data = [record.byte(4); 56];
        let data = &data[..usize::from(record.byte(5)) % 57];
        let reads = ReadLimits { inbound: record.byte(6), outbound: READS };
        let engine = &self.host.engine;
        let command = record.byte(1) % 12;
        match command {
            0 | 1 => {
                let path = forge::path_to(record.pick(4, &[2, 2, 3, 4]));
                let spec = ConnectSpec {
                    path,
                    local_port: 50001,
                    remote_port: PORT,
                    mtu: MTU,
                    reads,
                    private_data: data,
                    context: 700,
                };
                if let Ok(id) = engine.connect(now, &qp, &spec) {
                    let number = self.conns.len();
                    self.conns.insert(number, (id, Known { active: true, ..Known::default() }));
                }
                return;
            }
            2 => {
                if let Some(listener) = self.listener.take() {
                    engine.unlisten(listener).expect("listening");
                } else {
                    self.listener = Some(self.host.listen());
                    self.listeners += 1;
                }
                return;
            }
            3 => {
                if let Some(listener) = self.listener {
                    engine.pause(listener, record.byte(4) & 1 != 0).expect("listening");
                }
                return;
            }
            4 => {
                // A new one in its place: the old one has had its life.
                engine.destroy_qp(&qp);
                let index = usize::from(record.byte(3)) % QPS;
                self.qps[index] = self.host.qp();
                return;
            }
            _ => {}
        }
        let Some((id, known)) = self.conns.get_mut(&chosen) else { return };
        match command {
            5 | 6 => {
                let spec = AcceptSpec { reads, private_data: data, context: 600 };
                if engine.accept(now, *id, &qp, &spec).is_ok() {
                    assert!(!known.active && !known.answered, "accepted twice, or one's own request");
                    (known.accepted, known.answered) = (true, true);
                }
            }
            7 => {
                if engine.complete(now, *id).is_ok() {
                    assert!(known.told.contains(&Told::Replied), "completed without a reply");
                }
            }
            8 => known.answered |= engine.reject(now, *id, data).is_ok(),
            9 => {
                // An error unless it was established.
                let _ = engine.disconnect(now, *id);
            }
            10 => {
                engine.release(now, *id);
                known.released = true;
            }
            _ => self.packet(&qp, record),
        }
    }

    /// A packet for a queue pair, which may stand for an RTU.
    fn packet(&mut self, qp: &Arc<Qp<Lock>>, record: &Record) {
        let headers = Headers {
            opcode: Opcode::SEND_ONLY,
            solicited: false,
            ack_req: true,
            psn: Psn::new(u32::from(record.byte(7)) << 16),
            ext: Ext::None,
        };
        let frame = forge::frame(&forge::path(record.pick(4, &[2, 3, 4])), qp.qpn(), &headers, b"data");
        self.host.handle(&frame);
    }

    /// What the host let be seen.
    fn observe(&mut self, frames: &[Vec<u8>]) {
        for bytes in frames {
            let packet = Packet::parse(bytes).expect("a frame of the host parses");
            assert!(packet.icrc_valid(Crc::table()), "a frame of the host with a wrong ICRC");
            if let Some((message, transaction)) = forge::cm_message(&packet) {
                self.transactions.push(transaction);
                let id = match message {
                    CmMessage::Req(req) => req.local_comm_id,
                    CmMessage::Rep(rep) => rep.local_comm_id,
                    CmMessage::Mra(mra) => mra.local_comm_id,
                    CmMessage::Rej(rej) => rej.local_comm_id,
                    CmMessage::Dreq(dreq) => dreq.local_comm_id,
                    CmMessage::Rtu(rtu) => rtu.local_comm_id,
                    CmMessage::Drep(drep) => drep.local_comm_id,
                };
                if !self.host_ids.contains(&id) {
                    self.host_ids.push(id);
                }
            }
        }
        while let Some(seen) = self.host.seen.get(self.looked) {
            if let Seen::Conn(id, told) = *seen {
                self.told(id, told);
            }
            self.looked += 1;
        }
        let waiting =
            self.conns.values().filter(|(_, known)| known.told == [Told::Request] && !known.answered).count();
        let waiting = waiting - self.conns.values().filter(|(_, k)| waits(k) && k.released).count();
        assert!(waiting <= self.listeners * BACKLOG, "{waiting} requests wait");
    }

    /// An event: of each kind one, in the order of a connection's life, none that its past forbids.
    fn told(&mut self, id: ConnId, told: Told) {
        let number = self.conns.len();
        if told == Told::Request {
            assert!(self.conns.values().all(|(other, _)| *other != id), "a connection's number came twice");
            self.conns.insert(number, (id, Known { told: vec![told], ..Known::default() }));
            return;
        }
        let known = self.conns.values_mut().find(|(other, _)| *other == id).map(|(_, known)| known);
        let known = known.expect("an event of a connection that nobody knows");
        assert!(!known.released, "{told:?} after release");
        assert!(known.told.iter().all(|&before| before < told), "{told:?} after {:?}", known.told);
        match told {
            Told::Replied => assert!(known.active),
            Told::Established => assert!(known.accepted, "established, but never accepted"),
            _ => {}
        }
        known.told.push(told);
    }

    /// The consumer lets go of everything: it ends, and nothing is left.
    fn end(mut self) {
        for (id, known) in self.conns.values_mut() {
            self.host.engine.release(self.host.now, *id);
            known.released = true;
        }
        if let Some(listener) = self.listener.take() {
            self.host.engine.unlisten(listener).expect("listening");
        }
        for qp in &self.qps {
            self.host.engine.destroy_qp(qp);
        }
        // Fifteen MRAs of two minutes are the longest that a peer can have a message wait.
        self.host.settle(Duration::from_hours(1));
        self.observe(&[]);
        self.host.nothing_is_left();
    }
}

fn waits(known: &Known) -> bool {
    known.told == [Told::Request] && !known.answered
}

/// One of `all`: the latest for a selector whose low half is 0, an earlier one for a greater one.
fn recent<T: Copy>(all: &[T], selector: u8) -> T {
    all[(all.len() - 1).saturating_sub(usize::from(selector & 15))]
}

/// The datagram with what stands around its message; a record may have that spoilt.
fn around(record: &Record, from: u8, mad: &mut [u8; Mad::LEN]) -> Vec<u8> {
    let path = forge::path(from);
    let around = record.byte(datagram::AROUND);
    let mut deth = DethRepr::GSI;
    let mut opcode = Opcode::UD_SEND_ONLY;
    let mut broken = false;
    if around >= datagram::SPOILT {
        match around % 8 {
            // Version, class, class version, method, attribute: none of them is checked by the ICRC.
            0..=3 => mad[usize::from(around % 4)] ^= record.byte(datagram::FILL).max(1),
            4 => mad[17] = record.byte(datagram::FILL),
            5 => deth.q_key ^= 1,
            6 => deth.source_qp = Qpn::new(2),
            _ => broken = true,
        }
        if around & 16 != 0 {
            opcode = Opcode::SEND_ONLY;
        }
    }
    let ext = if opcode == Opcode::SEND_ONLY { Ext::None } else { Ext::Deth(deth) };
    let headers = Headers { opcode, solicited: false, ack_req: false, psn: Psn::new(0), ext };
    let mut frame = forge::frame(&path, Qpn::GSI, &headers, mad);
    if broken {
        let last = frame.len() - 1;
        frame[last] ^= 1;
    }
    frame
}
