// SPDX-License-Identifier: MIT OR Apache-2.0

//! Running DPCs on top of the calling thread.
//!
//! A thread at `DISPATCH_LEVEL` owns its CPU and runs the CPU's queued DPCs before it returns to a lower level. A
//! thread that owns its CPU at every level (under the deterministic clock) also runs those that others queued
//! meanwhile, as soon as it runs again. Else the CPU's idle thread runs them.

use std::{ptr, sync::Arc, time::Duration};

use super::{
    current::{Thread, try_current},
    watchdog::Remaining,
};
use crate::{
    clock::Work,
    cpu::{
        dpc::{Dpc, Queue},
        id::CpuId,
    },
    host::Host,
    image::stack,
    irql::Irql,
    verifier::{codes::BugCheck, report::violation},
};

impl Thread {
    /// Begins to be at `DISPATCH_LEVEL` or above: the thread owns a CPU.
    #[inline]
    pub(super) fn enter_dispatch_level(&self, host: &Arc<Host>) {
        let clock = &self.world().clock;
        if !self.owns_processor.get() {
            self.cpu.set(host.cpus.acquire(clock, self.shared(), self.cpu.get(), self.affinity.get()));
        }
        // Where time is real, reading it costs more than all the rest.
        if self.verifies() && clock.is_deterministic() {
            self.watchdog.begin_level(&host.options().watchdog, clock.now());
        }
    }

    /// Ends to be at `DISPATCH_LEVEL`: runs the DPCs whose processing is requested first.
    #[inline]
    pub(super) fn leave_dispatch_level(&self, host: &Arc<Host>) {
        let queue = host.cpus.dpcs(self.cpu.get());
        if queue.is_requested() {
            self.run_dpcs(host, queue);
        }
        self.watchdog.end_level();
        if !self.owns_processor.get() {
            host.cpus.release(&self.world().clock, self.cpu.get());
        }
    }

    /// Runs the DPCs of the thread's CPU, which it owns, on top of what it does below `DISPATCH_LEVEL`.
    pub(super) fn dispatch_interrupt(&self, host: &Arc<Host>) {
        let old = self.irql.replace(Irql::DISPATCH_LEVEL);
        self.trim_pageable();
        self.run_dpcs(host, host.cpus.dpcs(self.cpu.get()));
        self.watchdog.end_level();
        self.irql.set(old);
    }

    /// Removes access to the host's pageable memory while the thread is at `DISPATCH_LEVEL` or above.
    #[inline]
    pub(crate) fn trim_pageable(&self) {
        if self.irql.get() >= Irql::DISPATCH_LEVEL
            && let Some(host) = self.try_host()
        {
            host.memory.paged.trim();
        }
    }

    /// Runs queued DPCs until none is left.
    fn run_dpcs(&self, host: &Arc<Host>, queue: &Queue) {
        let before = (self.acting.get(), self.dpcs_of.replace(Some(self.cpu.get())));
        if let Some(idle) = queue.idle_thread() {
            self.acting.set(idle.id);
        }
        stack::on_dpc_stack(|| {
            let mut now = if self.verifies() { self.world().now() } else { 0 };
            loop {
                self.dispatch_requested.set(false);
                queue.clear_request();
                while let Some(dpc) = queue.pop() {
                    now = self.run_dpc(host, dpc, now);
                }
                if !queue.is_requested() {
                    break;
                }
            }
        });
        self.acting.set(before.0);
        self.dpcs_of.set(before.1);
    }

    /// Runs a DPC. `now` is the time; returns the time afterwards. Both are 0 without the verifier.
    fn run_dpc(&self, host: &Host, dpc: Dpc, now: u64) -> u64 {
        let clock = &self.world().clock;
        clock.charge(Work::Dpc);
        if self.verifies() {
            let limits = &host.options().watchdog;
            self.watchdog.begin_level(limits, now);
            self.watchdog.begin_routine(limits, now);
        }
        (dpc.routine)();
        self.stop_if_dead();
        if !self.verifies() {
            return 0;
        }
        let now = clock.now();
        self.check_watchdog(now);
        self.watchdog.end_routine();
        now
    }

    /// Reports a violation when the DPC watchdog's time is over.
    #[inline]
    pub(super) fn check_watchdog(&self, now: u64) {
        if self.watchdog.is_over(now) {
            self.report_watchdog(now);
        }
    }

    #[cold]
    fn report_watchdog(&self, now: u64) -> ! {
        let limits = self.host().options().watchdog;
        let text = if self.watchdog.remaining(now).routine == Some(Duration::ZERO) {
            format!("0x0: a DPC or interrupt service routine took longer than {:?}", limits.routine)
        } else {
            format!("0x1: more than {:?} were spent at DISPATCH_LEVEL or above", limits.cumulative)
        };
        self.watchdog.end_level();
        violation(BugCheck::DPC_WATCHDOG_VIOLATION, text)
    }

    /// Returns how much time the DPC watchdog leaves.
    #[must_use]
    pub fn watchdog_remaining(&self) -> Remaining {
        self.watchdog.remaining(self.world().now())
    }

    /// Returns whether the thread owns this CPU, so that it runs the CPU's DPCs itself.
    fn owns(&self, cpu: CpuId) -> bool {
        self.cpu.get() == cpu
            && !self.interrupt.get()
            && (self.owns_processor.get() || self.irql.get() >= Irql::DISPATCH_LEVEL)
    }
}

impl Host {
    /// Queues a host-side routine to run at `DISPATCH_LEVEL` on `cpu`: never before this returns.
    pub fn queue_dpc(&self, cpu: CpuId, routine: impl FnOnce() + Send + 'static) {
        self.cpus.dpcs(cpu).push(Dpc { key: 0, routine: Box::new(routine) }, false);
        self.request_dispatch(cpu);
    }

    /// Requests that the DPC queue of a CPU is processed. A calling thread that owns the CPU does it when its IRQL
    /// falls below `DISPATCH_LEVEL`, or at its next call of an import when it is below.
    pub(crate) fn request_dispatch(&self, cpu: CpuId) {
        let me =
            try_current().filter(|me| me.try_host().is_some_and(|host| ptr::eq(&raw const **host, self)));
        match me {
            Some(me) if me.owns(cpu) => {
                self.cpus.dpcs(cpu).request();
                me.dispatch_requested.set(true);
            }
            _ => self.cpus.request_dispatch(&self.world().clock, cpu),
        }
    }
}
