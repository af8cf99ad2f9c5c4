// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counts work in progress, and waits for its end.

use core::sync::atomic::{AtomicUsize, Ordering};

use driver_support::status::Result;
use ndk_abi::nt::STATUS_INSUFFICIENT_RESOURCES;
use nt::Event;

/// Set when no more work is admitted; the bits above count the work in progress.
const CLOSED: usize = 1;
const ONE: usize = 2;

/// Admits work until it is closed. Like rundown protection, for work that ends on another thread than it began on.
pub struct Tally {
    state: AtomicUsize,
    ended: Event,
}

impl Tally {
    pub fn new() -> Result<Self> {
        let ended = Event::try_new().ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
        Ok(Self { state: AtomicUsize::new(0), ended })
    }

    /// Admits one piece of work, which must end with [`leave`](Self::leave); false if the tally is closed. IRQL <=
    /// `DISPATCH_LEVEL`.
    pub fn enter(&self) -> bool {
        self.state
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |state| {
                (state & CLOSED == 0).then_some(state).and_then(|state| state.checked_add(ONE))
            })
            .is_ok()
    }

    /// Ends one piece of work. IRQL <= `DISPATCH_LEVEL`.
    pub fn leave(&self) {
        if self.state.fetch_sub(ONE, Ordering::AcqRel) == ONE | CLOSED {
            self.ended.set();
        }
    }

    /// Admits no more work, and waits for the work in progress. `PASSIVE_LEVEL`.
    pub fn close(&self) {
        if self.state.fetch_or(CLOSED, Ordering::AcqRel) >= ONE {
            self.ended.wait();
        }
    }
}
