// SPDX-License-Identifier: MIT OR Apache-2.0

//! The consumer of the replayed side: performs the actions of the capture's consumer and checks the results.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, anyhow};
use roce::{
    AcceptSpec, Access, Binding, Completion, CompletionStatus, ConnEvent, ConnId, ConnectSpec, ListenSpec,
    ReadLimits, RecvRequest, SendData, SendFlags, SendOperation as Posted, SendRequest, Sge, WindowType,
};
use roce_wire::{
    Class, Operation, Path, Syndrome,
    cm::{IpCm, IpEnds, RejReason},
};

use super::state::{PeerMemory, Player, failed};
use crate::replay::{
    infer::{Conn, ConsumerAction, Message, RoceFrame},
    setup::{Fate, Nth},
};

/// Flag of receive contexts.
const RECEIVE: u64 = 1 << 63;

impl Player<'_> {
    /// Registers the memory that the peer accesses, at the addresses that it uses.
    pub(super) fn register_shared(&mut self) -> Result<()> {
        let mut ranges = BTreeMap::<u32, (u64, u64)>::new();
        let mut windows = BTreeMap::<u32, u32>::new();
        let peer = 1 - self.side;
        for (at, conn) in self.scenario.conns.iter().enumerate() {
            let announced = probe_buffer(conn, self.side);
            if let Some((address, key, length)) = announced {
                ranges.insert(key, (address, address + u64::from(length)));
            }
            for message in &conn.messages[peer] {
                if message.length == 0 || message.key == 0 || self.was_rejected(at, message) {
                    continue;
                }
                if let Some((_, key, _)) = announced {
                    // Another key to the same buffer must be that of a memory window.
                    if key != message.key {
                        windows.insert(key, message.key);
                    }
                    continue;
                }
                let end = message.address + u64::from(message.length);
                let range = ranges.entry(message.key).or_insert((message.address, end));
                *range = (range.0.min(message.address), range.1.max(end));
            }
        }
        for (key, (start, end)) in ranges {
            let memory = self.memory(start, (end - start) as usize, Access::all())?;
            let written = vec![None; memory.len()];
            let window = match windows.get(&key) {
                Some(key) => Some((
                    *key,
                    self.engine
                        .memory()
                        .create_window(self.pd, WindowType::Type2)
                        .map_err(failed("window"))?,
                    false,
                )),
                None => None,
            };
            self.shared.push(PeerMemory { key, memory, window, written });
        }
        Ok(())
    }

    /// Binds the memory windows by requests on the queue pair of the connection.
    fn bind(&mut self, at: usize) -> Result<()> {
        for shared in &mut self.shared {
            let Some((_, window, bound)) = shared.window.as_mut().filter(|(.., bound)| !bound) else {
                continue;
            };
            *bound = true;
            let binding = Binding {
                region: shared.memory.key(),
                address: shared.memory.base(),
                length: shared.memory.len() as u64,
                access: Access::REMOTE_READ | Access::REMOTE_WRITE,
            };
            let request = SendRequest {
                context: u64::MAX,
                operation: Posted::Bind { key: window.key() },
                flags: SendFlags::SILENT,
                data: SendData::Binding(&binding),
            };
            self.engine.post_send(&self.live[at].qp, &request).map_err(failed("bind"))?;
        }
        Ok(())
    }

    /// Returns whether the host of the capture rejected the key of the message.
    pub(super) fn was_rejected(&self, conn: usize, message: &Message) -> bool {
        self.scenario.frames.iter().any(|frame| {
            let packet = frame.packet();
            let psn = || self.conn(conn).relative(1 - self.side, packet.bth().psn());
            frame.from == self.side
                && frame.conn == Some(conn)
                && packet.aeth().is_some_and(|aeth| aeth.syndrome() == Syndrome(0x62))
                && psn() == message.first
        })
    }

    /// Posts one receive for each message that will consume one.
    pub(super) fn post_receives(&mut self) -> Result<()> {
        let peer = 1 - self.side;
        for at in 0..self.scenario.conns.len() {
            let messages = self.conn(at).messages[peer].iter().filter(|message| message.consumes_receive());
            for longest in messages.map(|message| message.data.len()).collect::<Vec<_>>() {
                let fixed = self.setup.receive_length.filter(|_| self.side == 1);
                // In a shared receive queue, any message may use any receive.
                let length = fixed.unwrap_or(if self.srq.is_some() { 4096 } else { longest as u32 });
                let memory = self.memory(0x10_0000, length as usize, Access::LOCAL_WRITE)?;
                let context = RECEIVE | self.receives.len() as u64;
                let request = RecvRequest { context, sges: &[memory.sge(length)] };
                let posted = if let Some(srq) = &self.srq {
                    srq.post(&request, u32::MAX)
                } else {
                    self.engine.post_recv(&self.live[at].qp, &request)
                };
                posted.map_err(failed("post a receive"))?;
                self.receives.insert(context, memory);
            }
        }
        Ok(())
    }

    /// Listens on the ports on which the host of the capture listened.
    pub(super) fn listen(&mut self) -> Result<()> {
        let mut ports = Vec::new();
        for conn in &self.scenario.conns {
            let listened = conn.rep.is_some() || conn.rejected == Some(RejReason::CONSUMER);
            if conn.active == Some(1 - self.side)
                && listened
                && let Some(port) = conn.req.as_ref().and_then(|req| req.service_id.to_port())
                && !ports.contains(&port)
            {
                let spec = ListenSpec { ip: None, port, datagrams: false, backlog: 16, context: 0 };
                self.engine.connections().listen(&spec).map_err(failed("listen"))?;
                ports.push(port);
            }
        }
        Ok(())
    }

    /// Handles a connection event.
    pub(super) fn on_event(&mut self, id: ConnId, event: &ConnEvent) {
        let now = self.now;
        match event {
            ConnEvent::Request(request) => {
                let is_it = |(at, conn): &(usize, &Conn)| {
                    let req = conn.req.as_ref();
                    self.live[*at].conn.is_none()
                        && conn.active == Some(1 - self.side)
                        && req.is_some_and(|req| source_port(&req.private_data) == Some(request.remote_port))
                };
                let Some((at, conn)) = self.scenario.conns.iter().enumerate().find(is_it) else {
                    return self.error(format!("unexpected connection request: {request:?}"));
                };
                self.live[at].conn = Some(id);
                let Some(rep) = &conn.rep else { return };
                let reads = ReadLimits { inbound: rep.responder_resources, outbound: rep.initiator_depth };
                let accept = AcceptSpec { reads, private_data: &rep.private_data, context: 0 };
                let accepted = self.engine.connections().accept(now, id, &self.live[at].qp, &accept);
                if let Err(error) = accepted {
                    self.error(format!("cannot accept: {error:?}"));
                }
                if self.side == 1 {
                    self.late_receives = self.setup.receives_after.map(|time| now + time);
                }
            }
            ConnEvent::Replied { .. } => {
                if let Err(error) = self.engine.connections().complete(now, id) {
                    self.error(format!("cannot complete: {error:?}"));
                }
            }
            ConnEvent::Established { .. } if self.setup.flushes => {
                if let Some(live) = self.live.iter().find(|live| live.conn == Some(id)) {
                    self.engine.flush(&live.qp);
                }
            }
            _ => {}
        }
    }

    /// Performs an action of the capture's consumer.
    pub(super) fn perform(&mut self, at: usize, action: &ConsumerAction) {
        let result = match action {
            ConsumerAction::Connect => self.connect(at),
            ConsumerAction::Reject(data) => self.with_id(at, |player, id| {
                player.engine.connections().reject(player.now, id, data).map_err(failed("reject"))
            }),
            ConsumerAction::Abandon => self.with_id(at, |player, id| {
                player.engine.connections().release(player.now, id);
                Ok(())
            }),
            ConsumerAction::Disconnect => self.with_id(at, |player, id| {
                player.engine.connections().disconnect(player.now, id).map_err(failed("disconnect"))
            }),
            ConsumerAction::Post(_) if self.live[at].stopped => Ok(()),
            ConsumerAction::Post(_) if self.setup.posts_at_once && self.side == 0 => self.post_all(at),
            ConsumerAction::Post(number) => {
                self.bind(at).and_then(|()| self.post(at, *number, SendFlags::empty()))
            }
        };
        if let Err(error) = result {
            self.error(format!("{error:#}"));
        }
    }

    pub(super) fn with_id(&self, at: usize, work: impl FnOnce(&Self, ConnId) -> Result<()>) -> Result<()> {
        work(self, self.live[at].conn.context("the connection does not exist")?)
    }

    pub(super) fn path(&self) -> Path {
        let [local, remote] = [self.side, 1 - self.side].map(|side| self.scenario.hosts[side]);
        Path::new(local.mac, remote.mac, local.ip, remote.ip)
    }

    pub(super) fn connect(&mut self, at: usize) -> Result<()> {
        let conn = self.conn(at);
        let req = conn.req.as_ref().context("no REQ")?;
        let private_data = conn.request_data();
        let spec = ConnectSpec {
            path: self.path(),
            local_port: source_port(&req.private_data).context("no IP header")?,
            remote_port: req.service_id.to_port().context("no port")?,
            mtu: conn.mtu,
            reads: ReadLimits { inbound: req.responder_resources, outbound: req.initiator_depth },
            private_data,
            context: 0,
        };
        self.request(at, &spec)
    }

    /// Sends the REQ of a connection.
    pub(super) fn request(&mut self, at: usize, spec: &ConnectSpec<'_>) -> Result<()> {
        let id = self
            .engine
            .connections()
            .connect(self.now, &self.live[at].qp, spec)
            .map_err(failed("connect"))?;
        self.live[at].conn = Some(id);
        Ok(())
    }

    /// Posts all requests of a connection at the first call; does nothing afterwards.
    pub(super) fn post_all(&mut self, at: usize) -> Result<()> {
        let count = self.conn(at).messages[self.side].len();
        if !self.reads.is_empty() {
            return Ok(());
        }
        for number in 0..count {
            let flags = if number + 1 == count { SendFlags::FENCE } else { SendFlags::empty() };
            self.post(at, number, flags)?;
        }
        Ok(())
    }

    pub(super) fn post(&mut self, at: usize, number: usize, flags: SendFlags) -> Result<()> {
        let message = &self.conn(at).messages[self.side][number];
        let (address, key) = (message.address, message.key);
        let context = ((at as u64) << 32) | number as u64;
        let operation = match (message.operation(), message.invalidates) {
            (Operation::Send, Some(key)) => Posted::SendInvalidate { key },
            (Operation::Send, None) => Posted::Send,
            (Operation::Write, _) => Posted::Write { address, key },
            (Operation::Read, _) => Posted::Read { address, key },
            (other, _) => {
                self.live[at].stopped = true;
                return Err(anyhow!("{other:?} cannot be posted"));
            }
        };
        let mut flags = flags;
        // Only a SEND can be solicited; a WRITE with immediate data is posted as an RDMA WRITE.
        flags.set(SendFlags::SOLICITED, message.solicited && message.operation() == Operation::Send);
        let is_read = matches!(operation, Posted::Read { .. });
        let access = if is_read { Access::LOCAL_WRITE } else { Access::empty() };
        let memory = self.memory(0x20_0000, message.length as usize, access)?;
        memory.fill(&message.data);
        let sges: Vec<Sge> = (message.length > 0).then(|| memory.sge(message.length)).into_iter().collect();
        let request = SendRequest { context, operation, flags, data: SendData::Sges(&sges) };
        self.engine.post_send(&self.live[at].qp, &request).map_err(failed("post_send"))?;
        if is_read {
            let data = self.read_data(at, self.side, message);
            self.reads.insert(context, (memory, data));
        }
        Ok(())
    }

    /// Returns the data that a READ of `requester` returned in the capture.
    pub(super) fn read_data(&self, at: usize, requester: usize, message: &Message) -> Vec<u8> {
        let conn = self.conn(at);
        let mut data = vec![0; message.length as usize];
        for frame in
            self.scenario.frames.iter().filter(|frame| frame.from != requester && frame.conn == Some(at))
        {
            let packet = frame.packet();
            if packet.info().class != Class::Response || packet.info().operation != Operation::Read {
                continue;
            }
            let into = conn.relative(requester, packet.bth().psn()).wrapping_sub(message.first);
            let offset = into as usize * conn.mtu.bytes();
            if into < message.packets
                && let Some(place) = data.get_mut(offset..offset + packet.payload().len())
            {
                place.copy_from_slice(packet.payload());
            }
        }
        data
    }

    /// Prepares memory for a request of the peer: a READ must find the data that it found in the capture, except for bytes
    /// that the peer wrote itself.
    pub(super) fn prepare_memory(&mut self, at: usize, frame: &RoceFrame) {
        let packet = frame.packet();
        let (Some(number), Class::Request) = (frame.conn, packet.info().class) else { return };
        let conn = self.conn(number);
        let peer = 1 - self.side;
        let psn = conn.relative(peer, packet.bth().psn());
        let within = |message: &&Message| psn.wrapping_sub(message.first) < message.packets;
        let Some(message) = conn.messages[peer].iter().find(within) else { return };
        if self.was_rejected(number, message) {
            return;
        }
        let data = match message.operation() {
            Operation::Read => self.read_data(number, peer, message),
            Operation::Write => packet.payload().to_vec(),
            _ => Vec::new(),
        };
        let is_write = message.operation() == Operation::Write;
        if packet.info().last && message.consumes_receive() && self.is_first_arrival(at, frame) {
            let data = if is_write { Vec::new() } else { message.data.clone() };
            self.expected.push(data);
        }
        let offset = if is_write { (psn - message.first) as usize * conn.mtu.bytes() } else { 0 };
        let Some(shared) = self.shared.iter_mut().find(|shared| shared.engine_key(message.key).is_some())
        else {
            return;
        };
        let Some(start) = message.address.checked_sub(shared.memory.base()) else { return };
        for (index, byte) in data.iter().enumerate() {
            let place = start as usize + offset + index;
            let Some(written) = shared.written.get_mut(place) else { return };
            if is_write {
                *written = Some(*byte);
            } else if written.is_none() {
                shared.memory.set(place, *byte);
            }
        }
    }

    /// Returns whether no earlier frame that arrived had the same PSN.
    pub(super) fn is_first_arrival(&self, at: usize, frame: &RoceFrame) -> bool {
        let psn = frame.packet().bth().psn();
        let (mut rc, mut first) = (0, true);
        for earlier in &self.scenario.frames[..at] {
            let packet = earlier.packet();
            if earlier.from != frame.from || packet.info().class == Class::Datagram {
                continue;
            }
            rc += 1;
            let fate = if earlier.from == 0 { self.setup.fate(Nth::Rc(rc)) } else { None };
            let arrived = !matches!(fate, Some(Fate::Lost | Fate::Corrupted));
            let same = earlier.conn == frame.conn && packet.bth().psn() == psn;
            first &= !(arrived && same && packet.info().class == Class::Request);
        }
        first
    }

    /// Checks that memory holds the data that the peer wrote.
    pub(super) fn check_memory(&mut self) {
        for shared in &self.shared {
            let memory = shared.memory.read(0..shared.memory.len());
            let same =
                shared.written.iter().zip(&memory).all(|(written, byte)| written.is_none_or(|w| w == *byte));
            if !same {
                self.result.errors.push("memory does not hold the data that the peer wrote".into());
            }
        }
    }

    pub(super) fn take_completions(&mut self) {
        let mut found = [Completion::EMPTY; 16];
        loop {
            let count = self.cq.poll(&mut found);
            for completion in &found[..count] {
                self.take_completion(completion);
            }
            if count == 0 {
                return;
            }
        }
    }

    pub(super) fn take_completion(&mut self, completion: &Completion) {
        let kind = if completion.kind.is_receive() { "receive" } else { "request" };
        let what = format!("{kind} {:?}", completion.status);
        *self.result.completions.entry(what).or_default() += 1;
        if completion.status != CompletionStatus::Success {
            return;
        }
        if let Some((memory, data)) = self.reads.get(&completion.context)
            && memory.read(0..data.len()) != *data
        {
            self.error("a READ returned other data than in the capture".into());
        }
        if completion.kind.is_receive() {
            let expected = if self.expected.is_empty() { Vec::new() } else { self.expected.remove(0) };
            let memory = self.receives.get(&completion.context);
            let got = memory.map(|memory| memory.read(0..expected.len()));
            if got.is_none_or(|got| got != expected) {
                self.error("a receive holds other data than in the capture".into());
            }
        }
    }
}

/// Returns the buffer that the rxprobe program announced to its client in the REP: address, key, length.
fn probe_buffer(conn: &Conn, side: usize) -> Option<(u64, u32, u32)> {
    let is_probe = conn.request_data().starts_with(b"RXPB") && conn.active == Some(1 - side);
    let data = &conn.rep.as_ref().filter(|_| is_probe)?.private_data;
    let address = u64::from_be_bytes(*data.first_chunk()?);
    let key = u32::from_be_bytes(*data.get(8..)?.first_chunk()?);
    let length = u32::from_be_bytes(*data.get(12..)?.first_chunk()?);
    Some((address, key, length))
}

/// Returns the source port in the IP CM header of a REQ.
fn source_port(private_data: &[u8]) -> Option<u16> {
    let header = IpCm::new_checked(private_data).ok()?;
    Some(IpEnds::parse(&header)?.source_port)
}
