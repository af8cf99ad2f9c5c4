// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls of imports that the simulated kernel does not have.

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
