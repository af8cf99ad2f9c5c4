// SPDX-License-Identifier: MIT OR Apache-2.0

//! The connection of a queue pair, and the reports to it.

use lock_api::RawMutex;

use super::env::Env;
use crate::conn::ConnId;
use crate::qp_change::{QpFault, QpReport, QpReportKind};
use crate::shared::EngineShared;

/// The connection of a queue pair.
#[derive(Debug)]
pub(crate) struct Connection {
    kind: Kind,
    /// It was reported that the path may have another next hop, and the driver does not know yet.
    path_suspected: bool,
}

/// Who has connected a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Not connected, or the failure of the queue pair is reported to connection management.
    None,
    /// Connection management.
    Managed(ConnId),
    /// Its owner, by [`Engine::modify_qp`](crate::Engine::modify_qp).
    Direct,
    /// The same; its failure is reported, or needs no report.
    DirectFailed,
}

impl Connection {
    pub(super) const NONE: Self = Self { kind: Kind::None, path_suspected: false };

    /// Attaches the queue pair to a connection that is being established.
    pub(crate) fn attach(&mut self, id: ConnId) {
        self.kind = Kind::Managed(id);
    }

    /// Records that the queue pair is connected by its owner.
    pub(super) fn attach_owner(&mut self) {
        self.kind = Kind::Direct;
    }

    /// Detaches the queue pair from its connection.
    pub(super) fn detach(&mut self) {
        self.kind = Kind::None;
    }

    /// Returns the connection of connection management.
    #[inline]
    pub(crate) fn id(&self) -> Option<ConnId> {
        match self.kind {
            Kind::Managed(id) => Some(id),
            _ => None,
        }
    }

    /// Returns whether the owner of the queue pair has connected it.
    pub(super) fn is_direct(&self) -> bool {
        matches!(self.kind, Kind::Direct | Kind::DirectFailed)
    }

    /// Records that the owner of a queue pair that it has connected itself has ended it: no failure is reported.
    pub(super) fn end_direct(&mut self) {
        if self.kind == Kind::Direct {
            self.kind = Kind::DirectFailed;
        }
    }

    /// Reports the failure of the queue pair, once.
    pub(super) fn report_failure<R: RawMutex>(&mut self, env: &Env<'_, R>, fault: QpFault) {
        match self.kind {
            Kind::Managed(id) => {
                self.kind = Kind::None;
                env.shared.failed_connections.add(id);
            }
            Kind::Direct => {
                self.kind = Kind::DirectFailed;
                env.shared.qp_reports.add(QpReport::new(env.qp, QpReportKind::Failed(fault)));
            }
            Kind::None | Kind::DirectFailed => {}
        }
    }

    /// Reports that the peer has not answered for an ACK timeout: frames may go to a next hop that is no longer the right one.
    pub(super) fn report_suspect_path<R: RawMutex>(&mut self, shared: &EngineShared<R>) {
        if let Kind::Managed(id) = self.kind
            && !core::mem::replace(&mut self.path_suspected, true)
        {
            shared.suspect_paths.add(id);
        }
    }

    /// Records that the driver takes the report of a suspect path: from now on there may be another one.
    pub(crate) fn take_suspect_path(&mut self) {
        self.path_suspected = false;
    }
}
