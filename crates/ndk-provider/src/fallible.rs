//! Vectors that grow only when there is memory.

use alloc::vec::Vec;

/// Puts `value` at `index`, which is not beyond the end; gives it back when there is no memory.
///
/// The capacity is looked at where the compiler sees it, so that it leaves out the growing that aborts.
pub fn insert<T>(vec: &mut Vec<T>, index: usize, value: T) -> Result<(), T> {
    if index > vec.len() || vec.try_reserve(1).is_err() || vec.len() == vec.capacity() {
        return Err(value);
    }
    vec.insert(index, value);
    Ok(())
}

/// Puts `value` at the end; gives it back when there is no memory.
pub fn push<T>(vec: &mut Vec<T>, value: T) -> Result<(), T> {
    if vec.try_reserve(1).is_err() || vec.len() == vec.capacity() {
        return Err(value);
    }
    vec.push(value);
    Ok(())
}

/// So many zeroes, or nothing when there is no memory for them.
pub fn zeroes(count: usize) -> Option<Vec<u8>> {
    let mut vec = Vec::new();
    vec.try_reserve_exact(count).ok()?;
    while vec.len() < count && vec.len() < vec.capacity() {
        vec.push(0);
    }
    Some(vec)
}
