// SPDX-License-Identifier: MIT OR Apache-2.0

//! The spin lock.

use crate::sys;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use lock_api::{GuardNoSend, RawMutex};

/// A value behind a `KSPIN_LOCK`.
pub type SpinLock<T> = lock_api::Mutex<RawSpinLock, T>;
/// The guard of a [`SpinLock`]; the IRQL is `DISPATCH_LEVEL` while it lives.
pub type SpinLockGuard<'a, T> = lock_api::MutexGuard<'a, RawSpinLock, T>;

/// A `KSPIN_LOCK` and the IRQL that releasing it restores.
///
/// Acquiring raises the IRQL to `DISPATCH_LEVEL`, releasing restores the level before. Callable at <=
/// `DISPATCH_LEVEL`. Guards of several locks must be dropped in the reverse order of acquisition, or the IRQL would
/// be lowered while a lock is still held. Not recursive.
#[derive(Debug)]
pub struct RawSpinLock {
    /// The `KSPIN_LOCK`: 0 means free; other values are the kernel's.
    lock: AtomicUsize,
    /// Accessed by the lock's holder only: written after acquiring, read before releasing.
    previous_irql: AtomicU8,
}

// SAFETY: the kernel's spin lock (in hosted programs, a compare-and-swap loop) lets one holder in at a time and orders
// memory between holders; `try_lock` reports failure without acquiring.
unsafe impl RawMutex for RawSpinLock {
    #[allow(clippy::declare_interior_mutable_const)] // the trait's way to say "initial value"
    const INIT: Self = Self { lock: AtomicUsize::new(0), previous_irql: AtomicU8::new(0) };

    // An IRQL belongs to a processor: a guard must be dropped where it was taken.
    type GuardMarker = GuardNoSend;

    fn lock(&self) {
        let previous_irql = sys::acquire_spin_lock(&self.lock);
        self.previous_irql.store(previous_irql, Ordering::Relaxed);
    }

    fn try_lock(&self) -> bool {
        match sys::try_acquire_spin_lock(&self.lock) {
            Some(previous_irql) => {
                self.previous_irql.store(previous_irql, Ordering::Relaxed);
                true
            }
            None => false,
        }
    }

    unsafe fn unlock(&self) {
        let previous_irql = self.previous_irql.load(Ordering::Relaxed);
        // SAFETY: the caller holds the lock (contract of `RawMutex::unlock`), and `previous_irql` is the level
        // its acquisition returned.
        unsafe { sys::release_spin_lock(&self.lock, previous_irql) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::irql;
    use std::sync::Arc;

    #[test]
    fn irql_is_dispatch_level_while_a_lock_is_held() {
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
    fn failed_try_lock_does_not_change_the_irql() {
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
    fn increments_of_concurrent_threads_are_not_lost() {
        const EACH: u32 = if cfg!(miri) { 50 } else { 1000 };
        let sum = Arc::new(SpinLock::new(0));
        let threads = [(); 4].map(|()| {
            let sum = Arc::clone(&sum);
            std::thread::spawn(move || (0..EACH).for_each(|_| *sum.lock() += 1))
        });
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*sum.lock(), 4 * EACH);
    }
}
