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
        // SAFETY: by this function's contract the driver owns `nbl`, so it is valid and no other thread accesses it.
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
    /// The driver owns `nbl`, and it is on no list.
    pub unsafe fn push_front(&mut self, nbl: *mut NET_BUFFER_LIST) {
        // SAFETY: by this function's contract the driver owns `nbl`, so it is valid and no other thread accesses it.
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
        // SAFETY: the driver owns every element of the list; this one has just been removed, so nothing else refers to it.
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
    /// The driver owns `nbl`, and it is on no list.
    pub unsafe fn push_front(&mut self, nbl: *mut NET_BUFFER_LIST) {
        // SAFETY: this function has the contract of `NblList::push_front`: the driver owns `nbl`, and it is on no list.
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
