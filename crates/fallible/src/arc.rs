// SPDX-License-Identifier: MIT OR Apache-2.0

//! Atomic reference counting with fallible allocation.
#![allow(unsafe_code, reason = "owns memory through raw pointers")]

use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

use crate::chunk::{self, Chunk};
use crate::error::AllocError;
use crate::limits::MAX_ALIGNMENT;
use crate::ref_count::RefCount;

/// `Arc` with fallible allocation: an atomically counted, shared reference to a value on the heap.
///
/// There are no weak references.
pub struct Arc<T> {
    /// In a [`Shared`], with the provenance of the whole.
    value: NonNull<T>,
    owns: PhantomData<Shared<T>>,
}

/// In this order, so that a slot of a slab begins with what each reference uses.
#[repr(C)]
pub(crate) struct Shared<T> {
    count: RefCount,
    /// The chunk of a slab that has this memory; `None` if it was allocated for itself.
    chunk: Option<NonNull<Chunk>>,
    value: T,
}

// SAFETY: an `Arc` gives `&T` on its thread (`T: Sync`), and the last one drops the `T` there (`T: Send`);
// the count is atomic, and so is what it uses of a chunk.
unsafe impl<T: Send + Sync> Send for Arc<T> {}
// SAFETY: as above; a shared `Arc` can be cloned.
unsafe impl<T: Send + Sync> Sync for Arc<T> {}

impl<T> Arc<T> {
    /// Moves `value` to the heap.
    ///
    /// # Errors
    /// [`AllocError`] if there is no memory; `value` is dropped.
    pub fn try_new(value: T) -> Result<Self, AllocError> {
        Self::try_new_with(|| value)
    }

    /// Allocates memory, then calls `make` and stores its value there.
    ///
    /// The compiler usually builds the value in place, so that values too large for a kernel stack can be
    /// made this way.
    ///
    /// # Errors
    /// [`AllocError`] if there is no memory; `make` is not called.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a call of its own would copy a large value once more")]
    pub fn try_new_with(make: impl FnOnce() -> T) -> Result<Self, AllocError> {
        const { assert!(align_of::<Shared<T>>() <= MAX_ALIGNMENT) };
        // Never of size zero: the count is in it.
        let layout = Layout::new::<Shared<T>>();
        // SAFETY: the layout is not of size zero.
        let memory = unsafe { alloc::alloc::alloc(layout) };
        let Some(shared) = NonNull::new(memory.cast::<Shared<T>>()) else {
            return Err(AllocError);
        };
        // SAFETY: the memory is a fresh allocation of this layout.
        Ok(unsafe { Self::store(shared, None, make) })
    }

    /// Stores the value of `make` in memory of a chunk or of its own, in place as [`Arc::try_new_with`] does.
    ///
    /// # Safety
    /// The memory is a slot of this chunk or, without one, was allocated with the layout of a [`Shared`]. It has the size and alignment of one,
    /// and is the caller's only.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a call of its own would copy a large value once more")]
    pub(crate) unsafe fn store(
        shared: NonNull<Shared<T>>,
        chunk: Option<NonNull<Chunk>>,
        make: impl FnOnce() -> T,
    ) -> Self {
        // SAFETY: by the caller, the memory is of this thread only and has room for a `Shared`.
        unsafe { shared.write(Shared { count: RefCount::one(), chunk, value: make() }) };
        Self::of(shared)
    }

    /// Returns the value for writing, if this is the only reference to it.
    #[inline]
    pub fn get_mut(this: &mut Self) -> Option<&mut T> {
        if !this.shared().count.is_one() {
            return None;
        }
        // SAFETY: there is no other reference, and none can be made of this one while it is borrowed.
        Some(unsafe { this.value.as_mut() })
    }

    /// Returns whether both are references to the same value.
    #[inline]
    #[must_use]
    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        this.value == other.value
    }

    /// Turns the reference into a pointer to the value. The reference stays counted until
    /// [`Arc::from_raw`] takes it back.
    #[must_use = "the value leaks unless `from_raw` takes it back"]
    pub fn into_raw(this: Self) -> *const T {
        let value = Self::as_ptr(&this);
        core::mem::forget(this);
        value
    }

    /// Returns the value's address, which is the same for all references to it.
    #[inline]
    #[must_use]
    pub fn as_ptr(this: &Self) -> *const T {
        this.value.as_ptr()
    }

    /// Takes back a reference from [`Arc::into_raw`].
    ///
    /// # Safety
    /// `value` is from [`Arc::into_raw`], and each such pointer is taken back at most once.
    #[must_use]
    pub unsafe fn from_raw(value: *const T) -> Self {
        // SAFETY: by the caller, it is the pointer of a reference, which is not null.
        let value = unsafe { NonNull::new_unchecked(value.cast_mut()) };
        Self { value, owns: PhantomData }
    }

    /// Returns the number of references at some moment during the call.
    #[must_use]
    pub fn count(this: &Self) -> usize {
        this.shared().count.get()
    }

    /// Returns the reference that is counted as the first.
    #[inline]
    fn of(shared: NonNull<Shared<T>>) -> Self {
        // SAFETY: the pointer is to a live `Shared`; only the address of its field is taken.
        let value = unsafe { &raw mut (*shared.as_ptr()).value };
        // SAFETY: a field of an object is not at address zero.
        let value = unsafe { NonNull::new_unchecked(value) };
        Self { value, owns: PhantomData }
    }

    /// Returns where the value is shared.
    #[inline]
    #[allow(clippy::cast_ptr_alignment, reason = "the value is in a `Shared`")]
    fn place(&self) -> NonNull<Shared<T>> {
        // SAFETY: the value is the field of a `Shared`, so that its start lies before it in the same allocation.
        unsafe { self.value.byte_sub(core::mem::offset_of!(Shared<T>, value)) }.cast()
    }

    #[inline]
    fn shared(&self) -> &Shared<T> {
        // SAFETY: as long as this reference is counted, the memory lives and there is no `&mut` to it.
        unsafe { self.place().as_ref() }
    }
}

impl<T> Clone for Arc<T> {
    #[inline]
    fn clone(&self) -> Self {
        self.shared().count.acquire();
        Self { value: self.value, owns: PhantomData }
    }
}

impl<T> Drop for Arc<T> {
    #[inline]
    fn drop(&mut self) {
        if !self.shared().count.release() {
            return;
        }
        let (place, of) = (self.place(), self.shared().chunk);
        // SAFETY: this was the last reference, so no other access is possible, and the value is dropped once.
        unsafe { place.drop_in_place() };
        // SAFETY: the memory has this layout and is of this chunk, or was allocated by `try_new_with`; not used afterwards.
        unsafe { chunk::free_memory(place.cast(), of, Layout::new::<Shared<T>>()) };
    }
}

impl<T> Deref for Arc<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: as long as this reference is counted, the value lives and there is no `&mut` to it.
        unsafe { self.value.as_ref() }
    }
}

impl<T: fmt::Debug> fmt::Debug for Arc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;

    struct Flag<'a>(&'a AtomicBool);

    impl Drop for Flag<'_> {
        fn drop(&mut self) {
            assert!(!self.0.swap(true, Ordering::SeqCst), "dropped twice");
        }
    }

    #[test]
    fn last_reference_drops_the_value_once() {
        let dropped = AtomicBool::new(false);
        let first = Arc::try_new(Flag(&dropped)).unwrap();
        let second = first.clone();
        assert_eq!(Arc::count(&first), 2);
        drop(first);
        assert!(!dropped.load(Ordering::SeqCst));
        drop(second);
        assert!(dropped.load(Ordering::SeqCst));
    }

    #[test]
    fn reference_survives_the_round_trip_through_a_pointer() {
        #[repr(align(16))]
        struct Aligned(u8);
        let arc = Arc::try_new(Aligned(7)).unwrap();
        let address = Arc::as_ptr(&arc);
        let raw = Arc::into_raw(arc);
        assert_eq!(raw, address);
        // SAFETY: from `into_raw`, taken back once.
        let back = unsafe { Arc::from_raw(raw) };
        assert_eq!(back.0, 7);
        assert_eq!(Arc::count(&back), 1);
    }

    #[test]
    fn only_a_single_reference_gives_mutable_access() {
        let mut first = Arc::try_new(1).unwrap();
        *Arc::get_mut(&mut first).unwrap() = 2;
        let mut second = first.clone();
        assert!(Arc::get_mut(&mut first).is_none() && Arc::get_mut(&mut second).is_none());
        drop(first);
        assert_eq!(Arc::get_mut(&mut second), Some(&mut 2));
    }

    #[test]
    fn references_are_equal_if_they_are_to_the_same_value() {
        let [one, other] = [(); 2].map(|()| Arc::try_new(7).unwrap());
        assert!(Arc::ptr_eq(&one, &one.clone()) && !Arc::ptr_eq(&one, &other));
        assert_eq!(format!("{one:?}"), "7");
    }

    #[test]
    fn references_may_be_dropped_on_any_thread() {
        let arc = Arc::try_new(AtomicUsize::new(0)).unwrap();
        thread::scope(|scope| {
            for _ in 0..4 {
                let arc = arc.clone();
                scope.spawn(move || {
                    for _ in 0..100 {
                        arc.clone().fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!((arc.load(Ordering::Relaxed), Arc::count(&arc)), (400, 1));
    }
}
