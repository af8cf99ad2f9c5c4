// SPDX-License-Identifier: MIT OR Apache-2.0

//! Running at a device level as an interrupt does.

use super::current::{Thread, current};
use crate::{cpu::id::CpuId, host::Host, irql::Irql};

impl Thread {
    /// Runs `body` as an interrupt service routine runs: at a device level on `cpu`, above the thread that runs
    /// there. Under the deterministic clock that thread does not go on meanwhile, and must be below `level` first.
    pub fn interrupt<T>(&self, cpu: CpuId, level: Irql, body: impl FnOnce() -> T) -> T {
        let cpus = self.try_host().map(|host| &host.cpus);
        while cpus.is_some_and(|cpus| !cpus.begin_interrupt(cpu, level)) {
            self.yield_now();
        }
        let before = (self.irql.replace(level), self.cpu.replace(cpu), self.interrupt.replace(true));
        self.trim_pageable();
        let clock = &self.world().clock;
        if let Some(host) = self.try_host()
            && self.verifies()
            && clock.is_deterministic()
        {
            self.watchdog.begin_routine(&host.options().watchdog, clock.now());
        }
        let result = body();
        self.watchdog.end_routine();
        self.irql.set(before.0);
        self.cpu.set(before.1);
        self.interrupt.set(before.2);
        if let Some(cpus) = cpus {
            cpus.end_interrupt(cpu);
        }
        result
    }
}

impl Host {
    /// Runs an interrupt service routine on `cpu` at `level`, from the hardware thread: it interrupts the thread
    /// that runs there.
    pub fn interrupt(&self, cpu: CpuId, level: Irql, routine: impl FnOnce() + Send + 'static) {
        self.post(move || current().interrupt(cpu, level, routine));
    }
}
