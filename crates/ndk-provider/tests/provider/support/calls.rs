// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls that complete inline or by a callback, and records of callbacks.

use super::*;
use std::sync::{Condvar, Mutex};

/// The calls of a callback with their statuses.
#[derive(Default)]
pub struct CallbackRecord {
    calls: Mutex<Vec<NTSTATUS>>,
    changed: Condvar,
}

impl CallbackRecord {
    /// Never freed: a late call must be recorded, not crash.
    pub fn new() -> &'static Self {
        Box::leak(Box::default())
    }

    pub fn context(&'static self) -> *mut c_void {
        core::ptr::from_ref(self).cast_mut().cast()
    }

    pub fn record(&self, status: NTSTATUS) {
        self.calls.lock().unwrap().push(status);
        self.changed.notify_all();
    }

    pub fn count(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    /// Waits for the `n`th call and returns its status.
    pub fn wait(&self, n: usize) -> NTSTATUS {
        let calls = self.calls.lock().unwrap();
        let (calls, timeout) =
            self.changed.wait_timeout_while(calls, TIMEOUT, |calls| calls.len() < n).unwrap();
        assert!(!timeout.timed_out(), "callback {n} was not made");
        calls[n - 1]
    }
}

//= R-IRQL-3
fn record<'a>(context: *mut c_void) -> &'a CallbackRecord {
    assert!(nt::irql::current() <= nt::irql::DISPATCH_LEVEL);
    // SAFETY: every context of a callback below is a `CallbackRecord` that is never freed.
    unsafe { &*context.cast::<CallbackRecord>() }
}

pub unsafe extern "efiapi" fn on_request(context: *mut c_void, status: NTSTATUS) {
    record(context).record(status);
}

pub unsafe extern "efiapi" fn on_close(context: *mut c_void) {
    record(context).record(STATUS_SUCCESS);
}

pub unsafe extern "efiapi" fn on_cq(context: *mut c_void, status: NTSTATUS) {
    record(context).record(status);
}

pub unsafe extern "efiapi" fn on_disconnect(context: *mut c_void) {
    record(context).record(STATUS_SUCCESS);
}

/// Holds the callback of a completion queue until the gate is opened. The DPC that makes the callback delivers
/// nothing else meanwhile.
#[derive(Default)]
pub struct Gate {
    /// Whether a thread is in the callback, and whether it may leave.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Gate {
    /// Never freed, like [`CallbackRecord`].
    pub fn new() -> &'static Self {
        Box::leak(Box::default())
    }

    pub fn context(&'static self) -> *mut c_void {
        core::ptr::from_ref(self).cast_mut().cast()
    }

    /// Waits until a thread is in the callback.
    pub fn wait(&self) {
        let state = self.state.lock().unwrap();
        let (state, _) = self.changed.wait_timeout_while(state, TIMEOUT, |(entered, _)| !*entered).unwrap();
        assert!(state.0, "the callback was not made");
    }

    /// Returns whether a thread is in the callback, or was.
    pub fn is_reached(&self) -> bool {
        self.state.lock().unwrap().0
    }

    /// Holds a callback on its thread until the gate is opened.
    pub fn hold(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 = true;
        self.changed.notify_all();
        let (state, _) = self.changed.wait_timeout_while(state, TIMEOUT, |(_, open)| !*open).unwrap();
        assert!(state.1, "the gate was not opened");
    }

    pub fn open(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}

pub unsafe extern "efiapi" fn on_cq_at_gate(context: *mut c_void, _status: NTSTATUS) {
    // SAFETY: the context is a `Gate` that is never freed.
    unsafe { &*context.cast::<Gate>() }.hold();
}

struct CreateRecord {
    object: Mutex<Option<(NTSTATUS, usize)>>,
    changed: Condvar,
}

unsafe extern "efiapi" fn on_create(context: *mut c_void, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) {
    // SAFETY: the context is the `CreateRecord` of a call of `create`, which leaks it.
    let record = unsafe { &*context.cast::<CreateRecord>() };
    let previous = record.object.lock().unwrap().replace((status, object.expose_provenance()));
    assert!(previous.is_none(), "the create callback was made twice");
    record.changed.notify_all();
}

type CreateCall<'a, T> =
    dyn FnOnce(Option<NDK_FN_CREATE_COMPLETION>, *mut c_void, *mut *mut T) -> NTSTATUS + 'a;

/// Makes a create call and waits until it completes, inline or by the callback.
//= R-CREATE-1, R-CREATE-2, R-CREATE-3, R-CREATE-5, R-CREATE-7
pub fn create<T>(
    call: impl FnOnce(Option<NDK_FN_CREATE_COMPLETION>, *mut c_void, *mut *mut T) -> NTSTATUS,
) -> Result<*mut T, NTSTATUS> {
    create_dyn(Box::new(call))
}

fn create_dyn<T>(call: Box<CreateCall<'_, T>>) -> Result<*mut T, NTSTATUS> {
    let record: &'static CreateRecord =
        Box::leak(Box::new(CreateRecord { object: Mutex::new(None), changed: Condvar::new() }));
    let canary = core::ptr::without_provenance_mut(0x5a5a_5a50);
    let mut out: *mut T = canary;
    match call(Some(on_create), core::ptr::from_ref(record).cast_mut().cast(), &raw mut out) {
        STATUS_PENDING => {
            let object = record.object.lock().unwrap();
            let (object, _) = record.changed.wait_timeout_while(object, TIMEOUT, |o| o.is_none()).unwrap();
            assert_eq!(out, canary, "the variable was written although the call pended");
            let (status, object) = object.expect("the create callback was not made");
            assert_eq!(status == STATUS_SUCCESS, object != 0);
            observed::completion(observed::last(), status);
            if status == STATUS_SUCCESS {
                Ok(core::ptr::with_exposed_provenance_mut(object))
            } else {
                Err(status)
            }
        }
        status => {
            assert!(record.object.lock().unwrap().is_none(), "callback after inline completion");
            if status == STATUS_SUCCESS {
                assert_ne!(out, canary);
                Ok(out)
            } else {
                assert!(out.is_null(), "a failed create did not write null");
                Err(status)
            }
        }
    }
}

/// Makes a call that may pend and waits until it completes, inline or by the callback.
pub fn request(call: impl FnOnce(Option<NDK_FN_REQUEST_COMPLETION>, *mut c_void) -> NTSTATUS) -> NTSTATUS {
    let record = CallbackRecord::new();
    match call(Some(on_request), record.context()) {
        STATUS_PENDING => {
            let status = record.wait(1);
            observed::completion(observed::last(), status);
            status
        }
        status => {
            assert_eq!(record.count(), 0, "callback after inline completion");
            status
        }
    }
}

/// Closes an object of any type with this callback, or with none, and its context. Returns the status.
#[macro_export]
macro_rules! close_with {
    ($object:expr, $member:ident, $done:expr, $context:expr) => {{
        let object = $object;
        // SAFETY: a live object of the provider; its table is static.
        let close = unsafe { (*(*object).Dispatch).$member }.expect("no member is null");
        // SAFETY: the tests close each object once, with a context that outlives the callback.
        unsafe { close(object.cast(), $done, $context) }
    }};
}

/// Closes an object of any type without waiting.
#[macro_export]
macro_rules! begin_close {
    ($object:expr, $member:ident) => {{
        let record = $crate::support::CallbackRecord::new();
        let object = $object;
        // SAFETY: a live object of the provider; its table is static.
        let table = unsafe { &*(*object).Dispatch };
        let close = table.$member.expect("no member is null");
        // SAFETY: the tests close each object once.
        let status = unsafe { close(object.cast(), Some($crate::support::on_close), record.context()) };
        $crate::support::observed::call(table, stringify!($member), &status, module_path!());
        $crate::support::Closing::new(status, record)
    }};
}

/// Closes an object of any type and waits until it is closed.
#[macro_export]
macro_rules! close {
    ($object:expr, $member:ident) => {
        $crate::begin_close!($object, $member).wait()
    };
}

/// A close in progress.
pub struct Closing {
    pub status: NTSTATUS,
    record: &'static CallbackRecord,
}

impl Closing {
    pub fn new(status: NTSTATUS, record: &'static CallbackRecord) -> Self {
        assert!(matches!(status, STATUS_SUCCESS | STATUS_PENDING), "close returned {status:#x}");
        Self { status, record }
    }

    pub fn is_done(&self) -> bool {
        self.status == STATUS_SUCCESS || self.record.count() != 0
    }

    //= R-CLOSE-1, R-CLOSE-2
    pub fn wait(self) {
        if self.status == STATUS_PENDING {
            self.record.wait(1);
        }
        assert!(self.record.count() <= 1);
    }
}
