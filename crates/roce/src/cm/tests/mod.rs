// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two connection managers on a simulated wire. A test decides the fate of each frame.

mod addresses;
mod bounds;
mod end;
mod establish;
mod exchanges;
mod frames;
mod hostile;
mod loss;
mod refuse;
mod requests;
mod resolution;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use super::{conn::Conn, state::State, *};
use crate::conn::{
    AcceptSpec, ConnId, ConnectSpec, DisconnectOutcome, ListenSpec, ListenerId, PrivateData, ReadLimits,
};
use roce_wire::cm::{CommId, RejReason};
use roce_wire::{
    Attribute, Gid, MacAddr, Packet,
    cm::{CmPath, CmPathRepr, IpEnds, ReqRepr},
};
use roce_wire::{DethRepr, Ext, Headers, Opcode, Path, PathMtu, Template};

const PORT: u16 = 445;

/// One host with its connection manager.
struct Host {
    cm: Cm,
    mac: MacAddr,
    ip: IpAddr,
    events: VecDeque<CmEvent>,
    /// Every message sent, in order.
    sent: Vec<Attribute>,
    /// Connections whose queue pair was to challenge the peer.
    challenged: Vec<ConnId>,
    next_qpn: u32,
}

impl Host {
    /// Restarts the host: it loses all state and gets another seed.
    fn crash(&mut self) {
        let mut config = self.cm.conns.config.clone();
        config.seed[0] ^= 0xFF;
        self.cm = Cm::new(config);
        self.cm.set_addresses(&[self.ip]).unwrap();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// The active side.
    A,
    B,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// Queue pairs that were challenged. None has failed.
#[derive(Default)]
struct Challenged(RefCell<Vec<ConnId>>);

impl AttachedQps for Challenged {
    fn challenge(&self, conn: ConnId) {
        self.0.borrow_mut().push(conn);
    }

    fn is_failing(&self, _: ConnId) -> bool {
        false
    }
}

/// Treatment of a frame on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Deliver,
    Lose,
    Duplicate,
    /// Arrives [`DELAY`] late, out of order.
    Delay,
}

struct TwoHosts {
    now: Instant,
    a: Host,
    b: Host,
    /// Frames in flight, with arrival time and destination.
    wire: Vec<(Instant, Side, Vec<u8>)>,
    /// Returns the fate of a frame, given its sender and message.
    fate: Box<dyn FnMut(Side, Attribute) -> Fate>,
}

const LATENCY: Duration = Duration::from_micros(50);
const DELAY: Duration = Duration::from_secs(3);

impl TwoHosts {
    fn new() -> Self {
        Self::with(|_| {})
    }

    /// Creates two hosts with configurations changed by `adjust`.
    fn with(adjust: impl Fn(&mut CmConfig)) -> Self {
        Self::between([192, 168, 77, 1].into(), [192, 168, 77, 2].into(), adjust)
    }

    fn between(a: IpAddr, b: IpAddr, adjust: impl Fn(&mut CmConfig)) -> Self {
        let host = |number: u8, ip| {
            let mac = MacAddr([0x52, 0x54, 0, 0x77, 0, number]);
            let mut config = CmConfig::new(mac.eui64(), [number; 32]);
            adjust(&mut config);
            let mut cm = Cm::new(config);
            cm.set_addresses(&[ip]).unwrap();
            Host {
                cm,
                mac,
                ip,
                events: VecDeque::new(),
                sent: Vec::new(),
                challenged: Vec::new(),
                next_qpn: 0x11,
            }
        };
        Self {
            now: Instant::from_nanos(1_000_000_000),
            a: host(1, a),
            b: host(2, b),
            wire: Vec::new(),
            fate: Box::new(|_, _| Fate::Deliver),
        }
    }

    /// Sets the function that returns the fate of each later frame.
    fn set_fate(&mut self, fate: impl FnMut(Side, Attribute) -> Fate + 'static) {
        self.fate = Box::new(fate);
    }

    /// Sets the fate of the first frame with this message; all others are delivered.
    fn set_fate_once(&mut self, message: Attribute, what: Fate) {
        let mut done = false;
        self.set_fate(move |_, sent| {
            if sent != message || done {
                return Fate::Deliver;
            }
            done = true;
            what
        });
    }

    fn host(&mut self, side: Side) -> &mut Host {
        match side {
            Side::A => &mut self.a,
            Side::B => &mut self.b,
        }
    }

    /// Transmits the pending frames of both hosts and collects their events.
    fn collect(&mut self) {
        for side in [Side::A, Side::B] {
            let now = self.now;
            let mut slot = [0xEE; 2048];
            while let Some(len) = self.host(side).cm.poll_transmit(now, Crc::detect(), &mut slot) {
                let frame = slot[..len].to_vec();
                let packet = Packet::parse(&frame).unwrap();
                let message = Mad::new_checked(packet.payload()).unwrap().header().attribute();
                self.host(side).sent.push(message);
                let to = side.other();
                let soon = now + LATENCY;
                match (self.fate)(side, message) {
                    Fate::Deliver => self.wire.push((soon, to, frame)),
                    Fate::Lose => {}
                    Fate::Duplicate => {
                        self.wire.push((soon, to, frame.clone()));
                        self.wire.push((soon + LATENCY, to, frame));
                    }
                    Fate::Delay => self.wire.push((soon + DELAY, to, frame)),
                }
            }
            let host = self.host(side);
            while let Some(event) = host.cm.poll_event() {
                host.events.push_back(event);
            }
        }
    }

    /// Handles the next arrival or timeout until `until`. Returns `false` if there is none.
    fn step(&mut self, until: Instant) -> bool {
        self.collect();
        let arrival = self.wire.iter().map(|(at, _, _)| *at).min();
        let timeout = [&self.a, &self.b].into_iter().filter_map(|host| host.cm.poll_timeout()).min();
        let Some(next) = arrival.into_iter().chain(timeout).min().filter(|&next| next <= until) else {
            return false;
        };
        self.now = self.now.max(next);
        if let Some(at) = self.wire.iter().position(|(at, _, _)| *at <= self.now) {
            let (_, side, frame) = self.wire.remove(at);
            let now = self.now;
            let packet = Packet::parse(&frame).unwrap();
            assert!(packet.icrc_valid(Crc::table()));
            // Tests check events; ignored frames are not errors here.
            let host = self.host(side);
            let challenged = Challenged::default();
            let _ = host.cm.handle(now, &packet, &challenged);
            host.challenged.append(&mut challenged.0.into_inner());
        } else {
            let now = self.now;
            self.a.cm.handle_timeout(now);
            self.b.cm.handle_timeout(now);
        }
        true
    }

    /// Runs for a duration.
    fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        for steps in 0.. {
            assert!(steps < 100_000, "the hosts do not become idle");
            if !self.step(until) {
                break;
            }
        }
        self.now = until;
        self.collect();
    }

    /// Runs until `side` has an event, and returns it.
    fn event(&mut self, side: Side) -> CmEvent {
        let until = self.now + Duration::from_mins(10);
        loop {
            self.collect();
            if let Some(event) = self.host(side).events.pop_front() {
                return event;
            }
            assert!(self.step(until), "no event within 10 minutes");
        }
    }

    /// Runs for `time` and asserts that there is no event.
    fn quiet_for(&mut self, time: Duration) {
        self.run_for(time);
        assert_eq!(self.a.events, []);
        assert_eq!(self.b.events, []);
    }

    fn listen(&mut self) -> ListenerId {
        self.b
            .cm
            .listen(&ListenSpec { ip: None, port: PORT, datagrams: false, backlog: 16, context: 0xB })
            .unwrap()
    }

    fn local_qp(&mut self, side: Side) -> LocalQp {
        let host = self.host(side);
        host.next_qpn += 1;
        let base = if side == Side::A { 0x00A0_0000 } else { 0x00B0_0000 };
        LocalQp {
            q_key: None,
            qpn: Qpn::new(host.next_qpn),
            receive_psn: Psn::new(base + host.next_qpn),
            srq: false,
            retry_count: 5,
            rnr_retry_count: 7,
            ack_timeout: 14,
        }
    }

    fn path(&self) -> Path {
        Path::new(self.a.mac, self.b.mac, self.a.ip, self.b.ip)
    }

    fn try_connect(&mut self, data: &[u8], reads: ReadLimits) -> Result<ConnId, ConnError> {
        let local = self.local_qp(Side::A);
        self.connect_qp(local, data, reads)
    }

    fn connect_qp(&mut self, local: LocalQp, data: &[u8], reads: ReadLimits) -> Result<ConnId, ConnError> {
        let spec = ConnectSpec {
            path: self.path(),
            local_port: 50_000,
            remote_port: PORT,
            mtu: PathMtu::Bytes1024,
            reads,
            private_data: data,
            context: 0xA,
        };
        let now = self.now;
        self.a.cm.connect(now, &spec, local)
    }

    fn connect(&mut self) -> ConnId {
        self.try_connect(b"hello", READS).unwrap()
    }

    fn try_accept(&mut self, conn: ConnId, data: &[u8], reads: ReadLimits) -> Result<ReadLimits, ConnError> {
        let local = self.local_qp(Side::B);
        let now = self.now;
        self.b.cm.accept(now, conn, &AcceptSpec { reads, private_data: data, context: 0xC }, local)
    }

    fn accept(&mut self, conn: ConnId) {
        self.try_accept(conn, b"welcome", READS).unwrap();
    }

    /// Calls a command of the manager of one side.
    fn command<T>(&mut self, side: Side, command: impl FnOnce(&mut Cm, Instant) -> T) -> T {
        let now = self.now;
        command(&mut self.host(side).cm, now)
    }

    /// Runs until B has a request, and returns its connection.
    fn request(&mut self) -> ConnId {
        let event = self.event(Side::B);
        assert!(matches!(event.kind, CmEventKind::Request { .. }), "{event:?}");
        event.conn
    }

    #[allow(clippy::large_types_passed_by_value, reason = "reads better")]
    fn expect(&mut self, side: Side, conn: ConnId, kind: CmEventKind) {
        let event = self.event(side);
        assert_eq!((event.conn, event.kind), (conn, kind));
    }

    fn replied(&mut self, conn: ConnId) {
        let event = self.event(Side::A);
        assert!(event.conn == conn && matches!(event.kind, CmEventKind::Replied { .. }), "{event:?}");
    }

    /// Establishes a connection. Returns its handles at A and B.
    fn established(&mut self) -> (ConnId, ConnId) {
        let a = self.connect();
        let b = self.request();
        self.accept(b);
        self.replied(a);
        self.command(Side::A, |cm, now| cm.complete(now, a)).unwrap();
        self.expect(Side::B, b, CmEventKind::Established);
        (a, b)
    }

    /// Releases both ends and asserts that nothing is left after TIMEWAIT.
    fn release(&mut self, a: ConnId, b: ConnId) {
        self.command(Side::A, |cm, now| cm.release(now, a)).unwrap();
        self.command(Side::B, |cm, now| cm.release(now, b)).unwrap();
        self.nothing_left();
    }

    fn nothing_left(&mut self) {
        self.quiet_for(Duration::from_secs(30));
        assert_eq!((self.a.cm.connections(), self.b.cm.connections()), (0, 0));
        assert_eq!(self.a.cm.poll_timeout(), None);
        assert_eq!(self.b.cm.poll_timeout(), None);
    }
}

/// Returns a frame with `mad` to queue pair 1, from `from` to `to`.
fn frame(from: &Host, to: &Host, source: IpAddr, mad: &[u8]) -> Vec<u8> {
    frame_on(&Path::new(from.mac, to.mac, source, to.ip), Qpn::GSI, DethRepr::GSI, mad)
}

/// Returns a frame with `mad` to queue pair `to` on `path`.
fn frame_on(path: &Path, to: Qpn, deth: DethRepr, mad: &[u8]) -> Vec<u8> {
    let template = Template::new(path, to).unwrap();
    let headers = Headers {
        opcode: Opcode::UD_SEND_ONLY,
        solicited: false,
        ack_req: true,
        psn: Psn::new(7),
        ext: Ext::Deth(deth),
    };
    let mut slot = vec![0; 2048];
    let mut frame = template.begin(Crc::detect(), &mut slot, &headers, mad.len()).unwrap();
    frame.write(mad);
    let len = frame.finish();
    slot.truncate(len);
    slot
}

/// Returns the MAD of a message.
fn datagram(message: &CmMessage, transaction: u64) -> [u8; Mad::LEN] {
    let mut mad = [0; Mad::LEN];
    message.emit(transaction, &mut mad);
    mad
}

/// Returns the next message that `host` sends, with its transaction ID.
fn next_message(host: &mut Host, now: Instant) -> Option<(CmMessage, u64)> {
    let mut slot = [0; 2048];
    let len = host.cm.poll_transmit(now, Crc::detect(), &mut slot)?;
    let packet = Packet::parse(&slot[..len]).unwrap();
    let mad = Mad::new_checked(packet.payload()).unwrap();
    Some((CmMessage::parse(&mad)?, mad.header().transaction_id()))
}

impl TwoHosts {
    /// Returns a valid REQ of A with its transaction ID, without sending it.
    fn req(&mut self) -> (ReqRepr, u64) {
        let conn = self.connect();
        let now = self.now;
        let Some((CmMessage::Req(req), transaction)) = next_message(&mut self.a, now) else {
            panic!("no REQ")
        };
        // A releases the connection, and its REJ is dropped.
        self.command(Side::A, |cm, now| cm.release(now, conn)).unwrap();
        while next_message(&mut self.a, now).is_some() {}
        (req, transaction)
    }

    /// Delivers `message` from `source` to B.
    fn deliver(&mut self, source: IpAddr, message: &CmMessage, transaction: u64) -> Result<(), Ignored> {
        let frame = frame(&self.a, &self.b, source, &datagram(message, transaction));
        let now = self.now;
        self.b.cm.deliver(now, &Packet::parse(&frame).unwrap())
    }

    /// Delivers a REQ from a new host at `source` to B.
    fn req_from(&mut self, source: IpAddr, number: u32) -> Result<(), Ignored> {
        let (mut req, transaction) = self.req();
        req.local_comm_id = CommId(0x5000_0000 + number);
        req.local_qpn = Qpn::new(0x5000 + number);
        req.local_ca_guid ^= 0xFF00_0000_0000;
        let mut path = CmPathRepr::parse(&CmPath::new(&req.primary_path));
        path.local_gid = Gid::from(source);
        path.emit(&mut req.primary_path);
        let ends = IpEnds { source, source_port: 9, destination: self.b.ip };
        ends.repr().emit(req.private_data.first_chunk_mut().unwrap());
        self.deliver(source, &CmMessage::Req(req), transaction)
    }
}

impl Cm {
    /// Handles a packet. No queue pair is challenged.
    fn deliver(&mut self, now: Instant, packet: &Packet<'_>) -> Result<(), Ignored> {
        self.handle(now, packet, &Challenged::default())
    }

    /// Returns the first connection, if any.
    fn any(&self) -> Option<(u32, &Conn)> {
        (0..self.conns.slots.capacity() as u32).find_map(|index| Some((index, self.conns.slots.get(index)?)))
    }
}

const READS: ReadLimits = ReadLimits { inbound: 4, outbound: 4 };

/// Returns `data` padded with zeros to `len`, as private data arrives.
fn padded(data: &[u8], len: usize) -> PrivateData {
    let mut bytes = data.to_vec();
    bytes.resize(len, 0);
    PrivateData::new(&bytes).unwrap()
}
