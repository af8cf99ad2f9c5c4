// SPDX-License-Identifier: MIT OR Apache-2.0

//! NTSTATUS codes with names.

use core::fmt;

use ndk_abi::nt::{self, NT_SUCCESS, NTSTATUS};

/// An NTSTATUS of a call or a completion.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(pub NTSTATUS);

impl Status {
    /// Returns `Ok` for success and `Err` for everything else, `STATUS_PENDING` included.
    ///
    /// # Errors
    /// The status itself.
    pub fn check(self) -> Result<(), Self> {
        if NT_SUCCESS(self.0) && self != Self::PENDING { Ok(()) } else { Err(self) }
    }

    /// Returns the name in `ntstatus.h`, if NDKPI uses the status.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(status, _)| *status == self).map(|(_, name)| *name)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "status {:#010x}", self.0),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for Status {}

/// Declares the statuses of NDKPI as constants and as a table of names.
macro_rules! statuses {
    ($($constant:ident = $name:ident,)*) => {
        impl Status {
            $(pub const $constant: Self = Self(nt::$name);)*
        }

        const NAMES: &[(Status, &str)] = &[$((Status::$constant, stringify!($name)),)*];
    };
}

statuses! {
    SUCCESS = STATUS_SUCCESS,
    PENDING = STATUS_PENDING,
    ACCESS_VIOLATION = STATUS_ACCESS_VIOLATION,
    ADDRESS_ALREADY_EXISTS = STATUS_ADDRESS_ALREADY_EXISTS,
    BUFFER_OVERFLOW = STATUS_BUFFER_OVERFLOW,
    BUFFER_TOO_SMALL = STATUS_BUFFER_TOO_SMALL,
    CANCELLED = STATUS_CANCELLED,
    CONNECTION_ABORTED = STATUS_CONNECTION_ABORTED,
    CONNECTION_ACTIVE = STATUS_CONNECTION_ACTIVE,
    CONNECTION_DISCONNECTED = STATUS_CONNECTION_DISCONNECTED,
    CONNECTION_INVALID = STATUS_CONNECTION_INVALID,
    CONNECTION_REFUSED = STATUS_CONNECTION_REFUSED,
    DATA_OVERRUN = STATUS_DATA_OVERRUN,
    DEVICE_BUSY = STATUS_DEVICE_BUSY,
    DEVICE_REMOVED = STATUS_DEVICE_REMOVED,
    HOST_UNREACHABLE = STATUS_HOST_UNREACHABLE,
    INSUFFICIENT_RESOURCES = STATUS_INSUFFICIENT_RESOURCES,
    INTERNAL_ERROR = STATUS_INTERNAL_ERROR,
    INVALID_ADDRESS = STATUS_INVALID_ADDRESS,
    INVALID_DEVICE_REQUEST = STATUS_INVALID_DEVICE_REQUEST,
    INVALID_DEVICE_STATE = STATUS_INVALID_DEVICE_STATE,
    INVALID_PARAMETER = STATUS_INVALID_PARAMETER,
    IO_TIMEOUT = STATUS_IO_TIMEOUT,
    NETWORK_UNREACHABLE = STATUS_NETWORK_UNREACHABLE,
    NO_MORE_ENTRIES = STATUS_NO_MORE_ENTRIES,
    NOT_SUPPORTED = STATUS_NOT_SUPPORTED,
    REMOTE_RESOURCES = STATUS_REMOTE_RESOURCES,
    SHARING_VIOLATION = STATUS_SHARING_VIOLATION,
    TOO_MANY_ADDRESSES = STATUS_TOO_MANY_ADDRESSES,
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    #[test]
    fn status_prints_its_name_or_number() {
        assert_eq!(Status::CANCELLED.to_string(), "STATUS_CANCELLED");
        assert_eq!(Status(0xC012_3456_u32.cast_signed()).to_string(), "status 0xc0123456");
    }

    #[test]
    fn pending_is_not_success() {
        assert_eq!(Status::PENDING.check(), Err(Status::PENDING));
        assert_eq!(Status::SUCCESS.check(), Ok(()));
    }
}
