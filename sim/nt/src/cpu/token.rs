// SPDX-License-Identifier: MIT OR Apache-2.0

//! The dispatch token of one CPU under the threaded clock.

use parking_lot::{RawMutex, lock_api::RawMutex as _};

/// A lock without a guard. The operating system selects the next owner.
pub struct Token(RawMutex);

impl Token {
    pub fn new() -> Self {
        Self(RawMutex::INIT)
    }

    pub fn try_acquire(&self) -> bool {
        self.0.try_lock()
    }

    pub fn acquire(&self) {
        self.0.lock();
    }

    pub fn release(&self) {
        // SAFETY: the token is held by the thread that lowers its IRQL below DISPATCH_LEVEL: it was acquired when
        // that thread's IRQL rose.
        unsafe { self.0.unlock() }
    }
}
