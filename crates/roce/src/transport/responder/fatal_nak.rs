// SPDX-License-Identifier: MIT OR Apache-2.0

//! NAKs that end the connection.

use crate::work::CompletionStatus;
use roce_wire::NakCode;

/// A NAK that ends the connection, and the status of the receive that the message was using.
#[derive(Clone, Copy, Debug)]
pub(super) struct FatalNak {
    pub(super) code: NakCode,
    pub(super) receive: CompletionStatus,
}

impl FatalNak {
    pub(super) const INVALID: Self =
        Self { code: NakCode::INVALID_REQUEST, receive: CompletionStatus::Flushed };
    pub(super) const ACCESS: Self =
        Self { code: NakCode::REMOTE_ACCESS, receive: CompletionStatus::LocalAccess };
    /// The message is longer than the receive.
    pub(super) const TOO_LONG: Self =
        Self { code: NakCode::INVALID_REQUEST, receive: CompletionStatus::LocalLength };
    /// The receive's memory cannot be written.
    pub(super) const PROTECTION: Self =
        Self { code: NakCode::REMOTE_OPERATIONAL, receive: CompletionStatus::LocalProtection };
}
