// SPDX-License-Identifier: MIT OR Apache-2.0

//! The connection of a queue pair, and the reports to it.

use lock_api::RawMutex;

use crate::conn::ConnId;
use crate::shared::EngineShared;

/// The connection of a queue pair.
#[derive(Debug)]
pub(crate) struct Connection {
    /// `None` without connection, and once the failure of the queue pair is reported to it.
    id: Option<ConnId>,
    /// It was reported that the path may have another next hop, and the driver does not know yet.
    path_suspected: bool,
}

impl Connection {
    pub(super) const NONE: Self = Self { id: None, path_suspected: false };

    /// Attaches the queue pair to a connection that is being established.
    pub(crate) fn attach(&mut self, id: ConnId) {
        self.id = Some(id);
    }

    /// Detaches the queue pair from its connection.
    pub(super) fn detach(&mut self) {
        self.id = None;
    }

    /// Returns the connection.
    #[inline]
    pub(super) fn id(&self) -> Option<ConnId> {
        self.id
    }

    /// Reports the failure of the queue pair, once.
    pub(super) fn report_failure<R: RawMutex>(&mut self, shared: &EngineShared<R>) {
        if let Some(id) = self.id.take() {
            shared.failed_connections.add(id);
        }
    }

    /// Reports that the peer has not answered for an ACK timeout: frames may go to a next hop that is no longer the right one.
    pub(super) fn report_suspect_path<R: RawMutex>(&mut self, shared: &EngineShared<R>) {
        if let Some(id) = self.id
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
