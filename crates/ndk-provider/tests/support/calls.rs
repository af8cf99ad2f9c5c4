//! Calls that answer inline or later, and what callbacks were called with.

use super::*;
use std::sync::{Condvar, Mutex};

/// What a callback was called with, each time.
#[derive(Default)]
pub struct Seen {
    calls: Mutex<Vec<NTSTATUS>>,
    changed: Condvar,
}

impl Seen {
    /// Lives on: the provider may call late, and the test shall see that.
    pub fn new() -> &'static Self {
        Box::leak(Box::default())
    }

    pub fn context(&'static self) -> *mut c_void {
        core::ptr::from_ref(self).cast_mut().cast()
    }

    pub fn note(&self, status: NTSTATUS) {
        self.calls.lock().unwrap().push(status);
        self.changed.notify_all();
    }

    pub fn count(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    /// Waits for the `n`th call; what it was called with.
    pub fn wait(&self, n: usize) -> NTSTATUS {
        let calls = self.calls.lock().unwrap();
        let (calls, timeout) =
            self.changed.wait_timeout_while(calls, PATIENCE, |calls| calls.len() < n).unwrap();
        assert!(!timeout.timed_out(), "callback {n} did not come");
        calls[n - 1]
    }
}

fn seen<'a>(context: *mut c_void) -> &'a Seen {
    assert!(nt::irql::current() <= nt::irql::DISPATCH_LEVEL);
    // SAFETY: every context of a callback below is a `Seen` that lives for ever.
    unsafe { &*context.cast::<Seen>() }
}

pub unsafe extern "efiapi" fn on_request(context: *mut c_void, status: NTSTATUS) {
    seen(context).note(status);
}

pub unsafe extern "efiapi" fn on_close(context: *mut c_void) {
    seen(context).note(STATUS_SUCCESS);
}

pub unsafe extern "efiapi" fn on_cq(context: *mut c_void, status: NTSTATUS) {
    seen(context).note(status);
}

pub unsafe extern "efiapi" fn on_disconnect(context: *mut c_void) {
    seen(context).note(STATUS_SUCCESS);
}

/// A callback of a completion queue that does not return until it is let: nothing else is told meanwhile
/// by the DPC that is in it.
#[derive(Default)]
pub struct Gate {
    /// Whether somebody is in the callback, and whether they may leave.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Gate {
    /// Lives on, as [`Seen`] does.
    pub fn new() -> &'static Self {
        Box::leak(Box::default())
    }

    pub fn context(&'static self) -> *mut c_void {
        core::ptr::from_ref(self).cast_mut().cast()
    }

    /// Waits until somebody is in it.
    pub fn wait(&self) {
        let state = self.state.lock().unwrap();
        let (state, _) = self.changed.wait_timeout_while(state, PATIENCE, |(entered, _)| !*entered).unwrap();
        assert!(state.0, "nobody came");
    }

    pub fn open(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}

pub unsafe extern "efiapi" fn on_cq_at_gate(context: *mut c_void, _status: NTSTATUS) {
    // SAFETY: the context is a `Gate` that lives for ever.
    let gate = unsafe { &*context.cast::<Gate>() };
    let mut state = gate.state.lock().unwrap();
    state.0 = true;
    gate.changed.notify_all();
    let (state, _) = gate.changed.wait_timeout_while(state, PATIENCE, |(_, open)| !*open).unwrap();
    assert!(state.1, "the gate stayed shut");
}

struct CreateSeen {
    object: Mutex<Option<(NTSTATUS, usize)>>,
    changed: Condvar,
}

unsafe extern "efiapi" fn on_create(context: *mut c_void, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) {
    // SAFETY: `create` keeps it until the call has come.
    let seen = unsafe { &*context.cast::<CreateSeen>() };
    let before = seen.object.lock().unwrap().replace((status, object.expose_provenance()));
    assert!(before.is_none(), "created twice");
    seen.changed.notify_all();
}

type CreateCall<'a, T> =
    dyn FnOnce(Option<NDK_FN_CREATE_COMPLETION>, *mut c_void, *mut *mut T) -> NTSTATUS + 'a;

/// Makes a create call and waits for its answer, whichever way it comes.
//= R-CREATE-1, R-CREATE-2, R-CREATE-3, R-CREATE-5, R-CREATE-7
pub fn create<T>(
    call: impl FnOnce(Option<NDK_FN_CREATE_COMPLETION>, *mut c_void, *mut *mut T) -> NTSTATUS,
) -> Result<*mut T, NTSTATUS> {
    create_dyn(Box::new(call))
}

fn create_dyn<T>(call: Box<CreateCall<'_, T>>) -> Result<*mut T, NTSTATUS> {
    let seen: &'static CreateSeen =
        Box::leak(Box::new(CreateSeen { object: Mutex::new(None), changed: Condvar::new() }));
    let canary = core::ptr::without_provenance_mut(0x5a5a_5a50);
    let mut out: *mut T = canary;
    match call(Some(on_create), core::ptr::from_ref(seen).cast_mut().cast(), &raw mut out) {
        STATUS_PENDING => {
            let object = seen.object.lock().unwrap();
            let (object, _) = seen.changed.wait_timeout_while(object, PATIENCE, |o| o.is_none()).unwrap();
            assert_eq!(out, canary, "the slot was written though the call pended");
            let (status, object) = object.expect("the create callback did not come");
            assert_eq!(status == STATUS_SUCCESS, object != 0);
            if status == STATUS_SUCCESS {
                Ok(core::ptr::with_exposed_provenance_mut(object))
            } else {
                Err(status)
            }
        }
        status => {
            assert!(seen.object.lock().unwrap().is_none(), "called back though answered inline");
            if status == STATUS_SUCCESS {
                assert_ne!(out, canary);
                Ok(out)
            } else {
                assert!(out.is_null(), "a failed create left something in the slot");
                Err(status)
            }
        }
    }
}

/// Makes a call that may pend and waits for its answer, whichever way it comes.
pub fn request(call: impl FnOnce(Option<NDK_FN_REQUEST_COMPLETION>, *mut c_void) -> NTSTATUS) -> NTSTATUS {
    let seen = Seen::new();
    match call(Some(on_request), seen.context()) {
        STATUS_PENDING => seen.wait(1),
        status => {
            assert_eq!(seen.count(), 0, "called back though answered inline");
            status
        }
    }
}

/// Closes an object of any type without waiting.
#[macro_export]
macro_rules! begin_close {
    ($object:expr, $member:ident) => {{
        let seen = $crate::support::Seen::new();
        let object = $object;
        // SAFETY: the tests close each object once.
        let status = unsafe {
            ((*(*object).Dispatch).$member.expect("no member is null"))(
                object.cast(),
                Some($crate::support::on_close),
                seen.context(),
            )
        };
        $crate::support::Closing::new(status, seen)
    }};
}

/// Closes an object of any type and waits until it is closed.
#[macro_export]
macro_rules! close {
    ($object:expr, $member:ident) => {
        $crate::begin_close!($object, $member).wait()
    };
}

/// A close under way.
pub struct Closing {
    pub status: NTSTATUS,
    seen: &'static Seen,
}

impl Closing {
    pub fn new(status: NTSTATUS, seen: &'static Seen) -> Self {
        assert!(matches!(status, STATUS_SUCCESS | STATUS_PENDING), "close answered {status:#x}");
        Self { status, seen }
    }

    pub fn is_done(&self) -> bool {
        self.status == STATUS_SUCCESS || self.seen.count() != 0
    }

    //= R-CLOSE-1, R-CLOSE-2
    pub fn wait(self) {
        if self.status == STATUS_PENDING {
            self.seen.wait(1);
        }
        assert!(self.seen.count() <= 1);
    }
}
