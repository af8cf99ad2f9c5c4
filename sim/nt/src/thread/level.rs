// SPDX-License-Identifier: MIT OR Apache-2.0

//! Raising and lowering the IRQL.

use super::current::Thread;
use crate::{
    irql::Irql,
    verifier::{
        codes::BugCheck,
        report::violation,
        rules::{self, broken},
    },
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

    #[inline]
    fn check_no_lock_held(&self, level: Irql) {
        let held = self.locks.borrow().len();
        if held != 0 {
            broken(
                rules::LOCKS_RELEASED,
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                format!(
                    "the IRQL was lowered to {level} while {held} spin lock(s) are held; release them first"
                ),
            );
        }
    }
}
