// SPDX-License-Identifier: MIT OR Apache-2.0

//! A lock and an atomic word for model checking: code that is generic over them runs in loom as it is.
//!
//! Models are unit tests of the crates that they check, in modules named `models`; `cargo xtask models` runs them all.
#![allow(unsafe_code, reason = "implements unsafe traits of locks")]

mod word;

pub use loom;

use std::cell::UnsafeCell;
use std::sync::OnceLock;

use loom::sync::{Mutex, MutexGuard};

/// A [`lock_api::RawMutex`] whose acquisitions loom schedules. For use inside of `loom::model` only.
pub struct ModelLock {
    /// Made at the first use: loom's objects belong to an execution of the model.
    mutex: OnceLock<Mutex<()>>,
    /// The guard of the thread that holds the lock.
    guard: UnsafeCell<Option<MutexGuard<'static, ()>>>,
}

// SAFETY: `guard` is accessed by the thread that holds `mutex` only.
unsafe impl Send for ModelLock {}
// SAFETY: a reference to the lock alone reaches `guard` under `mutex` only.
unsafe impl Sync for ModelLock {}

// SAFETY: loom's mutex lets one thread in at a time.
unsafe impl lock_api::RawMutex for ModelLock {
    #[allow(clippy::declare_interior_mutable_const, reason = "the trait wants it so")]
    const INIT: Self = Self { mutex: OnceLock::new(), guard: UnsafeCell::new(None) };
    type GuardMarker = lock_api::GuardNoSend;

    fn lock(&self) {
        let mutex = self.mutex.get_or_init(|| Mutex::new(()));
        self.keep(mutex.lock().expect("no thread panics with the lock held"));
    }

    fn try_lock(&self) -> bool {
        let mutex = self.mutex.get_or_init(|| Mutex::new(()));
        let guard = mutex.try_lock();
        guard.map(|guard| self.keep(guard)).is_ok()
    }

    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the mutex.
        let guard = unsafe { (*self.guard.get()).take() };
        drop(guard);
    }
}

impl ModelLock {
    /// Keeps the guard until `unlock`.
    fn keep(&self, guard: MutexGuard<'_, ()>) {
        // SAFETY: the mutex does not move while it is locked, and `unlock` drops the guard before the lock is dropped.
        let guard = unsafe { core::mem::transmute::<MutexGuard<'_, ()>, MutexGuard<'static, ()>>(guard) };
        // SAFETY: this thread holds the mutex.
        unsafe { *self.guard.get() = Some(guard) };
    }
}
