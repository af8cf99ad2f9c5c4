// SPDX-License-Identifier: MIT OR Apache-2.0

//! A lock for unit tests, which stands for the level of its holder; integration tests and benches have their
//! own.
#![allow(unsafe_code, reason = "implements an unsafe trait")]

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};

std::thread_local! {
    /// Locks that this thread holds: with one, it is at `DISPATCH_LEVEL`, where no thread preempts it.
    static HELD: Cell<u32> = const { Cell::new(0) };
    static PREEMPTIBLE: Cell<u32> = const { Cell::new(0) };
}

/// This thread comes where others may wait for it.
pub(crate) fn visit() {
    if HELD.get() == 0 {
        PREEMPTIBLE.set(PREEMPTIBLE.get() + 1);
    }
}

/// How often this thread came there without a lock, and could have been preempted by a waiting thread.
pub(crate) fn preemptible_visits() -> u32 {
    PREEMPTIBLE.get()
}

/// A spin lock that yields.
pub(crate) struct Lock(AtomicBool);

// SAFETY: exclusive between `lock` and `unlock`, by the compare-exchange, and ordered by its acquire and
// the store's release.
unsafe impl lock_api::RawMutex for Lock {
    #[allow(clippy::declare_interior_mutable_const, reason = "the trait wants it so")]
    const INIT: Self = Self(AtomicBool::new(false));
    type GuardMarker = lock_api::GuardNoSend;

    fn lock(&self) {
        while !self.try_lock() {
            std::thread::yield_now();
        }
    }

    fn try_lock(&self) -> bool {
        let taken = self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        HELD.set(HELD.get() + u32::from(taken));
        taken
    }

    unsafe fn unlock(&self) {
        HELD.set(HELD.get() - 1);
        self.0.store(false, Ordering::Release);
    }
}
