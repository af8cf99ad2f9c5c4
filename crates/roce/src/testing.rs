//! A lock for unit tests; integration tests and benches have their own.
#![allow(unsafe_code, reason = "implements an unsafe trait")]

use core::sync::atomic::{AtomicBool, Ordering};

/// A spin lock that yields.
pub(crate) struct Lock(AtomicBool);

// SAFETY: exclusive between `lock` and `unlock`, by the compare-exchange, and ordered by its acquire and
// the store's release.
unsafe impl lock_api::RawMutex for Lock {
    #[allow(clippy::declare_interior_mutable_const, reason = "the trait wants it so")]
    const INIT: Self = Self(AtomicBool::new(false));
    type GuardMarker = lock_api::GuardSend;

    fn lock(&self) {
        while !self.try_lock() {
            std::thread::yield_now();
        }
    }

    fn try_lock(&self) -> bool {
        self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    unsafe fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
}
