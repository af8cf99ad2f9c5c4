// SPDX-License-Identifier: MIT OR Apache-2.0

//! Delays of the calling thread that a test has requested.

use super::current::Thread;
use crate::{delays::Moment, host::Host, irql::Irql};

impl Thread {
    /// Called before a function of the image is called.
    #[inline]
    pub(crate) fn delay_call(&self, what: &str) {
        if let Some(host) = self.try_host()
            && host.delays.any()
        {
            self.delay(host, |moment| matches!(moment, Moment::Call(name) if name == what));
        }
    }

    /// Called before an import does anything.
    #[inline]
    pub(crate) fn delay_entry(&self, import: &str) {
        if let Some(host) = self.try_host()
            && host.delays.any()
        {
            self.delay(host, |moment| matches!(moment, Moment::Enter(name) if name == import));
        }
    }

    /// Called before an import returns.
    #[inline]
    pub(crate) fn delay_return(&self, import: &str) {
        if let Some(host) = self.try_host()
            && host.delays.any()
        {
            let in_dpc = self.dpcs_of.get().is_some();
            self.delay(host, |moment| match moment {
                Moment::Return(name) => !in_dpc && name == import,
                Moment::ReturnToDpc(name) => in_dpc && name == import,
                Moment::Call(_) | Moment::Enter(_) => false,
            });
        }
    }

    #[cold]
    fn delay(&self, host: &Host, is_now: impl Fn(Moment) -> bool) {
        let Some(nanos) = host.delays.take(is_now) else { return };
        let clock = &self.world().clock;
        if self.irql.get() >= Irql::DISPATCH_LEVEL {
            clock.stall(self.shared(), nanos);
            self.stop_if_dead();
            return;
        }
        let deadline = clock.now().saturating_add(nanos);
        while clock.now() < deadline {
            self.park(Some(deadline));
        }
    }
}
