// SPDX-License-Identifier: MIT OR Apache-2.0

//! The completions that a queue pair has pending, and those that it may have.

use std::collections::VecDeque;

use roce::{Completion, CompletionKind, CompletionStatus, QpChange, QpState};

use crate::endpoint::Output;

/// Bytes of a received datagram before its payload.
const GRH: u32 = 40;

/// A request that was accepted and has not completed.
pub(super) struct Posted {
    pub(super) context: u64,
    pub(super) silent: bool,
    /// Kind of the completion of a send.
    pub(super) kind: Option<CompletionKind>,
    /// Bytes that a receive has room for.
    pub(super) room: u32,
}

/// Completions of a queue pair.
#[derive(Default)]
pub(super) struct Expected {
    pub(super) sends: VecDeque<Posted>,
    pub(super) receives: VecDeque<Posted>,
    /// A request of the send queue failed since the queue pair was opened, or its sends resumed.
    sends_failed: bool,
    receives_failed: bool,
    /// Drains whose end is to be reported.
    pub(super) drains: u32,
}

impl Expected {
    /// Accounts for a change that was made, all of whose completions have been observed.
    pub(super) fn changed(&mut self, change: &QpChange, before: QpState) {
        match change {
            QpChange::Reset => {
                // Nothing of before completes.
                self.sends.clear();
                self.receives.clear();
                (self.sends_failed, self.receives_failed) = (false, false);
            }
            QpChange::SendUnreliably(_) if before == QpState::UnreliableSqe => self.sends_failed = false,
            QpChange::Drain { notify: true } => self.drains += 1,
            _ => {}
        }
    }

    /// Checks completions: each is that of the oldest request of its queue.
    pub(super) fn observe(&mut self, outputs: &mut Vec<Output>) {
        for output in outputs.drain(..) {
            if let Output::Completion(completion) = output {
                self.completed(&completion);
            }
        }
    }

    fn completed(&mut self, completion: &Completion) {
        let is_receive = completion.kind.is_receive();
        let is_success = completion.status == CompletionStatus::Success;
        let (queue, failed) = if is_receive {
            (&mut self.receives, &mut self.receives_failed)
        } else {
            (&mut self.sends, &mut self.sends_failed)
        };
        let oldest = loop {
            let oldest = queue.pop_front().unwrap_or_else(|| panic!("{completion:?} belongs to no request"));
            if oldest.context == completion.context {
                break oldest;
            }
            // A silent request that has succeeded before.
            assert!(oldest.silent && !*failed, "request {} did not complete in order", oldest.context);
        };
        assert!(!(oldest.silent && is_success), "a silent request completed with success");
        assert!(!*failed || completion.status == CompletionStatus::Flushed, "{completion:?} after a failure");
        assert!(is_status_of(completion), "{completion:?}");
        assert!(
            oldest.kind.is_none_or(|kind| kind == completion.kind),
            "{completion:?} of {:?}",
            oldest.kind
        );
        if is_receive && is_success {
            let is_datagram = matches!(completion.kind, CompletionKind::ReceiveDatagram { .. });
            assert!(!is_datagram || completion.bytes >= GRH, "{completion:?}");
            // The data of a WRITE is elsewhere.
            let is_write = completion.kind == CompletionKind::ReceiveWrite;
            assert!(is_write || completion.bytes <= oldest.room, "{completion:?} in {}", oldest.room);
        }
        *failed |= !is_success;
    }

    /// Panics if a request is not complete.
    pub(super) fn assert_complete(&self) {
        let pending = self.sends.iter().find(|posted| !posted.silent);
        let pending = pending.or(self.receives.front());
        assert!(pending.is_none_or(|posted| self.sends_failed && posted.silent), "a request never completed");
    }
}

/// Returns whether a completion of this kind has such a status.
fn is_status_of(completion: &Completion) -> bool {
    use CompletionStatus as Status;
    let (both, receive) = (
        matches!(
            completion.status,
            Status::Success
                | Status::Flushed
                | Status::LocalLength
                | Status::LocalOperation
                | Status::LocalProtection
        ),
        matches!(completion.status, Status::LocalAccess | Status::RemoteInvalidRequest),
    );
    let send = matches!(
        completion.status,
        Status::BadResponse
            | Status::RemoteInvalidRequest
            | Status::RemoteAccess
            | Status::RemoteOperation
            | Status::RetryExceeded
            | Status::RnrRetryExceeded
            | Status::MemoryManagement
    );
    both || if completion.kind.is_receive() { receive } else { send }
}
