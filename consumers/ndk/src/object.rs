// SPDX-License-Identifier: MIT OR Apache-2.0

//! The common part of NDK objects: the dispatch table, and a close that may pend.

use alloc::sync::Arc;
use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};

use ndk_abi::ndk::{
    NDK_ADAPTER, NDK_ADAPTER_DISPATCH, NDK_CONNECTOR, NDK_CONNECTOR_DISPATCH, NDK_CQ, NDK_CQ_DISPATCH,
    NDK_FN_CLOSE_OBJECT, NDK_LISTENER, NDK_LISTENER_DISPATCH, NDK_MR, NDK_MR_DISPATCH, NDK_MW,
    NDK_MW_DISPATCH, NDK_OBJECT_HEADER, NDK_PD, NDK_PD_DISPATCH, NDK_QP, NDK_QP_DISPATCH, NDK_SRQ,
    NDK_SRQ_DISPATCH,
};

use crate::os::Os;
use crate::{Status, pending};

/// An NDK object and its dispatch table.
pub trait NdkObject {
    type Dispatch;

    fn header(&self) -> &NDK_OBJECT_HEADER;
    fn dispatch(&self) -> *const Self::Dispatch;
    fn close_function(dispatch: &Self::Dispatch) -> Option<NDK_FN_CLOSE_OBJECT>;
}

macro_rules! objects {
    ($($object:ident: $dispatch:ident, $close:expr;)*) => {
        $(impl NdkObject for $object {
            type Dispatch = $dispatch;

            fn header(&self) -> &NDK_OBJECT_HEADER {
                &self.Header
            }

            fn dispatch(&self) -> *const $dispatch {
                self.Dispatch
            }

            fn close_function(dispatch: &$dispatch) -> Option<NDK_FN_CLOSE_OBJECT> {
                let close: fn(&$dispatch) -> Option<NDK_FN_CLOSE_OBJECT> = $close;
                close(dispatch)
            }
        })*
    };
}

objects! {
    // Adapters are opened and closed through NDIS.
    NDK_ADAPTER: NDK_ADAPTER_DISPATCH, |_| None;
    NDK_CQ: NDK_CQ_DISPATCH, |table| table.NdkCloseCq;
    NDK_PD: NDK_PD_DISPATCH, |table| table.NdkClosePd;
    NDK_MR: NDK_MR_DISPATCH, |table| table.NdkCloseMr;
    NDK_MW: NDK_MW_DISPATCH, |table| table.NdkCloseMw;
    NDK_SRQ: NDK_SRQ_DISPATCH, |table| table.NdkCloseSrq;
    NDK_QP: NDK_QP_DISPATCH, |table| table.NdkCloseQp;
    NDK_CONNECTOR: NDK_CONNECTOR_DISPATCH, |table| table.NdkCloseConnector;
    NDK_LISTENER: NDK_LISTENER_DISPATCH, |table| table.NdkCloseListener;
}

/// An open object. Dropping it closes it and waits for the close, at `PASSIVE_LEVEL`.
pub struct Object<O: Os, T: NdkObject> {
    os: Arc<O>,
    raw: NonNull<T>,
}

// SAFETY: NDK objects may be used from any thread; the types that hold an `Object` serialize the calls that must not be
// concurrent.
unsafe impl<O: Os, T: NdkObject> Send for Object<O, T> {}
// SAFETY: a shared reference calls functions of the dispatch table only, which NDKPI allows from several threads.
unsafe impl<O: Os, T: NdkObject> Sync for Object<O, T> {}

impl<O: Os, T: NdkObject> Object<O, T> {
    /// # Safety
    /// `raw` is an open object, and only this value closes it.
    pub unsafe fn new(os: &Arc<O>, raw: NonNull<T>) -> Self {
        Self { os: Arc::clone(os), raw }
    }

    /// Closes without waiting; the close of the parent object waits for both. IRQL <= `DISPATCH_LEVEL`.
    pub fn close_unwaited(self) {
        //= R-CLOSE-22
        let object = ManuallyDrop::new(self);
        if let Some(close) = T::close_function(object.dispatch()) {
            object.os.call(|| {
                // SAFETY: the object is open, this value owns the close and is consumed, and the callback uses no
                // context.
                unsafe { close(object.raw.as_ptr().cast(), Some(ignored), ptr::null_mut()) }
            });
        }
        // SAFETY: `ManuallyDrop` prevents a second drop.
        drop(unsafe { ptr::read(&raw const object.os) });
    }

    pub fn os(&self) -> &Arc<O> {
        &self.os
    }

    pub fn raw(&self) -> *mut T {
        self.raw.as_ptr()
    }

    /// Returns the current dispatch table; it is not cached because filters may replace it.
    pub fn dispatch(&self) -> &T::Dispatch {
        // SAFETY: the object is open and therefore valid; the provider and NDIS do not write to it while it is used.
        let object = unsafe { self.raw.as_ref() };
        // SAFETY: a dispatch table lives as long as the objects that refer to it.
        unsafe { &*object.dispatch() }
    }
}

impl<O: Os, T: NdkObject> Drop for Object<O, T> {
    fn drop(&mut self) {
        let Some(close) = T::close_function(self.dispatch()) else { return };
        let closed = pending::close(&self.os, |completion, context| {
            // SAFETY: the object is open, nothing uses it, and `closed` waits for the callback.
            unsafe { close(self.raw.as_ptr().cast(), completion, context) }
        });
        // A close cannot fail. If the provider returns an error, tests panic; otherwise it is ignored.
        debug_assert_eq!(closed, Ok(()), "close failed");
    }
}

unsafe extern "efiapi" fn ignored(_context: *mut c_void) {}

/// Returns an entry of a dispatch table; `STATUS_NOT_SUPPORTED` if the provider left it out.
pub fn entry<F>(function: Option<F>) -> Result<F, Status> {
    function.ok_or(Status::NOT_SUPPORTED)
}
