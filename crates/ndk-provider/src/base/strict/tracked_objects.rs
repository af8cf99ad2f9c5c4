// SPDX-License-Identifier: MIT OR Apache-2.0

//! The objects that a strict provider knows: the open ones, and the memory of closed ones, which it keeps for a while so
//! that a call on a closed object is recognized.

use alloc::vec::Vec;
use core::cell::Cell;
use core::ffi::c_void;
use core::ptr::NonNull;
use roce::Sge;

/// Closed objects whose memory is kept.
const RETAINED: usize = 1024;

/// Open objects that one search looks at, the newest first, and elements of their requests. A search runs at
/// `DISPATCH_LEVEL` with a lock held; beyond these numbers, mistakes are not found.
const SEARCHED: usize = 1024;
const ELEMENTS: usize = 8192;

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

    /// Removes an object that is being closed. Compares addresses only.
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
        let depends = |open: &&OpenObject| unsafe { (open.depends_on)(open.object, object) };
        self.newest().find(depends).map(|open| open.object)
    }

    /// Returns whether a request posted to an open object has an element that `wanted` accepts.
    pub fn has_element(&self, wanted: &dyn Fn(&Sge) -> bool) -> bool {
        let (left, found) = (Cell::new(ELEMENTS), Cell::new(false));
        // Accepts the element at which the search ends.
        let accepts = |sge: &Sge| {
            found.set(wanted(sge));
            left.set(left.get().saturating_sub(1));
            found.get() || left.get() == 0
        };
        // SAFETY: the object is open while it is in the list of open objects, and this list is not changed meanwhile.
        let ends = |open: &OpenObject| unsafe { (open.has_element)(open.object, &accepts) };
        self.newest().any(ends) && found.get()
    }

    fn newest(&self) -> impl Iterator<Item = &OpenObject> {
        self.open.iter().rev().take(SEARCHED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::vec::Vec;

    std::thread_local! {
        static CALLS: Cell<usize> = const { Cell::new(0) };
    }

    unsafe fn depends_on(_: NonNull<c_void>, _: NonNull<c_void>) -> bool {
        CALLS.set(CALLS.get() + 1);
        false
    }

    /// An object with 4096 elements, none of which is wanted.
    unsafe fn has_element(_: NonNull<c_void>, wanted: &dyn Fn(&Sge) -> bool) -> bool {
        (0..4096).any(|_| {
            CALLS.set(CALLS.get() + 1);
            wanted(&Sge::default())
        })
    }

    /// Returns a list of this many objects, and their addresses.
    fn many(count: usize) -> (TrackedObjects, Vec<NonNull<c_void>>) {
        let mut objects = TrackedObjects::new();
        let address =
            |index: usize| NonNull::without_provenance(core::num::NonZero::new(64 * index + 64).unwrap());
        let addresses: Vec<_> = (0..count).map(address).collect();
        for &object in &addresses {
            objects.add(OpenObject { object, depends_on, has_element });
        }
        (objects, addresses)
    }

    std::thread_local! {
        static FREED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    }

    unsafe fn free(object: NonNull<c_void>) {
        FREED.with_borrow_mut(|freed| freed.push(object.addr().get()));
    }

    fn memory(number: usize) -> RetainedMemory {
        let address = core::num::NonZero::new(number).unwrap();
        RetainedMemory { object: NonNull::without_provenance(address), free }
    }

    /// A call on a closed object must find the memory of that object.
    #[test]
    fn memory_of_closed_objects_is_kept_and_the_oldest_is_freed_first() {
        let mut objects = TrackedObjects::new();
        for number in 1..=RETAINED {
            assert!(objects.retain(memory(number)).is_none());
        }
        for number in 1..=RETAINED + 2 {
            let freed = objects.retain(memory(RETAINED + number));
            assert_eq!(freed.as_ref().map(|freed| freed.object.addr().get()), Some(number));
            assert!(FREED.take().is_empty(), "the caller frees it, without the lock");
            drop(freed);
            assert_eq!(FREED.take(), [number]);
        }
        drop(objects);
        assert_eq!(FREED.take().len(), RETAINED);
    }

    #[test]
    fn search_with_the_lock_held_has_an_end_however_many_objects_are_open() {
        let (mut objects, addresses) = many(10_000);
        assert_eq!(objects.dependent(addresses[0]), None);
        assert_eq!(CALLS.replace(0), SEARCHED);
        assert!(!objects.has_element(&|_| false));
        assert_eq!(CALLS.replace(0), ELEMENTS);
        // The last element that is looked at.
        let calls = Cell::new(0);
        assert!(objects.has_element(&|_| {
            calls.set(calls.get() + 1);
            calls.get() == ELEMENTS
        }));
        CALLS.set(0);
        // A closed object is never called, and the order of the others stays.
        for object in &addresses[5_000..] {
            objects.remove(*object);
        }
        assert_eq!(objects.open.len(), 5_000);
        assert_eq!(objects.newest().next().map(|open| open.object), Some(addresses[4_999]));
    }
}
