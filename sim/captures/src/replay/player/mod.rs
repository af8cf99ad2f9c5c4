//! One side of a capture, played by an engine.
//!
//! The frames of the other side go in at their times, with the numbers that the engine has chosen in the place of
//! those of the capture; the consumer asks for what the capture's consumer asked for. What the engine says is kept,
//! in terms of the capture.

mod consumer;
mod names;

use std::{collections::BTreeMap, rc::Rc as Kept, time::Duration};

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
    Lock,
    memory::{Bytes, Memory},
    said::{Names, Said},
    script::{Fate, Nth, Script},
    story::{Conn, Spoken, Story},
};

/// Plays one side of a capture.
pub struct Player<'a> {
    story: &'a Story,
    script: &'a Script,
    /// The side that is played.
    side: usize,
    now: Instant,
    live: Vec<Live>,
    cq: Arc<Cq<Lock>>,
    srq: Option<Arc<Srq<Lock>>>,
    pd: Pd,
    shared: Vec<Shared>,
    receives: BTreeMap<u64, Memory>,
    /// What READs of this side are to bring, by context.
    reads: BTreeMap<u64, (Memory, Vec<u8>)>,
    late_receives: Option<Instant>,
    /// Messages of the peer in the order in which they were complete, for the receives they took.
    expected: Vec<Vec<u8>>,
    pub performance: Performance,
    recording: bool,
    engine: Arc<Engine<Lock>>,
    /// Outlives the engine.
    kept: Vec<Kept<Bytes>>,
}

/// What came of it.
#[derive(Default)]
pub struct Performance {
    pub said: Vec<Said>,
    /// What the consumer did not like.
    pub complaints: Vec<String>,
    /// How many requests ended how, receives included.
    pub outcomes: BTreeMap<String, usize>,
}

/// A connection as the engine has it.
struct Live {
    qp: Arc<Qp<Lock>>,
    conn: Option<ConnId>,
    names: Names,
    /// Transaction of the engine's REQ and of its DREQ.
    asked: u64,
    parting: u64,
    /// A request could not be posted: those after it would have other numbers than in the capture.
    stopped: bool,
}

/// Memory that the peer reads and writes.
struct Shared {
    /// Its key in the capture.
    key: u32,
    memory: Memory,
    /// A window on it, by its key in the capture, and whether it is bound yet.
    window: Option<(u32, MemoryWindow, bool)>,
    /// What the peer wrote, where it did.
    written: Vec<Option<u8>>,
}

impl Shared {
    /// What the engine calls a key of the capture, if it is one of these.
    fn key(&self, key: u32) -> Option<u32> {
        match &self.window {
            Some((name, window, _)) if *name == key => Some(window.key()),
            _ => (self.key == key).then(|| self.memory.key()),
        }
    }
}

/// Frames as they are sent.
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

/// How perftest and the pingpong programs set their queue pairs up: 67 ms.
const PROGRAMS_TIMEOUT: u8 = 14;
/// Longest that the engine may take to answer, beyond the end of a capture.
const GRACE: Duration = Duration::from_millis(10);

impl<'a> Player<'a> {
    /// An engine with a consumer that is about to do what the capture's did.
    pub fn new(story: &'a Story, script: &'a Script, side: usize) -> Result<Self> {
        let mut config = Config::new(ca_guid(story, side), [side as u8 + 1; 32]);
        let managed = story.conns.iter().find_map(|conn| conn.req.as_ref());
        let timeout = managed.map_or(PROGRAMS_TIMEOUT, |req| {
            CmPathRepr::parse(&CmPath::new(&req.primary_path)).local_ack_timeout
        });
        // As the host of the capture has them: settings, not behaviour.
        config.timing.ack_timeout = ack_timeout(timeout);
        config.timing.min_resend = config.timing.ack_timeout;
        config.timing.retries = managed.map_or(7, |req| req.retry_count);
        config.timing.rnr_retries = 7;
        config.timing.rnr_timer = roce_wire::rnr_timer(if managed.is_some() { 0 } else { 12 });
        config.max_reads = ReadLimits { inbound: 128, outbound: 128 };
        let engine = Engine::try_new(config).map_err(failed("Engine::try_new"))?;
        engine.set_addresses(&[story.hosts[side].ip]).map_err(failed("set_addresses"))?;
        let pd = engine.create_pd();
        let cq = engine.create_cq(4096, 0).map_err(failed("create_cq"))?;
        let srq = if script.shared_receives {
            let spec = SrqSpec { depth: 256, sges: 1, threshold: 0, context: 0 };
            Some(engine.create_srq(&spec).map_err(failed("create_srq"))?)
        } else {
            None
        };
        let mut player = Self {
            story,
            script,
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
            performance: Performance::default(),
            recording: false,
            engine,
            kept: Vec::new(),
        };
        for _ in &story.conns {
            player.create_qp()?;
        }
        player.share()?;
        if player.script.receives_after.is_none() || side == 0 {
            player.post_receives()?;
        }
        player.listen()?;
        Ok(player)
    }

    /// Plays the capture from its beginning to its end.
    pub fn play(mut self) -> Result<Performance> {
        for at in 0..self.story.conns.len() {
            if self.story.conns[at].active.is_none() {
                self.introduce(at)?;
            }
        }
        self.recording = true;
        let start = self.now;
        let (mut cm, mut rc) = (0, 0);
        let mut crossed = Vec::new();
        for (at, spoken) in self.story.frames.iter().enumerate() {
            self.advance(start + spoken.time)?;
            if spoken.from == self.side {
                if let (Some(conn), Some(asked)) = (spoken.conn, &spoken.asked) {
                    self.ask(conn, asked);
                    self.drive()?;
                }
                for (at, spoken) in crossed.drain(..) {
                    self.hear(at, spoken, None)?;
                }
            } else {
                let nth = if spoken.packet().info().class == Class::Datagram {
                    cm += 1;
                    Nth::Cm(cm)
                } else {
                    rc += 1;
                    Nth::Rc(rc)
                };
                match self.script.fate(nth).filter(|_| spoken.from == 0) {
                    Some(Fate::Crossed) => crossed.push((at, spoken)),
                    fate => self.hear(at, spoken, fate)?,
                }
            }
            self.drive()?;
        }
        let end = self.story.frames.last().map_or(start, |last| start + last.time);
        self.advance(end + GRACE)?;
        self.check_memory();
        Ok(self.performance)
    }

    fn conn(&self, at: usize) -> &'a Conn {
        &self.story.conns[at]
    }

    fn complain(&mut self, what: String) {
        self.performance.complaints.push(what);
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
        let names = Names { qpn: qp.qpn().value(), ..Names::default() };
        self.live.push(Live { qp, conn: None, names, asked: 0, parting: 0, stopped: false });
        Ok(())
    }

    fn memory(&mut self, base: u64, length: usize, access: Access) -> Result<Memory> {
        let (memory, kept) = Memory::register(&self.engine, self.pd, base, length, access)?;
        self.kept.push(kept);
        Ok(memory)
    }

    /// Lets time pass, with everything that the engine does meanwhile.
    fn advance(&mut self, to: Instant) -> Result<()> {
        for _ in 0..100_000 {
            let late = self.late_receives.filter(|&at| at <= to);
            let next = self.engine.poll_timeout().filter(|&at| at <= to);
            let Some(at) = [late, next].into_iter().flatten().min() else {
                self.now = self.now.max(to);
                return Ok(());
            };
            self.now = self.now.max(at);
            if late == Some(at) {
                self.late_receives = None;
                self.post_receives()?;
            }
            self.engine.handle_timeout(self.now);
            self.drive()?;
        }
        Err(anyhow!("the engine's deadlines do not pass"))
    }

    /// What a driver does after any input.
    fn drive(&mut self) -> Result<()> {
        loop {
            for frame in self.transmit() {
                self.note(&frame)?;
            }
            let events = self.events();
            if events.is_empty() {
                break;
            }
            for (id, event) in events {
                self.follow(id, &event);
            }
        }
        self.take_completions();
        Ok(())
    }

    fn transmit(&mut self) -> Vec<Vec<u8>> {
        let mut sent = Sent { slot: vec![0; 4096 + 200], frames: Vec::new() };
        while self.engine.poll_transmit(self.now, &mut sent, 64) == 64 {}
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

    /// A frame of the other side arrives.
    fn hear(&mut self, at: usize, spoken: &Spoken, fate: Option<Fate>) -> Result<()> {
        if fate == Some(Fate::Lost) {
            return Ok(());
        }
        let mut frame = self.translate(spoken, fate == Some(Fate::Marked))?;
        if fate == Some(Fate::Corrupted) {
            let at = frame.len() - 8;
            frame[at] ^= 1;
        } else {
            self.before_request(at, spoken);
        }
        let times = if fate == Some(Fate::Doubled) { 2 } else { 1 };
        for _ in 0..times {
            let verdict = self.engine.handle_frame(self.now, &frame);
            ensure!(verdict != Verdict::NotOurs, "the engine does not take a RoCE frame for one");
            self.drive()?;
        }
        Ok(())
    }
}

/// By which name the host of the capture goes in connection management.
fn ca_guid(story: &Story, side: usize) -> u64 {
    let told = story.conns.iter().find_map(|conn| match (&conn.req, &conn.rep) {
        (Some(req), _) if conn.active == Some(side) => Some(req.local_ca_guid),
        (_, Some(rep)) if conn.active == Some(1 - side) => Some(rep.local_ca_guid),
        _ => None,
    });
    told.unwrap_or(story.hosts[side].mac.eui64())
}
