// SPDX-License-Identifier: MIT OR Apache-2.0

//! The number of threads that resolve the next hops of connections anew.

use core::sync::atomic::{AtomicU32, Ordering};

/// Threads at a time. A peer that does not answer occupies one for seconds.
const MAX_RESOLVERS: u32 = 8;

/// The threads in use.
pub struct Resolvers(AtomicU32);

impl Resolvers {
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Claims a thread. Returns `false` if all are in use.
    pub fn claim(&self) -> bool {
        let more = |used: u32| (used < MAX_RESOLVERS).then_some(used.wrapping_add(1));
        self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }

    /// Releases a thread that was claimed.
    pub fn release(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
