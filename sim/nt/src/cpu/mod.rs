// SPDX-License-Identifier: MIT OR Apache-2.0

//! Simulated CPUs: who runs on them, and their DPC queues.
//!
//! Being at or above `DISPATCH_LEVEL` on a CPU means owning it, so that such code is never preempted by other such
//! code on its CPU. Below that level the clocks differ:
//!
//! * *deterministic*: a thread owns a CPU at every IRQL while it runs. DPCs and interrupts of the CPU stop it until
//!   they have finished, and a host runs as many threads as it has CPUs.
//! * *threaded*: a thread owns no CPU below `DISPATCH_LEVEL`; it runs whenever the operating system lets it. The DPCs
//!   that other CPUs and devices queue do not stop it.

pub mod dpc;
pub mod groups;
pub mod id;
mod processors;
mod token;

use std::sync::{
    Arc,
    atomic::{AtomicU8, AtomicU32, Ordering::Relaxed},
};

pub use groups::Groups;
pub use id::{Affinity, CpuId};
use parking_lot::Mutex;
use processors::Processors;
use token::Token;

use crate::{clock::Clock, irql::Irql, thread::shared::ThreadShared};

/// The CPUs of one host.
pub struct Cpus {
    all: Box<[Cpu]>,
    /// CPUs of a group that is full.
    group_size: u32,
    /// Number of CPUs that the system uses; the others can be added.
    active: AtomicU32,
    /// The owners of the CPUs, under the deterministic clock.
    processors: Option<Processors>,
}

struct Cpu {
    token: Token,
    dpcs: dpc::Queue,
    /// Level of the thread on this CPU while it is above `DISPATCH_LEVEL`, else lower.
    device_level: AtomicU8,
    /// Number of interrupt service routines that run on this CPU.
    interrupts: AtomicU32,
    /// The owner while it stalls below `DISPATCH_LEVEL`.
    stalling: Mutex<Option<Arc<ThreadShared>>>,
}

impl Cpus {
    pub(crate) fn new(count: u32, group_size: u32, deterministic: bool) -> Self {
        let count = count.max(1);
        let cpu = || Cpu {
            token: Token::new(),
            dpcs: dpc::Queue::default(),
            device_level: AtomicU8::new(0),
            interrupts: AtomicU32::new(0),
            stalling: Mutex::default(),
        };
        let processors = deterministic.then(|| Processors::new(count as usize));
        Self {
            all: (0..count).map(|_| cpu()).collect(),
            group_size,
            active: AtomicU32::new(count),
            processors,
        }
    }

    /// Returns the number of active CPUs.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.active.load(Relaxed)
    }

    /// Returns the number of CPUs that can be active.
    #[must_use]
    pub fn maximum(&self) -> u32 {
        u32::try_from(self.all.len()).unwrap_or(u32::MAX)
    }

    /// Sets the number of active CPUs, at most [`maximum`](Self::maximum): fewer before any driver is started, and more at any time, as
    /// Windows Server adds processors while it runs. (WDK: KeRegisterProcessorChangeCallback)
    pub fn set_active(&self, count: u32) {
        self.active.store(count.clamp(1, self.maximum()), Relaxed);
    }

    /// Returns how Windows names the active CPUs.
    #[must_use]
    pub fn groups(&self) -> Groups {
        Groups::new(self.count(), self.group_size)
    }

    /// Returns how Windows names the CPUs that can be active.
    #[must_use]
    pub fn all_groups(&self) -> Groups {
        Groups::new(self.maximum(), self.group_size)
    }

    /// Returns the active CPUs of an affinity; all of it if none of them is active.
    fn active(&self, affinity: Affinity) -> Affinity {
        let Some(active) = 1_u64.checked_shl(self.count()).map(|next| next - 1) else { return affinity };
        if affinity.0 & active == 0 { affinity } else { Affinity(affinity.0 & active) }
    }

    /// Returns whether threads own a CPU at every IRQL, and not only at `DISPATCH_LEVEL` and above.
    #[inline]
    #[must_use]
    pub fn run_owners_only(&self) -> bool {
        self.processors.is_some()
    }

    /// Blocks until the thread owns a CPU: `preferred` if it is free, else another one.
    pub(crate) fn acquire(
        &self,
        clock: &Clock,
        me: &Arc<ThreadShared>,
        preferred: CpuId,
        affinity: Affinity,
    ) -> CpuId {
        let affinity = self.active(affinity);
        if let Some(processors) = &self.processors {
            return processors.acquire(clock, me, preferred, affinity);
        }
        let may = |cpu: CpuId| affinity.contains(cpu.0 as usize);
        if may(preferred) && self.cpu(preferred).token.try_acquire() {
            return preferred;
        }
        let allowed = || (0..self.count()).map(CpuId).filter(|&cpu| may(cpu));
        if let Some(cpu) = allowed().find(|&cpu| self.cpu(cpu).token.try_acquire()) {
            return cpu;
        }
        let cpu = if may(preferred) { preferred } else { allowed().next().unwrap_or(preferred) };
        self.cpu(cpu).token.acquire();
        cpu
    }

    /// Makes the calling thread the owner of `cpu` if that is free and in `affinity`. Threaded clock.
    #[inline]
    pub(crate) fn try_acquire(&self, cpu: CpuId, affinity: Affinity) -> bool {
        affinity.contains(cpu.0 as usize) && self.cpu(cpu).token.try_acquire()
    }

    pub(crate) fn release(&self, clock: &Clock, cpu: CpuId) {
        match &self.processors {
            Some(processors) => processors.release(clock, cpu),
            None => self.cpu(cpu).token.release(),
        }
    }

    /// Returns whether a thread waits for this CPU. Always false under the threaded clock.
    pub(crate) fn is_wanted(&self, cpu: CpuId) -> bool {
        self.processors.as_ref().is_some_and(|processors| processors.is_wanted(cpu))
    }

    /// Returns whether the CPU's idle thread owns it under the deterministic clock; it takes a free one whose DPCs are to
    /// be run.
    pub(crate) fn give_to_idle_thread(&self, cpu: CpuId, idle: &ThreadShared) -> bool {
        self.processors.as_ref().is_some_and(|processors| {
            processors.is_owner(cpu, idle.id)
                || (self.dpcs(cpu).is_requested() && processors.take_if_free(cpu, idle.id))
        })
    }

    /// Requests that the DPC queue of a CPU is processed, from a thread that does not own that CPU.
    pub(crate) fn request_dispatch(&self, clock: &Clock, cpu: CpuId) {
        let this = self.cpu(cpu);
        let was_requested = this.dpcs.request();
        let Some(processors) = &self.processors else {
            if !was_requested {
                this.dpcs.wake(clock);
            }
            return;
        };
        // An owner notices the request when it runs again.
        if let Some(idle) = this.dpcs.idle_thread()
            && processors.take_if_free(cpu, idle.id)
        {
            clock.unpark(idle);
        } else if let Some(owner) = &*this.stalling.lock() {
            clock.unpark(owner);
        }
    }

    /// Names the owner of a CPU while it stalls.
    pub(crate) fn set_stalling(&self, cpu: CpuId, owner: Option<Arc<ThreadShared>>) {
        *self.cpu(cpu).stalling.lock() = owner;
    }

    /// Records the level of the thread on a CPU, which changes to or from a device level.
    pub(crate) fn set_device_level(&self, cpu: CpuId, level: Irql) {
        self.cpu(cpu).device_level.store(level.0, Relaxed);
    }

    /// Begins an interrupt: its CPU's owner stops until [`Cpus::end_interrupt`]. Returns `false` when the owner is at
    /// `level` or above.
    pub(crate) fn begin_interrupt(&self, cpu: CpuId, level: Irql) -> bool {
        let cpu = self.cpu(cpu);
        let begins = !self.run_owners_only() || cpu.device_level.load(Relaxed) < level.0;
        if begins {
            cpu.interrupts.fetch_add(1, Relaxed);
        }
        begins
    }

    pub(crate) fn end_interrupt(&self, cpu: CpuId) {
        self.cpu(cpu).interrupts.fetch_sub(1, Relaxed);
    }

    /// Returns whether an interrupt service routine runs on a CPU.
    pub(crate) fn is_interrupted(&self, cpu: CpuId) -> bool {
        self.cpu(cpu).interrupts.load(Relaxed) != 0
    }

    fn cpu(&self, cpu: CpuId) -> &Cpu {
        &self.all[cpu.0 as usize]
    }

    /// Returns the DPC queue of a CPU.
    #[must_use]
    pub fn dpcs(&self, cpu: CpuId) -> &dpc::Queue {
        &self.cpu(cpu).dpcs
    }
}
