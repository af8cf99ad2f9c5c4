// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion of sends: returns NET_BUFFER_LISTs to NDIS. Also accesses the fields of an NBL in which the driver keeps its progress.
//!
//! IRQL <= `DISPATCH_LEVEL`.

use core::ptr::null_mut;

use ndk_abi::ndis::{
    NDIS_HANDLE, NDIS_NET_BUFFER_LIST_INFO, NDIS_STATUS, NDIS_STATUS_SUCCESS,
    NDIS_TCP_LARGE_SEND_OFFLOAD_NET_BUFFER_LIST_INFO as LargeSend, NET_BUFFER, NET_BUFFER_LIST,
    NdisMSendNetBufferListsComplete,
};

use crate::nic::port::Port;

/// Completes all waiting sends with `status`, because the adapter pauses or its device is gone.
pub fn abort_waiting(handle: NDIS_HANDLE, port: &Port, status: NDIS_STATUS) {
    complete(handle, port.take_waiting(|_| true), Some(status), 0);
}

/// Completes a chain of NBLs with `status`, or with `None` each with its own status.
pub fn complete(handle: NDIS_HANDLE, chain: *mut NET_BUFFER_LIST, status: Option<NDIS_STATUS>, flags: u32) {
    if chain.is_null() {
        return;
    }
    let mut nbl = chain;
    while !nbl.is_null() {
        set_position(nbl, null_mut());
        end_large_send(nbl);
        if let Some(status) = status {
            set_status(nbl, status);
        }
        // SAFETY: the driver owns the chain until it is completed below.
        nbl = unsafe { (*nbl).Next };
    }
    // SAFETY: the chain was passed to `MiniportSendNetBufferLists` and is completed once; no lock is held.
    unsafe { NdisMSendNetBufferListsComplete(handle, chain, flags) };
}

/// Sets the result of a large send: only the type for LSO version 2; no bytes sent for version 1, which fails.
fn end_large_send(nbl: *mut NET_BUFFER_LIST) {
    let slot = NDIS_NET_BUFFER_LIST_INFO::TcpLargeSendNetBufferListInfo.0 as usize;
    // SAFETY: owned by the driver, and not referenced elsewhere.
    let list = unsafe { &mut *nbl };
    if let Some(info) = list.NetBufferListInfo.get_mut(slot).filter(|info| !info.is_null()) {
        *info = core::ptr::without_provenance_mut(info.addr() & LargeSend::TYPE_V2 as usize);
    }
}

/// Initializes an NBL's progress: none of its frames is sent.
pub fn begin(nbl: *mut NET_BUFFER_LIST) {
    // SAFETY: owned by the driver.
    let first = unsafe { (*nbl).FirstNetBuffer };
    set_position(nbl, first);
    set_status(nbl, NDIS_STATUS_SUCCESS);
}

pub fn set_status(nbl: *mut NET_BUFFER_LIST, status: NDIS_STATUS) {
    // SAFETY: owned by the driver.
    unsafe { (*nbl).Status = status };
}

/// Returns the first frame of an NBL that is not sent yet, from the NBL's `MiniportReserved`.
pub fn position(nbl: *mut NET_BUFFER_LIST) -> *mut NET_BUFFER {
    // SAFETY: owned by the driver.
    let [position, _] = unsafe { (*nbl).MiniportReserved };
    position.cast()
}

pub fn set_position(nbl: *mut NET_BUFFER_LIST, position: *mut NET_BUFFER) {
    // SAFETY: owned by the driver.
    unsafe { (*nbl).MiniportReserved = [position.cast(), null_mut()] };
}
