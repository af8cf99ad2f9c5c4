// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls that complete inline or through a completion routine.
//!
//! The context of a call is counted: one reference is the caller's, one the provider's. The provider's is released when
//! the call completes inline, and by the completion routine otherwise. The routine may run before the call that pended
//! has returned.

use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use core::time::Duration;

use driver_support::status::{Result, check, no_memory};
use fallible::Arc;
use ndk_abi::ndk::{
    NDK_FN_CLOSE_COMPLETION, NDK_FN_CREATE_COMPLETION, NDK_FN_REQUEST_COMPLETION, NDK_OBJECT_HEADER,
};
use ndk_abi::nt::{
    NTSTATUS, STATUS_INSUFFICIENT_RESOURCES, STATUS_INTERNAL_ERROR, STATUS_PENDING, STATUS_SUCCESS,
};
use nt::Event;

struct Call {
    done: Event,
    status: AtomicI32,
    object: AtomicPtr<NDK_OBJECT_HEADER>,
}

/// Makes a request and waits for it. `call` passes the completion routine and its context to the provider.
/// `PASSIVE_LEVEL`.
pub fn request(call: impl FnOnce(Option<NDK_FN_REQUEST_COMPLETION>, *mut c_void) -> NTSTATUS) -> Result {
    let pending = Call::new()?;
    let status = pending.begin(|_, context| call(Some(request_completed), context));
    check(pending.end(status))
}

/// Makes a request and waits for its end. If the request takes longer than `limit`, `abort` is called, which must make it complete.
pub fn request_within(
    limit: Option<Duration>,
    abort: impl FnOnce(),
    call: impl FnOnce(Option<NDK_FN_REQUEST_COMPLETION>, *mut c_void) -> NTSTATUS,
) -> Result {
    let pending = Call::new()?;
    let status = pending.begin(|_, context| call(Some(request_completed), context));
    if let (STATUS_PENDING, Some(limit)) = (status, limit)
        && !pending.done.wait_for(limit)
    {
        abort();
    }
    check(pending.end(status))
}

/// Creates an object and waits for it. `call` passes the completion routine, its context, and the place for an object
/// that is created inline. `PASSIVE_LEVEL`.
pub fn create<T>(
    call: impl FnOnce(Option<NDK_FN_CREATE_COMPLETION>, *mut c_void, *mut *mut T) -> NTSTATUS,
) -> Result<NonNull<T>> {
    let pending = Call::new()?;
    let status = pending
        .begin(|pending, context| call(Some(create_completed), context, pending.object.as_ptr().cast()));
    check(pending.end(status))?;
    NonNull::new(pending.object.load(Ordering::Acquire).cast()).ok_or(STATUS_INTERNAL_ERROR)
}

/// The context of a close, allocated when the object is created: a close cannot fail for lack of memory.
pub struct Closing(Arc<Call>);

impl Closing {
    pub fn new() -> Result<Self> {
        Call::new().map(Self)
    }

    /// Closes an object and waits for the close. `PASSIVE_LEVEL`.
    pub fn close(&self, call: impl FnOnce(Option<NDK_FN_CLOSE_COMPLETION>, *mut c_void) -> NTSTATUS) {
        let status = self.0.begin(|_, context| call(Some(close_completed), context));
        self.0.end(status);
    }
}

impl Call {
    fn new() -> Result<Arc<Self>> {
        let done = Event::try_new().ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
        let (status, object) = (AtomicI32::new(STATUS_PENDING), AtomicPtr::new(null_mut()));
        Arc::try_new(Self { done, status, object }).map_err(no_memory)
    }
}

/// Functions of a counted call.
trait Pending {
    fn begin(&self, call: impl FnOnce(&Call, *mut c_void) -> NTSTATUS) -> NTSTATUS;
    fn end(&self, status: NTSTATUS) -> NTSTATUS;
}

impl Pending for Arc<Call> {
    /// Makes the call with a reference of its own. Returns what it returned.
    fn begin(&self, call: impl FnOnce(&Call, *mut c_void) -> NTSTATUS) -> NTSTATUS {
        let context = Arc::into_raw(Arc::clone(self));
        let status = call(self, context.cast_mut().cast());
        if status != STATUS_PENDING {
            // SAFETY: completed inline: no completion routine takes the provider's reference.
            drop(unsafe { Arc::from_raw(context) });
        }
        status
    }

    /// Waits if the call pended. Returns its final status.
    fn end(&self, status: NTSTATUS) -> NTSTATUS {
        if status != STATUS_PENDING {
            return status;
        }
        self.done.wait();
        self.status.load(Ordering::Acquire)
    }
}

/// # Safety
/// `context` is that of a call that pended, and this is its only completion.
unsafe fn complete(context: *mut c_void, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) {
    // SAFETY: this function's contract: the reference that `begin` gave to the provider.
    let pending = unsafe { Arc::from_raw(context.cast_const().cast::<Call>()) };
    if !object.is_null() {
        pending.object.store(object, Ordering::Release);
    }
    pending.status.store(status, Ordering::Release);
    pending.done.set();
}

unsafe extern "efiapi" fn request_completed(context: *mut c_void, status: NTSTATUS) {
    // SAFETY: the provider completes a request that pended once, with its context.
    unsafe { complete(context, status, null_mut()) };
}

unsafe extern "efiapi" fn create_completed(
    context: *mut c_void,
    status: NTSTATUS,
    object: *mut NDK_OBJECT_HEADER,
) {
    // SAFETY: the provider completes a create that pended once, with its context.
    unsafe { complete(context, status, object) };
}

unsafe extern "efiapi" fn close_completed(context: *mut c_void) {
    // SAFETY: the provider completes a close that pended once, with its context.
    unsafe { complete(context, STATUS_SUCCESS, null_mut()) };
}
