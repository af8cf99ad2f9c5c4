// SPDX-License-Identifier: MIT OR Apache-2.0

//! The common part of all NDK objects: a dispatch table, and a close that may pend.

use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicBool, Ordering};

use driver_support::status::Result;
use ndk_abi::ndk::{
    NDK_CONNECTOR, NDK_CONNECTOR_DISPATCH, NDK_CQ, NDK_CQ_DISPATCH, NDK_FN_CLOSE_OBJECT, NDK_LISTENER,
    NDK_LISTENER_DISPATCH, NDK_MR, NDK_MR_DISPATCH, NDK_PD, NDK_PD_DISPATCH, NDK_QP, NDK_QP_DISPATCH,
};
use ndk_abi::nt::STATUS_NOT_SUPPORTED;

use super::pending::Closing;

/// An NDK object type: its dispatch table, and the entry that closes it.
pub trait NdkObject {
    type Dispatch;

    fn dispatch(&self) -> *const Self::Dispatch;
    fn close_function(dispatch: &Self::Dispatch) -> Option<NDK_FN_CLOSE_OBJECT>;
}

macro_rules! objects {
    ($($object:ident, $dispatch:ident, $close:ident;)*) => {
        $(impl NdkObject for $object {
            type Dispatch = $dispatch;

            fn dispatch(&self) -> *const $dispatch {
                self.Dispatch
            }

            fn close_function(dispatch: &$dispatch) -> Option<NDK_FN_CLOSE_OBJECT> {
                dispatch.$close
            }
        })*
    };
}

objects! {
    NDK_CQ, NDK_CQ_DISPATCH, NdkCloseCq;
    NDK_PD, NDK_PD_DISPATCH, NdkClosePd;
    NDK_MR, NDK_MR_DISPATCH, NdkCloseMr;
    NDK_QP, NDK_QP_DISPATCH, NdkCloseQp;
    NDK_CONNECTOR, NDK_CONNECTOR_DISPATCH, NdkCloseConnector;
    NDK_LISTENER, NDK_LISTENER_DISPATCH, NdkCloseListener;
}

/// An open object. Dropping it closes it, if it is not closed yet, and waits for the close at `PASSIVE_LEVEL`.
pub struct Object<T: NdkObject> {
    raw: NonNull<T>,
    closing: Closing,
    is_closed: AtomicBool,
}

// SAFETY: NDK objects may be used from any thread. What NDKPI wants serialized (posts to one queue, polling and arming
// of one completion queue), the users of this type serialize.
unsafe impl<T: NdkObject> Send for Object<T> {}
// SAFETY: a shared reference calls functions of the dispatch table only, which NDKPI allows from several threads.
unsafe impl<T: NdkObject> Sync for Object<T> {}

impl<T: NdkObject> Object<T> {
    /// Creates an object with what closing it needs, so that a close cannot fail for lack of memory. `PASSIVE_LEVEL`.
    pub fn create(create: impl FnOnce() -> Result<NonNull<T>>) -> Result<Self> {
        let closing = Closing::new()?;
        let raw = create()?;
        Ok(Self { raw, closing, is_closed: AtomicBool::new(false) })
    }

    /// Takes over an open object. IRQL <= `DISPATCH_LEVEL`.
    ///
    /// # Safety
    /// `raw` is open, and only the value returned here closes it. If there is no memory, it is closed by this function,
    /// without waiting.
    pub unsafe fn adopt(raw: NonNull<T>) -> Result<Self> {
        match Closing::new() {
            Ok(closing) => Ok(Self { raw, closing, is_closed: AtomicBool::new(false) }),
            Err(status) => {
                close_without_waiting(raw);
                Err(status)
            }
        }
    }

    pub fn raw(&self) -> *mut T {
        self.raw.as_ptr()
    }

    /// Returns the object's dispatch table. It is not kept, because a filter may replace it.
    pub fn dispatch(&self) -> &T::Dispatch {
        dispatch(self.raw)
    }

    /// Closes the object, if it is not closed yet, and waits for the close. `PASSIVE_LEVEL`.
    pub fn close(&self) {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let Some(close) = T::close_function(self.dispatch()) else { return };
        self.closing.close(|completion, context| {
            // SAFETY: open until now; the flag keeps a second close away, the wait keeps the context alive.
            unsafe { close(self.raw.as_ptr().cast(), completion, context) }
        });
    }

    /// Closes the object without waiting. The close of its parent waits for it. IRQL <= `DISPATCH_LEVEL`.
    pub fn close_unwaited(self) {
        if !self.is_closed.swap(true, Ordering::AcqRel) {
            close_without_waiting(self.raw);
        }
    }
}

impl<T: NdkObject> Drop for Object<T> {
    fn drop(&mut self) {
        self.close();
    }
}

fn dispatch<'a, T: NdkObject>(raw: NonNull<T>) -> &'a T::Dispatch {
    // SAFETY: the object is open; the provider does not change it meanwhile.
    let table = unsafe { raw.as_ref() }.dispatch();
    // SAFETY: a dispatch table is valid as long as objects refer to it.
    unsafe { &*table }
}

fn close_without_waiting<T: NdkObject>(raw: NonNull<T>) {
    unsafe extern "efiapi" fn ignored(_context: *mut core::ffi::c_void) {}
    if let Some(close) = T::close_function(dispatch(raw)) {
        // SAFETY: open until now, and not used afterwards; the completion routine uses no context.
        unsafe { close(raw.as_ptr().cast(), Some(ignored), null_mut()) };
    }
}

/// Returns an entry of a dispatch table.
pub fn entry<F>(function: Option<F>) -> Result<F> {
    function.ok_or(STATUS_NOT_SUPPORTED)
}
