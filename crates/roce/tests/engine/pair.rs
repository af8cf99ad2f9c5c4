//! Two engines, a wire between them, and a clock that steps from one event to the next.
//!
//! A test says what is posted and what comes of it; [`Pair::run`] does everything in between. The same
//! options and the same seed give the same run.

use std::cell::UnsafeCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, Ipv4Addr};
use std::ptr::NonNull;
use std::time::Duration;

use roce::wire::{MacAddr, Packet, Path, PathMtu};
use roce::{
    AcceptSpec, Access, Arc, Backing, Completion, CompletionKind, Config, ConnEvent, ConnId, ConnectSpec, Cq,
    Data, Engine, Event, Instant, ListenSpec, Operation, Pd, PostError, Qp, QpSpec, ReadLimits, RecvRequest,
    Region, SendFlags, SendRequest, Sge, Srq, Status, Transmit, Verdict,
};

pub type Lock = parking_lot::RawMutex;

/// What a run can be asked for.
#[derive(Clone, Debug)]
pub struct Options {
    pub seed: u64,
    pub mtu: PathMtu,
    /// One way.
    pub latency: Duration,
    /// Of each frame, in 1/1000.
    pub loss: u32,
    pub duplication: u32,
    /// Delayed by up to three latencies.
    pub reordering: u32,
    /// One bit changed.
    pub corruption: u32,
    pub reads: ReadLimits,
    pub send_depth: u32,
    pub recv_depth: u32,
    pub cq_depth: u32,
    pub config: fn(&mut Config),
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            mtu: PathMtu::Bytes1024,
            latency: Duration::from_micros(50),
            loss: 0,
            duplication: 0,
            reordering: 0,
            corruption: 0,
            reads: ReadLimits { inbound: 4, outbound: 4 },
            send_depth: 64,
            recv_depth: 64,
            cq_depth: 256,
            config: |_| {},
        }
    }
}

/// One host: an engine, and the objects that tests use on it.
pub struct Side {
    pub engine: Box<Engine<Lock>>,
    pub pd: Pd,
    pub cq: Arc<Cq<Lock>>,
    pub qp: Arc<Qp<Lock>>,
    pub conn: Option<ConnId>,
    /// What happened to connections, oldest first.
    pub conn_events: Vec<(ConnId, u64, ConnEvent)>,
    /// Contexts of completion queues that were told of, oldest first.
    pub notices: Vec<u64>,
    pub srq_notices: usize,
    mac: MacAddr,
    ip: IpAddr,
    /// Dropped after the engine.
    kept: std::sync::Mutex<Vec<std::sync::Arc<Bytes>>>,
}

/// Bytes that an engine may access at any time: until a region is deregistered, frames on their way may
/// still be about it, so that its side keeps the memory as long as the engine.
struct Bytes(Box<[UnsafeCell<u8>]>);

// SAFETY: accessed by copies through raw pointers only; tests that let engines run on other threads look
// at memory when nothing is on its way there.
unsafe impl Send for Bytes {}
// SAFETY: as above.
unsafe impl Sync for Bytes {}

/// Memory of a consumer, registered.
pub struct Memory {
    bytes: std::sync::Arc<Bytes>,
    pub region: Arc<Region>,
}

impl Memory {
    pub fn sge(&self, offset: usize, length: usize) -> Sge {
        Sge { address: self.address(offset), length: length as u32, key: self.key() }
    }

    pub fn all(&self) -> Sge {
        self.sge(0, self.bytes.0.len())
    }

    pub fn address(&self, offset: usize) -> u64 {
        self.region.base() + offset as u64
    }

    pub fn key(&self) -> u32 {
        self.region.key()
    }

    pub fn read(&self) -> Vec<u8> {
        // SAFETY: the engine runs only while the test drives it, on this thread.
        self.bytes.0.iter().map(|byte| unsafe { *byte.get() }).collect()
    }

    pub fn write(&self, data: &[u8]) {
        for (byte, value) in self.bytes.0.iter().zip(data) {
            // SAFETY: as above.
            unsafe { *byte.get() = *value };
        }
    }
}

/// Bytes that tell where they are.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}

impl Side {
    fn new(number: u8, options: &Options) -> Self {
        let seed = options.seed.wrapping_mul(2).wrapping_add(u64::from(number));
        let mut bytes = [number; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let mut config = Config::new(0x0200_00FF_FE00_0000 | u64::from(number), bytes);
        config.max_qps = 256;
        config.max_regions = 256;
        config.max_logical = 256;
        (options.config)(&mut config);
        let engine = Box::new(Engine::try_new(config).unwrap());
        let pd = engine.create_pd();
        let cq = engine.create_cq(options.cq_depth, u64::from(number)).unwrap();
        let spec = spec(pd, &cq, options);
        let qp = engine.create_qp(spec).unwrap();
        Self {
            engine,
            pd,
            cq,
            qp,
            conn: None,
            conn_events: Vec::new(),
            notices: Vec::new(),
            srq_notices: 0,
            mac: MacAddr([2, 0, 0, 0, 0, number]),
            ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, number)),
            kept: std::sync::Mutex::default(),
        }
    }

    pub fn memory(&self, len: usize, access: Access) -> Memory {
        self.memory_of(self.pd, len, access)
    }

    pub fn memory_of(&self, pd: Pd, len: usize, access: Access) -> Memory {
        let bytes: Box<[UnsafeCell<u8>]> = (0..len).map(|_| UnsafeCell::new(0)).collect();
        let start = NonNull::new(UnsafeCell::raw_get(bytes.as_ptr())).unwrap();
        let bytes = std::sync::Arc::new(Bytes(bytes));
        self.kept.lock().unwrap().push(bytes.clone());
        // SAFETY: the memory is kept as long as the engine.
        let backing = unsafe { Backing::contiguous(start, len) }.unwrap();
        let base = 0x7000_0000_0000 + start.as_ptr() as u64 % 4096;
        // SAFETY: as above.
        let region = unsafe { self.engine.register(pd, base, len as u64, access, backing) }.unwrap();
        Memory { bytes, region }
    }

    /// Memory with `data` in it, to send from.
    pub fn source(&self, data: &[u8]) -> Memory {
        let memory = self.memory(data.len().max(1), Access::empty());
        memory.write(data);
        memory
    }

    /// Memory to receive into.
    pub fn sink(&self, len: usize) -> Memory {
        self.memory(len.max(1), Access::LOCAL_WRITE)
    }

    /// Memory that the peer may read and write.
    pub fn shared(&self, len: usize) -> Memory {
        self.memory(len.max(1), Access::all())
    }

    pub fn post(
        &self,
        context: u64,
        operation: Operation,
        flags: SendFlags,
        sges: &[Sge],
    ) -> Result<(), PostError> {
        let data = Data::Sges(sges);
        self.engine.post_send(&self.qp, &SendRequest { context, operation, flags, data })
    }

    pub fn send(&self, context: u64, sges: &[Sge]) {
        self.post(context, Operation::Send, SendFlags::empty(), sges).unwrap();
    }

    pub fn write(&self, context: u64, sges: &[Sge], to: &Memory, offset: usize) {
        let operation = Operation::Write { address: to.address(offset), key: to.key() };
        self.post(context, operation, SendFlags::empty(), sges).unwrap();
    }

    pub fn read(&self, context: u64, sges: &[Sge], from: &Memory, offset: usize) {
        let operation = Operation::Read { address: from.address(offset), key: from.key() };
        self.post(context, operation, SendFlags::empty(), sges).unwrap();
    }

    pub fn recv(&self, context: u64, sges: &[Sge]) {
        self.engine.post_recv(&self.qp, &RecvRequest { context, sges }).unwrap();
    }

    /// All unread completions.
    pub fn completions(&self) -> Vec<Completion> {
        poll(&self.cq)
    }

    /// Contexts and statuses of all unread completions.
    pub fn outcomes(&self) -> Vec<(u64, Status)> {
        self.completions().into_iter().map(|c| (c.context, c.status)).collect()
    }

    pub fn stat(&self, name: &str) -> u64 {
        let mut value = None;
        self.engine.stats().each(|each, count| {
            if each == name {
                value = Some(count);
            }
        });
        value.unwrap_or_else(|| panic!("no counter {name}"))
    }
}

pub fn poll(cq: &Cq<Lock>) -> Vec<Completion> {
    let empty = Completion {
        qp_context: 0,
        context: 0,
        kind: CompletionKind::Send,
        status: Status::Success,
        bytes: 0,
        immediate: None,
    };
    let mut results = [empty; 7];
    let mut all = Vec::new();
    loop {
        match cq.poll(&mut results) {
            0 => return all,
            n => all.extend_from_slice(&results[..n]),
        }
    }
}

pub fn spec(pd: Pd, cq: &Arc<Cq<Lock>>, options: &Options) -> QpSpec<Lock> {
    QpSpec {
        pd,
        send_cq: cq.clone(),
        recv_cq: cq.clone(),
        srq: None,
        send_depth: options.send_depth,
        recv_depth: options.recv_depth,
        send_sges: 4,
        recv_sges: 4,
        inline: 64,
        context: 77,
    }
}

/// A frame on its way.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct InFlight {
    at: Instant,
    number: u64,
    /// 0 or 1.
    to: usize,
    frame: Vec<u8>,
}

/// Free slots without end.
struct Slots {
    slot: Vec<u8>,
    frames: Vec<Vec<u8>>,
}

impl Transmit for Slots {
    fn slot(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.slot)
    }

    fn commit(&mut self, len: usize) {
        self.frames.push(self.slot[..len].to_vec());
    }
}

/// What a test may do to a frame: the receiving side and its bytes; `false` loses it.
pub type Filter = Box<dyn FnMut(usize, &mut Vec<u8>) -> bool>;

pub struct Pair {
    pub sides: [Side; 2],
    pub now: Instant,
    pub options: Options,
    pub filter: Option<Filter>,
    /// Every frame that was sent, with its sender, as long as that is wanted.
    pub capture: Option<Vec<(usize, Vec<u8>)>>,
    flying: BinaryHeap<Reverse<InFlight>>,
    sent: u64,
    random: u64,
}

pub const PORT: u16 = 445;

impl Pair {
    /// Two strangers.
    pub fn new(options: Options) -> Self {
        let sides = [Side::new(1, &options), Side::new(2, &options)];
        let random = options.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        Self {
            sides,
            now: Instant::from_nanos(1_000_000_000),
            options,
            filter: None,
            capture: None,
            flying: BinaryHeap::new(),
            sent: 0,
            random,
        }
    }

    /// Two hosts whose queue pairs are connected.
    pub fn connected(options: Options) -> Self {
        let mut pair = Self::new(options);
        pair.listen();
        pair.connect(b"hello");
        pair.run_until("a request", |pair| pair.sides[1].conn.is_some());
        pair.accept(b"welcome");
        pair.run_until("a reply", |pair| pair.told(0, |e| matches!(e, ConnEvent::Replied { .. })));
        pair.complete();
        pair.run_until("the connection", |pair| pair.told(1, |e| matches!(e, ConnEvent::Established { .. })));
        pair
    }

    pub fn listen(&mut self) {
        let spec = ListenSpec { ip: None, port: PORT, backlog: 16, context: 500 };
        self.sides[1].engine.listen(&spec).unwrap();
    }

    pub fn path(&self, from: usize) -> Path {
        let (local, remote) = (&self.sides[from], &self.sides[1 - from]);
        Path::new(local.mac, remote.mac, local.ip, remote.ip)
    }

    pub fn connect(&mut self, private_data: &[u8]) {
        let path = self.path(0);
        let side = &mut self.sides[0];
        let spec = ConnectSpec {
            path,
            local_port: 50000,
            remote_port: PORT,
            mtu: self.options.mtu,
            reads: self.options.reads,
            private_data,
            context: 100,
        };
        side.conn = Some(side.engine.connect(self.now, &side.qp, &spec).unwrap());
    }

    pub fn accept(&mut self, private_data: &[u8]) {
        let side = &self.sides[1];
        let spec = AcceptSpec { reads: self.options.reads, private_data, context: 200 };
        side.engine.accept(self.now, side.conn.unwrap(), &side.qp, &spec).unwrap();
    }

    pub fn complete(&mut self) {
        let side = &self.sides[0];
        side.engine.complete(self.now, side.conn.unwrap()).unwrap();
    }

    /// Whether a side was told of such an event.
    pub fn told(&self, side: usize, is: impl Fn(&ConnEvent) -> bool) -> bool {
        self.sides[side].conn_events.iter().any(|(_, _, event)| is(event))
    }

    /// Lets everything happen that happens within 20 s of silence.
    pub fn run(&mut self) {
        let patience = Duration::from_secs(20);
        let mut quiet_since = self.now;
        loop {
            self.drive();
            if !self.flying.is_empty() {
                quiet_since = self.now;
            }
            if !self.step() || self.now.duration_since(quiet_since) > patience {
                return;
            }
        }
    }

    /// Lets things happen until `done`; it is an error if that takes longer than 300 s.
    pub fn run_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let limit = self.now + Duration::from_secs(300);
        loop {
            self.drive();
            if done(self) {
                return;
            }
            assert!(self.step(), "nothing happens any more, waiting for {what}");
            assert!(self.now < limit, "{what} takes too long");
        }
    }

    /// Lets `time` pass.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.drive();
            match self.next_moment() {
                Some(next) if next <= end => assert!(self.step()),
                _ => break,
            }
        }
        self.now = end;
    }

    /// What an engine's driver does after any input.
    pub fn drive(&mut self) {
        for from in 0..2 {
            let mut slots = Slots { slot: vec![0xEE; 4096 + 200], frames: Vec::new() };
            while self.sides[from].engine.poll_transmit(self.now, &mut slots, 64) == 64 {}
            for frame in slots.frames {
                self.put_on_wire(from, frame);
            }
            self.take_events(from);
        }
    }

    pub fn take_events(&mut self, side: usize) {
        let side = &mut self.sides[side];
        while let Some(event) = side.engine.poll_event() {
            match event {
                Event::Cq(notice) => side.notices.push(notice.context()),
                Event::Srq(_) => side.srq_notices += 1,
                Event::CqGone { .. } | Event::SrqGone { .. } => {}
                Event::Conn { id, context, event } => {
                    if let ConnEvent::Request(_) = event {
                        side.conn = Some(id);
                    }
                    side.conn_events.push((id, context, event));
                }
            }
        }
    }

    fn put_on_wire(&mut self, from: usize, mut frame: Vec<u8>) {
        if let Some(capture) = &mut self.capture {
            capture.push((from, frame.clone()));
        }
        let to = 1 - from;
        if let Some(filter) = &mut self.filter
            && !filter(to, &mut frame)
        {
            return;
        }
        let o = self.options.clone();
        if self.chance(o.loss) {
            return;
        }
        if self.chance(o.corruption) {
            let bit = self.random() as usize % (frame.len() * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        let copies = 1 + usize::from(self.chance(o.duplication));
        for _ in 0..copies {
            let extra = if self.chance(o.reordering) { self.random() % 3000 } else { 0 };
            let latency = o.latency + o.latency * extra as u32 / 1000;
            self.deliver(to, self.now + latency, frame.clone());
        }
    }

    /// A frame that comes in at `to` at `at`, whoever sent it.
    pub fn deliver(&mut self, to: usize, at: Instant, frame: Vec<u8>) {
        self.sent += 1;
        self.flying.push(Reverse(InFlight { at, number: self.sent, to, frame }));
    }

    fn next_moment(&self) -> Option<Instant> {
        let frame = self.flying.peek().map(|Reverse(frame)| frame.at);
        let timers = self.sides.iter().filter_map(|side| side.engine.poll_timeout());
        timers.chain(frame).min()
    }

    /// Goes to the next moment at which something happens; `false` when there is none.
    fn step(&mut self) -> bool {
        let Some(next) = self.next_moment() else { return false };
        self.now = self.now.max(next);
        while let Some(Reverse(frame)) = self.flying.peek()
            && frame.at <= self.now
        {
            let Some(Reverse(frame)) = self.flying.pop() else { break };
            let verdict = self.sides[frame.to].engine.handle_frame(self.now, &frame.frame);
            assert!(
                verdict != Verdict::NotOurs || self.options.corruption > 0,
                "not ours: {:?}",
                Packet::parse(&frame.frame)
            );
        }
        for side in &self.sides {
            if side.engine.poll_timeout().is_some_and(|at| at <= self.now) {
                side.engine.handle_timeout(self.now);
            }
        }
        true
    }

    fn chance(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.random() % 1000 < u64::from(per_mille)
    }

    pub fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 8
    }
}

/// A second queue pair's receive queue shared, for tests that want one.
pub fn with_srq(pair: &mut Pair, side: usize, srq: &Arc<Srq<Lock>>) {
    let options = pair.options.clone();
    let side = &mut pair.sides[side];
    let mut spec = spec(side.pd, &side.cq, &options);
    spec.srq = Some(srq.clone());
    side.qp = side.engine.create_qp(spec).unwrap();
}
