// SPDX-License-Identifier: MIT OR Apache-2.0

//! One host: an engine, the objects a consumer creates on it, and memory.
#![allow(unsafe_code, reason = "registers memory with an engine")]

use std::cell::UnsafeCell;
use std::net::IpAddr;
use std::ptr::NonNull;

use fallible::Arc;
use roce::{
    Access, Backing, Completion, CompletionStatus, Config, ConnEvent, ConnId, Cq, Engine, EngineEvent,
    Instant, Pd, PostError, Qp, QpFault, QpSpec, RecvRequest, Region, ReregisterError, SendData, SendFlags,
    SendOperation, SendRequest, Sge, Trace, TraceRecord,
};
use roce_wire::{MacAddr, Qpn};

use crate::link::Slots;
use crate::lock::Lock;
use crate::options::Options;

/// One host: an engine, and the objects that tests use with it.
pub struct Side {
    pub engine: Arc<Engine<Lock>>,
    pub pd: Pd,
    pub cq: Arc<Cq<Lock>>,
    /// First queue pair. [`crate::TwoHosts::connect_another`] creates others.
    pub qp: Arc<Qp<Lock>>,
    pub conn: Option<ConnId>,
    /// Connection events with connection and context, oldest first.
    pub conn_events: Vec<(ConnId, u64, ConnEvent)>,
    /// Contexts of the completion queues that sent a notification, oldest first.
    pub cq_notifications: Vec<u64>,
    /// Number of shared receive queue notifications.
    pub srq_notifications: usize,
    /// Connections whose path was reported as suspect, with their context, oldest first.
    pub suspect_paths: Vec<(ConnId, u64)>,
    /// Queue pairs without connection management that are in error, with context and reason, oldest first.
    pub failed_qps: Vec<(Qpn, u64, QpFault)>,
    /// Queue pairs whose send queue is drained, with context, oldest first.
    pub drained_qps: Vec<(Qpn, u64)>,
    pub mac: MacAddr,
    pub ip: IpAddr,
    /// Dropped after the engine.
    kept: std::sync::Mutex<Vec<std::sync::Arc<Bytes>>>,
}

/// Memory that an engine may access. Frames in flight may refer to a region until it is deregistered, so the
/// side keeps the memory as long as its engine.
struct Bytes(Box<[UnsafeCell<u8>]>);

// SAFETY: accessed by copies through raw pointers only; tests that run engines on other threads access the
// memory only while no request refers to it.
unsafe impl Send for Bytes {}
// SAFETY: shared references reach the bytes by the same copies, at the same times.
unsafe impl Sync for Bytes {}

/// Registered memory of a consumer.
pub struct Memory {
    bytes: std::sync::Arc<Bytes>,
    pub region: Arc<Region>,
}

impl Memory {
    /// Returns an element for `length` bytes at `offset`.
    #[must_use]
    pub fn sge(&self, offset: usize, length: usize) -> Sge {
        Sge { address: self.address(offset), length: length as u32, key: self.key() }
    }

    /// Returns an element for the whole memory.
    #[must_use]
    pub fn all(&self) -> Sge {
        self.sge(0, self.bytes.0.len())
    }

    /// Returns the registered address of the byte at `offset`.
    #[must_use]
    pub fn address(&self, offset: usize) -> u64 {
        self.region.base() + offset as u64
    }

    /// Returns the region's key.
    #[must_use]
    pub fn key(&self) -> u32 {
        self.region.key()
    }

    /// Returns a copy of the memory.
    #[must_use]
    pub fn read(&self) -> Vec<u8> {
        // SAFETY: the engine runs only while the test drives it, on this thread.
        self.bytes.0.iter().map(|byte| unsafe { *byte.get() }).collect()
    }

    /// Copies `data` to the start of the memory.
    pub fn write(&self, data: &[u8]) {
        for (byte, value) in self.bytes.0.iter().zip(data) {
            // SAFETY: the engine does not run meanwhile: the test drives it on this thread.
            unsafe { *byte.get() = *value };
        }
    }
}

/// Returns `len` pseudo-random bytes that follow from `seed`.
#[must_use]
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
    /// Creates a host that is not part of a [`crate::TwoHosts`]: the caller drives its engine.
    #[must_use]
    pub fn new(number: u8, options: &Options) -> Self {
        let seed = options.seed.wrapping_mul(2).wrapping_add(u64::from(number));
        let mut bytes = [number; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let mut config = Config::new(0x0200_00FF_FE00_0000 | u64::from(number), bytes);
        config.max_qps = 256;
        config.max_regions = 256;
        config.max_logical = 256;
        config.early_placement = options.keeps_packets.get(usize::from(number) - 1).copied().unwrap_or(true);
        if std::env::var_os("VIORDMA_TRACE").is_some() {
            config.trace = Some(Trace { sink: print, context: u64::from(number) });
        }
        (options.config)(&mut config);
        let engine = Engine::try_new(config).unwrap();
        let ip = (options.ip)(number);
        engine.connections().set_addresses(&[ip]).unwrap();
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
            cq_notifications: Vec::new(),
            srq_notifications: 0,
            suspect_paths: Vec::new(),
            failed_qps: Vec::new(),
            drained_qps: Vec::new(),
            mac: MacAddr([2, 0, 0, 0, 0, number]),
            ip,
            kept: std::sync::Mutex::default(),
        }
    }

    /// Registers `len` zeroed bytes in the side's protection domain.
    #[must_use]
    pub fn memory(&self, len: usize, access: Access) -> Memory {
        self.memory_of(self.pd, len, access)
    }

    /// Registers `len` zeroed bytes in protection domain `pd`.
    #[must_use]
    pub fn memory_of(&self, pd: Pd, len: usize, access: Access) -> Memory {
        let bytes: Box<[UnsafeCell<u8>]> = (0..len).map(|_| UnsafeCell::new(0)).collect();
        let start = NonNull::new(UnsafeCell::raw_get(bytes.as_ptr())).unwrap();
        let bytes = std::sync::Arc::new(Bytes(bytes));
        self.kept.lock().unwrap().push(bytes.clone());
        // SAFETY: the memory is kept as long as the engine.
        let backing = unsafe { Backing::contiguous(start, len) }.unwrap();
        let base = 0x7000_0000_0000 + start.as_ptr() as u64 % 4096;
        // SAFETY: the region's memory is kept as long as the engine.
        let region = unsafe { self.engine.memory().register(pd, base, len as u64, access, backing) }.unwrap();
        Memory { bytes, region }
    }

    /// Gives the keys of `former` to `len` zeroed bytes in protection domain `pd`, under another address.
    ///
    /// # Errors
    /// As [`MemoryCommands::reregister`](roce::MemoryCommands::reregister).
    pub fn reregister(
        &self,
        former: &Memory,
        pd: Pd,
        len: usize,
        access: Access,
    ) -> Result<Memory, ReregisterError> {
        let bytes: Box<[UnsafeCell<u8>]> = (0..len).map(|_| UnsafeCell::new(0)).collect();
        let start = NonNull::new(UnsafeCell::raw_get(bytes.as_ptr())).unwrap();
        let bytes = std::sync::Arc::new(Bytes(bytes));
        self.kept.lock().unwrap().push(bytes.clone());
        // SAFETY: the memory is kept as long as the engine.
        let backing = unsafe { Backing::contiguous(start, len) }.unwrap();
        let base = former.address(0) + 0x1_0000;
        // SAFETY: the region's memory is kept as long as the engine.
        let region = unsafe {
            self.engine.memory().reregister(&former.region, pd, base, len as u64, access, backing)
        }?;
        Ok(Memory { bytes, region })
    }

    /// Maps memory to consecutive logical pages and returns the first logical address.
    pub fn map(&self, memory: &Memory) -> u64 {
        let start = NonNull::new(UnsafeCell::raw_get(memory.bytes.0.as_ptr())).unwrap();
        // SAFETY: the memory is kept as long as the engine.
        let backing = unsafe { Backing::contiguous(start, memory.bytes.0.len()) }.unwrap();
        // SAFETY: the mapped memory is kept as long as the engine.
        unsafe { self.engine.memory().map_logical(0, backing) }.unwrap()
    }

    /// Registers memory without access rights that holds `data`, to send from.
    pub fn source(&self, data: &[u8]) -> Memory {
        let memory = self.memory(data.len().max(1), Access::empty());
        memory.write(data);
        memory
    }

    /// Registers memory with local write access, to receive into.
    pub fn sink(&self, len: usize) -> Memory {
        self.memory(len.max(1), Access::LOCAL_WRITE)
    }

    /// Registers memory that the peer may read and write.
    pub fn shared(&self, len: usize) -> Memory {
        self.memory(len.max(1), Access::all())
    }

    /// Posts a request to the first queue pair.
    ///
    /// # Errors
    /// As [`Engine::post_send`].
    pub fn post(
        &self,
        context: u64,
        operation: SendOperation,
        flags: SendFlags,
        sges: &[Sge],
    ) -> Result<(), PostError> {
        let data = SendData::Sges(sges);
        self.engine.post_send(&self.qp, &SendRequest { context, operation, flags, data })
    }

    /// Posts a SEND.
    pub fn send(&self, context: u64, sges: &[Sge]) {
        self.post(context, SendOperation::Send, SendFlags::empty(), sges).unwrap();
    }

    /// Posts an RDMA WRITE to the peer's memory `to` at `offset`.
    pub fn write(&self, context: u64, sges: &[Sge], to: &Memory, offset: usize) {
        let operation = SendOperation::Write { address: to.address(offset), key: to.key() };
        self.post(context, operation, SendFlags::empty(), sges).unwrap();
    }

    /// Posts an RDMA READ of the peer's memory `from` at `offset`.
    pub fn read(&self, context: u64, sges: &[Sge], from: &Memory, offset: usize) {
        let operation = SendOperation::Read { address: from.address(offset), key: from.key() };
        self.post(context, operation, SendFlags::empty(), sges).unwrap();
    }

    /// Posts a receive.
    pub fn recv(&self, context: u64, sges: &[Sge]) {
        self.engine.post_recv(&self.qp, &RecvRequest { context, sges }).unwrap();
    }

    /// Polls all completions.
    pub fn completions(&self) -> Vec<Completion> {
        poll(&self.cq)
    }

    /// Polls all completions and returns their contexts and statuses.
    pub fn outcomes(&self) -> Vec<(u64, CompletionStatus)> {
        self.completions().into_iter().map(|c| (c.context, c.status)).collect()
    }

    /// Returns the value of the statistics counter `name`.
    ///
    /// # Panics
    /// Panics if there is no such counter.
    #[must_use]
    pub fn stat(&self, name: &str) -> u64 {
        let mut value = None;
        self.engine.stats().each(|each, count| {
            if each == name {
                value = Some(count);
            }
        });
        value.unwrap_or_else(|| panic!("no counter {name}"))
    }

    /// Takes up to `limit` frames that the engine has to transmit, for a test that delivers them itself.
    pub fn transmit(&self, now: Instant, limit: usize) -> Vec<Vec<u8>> {
        let mut slots = Slots { slot: &mut [0; 4300], free: limit, frames: Vec::new() };
        while slots.frames.len() < limit && self.engine.first_shard().poll_transmit(now, &mut slots, 1) != 0 {
        }
        slots.frames
    }

    /// Takes the engine's pending events.
    pub fn take_events(&mut self) {
        while let Some(event) = self.engine.poll_event() {
            match event {
                EngineEvent::Cq(notice) => self.cq_notifications.push(notice.context()),
                EngineEvent::Srq(_) => self.srq_notifications += 1,
                EngineEvent::NoticesDue { .. } | EngineEvent::CqGone { .. } | EngineEvent::SrqGone { .. } => {
                }
                EngineEvent::QpFailed { qpn, context, fault } => self.failed_qps.push((qpn, context, fault)),
                EngineEvent::QpDrained { qpn, context } => self.drained_qps.push((qpn, context)),
                EngineEvent::PathSuspect { id, context } => self.suspect_paths.push((id, context)),
                EngineEvent::Conn { id, context, event } => {
                    if let ConnEvent::Request(_) = event {
                        self.conn = Some(id);
                    }
                    self.conn_events.push((id, context, event));
                }
            }
        }
    }
}

/// Prints what an engine reports.
fn print(number: u64, record: &TraceRecord) {
    eprintln!("side {number}: {record}");
}

/// Polls all completions of a completion queue.
pub fn poll(cq: &Cq<Lock>) -> Vec<Completion> {
    let mut results = [Completion::EMPTY; 7];
    let mut all = Vec::new();
    loop {
        match cq.poll(&mut results) {
            0 => return all,
            n => all.extend_from_slice(&results[..n]),
        }
    }
}

/// Returns a queue pair specification that uses `cq` for both directions.
#[must_use]
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
