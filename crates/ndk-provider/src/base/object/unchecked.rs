// SPDX-License-Identifier: MIT OR Apache-2.0

//! A consumer's object pointer before it is checked. Only of objects whose calls are checked: the memory of their closed
//! objects is kept.

use super::{Head, ObjectType, TAG, tag};
use crate::base::strict::{Checker, Subject};
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use ndk_abi::ndk::NDK_OBJECT_TYPE;

/// The state of a consumer's pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pointee {
    /// Null, or no object of the provider.
    Nothing,
    /// An object of another type.
    OtherType,
    /// An object of the type whose close was requested.
    Closed,
    Open,
}

/// Calls on one object that the consumer must not make at the same time.
#[derive(Clone, Copy, Debug)]
pub enum Serial {
    /// Posts to the initiator queue.
    Initiator = 1,
    /// Posts to the receive queue or the shared receive queue.
    Receive = 2,
    /// Polls and arms of a completion queue.
    Poll = 4,
}

/// A consumer's pointer, for a check before its use.
#[derive(Clone, Copy)]
pub struct Unchecked(NonNull<Head>);

impl Unchecked {
    /// Returns the pointer if it is to an object of the provider, of any type, open or closed.
    ///
    /// # Safety
    /// `public` is null or points to the memory of an object, which is kept after its close if calls are checked.
    pub unsafe fn new<T: ObjectType>(public: *mut T::Public) -> Option<Self> {
        let head = NonNull::new(public.cast::<Head>())?;
        // SAFETY: the caller's promise; every object begins with its head.
        let tag = unsafe { (*head.as_ptr()).tag };
        (tag & !0xff == TAG).then_some(Self(head))
    }

    fn head(&self) -> &Head {
        // SAFETY: by the contract of `new` the pointer is to the memory of an object, which is kept after its close.
        unsafe { self.0.as_ref() }
    }

    /// Returns what checks the object's calls, or `None` if they are not checked.
    pub fn checker(&self) -> Option<&Checker> {
        // SAFETY: valid as long as the object's memory.
        unsafe { self.head().checker.as_ref() }
    }

    pub fn subject(self) -> Subject {
        let kind = (self.head().tag & 0xff) as i32;
        Subject { kind: NDK_OBJECT_TYPE(kind), object: self.0.addr().get() }
    }

    /// Returns what the pointer is to a call on an object of type `T`. IRQL <= `DISPATCH_LEVEL`.
    pub fn as_type<T: ObjectType>(self) -> Pointee {
        if self.head().tag != tag::<T>() {
            return Pointee::OtherType;
        }
        if self.head().is_open() { Pointee::Open } else { Pointee::Closed }
    }

    /// Begins a call that the consumer serializes. Returns whether another one is in progress.
    pub fn begin(self, serial: Serial) -> bool {
        self.head().busy.fetch_or(serial as u8, Ordering::AcqRel) & serial as u8 != 0
    }

    /// Ends a call.
    pub fn end(self, serial: Serial) {
        self.head().busy.fetch_and(!(serial as u8), Ordering::AcqRel);
    }
}
