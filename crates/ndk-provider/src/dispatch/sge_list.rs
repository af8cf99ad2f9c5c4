// SPDX-License-Identifier: MIT OR Apache-2.0

//! The consumer's lists: scatter/gather elements, inline data, page addresses.

use crate::base::limits::LIMITS;
use crate::base::status::NtResult;
use core::ffi::c_void;
use ndk_abi::ndk::{NDK_LOGICAL_ADDRESS, NDK_SGE};
use ndk_abi::nt::{STATUS_BUFFER_OVERFLOW, STATUS_DATA_OVERRUN, STATUS_INVALID_PARAMETER};
use roce::Sge;

/// Maximum number of elements of any request.
pub const MAX_SGES: usize = {
    let (a, b, c) = (LIMITS.initiator_sges, LIMITS.receive_sges, LIMITS.read_sges);
    let longest = if a > b { a } else { b };
    (if longest > c { longest } else { c }) as usize
};

/// Maximum number of bytes, and of elements, of an inline request.
//= R-QP-32
pub const MAX_INLINE: usize = LIMITS.inline as usize;

/// Elements of most requests. Room for [`MAX_SGES`] would be 512 bytes to clear for each of them.
const FEW_SGES: usize = 4;

/// Calls `take` with a copy of a consumer's list, which the consumer may free when the post returns. Its errors are those of
/// [`sges`].
///
/// # Safety
/// `sgl` is null or has `count` elements.
pub unsafe fn with_sges<T>(sgl: *const NDK_SGE, count: u32, take: impl FnOnce(NtResult<&[Sge]>) -> T) -> T {
    if count as usize <= FEW_SGES {
        let mut copy = [Sge::default(); FEW_SGES];
        // SAFETY: by this function's contract the list has `count` elements, which stay as they are during the call.
        return take(unsafe { sges(sgl, count, &mut copy) });
    }
    // SAFETY: by this function's contract the list has `count` elements, which stay as they are during the call.
    unsafe { with_many_sges(sgl, count, take) }
}

/// [`with_sges`] for any number of elements.
///
/// # Safety
/// As for [`with_sges`].
#[inline(never)]
unsafe fn with_many_sges<T>(sgl: *const NDK_SGE, count: u32, take: impl FnOnce(NtResult<&[Sge]>) -> T) -> T {
    let mut copy = [Sge::default(); MAX_SGES];
    // SAFETY: by this function's contract the list has `count` elements, which stay as they are during the call.
    take(unsafe { sges(sgl, count, &mut copy) })
}

/// Copies a consumer's list to `copy`.
///
/// # Errors
/// `STATUS_DATA_OVERRUN` if the list is longer than `copy`, `STATUS_INVALID_PARAMETER` if it is null.
///
/// # Safety
/// `sgl` is null or has `count` elements.
//= R-QP-13, R-QP-14, R-QP-41
pub unsafe fn sges(sgl: *const NDK_SGE, count: u32, copy: &mut [Sge]) -> NtResult<&[Sge]> {
    let copy = copy.get_mut(..count as usize).ok_or(STATUS_DATA_OVERRUN)?;
    if sgl.is_null() && count != 0 {
        return Err(STATUS_INVALID_PARAMETER);
    }
    for (index, slot) in copy.iter_mut().enumerate() {
        // SAFETY: `index` is below `count`, and the list has that many elements and is not null, as checked above.
        let element = unsafe { element(sgl, index) };
        *slot = Sge { address: address(&element).expose_provenance() as u64, ..numbers(&element) };
    }
    Ok(copy)
}

/// Copies the data of an inline list, whose tokens are ignored. Checks the largest limit of any queue pair; the
/// queue pair checks its own.
///
/// # Errors
/// `STATUS_DATA_OVERRUN` for too many elements, `STATUS_BUFFER_OVERFLOW` for too many bytes,
/// `STATUS_INVALID_PARAMETER` for a null list.
///
/// # Safety
/// `sgl` is null or has `count` elements, and each points to memory that is readable during the call.
//= R-QP-30, R-QP-32, R-QP-33, R-IRQL-7
pub unsafe fn gather(sgl: *const NDK_SGE, count: u32, copy: &mut [u8; MAX_INLINE]) -> NtResult<&[u8]> {
    if count as usize > MAX_INLINE {
        return Err(STATUS_DATA_OVERRUN);
    }
    if sgl.is_null() && count != 0 {
        return Err(STATUS_INVALID_PARAMETER);
    }
    let mut filled = 0usize;
    for index in 0..count as usize {
        // SAFETY: `index` is below `count`, and the list has that many elements and is not null, as checked above.
        let element = unsafe { element(sgl, index) };
        let length = element.Length as usize;
        let end = filled.checked_add(length).ok_or(STATUS_BUFFER_OVERFLOW)?;
        let room = copy.get_mut(filled..end).ok_or(STATUS_BUFFER_OVERFLOW)?;
        // SAFETY: the caller's promise; `room` has the same length and is exclusive.
        unsafe { core::ptr::copy_nonoverlapping(address(&element).cast(), room.as_mut_ptr(), length) };
        filled = end;
    }
    Ok(copy.get(..filled).unwrap_or_default())
}

/// Reads an element of a list.
///
/// # Safety
/// `sgl` has more than `index` elements.
unsafe fn element(sgl: *const NDK_SGE, index: usize) -> NDK_SGE {
    // SAFETY: by this function's contract the list has more than `index` elements, so the result is inside it.
    let element = unsafe { sgl.add(index) };
    // SAFETY: the element is inside the consumer's list, which does not change during the call.
    unsafe { element.read() }
}

/// Returns the address of an element: virtual or logical, depending on its token.
fn address(element: &NDK_SGE) -> *mut c_void {
    // SAFETY: both members of the union are eight bytes, and any value is valid.
    unsafe { element.Anonymous.VirtualAddress }
}

fn numbers(element: &NDK_SGE) -> Sge {
    Sge { address: 0, length: element.Length, key: element.MemoryRegionToken }
}

/// Returns the page addresses of a fast registration, in the consumer's array.
///
/// # Errors
/// `STATUS_INVALID_PARAMETER` if the array is null, empty or too long.
///
/// # Safety
/// `pages` is null or has `count` entries during `'a`.
//= R-MR-32, R-MR-39
pub unsafe fn page_addresses<'a>(pages: *const NDK_LOGICAL_ADDRESS, count: u32) -> NtResult<&'a [u64]> {
    if pages.is_null() || count == 0 || count > LIMITS.fast_pages {
        return Err(STATUS_INVALID_PARAMETER);
    }
    // SAFETY: the caller's promise; an address is eight bytes, and any value is valid.
    Ok(unsafe { core::slice::from_raw_parts(pages.cast(), count as usize) })
}
