// SPDX-License-Identifier: MIT OR Apache-2.0

//! Maps the errors of the layers below to the `NTSTATUS` values of NDKPI. No other place does.

use super::environment::ResolveError;
use ndk_abi::nt::{
    NTSTATUS, STATUS_ACCESS_VIOLATION, STATUS_BUFFER_OVERFLOW, STATUS_CANCELLED, STATUS_CONNECTION_ABORTED,
    STATUS_CONNECTION_ACTIVE, STATUS_CONNECTION_INVALID, STATUS_CONNECTION_REFUSED, STATUS_DATA_OVERRUN,
    STATUS_HOST_UNREACHABLE, STATUS_INSUFFICIENT_RESOURCES, STATUS_INTERNAL_ERROR, STATUS_INVALID_ADDRESS,
    STATUS_INVALID_BUFFER_SIZE, STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_PARAMETER, STATUS_IO_TIMEOUT,
    STATUS_NETWORK_UNREACHABLE, STATUS_SHARING_VIOLATION, STATUS_SUCCESS,
};
use nt::MdlError;
use roce::{
    CompletionKind, CompletionStatus, ConnError, CqFault, CreateError, DisconnectOutcome, ModifyError,
    PostError, RejectReason,
};

/// The result of a call: a value, or the status that it fails with.
pub type NtResult<T = ()> = Result<T, NTSTATUS>;

/// The status of a post beyond the depth of its queue.
///
/// This is the code of the user-mode interface (NDSPI), a warning. One public consumer takes warnings
/// for success; should that matter, return an error here instead.
//= R-QP-18, R-QP-89
pub const QUEUE_FULL: NTSTATUS = 0x8000_001A_u32.cast_signed();

/// Returns the status of a call without a value.
pub fn of(answer: NtResult) -> NTSTATUS {
    answer.err().unwrap_or(STATUS_SUCCESS)
}

/// Maps a failure to create an object.
//= R-CREATE-14
pub fn create(error: CreateError) -> NTSTATUS {
    match error {
        CreateError::OutOfMemory | CreateError::TooMany => STATUS_INSUFFICIENT_RESOURCES,
        CreateError::Invalid => STATUS_INVALID_PARAMETER,
    }
}

/// Maps a failure to post a work request.
//= R-QP-4, R-QP-16, R-QP-18, R-QP-19, R-QP-33, R-QP-53, R-QP-84, R-SRQ-5
pub fn post(error: PostError) -> NTSTATUS {
    match error {
        PostError::NotConnected => STATUS_CONNECTION_INVALID,
        PostError::QueueFull => QUEUE_FULL,
        PostError::TooManySges => STATUS_DATA_OVERRUN,
        PostError::TooLong | PostError::InlineTooLong => STATUS_BUFFER_OVERFLOW,
        PostError::NotAllowed => STATUS_INVALID_DEVICE_REQUEST,
        //= R-MR-32, R-MR-33, R-MR-36, R-MR-38
        PostError::Invalid => STATUS_INVALID_PARAMETER,
        //= R-MR-31, R-MR-59
        PostError::NoRight => STATUS_ACCESS_VIOLATION,
    }
}

/// Maps a failure to modify a completion queue or a shared receive queue.
//= R-CQ-39, R-CQ-40, R-SRQ-11, R-SRQ-12
pub fn modify(error: ModifyError) -> NTSTATUS {
    match error {
        ModifyError::OutOfMemory => STATUS_INSUFFICIENT_RESOURCES,
        ModifyError::Occupied => STATUS_BUFFER_OVERFLOW,
        ModifyError::Invalid => STATUS_INVALID_PARAMETER,
    }
}

/// Maps a failure of a connection command.
pub fn connection(error: ConnError) -> NTSTATUS {
    match error {
        // The connection existed when the connector's state was checked: it has ended since.
        ConnError::Unknown => STATUS_CONNECTION_ABORTED,
        ConnError::State => STATUS_CONNECTION_INVALID,
        //= R-QP-75, R-CONN-18
        ConnError::QpBusy => STATUS_CONNECTION_ACTIVE,
        ConnError::Invalid => STATUS_INVALID_PARAMETER,
        //= R-CONN-2
        ConnError::NotLocal => STATUS_INVALID_ADDRESS,
        //= R-CONN-15
        ConnError::PrivateDataTooLong => STATUS_INVALID_BUFFER_SIZE,
        ConnError::PortInUse => STATUS_SHARING_VIOLATION,
        ConnError::OutOfMemory | ConnError::TooMany => STATUS_INSUFFICIENT_RESOURCES,
    }
}

/// Maps the reason of a CM REJ. `connecting`: the peer had not accepted before.
///
/// Any reason to refuse a request is a refusal, after which a consumer may try again: the peer does not listen,
/// lacks resources, or still has an older connection of this queue pair.
//= R-CONN-6, R-CONN-7, R-CONN-10, R-CONN-30, R-CONN-38, R-CONN-39
pub fn refusal(reason: RejectReason, connecting: bool) -> NTSTATUS {
    match (reason, connecting) {
        (RejectReason::TIMEOUT, _) => STATUS_IO_TIMEOUT,
        (RejectReason::CONSUMER, _) | (_, true) => STATUS_CONNECTION_REFUSED,
        (_, false) => STATUS_CONNECTION_ABORTED,
    }
}

/// Maps a failure to accept, reject or complete a connection, by a connector whose own state allows it.
//= R-CONN-29, R-CONN-37, R-CONN-41
pub fn respond(error: ConnError) -> NTSTATUS {
    match error {
        // The peer has ended the connection; the event that reports it is not delivered yet.
        ConnError::State => STATUS_CONNECTION_ABORTED,
        other => connection(other),
    }
}

/// Maps the end of a disconnect that pended.
//= R-CONN-80, R-CONN-81, R-CONN-94, R-CONN-95
pub fn disconnect(outcome: DisconnectOutcome) -> NTSTATUS {
    match outcome {
        DisconnectOutcome::Graceful => STATUS_SUCCESS,
        DisconnectOutcome::TimedOut => STATUS_IO_TIMEOUT,
        DisconnectOutcome::Aborted | DisconnectOutcome::AddressRemoved => STATUS_CONNECTION_ABORTED,
    }
}

/// Returns the status of a completion queue's notification.
//= R-CQ-32, R-CQ-33, R-CQ-34
pub fn notification(fault: Option<CqFault>) -> NTSTATUS {
    match fault {
        None => STATUS_SUCCESS,
        Some(CqFault::Overflow) => STATUS_BUFFER_OVERFLOW,
        Some(CqFault::Internal) => STATUS_INTERNAL_ERROR,
    }
}

/// Maps a failure to map an MDL chain.
pub fn mdl(error: MdlError) -> NTSTATUS {
    match error {
        MdlError::Invalid => STATUS_INVALID_PARAMETER,
        MdlError::NoResources => STATUS_INSUFFICIENT_RESOURCES,
    }
}

/// Maps a failure to resolve the path to a peer.
//= R-CONN-5
pub fn resolve(error: ResolveError) -> NTSTATUS {
    match error {
        ResolveError::NetworkUnreachable => STATUS_NETWORK_UNREACHABLE,
        ResolveError::HostUnreachable => STATUS_HOST_UNREACHABLE,
        ResolveError::NoResources => STATUS_INSUFFICIENT_RESOURCES,
    }
}

/// Maps the status of a completion to the set of statuses that a completion may have.
//= R-QP-43, R-QP-46, R-QP-55, R-QP-56, R-QP-58, R-QP-59, R-QP-62, R-QP-88, R-QP-90
pub fn completion(status: CompletionStatus, kind: CompletionKind) -> NTSTATUS {
    match status {
        CompletionStatus::Success => STATUS_SUCCESS,
        CompletionStatus::LocalLength if kind.is_receive() => STATUS_BUFFER_OVERFLOW,
        CompletionStatus::LocalLength => STATUS_DATA_OVERRUN,
        CompletionStatus::LocalProtection
        | CompletionStatus::LocalAccess
        | CompletionStatus::RemoteAccess => STATUS_ACCESS_VIOLATION,
        CompletionStatus::Flushed => STATUS_CANCELLED,
        CompletionStatus::RemoteInvalidRequest | CompletionStatus::RemoteOperation => REMOTE_ERROR,
        CompletionStatus::RetryExceeded | CompletionStatus::RnrRetryExceeded => STATUS_IO_TIMEOUT,
        CompletionStatus::LocalOperation | CompletionStatus::BadResponse => STATUS_INTERNAL_ERROR,
        //= R-MR-41, R-MR-46
        CompletionStatus::MemoryManagement => STATUS_INVALID_DEVICE_REQUEST,
    }
}

/// A remote error other than a refused access: numerically NDSPI's `ND_REMOTE_ERROR`.
const REMOTE_ERROR: NTSTATUS = ndk_abi::nt::STATUS_REMOTE_RESOURCES;

#[cfg(test)]
mod tests {
    use super::*;

    //= R-CQ-33
    #[test]
    fn notification_names_the_fault() {
        let faults = [None, Some(CqFault::Overflow), Some(CqFault::Internal)];
        assert_eq!(faults.map(notification), [0, 0x8000_0005, 0xC000_00E5].map(u32::cast_signed));
    }

    //= R-CONN-81
    #[test]
    fn only_a_disconnect_without_an_answer_times_out() {
        use DisconnectOutcome::{Aborted, AddressRemoved, Graceful, TimedOut};
        let statuses = [Graceful, TimedOut, Aborted, AddressRemoved].map(disconnect);
        assert_eq!(statuses, [0, 0xC000_00B5, 0xC000_0241, 0xC000_0241].map(u32::cast_signed));
    }

    //= R-QP-88
    #[test]
    fn completions_have_only_the_statuses_that_consumers_know() {
        use CompletionStatus as Status;
        let statuses = [
            Status::Success,
            Status::LocalLength,
            Status::LocalOperation,
            Status::LocalProtection,
            Status::Flushed,
            Status::BadResponse,
            Status::LocalAccess,
            Status::RemoteInvalidRequest,
            Status::RemoteAccess,
            Status::RemoteOperation,
            Status::RetryExceeded,
            Status::RnrRetryExceeded,
            Status::MemoryManagement,
        ];
        let known = [0, 0xC000_0005, 0xC000_0120, 0xC000_0010, 0xC000_00E5].map(u32::cast_signed);
        for kind in [CompletionKind::Receive, CompletionKind::ReceiveInvalidate { key: 1 }] {
            for status in statuses {
                let mapped = completion(status, kind);
                assert!(known.contains(&mapped) || mapped == STATUS_BUFFER_OVERFLOW || is_remote(mapped));
            }
        }
        for kind in [CompletionKind::Send, CompletionKind::Read, CompletionKind::Write] {
            for status in statuses {
                let mapped = completion(status, kind);
                assert!(known.contains(&mapped) || mapped == STATUS_DATA_OVERRUN || is_remote(mapped));
            }
        }
        // What the engine gives requests that send nothing.
        for kind in [CompletionKind::FastRegister, CompletionKind::Bind, CompletionKind::Invalidate] {
            for status in [Status::Success, Status::Flushed, Status::MemoryManagement] {
                assert!(known.contains(&completion(status, kind)));
            }
        }
    }

    fn is_remote(status: NTSTATUS) -> bool {
        [STATUS_IO_TIMEOUT, REMOTE_ERROR].contains(&status)
    }

    /// Warnings only where the sister interface names one.
    //= R-QP-89
    #[test]
    fn inline_failures_are_errors_except_two() {
        let errors = [
            PostError::NotConnected,
            PostError::TooManySges,
            PostError::NotAllowed,
            PostError::Invalid,
            PostError::NoRight,
        ];
        assert!(errors.into_iter().all(|error| post(error).cast_unsigned() >> 30 == 3));
        assert_eq!(post(PostError::QueueFull), 0x8000_001A_u32.cast_signed());
        assert_eq!([PostError::TooLong, PostError::InlineTooLong].map(post), [STATUS_BUFFER_OVERFLOW; 2]);
    }

    //= R-CONN-6, R-CONN-7, R-CONN-30, R-CONN-39
    #[test]
    fn refusal_differs_from_timeout_and_from_abort() {
        let reasons =
            [RejectReason::INVALID_SERVICE_ID, RejectReason::STALE, RejectReason(3), RejectReason(999)];
        for reason in reasons {
            assert_eq!(refusal(reason, true), STATUS_CONNECTION_REFUSED, "{reason:?}");
            assert_eq!(refusal(reason, false), STATUS_CONNECTION_ABORTED, "{reason:?}");
        }
        assert_eq!(
            [true, false].map(|connecting| refusal(RejectReason::CONSUMER, connecting)),
            [STATUS_CONNECTION_REFUSED; 2]
        );
        assert_eq!(refusal(RejectReason::TIMEOUT, true), STATUS_IO_TIMEOUT);
        assert_eq!(refusal(RejectReason::TIMEOUT, false), STATUS_IO_TIMEOUT);
    }
}
