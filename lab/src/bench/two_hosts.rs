// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two engines on one thread, connected by two rings of frames, to measure the cost of the engine alone.
#![allow(unsafe_code, reason = "registers memory with the engine")]

use std::{
    net::{IpAddr, Ipv4Addr},
    ptr::NonNull,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use fallible::Arc;
use roce::{
    AcceptSpec, Access, Backing, Completion, CompletionStatus, Config, ConnEvent, ConnId, ConnectSpec, Cq,
    Engine, EngineEvent, Instant, ListenSpec, Pd, Qp, QpSpec, ReadLimits, RecvRequest, Region, SendData,
    SendFlags, SendOperation, SendRequest, Sge, Transmit, Verdict,
};
use roce_wire::icrc::Crc;
use roce_wire::{MacAddr, Path, PathMtu};

type Lock = parking_lot::RawMutex;

/// Bytes of a frame slot: path MTU, headers and trailers.
const SLOT: usize = 4096 + 160;
/// Frames that one direction holds, as many as a virtio queue.
const SLOTS: usize = 256;
/// Frames that a side sends per poll.
const BUDGET: usize = 64;
/// Largest number of outstanding requests.
const DEPTH: u32 = 256;
/// More entries than outstanding requests and receives.
const CQ_DEPTH: u32 = 4 * DEPTH;
const PORT: u16 = 4000;

/// One direction of the link.
struct Frames {
    slots: Vec<Box<[u8]>>,
    lengths: [usize; SLOTS],
    first: usize,
    count: usize,
}

impl Frames {
    fn new() -> Self {
        Self { slots: vec![vec![0; SLOT].into(); SLOTS], lengths: [0; SLOTS], first: 0, count: 0 }
    }

    fn pop(&mut self) -> Option<&[u8]> {
        if self.count == 0 {
            return None;
        }
        let at = self.first;
        self.first = (self.first + 1) % SLOTS;
        self.count -= 1;
        Some(&self.slots[at][..self.lengths[at]])
    }
}

impl Transmit for Frames {
    fn slot(&mut self) -> Option<&mut [u8]> {
        (self.count < SLOTS).then(|| &mut *self.slots[(self.first + self.count) % SLOTS])
    }

    fn commit(&mut self, len: usize) {
        self.lengths[(self.first + self.count) % SLOTS] = len;
        self.count += 1;
    }
}

/// Options of a pair.
#[derive(Clone, Copy)]
pub struct Shape {
    pub crc: Crc,
    pub mtu: PathMtu,
    /// Bytes registered on each side.
    pub buffer: usize,
    /// Queue pairs of each side.
    pub queue_pairs: usize,
    /// Depth of each send queue and receive queue.
    pub depth: u32,
}

/// Two engines that do not know each other yet.
pub type Engines = [Arc<Engine<Lock>>; 2];

/// Returns two engines with `shards` shards each. The second one listens.
pub fn engines(shape: &Shape, shards: usize) -> Result<Engines> {
    let new = |number: u8| {
        let mut config = Config::new(u64::from(number), [number; 32]);
        config.crc = shape.crc;
        config.shards = u32::try_from(shards)?;
        let engine = Engine::try_new(config).map_err(failed("Engine::try_new"))?;
        engine.use_large_pages(verbs_core::request_large_pages);
        engine.connections().set_addresses(&[ip(number)]).map_err(failed("set_addresses"))?;
        anyhow::Ok(engine)
    };
    let engines = [new(1)?, new(2)?];
    let listen = ListenSpec { ip: None, port: PORT, datagrams: false, backlog: 1, context: 0 };
    engines[1].connections().listen(&listen).map_err(failed("listen"))?;
    Ok(engines)
}

/// One shard of an engine with connected queue pairs and one registered buffer.
struct Side {
    engine: Arc<Engine<Lock>>,
    shard: u32,
    cq: Arc<Cq<Lock>>,
    qps: Vec<Arc<Qp<Lock>>>,
    pd: Pd,
    region: Arc<Region>,
    /// Memory of the region. Only the engine accesses it once it is registered.
    _memory: Box<[u8]>,
    outgoing: Frames,
}

impl Side {
    fn new(engine: Arc<Engine<Lock>>, shard: u32, shape: &Shape) -> Result<Self> {
        let pd = engine.create_pd();
        let cq = engine.create_cq(CQ_DEPTH, 0).map_err(failed("create_cq"))?;
        let mut memory: Box<[u8]> = (0..shape.buffer).map(|at| (at as u8).wrapping_mul(31)).collect();
        let base = NonNull::from(&mut *memory).cast::<u8>();
        // SAFETY: `_memory` owns the memory as long as the engine exists; only the engine accesses it from here on.
        let backing = unsafe { Backing::contiguous(base, shape.buffer) }.map_err(failed("backing"))?;
        let address = base.as_ptr().expose_provenance() as u64;
        // SAFETY: `_memory` owns what `backing` names as long as the engine exists.
        let region =
            unsafe { engine.memory().register(pd, address, shape.buffer as u64, Access::all(), backing) };
        let region = region.map_err(failed("register"))?;
        let (qps, outgoing) = (Vec::new(), Frames::new());
        Ok(Self { engine, shard, cq, qps, pd, region, _memory: memory, outgoing })
    }

    fn create_qp(&self, depth: u32) -> Result<Arc<Qp<Lock>>> {
        let spec = QpSpec {
            pd: self.pd,
            send_cq: self.cq.clone(),
            recv_cq: self.cq.clone(),
            srq: None,
            send_depth: depth,
            recv_depth: depth,
            send_sges: 1,
            recv_sges: 1,
            inline: 0,
            context: self.qps.len() as u64,
        };
        self.engine.create_qp(spec).map_err(failed("create_qp"))
    }

    fn sge(&self, length: u32) -> Sge {
        Sge { address: self.region.base(), length, key: self.region.key() }
    }
}

fn ip(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, number).into()
}

fn failed<E: std::fmt::Debug>(what: &'static str) -> impl Fn(E) -> anyhow::Error {
    move |error| anyhow!("{what}: {error:?}")
}

/// Two connected sides.
pub struct TwoHosts {
    sides: [Side; 2],
    shape: Shape,
    /// Incomplete requests of the client and receives of the server, by queue pair.
    pending: [Vec<u64>; 2],
    /// Time of the engines: one microsecond per poll, independent of the machine's load.
    now: Instant,
}

impl TwoHosts {
    /// Returns two connected engines that compute CRCs with `crc` and have registered `buffer` bytes each.
    pub fn connect(crc: Crc, mtu: PathMtu, buffer: usize) -> Result<Self> {
        let mut hosts = Self::new(Shape { crc, mtu, buffer, queue_pairs: 1, depth: DEPTH })?;
        hosts.connect_one()?;
        Ok(hosts)
    }

    /// Returns two engines without queue pairs.
    pub fn new(shape: Shape) -> Result<Self> {
        Self::of(engines(&shape, 1)?, 0, shape)
    }

    /// Returns a shard of two engines, without queue pairs.
    pub fn of(engines: Engines, shard: u32, shape: Shape) -> Result<Self> {
        let [client, server] = engines;
        let mut sides = [Side::new(client, shard, &shape)?, Side::new(server, shard, &shape)?];
        for side in &mut sides {
            side.qps.reserve_exact(shape.queue_pairs);
        }
        let pending = [vec![0; shape.queue_pairs], vec![0; shape.queue_pairs]];
        Ok(Self { sides, shape, pending, now: Instant::from_nanos(1) })
    }

    /// Creates a queue pair on each side and connects them.
    pub fn connect_one(&mut self) -> Result<()> {
        let Shape { mtu, depth, .. } = self.shape;
        for side in &mut self.sides {
            let qp = side.create_qp(depth)?;
            side.qps.push(qp);
        }
        let number = self.sides[0].qps.len() - 1;
        let mac = |n| MacAddr([2, 0, 0, 0, 0, n]);
        let reads = ReadLimits { inbound: 16, outbound: 16 };
        let spec = ConnectSpec {
            path: Path::new(mac(1), mac(2), ip(1), ip(2)),
            local_port: PORT + 1 + (number % 50_000) as u16,
            remote_port: PORT,
            mtu,
            reads,
            private_data: &[],
            context: 0,
        };
        let client = &self.sides[0];
        client
            .engine
            .connections()
            .connect(self.now, &client.qps[number], &spec)
            .map_err(failed("connect"))?;
        let accept = AcceptSpec { reads, private_data: &[], context: 0 };
        let mut connected = [false; 2];
        let begin = self.now;
        while connected != [true; 2] {
            ensure!(self.now.duration_since(begin).as_millis() < 50, "two engines do not connect");
            for (side, connected) in connected.iter_mut().enumerate() {
                for (id, event) in self.turn(side) {
                    let Side { engine, qps, .. } = &self.sides[side];
                    match event {
                        ConnEvent::Request(_) => {
                            let qp = &qps[number];
                            engine
                                .connections()
                                .accept(self.now, id, qp, &accept)
                                .map_err(failed("accept"))?;
                        }
                        ConnEvent::Replied { .. } => {
                            engine.connections().complete(self.now, id).map_err(failed("complete"))?;
                            *connected = true;
                        }
                        ConnEvent::Established { .. } => *connected = true,
                        other => return Err(anyhow!("two engines do not connect: {other:?}")),
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the number of frames that both sides have sent.
    pub fn frames(&self) -> u64 {
        self.sides.iter().map(|side| side.engine.stats().tx_frames.get()).sum()
    }

    /// Polls a side as its driver would: delivers its frames to the other side, then returns its connection events.
    fn turn(&mut self, number: usize) -> Vec<(ConnId, ConnEvent)> {
        self.now = self.now + Duration::from_micros(1);
        let now = self.now;
        let (left, right) = self.sides.split_at_mut(1);
        let (side, peer) = if number == 0 { (&mut left[0], &right[0]) } else { (&mut right[0], &left[0]) };
        let shards = (side.engine.shard(side.shard), peer.engine.shard(peer.shard));
        let (Some(shard), Some(peer)) = shards else { return Vec::new() };
        shard.poll_transmit(now, &mut side.outgoing, BUDGET);
        let mut receiver = peer.receiver();
        while let Some(frame) = side.outgoing.pop() {
            let verdict = receiver.handle_frame(now, frame);
            debug_assert_eq!(verdict, Verdict::Consumed);
        }
        drop(receiver);
        // Empty vectors do not allocate.
        let mut events = Vec::new();
        while let Some(event) = side.engine.poll_event() {
            if let EngineEvent::Conn { id, event, .. } = event {
                events.push((id, event));
            }
        }
        if shard.poll_timeout().is_some_and(|at| at <= now) {
            shard.handle_timeout(now);
        }
        events
    }

    /// Writes `count` messages of `length` bytes to the peer's memory.
    pub fn write(&mut self, length: u32, count: u64) -> Result<()> {
        // Enough requests to keep the link busy, few enough to keep the working set small.
        self.write_with(&[0], length, count, 4)
    }

    /// Writes `count` messages of `length` bytes over `queue_pairs`, one after the other.
    pub fn write_over(&mut self, queue_pairs: &[usize], length: u32, count: u64) -> Result<()> {
        self.write_with(queue_pairs, length, count, u64::from(DEPTH / 2))
    }

    fn write_with(&mut self, over: &[usize], length: u32, count: u64, window: u64) -> Result<()> {
        let remote =
            SendOperation::Write { address: self.sides[1].region.base(), key: self.sides[1].region.key() };
        self.run(over, remote, length, count, window)
    }

    /// Sends `count` messages of `length` bytes, each into a receive of the peer.
    pub fn send(&mut self, length: u32, count: u64) -> Result<()> {
        self.run(&[0], SendOperation::Send, length, count, u64::from(DEPTH / 2))
    }

    /// Sends `count` messages of `length` bytes over `queue_pairs`, one after the other.
    pub fn send_over(&mut self, queue_pairs: &[usize], length: u32, count: u64) -> Result<()> {
        self.run(queue_pairs, SendOperation::Send, length, count, u64::from(DEPTH / 2))
    }

    fn run(
        &mut self,
        over: &[usize],
        operation: SendOperation,
        length: u32,
        count: u64,
        window: u64,
    ) -> Result<()> {
        // Client: requests posted and completed. Server: receives posted and completed.
        let (mut posted, mut done, mut offered, mut taken) = (0, 0, 0, 0);
        let expected = if operation == SendOperation::Send { count } else { 0 };
        let mut completions = [Completion::EMPTY; 64];
        let depth = u64::from(self.shape.depth);
        let mut turns = [over.iter().copied().cycle().peekable(), over.iter().copied().cycle().peekable()];
        while done < count || taken < expected {
            let [client, server] = &self.sides;
            while let Some(&number) = turns[1].peek()
                && offered < expected.min(taken + u64::from(DEPTH))
                && self.pending[1][number] < depth
            {
                let request = RecvRequest { context: offered, sges: &[server.sge(length)] };
                server.engine.post_recv(&server.qps[number], &request).map_err(failed("post_recv"))?;
                self.pending[1][number] += 1;
                offered += 1;
                turns[1].next();
            }
            let allowed = if operation == SendOperation::Send { offered } else { count };
            while let Some(&number) = turns[0].peek()
                && posted < allowed.min(done + window)
                && self.pending[0][number] < depth
            {
                let sges = [client.sge(length)];
                let (flags, data) = (SendFlags::empty(), SendData::Sges(&sges));
                let request = SendRequest { context: posted, operation, flags, data };
                client.engine.post_send(&client.qps[number], &request).map_err(failed("post_send"))?;
                self.pending[0][number] += 1;
                posted += 1;
                turns[0].next();
            }
            self.turn(0);
            self.turn(1);
            for side in 0..2 {
                let found = self.sides[side].cq.poll(&mut completions);
                for completion in completions.get(..found).context("more completions than asked for")? {
                    let Completion { status, kind, qp_context, .. } = *completion;
                    ensure!(status == CompletionStatus::Success, "a request ended with {status:?}");
                    self.pending[side][qp_context as usize] -= 1;
                    if kind.is_receive() { taken += 1 } else { done += 1 }
                }
            }
        }
        Ok(())
    }

    /// Performs one SEND of `length` bytes: post, transmit, receive, acknowledge, complete. Each step is a function of
    /// its own, so that callgrind can count its instructions.
    pub fn one_send(&mut self, length: u32) -> Result<()> {
        self.now = self.now + Duration::from_micros(1);
        let now = self.now;
        let [client, server] = &mut self.sides;
        let sges = [server.sge(length)];
        let request = RecvRequest { context: 0, sges: &sges };
        server.engine.post_recv(&server.qps[0], &request).map_err(failed("post_recv"))?;
        let sges = [client.sge(length)];
        let (flags, data) = (SendFlags::empty(), SendData::Sges(&sges));
        let request = SendRequest { context: 0, operation: SendOperation::Send, flags, data };
        measured_post(&client.engine, &client.qps[0], &request, now, &mut client.outgoing)?;
        let frame = client.outgoing.pop().context("no frame was sent")?;
        measured_send(&server.engine, now, frame, &mut server.outgoing)?;
        let frame = server.outgoing.pop().context("no acknowledgement was sent")?;
        measured_ack(&client.engine, now, frame)?;
        let mut completions = [Completion::EMPTY; 4];
        let (done, taken) = (client.cq.poll(&mut completions), server.cq.poll(&mut completions));
        ensure!((done, taken) == (1, 1), "{done} requests and {taken} receives are complete");
        Ok(())
    }
}

/// Posts a request and transmits its frame.
#[inline(never)]
fn measured_post(
    engine: &Engine<Lock>,
    qp: &Arc<Qp<Lock>>,
    request: &SendRequest<'_>,
    now: Instant,
    outgoing: &mut Frames,
) -> Result<()> {
    engine.post_send(qp, request).map_err(failed("post_send"))?;
    let sent = engine.first_shard().poll_transmit(now, outgoing, BUDGET);
    ensure!(sent == 1, "{sent} frames for one request");
    Ok(())
}

/// Receives a SEND, completes the receive and transmits the acknowledgement.
#[inline(never)]
fn measured_send(engine: &Engine<Lock>, now: Instant, frame: &[u8], outgoing: &mut Frames) -> Result<()> {
    let verdict = engine.first_shard().handle_frame(now, frame);
    ensure!(verdict == Verdict::Consumed, "a SEND was refused: {verdict:?}");
    let sent = engine.first_shard().poll_transmit(now, outgoing, BUDGET);
    ensure!(sent == 1, "{sent} frames for one SEND");
    Ok(())
}

/// Receives an acknowledgement and completes the request.
#[inline(never)]
fn measured_ack(engine: &Engine<Lock>, now: Instant, frame: &[u8]) -> Result<()> {
    let verdict = engine.first_shard().handle_frame(now, frame);
    ensure!(verdict == Verdict::Consumed, "an acknowledgement was refused: {verdict:?}");
    Ok(())
}
