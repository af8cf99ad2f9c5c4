// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls that complete inline or through a callback.
//!
//! Each call shares a reference-counted context with the provider: the provider's reference is released when the call
//! completes inline, and by the callback otherwise. Waits are at `PASSIVE_LEVEL`. Callbacks arrive at up to
//! `DISPATCH_LEVEL`, possibly before the call that pended has returned.

use alloc::sync::Arc;
use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use ndk_abi::ndk::{
    NDK_FN_CLOSE_COMPLETION, NDK_FN_CREATE_COMPLETION, NDK_FN_REQUEST_COMPLETION, NDK_OBJECT_HEADER,
};
use ndk_abi::nt::NTSTATUS;

use crate::Status;
use crate::os::{Event, Os};

/// The context of a call.
struct Pending<O: Os> {
    os: Arc<O>,
    done: O::Event,
    status: AtomicI32,
    object: AtomicPtr<NDK_OBJECT_HEADER>,
}

/// Makes a request and waits for it. `call` passes the callback and its context to the provider.
pub fn request<O: Os>(
    os: &Arc<O>,
    call: impl FnOnce(Option<NDK_FN_REQUEST_COMPLETION>, *mut c_void) -> NTSTATUS,
) -> Result<(), Status> {
    Pending::run(os, |_, context| call(Some(request_completed::<O>), context)).map(drop)
}

/// Creates an object and waits for it. `call` passes the callback, its context, and the location for an object that is
/// created inline.
pub fn create<O: Os, T>(
    os: &Arc<O>,
    call: impl FnOnce(Option<NDK_FN_CREATE_COMPLETION>, *mut c_void, *mut *mut T) -> NTSTATUS,
) -> Result<NonNull<T>, Status> {
    let pending = Pending::run(os, |pending, context| {
        call(Some(create_completed::<O>), context, pending.object.as_ptr().cast())
    })?;
    // Success without an object is a defect of the provider.
    NonNull::new(pending.object.load(Ordering::Acquire).cast()).ok_or(Status::INTERNAL_ERROR)
}

/// Closes an object and waits until the close is complete.
pub fn close<O: Os>(
    os: &Arc<O>,
    call: impl FnOnce(Option<NDK_FN_CLOSE_COMPLETION>, *mut c_void) -> NTSTATUS,
) -> Result<(), Status> {
    Pending::run(os, |_, context| call(Some(close_completed::<O>), context)).map(drop)
}

impl<O: Os> Pending<O> {
    fn run(os: &Arc<O>, call: impl FnOnce(&Self, *mut c_void) -> NTSTATUS) -> Result<Arc<Self>, Status> {
        let pending = Arc::new(Self {
            os: Arc::clone(os),
            done: os.event(),
            status: AtomicI32::new(Status::PENDING.0),
            object: AtomicPtr::default(),
        });
        let context = Arc::into_raw(Arc::clone(&pending));
        let inline = Status(os.call(|| call(&pending, context.cast_mut().cast())));
        let status = if inline == Status::PENDING {
            pending.done.wait(None);
            Status(pending.status.load(Ordering::Acquire))
        } else {
            // SAFETY: completed inline, so that there is no callback: the provider's reference is released here.
            drop(unsafe { Arc::from_raw(context) });
            inline
        };
        status.check().map(|()| pending)
    }

    /// Completes a call from its callback.
    ///
    /// # Safety
    /// `context` is that of a call that returned `STATUS_PENDING`, and this is its only callback.
    unsafe fn complete(
        name: &'static str,
        context: *mut c_void,
        status: NTSTATUS,
        object: *mut NDK_OBJECT_HEADER,
    ) {
        // SAFETY: by the contract of this function, this is the reference that `run` gave to the provider.
        let pending = unsafe { Arc::from_raw(context.cast_const().cast::<Self>()) };
        pending.os.callback(name, || {
            if !object.is_null() {
                pending.object.store(object, Ordering::Release);
            }
            pending.status.store(status, Ordering::Release);
            pending.done.set();
        });
    }
}

unsafe extern "efiapi" fn request_completed<O: Os>(context: *mut c_void, status: NTSTATUS) {
    // SAFETY: the provider calls back once for a request that pended, with its context.
    unsafe { Pending::<O>::complete("RequestCompletion", context, status, core::ptr::null_mut()) };
}

unsafe extern "efiapi" fn create_completed<O: Os>(
    context: *mut c_void,
    status: NTSTATUS,
    object: *mut NDK_OBJECT_HEADER,
) {
    // SAFETY: the provider calls back once for a create that pended, with its context.
    unsafe { Pending::<O>::complete("CreateCompletion", context, status, object) };
}

unsafe extern "efiapi" fn close_completed<O: Os>(context: *mut c_void) {
    // SAFETY: the provider calls back once for a close that pended, with its context.
    unsafe {
        Pending::<O>::complete("CloseCompletion", context, Status::SUCCESS.0, core::ptr::null_mut());
    }
}
