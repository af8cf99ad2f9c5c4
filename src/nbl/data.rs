// SPDX-License-Identifier: MIT OR Apache-2.0

//! The data of a NET_BUFFER: its length, and copies of it.

use ndk_abi::ndis::{
    NDIS_STATUS, NDIS_STATUS_INVALID_LENGTH, NDIS_STATUS_RESOURCES, NET_BUFFER, NdisGetDataBuffer,
};

use crate::config::ETHERNET_HEADER;

/// Returns whether the MDLs of a frame describe the first `len` bytes of its data. Checked before `NdisGetDataBuffer`, for which the end
/// of the chain is not documented.
pub fn has_data(net_buffer: &NET_BUFFER, mut len: u32) -> bool {
    let (mut mdl, mut skipped) = (net_buffer.CurrentMdl, net_buffer.CurrentMdlOffset);
    // SAFETY: null, or an MDL of a list that is the driver's own.
    while let Some(part) = unsafe { mdl.as_ref() } {
        match len.checked_sub(part.ByteCount.saturating_sub(skipped)) {
            None | Some(0) => return true,
            Some(left) => len = left,
        }
        (mdl, skipped) = (part.Next, 0);
    }
    false
}

/// Returns the length of one frame in bytes.
pub fn data_len(net_buffer: *mut NET_BUFFER) -> u32 {
    // SAFETY: a frame of a list that is the driver's own.
    let len = unsafe { (*net_buffer).Anonymous };
    // SAFETY: both views of the length are the same number.
    unsafe { len.DataLength }
}

/// Copies one frame into `slot`. Returns its length.
///
/// # Errors
/// `NDIS_STATUS_INVALID_LENGTH` if it is too short or too long, or longer than its MDLs; `NDIS_STATUS_RESOURCES` if it cannot be mapped.
pub fn copy_data(net_buffer: *mut NET_BUFFER, slot: &mut [u8]) -> Result<usize, NDIS_STATUS> {
    let len = data_len(net_buffer);
    if len < ETHERNET_HEADER {
        return Err(NDIS_STATUS_INVALID_LENGTH);
    }
    let slot = slot.get_mut(..len as usize).ok_or(NDIS_STATUS_INVALID_LENGTH)?;
    // SAFETY: a frame of a list that is the driver's own.
    if !has_data(unsafe { &*net_buffer }, len) {
        return Err(NDIS_STATUS_INVALID_LENGTH);
    }
    // SAFETY: the storage has the length asked for.
    let data = unsafe { NdisGetDataBuffer(net_buffer, len, slot.as_mut_ptr().cast(), 1, 0) };
    if data.is_null() {
        return Err(NDIS_STATUS_RESOURCES);
    }
    if !core::ptr::eq(data.cast::<u8>(), slot.as_ptr()) {
        // SAFETY: the frame lies in one piece at `data`, and the slot is memory of the driver's.
        unsafe { core::ptr::copy_nonoverlapping(data.cast::<u8>(), slot.as_mut_ptr(), slot.len()) };
    }
    Ok(slot.len())
}
