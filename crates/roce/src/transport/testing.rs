// SPDX-License-Identifier: MIT OR Apache-2.0

//! A host for unit tests of one half of the transport: memory, completion queues, and frames of a peer that does not exist.
#![allow(unsafe_code, reason = "memory for a region")]

use core::cell::Cell;
use core::fmt::Write as _;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, Ordering};
use core::time::Duration;

use super::env::{Batch, Env};
use super::packet::payload_copy::PayloadCopy;
use super::peer::{Link, Peer};
use super::responder::gaps::stash::StashMemory;
use crate::config::Config;
use crate::conn::{ConnId, ReadLimits};
use crate::cq::Cq;
use crate::cq_faults::CqFaults;
use crate::memory::Backing;
use crate::notices::Notices;
use crate::qp_attributes::{QpAttributes, QpSpec};
use crate::random::Random;
use crate::region::access_rights::{Access, Pd};
use crate::region::memory_region::Region;
use crate::region::table::RegionTable;
use crate::reports::Reports;
use crate::shared::EngineShared;
use crate::stats::Stats;
use crate::testing::Lock;
use crate::time::Instant;
use crate::work::{Completion, CompletionStatus, Sge};
use fallible::Arc;
use roce_wire::{
    AethRepr, Ext, Headers, MacAddr, Opcode, Packet, Path, PathMtu, Psn, Qpn, Syndrome, Template,
};
use std::format;
use std::string::String;
use std::vec::Vec;

/// Bytes per packet.
pub(super) const MTU: u32 = 1024;
/// Bytes of the host's memory.
const MEMORY: usize = 16 * 1024;
/// Address of the memory in its region.
const BASE: u64 = 0x5000;

pub(super) struct Host {
    pub(super) shared: EngineShared<Lock>,
    pub(super) qp: QpAttributes<Lock>,
    link: Link,
    /// Of the peer's frames.
    peer: Template,
    stats: Stats,
    region: Arc<Region>,
    now: Cell<Instant>,
    memory: Vec<AtomicU8>,
}

impl Host {
    pub(super) fn new() -> Self {
        let config = Config { max_mtu: PathMtu::Bytes1024, ..Config::new(1, [3; 32]) };
        let memory: Vec<_> = (0..MEMORY).map(|_| AtomicU8::new(0)).collect();
        let regions = RegionTable::try_new(8, 4, core::hint::spin_loop, &mut Random::new([3; 32])).unwrap();
        // SAFETY: the memory lives as long as the host, whose region is the only user.
        let backing =
            unsafe { Backing::contiguous(NonNull::from(memory.as_slice()).cast(), MEMORY) }.unwrap();
        let region = regions.register(Pd(1), BASE, MEMORY as u64, Access::all(), backing).unwrap();
        let cq = Cq::try_new(64, 0, 0, None).unwrap();
        let path = Path::new(MacAddr([2; 6]), MacAddr([4; 6]), [10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let back = Path::new(MacAddr([4; 6]), MacAddr([2; 6]), [10, 0, 0, 2].into(), [10, 0, 0, 1].into());
        Self {
            shared: EngineShared {
                stash: StashMemory::try_new(config.stash, config.max_mtu, 1).unwrap(),
                config,
                regions,
                notices: Notices::try_new(0).unwrap(),
                cq_faults: CqFaults::default(),
                failed_connections: Reports::new(),
                qp_reports: Reports::new(),
                suspect_paths: Reports::new(),
            },
            qp: QpAttributes {
                qpn: Qpn::new(5),
                index: 0,
                pd: Pd(1),
                context: 0,
                send_sges: 2,
                send_cq: cq.clone(),
                recv_cq: cq,
                srq: None,
                relax: core::hint::spin_loop,
            },
            link: Link { template: Template::new(&path, Qpn::new(7)).unwrap() },
            peer: Template::new(&back, Qpn::new(5)).unwrap(),
            stats: Stats::default(),
            region,
            now: Cell::new(Instant::from_nanos(1_000_000_000)),
            memory,
        }
    }

    /// Returns the attributes of a queue pair with eight requests and four receives.
    pub(super) fn spec(&self) -> QpSpec<Lock> {
        QpSpec {
            pd: Pd(1),
            send_cq: self.qp.send_cq.clone(),
            recv_cq: self.qp.recv_cq.clone(),
            srq: None,
            send_depth: 8,
            recv_depth: 4,
            send_sges: 2,
            recv_sges: 2,
            inline: 0,
            context: 0,
        }
    }

    /// Returns the parameters of a peer: both sides start with PSN 0, and a retry is used after 10 ms.
    pub(super) fn peer() -> Peer {
        Peer {
            conn: Some(ConnId(1)),
            template: Template::new(
                &Path::new(MacAddr([2; 6]), MacAddr([4; 6]), [10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
                Qpn::new(7),
            )
            .unwrap(),
            mtu: PathMtu::Bytes1024,
            access: Access::REMOTE,
            rnr_timer: None,
            reads: ReadLimits { inbound: 4, outbound: 4 },
            send_psn: Psn::new(0),
            receive_psn: Psn::new(0),
            retries: 2,
            rnr_retries: 1,
            ack_timeout: Duration::from_millis(10),
        }
    }

    /// Runs a step of the transport.
    pub(super) fn step<T>(&self, step: impl FnOnce(&Env<'_, Lock>, &Link) -> T) -> T {
        step(&Env::new(&Batch::new(&self.shared, &self.stats), &self.qp, self.now.get()), &self.link)
    }

    pub(super) fn pass(&self, time: Duration) {
        self.now.set(self.now.get() + time);
    }

    pub(super) fn pass_until(&self, at: Instant) {
        self.now.set(self.now.get().max(at));
    }

    /// Returns the key of the memory.
    pub(super) fn key(&self) -> u32 {
        self.region.key()
    }

    /// Returns the address of a byte of the memory.
    pub(super) fn address(offset: u64) -> u64 {
        BASE + offset
    }

    pub(super) fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { address: Self::address(offset), length, key: self.key() }
    }

    pub(super) fn fill(&self, offset: usize, bytes: &[u8]) {
        for (at, byte) in self.memory[offset..].iter().zip(bytes) {
            at.store(*byte, Ordering::Relaxed);
        }
    }

    pub(super) fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        self.memory[offset..offset + length].iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
    }

    /// Returns context and status of what has completed since the last call.
    pub(super) fn completions(&self) -> Vec<(u64, CompletionStatus)> {
        let mut found = [Completion::EMPTY; 16];
        let count = self.qp.send_cq.poll(&mut found);
        found[..count].iter().map(|completion| (completion.context, completion.status)).collect()
    }

    /// Returns a frame of the peer.
    pub(super) fn frame(&self, opcode: Opcode, psn: u32, ext: Ext, payload: &[u8]) -> Vec<u8> {
        let headers = Headers { opcode, solicited: false, ack_req: true, psn: Psn::new(psn), ext };
        let mut slot = std::vec![0; payload.len() + 200];
        let mut frame = self.peer.begin(self.shared.config.crc, &mut slot, &headers, payload.len()).unwrap();
        frame.write(payload);
        let len = frame.finish();
        slot.truncate(len);
        slot
    }

    /// Returns an acknowledgement of the peer.
    pub(super) fn ack(&self, psn: u32, syndrome: Syndrome) -> Vec<u8> {
        self.frame(Opcode::ACKNOWLEDGE, psn, Ext::Aeth(AethRepr { syndrome, msn: 0 }), &[])
    }

    /// Writes a frame with `transmit`, and describes it: opcode, PSN, syndrome, length that a READ requests, first byte and length
    /// of the payload. Returns `None` if there is no frame. Payload is shorter than [`MIN_LENGTH`]: no other is copied here.
    ///
    /// [`MIN_LENGTH`]: super::packet::payload_copy::MIN_LENGTH
    pub(super) fn describe(
        &self,
        transmit: impl FnOnce(&Env<'_, Lock>, &Link, &mut [u8], &mut Option<PayloadCopy>) -> Option<usize>,
    ) -> Option<String> {
        let mut slot = [0; MTU as usize + 200];
        let len = self.step(|env, link| transmit(env, link, &mut slot, &mut None))?;
        let packet = Packet::parse(&slot[..len]).unwrap();
        assert!(packet.icrc_valid(self.shared.config.crc));
        let mut text = format!("{:?} {}", packet.info().opcode, packet.bth().psn().value());
        if let Some(aeth) = packet.aeth() {
            write!(text, " {:?}", AethRepr::parse(&aeth).syndrome.kind()).unwrap();
        }
        if let Some(reth) = packet.reth() {
            write!(text, " of {} bytes", reth.length()).unwrap();
        }
        if let [first, ..] = packet.payload() {
            write!(text, ": {first} x {}", packet.payload().len()).unwrap();
        }
        Some(text)
    }
}
