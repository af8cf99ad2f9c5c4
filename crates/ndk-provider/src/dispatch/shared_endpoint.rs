//! `NDK_SHARED_ENDPOINT_DISPATCH`, and how addresses are shown to consumers.

use super::{close, object, query_extension};
use crate::address;
use crate::shared_endpoint::SharedEndpoint;
use crate::status::Answer;
use core::net::SocketAddr;
use ndk_abi::ndk::{NDK_SHARED_ENDPOINT, NDK_SHARED_ENDPOINT_DISPATCH};
use ndk_abi::netio::SOCKADDR;
use ndk_abi::nt::{NTSTATUS, STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_PARAMETER, STATUS_SUCCESS};

pub static TABLE: NDK_SHARED_ENDPOINT_DISPATCH = NDK_SHARED_ENDPOINT_DISPATCH {
    NdkCloseSharedEndpoint: Some(close::<SharedEndpoint>),
    NdkQueryExtension: Some(query_extension),
    NdkGetLocalAddress: Some(get_local_address),
};

unsafe extern "efiapi" fn get_local_address(
    endpoint: *mut NDK_SHARED_ENDPOINT,
    out: *mut SOCKADDR,
    length: *mut u32,
) -> NTSTATUS {
    let endpoint = object!(SharedEndpoint, endpoint);
    // SAFETY: the consumer's buffer and its length.
    unsafe { show(Ok(endpoint.address()), out, length) }
}

/// Writes an address to a consumer's buffer, if it has room.
///
///
/// # Safety
/// `length` is null or the consumer's; `out` is null or has room for as many bytes.
//= R-CONN-75, R-CONN-76
pub unsafe fn show(address: Answer<SocketAddr>, out: *mut SOCKADDR, length: *mut u32) -> NTSTATUS {
    let (bytes, size) = match address {
        Ok(address) => address::emit(address),
        Err(status) => return status,
    };
    // SAFETY: the caller's promise.
    let Some(length) = (unsafe { length.as_mut() }) else { return STATUS_INVALID_PARAMETER };
    let room = core::mem::replace(length, size as u32);
    if out.is_null() || (room as usize) < size {
        return STATUS_BUFFER_TOO_SMALL;
    }
    // SAFETY: the buffer has room for `size` bytes, which are not more than `bytes` has.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast(), size) };
    STATUS_SUCCESS
}
