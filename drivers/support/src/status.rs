// SPDX-License-Identifier: MIT OR Apache-2.0

//! NTSTATUS as the error of a `Result`.

use fallible::AllocError;
use ndk_abi::nt::{NT_SUCCESS, NTSTATUS, STATUS_INSUFFICIENT_RESOURCES, STATUS_SUCCESS};

/// Success, or the status of a failure.
pub type Result<T = ()> = core::result::Result<T, NTSTATUS>;

/// Turns a status into a result. `STATUS_PENDING` counts as success: callers that can get it test for it first.
///
/// # Errors
/// The status, unless it is a success.
pub const fn check(status: NTSTATUS) -> Result {
    if NT_SUCCESS(status) { Ok(()) } else { Err(status) }
}

/// Turns a result into a status.
#[must_use]
pub fn status_of(result: Result) -> NTSTATUS {
    result.err().unwrap_or(STATUS_SUCCESS)
}

/// The status of an allocation that failed; for `map_err`.
#[must_use]
pub const fn no_memory(_: AllocError) -> NTSTATUS {
    STATUS_INSUFFICIENT_RESOURCES
}
