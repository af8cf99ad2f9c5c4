// SPDX-License-Identifier: MIT OR Apache-2.0

//! A checked call: what is checked before it and what is reported after it.

use crate::base::object::unchecked::{Pointee, Unchecked};
use crate::base::object::{Borrow, ObjectType};
use crate::base::strict::Mistake;
use crate::base::strict::{CallKind, mistake};
use crate::base::strict::{Checker, Subject};
use crate::objects::qp::Qp;
use core::cell::Cell;
use core::ffi::c_void;
use fallible::Arc;
use ndk_abi::nt::{NTSTATUS, STATUS_INVALID_PARAMETER, STATUS_PENDING, STATUS_SUCCESS};
use nt::irql;

/// A call in progress.
pub struct Call(Option<Checked>);

struct Checked {
    subject: Subject,
    kind: CallKind,
    /// Holds what reports, even if the object and its adapter are closed during the call.
    checker: Option<Arc<Checker>>,
    /// The mistake for which the call fails was reported.
    reported: Cell<bool>,
}

/// A value that a function of a dispatch table returns.
pub trait Answer: Copy {
    /// Returned for a call that is refused.
    const REFUSED: Self;

    /// Returns the status of the call; success if the function returns none.
    fn status(self) -> NTSTATUS;
}

impl Answer for NTSTATUS {
    const REFUSED: Self = STATUS_INVALID_PARAMETER;

    fn status(self) -> NTSTATUS {
        self
    }
}

impl Answer for u32 {
    const REFUSED: Self = 0;

    fn status(self) -> NTSTATUS {
        STATUS_SUCCESS
    }
}

impl Answer for () {
    const REFUSED: Self = ();

    fn status(self) -> NTSTATUS {
        STATUS_SUCCESS
    }
}

/// The checks around a call. Made by a function `new` with the call, the object and arguments.
pub trait Guard {
    /// The call has returned this status. The object may be closed by now.
    fn end(self, call: &Call, status: NTSTATUS);
}

impl Call {
    /// Begins a call on an object of type `T`. The call is refused unless it [is valid](Call::is_valid).
    ///
    /// # Safety
    /// `object` is null or points to the memory of an object, which may be closed.
    pub unsafe fn enter<T: ObjectType>(object: *mut T::Public, kind: CallKind) -> Self {
        // SAFETY: the pointer is an argument of the call: null, or the memory of an object, which the provider keeps after its close
        // while calls are checked.
        let Some(unchecked) = (unsafe { Unchecked::new::<T>(object) }) else { return Self(None) };
        let subject = unchecked.subject();
        let Some(checker) = unchecked.checker() else {
            // An object of an adapter whose calls are not checked.
            return Self(Some(Checked { subject, kind, checker: None, reported: Cell::new(false) }));
        };
        //= R-IRQL-1
        if irql::current() > irql::DISPATCH_LEVEL {
            checker.report(subject, Mistake::WrongIrql, irql::current().into());
            return Self(None);
        }
        checker.write_pending();
        let mistake = match unchecked.as_type::<T>() {
            Pointee::Open => {
                // SAFETY: an open object of this type.
                let body = unsafe { Borrow::<T>::new(object) };
                let checker = body.and_then(|body| body.checker().cloned());
                return Self(Some(Checked { subject, kind, checker, reported: Cell::new(false) }));
            }
            Pointee::Closed => Mistake::UseAfterClose,
            Pointee::Nothing | Pointee::OtherType => Mistake::WrongObject,
        };
        checker.report(subject, mistake, subject.object as u32);
        Self(None)
    }

    /// Returns whether the ordinary function may be called.
    pub fn is_valid(&self) -> bool {
        self.0.is_some()
    }

    /// Reports another object of the call that is not open and of type `T`. Returns whether it is safe to pass to the
    /// ordinary function, which refuses a null pointer and an object of another type itself.
    ///
    /// # Safety
    /// `object` is null or points to the memory of an object, which may be closed.
    pub unsafe fn argument<T: ObjectType>(&self, object: *mut T::Public) -> bool {
        // SAFETY: the pointer is an argument of the call: null, or the memory of an object, which the provider keeps after its close
        // while calls are checked.
        let pointee = match unsafe { Unchecked::new::<T>(object) } {
            Some(unchecked) => unchecked.as_type::<T>(),
            None => Pointee::Nothing,
        };
        let (mistake, is_safe) = match pointee {
            Pointee::Open => return true,
            Pointee::Closed => (Mistake::UseAfterClose, false),
            Pointee::Nothing | Pointee::OtherType => (Mistake::WrongObject, true),
        };
        self.explain(mistake, object.addr() as u32);
        is_safe
    }

    /// The call is refused because of another object. A post of an initiator request that fails starts what was
    /// deferred.
    ///
    /// # Safety
    /// The call was begun with `object`.
    //= R-QP-38
    pub unsafe fn refuse(&self, object: *mut c_void) {
        if self.is_valid()
            // SAFETY: an open object, by `enter`.
            && let Some(qp) = unsafe { Borrow::<Qp>::new(object.cast()) }
        {
            qp.post_failed();
        }
    }

    /// Returns whether there is a variable for the result.
    pub fn result(&self, is_null: bool) -> bool {
        if is_null {
            self.report(Mistake::NullResult, 0);
        }
        !is_null
    }

    /// Checks that a call that may pend has a completion callback.
    pub fn completion(&self, given: bool) {
        if !given {
            self.report(Mistake::NoCallback, 0);
        }
    }

    /// Checks the IRQL of a call with a lower limit than others.
    pub fn at_most(&self, limit: u8) {
        if irql::current() > limit {
            self.report(Mistake::WrongIrql, irql::current().into());
        }
    }

    /// Reports a mistake of this call.
    pub fn report(&self, mistake: Mistake, detail: u32) {
        if let Some(Checked { subject, checker: Some(checker), .. }) = &self.0 {
            checker.report(*subject, mistake, detail);
        }
    }

    /// Reports the mistake for which this call fails.
    pub fn explain(&self, mistake: Mistake, detail: u32) {
        self.report(mistake, detail);
        if let Some(call) = &self.0 {
            call.reported.set(true);
        }
    }

    /// Ends the call: reports the mistake for which it failed.
    pub fn leave(self, status: NTSTATUS) {
        if matches!(status, STATUS_SUCCESS | STATUS_PENDING) {
            return;
        }
        if let Some(Checked { subject, kind, reported, .. }) = &self.0
            && !reported.get()
            && let Some(mistake) = mistake(subject.kind, *kind, status)
        {
            self.report(mistake, status.cast_unsigned());
        }
    }

    /// Returns what checks this call.
    pub fn checker(&self) -> Option<&Checker> {
        match &self.0 {
            Some(Checked { checker: Some(checker), .. }) => Some(checker),
            _ => None,
        }
    }
}
