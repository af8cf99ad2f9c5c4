// SPDX-License-Identifier: MIT OR Apache-2.0

//! The value of an OID set request, read from the request's buffer.

use ndk_abi::ndis::{NDIS_OID_REQUEST_SET, NDIS_STATUS, NDIS_STATUS_INVALID_LENGTH};

/// Reads the value of a set request: plain data of a fixed size. Bytes beyond it are ignored.
///
/// # Errors
/// `NDIS_STATUS_INVALID_LENGTH` if the buffer is too short.
pub fn value<T: Copy>(request: &mut NDIS_OID_REQUEST_SET) -> Result<T, NDIS_STATUS> {
    let needed = size_of::<T>() as u32;
    if request.InformationBufferLength < needed {
        request.BytesNeeded = needed;
        return Err(NDIS_STATUS_INVALID_LENGTH);
    }
    request.BytesRead = needed;
    // SAFETY: the buffer is large enough; the types used are plain integers.
    Ok(unsafe { request.InformationBuffer.cast::<T>().read_unaligned() })
}

/// Reads a structure of at least `min` bytes from a set request; missing bytes are 0.
///
/// # Errors
/// `too_short` if the structure is shorter than `min`.
pub fn padded<const LONGEST: usize>(
    request: &mut NDIS_OID_REQUEST_SET,
    min: usize,
    too_short: NDIS_STATUS,
) -> Result<[u8; LONGEST], NDIS_STATUS> {
    let len = request.InformationBufferLength as usize;
    if len < min {
        request.BytesNeeded = min as u32;
        return Err(too_short);
    }
    let len = len.min(LONGEST);
    request.BytesRead = len as u32;
    let mut bytes = [0; LONGEST];
    // SAFETY: the request's buffer has `len` bytes, and so has the array.
    unsafe { core::ptr::copy_nonoverlapping(request.InformationBuffer.cast(), bytes.as_mut_ptr(), len) };
    Ok(bytes)
}
