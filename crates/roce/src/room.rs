//! Vectors that say so when there is no memory.
//!
//! A `push` or `resize` that never reallocates still carries the code that would, and that code aborts on
//! failure. The checks here let the compiler see that it is never reached.

use alloc::vec::Vec;

use crate::arc::OutOfMemory;

/// A vector of `len` times `value`.
pub(crate) fn filled<T: Clone>(len: usize, value: T) -> Result<Vec<T>, OutOfMemory> {
    let mut vec = Vec::new();
    grow_to(&mut vec, len, || value.clone())?;
    Ok(vec)
}

/// Appends to `vec` until it has `len` elements.
pub(crate) fn grow_to<T>(vec: &mut Vec<T>, len: usize, make: impl Fn() -> T) -> Result<(), OutOfMemory> {
    vec.try_reserve_exact(len.saturating_sub(vec.len())).map_err(|_| OutOfMemory)?;
    while vec.len() < len {
        push_reserved(vec, make())?;
    }
    Ok(())
}

/// Appends `value`.
pub(crate) fn push<T>(vec: &mut Vec<T>, value: T) -> Result<(), OutOfMemory> {
    vec.try_reserve(1).map_err(|_| OutOfMemory)?;
    push_reserved(vec, value)
}

/// Appends `value`, for which there is room.
#[inline]
pub(crate) fn push_reserved<T>(vec: &mut Vec<T>, value: T) -> Result<(), OutOfMemory> {
    if vec.len() == vec.capacity() {
        return Err(OutOfMemory);
    }
    vec.push(value);
    Ok(())
}
