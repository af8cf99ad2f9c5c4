// SPDX-License-Identifier: MIT OR Apache-2.0

//! Lists of NET_BUFFER_LISTs that the driver owns, and what is in them.

use core::ffi::c_void;
use core::ptr::null_mut;

use ndk_abi::ndis::{
    NDIS_NET_BUFFER_LIST_INFO, NDIS_STATUS, NDIS_STATUS_INVALID_LENGTH, NDIS_STATUS_RESOURCES, NET_BUFFER,
    NET_BUFFER_LIST, NdisGetDataBuffer,
};

use crate::config::ETHERNET_HEADER;

/// A list of NET_BUFFER_LISTs, linked through their `Next`. The driver owns them until it completes or indicates them.
pub struct NblList {
    first: *mut NET_BUFFER_LIST,
    last: *mut NET_BUFFER_LIST,
}

impl NblList {
    pub const fn new() -> Self {
        Self { first: null_mut(), last: null_mut() }
    }

    pub fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    pub fn first(&self) -> *mut NET_BUFFER_LIST {
        self.first
    }

    /// Appends `nbl`; its `Next` is overwritten.
    ///
    /// # Safety
    /// The driver owns `nbl`, and it is on no list.
    pub unsafe fn push(&mut self, nbl: *mut NET_BUFFER_LIST) {
        // SAFETY: this function's contract.
        unsafe { (*nbl).Next = null_mut() };
        if self.last.is_null() {
            self.first = nbl;
        } else {
            // SAFETY: the driver owns every element of the list.
            unsafe { (*self.last).Next = nbl };
        }
        self.last = nbl;
    }

    /// Makes `nbl` the first element; its `Next` is overwritten. In constant time.
    ///
    /// # Safety
    /// As for [`push`](Self::push).
    pub unsafe fn push_front(&mut self, nbl: *mut NET_BUFFER_LIST) {
        // SAFETY: this function's contract.
        unsafe { (*nbl).Next = self.first };
        self.first = nbl;
        if self.last.is_null() {
            self.last = nbl;
        }
    }

    /// Appends the elements of another list. In constant time.
    pub fn append(&mut self, other: Self) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            *self = other;
            return;
        }
        // SAFETY: the driver owns every element of the list.
        unsafe { (*self.last).Next = other.first };
        self.last = other.last;
    }

    /// Removes and returns all elements.
    pub fn take_all(&mut self) -> Self {
        core::mem::replace(self, Self::new())
    }

    /// Removes and returns the first element.
    pub fn pop(&mut self) -> Option<*mut NET_BUFFER_LIST> {
        let nbl = self.first;
        if nbl.is_null() {
            return None;
        }
        // SAFETY: the driver owns every element of the list.
        self.first = unsafe { (*nbl).Next };
        if self.first.is_null() {
            self.last = null_mut();
        }
        // SAFETY: as above.
        unsafe { (*nbl).Next = null_mut() };
        Some(nbl)
    }

    /// Removes and returns the first elements, at most `limit`, and their number.
    pub fn take_first(&mut self, limit: u32) -> (Self, u32) {
        let (mut taken, mut count) = (Self::new(), 0);
        while count < limit
            && let Some(nbl) = self.pop()
        {
            // SAFETY: owned, and just removed from its list.
            unsafe { taken.push(nbl) };
            count += 1;
        }
        (taken, count)
    }

    /// Removes and returns the first element if there is one that `select` accepts.
    pub fn take_first_if(
        &mut self,
        select: impl FnOnce(*mut NET_BUFFER_LIST) -> bool,
    ) -> Option<*mut NET_BUFFER_LIST> {
        if self.is_empty() || !select(self.first) { None } else { self.pop() }
    }
}

// SAFETY: the elements are owned, and have no thread affinity.
unsafe impl Send for NblList {}

/// NET_BUFFER_LISTs that wait for free transmit slots, in order.
pub struct WaitingSends(NblList);

impl WaitingSends {
    pub const fn new() -> Self {
        Self(NblList::new())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes and returns the first element.
    pub fn pop(&mut self) -> Option<*mut NET_BUFFER_LIST> {
        self.0.pop()
    }

    /// Makes `nbl` the first element.
    ///
    /// # Safety
    /// As for [`NblList::push`].
    pub unsafe fn push_front(&mut self, nbl: *mut NET_BUFFER_LIST) {
        // SAFETY: this function's contract.
        unsafe { self.0.push_front(nbl) };
    }

    /// Appends the elements of a list.
    pub fn append(&mut self, other: NblList) {
        self.0.append(other);
    }

    /// Removes and returns all elements.
    pub fn take_all(&mut self) -> NblList {
        self.0.take_all()
    }

    /// Removes and returns the elements that `select` chooses.
    pub fn take(&mut self, mut select: impl FnMut(&NET_BUFFER_LIST) -> bool) -> NblList {
        let (mut kept, mut taken) = (NblList::new(), NblList::new());
        while let Some(nbl) = self.0.pop() {
            // SAFETY: owned, and not referenced elsewhere.
            let chosen = select(unsafe { &*nbl });
            let list = if chosen { &mut taken } else { &mut kept };
            // SAFETY: just removed from its list.
            unsafe { list.push(nbl) };
        }
        self.0 = kept;
        taken
    }
}

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
