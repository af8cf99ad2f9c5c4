// SPDX-License-Identifier: MIT OR Apache-2.0

//! Replays one side of a capture with an engine.
//!
//! The engine receives the frames of the other side at their times, with the engine's identifiers in place of those of the
//! capture. Its consumer performs the actions of the capture's consumer. The frames that the engine sends are recorded
//! with the identifiers of the capture.

mod consumer;
mod translate;

use std::{collections::BTreeMap, rc::Rc, time::Duration};

use anyhow::{Result, anyhow, ensure};
use fallible::Arc;
use roce::{
    Access, Config, ConnEvent, ConnId, Cq, Engine, EngineEvent, Instant, MemoryWindow, Pd, Qp, QpSpec,
    ReadLimits, Srq, SrqSpec, Transmit, Verdict,
};
use roce_wire::{
    Class, ack_timeout,
    cm::{CmPath, CmPathRepr},
};

use super::{
    infer::{Conn, RoceFrame, Scenario},
    memory::{Bytes, Lock, Memory},
    normalized::{EngineIds, NormalizedFrame},
    setup::{CaptureSetup, Fate, Nth},
};

/// Replays one side of a capture.
pub struct Player<'a> {
    scenario: &'a Scenario,
    setup: &'a CaptureSetup,
    /// The side that is replayed.
    side: usize,
    now: Instant,
    live: Vec<Live>,
    cq: Arc<Cq<Lock>>,
    srq: Option<Arc<Srq<Lock>>>,
    pd: Pd,
    shared: Vec<Shared>,
    receives: BTreeMap<u64, Memory>,
    /// READs of this side with the expected data, by context.
    reads: BTreeMap<u64, (Memory, Vec<u8>)>,
    late_receives: Option<Instant>,
    /// Expected data of receives, in the order in which the messages of the peer are complete.
    expected: Vec<Vec<u8>>,
    pub result: Outcome,
    /// Whether frames are recorded; not while `connect_by_cm` connects.
    recording: bool,
    engine: Arc<Engine<Lock>>,
    /// Memory that must outlive the engine; dropped after it.
    kept: Vec<Rc<Bytes>>,
}

/// The recorded behavior of the engine and its consumer.
#[derive(Default)]
pub struct Outcome {
    pub sent: Vec<NormalizedFrame>,
    /// Errors of the consumer.
    pub errors: Vec<String>,
    /// Completions of requests and receives, counted by status.
    pub completions: BTreeMap<String, usize>,
}

/// A connection of the engine.
struct Live {
    qp: Arc<Qp<Lock>>,
    conn: Option<ConnId>,
    ids: EngineIds,
    /// Transaction ID of the engine's REQ or REP.
    req_transaction: u64,
    /// Transaction ID of the engine's DREQ.
    dreq_transaction: u64,
    /// A request could not be posted. Later ones are not posted either: their PSNs would differ from the capture.
    stopped: bool,
}

/// Memory that the peer reads and writes.
struct Shared {
    /// Its key in the capture.
    key: u32,
    memory: Memory,
    /// A memory window on it: its key in the capture, the window, and whether it is bound.
    window: Option<(u32, MemoryWindow, bool)>,
    /// The bytes that the peer wrote.
    written: Vec<Option<u8>>,
}

impl Shared {
    /// Translates a key of the capture to that of the engine; `None` if it is another key.
    fn engine_key(&self, key: u32) -> Option<u32> {
        match &self.window {
            Some((window_key, window, _)) if *window_key == key => Some(window.key()),
            _ => (self.key == key).then(|| self.memory.key()),
        }
    }
}

/// Collects the frames that the engine sends.
struct Sent {
    slot: Vec<u8>,
    frames: Vec<Vec<u8>>,
}

impl Transmit for Sent {
    fn slot(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.slot)
    }

    fn commit(&mut self, len: usize) {
        self.frames.push(self.slot[..len].to_vec());
    }
}

fn failed<E: std::fmt::Debug>(what: &'static str) -> impl Fn(E) -> anyhow::Error {
    move |error| anyhow!("{what}: {error:?}")
}

/// Local ACK timeout of perftest and the pingpong programs: 67 ms.
const DEFAULT_ACK_TIMEOUT: u8 = 14;
/// Time that the engine has for its last responses, after the end of a capture.
const GRACE: Duration = Duration::from_millis(10);

impl<'a> Player<'a> {
    /// Returns an engine with the queue pairs, memory, receives and listeners that the side had.
    pub fn new(scenario: &'a Scenario, setup: &'a CaptureSetup, side: usize) -> Result<Self> {
        let mut config = Config::new(ca_guid(scenario, side), [side as u8 + 1; 32]);
        let managed = scenario.conns.iter().find_map(|conn| conn.req.as_ref());
        let timeout = managed.map_or(DEFAULT_ACK_TIMEOUT, |req| {
            CmPathRepr::parse(&CmPath::new(&req.primary_path)).local_ack_timeout
        });
        // Settings of the host, which are no differences in behavior.
        config.timing.ack_timeout = ack_timeout(timeout);
        config.timing.min_resend = config.timing.ack_timeout;
        // As the peer in the capture had, which has no tail probes.
        config.timing.min_probe = config.timing.ack_timeout;
        config.timing.retries = managed.map_or(7, |req| req.retry_count);
        config.timing.rnr_retries = 7;
        config.timing.rnr_timer = roce_wire::rnr_timer(if managed.is_some() { 0 } else { 12 });
        config.max_reads = ReadLimits { inbound: 128, outbound: 128 };
        let engine = Engine::try_new(config).map_err(failed("Engine::try_new"))?;
        engine.connections().set_addresses(&[scenario.hosts[side].ip]).map_err(failed("set_addresses"))?;
        let pd = engine.create_pd();
        let cq = engine.create_cq(4096, 0).map_err(failed("create_cq"))?;
        let srq = if setup.shared_receives {
            let spec = SrqSpec { depth: 256, sges: 1, threshold: 0, context: 0 };
            Some(engine.create_srq(&spec).map_err(failed("create_srq"))?)
        } else {
            None
        };
        let mut player = Self {
            scenario,
            setup,
            side,
            now: Instant::from_nanos(1_000_000_000),
            live: Vec::new(),
            cq,
            srq,
            pd,
            shared: Vec::new(),
            receives: BTreeMap::new(),
            reads: BTreeMap::new(),
            late_receives: None,
            expected: Vec::new(),
            result: Outcome::default(),
            recording: false,
            engine,
            kept: Vec::new(),
        };
        for _ in &scenario.conns {
            player.create_qp()?;
        }
        player.register_shared()?;
        if player.setup.receives_after.is_none() || side == 0 {
            player.post_receives()?;
        }
        player.listen()?;
        Ok(player)
    }

    /// Replays the whole capture.
    pub fn play(mut self) -> Result<Outcome> {
        for at in 0..self.scenario.conns.len() {
            if self.scenario.conns[at].active.is_none() {
                self.connect_by_cm(at)?;
            }
        }
        self.recording = true;
        let start = self.now;
        let (mut cm, mut rc) = (0, 0);
        let mut delayed = Vec::new();
        for (at, frame) in self.scenario.frames.iter().enumerate() {
            self.advance(start + frame.time)?;
            if frame.from == self.side {
                if let (Some(conn), Some(action)) = (frame.conn, &frame.action) {
                    self.perform(conn, action);
                    self.drive()?;
                }
                for (at, frame) in delayed.drain(..) {
                    self.deliver(at, frame, None)?;
                }
            } else {
                let nth = if frame.packet().info().class == Class::Datagram {
                    cm += 1;
                    Nth::Cm(cm)
                } else {
                    rc += 1;
                    Nth::Rc(rc)
                };
                match self.setup.fate(nth).filter(|_| frame.from == 0) {
                    Some(Fate::Delayed) => delayed.push((at, frame)),
                    fate => self.deliver(at, frame, fate)?,
                }
            }
            self.drive()?;
        }
        let end = self.scenario.frames.last().map_or(start, |last| start + last.time);
        self.advance(end + GRACE)?;
        self.check_memory();
        Ok(self.result)
    }

    fn conn(&self, at: usize) -> &'a Conn {
        &self.scenario.conns[at]
    }

    fn error(&mut self, what: String) {
        self.result.errors.push(what);
    }

    fn create_qp(&mut self) -> Result<()> {
        let spec = QpSpec {
            pd: self.pd,
            send_cq: self.cq.clone(),
            recv_cq: self.cq.clone(),
            srq: self.srq.clone(),
            send_depth: 256,
            recv_depth: 256,
            send_sges: 1,
            recv_sges: 1,
            inline: 0,
            context: self.live.len() as u64,
        };
        let qp = self.engine.create_qp(spec).map_err(failed("create_qp"))?;
        let ids = EngineIds { qpn: qp.qpn().value(), ..EngineIds::default() };
        self.live.push(Live { qp, conn: None, ids, req_transaction: 0, dreq_transaction: 0, stopped: false });
        Ok(())
    }

    fn memory(&mut self, base: u64, length: usize, access: Access) -> Result<Memory> {
        let (memory, kept) = Memory::register(&self.engine, self.pd, base, length, access)?;
        self.kept.push(kept);
        Ok(memory)
    }

    /// Advances the clock to `to`, and handles all timers on the way.
    fn advance(&mut self, to: Instant) -> Result<()> {
        for _ in 0..100_000 {
            let late = self.late_receives.filter(|&at| at <= to);
            let next = self.engine.first_shard().poll_timeout().filter(|&at| at <= to);
            let Some(at) = [late, next].into_iter().flatten().min() else {
                self.now = self.now.max(to);
                return Ok(());
            };
            self.now = self.now.max(at);
            if late == Some(at) {
                self.late_receives = None;
                self.post_receives()?;
            }
            self.engine.first_shard().handle_timeout(self.now);
            self.drive()?;
        }
        Err(anyhow!("the engine's timer does not advance"))
    }

    /// Handles the output of the engine after any input.
    fn drive(&mut self) -> Result<()> {
        loop {
            for frame in self.transmit() {
                self.record(&frame)?;
            }
            let events = self.events();
            if events.is_empty() {
                break;
            }
            for (id, event) in events {
                self.on_event(id, &event);
            }
        }
        self.take_completions();
        Ok(())
    }

    fn transmit(&mut self) -> Vec<Vec<u8>> {
        let mut sent = Sent { slot: vec![0; 4096 + 200], frames: Vec::new() };
        while self.engine.first_shard().poll_transmit(self.now, &mut sent, 64) == 64 {}
        sent.frames
    }

    fn events(&mut self) -> Vec<(ConnId, ConnEvent)> {
        let mut events = Vec::new();
        while let Some(event) = self.engine.poll_event() {
            if let EngineEvent::Conn { id, event, .. } = event {
                events.push((id, event));
            }
        }
        events
    }

    /// Delivers a frame of the other side to the engine.
    fn deliver(&mut self, at: usize, frame: &RoceFrame, fate: Option<Fate>) -> Result<()> {
        if fate == Some(Fate::Lost) {
            return Ok(());
        }
        let mut bytes = self.translate(frame, fate == Some(Fate::Marked))?;
        if fate == Some(Fate::Corrupted) {
            let at = bytes.len() - 8;
            bytes[at] ^= 1;
        } else {
            self.prepare_memory(at, frame);
        }
        let copies = if fate == Some(Fate::Duplicated) { 2 } else { 1 };
        for _ in 0..copies {
            let verdict = self.engine.first_shard().handle_frame(self.now, &bytes);
            ensure!(verdict != Verdict::NotOurs, "the engine does not recognize a RoCE frame");
            self.drive()?;
        }
        Ok(())
    }
}

/// Returns the CA GUID of the host of the capture.
fn ca_guid(scenario: &Scenario, side: usize) -> u64 {
    let guid = scenario.conns.iter().find_map(|conn| match (&conn.req, &conn.rep) {
        (Some(req), _) if conn.active == Some(side) => Some(req.local_ca_guid),
        (_, Some(rep)) if conn.active == Some(1 - side) => Some(rep.local_ca_guid),
        _ => None,
    });
    guid.unwrap_or(scenario.hosts[side].mac.eui64())
}
