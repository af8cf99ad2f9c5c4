// SPDX-License-Identifier: MIT OR Apache-2.0

//! Operations on [`Vec`] that return an error when memory runs out.
//!
//! A `push` or `resize` that never reallocates still contains the code that would, and that code aborts on
//! failure. Each function here compares length and capacity where the compiler can see it, so that it
//! removes the reallocation.

use alloc::vec::Vec;

use crate::error::AllocError;
use crate::limits::MAX_ALIGNMENT;

/// Returns an empty vector with room for at least `capacity` elements.
///
/// # Errors
/// [`AllocError`] if there is no memory.
pub fn with_capacity<T>(capacity: usize) -> Result<Vec<T>, AllocError> {
    let mut vec = Vec::new();
    reserve_exact(&mut vec, capacity)?;
    Ok(vec)
}

/// Reserves memory so that `vec` can hold `capacity` elements in all, without room to spare.
///
/// # Errors
/// [`AllocError`] if there is no memory; the vector is unchanged.
pub fn reserve_exact<T>(vec: &mut Vec<T>, capacity: usize) -> Result<(), AllocError> {
    const { assert!(align_of::<T>() <= MAX_ALIGNMENT) };
    Ok(vec.try_reserve_exact(capacity.saturating_sub(vec.len()))?)
}

/// Reserves memory so that `vec` can hold `capacity` elements in all, with room to spare for growth.
///
/// # Errors
/// [`AllocError`] if there is no memory; the vector is unchanged.
pub fn reserve<T>(vec: &mut Vec<T>, capacity: usize) -> Result<(), AllocError> {
    const { assert!(align_of::<T>() <= MAX_ALIGNMENT) };
    Ok(vec.try_reserve(capacity.saturating_sub(vec.len()))?)
}

/// Returns a vector of `len` clones of `value`.
///
/// # Errors
/// [`AllocError`] if there is no memory.
pub fn filled<T: Clone>(len: usize, value: T) -> Result<Vec<T>, AllocError> {
    let mut vec = Vec::new();
    grow_to(&mut vec, len, || value.clone())?;
    Ok(vec)
}

/// Appends values made by `make` until `vec` has `len` elements.
///
/// # Errors
/// [`AllocError`] if there is no memory; the vector is unchanged.
pub fn grow_to<T>(vec: &mut Vec<T>, len: usize, make: impl Fn() -> T) -> Result<(), AllocError> {
    reserve_exact(vec, len)?;
    while vec.len() < len {
        push_within_capacity(vec, make())?;
    }
    Ok(())
}

/// Appends `value`, growing the vector if it is full.
///
/// # Errors
/// [`AllocError`] if there is no memory; `value` is dropped.
pub fn push<T>(vec: &mut Vec<T>, value: T) -> Result<(), AllocError> {
    push_or_return(vec, value).map_err(|_| AllocError)
}

/// Appends `value`, growing the vector if it is full.
///
/// # Errors
/// Returns `value` if there is no memory.
pub fn push_or_return<T>(vec: &mut Vec<T>, value: T) -> Result<(), T> {
    const { assert!(align_of::<T>() <= MAX_ALIGNMENT) };
    if vec.try_reserve(1).is_err() || vec.len() == vec.capacity() {
        return Err(value);
    }
    vec.push(value);
    Ok(())
}

/// Appends `value` if the vector has spare capacity. Never allocates.
///
/// # Errors
/// [`AllocError`] if length equals capacity; `value` is dropped.
#[inline]
pub fn push_within_capacity<T>(vec: &mut Vec<T>, value: T) -> Result<(), AllocError> {
    if vec.len() == vec.capacity() {
        return Err(AllocError);
    }
    vec.push(value);
    Ok(())
}

/// Appends all of `values`, growing the vector if they do not fit.
///
/// # Errors
/// [`AllocError`] if there is no memory; the vector is unchanged.
pub fn extend<T: Copy>(vec: &mut Vec<T>, values: &[T]) -> Result<(), AllocError> {
    const { assert!(align_of::<T>() <= MAX_ALIGNMENT) };
    vec.try_reserve(values.len())?;
    if vec.capacity().wrapping_sub(vec.len()) < values.len() {
        return Err(AllocError);
    }
    vec.extend_from_slice(values);
    Ok(())
}

/// Inserts `value` before the element at `index`, growing the vector if it is full.
///
/// # Errors
/// [`AllocError`] if there is no memory or `index` is greater than the length; `value` is dropped.
pub fn insert<T>(vec: &mut Vec<T>, index: usize, value: T) -> Result<(), AllocError> {
    const { assert!(align_of::<T>() <= MAX_ALIGNMENT) };
    if index > vec.len() || vec.try_reserve(1).is_err() || vec.len() == vec.capacity() {
        return Err(AllocError);
    }
    vec.insert(index, value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filling_and_growing_reserve_exactly() {
        let mut vec = filled(3, 7).unwrap();
        assert_eq!((vec.as_slice(), vec.capacity()), (&[7, 7, 7][..], 3));
        grow_to(&mut vec, 5, || 1).unwrap();
        assert_eq!((vec.as_slice(), vec.capacity()), (&[7, 7, 7, 1, 1][..], 5));
        grow_to(&mut vec, 2, || 0).unwrap();
        assert_eq!(vec.len(), 5, "never shortened");
    }

    #[test]
    fn full_vector_refuses_a_push_within_capacity() {
        let mut vec: Vec<u8> = with_capacity(1).unwrap();
        assert_eq!(push_within_capacity(&mut vec, 1), Ok(()));
        while push_within_capacity(&mut vec, 2).is_ok() {}
        assert_eq!(vec.len(), vec.capacity());
        assert_eq!(push(&mut vec, 3), Ok(()));
        assert_eq!(vec.last(), Some(&3));
    }

    #[test]
    fn extending_appends_in_order() {
        let mut vec = filled(1, 1u8).unwrap();
        assert_eq!(extend(&mut vec, &[2, 3]), Ok(()));
        assert_eq!(extend(&mut vec, &[]), Ok(()));
        assert_eq!(extend(&mut vec, &[4]), Ok(()));
        assert_eq!(vec, [1, 2, 3, 4]);
    }

    #[test]
    fn insert_accepts_every_index_up_to_the_length() {
        let mut vec = Vec::new();
        assert_eq!(insert(&mut vec, 1, 'x'), Err(AllocError));
        for (index, value) in [(0, 'b'), (0, 'a'), (2, 'c')] {
            insert(&mut vec, index, value).unwrap();
        }
        assert_eq!(vec, ['a', 'b', 'c']);
    }

    #[test]
    fn impossible_sizes_are_errors() {
        assert_eq!(with_capacity::<u64>(usize::MAX), Err(AllocError));
        assert_eq!(reserve(&mut Vec::<u64>::new(), usize::MAX), Err(AllocError));
        assert_eq!(filled(usize::MAX, 0u16), Err(AllocError));
    }
}
