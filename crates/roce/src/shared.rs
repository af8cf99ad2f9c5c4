// SPDX-License-Identifier: MIT OR Apache-2.0

//! State that all queue pairs of an engine share: configuration, memory regions, notices, reports of failures.

use lock_api::RawMutex;

use crate::config::Config;
use crate::conn::ConnId;
use crate::cq_faults::CqFaults;
use crate::notices::Notices;
use crate::qp_change::QpReport;
use crate::region::table::RegionTable;
use crate::reports::Reports;
use crate::trace::{TraceEvent, TraceRecord};
use crate::transport::responder::gaps::stash::StashMemory;
use fallible::Arc;
use roce_wire::{Psn, Qpn};

/// State that every queue pair of an engine uses.
pub(crate) struct EngineShared<R: RawMutex> {
    pub(crate) config: Config,
    pub(crate) regions: RegionTable<R>,
    pub(crate) stash: Arc<StashMemory<R>>,
    pub(crate) notices: Notices<R>,
    pub(crate) cq_faults: CqFaults,
    /// Connections whose queue pair is in error that are not aborted yet.
    pub(crate) failed_connections: Reports<R, ConnId>,
    /// Reports of queue pairs without connection management that the driver does not know yet.
    pub(crate) qp_reports: Reports<R, QpReport>,
    /// Connections whose path may have another next hop that the driver does not know yet.
    pub(crate) suspect_paths: Reports<R, ConnId>,
}

impl<R: RawMutex> EngineShared<R> {
    /// Reports an event, if it is wanted.
    #[inline]
    pub(crate) fn trace(&self, qpn: Qpn, psn: Psn, event: TraceEvent) {
        if let Some(trace) = &self.config.trace {
            (trace.sink)(trace.context, &TraceRecord { qpn, psn, event });
        }
    }
}
