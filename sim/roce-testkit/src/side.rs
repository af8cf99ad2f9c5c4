// SPDX-License-Identifier: MIT OR Apache-2.0

//! One host: an engine, what a consumer makes on it, and memory.

use std::cell::UnsafeCell;
use std::net::IpAddr;
use std::ptr::NonNull;

use fallible::Arc;
use roce::{
    Access, Backing, Completion, CompletionStatus, Config, ConnEvent, ConnId, Cq, Engine, EngineEvent, Pd,
    PostError, Qp, QpSpec, RecvRequest, Region, SendData, SendFlags, SendOperation, SendRequest, Sge,
};
use roce_wire::MacAddr;

use crate::link::Options;

pub type Lock = parking_lot::RawMutex;

/// One host: an engine, and the objects that tests use on it.
pub struct Side {
    pub engine: Arc<Engine<Lock>>,
    pub pd: Pd,
    pub cq: Arc<Cq<Lock>>,
    /// The first queue pair. Others come from [`crate::Pair::another`].
    pub qp: Arc<Qp<Lock>>,
    pub conn: Option<ConnId>,
    /// What happened to connections, oldest first.
    pub conn_events: Vec<(ConnId, u64, ConnEvent)>,
    /// Contexts of completion queues that were told of, oldest first.
    pub notices: Vec<u64>,
    pub srq_notices: usize,
    pub mac: MacAddr,
    pub ip: IpAddr,
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
    #[must_use]
    pub fn sge(&self, offset: usize, length: usize) -> Sge {
        Sge { address: self.address(offset), length: length as u32, key: self.key() }
    }

    #[must_use]
    pub fn all(&self) -> Sge {
        self.sge(0, self.bytes.0.len())
    }

    #[must_use]
    pub fn address(&self, offset: usize) -> u64 {
        self.region.base() + offset as u64
    }

    #[must_use]
    pub fn key(&self) -> u32 {
        self.region.key()
    }

    #[must_use]
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
    /// A host of its own. [`crate::Pair`] makes two and drives them; whoever makes one alone drives it.
    #[must_use]
    pub fn new(number: u8, options: &Options) -> Self {
        let seed = options.seed.wrapping_mul(2).wrapping_add(u64::from(number));
        let mut bytes = [number; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let mut config = Config::new(0x0200_00FF_FE00_0000 | u64::from(number), bytes);
        config.max_qps = 256;
        config.max_regions = 256;
        config.max_logical = 256;
        (options.config)(&mut config);
        let engine = Engine::try_new(config).unwrap();
        let ip = (options.ip)(number);
        engine.set_addresses(&[ip]).unwrap();
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
            ip,
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

    /// Gives memory logical addresses, as pages from the one returned on.
    pub fn map(&self, memory: &Memory) -> u64 {
        let start = NonNull::new(UnsafeCell::raw_get(memory.bytes.0.as_ptr())).unwrap();
        // SAFETY: the memory is kept as long as the engine.
        let backing = unsafe { Backing::contiguous(start, memory.bytes.0.len()) }.unwrap();
        // SAFETY: as above.
        unsafe { self.engine.map_logical(0, backing) }.unwrap()
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
        operation: SendOperation,
        flags: SendFlags,
        sges: &[Sge],
    ) -> Result<(), PostError> {
        let data = SendData::Sges(sges);
        self.engine.post_send(&self.qp, &SendRequest { context, operation, flags, data })
    }

    pub fn send(&self, context: u64, sges: &[Sge]) {
        self.post(context, SendOperation::Send, SendFlags::empty(), sges).unwrap();
    }

    pub fn write(&self, context: u64, sges: &[Sge], to: &Memory, offset: usize) {
        let operation = SendOperation::Write { address: to.address(offset), key: to.key() };
        self.post(context, operation, SendFlags::empty(), sges).unwrap();
    }

    pub fn read(&self, context: u64, sges: &[Sge], from: &Memory, offset: usize) {
        let operation = SendOperation::Read { address: from.address(offset), key: from.key() };
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
    pub fn outcomes(&self) -> Vec<(u64, CompletionStatus)> {
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

    /// Takes what the engine has to tell.
    pub fn take_events(&mut self) {
        while let Some(event) = self.engine.poll_event() {
            match event {
                EngineEvent::Cq(notice) => self.notices.push(notice.context()),
                EngineEvent::Srq(_) => self.srq_notices += 1,
                EngineEvent::CqGone { .. } | EngineEvent::SrqGone { .. } => {}
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
