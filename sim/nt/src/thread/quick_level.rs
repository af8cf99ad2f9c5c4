// SPDX-License-Identifier: MIT OR Apache-2.0

//! Changes of the IRQL that are nothing but that: nothing is checked, nothing has to be waited for, and no DPC runs. They happen on the
//! image's stack.

use super::current::Thread;
use crate::{host::Host, irql::Irql};

/// A thread whose IRQL can change without more.
pub(crate) struct QuickLevel<'a> {
    thread: &'a Thread,
    host: &'a Host,
}

impl<'a> QuickLevel<'a> {
    /// `None` if a change of the thread's IRQL may be more than that.
    #[inline]
    pub(crate) fn of(thread: &'a Thread) -> Option<Self> {
        let host = thread.try_host().filter(|_| thread.is_plain && !thread.interrupt.get())?;
        let is_quick = !host.is_dead() && !host.delays.any() && !host.memory.paged.is_resident();
        is_quick.then_some(Self { thread, host })
    }

    /// Raises to `DISPATCH_LEVEL` as [`Thread::raise`] does; otherwise returns `None` and changes nothing.
    #[inline]
    pub(crate) fn raise(&self) -> Option<Irql> {
        let Self { thread, host } = self;
        let old = thread.irql.get();
        if old > Irql::DISPATCH_LEVEL
            || old < Irql::DISPATCH_LEVEL && !host.cpus.try_acquire(thread.cpu.get(), thread.affinity.get())
        {
            return None;
        }
        thread.irql.set(Irql::DISPATCH_LEVEL);
        Some(old)
    }

    /// Undoes [`raise`](Self::raise), which returned `old`; the thread has called nothing since.
    #[cold]
    pub(crate) fn undo_raise(&self, old: Irql) {
        self.thread.irql.set(old);
        if old < Irql::DISPATCH_LEVEL {
            self.host.cpus.release(&self.thread.world().clock, self.thread.cpu.get());
        }
    }

    /// Lowers from `DISPATCH_LEVEL` as [`Thread::lower`] does; otherwise returns `None` and changes nothing. `before` runs before the CPU is
    /// released.
    #[inline]
    pub(crate) fn lower(&self, level: Irql, before: impl FnOnce()) -> Option<()> {
        let Self { thread, host } = self;
        let cpu = thread.cpu.get();
        if thread.irql.get() != Irql::DISPATCH_LEVEL
            || level > Irql::DISPATCH_LEVEL
            || host.cpus.dpcs(cpu).is_requested()
        {
            return None;
        }
        before();
        if level < Irql::DISPATCH_LEVEL {
            thread.irql.set(level);
            host.cpus.release(&thread.world().clock, cpu);
        }
        Some(())
    }
}
