// SPDX-License-Identifier: MIT OR Apache-2.0

//! OID requests that a driver has got and has not completed.

use std::{collections::BTreeMap, sync::Arc};

use ndk_abi::ndis::{NDIS_STATUS, NDIS_STATUS_PENDING};
use nt_sim::Event;
use parking_lot::Mutex;

use crate::wait::{OnExit, wait_until};

/// The requests that a driver has, by their addresses.
#[derive(Default)]
pub(crate) struct PendingOids(Mutex<BTreeMap<usize, Arc<Pending>>>);

/// A request that is in progress.
pub(crate) struct Pending {
    pub done: Event,
    status: Mutex<NDIS_STATUS>,
}

/// The right to do what one thread does at a time, such as to send a request to a driver that gets one at a time.
#[derive(Default)]
pub(crate) struct Turn(Mutex<bool>);

impl PendingOids {
    /// Records a request before the driver gets it; `done` is set by its completion.
    pub fn begin(&self, request: usize, done: Event) -> Arc<Pending> {
        let pending = Arc::new(Pending { done, status: Mutex::new(NDIS_STATUS_PENDING) });
        self.0.lock().insert(request, pending.clone());
        pending
    }

    /// Records the end of a request; `None` if it is not in progress.
    pub fn end(&self, request: usize) -> Option<Arc<Pending>> {
        self.0.lock().remove(&request)
    }

    /// Returns whether the driver has a request.
    pub fn has(&self, request: usize) -> bool {
        self.0.lock().contains_key(&request)
    }

    /// Waits until no request is in progress: NDIS does not halt an adapter that has some.
    pub fn wait_for_none(&self) {
        wait_until(|| self.0.lock().is_empty());
    }
}

impl Pending {
    /// Returns the status of the completion.
    pub fn status(&self) -> NDIS_STATUS {
        *self.status.lock()
    }

    pub fn complete(&self, status: NDIS_STATUS) {
        *self.status.lock() = status;
        self.done.set();
    }
}

impl Turn {
    /// Runs `body` while no other thread does so.
    pub fn during<T>(&self, body: impl FnOnce() -> T) -> T {
        wait_until(|| !std::mem::replace(&mut *self.0.lock(), true));
        let _end = OnExit(|| *self.0.lock() = false);
        body()
    }

    pub fn is_taken(&self) -> bool {
        *self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::panic;

    use nt_sim::{ClockKind, host::HostOptions};

    use super::*;

    #[test]
    fn a_turn_ends_with_a_panic_too() {
        let mut sim = crate::builder().clock(ClockKind::Deterministic { seed: 1 }).build();
        let host = sim.add_host(HostOptions::new("host"));
        let turns = || {
            let turn = Turn::default();
            let panicked = panic::catch_unwind(panic::AssertUnwindSafe(|| turn.during(|| panic!("inside"))));
            assert!(panicked.is_err() && !turn.is_taken());
            turn.during(|| assert!(turn.is_taken()));
            assert!(!turn.is_taken());
        };
        host.spawn("thread", turns).join().expect("the host lives");
    }
}
