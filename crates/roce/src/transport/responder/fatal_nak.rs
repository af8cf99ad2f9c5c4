// SPDX-License-Identifier: MIT OR Apache-2.0

//! NAKs that end the connection.

use crate::work::CompletionStatus;
use roce_wire::NakCode;

/// A NAK that ends the connection, and the status of the receive that the message was using.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transport) struct FatalNak {
    pub(in crate::transport) code: NakCode,
    pub(in crate::transport) receive: CompletionStatus,
}

impl FatalNak {
    pub(in crate::transport) const INVALID: Self =
        Self { code: NakCode::INVALID_REQUEST, receive: CompletionStatus::Flushed };
    pub(in crate::transport) const ACCESS: Self =
        Self { code: NakCode::REMOTE_ACCESS, receive: CompletionStatus::LocalAccess };
    /// The message is longer than the receive.
    pub(in crate::transport) const TOO_LONG: Self =
        Self { code: NakCode::INVALID_REQUEST, receive: CompletionStatus::LocalLength };
    /// The receive's memory cannot be written.
    pub(in crate::transport) const PROTECTION: Self =
        Self { code: NakCode::REMOTE_OPERATIONAL, receive: CompletionStatus::LocalProtection };
}
