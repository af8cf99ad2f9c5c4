// SPDX-License-Identifier: MIT OR Apache-2.0

//! Objects that a program holds pointers to.
//!
//! Calls that create, change and destroy look their pointers up, so that a freed or foreign one is an error. Calls of work requests and
//! completions do not: their pointers are trusted, as by every provider.

use core::any::TypeId;
use core::mem::MaybeUninit;
use std::collections::HashMap;

use parking_lot::Mutex;
use verbs_core::Error;

/// An object that exists.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry {
    kind: TypeId,
    /// A thread destroys it, and may wait for the program meanwhile.
    ends: bool,
}

/// The objects that exist, by address.
static LIVE: Mutex<Option<HashMap<usize, Entry>>> = Mutex::new(None);

/// An object with the structure `C` that the program sees.
///
/// # Safety
/// The type has a `C` at [`Handle::OFFSET`].
pub unsafe trait Handle: Sized + 'static {
    type C;
    /// In bytes from the start of the object.
    const OFFSET: usize = 0;
}

/// Creates an object. Returns the pointer for the program.
pub fn create<T: Handle>(object: T) -> *mut T::C {
    match create_with(|_| Ok(object)) {
        Ok(pointer) => pointer,
        Err(_) => core::ptr::null_mut(),
    }
}

/// Creates an object that knows its pointer. Returns the pointer for the program.
///
/// # Errors
/// Those of `make`.
pub fn create_with<T: Handle>(make: impl FnOnce(*mut T::C) -> Result<T, Error>) -> Result<*mut T::C, Error> {
    let place = Box::into_raw(Box::<T>::new_uninit()).cast::<T>();
    let shown = place.wrapping_byte_add(T::OFFSET).cast::<T::C>();
    match make(shown) {
        Ok(object) => {
            // SAFETY: the place was allocated for an object of this type above.
            unsafe { place.write(object) };
            LIVE.lock()
                .get_or_insert_default()
                .insert(shown.addr(), Entry { kind: TypeId::of::<T>(), ends: false });
            Ok(shown)
        }
        Err(error) => {
            // SAFETY: the box was made above, and nothing was written to it.
            drop(unsafe { Box::from_raw(place.cast::<MaybeUninit<T>>()) });
            Err(error)
        }
    }
}

/// Returns the start of the object.
fn whole<T: Handle>(pointer: *mut T::C) -> *mut T {
    pointer.wrapping_byte_sub(T::OFFSET).cast()
}

fn is_live<T: Handle>(pointer: *mut T::C) -> bool {
    let live = LIVE.lock();
    live.as_ref()
        .and_then(|live| live.get(&pointer.addr()))
        .is_some_and(|entry| entry.kind == TypeId::of::<T>())
}

/// Returns the object of a pointer.
///
/// # Errors
/// [`Error::Invalid`] if there is none of this type.
pub fn get<'a, T: Handle>(pointer: *mut T::C) -> Result<&'a T, Error> {
    if !is_live::<T>(pointer) {
        return Err(Error::Invalid);
    }
    // SAFETY: an object of this type was created at this address and is not destroyed. A program that destroys it during the call breaks the
    // rules of libibverbs.
    Ok(unsafe { &*whole::<T>(pointer) })
}

/// Returns the object of a pointer that is not looked up; `None` if it is null.
///
/// # Safety
/// The pointer is null or one that [`create`] has returned for this type and that is not destroyed.
pub unsafe fn trusted<'a, T: Handle>(pointer: *mut T::C) -> Option<&'a T> {
    // SAFETY: by the contract of this function.
    if pointer.is_null() { None } else { unsafe { whole::<T>(pointer).as_ref() } }
}

/// Destroys an object if `end` succeeds. Of two threads that do so at a time, one fails.
///
/// # Errors
/// [`Error::Invalid`] if there is none of this type, or another thread destroys it; those of `end`.
pub fn destroy<T: Handle>(
    pointer: *mut T::C,
    end: impl FnOnce(&T) -> Result<(), Error>,
) -> Result<(), Error> {
    mark::<T>(pointer, true)?;
    if let Err(error) = get::<T>(pointer).and_then(end) {
        mark::<T>(pointer, false)?;
        return Err(error);
    }
    drop(remove::<T>(pointer, true)?);
    Ok(())
}

/// Records whether a thread destroys an object.
fn mark<T: Handle>(pointer: *mut T::C, ends: bool) -> Result<(), Error> {
    let mut live = LIVE.lock();
    let entry = live.get_or_insert_default().get_mut(&pointer.addr()).ok_or(Error::Invalid)?;
    if entry.kind != TypeId::of::<T>() || entry.ends == ends {
        return Err(Error::Invalid);
    }
    entry.ends = ends;
    Ok(())
}

/// Removes an object. Returns it.
///
/// # Errors
/// [`Error::Invalid`] if there is none of this type, or no longer, or a thread destroys it.
pub fn take<T: Handle>(pointer: *mut T::C) -> Result<Box<T>, Error> {
    remove::<T>(pointer, false)
}

fn remove<T: Handle>(pointer: *mut T::C, ends: bool) -> Result<Box<T>, Error> {
    let mut live = LIVE.lock();
    let live = live.get_or_insert_default();
    if live.get(&pointer.addr()) != Some(&Entry { kind: TypeId::of::<T>(), ends }) {
        return Err(Error::Invalid);
    }
    live.remove(&pointer.addr());
    // SAFETY: `create` has made the box, and the entry that was removed just now shows that it was not taken before.
    Ok(unsafe { Box::from_raw(whole::<T>(pointer)) })
}
