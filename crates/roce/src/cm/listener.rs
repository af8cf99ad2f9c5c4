// SPDX-License-Identifier: MIT OR Apache-2.0

//! Listeners.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::conn::{ListenSpec, ListenerId};

pub(super) struct Listener {
    pub(super) id: ListenerId,
    pub(super) spec: ListenSpec,
    pub(super) paused: bool,
    /// Requests that wait for the consumer's answer.
    pub(super) waiting: u16,
}

/// All listeners, few enough to be looked through.
#[derive(Default)]
pub(super) struct Listeners {
    pub(super) all: Vec<Listener>,
    pub(super) last_id: u64,
}

impl Listeners {
    pub(super) fn context(&self, id: ListenerId) -> Option<u64> {
        self.all.iter().find(|listener| listener.id == id).map(|listener| listener.spec.context)
    }

    /// Who takes requests to this address and port: no two listeners do.
    pub(super) fn matching(&self, ip: IpAddr, port: u16) -> Option<ListenerId> {
        let takes = |listener: &&Listener| listener.spec.port == port && overlap(listener.spec.ip, Some(ip));
        self.all.iter().find(takes).filter(|listener| !listener.paused).map(|listener| listener.id)
    }

    /// Whether another request may wait.
    pub(super) fn has_room(&self, id: ListenerId) -> bool {
        self.all.iter().any(|listener| listener.id == id && listener.waiting < listener.spec.backlog)
    }

    /// A request begins to wait.
    pub(super) fn entered(&mut self, id: ListenerId) {
        if let Some(listener) = self.by_id(id) {
            listener.waiting = listener.waiting.saturating_add(1);
        }
    }

    /// A request waits no longer.
    pub(super) fn left(&mut self, id: ListenerId) {
        if let Some(listener) = self.by_id(id) {
            listener.waiting = listener.waiting.saturating_sub(1);
        }
    }

    fn by_id(&mut self, id: ListenerId) -> Option<&mut Listener> {
        self.all.iter_mut().find(|listener| listener.id == id)
    }
}

/// Whether some address is meant by both: each is one address, all of a family, or all there are.
pub(super) fn overlap(a: Option<IpAddr>, b: Option<IpAddr>) -> bool {
    let (Some(a), Some(b)) = (a, b) else { return true };
    a == b || a.is_ipv4() == b.is_ipv4() && (a.is_unspecified() || b.is_unspecified())
}
