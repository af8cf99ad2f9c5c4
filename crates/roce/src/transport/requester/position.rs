// SPDX-License-Identifier: MIT OR Apache-2.0

//! Position of the requester in the send queue.

use super::send_queue::Wqe;
use crate::sge_cursor::SgeCursor;

/// The request that the next packet to send belongs to.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Position {
    /// Index of the request, counted from the oldest.
    pub(super) index: u32,
    /// Number of READs before it.
    pub(super) reads_before: u32,
    /// Position of the next packet's payload in it.
    pub(super) cursor: SgeCursor,
}

impl Position {
    /// The oldest request.
    pub(super) const OLDEST: Self = Self { index: 0, reads_before: 0, cursor: SgeCursor::START };

    /// Advances to the request after `wqe`, which is sent or executed.
    #[inline]
    pub(super) fn advance(&mut self, wqe: &Wqe) {
        self.reads_before = self.reads_before.saturating_add(u32::from(wqe.is_read()));
        self.index = self.index.saturating_add(1);
        self.cursor = SgeCursor::default();
    }

    /// Accounts for `wqe`, which was the oldest request and has left the queue.
    #[inline]
    pub(super) fn oldest_completed(&mut self, wqe: &Wqe) {
        if let Some(index) = self.index.checked_sub(1) {
            self.index = index;
            self.reads_before = self.reads_before.saturating_sub(u32::from(wqe.is_read()));
        } else {
            self.cursor = SgeCursor::default();
        }
    }
}
