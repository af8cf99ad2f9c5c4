//! What all NDK objects have in common: a dispatch table, and a close that may pend.

use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};
use std::sync::Arc;

use ndk_abi::ndk::{
    NDK_ADAPTER, NDK_ADAPTER_DISPATCH, NDK_CONNECTOR, NDK_CONNECTOR_DISPATCH, NDK_CQ, NDK_CQ_DISPATCH,
    NDK_FN_CLOSE_OBJECT, NDK_LISTENER, NDK_LISTENER_DISPATCH, NDK_MR, NDK_MR_DISPATCH, NDK_OBJECT_HEADER,
    NDK_PD, NDK_PD_DISPATCH, NDK_QP, NDK_QP_DISPATCH, NDK_SRQ, NDK_SRQ_DISPATCH,
};

use crate::os::Os;
use crate::{Status, pending};

/// An object of NDKPI and its dispatch table.
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
    // NDIS opens and closes adapters.
    NDK_ADAPTER: NDK_ADAPTER_DISPATCH, |_| None;
    NDK_CQ: NDK_CQ_DISPATCH, |table| table.NdkCloseCq;
    NDK_PD: NDK_PD_DISPATCH, |table| table.NdkClosePd;
    NDK_MR: NDK_MR_DISPATCH, |table| table.NdkCloseMr;
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

// SAFETY: NDK objects may be used from any thread; what must not run at the same time on one of them is
// kept apart by the types that hold an `Object`.
unsafe impl<O: Os, T: NdkObject> Send for Object<O, T> {}
// SAFETY: as above.
unsafe impl<O: Os, T: NdkObject> Sync for Object<O, T> {}

impl<O: Os, T: NdkObject> Object<O, T> {
    /// # Safety
    /// `raw` is an open object, and the one to close it is this value.
    pub unsafe fn new(os: &Arc<O>, raw: NonNull<T>) -> Self {
        Self { os: Arc::clone(os), raw }
    }

    /// Closes without waiting: whoever closes the object this one was made from waits for both. IRQL <=
    /// `DISPATCH_LEVEL`.
    pub fn close_unwaited(self) {
        //= R-CLOSE-22
        let object = ManuallyDrop::new(self);
        if let Some(close) = T::close_function(object.dispatch()) {
            object.os.call(|| {
                // SAFETY: the object is open, and this value, which nobody has any more, was the one to
                // close it; the callback needs no context.
                unsafe { close(object.raw.as_ptr().cast(), Some(ignored), ptr::null_mut()) }
            });
        }
        // SAFETY: never dropped otherwise.
        drop(unsafe { ptr::read(&raw const object.os) });
    }

    pub fn os(&self) -> &Arc<O> {
        &self.os
    }

    pub fn raw(&self) -> *mut T {
        self.raw.as_ptr()
    }

    /// The object's dispatch table, as it is now: layers between may change it.
    pub fn dispatch(&self) -> &T::Dispatch {
        // SAFETY: the object is open, so it is valid; only the provider and NDIS write to it, and they do
        // not while it is used.
        let object = unsafe { self.raw.as_ref() };
        // SAFETY: a dispatch table lives as long as the objects that refer to it.
        unsafe { &*object.dispatch() }
    }
}

impl<O: Os, T: NdkObject> Drop for Object<O, T> {
    fn drop(&mut self) {
        let Some(close) = T::close_function(self.dispatch()) else { return };
        let closed = pending::close(&self.os, |completion, context| {
            // SAFETY: the object is open, nothing uses it any more, and `closed` waits for the callback.
            unsafe { close(self.raw.as_ptr().cast(), completion, context) }
        });
        // A close cannot fail; a provider that says so is told off by tests, and nothing can be done here.
        debug_assert_eq!(closed, Ok(()), "close failed");
    }
}

unsafe extern "efiapi" fn ignored(_context: *mut c_void) {}

/// An entry of a dispatch table; a provider leaves none out.
pub fn entry<F>(function: Option<F>) -> Result<F, Status> {
    function.ok_or(Status::NOT_SUPPORTED)
}
