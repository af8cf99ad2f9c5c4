// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion of sends: returns NET_BUFFER_LISTs to NDIS. IRQL <= `DISPATCH_LEVEL`.

use core::ptr::null_mut;

use ndk_abi::ndis::{
    NDIS_HANDLE, NDIS_NET_BUFFER_LIST_INFO, NDIS_STATUS,
    NDIS_TCP_LARGE_SEND_OFFLOAD_NET_BUFFER_LIST_INFO as LargeSend, NET_BUFFER_LIST,
    NdisMSendNetBufferListsComplete,
};

use crate::nbl::send_progress::{set_position, set_status};
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
        // SAFETY: the caller has taken the chain from its list, so that it is the caller's alone until it is completed below.
        unsafe { set_position(nbl, null_mut()) };
        end_large_send(nbl);
        if let Some(status) = status {
            // SAFETY: the chain is the caller's alone, as above.
            unsafe { set_status(nbl, status) };
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
    // SAFETY: the driver owns the NBL until it is completed, and no other reference to it exists.
    let list = unsafe { &mut *nbl };
    if let Some(info) = list.NetBufferListInfo.get_mut(slot).filter(|info| !info.is_null()) {
        *info = core::ptr::without_provenance_mut(info.addr() & LargeSend::TYPE_V2 as usize);
    }
}
