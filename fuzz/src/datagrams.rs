// SPDX-License-Identifier: MIT OR Apache-2.0

//! Target `datagrams`: connection management, with datagrams of several peers, consumer commands, and time.
//!
//! The datagrams contain identifiers that the endpoint has sent, or others; the peers' own identifiers are from small sets,
//! so that requests repeat and collide.

use std::collections::BTreeMap;
use std::time::Duration;

use fallible::Arc;
use roce::{AcceptSpec, ConnId, ConnectSpec, ListenerId, LocalQp, Qp, ReadLimits};
use roce_wire::cm::{
    CmMessage, CommId, DrepRepr, DreqRepr, IpEnds, MraRepr, RejReason, RejRepr, RepRepr, RespondedMessage,
    RtuRepr, ServiceId, SidrRep, SidrRepRepr, SidrReqRepr, SidrStatus, TransportService,
};
use roce_wire::icrc::Crc;
use roce_wire::{Attribute, DethRepr, Ext, Headers, Mad, MtuCode, Opcode, PKEY_DEFAULT, Packet, Psn, Qpn};

use crate::endpoint::{ConnEventKind, Endpoint, Lock, MTU, Output, PEER_GUID, PORT, READS, request};
use crate::forge;
use crate::record::Record;

/// Maximum number of records of a script.
const STEPS: usize = 64;
/// Number of queue pairs of the consumer.
const QPS: usize = 4;
/// The backlog of a listener of [`Endpoint::listen`].
const BACKLOG: usize = 4;

/// Values of the first byte of a record.
pub mod action {
    pub const DATAGRAM: u8 = 0;
    pub const COMMAND: u8 = 160;
    pub const TIME: u8 = 230;
}

/// Offsets of the fields of a datagram record.
pub mod datagram {
    pub const KIND: usize = 1;
    /// Address number of the sender.
    pub const FROM: usize = 2;
    pub const PEER_ID: usize = 3;
    pub const HOST_ID: usize = 4;
    pub const TRANSACTION: usize = 5;
    pub const GUID: usize = 6;
    pub const QPN: usize = 7;
    /// The fault of the datagram, if any.
    pub const FAULT: usize = 8;
    /// Timeout codes, reasons, counts.
    pub const CODE: usize = 9;
    /// From `INVALID_HEADER` on, a header around the message is wrong.
    pub const HEADER_FAULT: usize = 10;
    pub const INVALID_HEADER: u8 = 224;
    pub const FILL: usize = 11;

    pub const REQ: u8 = 0;
    pub const REP: u8 = 1;
    pub const RTU: u8 = 2;
    pub const MRA: u8 = 3;
    pub const REJ: u8 = 4;
    pub const DREQ: u8 = 5;
    pub const DREP: u8 = 6;
    pub const SIDR_REQ: u8 = 10;
    pub const SIDR_REP: u8 = 11;
}

/// Runs the script.
pub fn run(input: &[u8]) {
    Session::new().play(&Record::all(input, STEPS));
}

/// Events and commands of a connection of the endpoint.
#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
struct ConnHistory {
    events: Vec<ConnEventKind>,
    /// Requested by the consumer.
    active: bool,
    accepted: bool,
    /// Accepted, rejected or released by the consumer.
    decided: bool,
    released: bool,
}

struct Session {
    endpoint: Endpoint,
    qps: Vec<Arc<Qp<Lock>>>,
    listener: Option<ListenerId>,
    /// The listener of a datagram service.
    datagrams: ListenerId,
    /// Number of listeners so far; requests remain when their listener is closed.
    listeners: usize,
    conns: BTreeMap<usize, (ConnId, ConnHistory)>,
    /// Identifiers and transactions that the endpoint has used, the latest last.
    host_ids: Vec<CommId>,
    transactions: Vec<u64>,
    /// Number of outputs that were checked.
    checked: usize,
}

impl Session {
    fn new() -> Self {
        let endpoint = Endpoint::new();
        let qps = (0..QPS).map(|_| endpoint.qp()).collect();
        let listener = Some(endpoint.listen());
        let endpoint_listener = endpoint.listen_for_datagrams();
        Self {
            endpoint,
            qps,
            listener,
            datagrams: endpoint_listener,
            listeners: 2,
            conns: BTreeMap::new(),
            host_ids: vec![CommId(0)],
            transactions: vec![0],
            checked: 0,
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
                    let frames = self.endpoint.pass(Duration::from_millis(record.pick(1, &TIMES)));
                    self.observe(&frames);
                    self.drive();
                }
            }
        }
        self.end();
    }

    fn drive(&mut self) -> Vec<Vec<u8>> {
        let frames = self.endpoint.drive(usize::MAX);
        self.observe(&frames);
        frames
    }

    /// Delivers a datagram and checks the replies.
    fn datagram(&mut self, record: &Record) {
        let request = self.forge(record);
        self.endpoint.handle(&request);
        let replies = self.drive();
        let request_packet = Packet::parse(&request).expect("a valid frame");
        let (mut direct, mut stale, mut evicted) = (0, 0, 0);
        for reply in &replies {
            assert!(reply.len() <= request.len(), "the reply is longer than the request");
            let packet = Packet::parse(reply).expect("frames of the endpoint are valid");
            let goes_back = forge::is_reply_to(&packet, &request_packet);
            match forge::cm_message(&packet).map(|(message, _)| message) {
                // A REJ to a connection request that was evicted from the backlog by this one.
                Some(CmMessage::Rej(rej))
                    if rej.reason == RejReason::NO_RESOURCES && rej.local_comm_id != CommId(0) =>
                {
                    evicted += 1;
                }
                // The same for a request for the queue pair of a datagram service.
                None if !goes_back && sidr_refusal(&packet) == Some(SidrStatus::NO_QP) => evicted += 1,
                // A WRITE without data, which asks the peer whether it still has the connection.
                None if goes_back && packet.bth().opcode() == Opcode::WRITE_ONLY => {
                    assert!(packet.payload().is_empty(), "the consumer sends nothing");
                    stale += 1;
                }
                Some(CmMessage::Rej(rej)) if goes_back && rej.local_comm_id != CommId(0) => stale += 1,
                _ if goes_back => direct += 1,
                message => panic!("a reply to another peer: {message:?}"),
            }
        }
        // Besides the reply, a challenge on a connection that the datagram calls stale. The REJ to a stale REP also has an
        // identifier.
        assert!(
            direct <= 1 && direct + stale <= 2 && evicted <= 1,
            "{direct} direct, {stale} stale, {evicted} evicted"
        );
    }

    fn forge(&self, record: &Record) -> Vec<u8> {
        let from = record.pick(datagram::FROM, &[2, 2, 2, 3, 4, 5]);
        let code = record.byte(datagram::CODE);
        let fill = record.byte(datagram::FILL);
        let local_comm_id = CommId(u32::from(record.byte(datagram::PEER_ID) % 8));
        let remote_comm_id = recent(&self.host_ids, record.byte(datagram::HOST_ID));
        let guid = PEER_GUID + u64::from(record.byte(datagram::GUID) % 3);
        let qpn = match record.byte(datagram::QPN) {
            selector @ 0..200 => Qpn::new(0x22 + u32::from(selector % 6)),
            200..220 => record.pick(datagram::FILL, &[Qpn::new(0), Qpn::GSI, Qpn::new(0x00FF_FFFF)]),
            selector => self.qps[usize::from(selector) % QPS].qpn(),
        };
        let fault = record.byte(datagram::FAULT);
        let transaction = match record.byte(datagram::TRANSACTION) {
            own @ 0..16 => u64::from(own),
            selector => recent(&self.transactions, selector),
        };
        let mut mad = [0; Mad::LEN];
        let message = match record.byte(datagram::KIND) % 12 {
            datagram::SIDR_REQ => {
                sidr_req(record, from, local_comm_id).emit_datagram(transaction, &mut mad);
                return with_headers(record, from, &mut mad);
            }
            datagram::SIDR_REP => {
                let service_id = ServiceId::datagram_port(PORT);
                let status = SidrStatus(record.pick(datagram::FAULT, &[0, 0, 0, 1, 2, 255]));
                let mut reply = SidrRepRepr::refusal(remote_comm_id, status, service_id);
                (reply.qpn, reply.q_key, reply.private_data) = (qpn, u32::from(code), [fill; 136]);
                reply.emit_datagram(transaction, &mut mad);
                return with_headers(record, from, &mut mad);
            }
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
                srq: fault & 1 != 0,
                local_ca_guid: guid,
                private_data: [fill; 196],
            }),
            datagram::RTU => {
                CmMessage::Rtu(RtuRepr { local_comm_id, remote_comm_id, private_data: [fill; 224] })
            }
            datagram::MRA => CmMessage::Mra(MraRepr {
                local_comm_id,
                remote_comm_id,
                message_mraed: RespondedMessage(fault & 3),
                service_timeout: code & 31,
                private_data: [fill; 222],
            }),
            datagram::REJ => {
                let mut information = [fill; 72];
                information[..8].copy_from_slice(&guid.to_be_bytes());
                CmMessage::Rej(RejRepr {
                    local_comm_id,
                    remote_comm_id,
                    message_rejected: RespondedMessage(fault & 3),
                    information_len: record.pick(datagram::FAULT, &[8, 8, 0, 72, 127]),
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
        message.emit(transaction, &mut mad);
        with_headers(record, from, &mut mad)
    }

    fn req(record: &Record, from: u8, id: CommId, qpn: Qpn, guid: u64) -> roce_wire::cm::ReqRepr {
        let code = record.byte(datagram::CODE);
        let mut req = request(from, id, qpn, guid);
        match record.byte(datagram::FAULT) {
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

    /// Runs a consumer command.
    fn command(&mut self, record: &Record) {
        let now = self.endpoint.now;
        let qp = self.qps[usize::from(record.byte(3)) % QPS].clone();
        let chosen = usize::from(record.byte(2)) % self.conns.len().max(1);
        let data = [record.byte(4); 56];
        let data = &data[..usize::from(record.byte(5)) % 57];
        let reads = ReadLimits { inbound: record.byte(6), outbound: READS };
        let engine = &self.endpoint.engine;
        let command = record.byte(1) % 14;
        let local = LocalQp {
            qpn: qp.qpn(),
            receive_psn: Psn::default(),
            srq: false,
            retry_count: 0,
            rnr_retry_count: 0,
            ack_timeout: 0,
            q_key: Some(u32::from(record.byte(7))),
        };
        match command {
            0 | 1 | 12 => {
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
                let begun = match command {
                    12 => engine.connections().connect_unbound(now, local, &spec),
                    _ => engine.connections().connect(now, &qp, &spec),
                };
                if let Ok(id) = begun {
                    let number = self.conns.len();
                    self.conns.insert(number, (id, ConnHistory { active: true, ..ConnHistory::default() }));
                }
                return;
            }
            2 => {
                if let Some(listener) = self.listener.take() {
                    engine.connections().unlisten(listener).expect("listening");
                } else {
                    self.listener = Some(self.endpoint.listen());
                    self.listeners += 1;
                }
                return;
            }
            3 => {
                if let Some(listener) = self.listener {
                    engine.connections().pause(listener, record.byte(4) & 1 != 0).expect("listening");
                }
                return;
            }
            4 => {
                // Replace the queue pair, which cannot be connected again.
                engine.destroy_qp(&qp);
                let index = usize::from(record.byte(3)) % QPS;
                self.qps[index] = self.endpoint.qp();
                return;
            }
            _ => {}
        }
        let Some((id, history)) = self.conns.get_mut(&chosen) else { return };
        match command {
            5 | 6 => {
                let spec = AcceptSpec { reads, private_data: data, context: 600 };
                if engine.connections().accept(now, *id, &qp, &spec).is_ok() {
                    assert!(
                        !history.active && !history.decided,
                        "accepted twice, or an active connection accepted"
                    );
                    (history.accepted, history.decided) = (true, true);
                }
            }
            13 => {
                let spec = AcceptSpec { reads, private_data: data, context: 600 };
                if engine.connections().accept_unbound(now, *id, local, &spec).is_ok() {
                    assert!(
                        !history.active && !history.decided,
                        "answered twice, or an own request answered"
                    );
                    history.decided = true;
                }
            }
            7 => {
                if engine.connections().complete(now, *id).is_ok() {
                    assert!(history.events.contains(&ConnEventKind::Replied), "completed without a reply");
                }
            }
            8 => history.decided |= engine.connections().reject(now, *id, data).is_ok(),
            9 => {
                // Fails unless the connection is established.
                let _ = engine.connections().disconnect(now, *id);
            }
            10 => {
                engine.connections().release(now, *id);
                history.released = true;
            }
            _ => self.packet(&qp, record),
        }
    }

    /// Delivers a packet for a queue pair, which may replace an RTU.
    fn packet(&mut self, qp: &Arc<Qp<Lock>>, record: &Record) {
        let headers = Headers {
            opcode: Opcode::SEND_ONLY,
            solicited: false,
            ack_req: true,
            psn: Psn::new(u32::from(record.byte(7)) << 16),
            ext: Ext::None,
        };
        let frame = forge::frame(&forge::path(record.pick(4, &[2, 3, 4])), qp.qpn(), &headers, b"data");
        self.endpoint.handle(&frame);
    }

    /// Checks the outputs of the endpoint.
    fn observe(&mut self, frames: &[Vec<u8>]) {
        for bytes in frames {
            let packet = Packet::parse(bytes).expect("frames of the endpoint are valid");
            assert!(packet.icrc_valid(Crc::table()), "a frame of the endpoint with a wrong ICRC");
            if let Some((id, transaction)) = forge::sidr_request(&packet) {
                self.transactions.push(transaction);
                self.host_ids.push(id);
            }
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
        while let Some(output) = self.endpoint.outputs.get(self.checked) {
            if let Output::Conn(id, event) = *output {
                self.on_event(id, event);
            }
            self.checked += 1;
        }
        let pending = self
            .conns
            .values()
            .filter(|(_, history)| history.events == [ConnEventKind::Request] && !history.decided)
            .count();
        let pending = pending - self.conns.values().filter(|(_, k)| is_pending(k) && k.released).count();
        assert!(pending <= self.listeners * BACKLOG, "{pending} requests are pending");
    }

    /// Checks an event: each kind occurs once, in the order of the connection's states.
    fn on_event(&mut self, id: ConnId, event: ConnEventKind) {
        let number = self.conns.len();
        if event == ConnEventKind::Request {
            assert!(self.conns.values().all(|(other, _)| *other != id), "a connection number is used twice");
            self.conns.insert(number, (id, ConnHistory { events: vec![event], ..ConnHistory::default() }));
            return;
        }
        let history = self.conns.values_mut().find(|(other, _)| *other == id).map(|(_, history)| history);
        let history = history.expect("an event of an unknown connection");
        assert!(!history.released, "{event:?} after release");
        assert!(history.events.iter().all(|&before| before < event), "{event:?} after {:?}", history.events);
        match event {
            ConnEventKind::Replied => assert!(history.active),
            ConnEventKind::Established => assert!(history.accepted, "established but not accepted"),
            _ => {}
        }
        history.events.push(event);
    }

    /// Releases everything; every connection must end and all objects must be free.
    fn end(mut self) {
        for (id, history) in self.conns.values_mut() {
            self.endpoint.engine.connections().release(self.endpoint.now, *id);
            history.released = true;
        }
        if let Some(listener) = self.listener.take() {
            self.endpoint.engine.connections().unlisten(listener).expect("listening");
        }
        self.endpoint.engine.connections().unlisten(self.datagrams).expect("listening");
        for qp in &self.qps {
            self.endpoint.engine.destroy_qp(qp);
        }
        // The longest wait that a peer can cause: fifteen MRAs of two minutes.
        self.endpoint.run_until_idle(Duration::from_hours(1));
        self.observe(&[]);
        self.endpoint.assert_all_released();
    }
}

fn is_pending(history: &ConnHistory) -> bool {
    history.events == [ConnEventKind::Request] && !history.decided
}

/// Returns a request for the queue pair of a datagram service, valid or with the fault of the record.
fn sidr_req(record: &Record, from: u8, request_id: CommId) -> SidrReqRepr {
    let code = record.byte(datagram::CODE);
    let path = forge::path(from);
    let ends = IpEnds { source: path.local_ip, source_port: 50000, destination: path.remote_ip };
    let mut private_data = [record.byte(datagram::FILL); 216];
    ends.repr().emit(private_data.first_chunk_mut().expect("216 bytes"));
    let service_id = ServiceId::datagram_port(PORT);
    let mut request = SidrReqRepr { request_id, p_key: PKEY_DEFAULT, service_id, private_data };
    match record.byte(datagram::FAULT) {
        200 => request.service_id = ServiceId::datagram_port(PORT + 1),
        201 => request.service_id = ServiceId(u64::from(code)),
        202 => request.p_key = u16::from(code),
        203 => request.private_data[usize::from(code % 36)] ^= 0x11,
        _ => {}
    }
    request
}

/// Returns the status of a SIDR_REP.
fn sidr_refusal(packet: &Packet<'_>) -> Option<SidrStatus> {
    packet.deth()?;
    let mad = Mad::new_checked(packet.payload()).ok()?;
    let is_reply = mad.header().attribute() == Attribute::CM_SIDR_REP;
    is_reply.then(|| SidrRep::new(mad.body()).status())
}

/// Returns one of `all`: the latest if the low half of the selector is 0, an earlier one if it is greater.
fn recent<T: Copy>(all: &[T], selector: u8) -> T {
    all[(all.len() - 1).saturating_sub(usize::from(selector & 15))]
}

/// Returns the frame of a datagram; the record may make a header invalid.
fn with_headers(record: &Record, from: u8, mad: &mut [u8; Mad::LEN]) -> Vec<u8> {
    let path = forge::path(from);
    let header_fault = record.byte(datagram::HEADER_FAULT);
    let mut deth = DethRepr::GSI;
    let mut opcode = Opcode::UD_SEND_ONLY;
    let mut wrong_icrc = false;
    if header_fault >= datagram::INVALID_HEADER {
        match header_fault % 8 {
            // Version, class, class version, method, attribute.
            0..=3 => mad[usize::from(header_fault % 4)] ^= record.byte(datagram::FILL).max(1),
            4 => mad[17] = record.byte(datagram::FILL),
            5 => deth.q_key ^= 1,
            6 => deth.source_qp = Qpn::new(2),
            _ => wrong_icrc = true,
        }
        if header_fault & 16 != 0 {
            opcode = Opcode::SEND_ONLY;
        }
    }
    let ext = if opcode == Opcode::SEND_ONLY { Ext::None } else { Ext::Deth(deth) };
    let headers = Headers { opcode, solicited: false, ack_req: false, psn: Psn::new(0), ext };
    let mut frame = forge::frame(&path, Qpn::GSI, &headers, mad);
    if wrong_icrc {
        let last = frame.len() - 1;
        frame[last] ^= 1;
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_reach_the_answer_of_a_datagram_service() {
        let request = [action::DATAGRAM, datagram::SIDR_REQ, 0, 5, 0, 7];
        let answer = [action::COMMAND, 13];
        let mut input = Vec::new();
        for record in [&request[..], &answer[..], &request[..]] {
            input.extend_from_slice(record);
            input.resize(input.len().next_multiple_of(crate::record::LEN), 0);
        }
        let mut session = Session::new();
        let replies = |session: &Session| {
            let frames = session.endpoint.outputs.iter().filter_map(|output| match output {
                Output::Frame(bytes) => sidr_refusal(&Packet::parse(bytes).unwrap()),
                _ => None,
            });
            frames.collect::<Vec<_>>()
        };
        let [request, answer, again] = &Record::all(&input, STEPS)[..] else { panic!("three records") };
        session.datagram(request);
        session.command(answer);
        session.drive();
        assert_eq!(replies(&session), [SidrStatus::VALID]);
        // Its answer is repeated.
        session.datagram(again);
        assert_eq!(replies(&session), [SidrStatus::VALID; 2]);
        session.end();
    }
}
