// SPDX-License-Identifier: MIT OR Apache-2.0

//! Raising and lowering the IRQL, and running at a device level as an interrupt does.

use super::current::{Thread, current};
use crate::{
    cpu::id::CpuId,
    host::Host,
    irql::Irql,
    verifier::{codes::BugCheck, report::violation},
};

impl Thread {
    /// Raises the IRQL and returns the old level. At `DISPATCH_LEVEL` and above the thread owns its CPU.
    /// A level below the current one is a violation.
    pub fn raise(&self, level: Irql) -> Irql {
        let old = self.irql.get();
        if level < old {
            violation(
                BugCheck::IRQL_NOT_GREATER_OR_EQUAL,
                format!("KeRaiseIrql to {level} at {old}: the new level must not be below the current one"),
            );
        }
        if level >= Irql::DISPATCH_LEVEL
            && !self.interrupt.get()
            && let Some(host) = self.try_host()
        {
            if old < Irql::DISPATCH_LEVEL {
                self.enter_dispatch_level(host);
            }
            if level > Irql::DISPATCH_LEVEL {
                host.cpus.set_device_level(self.cpu.get(), level);
            }
        }
        self.irql.set(level);
        self.trim_pageable();
        old
    }

    /// Lowers the IRQL. Before it falls below `DISPATCH_LEVEL`, the DPCs queued on the CPU run.
    /// A level above the current one is a violation.
    pub fn lower(&self, level: Irql) {
        let old = self.irql.get();
        if level > old {
            violation(
                BugCheck::IRQL_NOT_LESS_OR_EQUAL,
                format!("KeLowerIrql to {level} at {old}: the new level must not be above the current one"),
            );
        }
        if level < Irql::DISPATCH_LEVEL && old >= Irql::DISPATCH_LEVEL {
            self.check_no_lock_held(level);
        }
        if !self.interrupt.get()
            && let Some(host) = self.try_host()
        {
            if old > Irql::DISPATCH_LEVEL {
                host.cpus.set_device_level(self.cpu.get(), level);
            }
            if level < Irql::DISPATCH_LEVEL && old >= Irql::DISPATCH_LEVEL {
                self.irql.set(Irql::DISPATCH_LEVEL);
                self.leave_dispatch_level(host);
            }
        }
        self.irql.set(level);
    }

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

    #[inline]
    fn check_no_lock_held(&self, level: Irql) {
        let held = self.locks.borrow().len();
        if held != 0 {
            violation(
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                format!(
                    "the IRQL was lowered to {level} while {held} spin lock(s) are held; release them first"
                ),
            );
        }
    }
}

impl Host {
    /// Runs an interrupt service routine on `cpu` at `level`, from the hardware thread: it interrupts the thread
    /// that runs there.
    pub fn interrupt(&self, cpu: CpuId, level: Irql, routine: impl FnOnce() + Send + 'static) {
        self.post(move || current().interrupt(cpu, level, routine));
    }
}
