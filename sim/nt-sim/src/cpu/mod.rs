// SPDX-License-Identifier: MIT OR Apache-2.0

//! Simulated CPUs: dispatch tokens and DPC queues.
//!
//! Each CPU has one dispatch token. Being at or above `DISPATCH_LEVEL` on a CPU means holding its
//! token: a host runs at most as many threads at that level as it has CPUs, and code at `DISPATCH_LEVEL` is
//! never preempted by other such code on its CPU. Interrupt service routines need no token: they interrupt
//! the thread that holds it.

pub mod dpc;
pub mod id;
mod token;

use std::sync::Arc;

pub use id::CpuId;
use token::Token;

use crate::{clock::Clock, thread::shared::ThreadShared};

/// The CPUs of one host.
pub struct Cpus {
    cpus: Box<[Cpu]>,
}

struct Cpu {
    token: Token,
    dpcs: dpc::Queue,
}

impl Cpus {
    pub(crate) fn new(count: u32, deterministic: bool) -> Self {
        let cpu = || Cpu { token: Token::new(deterministic), dpcs: dpc::Queue::default() };
        Self { cpus: (0..count.max(1)).map(|_| cpu()).collect() }
    }

    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.cpus.len()).unwrap_or(u32::MAX)
    }

    /// Acquires the token of `preferred`, or of any other free CPU unless `pinned`.
    pub(crate) fn acquire(
        &self,
        clock: &Clock,
        me: &Arc<ThreadShared>,
        preferred: CpuId,
        pinned: bool,
    ) -> CpuId {
        if self.token(preferred).try_acquire() {
            return preferred;
        }
        if !pinned {
            for cpu in (0..self.count()).map(CpuId) {
                if self.token(cpu).try_acquire() {
                    return cpu;
                }
            }
        }
        self.token(preferred).acquire(clock, me);
        preferred
    }

    pub(crate) fn release(&self, clock: &Clock, cpu: CpuId) {
        self.token(cpu).release(clock);
    }

    fn token(&self, cpu: CpuId) -> &Token {
        &self.cpus[cpu.0 as usize].token
    }

    /// Returns the DPC queue of a CPU.
    #[must_use]
    pub fn dpcs(&self, cpu: CpuId) -> &dpc::Queue {
        &self.cpus[cpu.0 as usize].dpcs
    }
}
