// SPDX-License-Identifier: MIT OR Apache-2.0

//! Errors of all calls.

use core::fmt;

use roce::{CreateError, ModifyError, PostError, QpChangeError, ReregisterError};

/// The reason why a call failed. The C interface maps each to one error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// A parameter is out of range, or does not fit the object or its state.
    Invalid,
    /// No memory, the queue is full, or the limit of such objects is reached.
    OutOfMemory,
    /// Other objects use this one.
    Busy,
    /// The operation is not offered.
    Unsupported,
    /// The memory is not mapped, or not writable.
    BadAddress,
    /// The address or port is in use.
    AddressInUse,
    /// No device has the address.
    NoDevice,
    /// No event is queued, and the descriptor does not block.
    WouldBlock,
    /// A signal interrupted the call.
    Interrupted,
    /// A system call failed with this error number.
    System(i32),
}

impl Error {
    /// Returns the error of the last system call of this thread.
    pub(crate) fn last() -> Self {
        match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EAGAIN) => Self::WouldBlock,
            Some(libc::EINTR) => Self::Interrupted,
            Some(libc::EADDRINUSE) => Self::AddressInUse,
            Some(libc::ENOMEM) => Self::OutOfMemory,
            Some(number) => Self::System(number),
            None => Self::Invalid,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid => f.write_str("invalid parameter"),
            Self::OutOfMemory => f.write_str("out of memory, or a limit is reached"),
            Self::Busy => f.write_str("other objects use this one"),
            Self::Unsupported => f.write_str("not supported"),
            Self::BadAddress => f.write_str("memory is not mapped"),
            Self::AddressInUse => f.write_str("the address is in use"),
            Self::NoDevice => f.write_str("no device has the address"),
            Self::WouldBlock => f.write_str("no event is queued"),
            Self::Interrupted => f.write_str("interrupted by a signal"),
            Self::System(number) => std::io::Error::from_raw_os_error(*number).fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<CreateError> for Error {
    fn from(error: CreateError) -> Self {
        match error {
            CreateError::OutOfMemory | CreateError::TooMany => Self::OutOfMemory,
            CreateError::Invalid => Self::Invalid,
        }
    }
}

impl From<PostError> for Error {
    fn from(error: PostError) -> Self {
        match error {
            PostError::QueueFull => Self::OutOfMemory,
            PostError::NotConnected
            | PostError::TooManySges
            | PostError::TooLong
            | PostError::InlineTooLong
            | PostError::NotAllowed
            | PostError::Invalid
            | PostError::NoRight => Self::Invalid,
        }
    }
}

impl From<ModifyError> for Error {
    fn from(error: ModifyError) -> Self {
        match error {
            ModifyError::OutOfMemory => Self::OutOfMemory,
            ModifyError::Occupied | ModifyError::Invalid => Self::Invalid,
        }
    }
}

impl From<ReregisterError> for Error {
    fn from(error: ReregisterError) -> Self {
        match error {
            ReregisterError::OutOfMemory => Self::OutOfMemory,
            ReregisterError::Bound => Self::Busy,
            ReregisterError::Invalid => Self::Invalid,
        }
    }
}

impl From<QpChangeError> for Error {
    fn from(error: QpChangeError) -> Self {
        match error {
            QpChangeError::OutOfMemory => Self::OutOfMemory,
            QpChangeError::State
            | QpChangeError::Invalid
            | QpChangeError::NotLocal
            | QpChangeError::Connected => Self::Invalid,
        }
    }
}
