// SPDX-License-Identifier: MIT OR Apache-2.0

//! Progress of a change to SQD: requests that have begun are completed, and no others are begun.
//!
//! Source: IBTA Volume 1, section 10.3.1.

use lock_api::RawMutex;

use super::env::Env;
use super::requester::{Requester, life_cycle};
use super::sequence::Sequence;
use crate::qp_change::{QpReport, QpReportKind};

/// Progress of a change to SQD, while the queue pair is in that state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drain {
    /// Not in SQD.
    None,
    /// Requests that were begun are not complete.
    Pending {
        /// Where the last of them ends, over a reliable connection.
        end: Sequence,
        /// Their completion is reported.
        notify: bool,
    },
    /// All that were begun are complete.
    Finished,
}

impl Drain {
    /// Returns whether requests that were begun are not complete.
    pub(crate) fn is_pending(self) -> bool {
        matches!(self, Self::Pending { .. })
    }

    /// Continues after requests of a reliable connection may have completed.
    #[cold]
    #[inline(never)]
    pub(super) fn advance<R: RawMutex>(&mut self, env: &Env<'_, R>, requester: &Requester) {
        if let Self::Pending { end, .. } = *self
            && life_cycle::is_complete_before(requester, end)
        {
            self.finish(env);
        }
    }

    /// Records that all requests are complete that were begun, and reports it once.
    pub(super) fn finish<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        if let Self::Pending { notify: true, .. } = core::mem::replace(self, Self::Finished) {
            env.shared.qp_reports.add(QpReport::new(env.qp, QpReportKind::Drained));
        }
    }
}
