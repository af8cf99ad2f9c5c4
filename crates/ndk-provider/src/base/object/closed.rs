// SPDX-License-Identifier: MIT OR Apache-2.0

//! Objects whose last reference was released, until the provider's deferred routine makes their close callbacks.
//!
//! The last reference may be released in the middle of a call of another consumer, which may hold locks that the callback takes.
//! The list is linked through the objects: nothing is allocated.
//= R-IRQL-4, R-CLOSE-34

use crate::base::environment::ObjectChange;
use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use ndk_abi::ndk::NDK_OBJECT_TYPE;
use nt::SpinLock;

/// A closed object with its type erased.
#[derive(Clone, Copy)]
pub struct Closed {
    object: NonNull<c_void>,
    operations: &'static Operations,
}

/// Operations of an object type that the list needs.
pub struct Operations {
    /// Returns the object's link to the next one.
    pub next: unsafe fn(NonNull<c_void>) -> NonNull<Option<Closed>>,
    /// Makes the close callback and frees the object.
    pub finish: unsafe fn(NonNull<c_void>),
}

// SAFETY: the address of an `Object`, which is `Send + Sync`, without references.
unsafe impl Send for Closed {}

/// The owner of a list of closed objects, which also traces objects.
pub trait CloseLater {
    /// Traces a change of the object of this type at this address. IRQL <= `DISPATCH_LEVEL`.
    fn trace_object(&self, kind: NDK_OBJECT_TYPE, object: usize, change: ObjectChange);

    /// Has the deferred routine finish the object. The implementation may be gone when this returns.
    fn close_later(&self, closed: Closed);
}

/// Closed objects in the order in which their last references were released.
pub struct ClosedObjects {
    ends: SpinLock<Option<(Closed, Closed)>>,
    /// Whether the list has objects, readable without the lock.
    waiting: AtomicBool,
}

impl Closed {
    /// # Safety
    /// `object` has no references and is freed by `operations.finish` only.
    pub unsafe fn new(object: NonNull<c_void>, operations: &'static Operations) -> Self {
        Self { object, operations }
    }

    /// Makes the close callback and frees the object. No lock is held.
    pub fn finish(self) {
        // SAFETY: the object was taken off its list, once.
        unsafe { (self.operations.finish)(self.object) };
    }

    /// The list's lock is held.
    fn link(self) -> NonNull<Option<Self>> {
        // SAFETY: the object lives until `finish`.
        unsafe { (self.operations.next)(self.object) }
    }
}

impl ClosedObjects {
    pub const fn new() -> Self {
        Self { ends: SpinLock::new(None), waiting: AtomicBool::new(false) }
    }

    /// Adds an object and calls `added`. The list, and what contains it, may be gone when this returns: the object is finished as
    /// soon as the lock is released, which is the last access.
    pub fn push(&self, closed: Closed, added: impl FnOnce()) {
        let mut ends = self.ends.lock();
        // SAFETY: the lock is held; the link belongs to the list.
        unsafe { closed.link().write(None) };
        let first = match *ends {
            None => closed,
            Some((first, last)) => {
                // SAFETY: the lock is held, and the last element belongs to the list until it is finished.
                unsafe { last.link().write(Some(closed)) };
                first
            }
        };
        *ends = Some((first, closed));
        self.waiting.store(true, Ordering::Release);
        added();
    }

    /// Whether the list has objects.
    pub fn has_objects(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// Removes the first object.
    pub fn pop(&self) -> Option<Closed> {
        if !self.has_objects() {
            return None;
        }
        let mut ends = self.ends.lock();
        let (first, last) = (*ends)?;
        // SAFETY: the lock is held; the object lives until it is finished.
        let next = unsafe { first.link().read() };
        *ends = next.map(|next| (next, last));
        self.waiting.store(ends.is_some(), Ordering::Release);
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// An object: its link, and its number.
    struct Item(Option<Closed>, usize);

    std::thread_local! {
        static FINISHED: core::cell::RefCell<Vec<usize>> = const { core::cell::RefCell::new(Vec::new()) };
    }

    unsafe fn next(object: NonNull<c_void>) -> NonNull<Option<Closed>> {
        // SAFETY: the test passes an `Item` that lives.
        NonNull::from(unsafe { &mut object.cast::<Item>().as_mut().0 })
    }

    unsafe fn finish(object: NonNull<c_void>) {
        // SAFETY: the test passes an `Item` that lives until it is finished.
        let number = unsafe { object.cast::<Item>().as_ref() }.1;
        FINISHED.with_borrow_mut(|finished| finished.push(number));
    }

    static OPERATIONS: Operations = Operations { next, finish };

    #[test]
    fn closed_objects_are_finished_in_order_and_the_list_says_whether_it_has_any() {
        let list = ClosedObjects::new();
        let mut items: Vec<Item> = (0..3).map(|number| Item(None, number)).collect();
        assert!(!list.has_objects() && list.pop().is_none());
        for _ in 0..2 {
            let mut added = 0;
            for item in &mut items {
                // SAFETY: the item lives until it is finished.
                list.push(unsafe { Closed::new(NonNull::from(item).cast(), &OPERATIONS) }, || added += 1);
                assert!(list.has_objects());
            }
            assert_eq!(added, 3);
            for left in [true, true, false] {
                list.pop().unwrap().finish();
                assert_eq!(list.has_objects(), left);
            }
            assert!(list.pop().is_none());
            assert_eq!(FINISHED.take(), [0, 1, 2]);
        }
    }
}
