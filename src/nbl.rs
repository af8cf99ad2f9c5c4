// SPDX-License-Identifier: MIT OR Apache-2.0

//! Lists of NET_BUFFER_LISTs that the driver owns.

use core::ptr::null_mut;

use ndk_abi::ndis::NET_BUFFER_LIST;

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

    /// Appends `nbl`.
    ///
    /// # Safety
    /// As for [`NblList::push`].
    pub unsafe fn push(&mut self, nbl: *mut NET_BUFFER_LIST) {
        // SAFETY: this function's contract.
        unsafe { self.0.push(nbl) };
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
        let mut rest = core::mem::replace(&mut self.0, NblList::new());
        // SAFETY: this function's contract.
        unsafe { self.0.push(nbl) };
        while let Some(next) = rest.pop() {
            // SAFETY: just removed from its list.
            unsafe { self.0.push(next) };
        }
    }

    /// Removes the elements that `select` chooses and returns them as a chain.
    pub fn take(&mut self, mut select: impl FnMut(&NET_BUFFER_LIST) -> bool) -> *mut NET_BUFFER_LIST {
        let (mut kept, mut taken) = (NblList::new(), NblList::new());
        while let Some(nbl) = self.0.pop() {
            // SAFETY: owned, and not referenced elsewhere.
            let chosen = select(unsafe { &*nbl });
            let list = if chosen { &mut taken } else { &mut kept };
            // SAFETY: just removed from its list.
            unsafe { list.push(nbl) };
        }
        self.0 = kept;
        taken.first()
    }
}
