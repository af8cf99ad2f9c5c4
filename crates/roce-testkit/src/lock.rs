// SPDX-License-Identifier: MIT OR Apache-2.0

//! The lock of the test engines, and code that runs when it is released: what another processor could do at that moment.
#![allow(unsafe_code, reason = "implements an unsafe trait of locks")]

use std::cell::RefCell;
use std::ptr::from_ref;

/// Lock of the test engines.
pub struct Lock(parking_lot::RawMutex);

/// Called with the address of the lock.
type Released = Box<dyn FnMut(usize)>;

thread_local! {
    static RELEASED: RefCell<Option<Released>> = const { RefCell::new(None) };
}

/// Runs `call`. Whenever this thread has released a lock meanwhile, runs `released` with the lock's address, except for the
/// locks that `released` itself releases.
pub fn on_release<T>(released: impl FnMut(usize) + 'static, call: impl FnOnce() -> T) -> T {
    RELEASED.set(Some(Box::new(released)));
    let result = call();
    RELEASED.set(None);
    result
}

// SAFETY: the lock is the one inside, which is locked and unlocked with it.
unsafe impl lock_api::RawMutex for Lock {
    #[allow(clippy::declare_interior_mutable_const, reason = "the trait wants it so")]
    const INIT: Self = Self(parking_lot::RawMutex::INIT);
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        self.0.lock();
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.0.try_lock()
    }

    #[inline]
    unsafe fn unlock(&self) {
        // The address, not the lock: it may be gone as soon as it is released.
        let address = from_ref(self).addr();
        // SAFETY: the caller holds the lock.
        unsafe { self.0.unlock() };
        // Not if the thread ends.
        let taken = RELEASED.try_with(RefCell::take).ok().flatten();
        if let Some(mut released) = taken {
            released(address);
            RELEASED.set(Some(released));
        }
    }
}
