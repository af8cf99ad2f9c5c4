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
        if old < Irql::DISPATCH_LEVEL
            && level >= Irql::DISPATCH_LEVEL
            && let Some(host) = self.try_host()
        {
            self.cpu.set(host.cpus.acquire(
                &self.world().clock,
                self.shared(),
                self.cpu.get(),
                self.pinned.get(),
            ));
        }
        self.irql.set(level);
        self.trim_pageable();
        old
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

    /// Lowers the IRQL; below `DISPATCH_LEVEL` the thread releases its CPU.
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
            self.irql.set(level);
            if !self.interrupt.get()
                && let Some(host) = self.try_host()
            {
                host.cpus.release(&self.world().clock, self.cpu.get());
            }
        }
        self.irql.set(level);
    }

    /// Runs `body` as an interrupt service routine runs: at a device level on `cpu`, above the thread that runs
    /// there.
    pub fn interrupt<T>(&self, cpu: CpuId, level: Irql, body: impl FnOnce() -> T) -> T {
        let before = (self.irql.replace(level), self.cpu.replace(cpu), self.interrupt.replace(true));
        self.trim_pageable();
        let result = body();
        self.irql.set(before.0);
        self.cpu.set(before.1);
        self.interrupt.set(before.2);
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
