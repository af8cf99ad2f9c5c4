// SPDX-License-Identifier: MIT OR Apache-2.0

//! Failures that end a connection.

use crate::drop_reason::DropReason;
use crate::work::CompletionStatus;
use roce_wire::NakCode;

/// Reason for the error state of a queue pair.
///
/// The requester and the responder return it; [`RcTransport`](super::rc_transport::RcTransport) changes the state, notifies the
/// connection and flushes both queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// As large as the length of a frame, so that a result with either is returned in registers.
#[repr(usize)]
pub(crate) enum Failure {
    /// Memory of the oldest request cannot be accessed.
    LocalProtection,
    /// The key of the oldest request is not in the state that it requires.
    MemoryManagement,
    /// The response of the peer is invalid.
    BadResponse,
    /// The peer has refused the oldest request as invalid.
    RemoteInvalidRequest,
    /// The peer has refused access to its memory.
    RemoteAccess,
    /// The peer cannot execute the oldest request.
    RemoteOperation,
    /// The peer has not answered.
    RetryExceeded,
    /// The peer had no receive posted until the RNR retries were used up.
    RnrRetryExceeded,
    /// A request of the peer was refused. The responder has a NAK pending that ends the connection.
    Refused,
    /// A frame could not be built: a bug, or a slot that is too small. Another attempt would fail again, and the queue pair would
    /// stall.
    FrameNotBuilt,
    /// The consumer has closed the queue pair, or the connection has ended.
    Aborted,
}

impl Failure {
    /// Returns the failure that a fatal NAK of the peer reports.
    pub(super) const fn from_nak(code: NakCode) -> Self {
        //= rocev2 §9
        match code {
            NakCode::INVALID_REQUEST => Self::RemoteInvalidRequest,
            NakCode::REMOTE_ACCESS => Self::RemoteAccess,
            NakCode::REMOTE_OPERATIONAL => Self::RemoteOperation,
            _ => Self::BadResponse,
        }
    }

    /// Returns the status of the oldest request of the send queue. All others are flushed.
    pub(super) const fn status(self) -> CompletionStatus {
        match self {
            Self::LocalProtection => CompletionStatus::LocalProtection,
            Self::MemoryManagement => CompletionStatus::MemoryManagement,
            Self::BadResponse => CompletionStatus::BadResponse,
            Self::RemoteInvalidRequest => CompletionStatus::RemoteInvalidRequest,
            Self::RemoteAccess => CompletionStatus::RemoteAccess,
            Self::RemoteOperation => CompletionStatus::RemoteOperation,
            Self::RetryExceeded => CompletionStatus::RetryExceeded,
            Self::RnrRetryExceeded => CompletionStatus::RnrRetryExceeded,
            Self::FrameNotBuilt => CompletionStatus::LocalOperation,
            Self::Refused | Self::Aborted => CompletionStatus::Flushed,
        }
    }

    /// Returns the cause in words: at most 23 bytes.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::LocalProtection => "local access error",
            Self::MemoryManagement => "key not in valid state",
            Self::BadResponse => "invalid response",
            Self::RemoteInvalidRequest => "peer: invalid request",
            Self::RemoteAccess => "peer: access error",
            Self::RemoteOperation => "peer: operation error",
            Self::RetryExceeded => "peer does not answer",
            Self::RnrRetryExceeded => "peer posts no receive",
            Self::Refused => "request of peer refused",
            Self::FrameNotBuilt => "frame not built",
            Self::Aborted => "closed or disconnected",
        }
    }

    /// Returns whether nothing more is sent, not even a pending NAK.
    pub(super) const fn is_silent(self) -> bool {
        matches!(self, Self::FrameNotBuilt | Self::Aborted)
    }
}

/// Reason why a received packet did not take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketError {
    /// The packet is dropped.
    Dropped(DropReason),
    /// The packet ends the connection.
    Fatal(Failure),
}

impl From<DropReason> for PacketError {
    fn from(reason: DropReason) -> Self {
        Self::Dropped(reason)
    }
}

impl From<Failure> for PacketError {
    fn from(failure: Failure) -> Self {
        Self::Fatal(failure)
    }
}
