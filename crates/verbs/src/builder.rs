// SPDX-License-Identifier: MIT OR Apache-2.0

//! The requests of an extended queue pair that are being built.

use core::cell::UnsafeCell;
use core::ffi::c_uint;
use core::ops::Range;

use parking_lot::lock_api::RawMutex as _;
use verbs_core::{AtomicOperation, Binding, Error, SendOperation, Sge};

use crate::abi::objects::{IbvAh, IbvSge};

/// The requests that a program builds.
pub struct Builder {
    /// Held from start to completion.
    lock: parking_lot::RawMutex,
    list: UnsafeCell<List>,
}

/// The list of requests.
#[derive(Default)]
pub struct List {
    pub requests: Vec<Pending>,
    /// Elements of all requests.
    pub elements: Vec<Sge>,
    /// Inline data of all requests.
    pub bytes: Vec<u8>,
    pub error: Option<Error>,
}

/// A request.
pub struct Pending {
    pub id: u64,
    pub flags: c_uint,
    pub operation: Operation,
    pub immediate: Option<[u8; 4]>,
    /// Address handle, queue pair and Q_Key of a datagram.
    pub to: Option<(*mut IbvAh, u32, u32)>,
    pub data: Data,
}

/// Operation of a request.
#[derive(Clone, Copy)]
pub enum Operation {
    Send(SendOperation),
    Atomic { operation: AtomicOperation, address: u64, key: u32 },
}

/// Data of a request: a part of the list's.
pub enum Data {
    Elements(Range<usize>),
    Inline(Range<usize>),
    Binding(Binding),
}

impl Builder {
    /// Creates an empty list.
    pub const fn new() -> Self {
        let list = List { requests: Vec::new(), elements: Vec::new(), bytes: Vec::new(), error: None };
        Self { lock: parking_lot::RawMutex::INIT, list: UnsafeCell::new(list) }
    }

    /// Locks the list.
    pub fn lock(&self) {
        self.lock.lock();
    }

    /// Returns whether a thread has locked the list.
    pub fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }

    /// Unlocks the list.
    ///
    /// # Safety
    /// This thread has locked it.
    pub unsafe fn unlock(&self) {
        // SAFETY: by the contract of this function.
        unsafe { self.lock.unlock() };
    }

    /// Returns the list, for the thread that has locked it.
    pub fn list(&self) -> *mut List {
        self.list.get()
    }
}

impl List {
    /// Removes all requests.
    pub fn clear(&mut self) {
        self.requests.clear();
        self.elements.clear();
        self.bytes.clear();
        self.error = None;
    }

    /// Returns the request that is being built. Without one, the program has called a setter too early.
    pub fn current(&mut self) -> Option<&mut Pending> {
        if self.requests.is_empty() {
            self.error = Some(Error::Invalid);
        }
        self.requests.last_mut()
    }

    /// Sets the elements of the current request.
    pub fn set_elements(&mut self, elements: &[IbvSge]) {
        let start = self.elements.len();
        let convert =
            |element: &IbvSge| Sge { address: element.addr, length: element.length, key: element.lkey };
        self.elements.extend(elements.iter().map(convert));
        let end = self.elements.len();
        if let Some(request) = self.current() {
            request.data = Data::Elements(start..end);
        }
    }

    /// Sets inline data: `copy` appends it.
    pub fn set_inline(&mut self, copy: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        copy(&mut self.bytes);
        let end = self.bytes.len();
        if let Some(request) = self.current() {
            request.data = Data::Inline(start..end);
        }
    }
}
