// SPDX-License-Identifier: MIT OR Apache-2.0

//! NDKPI calls whose callbacks are counted.
#![allow(unsafe_code, reason = "callbacks of a provider, which get pointers")]

use std::{
    ffi::c_void,
    ptr::null_mut,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use ndk_abi::{
    ndk::{
        NDK_CONNECTOR, NDK_FN_CLOSE_COMPLETION, NDK_FN_CREATE_COMPLETION, NDK_FN_REQUEST_COMPLETION,
        NDK_OBJECT_HEADER,
    },
    nt::{NTSTATUS, STATUS_INSUFFICIENT_RESOURCES, STATUS_PENDING, STATUS_SUCCESS},
};
use nt_sim::Event;

/// How long a callback may take: longer than the retries of a connection's messages.
const LIMIT: Duration = Duration::from_secs(300);

/// Callbacks of one kind that were made, and what they reported.
pub struct Callbacks {
    made: AtomicUsize,
    object: AtomicUsize,
    status: AtomicUsize,
    event: Event,
}

impl Callbacks {
    /// Never freed, so that a callback that comes too late is counted. Each sets `event`.
    pub fn new(event: &Event) -> &'static Self {
        let zero = || AtomicUsize::new(0);
        Box::leak(Box::new(Self { made: zero(), object: zero(), status: zero(), event: event.clone() }))
    }

    pub fn context(&'static self) -> *mut c_void {
        core::ptr::from_ref(self).cast_mut().cast()
    }

    /// Returns the number of callbacks so far.
    pub fn made(&self) -> usize {
        self.made.load(Ordering::SeqCst)
    }

    /// Returns the object of the last callback.
    pub fn object<T>(&self) -> *mut T {
        core::ptr::with_exposed_provenance_mut(self.object.load(Ordering::SeqCst))
    }

    /// Returns the status of the last callback.
    pub fn status(&self) -> NTSTATUS {
        (self.status.load(Ordering::SeqCst) as u32).cast_signed()
    }

    /// # Safety
    /// `context` is from [`Callbacks::context`].
    unsafe fn record<T>(context: *mut c_void, status: NTSTATUS, object: *mut T) {
        // SAFETY: by this function's contract a record of callbacks, which is never freed.
        let callbacks = unsafe { &*context.cast::<Self>() };
        callbacks.object.store(object.expose_provenance(), Ordering::SeqCst);
        callbacks.status.store(status.cast_unsigned() as usize, Ordering::SeqCst);
        callbacks.made.fetch_add(1, Ordering::SeqCst);
        callbacks.event.set();
    }
}

unsafe extern "efiapi" fn on_create(context: *mut c_void, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) {
    // SAFETY: the context of the create call.
    unsafe { Callbacks::record(context, status, object) }
}

unsafe extern "efiapi" fn on_request(context: *mut c_void, status: NTSTATUS) {
    // SAFETY: the context of the request.
    unsafe { Callbacks::record(context, status, null_mut::<c_void>()) }
}

/// Completion of a close.
pub unsafe extern "efiapi" fn on_close(context: *mut c_void) {
    // SAFETY: the context of the close.
    unsafe { Callbacks::record(context, STATUS_SUCCESS, null_mut::<c_void>()) }
}

/// Connect event: an incoming connector.
pub unsafe extern "efiapi" fn on_connect(context: *mut c_void, connector: *mut NDK_CONNECTOR) {
    // SAFETY: the context of the listener.
    unsafe { Callbacks::record(context, STATUS_SUCCESS, connector) }
}

/// Calls a member of an object's dispatch table in the image.
macro_rules! call {
    ($object:expr, $member:ident $(, $argument:expr)* $(,)?) => {{
        let object = $object;
        nt_sim::image::call(stringify!($member), || {
            // SAFETY: an open object of the provider.
            unsafe { ((*(*object).Dispatch).$member.expect("no member is null"))(object.cast() $(, $argument)*) }
        })
    }};
}
pub(super) use call;

/// Waits until `is_done`, which a callback that sets `event` makes true.
pub fn wait(event: &Event, what: &str, mut is_done: impl FnMut() -> bool) -> Result<(), String> {
    while !is_done() {
        if !event.wait(LIMIT) {
            return Err(format!("{what} was not made"));
        }
        event.reset();
    }
    Ok(())
}

/// Creates an object; `None` if there is no memory for it.
pub fn create<T>(
    event: &Event,
    call: impl FnOnce(Option<NDK_FN_CREATE_COMPLETION>, *mut c_void, *mut *mut T) -> NTSTATUS,
) -> Result<Option<*mut T>, String> {
    let (pending, mut out) = (Callbacks::new(event), null_mut());
    let status = match call(Some(on_create), pending.context(), &raw mut out) {
        STATUS_PENDING => {
            wait(event, "a create callback", || pending.made() != 0)?;
            out = pending.object();
            pending.status()
        }
        status => status,
    };
    match status {
        STATUS_SUCCESS => Ok(Some(out)),
        STATUS_INSUFFICIENT_RESOURCES => Ok(None),
        status => Err(format!("a create call failed with {status:#x}")),
    }
}

/// A request of a connector or listener.
pub struct Request {
    status: NTSTATUS,
    callbacks: &'static Callbacks,
}

impl Request {
    pub fn new(
        event: &Event,
        call: impl FnOnce(Option<NDK_FN_REQUEST_COMPLETION>, *mut c_void) -> NTSTATUS,
    ) -> Self {
        let callbacks = Callbacks::new(event);
        Self { status: call(Some(on_request), callbacks.context()), callbacks }
    }

    pub fn is_done(&self) -> bool {
        self.status != STATUS_PENDING || self.callbacks.made() != 0
    }

    pub fn has_succeeded(&self) -> bool {
        self.is_done() && self.outcome() == STATUS_SUCCESS
    }

    fn outcome(&self) -> NTSTATUS {
        if self.status == STATUS_PENDING { self.callbacks.status() } else { self.status }
    }

    /// Returns whether the callback was made as often as the call's status demands.
    pub fn has_completed_once(&self) -> bool {
        self.callbacks.made() == usize::from(self.status == STATUS_PENDING)
    }
}

/// The type of a close function of any object.
pub type Close = Box<dyn Fn(Option<NDK_FN_CLOSE_COMPLETION>, *mut c_void) -> NTSTATUS>;
