// SPDX-License-Identifier: MIT OR Apache-2.0

//! How create calls return an object. Whether a call pends: [`pended_call`](crate::base::calls::pended_call).

use crate::base::calls::pended_call::Outcome;
use crate::base::object::{Created, DispatchTable};
use crate::base::state::affinity::Affinity;
use crate::base::status::NtResult;
use ndk_abi::nt::{GROUP_AFFINITY, NTSTATUS, STATUS_INVALID_PARAMETER, STATUS_PENDING, STATUS_SUCCESS};

/// Writes the created object, or null, to the consumer's variable and returns the status. If the call pends, the
/// variable is not written.
///
/// # Safety
/// `out` is the consumer's variable for the object, valid during the call.
//= R-CREATE-1, R-CREATE-3, R-CREATE-5
pub unsafe fn return_created<T: DispatchTable>(
    outcome: NtResult<Outcome<Created<T>>>,
    out: *mut *mut T::Public,
) -> NTSTATUS {
    let (status, object) = match outcome {
        Ok(Outcome::Done(created)) => (STATUS_SUCCESS, created.publish()),
        // The variable is no longer ours: the callback may have been made already.
        Ok(Outcome::Pending) => return STATUS_PENDING,
        Err(status) => (status, core::ptr::null_mut()),
    };
    // SAFETY: by this function's contract `out` is the consumer's variable, valid until the create call completes, which this call does.
    unsafe { out.write(object) };
    status
}

/// Returns the processors that a consumer prefers for the callbacks of a queue. Read now, because the create call may pend.
///
/// # Safety
/// `affinity` is null or the consumer's variable, valid during the call.
//= R-CREATE-24
pub unsafe fn preferred_processors(affinity: *const GROUP_AFFINITY) -> Option<Affinity> {
    // SAFETY: null, or a variable of the consumer that nothing writes to during the call.
    let affinity = unsafe { affinity.as_ref() }?;
    Some(Affinity { group: affinity.Group, mask: affinity.Mask as u64 })
}

/// Writes null to the consumer's variable, and returns `STATUS_INVALID_PARAMETER`: an argument of a create call is not
/// what it has to be.
///
/// # Safety
/// `out` is null or the consumer's variable for the object, valid during the call.
//= R-CREATE-5
#[cold]
pub unsafe fn refuse<Public>(out: *mut *mut Public) -> NTSTATUS {
    if !out.is_null() {
        // SAFETY: by this function's contract a pointer that is not null is the consumer's variable, valid during the call.
        unsafe { out.write(core::ptr::null_mut()) };
    }
    STATUS_INVALID_PARAMETER
}
