// SPDX-License-Identifier: MIT OR Apache-2.0

//! `Box` with fallible allocation, and a box whose address may be shared.
#![allow(unsafe_code, reason = "owns memory through raw pointers")]

use alloc::alloc::alloc;
use alloc::boxed::Box;
use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ops::Deref;
use core::ptr::NonNull;

use crate::error::AllocError;
use crate::limits::MAX_ALIGNMENT;

/// Moves `value` to the heap.
///
/// # Errors
/// [`AllocError`] if there is no memory; `value` is dropped.
pub fn try_box<T>(value: T) -> Result<Box<T>, AllocError> {
    try_box_or_return(value).map_err(|_| AllocError)
}

/// Moves `value` to the heap.
///
/// # Errors
/// Returns `value` if there is no memory.
pub fn try_box_or_return<T>(value: T) -> Result<Box<T>, T> {
    const { assert!(align_of::<T>() <= MAX_ALIGNMENT) };
    let layout = Layout::new::<T>();
    if layout.size() == 0 {
        // A box of a zero-sized type does not allocate.
        return Ok(Box::new(value));
    }
    // SAFETY: the layout's size is not zero (checked above).
    let raw = unsafe { alloc(layout) }.cast::<T>();
    if raw.is_null() {
        return Err(value);
    }
    // SAFETY: `raw` is a fresh allocation, aligned and large enough for a `T`.
    unsafe { raw.write(value) };
    // SAFETY: `raw` came from the global allocator with the layout of `T` and now holds a `T`.
    Ok(unsafe { Box::from_raw(raw) })
}

/// An owned heap value whose address may be held elsewhere, such as the context of a kernel callback.
///
/// A [`Box`] claims exclusive access each time it is moved, which makes pointers taken from it earlier
/// invalid to use. This type claims no more than shared access: pointers from [`as_ptr`](Self::as_ptr) stay
/// valid until it is dropped, however often it is moved.
pub struct AliasableBox<T> {
    value: NonNull<T>,
    owns: PhantomData<T>,
}

// SAFETY: owns its `T` and gives `&T`. Holders of a raw pointer answer for what they do with it.
unsafe impl<T: Send> Send for AliasableBox<T> {}
// SAFETY: shared use gives `&T`, which `T: Sync` allows on any thread, and copies of the pointer.
unsafe impl<T: Sync> Sync for AliasableBox<T> {}

impl<T> AliasableBox<T> {
    /// Moves `value` to the heap.
    ///
    /// # Errors
    /// [`AllocError`] if there is no memory; `value` is dropped.
    pub fn try_new(value: T) -> Result<Self, AllocError> {
        let raw = Box::into_raw(try_box(value)?);
        // SAFETY: `Box::into_raw` returns no null pointer.
        Ok(Self { value: unsafe { NonNull::new_unchecked(raw) }, owns: PhantomData })
    }

    /// Gives up the ownership. The value lives until [`from_raw`](Self::from_raw) takes it back.
    #[must_use = "the value leaks unless `from_raw` takes it back"]
    pub fn into_raw(self) -> *mut T {
        ManuallyDrop::new(self).as_ptr()
    }

    /// Takes back the ownership.
    ///
    /// # Safety
    /// `value` is from [`into_raw`](Self::into_raw), and each such pointer is taken back at most once.
    #[must_use]
    pub const unsafe fn from_raw(value: *mut T) -> Self {
        // SAFETY: by the caller, the address of a live value.
        Self { value: unsafe { NonNull::new_unchecked(value) }, owns: PhantomData }
    }

    /// Returns the value's address, which stays the same and valid until the box is dropped.
    ///
    /// Writing through it is subject to the rules of any shared value: only through atomics or
    /// `UnsafeCell`.
    #[must_use]
    pub const fn as_ptr(&self) -> *mut T {
        self.value.as_ptr()
    }
}

impl<T> Deref for AliasableBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the value lives as long as `self`, and no `&mut T` is ever made.
        unsafe { self.value.as_ref() }
    }
}

impl<T> Drop for AliasableBox<T> {
    fn drop(&mut self) {
        // SAFETY: from `Box::into_raw` in `try_new`, taken back once.
        drop(unsafe { Box::from_raw(self.value.as_ptr()) });
    }
}

impl<T: fmt::Debug> fmt::Debug for AliasableBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Heap memory for a value whose address must be known before the value is made.
pub struct Slot<T>(AliasableBox<MaybeUninit<T>>);

impl<T> Slot<T> {
    /// Allocates the memory.
    ///
    /// # Errors
    /// [`AllocError`] if there is no memory.
    pub fn try_new() -> Result<Self, AllocError> {
        AliasableBox::try_new(MaybeUninit::uninit()).map(Self)
    }

    /// Returns the address of the value to come. It stays the same when the slot is filled, and until that box is dropped.
    #[must_use]
    pub const fn as_ptr(&self) -> *mut T {
        self.0.as_ptr().cast()
    }

    /// Moves `value` into the memory.
    #[must_use]
    pub fn fill(self, value: T) -> AliasableBox<T> {
        let memory = self.0.into_raw().cast::<T>();
        // SAFETY: memory for a `T` that this function owns.
        unsafe { memory.write(value) };
        // SAFETY: allocated with the layout of `T`, initialized just now, owned by no other box.
        unsafe { AliasableBox::from_raw(memory) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn box_holds_values_of_any_size() {
        assert_eq!(*try_box([1u8; 3]).unwrap(), [1; 3]);
        assert_eq!(*try_box_or_return(()).unwrap(), ());
    }

    // Miri reports this test if the type ever becomes a plain box.
    #[test]
    fn address_stays_valid_when_the_box_is_moved() {
        let dropped = Rc::new(Cell::new(0));
        let boxed = AliasableBox::try_new((Cell::new(1), Rc::clone(&dropped))).unwrap();
        let address = boxed.as_ptr();
        assert_eq!(format!("{boxed:?}"), "(Cell { value: 1 }, Cell { value: 0 })");
        let moved = [boxed];
        // SAFETY: the value is alive in `moved`, and is shared on this thread only.
        unsafe { &*address }.0.set(2);
        assert_eq!((moved[0].0.get(), moved[0].as_ptr()), (2, address));
        assert_eq!(Rc::strong_count(&dropped), 2);
        drop(moved);
        assert_eq!(Rc::strong_count(&dropped), 1);
    }

    // Miri reports this test if filling the slot ever claims exclusive access to the memory by a box.
    #[test]
    fn address_given_out_before_the_value_exists_is_the_value_s() {
        let (dropped, slot) = (Rc::new(Cell::new(0)), Slot::try_new().unwrap());
        let context = slot.as_ptr();
        let filled = slot.fill((Cell::new(1), Rc::clone(&dropped)));
        // SAFETY: the value is alive in `filled`, and is shared on this thread only.
        let seen = unsafe { &*context };
        let raw = filled.into_raw();
        seen.0.set(2);
        // SAFETY: from `into_raw`, taken back once.
        let back = unsafe { AliasableBox::from_raw(raw) };
        seen.0.set(seen.0.get() + 1);
        assert_eq!((back.0.get(), back.as_ptr()), (3, context));
        drop(back);
        assert_eq!(Rc::strong_count(&dropped), 1);
        drop(Slot::<[u64; 4]>::try_new().unwrap());
    }
}
