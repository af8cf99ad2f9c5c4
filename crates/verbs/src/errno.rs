// SPDX-License-Identifier: MIT OR Apache-2.0

//! Error numbers of calls that fail. Errors of the engine become [`verbs_core::Error`] in that crate; handles that are none of an object are
//! EINVAL, at the call.

use core::ffi::c_int;

use verbs_core::Error;

/// Returns the error number of an error: the one table of them.
#[must_use]
pub const fn number(error: Error) -> c_int {
    match error {
        Error::Invalid => libc::EINVAL,
        Error::OutOfMemory => libc::ENOMEM,
        Error::Busy => libc::EBUSY,
        Error::Unsupported => libc::EOPNOTSUPP,
        Error::BadAddress => libc::EFAULT,
        Error::AddressInUse => libc::EADDRINUSE,
        Error::NoDevice => libc::ENODEV,
        Error::WouldBlock => libc::EAGAIN,
        Error::Interrupted => libc::EINTR,
        Error::System(number) => number,
    }
}

/// Sets `errno` of this thread.
pub fn set(number: c_int) {
    // SAFETY: the C library returns the address of this thread's `errno`.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: it is valid as long as the thread, and only this thread uses it.
    unsafe { errno.write(number) };
}

/// Returns the error in `errno` of this thread.
pub fn last() -> Error {
    Error::System(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL))
}

/// Returns 0, or the error number, which is also `errno`: some programs print that.
pub fn status(result: Result<(), Error>) -> c_int {
    result.map_or_else(
        |error| {
            set(number(error));
            number(error)
        },
        |()| 0,
    )
}

/// Returns 0, or -1 with `errno`.
pub fn flag(result: Result<(), Error>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            set(number(error));
            -1
        }
    }
}

/// Returns the pointer, or null with `errno`.
pub fn pointer<T>(result: Result<*mut T, Error>) -> *mut T {
    result.unwrap_or_else(|error| {
        set(number(error));
        core::ptr::null_mut()
    })
}
