//! What a pause waits for: handlers that move frames between NDIS and the device, and received lists that the stack
//! holds.
//!
//! One word holds their count and whether traffic is stopped, so that there is exactly one last to leave, who knows it:
//! `MiniportPause` when it finds nobody inside, else whoever leaves last after it.

use core::sync::atomic::{AtomicU32, Ordering};

/// Nobody enters any more; the count is in the bits above.
const STOPPED: u32 = 1;
const ONE: u32 = 2;

/// Traffic between NDIS and the device; stopped at first.
pub struct Traffic(AtomicU32);

impl Traffic {
    pub const fn new() -> Self {
        Self(AtomicU32::new(STOPPED))
    }

    /// Lets traffic in. Nobody is inside: the pause before is over.
    pub fn start(&self) {
        self.0.fetch_and(!STOPPED, Ordering::AcqRel);
    }

    /// Lets nobody in any more; `true` if nobody is inside, else somebody's [`leave`](Self::leave) will return `true`.
    pub fn stop(&self) -> bool {
        self.0.fetch_or(STOPPED, Ordering::AcqRel) < ONE
    }

    /// Goes inside; `false` when traffic is stopped.
    #[must_use]
    pub fn enter(&self) -> bool {
        let enter = |word: u32| if word & STOPPED == 0 { word.checked_add(ONE) } else { None };
        self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, enter).is_ok()
    }

    /// Takes one more inside, by somebody who is.
    pub fn join(&self) {
        self.0.fetch_add(ONE, Ordering::AcqRel);
    }

    /// `count` leave; `true` for the last one after [`stop`](Self::stop), who must complete the pause. For all others
    /// this is the last touch of the adapter on behalf of those who left.
    #[must_use]
    pub fn leave(&self, count: u32) -> bool {
        let left = count.wrapping_mul(ONE);
        count != 0 && self.0.fetch_sub(left, Ordering::AcqRel) == STOPPED.wrapping_add(left)
    }
}
