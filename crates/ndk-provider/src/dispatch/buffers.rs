// SPDX-License-Identifier: MIT OR Apache-2.0

//! The consumer's buffers: bytes and socket addresses, in and out.

use crate::base::address;
use crate::base::status::NtResult;
use core::ffi::c_void;
use core::net::SocketAddr;
use ndk_abi::netio::SOCKADDR;
use ndk_abi::nt::{NTSTATUS, STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_PARAMETER, STATUS_SUCCESS};

/// Returns a consumer's buffer as a slice.
///
/// # Errors
/// `STATUS_INVALID_PARAMETER` for a null pointer with a length.
///
/// # Safety
/// `bytes` is null or valid for reading `length` bytes during `'a`.
//= R-CONN-14, R-CONN-16
pub unsafe fn bytes<'a>(bytes: *const c_void, length: u32) -> NtResult<&'a [u8]> {
    match (bytes.is_null(), length) {
        //= R-CONSUMER-14
        (_, 0) => Ok(&[]),
        (true, _) => Err(STATUS_INVALID_PARAMETER),
        // SAFETY: by this function's contract a pointer that is not null is valid for `length` bytes during `'a`.
        (false, _) => Ok(unsafe { core::slice::from_raw_parts(bytes.cast(), length as usize) }),
    }
}

/// Parses a consumer's socket address.
///
/// # Errors
/// `STATUS_INVALID_PARAMETER`.
///
/// # Safety
/// `address` is null or valid for reading `length` bytes during the call.
pub unsafe fn socket_address(address: *const SOCKADDR, length: u32) -> NtResult<SocketAddr> {
    // SAFETY: by this function's contract the address is null or readable for `length` bytes during the call.
    let bytes = unsafe { bytes(address.cast(), length) }?;
    address::parse(bytes).ok_or(STATUS_INVALID_PARAMETER)
}

/// `NdkGetLocalAddress` and `NdkGetPeerAddress`: writes a socket address to a consumer's buffer if it fits.
///
/// # Safety
/// `length` is null or the consumer's; `out` is null or has room for as many bytes.
//= R-CONN-75, R-CONN-76
pub unsafe fn return_address(
    address: NtResult<SocketAddr>,
    out: *mut SOCKADDR,
    length: *mut u32,
) -> NTSTATUS {
    let (bytes, size) = match address {
        Ok(address) => address::format(address),
        Err(status) => return status,
    };
    // SAFETY: by this function's contract the pointer is null or to a variable of the consumer's, which no other code uses during the
    // call.
    let Some(length) = (unsafe { length.as_mut() }) else { return STATUS_INVALID_PARAMETER };
    let room = core::mem::replace(length, size as u32);
    if out.is_null() || (room as usize) < size {
        return STATUS_BUFFER_TOO_SMALL;
    }
    // SAFETY: the buffer has room for `size` bytes, which are not more than `bytes` has.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast(), size) };
    STATUS_SUCCESS
}

/// A consumer's pointer that a pending call passes to its work item.
pub struct Sent<T>(T);

// SAFETY: what the consumer passes to a call that pends may be used on any thread until the callback.
unsafe impl<T> Send for Sent<T> {}

impl<T> Sent<T> {
    pub fn new(value: T) -> Self {
        Self(value)
    }

    pub fn get(self) -> T {
        self.0
    }
}
