// SPDX-License-Identifier: MIT OR Apache-2.0

//! Infers the scenario of a capture of two hosts from its frames: the hosts, their connections, and the requests of each
//! side's consumer.
//!
//! A request is distinguished from its retransmission by the PSN. A connection that was not established by connection
//! management is found by the PSNs of requests and responses.

use std::{net::IpAddr, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use roce_wire::{
    Class, Ext, MacAddr, Opcode, Operation, Packet, ParseError, PathMtu, Psn,
    cm::{CmMessage, IpCm, RejReason, RepRepr, ReqRepr},
};

use crate::{decode, file::Captured};

/// A RoCE frame of a capture.
pub struct RoceFrame {
    /// Time since the first frame of the capture.
    pub time: Duration,
    /// The side that sent the frame.
    pub from: usize,
    /// Index of the connection; `None` for a datagram of no connection.
    pub conn: Option<usize>,
    pub bytes: Vec<u8>,
    /// The consumer action that caused the frame, if this is the first frame that it caused.
    pub action: Option<ConsumerAction>,
}

impl RoceFrame {
    /// Returns the parsed frame. Cannot fail: it was parsed before.
    pub fn packet(&self) -> Packet<'_> {
        Packet::parse(&self.bytes).expect("a frame that was parsed before")
    }
}

/// An action of a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsumerAction {
    Connect,
    /// Reject a connection request, with this private data.
    Reject(Vec<u8>),
    /// Abandon a connection that is being established.
    Abandon,
    Disconnect,
    /// Post the message with this index.
    Post(usize),
}

/// The addresses of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    pub mac: MacAddr,
    pub ip: IpAddr,
}

/// A request that a consumer posted.
#[derive(Clone, Debug)]
pub struct Message {
    /// The opcode of the first packet.
    pub opcode: Opcode,
    /// PSN of the first packet, relative to the first PSN of its direction.
    pub first: u32,
    /// Number of PSNs that the message uses.
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

    /// Returns whether the message consumes a receive of the peer.
    pub fn consumes_receive(&self) -> bool {
        self.operation() == Operation::Send || self.immediate
    }
}

/// A connection of the two hosts. Arrays are indexed by side.
#[derive(Debug)]
pub struct Conn {
    pub qpn: [u32; 2],
    /// The first PSN of the requests of a side.
    pub start: [Psn; 2],
    /// The first PSN as negotiated by connection management; programs may change it afterwards.
    pub negotiated_start: [Psn; 2],
    pub ids: [u32; 2],
    /// The active side; `None` if the connection was not established by connection management.
    pub active: Option<usize>,
    pub req: Option<Box<ReqRepr>>,
    pub rep: Option<Box<RepRepr>>,
    pub rejected: Option<RejReason>,
    pub mtu: PathMtu,
    pub messages: [Vec<Message>; 2],
}

impl Conn {
    fn new() -> Self {
        Self {
            qpn: [0; 2],
            start: [Psn::new(0); 2],
            negotiated_start: [Psn::new(0); 2],
            ids: [0; 2],
            active: None,
            req: None,
            rep: None,
            rejected: None,
            mtu: PathMtu::Bytes1024,
            messages: [Vec::new(), Vec::new()],
        }
    }

    /// Returns the consumer's part of the REQ's private data.
    pub fn request_data(&self) -> &[u8] {
        self.req.as_ref().and_then(|req| req.private_data.get(IpCm::LEN..)).unwrap_or_default()
    }

    /// Returns a PSN of the requests of `side`, relative to the first one.
    pub fn relative(&self, side: usize, psn: Psn) -> u32 {
        psn.sub(self.start[side].value()).value()
    }
}

/// The scenario of a capture.
pub struct Scenario {
    pub hosts: [Host; 2],
    pub conns: Vec<Conn>,
    pub frames: Vec<RoceFrame>,
}

impl Scenario {
    /// Infers the scenario of a capture of two hosts. The sender of the first RoCE frame is side 0.
    pub fn infer(capture: &[Captured]) -> Result<Self> {
        let start = capture.first().context("the capture is empty")?.time;
        let mut hosts = Vec::new();
        let mut frames = Vec::new();
        for captured in capture {
            let packet = match Packet::parse(&captured.data) {
                Ok(packet) => packet,
                Err(ParseError::NotRoce) => continue,
                Err(ParseError::Malformed(reason)) => {
                    bail!("the capture has a malformed frame: {}", reason.name())
                }
            };
            if hosts.is_empty() {
                hosts.push(Host { mac: packet.eth().source(), ip: packet.source() });
                hosts.push(Host { mac: packet.eth().destination(), ip: packet.destination() });
            }
            let from = hosts.iter().position(|host| host.ip == packet.source());
            let from = from.context("the capture has a frame of a third host")?;
            let time = captured.time.saturating_sub(start);
            frames.push(RoceFrame { time, from, conn: None, bytes: captured.data.clone(), action: None });
        }
        let hosts = hosts.try_into().ok().context("the capture has no RoCE frame")?;
        let mut scenario = Self { hosts, conns: Vec::new(), frames };
        scenario.find_cm_connections();
        scenario.find_other_connections();
        scenario.assign_connections();
        scenario.find_first_psns();
        scenario.find_messages()?;
        Ok(scenario)
    }

    /// Finds the connections that connection management established.
    fn find_cm_connections(&mut self) {
        for frame in &mut self.frames {
            let Some((_, message)) = decode::datagram(&frame.packet()) else { continue };
            let (from, to) = (frame.from, 1 - frame.from);
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
                        conn.negotiated_start[to] = req.starting_psn;
                        conn.mtu = req.path_mtu.mtu().unwrap_or(conn.mtu);
                        conn.req = Some(Box::new(req));
                        self.conns.push(conn);
                        frame.action = Some(ConsumerAction::Connect);
                    }
                }
                CmMessage::Rep(rep) => {
                    if let Some(at) = known(&self.conns, to, rep.remote_comm_id.0) {
                        let conn = &mut self.conns[at];
                        conn.ids[from] = rep.local_comm_id.0;
                        conn.qpn[from] = rep.local_qpn.value();
                        conn.negotiated_start[to] = rep.starting_psn;
                        conn.rep = Some(Box::new(rep));
                    }
                }
                CmMessage::Rej(rej) => {
                    let at = known(&self.conns, to, rej.remote_comm_id.0);
                    if let Some(at) = at.or_else(|| known(&self.conns, from, rej.local_comm_id.0)) {
                        self.conns[at].rejected.get_or_insert(rej.reason);
                        if self.conns[at].ids[from] == 0 {
                            self.conns[at].ids[from] = rej.local_comm_id.0;
                        }
                        let data =
                            rej.private_data.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1);
                        frame.action = match rej.reason {
                            RejReason::CONSUMER => {
                                Some(ConsumerAction::Reject(rej.private_data[..data].to_vec()))
                            }
                            RejReason::TIMEOUT => Some(ConsumerAction::Abandon),
                            _ => None,
                        };
                    }
                }
                _ => {}
            }
        }
        // The first DREQ or DREP of a side is caused by its consumer.
        let mut disconnected = vec![[false; 2]; self.conns.len()];
        for frame in &mut self.frames {
            let from = frame.from;
            let id = match decode::datagram(&frame.packet()) {
                Some((_, CmMessage::Dreq(dreq))) => dreq.local_comm_id.0,
                Some((_, CmMessage::Drep(drep))) => drep.local_comm_id.0,
                _ => continue,
            };
            if let Some(at) = self.conns.iter().position(|conn| conn.ids[from] == id)
                && !std::mem::replace(&mut disconnected[at][from], true)
            {
                frame.action = Some(ConsumerAction::Disconnect);
            }
        }
    }

    /// Finds the connections that were established by other means: responses to requests to one queue pair go to the
    /// other.
    fn find_other_connections(&mut self) {
        let is_known = |conns: &[Conn], to: usize, qpn: u32| conns.iter().any(|conn| conn.qpn[to] == qpn);
        for (at, frame) in self.frames.iter().enumerate() {
            let packet = frame.packet();
            let (from, to) = (frame.from, 1 - frame.from);
            let dest_qpn = packet.bth().dest_qp().value();
            if packet.info().class != Class::Request || is_known(&self.conns, to, dest_qpn) {
                continue;
            }
            let response = self.frames[at..].iter().find(|other| {
                let response = other.packet();
                other.from == to
                    && response.info().class == Class::Response
                    && response.bth().psn() == packet.bth().psn()
            });
            let Some(response) = response else { continue };
            let mut conn = Conn::new();
            conn.qpn[to] = dest_qpn;
            conn.qpn[from] = response.packet().bth().dest_qp().value();
            self.conns.push(conn);
        }
        // The path MTU is inferred from the longest packet.
        for conn in self.conns.iter_mut().filter(|conn| conn.active.is_none()) {
            let of_conn = self.frames.iter().map(RoceFrame::packet).filter(|packet| {
                conn.qpn.contains(&packet.bth().dest_qp().value())
                    && packet.info().operation != Operation::Acknowledge
            });
            let longest = of_conn.map(|packet| packet.payload().len()).max().unwrap_or(0);
            let fits = |mtu: &PathMtu| mtu.bytes() >= longest;
            conn.mtu = PathMtu::ALL.into_iter().find(fits).unwrap_or(conn.mtu).max(PathMtu::Bytes1024);
        }
    }

    /// Finds the first PSN of each side's requests.
    fn find_first_psns(&mut self) {
        for (at, conn) in self.conns.iter_mut().enumerate() {
            for side in 0..2 {
                let mut requests = self.frames.iter().filter(|frame| {
                    let is_request = frame.packet().info().class == Class::Request;
                    frame.from == side && frame.conn == Some(at) && is_request
                });
                let first = requests.next().map(|frame| frame.packet().bth().psn());
                conn.start[side] = first.unwrap_or(conn.negotiated_start[side]);
            }
        }
    }

    /// Assigns each frame to its connection.
    fn assign_connections(&mut self) {
        for frame in &mut self.frames {
            let (from, to) = (frame.from, 1 - frame.from);
            let packet = Packet::parse(&frame.bytes).expect("a frame that was parsed before");
            let by_qpn = |qpn: u32| self.conns.iter().position(|conn| conn.qpn[to] == qpn);
            let by_id =
                |side: usize, id: u32| self.conns.iter().position(|conn| id != 0 && conn.ids[side] == id);
            frame.conn = match decode::datagram(&packet) {
                None => by_qpn(packet.bth().dest_qp().value()),
                Some((_, message)) => {
                    let (mine, yours) = comm_ids(&message);
                    by_id(from, mine).or_else(|| by_id(to, yours))
                }
            };
        }
    }

    /// Finds the messages that the consumers posted.
    fn find_messages(&mut self) -> Result<()> {
        for frame in &mut self.frames {
            let Some(conn) = frame.conn.and_then(|at| self.conns.get_mut(at)) else { continue };
            let packet = Packet::parse(&frame.bytes).expect("a frame that was parsed before");
            let info = packet.info();
            if info.class != Class::Request {
                continue;
            }
            let from = frame.from;
            let at = conn.relative(from, packet.bth().psn());
            let next = conn.messages[from].last().map_or(0, |message| message.first + message.packets);
            if at < next {
                continue;
            }
            ensure!(at == next, "a request packet is missing in the capture");
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
                frame.action = Some(ConsumerAction::Post(conn.messages[from].len() - 1));
            }
            let message = conn.messages[from].last_mut().context("a message has no first packet")?;
            ensure!(!message.complete, "a message continues after its last packet");
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

/// Returns the communication IDs in a CM message: that of the sender and that of the receiver.
pub fn comm_ids(message: &CmMessage) -> (u32, u32) {
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
