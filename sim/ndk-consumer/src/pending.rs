//! Calls that answer inline or later, made to look alike.
//!
//! A context on the heap is shared with the provider for as long as it owes a callback: the provider's
//! share is taken back when the call answers inline, and ends with the callback otherwise. Waiting is
//! done at `PASSIVE_LEVEL`; the callbacks come at any level up to `DISPATCH_LEVEL`, perhaps before the
//! call that pended has returned.

use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::sync::Arc;

use ndk_abi::ndk::{
    NDK_FN_CLOSE_COMPLETION, NDK_FN_CREATE_COMPLETION, NDK_FN_REQUEST_COMPLETION, NDK_OBJECT_HEADER,
};
use ndk_abi::nt::NTSTATUS;

use crate::Status;
use crate::os::{Event, Os};

/// What the provider shares while a call is pending.
struct Pending<O: Os> {
    os: Arc<O>,
    done: O::Event,
    status: AtomicI32,
    object: AtomicPtr<NDK_OBJECT_HEADER>,
}

/// Makes a request: `call` passes the callback and its context on.
pub fn request<O: Os>(
    os: &Arc<O>,
    call: impl FnOnce(Option<NDK_FN_REQUEST_COMPLETION>, *mut c_void) -> NTSTATUS,
) -> Result<(), Status> {
    Pending::run(os, |_, context| call(Some(requested::<O>), context)).map(drop)
}

/// Creates an object: `call` passes on the callback, its context, and where an object made inline goes.
pub fn create<O: Os, T>(
    os: &Arc<O>,
    call: impl FnOnce(Option<NDK_FN_CREATE_COMPLETION>, *mut c_void, *mut *mut T) -> NTSTATUS,
) -> Result<NonNull<T>, Status> {
    let pending = Pending::run(os, |pending, context| {
        call(Some(created::<O>), context, pending.object.as_ptr().cast())
    })?;
    // A provider that reports success without an object has failed.
    NonNull::new(pending.object.load(Ordering::Acquire).cast()).ok_or(Status::INTERNAL_ERROR)
}

/// Closes an object; returns when the provider is done with it.
pub fn close<O: Os>(
    os: &Arc<O>,
    call: impl FnOnce(Option<NDK_FN_CLOSE_COMPLETION>, *mut c_void) -> NTSTATUS,
) -> Result<(), Status> {
    Pending::run(os, |_, context| call(Some(closed::<O>), context)).map(drop)
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
            // SAFETY: answered inline, the provider owes no callback: its share of the context is ours.
            drop(unsafe { Arc::from_raw(context) });
            inline
        };
        status.check().map(|()| pending)
    }

    /// Ends the provider's share.
    ///
    /// # Safety
    /// `context` comes from a call that has pended, and this is its one callback.
    unsafe fn complete(
        name: &'static str,
        context: *mut c_void,
        status: NTSTATUS,
        object: *mut NDK_OBJECT_HEADER,
    ) {
        // SAFETY: the caller's promise: this is the reference `run` gave away.
        let pending = unsafe { Arc::from_raw(context.cast_const().cast::<Self>()) };
        pending.os.called_back(name);
        if !object.is_null() {
            pending.object.store(object, Ordering::Release);
        }
        pending.status.store(status, Ordering::Release);
        pending.done.set();
    }
}

unsafe extern "efiapi" fn requested<O: Os>(context: *mut c_void, status: NTSTATUS) {
    // SAFETY: the provider calls back once for a request that pended, with the context given to it.
    unsafe { Pending::<O>::complete("RequestCompletion", context, status, core::ptr::null_mut()) };
}

unsafe extern "efiapi" fn created<O: Os>(
    context: *mut c_void,
    status: NTSTATUS,
    object: *mut NDK_OBJECT_HEADER,
) {
    // SAFETY: the provider calls back once for a create that pended, with the context given to it.
    unsafe { Pending::<O>::complete("CreateCompletion", context, status, object) };
}

unsafe extern "efiapi" fn closed<O: Os>(context: *mut c_void) {
    // SAFETY: the provider calls back once for a close that pended, with the context given to it.
    unsafe {
        Pending::<O>::complete("CloseCompletion", context, Status::SUCCESS.0, core::ptr::null_mut());
    }
}
