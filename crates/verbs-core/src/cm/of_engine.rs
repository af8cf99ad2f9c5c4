// SPDX-License-Identifier: MIT OR Apache-2.0

//! Errors of the engine's connection management.

use roce::ConnError;

use crate::error::Error;

/// Returns the error for the program.
pub fn of_conn(error: ConnError) -> Error {
    match error {
        ConnError::PortInUse => Error::AddressInUse,
        ConnError::OutOfMemory | ConnError::TooMany => Error::OutOfMemory,
        ConnError::NotLocal => Error::NoDevice,
        ConnError::Unknown
        | ConnError::State
        | ConnError::QpBusy
        | ConnError::Invalid
        | ConnError::PrivateDataTooLong => Error::Invalid,
    }
}
