//! The spin lock.

use crate::sys;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use lock_api::{GuardNoSend, RawMutex};

/// A value behind a `KSPIN_LOCK`.
pub type SpinLock<T> = lock_api::Mutex<RawSpinLock, T>;
/// Holding it is being at `DISPATCH_LEVEL`.
pub type SpinLockGuard<'a, T> = lock_api::MutexGuard<'a, RawSpinLock, T>;

/// A `KSPIN_LOCK` and the IRQL its holder came from.
///
/// Acquiring raises to `DISPATCH_LEVEL`, releasing returns to the level before: callable at <=
/// `DISPATCH_LEVEL`, and guards of several locks are dropped in the reverse order of their acquisition, or
/// the level would be lowered under a lock that is still held. Not recursive.
#[derive(Debug)]
pub struct RawSpinLock {
    /// The `KSPIN_LOCK`: 0 is free, the rest is the kernel's.
    lock: AtomicUsize,
    /// Written by the holder alone, after acquiring; read by it before releasing.
    came_from: AtomicU8,
}

// SAFETY: the kernel's spin lock (on hosts, a compare-and-swap loop) lets one holder in at a time and orders
// memory between holders; `try_lock` reports failure without acquiring.
unsafe impl RawMutex for RawSpinLock {
    #[allow(clippy::declare_interior_mutable_const)] // the trait's way to say "initial value"
    const INIT: Self = Self { lock: AtomicUsize::new(0), came_from: AtomicU8::new(0) };

    // An IRQL belongs to a processor: a guard must be dropped where it was taken.
    type GuardMarker = GuardNoSend;

    fn lock(&self) {
        let came_from = sys::acquire_spin_lock(&self.lock);
        self.came_from.store(came_from, Ordering::Relaxed);
    }

    fn try_lock(&self) -> bool {
        match sys::try_acquire_spin_lock(&self.lock) {
            Some(came_from) => {
                self.came_from.store(came_from, Ordering::Relaxed);
                true
            }
            None => false,
        }
    }

    unsafe fn unlock(&self) {
        let came_from = self.came_from.load(Ordering::Relaxed);
        // SAFETY: the caller holds the lock (contract of `RawMutex::unlock`), and `came_from` is the level
        // its acquisition returned.
        unsafe { sys::release_spin_lock(&self.lock, came_from) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::irql;
    use std::sync::Arc;

    #[test]
    fn holding_the_lock_is_being_at_dispatch_level() {
        let (outer, inner) = (SpinLock::new(()), SpinLock::new(()));
        {
            let _outer = outer.lock();
            assert_eq!(irql::current(), irql::DISPATCH_LEVEL);
            {
                let _inner = inner.lock();
            }
            assert_eq!(irql::current(), irql::DISPATCH_LEVEL);
        }
        assert_eq!(irql::current(), irql::PASSIVE_LEVEL);
    }

    #[test]
    fn a_failed_attempt_leaves_the_level_alone() {
        let lock = Arc::new(SpinLock::new(0));
        let held = lock.lock();
        let other = Arc::clone(&lock);
        std::thread::spawn(move || {
            assert!(other.try_lock().is_none());
            assert_eq!(irql::current(), irql::PASSIVE_LEVEL);
        })
        .join()
        .unwrap();
        drop(held);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn no_increment_is_lost_between_threads() {
        let sum = Arc::new(SpinLock::new(0));
        let threads = [(); 4].map(|()| {
            let sum = Arc::clone(&sum);
            std::thread::spawn(move || (0..1000).for_each(|_| *sum.lock() += 1))
        });
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*sum.lock(), 4000);
    }
}
