// SPDX-License-Identifier: MIT OR Apache-2.0

//! Table of listeners.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::conn::{ListenSpec, ListenerId};

pub(super) struct Listener {
    pub(super) id: ListenerId,
    pub(super) spec: ListenSpec,
    pub(super) paused: bool,
    /// Requests that wait for the consumer's answer, at most the backlog.
    pub(super) waiting: u16,
}

/// All listeners. Searched linearly: there are few.
#[derive(Default)]
pub(super) struct Listeners {
    pub(super) all: Vec<Listener>,
    pub(super) last_id: u64,
}

impl Listeners {
    pub(super) fn context(&self, id: ListenerId) -> Option<u64> {
        self.all.iter().find(|listener| listener.id == id).map(|listener| listener.spec.context)
    }

    /// Returns the listener for this address and port, unless it is paused. At most one matches.
    pub(super) fn matching(&self, ip: IpAddr, port: u16) -> Option<ListenerId> {
        let takes = |listener: &&Listener| listener.spec.port == port && overlap(listener.spec.ip, Some(ip));
        self.all.iter().find(takes).filter(|listener| !listener.paused).map(|listener| listener.id)
    }

    /// Returns `true` if the backlog has room for another request.
    pub(super) fn has_room(&self, id: ListenerId) -> bool {
        self.all.iter().any(|listener| listener.id == id && listener.waiting < listener.spec.backlog)
    }

    /// Counts a request that waits for the consumer's answer.
    pub(super) fn request_queued(&mut self, id: ListenerId) {
        if let Some(listener) = self.by_id(id) {
            listener.waiting = listener.waiting.saturating_add(1);
        }
    }

    /// Counts a request that no longer waits.
    pub(super) fn request_dequeued(&mut self, id: ListenerId) {
        if let Some(listener) = self.by_id(id) {
            listener.waiting = listener.waiting.saturating_sub(1);
        }
    }

    fn by_id(&mut self, id: ListenerId) -> Option<&mut Listener> {
        self.all.iter_mut().find(|listener| listener.id == id)
    }
}

/// Returns `true` if both include a common address: each is one address, all of a family, or (`None`) all.
pub(super) fn overlap(a: Option<IpAddr>, b: Option<IpAddr>) -> bool {
    let (Some(a), Some(b)) = (a, b) else { return true };
    a == b || a.is_ipv4() == b.is_ipv4() && (a.is_unspecified() || b.is_unspecified())
}
