// SPDX-License-Identifier: MIT OR Apache-2.0

//! The deferred procedure call (DPC): a routine that runs soon, at `DISPATCH_LEVEL`.

use crate::callback::Callback;
use crate::sys;

/// A `KDPC` with the routine it runs.
///
/// Queueing one that is already queued has no effect. Queueing one whose routine is running makes it run again,
/// possibly at the same time on another processor.
///
/// Dropping it removes it from its queue and waits for a running routine: at `PASSIVE_LEVEL`, and not from the
/// routine itself.
pub struct Dpc(sys::Dpc);

impl Dpc {
    /// Returns a DPC that is not queued, or `None` if there is no memory. IRQL <= `DISPATCH_LEVEL`.
    #[must_use]
    pub fn try_new<F: Fn() + Send + Sync + 'static>(routine: F) -> Option<Self> {
        sys::Dpc::try_new(Callback::try_new(routine).ok()?, None).map(Self)
    }

    /// Queues the routine to run soon. IRQL <= `DISPATCH_LEVEL`.
    pub fn queue(&self) {
        self.0.queue();
    }
}

/// Waits until all DPCs that are queued or running now, on any processor and of any driver, have returned. `PASSIVE_LEVEL`.
/// Hosted programs do not wait: their DPCs are threads.
pub fn flush_dpcs() {
    sys::flush_dpcs();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use crate::irql;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn queued_dpc_runs_at_dispatch_level() {
        let ran = Arc::new(Event::try_new().unwrap());
        let signal = Arc::clone(&ran);
        let dpc = Dpc::try_new(move || {
            assert_eq!(irql::current(), irql::DISPATCH_LEVEL);
            signal.set();
        })
        .unwrap();
        dpc.queue();
        assert!(ran.wait_for(Duration::from_secs(10)));
    }
}
