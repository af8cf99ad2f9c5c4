// SPDX-License-Identifier: MIT OR Apache-2.0

//! The out-of-band information of a NET_BUFFER_LIST (`NetBufferListInfo`).

use core::ffi::c_void;
use core::ptr::null_mut;

use ndk_abi::ndis::{NDIS_NET_BUFFER_LIST_INFO, NET_BUFFER_LIST};

/// Returns a slot of a list's information.
pub fn info(nbl: &NET_BUFFER_LIST, slot: NDIS_NET_BUFFER_LIST_INFO) -> *mut c_void {
    usize::try_from(slot.0)
        .ok()
        .and_then(|slot| nbl.NetBufferListInfo.get(slot))
        .copied()
        .unwrap_or(null_mut())
}

/// Sets a slot of a list's information.
pub fn set_info(nbl: &mut NET_BUFFER_LIST, slot: NDIS_NET_BUFFER_LIST_INFO, value: usize) {
    if let Some(slot) = usize::try_from(slot.0).ok().and_then(|slot| nbl.NetBufferListInfo.get_mut(slot)) {
        *slot = core::ptr::without_provenance_mut(value);
    }
}
