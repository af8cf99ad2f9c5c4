// SPDX-License-Identifier: MIT OR Apache-2.0

//! Owning a CPU while running, and blocking without one.
//!
//! Under the deterministic clock a thread owns a CPU from its start to its end, except while it blocks. When it runs
//! again after others ran, it first lets interrupts of its CPU finish and runs the DPCs that were queued there.

use std::sync::Arc;

use super::current::Thread;
use crate::{
    cpu::id::{Affinity, CpuId},
    host::Host,
    irql::Irql,
};

impl Thread {
    /// Called at the start of a thread.
    pub(super) fn start_running(&self) {
        self.take_processor();
    }

    /// Called at the end of a thread.
    pub(super) fn stop_running(&self) {
        self.leave_processor();
    }

    /// Blocks until unparked or `deadline`; see [`crate::clock::Clock::park`].
    pub fn park(&self, deadline: Option<u64>) {
        // A thread at DISPATCH_LEVEL keeps its CPU; that it blocks is reported elsewhere.
        let leaves = self.irql.get() < Irql::DISPATCH_LEVEL;
        if leaves {
            self.leave_processor();
        }
        self.world().clock.park(self.shared(), deadline);
        self.stop_if_dead();
        if leaves {
            self.take_processor();
        }
        self.resume();
    }

    /// Lets other threads run.
    pub fn yield_now(&self) {
        if let Some(host) = self.owned_host()
            && self.irql.get() < Irql::DISPATCH_LEVEL
            && host.cpus.is_wanted(self.cpu.get())
        {
            self.leave_processor();
            self.take_processor();
        } else {
            self.world().clock.yield_now(self.shared());
        }
        self.resume();
    }

    /// Accounts for one step: a call of an import. Other threads may run, and DPCs on top of this one.
    #[inline]
    pub fn step(&self) {
        let Some(step) = self.world().clock.step() else { return };
        self.check_watchdog(step.now);
        if step.ends_turn {
            self.yield_now();
        } else if self.dispatch_requested.get() {
            self.resume();
        }
    }

    /// Runs DPCs that are requested on the thread's own CPU while it is below `DISPATCH_LEVEL`, as
    /// [`Host::queue_dpc`] does.
    #[inline]
    pub(crate) fn run_requested(&self) {
        if self.dispatch_requested.get() {
            self.resume();
        }
    }

    /// Blocks for `nanos` without letting other code run on the CPU, except interrupts, and DPCs if the thread is below
    /// `DISPATCH_LEVEL`.
    pub fn stall(&self, nanos: u64) {
        let clock = &self.world().clock;
        let Some(host) = self.owned_host().filter(|_| self.irql.get() < Irql::DISPATCH_LEVEL) else {
            return clock.stall(self.shared(), nanos);
        };
        let (cpu, deadline) = (self.cpu.get(), clock.now().saturating_add(nanos));
        host.cpus.set_stalling(cpu, Some(self.shared().clone()));
        while clock.now() < deadline {
            clock.park(self.shared(), Some(deadline));
            self.resume();
        }
        host.cpus.set_stalling(cpu, None);
    }

    /// Returns the CPUs that the thread may run on.
    #[must_use]
    pub fn affinity(&self) -> Affinity {
        self.affinity.get()
    }

    /// Restricts the thread to `affinity` and moves it to one of these CPUs. Called below `DISPATCH_LEVEL`.
    pub fn set_affinity(&self, affinity: Affinity) {
        self.affinity.set(affinity);
        if self.affinity.get().contains(self.cpu.get().0 as usize) {
            return;
        }
        if self.owned_host().is_some() {
            self.leave_processor();
            self.take_processor();
        } else if let Some(host) = self.try_host() {
            let allowed = (0..host.cpus.count()).find(|&cpu| self.affinity.get().contains(cpu as usize));
            self.cpu.set(CpuId(allowed.unwrap_or(0)));
        }
    }

    /// The body of a CPU's idle thread: runs the DPCs of its CPU once, or blocks until there are some.
    pub(crate) fn idle(&self, host: &Arc<Host>) {
        let (clock, cpu) = (&self.world().clock, self.cpu.get());
        if !host.cpus.run_owners_only() {
            if host.cpus.dpcs(cpu).is_requested() {
                let old = self.raise(Irql::DISPATCH_LEVEL);
                self.lower(old);
            } else {
                clock.park(self.shared(), None);
                self.stop_if_dead();
            }
        } else if host.cpus.give_to_idle_thread(cpu, self.shared()) {
            self.owns_processor.set(true);
            self.resume();
            self.leave_processor();
        } else {
            clock.park(self.shared(), None);
            self.stop_if_dead();
        }
    }

    /// Returns the host on which the thread owns its CPU at every level.
    fn owned_host(&self) -> Option<&Arc<Host>> {
        self.try_host().filter(|_| self.owns_processor.get())
    }

    /// Blocks until the thread owns a CPU.
    fn take_processor(&self) {
        if let Some(host) = self.try_host()
            && self.needs_processor
            && !self.owns_processor.get()
            && host.cpus.run_owners_only()
        {
            let clock = &self.world().clock;
            self.cpu.set(host.cpus.acquire(clock, self.shared(), self.cpu.get(), self.affinity.get()));
            self.owns_processor.set(true);
            self.resume();
        }
    }

    /// Gives up the thread's CPU after its DPCs; an idle CPU also runs those whose processing was not requested.
    fn leave_processor(&self) {
        let Some(host) = self.owned_host() else { return };
        let (cpus, cpu) = (&host.cpus, self.cpu.get());
        while cpus.dpcs(cpu).is_requested() || !(cpus.is_wanted(cpu) || cpus.dpcs(cpu).is_empty()) {
            self.dispatch_interrupt(host);
        }
        self.owns_processor.set(false);
        self.dispatch_requested.set(false);
        cpus.release(&self.world().clock, cpu);
    }

    /// Called when the thread runs again after others ran: its CPU's interrupts and DPCs come first.
    fn resume(&self) {
        self.stop_if_dead();
        let Some(host) = self.owned_host() else { return };
        while host.cpus.is_interrupted(self.cpu.get()) {
            self.world().clock.yield_now(self.shared());
            self.stop_if_dead();
        }
        if self.irql.get() < Irql::DISPATCH_LEVEL && host.cpus.dpcs(self.cpu.get()).is_requested() {
            self.dispatch_interrupt(host);
        }
    }
}
