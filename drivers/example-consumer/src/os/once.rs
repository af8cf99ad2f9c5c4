// SPDX-License-Identifier: MIT OR Apache-2.0

//! A cell that is set once.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU8, Ordering};

const EMPTY: u8 = 0;
const SETTING: u8 = 1;
const SET: u8 = 2;

/// A value that is set once and read without a lock. Any IRQL.
///
/// A callback's context has to exist before the object whose callback it serves; the object's address comes into the
/// context through such a cell.
pub struct Once<T> {
    state: AtomicU8,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the value is written once, by the thread that moved the state from EMPTY, and only shared after the state is
// SET.
unsafe impl<T: Send + Sync> Sync for Once<T> {}

impl<T> Once<T> {
    pub const fn new() -> Self {
        Self { state: AtomicU8::new(EMPTY), value: UnsafeCell::new(None) }
    }

    /// Sets the value. Returns it if there is one already.
    pub fn set(&self, value: T) -> Result<(), T> {
        if self.state.compare_exchange(EMPTY, SETTING, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Err(value);
        }
        // SAFETY: only the thread that moved the state from EMPTY gets here, and readers wait for SET.
        unsafe { *self.value.get() = Some(value) };
        self.state.store(SET, Ordering::Release);
        Ok(())
    }

    /// Returns the value, if it is set.
    pub fn get(&self) -> Option<&T> {
        if self.state.load(Ordering::Acquire) != SET {
            return None;
        }
        // SAFETY: nothing writes the value after it is SET.
        unsafe { &*self.value.get() }.as_ref()
    }
}
