//! What a capture of two hosts tells: who they are, which connections they had, and what each side's consumer must
//! have asked for.
//!
//! Inferred from the frames alone. A request is told from its repetition by its PSN; connections that were not made
//! by connection management are told apart by which numbers answer which.

use std::{net::IpAddr, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use roce_wire::{
    Class, Ext, MacAddr, Opcode, Operation, Packet, ParseError, PathMtu, Psn,
    cm::{CmMessage, IpCm, RejReason, RepRepr, ReqRepr},
};

use crate::{decode, file::Captured};

/// A RoCE frame of a capture.
pub struct Spoken {
    /// Since the first frame of the capture.
    pub time: Duration,
    /// Which side sent it.
    pub from: usize,
    /// Which connection it is about; `None` for a datagram about none.
    pub conn: Option<usize>,
    pub bytes: Vec<u8>,
    /// What the sender's consumer asked for, if this is the first frame that comes of it.
    pub asked: Option<Asked>,
}

impl Spoken {
    /// The frame, read. It was read before.
    pub fn packet(&self) -> Packet<'_> {
        Packet::parse(&self.bytes).expect("a frame that was parsed before")
    }
}

/// What a consumer asks its side for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    Connect,
    /// Refuse a request, with these bytes.
    Reject(Vec<u8>),
    /// Give up connecting.
    GiveUp,
    Disconnect,
    /// Post the message of this number.
    Post(usize),
}

/// A side's address on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    pub mac: MacAddr,
    pub ip: IpAddr,
}

/// A request that a consumer posted.
#[derive(Clone, Debug)]
pub struct Message {
    /// Of the first packet.
    pub opcode: Opcode,
    /// From the first number of its direction on.
    pub first: u32,
    /// Numbers that it takes.
    pub packets: u32,
    pub address: u64,
    pub key: u32,
    pub length: u32,
    pub solicited: bool,
    pub immediate: bool,
    pub invalidates: Option<u32>,
    pub data: Vec<u8>,
    complete: bool,
}

impl Message {
    pub fn operation(&self) -> Operation {
        self.opcode.info().map_or(Operation::Send, |info| info.operation)
    }

    /// Whether the receiver takes a receive for it.
    pub fn takes_receive(&self) -> bool {
        self.operation() == Operation::Send || self.immediate
    }
}

/// A connection of the two. Arrays are by side.
#[derive(Debug)]
pub struct Conn {
    pub qpn: [u32; 2],
    /// The PSN that the requests of a side begin with.
    pub start: [Psn; 2],
    /// The same as connection management had it: programs may change it before they begin.
    pub told: [Psn; 2],
    pub ids: [u32; 2],
    /// The side that asked for it; `None` when it was not made by connection management.
    pub active: Option<usize>,
    pub req: Option<Box<ReqRepr>>,
    pub rep: Option<Box<RepRepr>>,
    pub refused: Option<RejReason>,
    pub mtu: PathMtu,
    pub messages: [Vec<Message>; 2],
}

impl Conn {
    fn new() -> Self {
        Self {
            qpn: [0; 2],
            start: [Psn::new(0); 2],
            told: [Psn::new(0); 2],
            ids: [0; 2],
            active: None,
            req: None,
            rep: None,
            refused: None,
            mtu: PathMtu::Bytes1024,
            messages: [Vec::new(), Vec::new()],
        }
    }

    /// The consumer's part of the REQ's private data.
    pub fn request_data(&self) -> &[u8] {
        self.req.as_ref().and_then(|req| req.private_data.get(IpCm::LEN..)).unwrap_or_default()
    }

    /// A number of the direction in which `side` sends requests, counted from the first.
    pub fn relative(&self, side: usize, psn: Psn) -> u32 {
        psn.sub(self.start[side].value()).value()
    }
}

/// A capture, understood.
pub struct Story {
    pub hosts: [Host; 2],
    pub conns: Vec<Conn>,
    pub frames: Vec<Spoken>,
}

impl Story {
    /// Understands a capture of two hosts; the sender of its first RoCE frame is side 0.
    pub fn of(capture: &[Captured]) -> Result<Self> {
        let start = capture.first().context("an empty capture")?.time;
        let mut hosts = Vec::new();
        let mut frames = Vec::new();
        for captured in capture {
            let packet = match Packet::parse(&captured.data) {
                Ok(packet) => packet,
                Err(ParseError::NotRoce) => continue,
                Err(ParseError::Malformed(reason)) => bail!("a malformed frame: {}", reason.name()),
            };
            if hosts.is_empty() {
                hosts.push(Host { mac: packet.eth().source(), ip: packet.source() });
                hosts.push(Host { mac: packet.eth().destination(), ip: packet.destination() });
            }
            let from = hosts.iter().position(|host| host.ip == packet.source());
            let from = from.context("a frame of a third host")?;
            let time = captured.time.saturating_sub(start);
            frames.push(Spoken { time, from, conn: None, bytes: captured.data.clone(), asked: None });
        }
        let hosts = hosts.try_into().ok().context("no RoCE frame")?;
        let mut story = Self { hosts, conns: Vec::new(), frames };
        story.find_managed();
        story.find_others();
        story.assign();
        story.find_beginnings();
        story.find_messages()?;
        Ok(story)
    }

    /// Connections by what connection management says.
    fn find_managed(&mut self) {
        for spoken in &mut self.frames {
            let Some((_, message)) = decode::datagram(&spoken.packet()) else { continue };
            let (from, to) = (spoken.from, 1 - spoken.from);
            let known = |conns: &[Conn], side: usize, id: u32| {
                conns.iter().position(|conn| id != 0 && conn.ids[side] == id)
            };
            match message {
                CmMessage::Req(req) => {
                    let id = req.local_comm_id.0;
                    if known(&self.conns, from, id).is_none() {
                        let mut conn = Conn::new();
                        conn.active = Some(from);
                        conn.ids[from] = id;
                        conn.qpn[from] = req.local_qpn.value();
                        conn.told[to] = req.starting_psn;
                        conn.mtu = req.path_mtu.mtu().unwrap_or(conn.mtu);
                        conn.req = Some(Box::new(req));
                        self.conns.push(conn);
                        spoken.asked = Some(Asked::Connect);
                    }
                }
                CmMessage::Rep(rep) => {
                    if let Some(at) = known(&self.conns, to, rep.remote_comm_id.0) {
                        let conn = &mut self.conns[at];
                        conn.ids[from] = rep.local_comm_id.0;
                        conn.qpn[from] = rep.local_qpn.value();
                        conn.told[to] = rep.starting_psn;
                        conn.rep = Some(Box::new(rep));
                    }
                }
                CmMessage::Rej(rej) => {
                    let at = known(&self.conns, to, rej.remote_comm_id.0);
                    if let Some(at) = at.or_else(|| known(&self.conns, from, rej.local_comm_id.0)) {
                        self.conns[at].refused.get_or_insert(rej.reason);
                        if self.conns[at].ids[from] == 0 {
                            self.conns[at].ids[from] = rej.local_comm_id.0;
                        }
                        let data =
                            rej.private_data.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1);
                        spoken.asked = match rej.reason {
                            RejReason::CONSUMER => Some(Asked::Reject(rej.private_data[..data].to_vec())),
                            RejReason::TIMEOUT => Some(Asked::GiveUp),
                            _ => None,
                        };
                    }
                }
                _ => {}
            }
        }
        // Whoever says goodbye first, or answers, was told so by its consumer.
        let mut parted = vec![[false; 2]; self.conns.len()];
        for spoken in &mut self.frames {
            let from = spoken.from;
            let id = match decode::datagram(&spoken.packet()) {
                Some((_, CmMessage::Dreq(dreq))) => dreq.local_comm_id.0,
                Some((_, CmMessage::Drep(drep))) => drep.local_comm_id.0,
                _ => continue,
            };
            if let Some(at) = self.conns.iter().position(|conn| conn.ids[from] == id)
                && !std::mem::replace(&mut parted[at][from], true)
            {
                spoken.asked = Some(Asked::Disconnect);
            }
        }
    }

    /// Connections of queue pairs that nobody introduced: requests to one are answered to the other.
    fn find_others(&mut self) {
        let knows = |conns: &[Conn], to: usize, qpn: u32| conns.iter().any(|conn| conn.qpn[to] == qpn);
        for (at, spoken) in self.frames.iter().enumerate() {
            let packet = spoken.packet();
            let (from, to) = (spoken.from, 1 - spoken.from);
            let asker = packet.bth().dest_qp().value();
            if packet.info().class != Class::Request || knows(&self.conns, to, asker) {
                continue;
            }
            let answer = self.frames[at..].iter().find(|other| {
                let answer = other.packet();
                other.from == to
                    && answer.info().class == Class::Response
                    && answer.bth().psn() == packet.bth().psn()
            });
            let Some(answer) = answer else { continue };
            let mut conn = Conn::new();
            conn.qpn[to] = asker;
            conn.qpn[from] = answer.packet().bth().dest_qp().value();
            self.conns.push(conn);
        }
        // How long their packets were.
        for conn in self.conns.iter_mut().filter(|conn| conn.active.is_none()) {
            let of_conn = self.frames.iter().map(Spoken::packet).filter(|packet| {
                conn.qpn.contains(&packet.bth().dest_qp().value())
                    && packet.info().operation != Operation::Acknowledge
            });
            let longest = of_conn.map(|packet| packet.payload().len()).max().unwrap_or(0);
            let fits = |mtu: &PathMtu| mtu.bytes() >= longest;
            conn.mtu = PathMtu::ALL.into_iter().find(fits).unwrap_or(conn.mtu).max(PathMtu::Bytes1024);
        }
    }

    /// Finds the number that each side's requests begin with.
    fn find_beginnings(&mut self) {
        for (at, conn) in self.conns.iter_mut().enumerate() {
            for side in 0..2 {
                let mut requests = self.frames.iter().filter(|spoken| {
                    let is_request = spoken.packet().info().class == Class::Request;
                    spoken.from == side && spoken.conn == Some(at) && is_request
                });
                let first = requests.next().map(|spoken| spoken.packet().bth().psn());
                conn.start[side] = first.unwrap_or(conn.told[side]);
            }
        }
    }

    /// Says of each frame which connection it is about.
    fn assign(&mut self) {
        for spoken in &mut self.frames {
            let (from, to) = (spoken.from, 1 - spoken.from);
            let packet = Packet::parse(&spoken.bytes).expect("a frame that was parsed before");
            let by_qpn = |qpn: u32| self.conns.iter().position(|conn| conn.qpn[to] == qpn);
            let by_id =
                |side: usize, id: u32| self.conns.iter().position(|conn| id != 0 && conn.ids[side] == id);
            spoken.conn = match decode::datagram(&packet) {
                None => by_qpn(packet.bth().dest_qp().value()),
                Some((_, message)) => {
                    let (mine, yours) = ids(&message);
                    by_id(from, mine).or_else(|| by_id(to, yours))
                }
            };
        }
    }

    /// What was posted.
    fn find_messages(&mut self) -> Result<()> {
        for spoken in &mut self.frames {
            let Some(conn) = spoken.conn.and_then(|at| self.conns.get_mut(at)) else { continue };
            let packet = Packet::parse(&spoken.bytes).expect("a frame that was parsed before");
            let info = packet.info();
            if info.class != Class::Request {
                continue;
            }
            let from = spoken.from;
            let at = conn.relative(from, packet.bth().psn());
            let next = conn.messages[from].last().map_or(0, |message| message.first + message.packets);
            if at < next {
                continue;
            }
            ensure!(at == next, "a request is missing in the capture");
            if info.first {
                let (address, key, length) = match packet.ext() {
                    Ext::Reth(reth) | Ext::RethImm(reth, _) => (reth.address, reth.r_key, reth.length),
                    Ext::Atomic(atomic) => (atomic.address, atomic.r_key, 8),
                    _ => (0, 0, 0),
                };
                let packets = match info.operation {
                    Operation::Read => length.div_ceil(conn.mtu.bytes() as u32).max(1),
                    _ => 0,
                };
                conn.messages[from].push(Message {
                    opcode: packet.bth().opcode(),
                    first: at,
                    packets,
                    address,
                    key,
                    length,
                    solicited: false,
                    immediate: false,
                    invalidates: None,
                    data: Vec::new(),
                    complete: false,
                });
                spoken.asked = Some(Asked::Post(conn.messages[from].len() - 1));
            }
            let message = conn.messages[from].last_mut().context("a message without a beginning")?;
            ensure!(!message.complete, "a message goes on after its end");
            if info.operation != Operation::Read {
                message.packets += 1;
            }
            message.data.extend_from_slice(packet.payload());
            message.solicited |= packet.bth().solicited();
            message.immediate |= packet.imm_dt().is_some();
            message.invalidates = packet.ieth().map(|ieth| ieth.r_key()).or(message.invalidates);
            message.complete = info.last;
            if info.operation == Operation::Send {
                message.length = message.data.len() as u32;
            }
        }
        Ok(())
    }
}

/// What a message of connection management calls the connection: the sender's name, the receiver's.
pub fn ids(message: &CmMessage) -> (u32, u32) {
    match message {
        CmMessage::Req(m) => (m.local_comm_id.0, 0),
        CmMessage::Rep(m) => (m.local_comm_id.0, m.remote_comm_id.0),
        CmMessage::Rtu(m) => (m.local_comm_id.0, m.remote_comm_id.0),
        CmMessage::Rej(m) => (m.local_comm_id.0, m.remote_comm_id.0),
        CmMessage::Mra(m) => (m.local_comm_id.0, m.remote_comm_id.0),
        CmMessage::Dreq(m) => (m.local_comm_id.0, m.remote_comm_id.0),
        CmMessage::Drep(m) => (m.local_comm_id.0, m.remote_comm_id.0),
    }
}
