// SPDX-License-Identifier: MIT OR Apache-2.0

//! Status indications to NDIS.

use ndk_abi::ndis::{
    NDIS_HANDLE, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_STATUS_INDICATION,
    NDIS_SIZEOF_STATUS_INDICATION_REVISION_1, NDIS_STATUS, NDIS_STATUS_INDICATION,
    NDIS_STATUS_INDICATION_REVISION_1, NdisMIndicateStatusEx,
};

/// Indicates `code` with an NDIS structure as its status buffer. IRQL <= `DISPATCH_LEVEL`, no lock held.
pub fn indicate<T: Copy>(handle: NDIS_HANDLE, code: NDIS_STATUS, buffer: &mut T) {
    // SAFETY: integers, handles and pointers only: all zeroes is a value.
    let mut indication: NDIS_STATUS_INDICATION = unsafe { core::mem::zeroed() };
    indication.Header = NDIS_OBJECT_HEADER {
        Type: NDIS_OBJECT_TYPE_STATUS_INDICATION,
        Revision: NDIS_STATUS_INDICATION_REVISION_1,
        Size: NDIS_SIZEOF_STATUS_INDICATION_REVISION_1,
    };
    indication.SourceHandle = handle;
    indication.StatusCode = code;
    indication.StatusBuffer = core::ptr::from_mut(buffer).cast();
    indication.StatusBufferSize = size_of::<T>() as u32;
    // SAFETY: the indication and its buffer are complete and valid for the call; no lock is held.
    unsafe { NdisMIndicateStatusEx(handle, &raw mut indication) };
}
