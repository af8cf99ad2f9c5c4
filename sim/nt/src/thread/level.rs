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

    /// As [`Thread::raise`] to `DISPATCH_LEVEL` where nothing is checked and nothing has to be waited for; otherwise returns `None`
    /// and changes nothing. Runs on the image's stack.
    #[inline]
    pub(crate) fn raise_quickly(&self) -> Option<Irql> {
        let host = self.quick_host()?;
        let old = self.irql.get();
        if old > Irql::DISPATCH_LEVEL
            || old < Irql::DISPATCH_LEVEL && !host.cpus.try_acquire(self.cpu.get(), self.affinity.get())
        {
            return None;
        }
        self.irql.set(Irql::DISPATCH_LEVEL);
        Some(old)
    }

    /// Undoes [`Thread::raise_quickly`], which returned `old`; the thread has called nothing since.
    #[cold]
    pub(crate) fn undo_raise(&self, old: Irql) {
        self.irql.set(old);
        if old < Irql::DISPATCH_LEVEL
            && let Some(host) = self.try_host()
        {
            host.cpus.release(&self.world().clock, self.cpu.get());
        }
    }

    /// As [`Thread::lower`] from `DISPATCH_LEVEL` where nothing is checked and no DPC is queued; otherwise returns `None` and
    /// changes nothing. `before` runs before the CPU is released.
    #[inline]
    pub(crate) fn lower_quickly(&self, level: Irql, before: impl FnOnce()) -> Option<()> {
        let host = self.quick_host()?;
        let cpu = self.cpu.get();
        if self.irql.get() != Irql::DISPATCH_LEVEL
            || level > Irql::DISPATCH_LEVEL
            || host.cpus.dpcs(cpu).is_requested()
        {
            return None;
        }
        before();
        if level < Irql::DISPATCH_LEVEL {
            self.irql.set(level);
            host.cpus.release(&self.world().clock, cpu);
        }
        Some(())
    }

    /// Returns the host if a change of the IRQL is nothing but that.
    #[inline]
    fn quick_host(&self) -> Option<&Host> {
        let host = self.try_host().filter(|_| self.is_plain && !self.interrupt.get())?;
        let is_quick = !host.is_dead() && !host.delays.any() && !host.memory.paged.is_resident();
        is_quick.then_some(&**host)
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
