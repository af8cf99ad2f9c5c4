// SPDX-License-Identifier: MIT OR Apache-2.0

//! The fields of a sent NET_BUFFER_LIST in which the driver keeps how far it has been sent, and with which status it ends.
//!
//! The caller has taken the NBL from the list on which it was, or holds the lock of that list.

use core::ptr::null_mut;

use ndk_abi::ndis::{NDIS_STATUS, NDIS_STATUS_SUCCESS, NET_BUFFER, NET_BUFFER_LIST};

/// Records that none of an NBL's frames is sent.
pub fn begin(nbl: *mut NET_BUFFER_LIST) {
    // SAFETY: the driver owns the NBL from `MiniportSendNetBufferLists` until it is completed, and one thread at a time has it.
    let first = unsafe { (*nbl).FirstNetBuffer };
    set_position(nbl, first);
    set_status(nbl, NDIS_STATUS_SUCCESS);
}

/// Sets the status with which an NBL is completed.
pub fn set_status(nbl: *mut NET_BUFFER_LIST, status: NDIS_STATUS) {
    // SAFETY: the driver owns the NBL from `MiniportSendNetBufferLists` until it is completed, and one thread at a time has it.
    unsafe { (*nbl).Status = status };
}

/// Returns the first frame of an NBL that is not sent yet, from the NBL's `MiniportReserved`.
pub fn position(nbl: *mut NET_BUFFER_LIST) -> *mut NET_BUFFER {
    // SAFETY: the driver owns the NBL from `MiniportSendNetBufferLists` until it is completed, and one thread at a time has it.
    let [position, _] = unsafe { (*nbl).MiniportReserved };
    position.cast()
}

/// Sets the first frame of an NBL that is not sent yet; null if all are.
pub fn set_position(nbl: *mut NET_BUFFER_LIST, position: *mut NET_BUFFER) {
    // SAFETY: the driver owns the NBL from `MiniportSendNetBufferLists` until it is completed, and one thread at a time has it.
    unsafe { (*nbl).MiniportReserved = [position.cast(), null_mut()] };
}
