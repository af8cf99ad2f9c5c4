// SPDX-License-Identifier: MIT OR Apache-2.0

//! [`Player`]: its engine, and what the consumer of the engine has.

use std::{collections::BTreeMap, rc::Rc};

use anyhow::{Result, anyhow};
use fallible::Arc;
use roce::{Access, ConnId, Cq, Engine, Instant, MemoryWindow, Pd, Qp, Srq};

use crate::replay::{
    infer::{Conn, Scenario},
    memory::{Bytes, Lock, Memory},
    normalized::{EngineIds, NormalizedFrame},
    setup::CaptureSetup,
};

/// Replays one side of a capture.
pub struct Player<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) setup: &'a CaptureSetup,
    /// The side that is replayed.
    pub(super) side: usize,
    pub(super) now: Instant,
    pub(super) live: Vec<Live>,
    pub(super) cq: Arc<Cq<Lock>>,
    pub(super) srq: Option<Arc<Srq<Lock>>>,
    pub(super) pd: Pd,
    pub(super) shared: Vec<PeerMemory>,
    pub(super) receives: BTreeMap<u64, Memory>,
    /// READs of this side with the expected data, by context.
    pub(super) reads: BTreeMap<u64, (Memory, Vec<u8>)>,
    pub(super) late_receives: Option<Instant>,
    /// Expected data of receives, in the order in which the messages of the peer are complete.
    pub(super) expected: Vec<Vec<u8>>,
    pub result: Outcome,
    /// Whether frames are recorded; not while `connect_by_cm` connects.
    pub(super) recording: bool,
    pub(super) engine: Arc<Engine<Lock>>,
    /// Memory that must outlive the engine; dropped after it.
    pub(super) kept: Vec<Rc<Bytes>>,
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
pub(super) struct Live {
    pub(super) qp: Arc<Qp<Lock>>,
    pub(super) conn: Option<ConnId>,
    pub(super) ids: EngineIds,
    /// Transaction ID of the engine's REQ or REP.
    pub(super) req_transaction: u64,
    /// Transaction ID of the engine's DREQ.
    pub(super) dreq_transaction: u64,
    /// A request could not be posted. Later ones are not posted either: their PSNs would differ from the capture.
    pub(super) stopped: bool,
}

/// Memory that the peer reads and writes.
pub(super) struct PeerMemory {
    /// Its key in the capture.
    pub(super) key: u32,
    pub(super) memory: Memory,
    /// A memory window on it: its key in the capture, the window, and whether it is bound.
    pub(super) window: Option<(u32, MemoryWindow, bool)>,
    /// The bytes that the peer wrote.
    pub(super) written: Vec<Option<u8>>,
}

impl PeerMemory {
    /// Translates a key of the capture to that of the engine; `None` if it is another key.
    pub(super) fn engine_key(&self, key: u32) -> Option<u32> {
        match &self.window {
            Some((window_key, window, _)) if *window_key == key => Some(window.key()),
            _ => (self.key == key).then(|| self.memory.key()),
        }
    }
}

pub(super) fn failed<E: std::fmt::Debug>(what: &'static str) -> impl Fn(E) -> anyhow::Error {
    move |error| anyhow!("{what}: {error:?}")
}

impl<'a> Player<'a> {
    pub(super) fn conn(&self, at: usize) -> &'a Conn {
        &self.scenario.conns[at]
    }

    pub(super) fn error(&mut self, what: String) {
        self.result.errors.push(what);
    }

    pub(super) fn memory(&mut self, base: u64, length: usize, access: Access) -> Result<Memory> {
        let (memory, kept) = Memory::register(&self.engine, self.pd, base, length, access)?;
        self.kept.push(kept);
        Ok(memory)
    }
}
