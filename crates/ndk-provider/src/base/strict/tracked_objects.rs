// SPDX-License-Identifier: MIT OR Apache-2.0

//! The objects that a strict provider knows: the open ones, and the memory of closed ones, which it keeps for a while so
//! that a call on a closed object is recognized.

use alloc::vec::Vec;
use core::ffi::c_void;
use core::ptr::NonNull;
use roce::Sge;

/// Closed objects whose memory is kept.
const RETAINED: usize = 1024;

/// Returns whether a request posted to an object has an element that the function accepts.
pub type HasElement = unsafe fn(NonNull<c_void>, &dyn Fn(&Sge) -> bool) -> bool;

/// An open object of any type.
#[derive(Clone, Copy)]
pub struct OpenObject {
    pub object: NonNull<c_void>,
    /// Returns whether the first object must be closed before the second.
    pub depends_on: unsafe fn(NonNull<c_void>, NonNull<c_void>) -> bool,
    pub has_element: HasElement,
}

/// The memory of a closed object.
pub struct RetainedMemory {
    pub object: NonNull<c_void>,
    /// Frees the memory.
    pub free: unsafe fn(NonNull<c_void>),
}

// SAFETY: the address of an object that is `Send + Sync`, and functions of its type.
unsafe impl Send for OpenObject {}
// SAFETY: memory that nothing refers to but its own address.
unsafe impl Send for RetainedMemory {}

impl Drop for RetainedMemory {
    fn drop(&mut self) {
        // SAFETY: `free` fits the memory, which is freed once.
        unsafe { (self.free)(self.object) };
    }
}

/// The objects of one provider.
pub struct TrackedObjects {
    open: Vec<OpenObject>,
    retained: Vec<RetainedMemory>,
    /// Where the next retained memory replaces the oldest, once there is no more room.
    oldest: usize,
}

impl TrackedObjects {
    pub const fn new() -> Self {
        Self { open: Vec::new(), retained: Vec::new(), oldest: 0 }
    }

    /// Adds an open object. Without memory it is not tracked, which only means that fewer mistakes are found.
    pub fn add(&mut self, object: OpenObject) {
        let _ = fallible::vec::push(&mut self.open, object);
    }

    /// Removes an object that is being closed.
    pub fn remove(&mut self, object: NonNull<c_void>) {
        self.open.retain(|open| open.object != object);
    }

    /// Keeps the memory of a closed object. Returns memory to drop, without a lock.
    pub fn retain(&mut self, memory: RetainedMemory) -> Option<RetainedMemory> {
        if self.retained.len() < RETAINED {
            return fallible::vec::push_or_return(&mut self.retained, memory).err();
        }
        let slot = self.retained.get_mut(self.oldest);
        self.oldest = self.oldest.wrapping_add(1) % RETAINED;
        match slot {
            Some(slot) => Some(core::mem::replace(slot, memory)),
            None => Some(memory),
        }
    }

    /// Returns an open object that must be closed before `object`.
    pub fn dependent(&self, object: NonNull<c_void>) -> Option<NonNull<c_void>> {
        // SAFETY: an open object is not freed: it is removed from the list before its close releases it.
        self.open
            .iter()
            .find(|open| unsafe { (open.depends_on)(open.object, object) })
            .map(|open| open.object)
    }

    /// Returns whether a request posted to an open object has an element that `wanted` accepts.
    pub fn has_element(&self, wanted: &dyn Fn(&Sge) -> bool) -> bool {
        // SAFETY: as above.
        self.open.iter().any(|open| unsafe { (open.has_element)(open.object, wanted) })
    }
}
