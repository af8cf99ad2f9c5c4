// SPDX-License-Identifier: MIT OR Apache-2.0

//! Replays one side of a capture with an engine.
//!
//! The engine receives the frames of the other side at their times, with the engine's identifiers in place of those of the
//! capture. Its consumer performs the actions of the capture's consumer. The frames that the engine sends are recorded
//! with the identifiers of the capture.

mod connect;
mod consumer;
mod drive;
mod state;
mod translate;

pub use state::{Outcome, Player};

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, ensure};
use roce::{Config, Engine, Instant, QpSpec, ReadLimits, SrqSpec, Verdict};
use roce_wire::{
    Class, ack_timeout,
    cm::{CmPath, CmPathRepr},
};

use self::state::{Live, failed};
use super::{
    infer::{RoceFrame, Scenario},
    normalized::EngineIds,
    setup::{CaptureSetup, Fate, Nth},
};

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
