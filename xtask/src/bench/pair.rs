//! Two engines on one thread, joined by two rings of frames: what the engine costs, and nothing else.
#![allow(unsafe_code, reason = "registers memory with the engine")]

use std::{
    net::{IpAddr, Ipv4Addr},
    ptr::NonNull,
    time::Instant as Clock,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use roce::{
    AcceptSpec, Access, Arc, Backing, Completion, CompletionKind, Config, ConnEvent, ConnId, ConnectSpec, Cq,
    Data, Engine, Event, Instant, ListenSpec, Operation, Qp, QpSpec, ReadLimits, RecvRequest, Region,
    SendFlags, SendRequest, Sge, Status, Transmit, Verdict,
    icrc::Crc,
    wire::{MacAddr, Path, PathMtu},
};

type Lock = parking_lot::RawMutex;

/// Bytes of a frame's slot: path MTU and what surrounds it.
const SLOT: usize = 4096 + 160;
/// Frames that one direction holds, as many as a device's queue.
const SLOTS: usize = 256;
/// Frames per turn of a side.
const BUDGET: usize = 64;
/// Requests outstanding.
const DEPTH: u32 = 256;
const PORT: u16 = 4000;

/// One direction of the wire.
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

/// One engine with one connected queue pair and one registered buffer.
pub struct Side {
    engine: Box<Engine<Lock>>,
    cq: Arc<Cq<Lock>>,
    qp: Arc<Qp<Lock>>,
    region: Arc<Region>,
    /// What the region covers. Touched by the engine only, once it is registered.
    _memory: Box<[u8]>,
    outgoing: Frames,
}

impl Side {
    fn new(number: u8, crc: Crc, buffer: usize) -> Result<Self> {
        let mut config = Config::new(u64::from(number) + 1, [number; 32]);
        config.crc = crc;
        let engine = Box::new(Engine::try_new(config).map_err(failed("Engine::try_new"))?);
        engine.set_addresses(&[ip(number + 1)]).map_err(failed("set_addresses"))?;
        let pd = engine.create_pd();
        let cq = engine.create_cq(4 * DEPTH, 0).map_err(failed("create_cq"))?;
        let spec = QpSpec {
            pd,
            send_cq: cq.clone(),
            recv_cq: cq.clone(),
            srq: None,
            send_depth: DEPTH,
            recv_depth: DEPTH,
            send_sges: 1,
            recv_sges: 1,
            inline: 64,
            context: 0,
        };
        let qp = engine.create_qp(spec).map_err(failed("create_qp"))?;
        let mut memory: Box<[u8]> = (0..buffer).map(|at| (at as u8).wrapping_mul(31)).collect();
        let base = NonNull::from(&mut *memory).cast::<u8>();
        // SAFETY: the memory lives in `_memory` as long as the engine, and nobody else touches it from here on.
        let backing = unsafe { Backing::contiguous(base, buffer) }.map_err(failed("backing"))?;
        let address = base.as_ptr().expose_provenance() as u64;
        // SAFETY: as above.
        let region = unsafe { engine.register(pd, address, buffer as u64, Access::all(), backing) };
        let region = region.map_err(failed("register"))?;
        Ok(Self { engine, cq, qp, region, _memory: memory, outgoing: Frames::new() })
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

/// Two sides, connected.
pub struct Pair {
    sides: [Side; 2],
    start: Clock,
}

impl Pair {
    /// Two connected engines that compute CRCs as told; `buffer` bytes registered on each.
    pub fn connect(crc: Crc, mtu: PathMtu, buffer: usize) -> Result<Self> {
        let sides = [Side::new(0, crc, buffer)?, Side::new(1, crc, buffer)?];
        let mut pair = Self { sides, start: Clock::now() };
        let [client, server] = &pair.sides;
        let listen = ListenSpec { ip: None, port: PORT, backlog: 1, context: 0 };
        server.engine.listen(&listen).map_err(failed("listen"))?;
        let mac = |n| MacAddr([2, 0, 0, 0, 0, n]);
        let reads = ReadLimits { inbound: 16, outbound: 16 };
        let spec = ConnectSpec {
            path: Path::new(mac(1), mac(2), ip(1), ip(2)),
            local_port: PORT + 1,
            remote_port: PORT,
            mtu,
            reads,
            private_data: &[],
            context: 0,
        };
        client.engine.connect(pair.now(), &client.qp, &spec).map_err(failed("connect"))?;
        let accept = AcceptSpec { reads, private_data: &[], context: 0 };
        let mut connected = [false; 2];
        while connected != [true; 2] {
            ensure!(pair.start.elapsed().as_secs() < 5, "two engines do not connect");
            for (side, connected) in connected.iter_mut().enumerate() {
                for (id, event) in pair.turn(side) {
                    let Side { engine, qp, .. } = &pair.sides[side];
                    match event {
                        ConnEvent::Request(_) => {
                            engine.accept(pair.now(), id, qp, &accept).map_err(failed("accept"))?;
                        }
                        ConnEvent::Replied { .. } => {
                            engine.complete(pair.now(), id).map_err(failed("complete"))?;
                            *connected = true;
                        }
                        ConnEvent::Established { .. } => *connected = true,
                        other => return Err(anyhow!("two engines do not connect: {other:?}")),
                    }
                }
            }
        }
        Ok(pair)
    }

    /// Frames sent by both sides so far.
    pub fn frames(&self) -> u64 {
        self.sides.iter().map(|side| side.engine.stats().tx_frames.get()).sum()
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// One turn of a side as its driver would do it: frames out, to the other side; then what happened.
    fn turn(&mut self, number: usize) -> Vec<(ConnId, ConnEvent)> {
        let now = self.now();
        let (left, right) = self.sides.split_at_mut(1);
        let (side, peer) = if number == 0 { (&mut left[0], &right[0]) } else { (&mut right[0], &left[0]) };
        side.engine.poll_transmit(now, &mut side.outgoing, BUDGET);
        while let Some(frame) = side.outgoing.pop() {
            let verdict = peer.engine.handle_frame(now, frame);
            debug_assert_eq!(verdict, Verdict::Consumed);
        }
        // Empty vectors do not allocate.
        let mut events = Vec::new();
        while let Some(event) = side.engine.poll_event() {
            if let Event::Conn { id, event, .. } = event {
                events.push((id, event));
            }
        }
        if side.engine.poll_timeout().is_some_and(|at| at <= now) {
            side.engine.handle_timeout(now);
        }
        events
    }

    /// Writes `count` messages of `length` bytes to the peer's memory.
    pub fn write(&mut self, length: u32, count: u64) -> Result<()> {
        let remote =
            Operation::Write { address: self.sides[1].region.base(), key: self.sides[1].region.key() };
        // Enough to keep the pipe full, few enough that the working set is one message's.
        self.run(remote, length, count, 4)
    }

    /// Sends `count` messages of `length` bytes, each into a receive of the peer.
    pub fn send(&mut self, length: u32, count: u64) -> Result<()> {
        self.run(Operation::Send, length, count, u64::from(DEPTH / 2))
    }

    fn run(&mut self, operation: Operation, length: u32, count: u64, window: u64) -> Result<()> {
        // Of the client: posted, completed; of the server: receives posted, messages taken.
        let (mut posted, mut done, mut offered, mut taken) = (0, 0, 0, 0);
        let expected = if operation == Operation::Send { count } else { 0 };
        let mut completions = [EMPTY; 64];
        while done < count || taken < expected {
            let [client, server] = &self.sides;
            while offered < expected && offered - taken < u64::from(DEPTH) {
                let request = RecvRequest { context: offered, sges: &[server.sge(length)] };
                server.engine.post_recv(&server.qp, &request).map_err(failed("post_recv"))?;
                offered += 1;
            }
            while posted < count && posted - done < window {
                let sges = [client.sge(length)];
                let request = SendRequest {
                    context: posted,
                    operation,
                    flags: SendFlags::empty(),
                    data: Data::Sges(&sges),
                };
                client.engine.post_send(&client.qp, &request).map_err(failed("post_send"))?;
                posted += 1;
            }
            self.turn(0);
            self.turn(1);
            for side in 0..2 {
                let found = self.sides[side].cq.poll(&mut completions);
                for completion in completions.get(..found).context("more completions than asked for")? {
                    ensure!(
                        completion.status == Status::Success,
                        "a request ended with {:?}",
                        completion.status
                    );
                    if completion.kind.is_receive() { taken += 1 } else { done += 1 }
                }
            }
        }
        Ok(())
    }
}

const EMPTY: Completion = Completion {
    qp_context: 0,
    context: 0,
    kind: CompletionKind::Send,
    status: Status::Success,
    bytes: 0,
    immediate: None,
};
