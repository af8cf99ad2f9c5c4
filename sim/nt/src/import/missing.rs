// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls that the code of an image must not make: of imports that the simulated kernel does not have, and of functions that the image does
//! not list as targets of calls by address.

use super::enter::enter;
use crate::{
    irql::Limit,
    verifier::{codes::BugCheck, report::violation},
};

/// Is called instead of a missing import; `name` is that of the import.
pub(crate) extern "efiapi" fn missing_import(name: *const String) {
    let _ = enter("a missing import", Limit::ANY);
    // SAFETY: the code that calls this function passes a name that lives as long as the image.
    let name = unsafe { &*name };
    violation(
        BugCheck::SYSTEM_THREAD_EXCEPTION_NOT_HANDLED,
        format!("{name} was called, which the simulated kernel does not have"),
    );
}

/// Is called instead of a function of the image that is not among those that it lists for Control Flow Guard.
pub(crate) extern "efiapi" fn unlisted_function(address: usize) {
    let _ = enter("a call by address", Limit::ANY);
    violation(
        BugCheck::KERNEL_SECURITY_CHECK_FAILURE,
        format!("call of {address:#x} by its address, which the image does not list for Control Flow Guard"),
    );
}
