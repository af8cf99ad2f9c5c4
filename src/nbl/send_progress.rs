// SPDX-License-Identifier: MIT OR Apache-2.0

//! The fields of a sent NET_BUFFER_LIST in which the driver keeps how far it has been sent, and with which status it ends.
//!
//! The driver owns an NBL from `MiniportSendNetBufferLists` until it is completed. A thread has an NBL alone once it has taken it from its
//! list, or while it holds the lock of that list.

use core::ptr::{null_mut, without_provenance_mut};

use ndk_abi::ndis::{NDIS_STATUS, NDIS_STATUS_SUCCESS, NET_BUFFER, NET_BUFFER_LIST};

/// Records that none of an NBL's frames is sent.
///
/// # Safety
/// The driver owns the NBL, and no other thread uses it meanwhile.
pub unsafe fn begin(nbl: *mut NET_BUFFER_LIST) {
    // SAFETY: by this function's contract the NBL is valid and the caller's alone.
    let first = unsafe { (*nbl).FirstNetBuffer };
    // SAFETY: this function has the contract of `set_position`.
    unsafe { set_position(nbl, first) };
    // SAFETY: this function has the contract of `set_status`.
    unsafe { set_status(nbl, NDIS_STATUS_SUCCESS) };
}

/// Sets the status with which an NBL is completed.
///
/// # Safety
/// The driver owns the NBL, and no other thread uses it meanwhile.
pub unsafe fn set_status(nbl: *mut NET_BUFFER_LIST, status: NDIS_STATUS) {
    // SAFETY: by this function's contract the NBL is valid and the caller's alone.
    unsafe { (*nbl).Status = status };
}

/// Returns the first frame of an NBL that is not sent yet, from the NBL's `MiniportReserved`.
///
/// # Safety
/// The driver owns the NBL, and no other thread uses it meanwhile.
pub unsafe fn position(nbl: *mut NET_BUFFER_LIST) -> *mut NET_BUFFER {
    // SAFETY: by this function's contract the NBL is valid and the caller's alone.
    let [position, _] = unsafe { (*nbl).MiniportReserved };
    position.cast()
}

/// Sets the first frame of an NBL that is not sent yet, of which no part is sent; null if all are.
///
/// # Safety
/// The driver owns the NBL, and no other thread uses it meanwhile.
pub unsafe fn set_position(nbl: *mut NET_BUFFER_LIST, position: *mut NET_BUFFER) {
    // SAFETY: by this function's contract the NBL is valid and the caller's alone.
    unsafe { (*nbl).MiniportReserved = [position.cast(), null_mut()] };
}

/// Returns how many bytes of the payload of that frame are sent: 0 unless it is sent in parts.
///
/// # Safety
/// The driver owns the NBL, and no other thread uses it meanwhile.
pub unsafe fn sent_part(nbl: *mut NET_BUFFER_LIST) -> usize {
    // SAFETY: by this function's contract the NBL is valid and the caller's alone.
    let [_, sent] = unsafe { (*nbl).MiniportReserved };
    sent.addr()
}

/// Records that `sent` bytes of the payload of that frame are sent.
///
/// # Safety
/// The driver owns the NBL, and no other thread uses it meanwhile.
pub unsafe fn set_sent_part(nbl: *mut NET_BUFFER_LIST, sent: usize) {
    // SAFETY: by this function's contract the NBL is valid and the caller's alone.
    unsafe { (*nbl).MiniportReserved[1] = without_provenance_mut(sent) };
}
