// SPDX-License-Identifier: MIT OR Apache-2.0

//! Listeners: which address and port each has, and its backlog.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::conn::{ListenSpec, ListenerId};
use crate::error::ConnError;
use fallible::vec;

struct Listener {
    id: ListenerId,
    spec: ListenSpec,
    paused: bool,
    /// Requests that wait for the consumer's answer, at most the backlog.
    waiting: u16,
}

/// All listeners. Searched linearly: there are few.
#[derive(Default)]
pub(super) struct Listeners {
    all: Vec<Listener>,
    last_id: u64,
}

impl Listeners {
    /// Adds a listener, unless there are `max`.
    ///
    /// # Errors
    /// [`ConnError::PortInUse`] if another listener has the port on an overlapping address;
    /// [`ConnError::OutOfMemory`], [`ConnError::TooMany`].
    pub(super) fn add(&mut self, spec: &ListenSpec, max: usize) -> Result<ListenerId, ConnError> {
        //= R-CONN-53
        let overlaps = |other: &ListenSpec| {
            (other.port, other.datagrams) == (spec.port, spec.datagrams) && overlap(other.ip, spec.ip)
        };
        if self.all.iter().any(|listener| overlaps(&listener.spec)) {
            return Err(ConnError::PortInUse);
        }
        if self.all.len() >= max {
            return Err(ConnError::TooMany);
        }
        let id = ListenerId(self.last_id.wrapping_add(1));
        vec::push(&mut self.all, Listener { id, spec: *spec, paused: false, waiting: 0 })?;
        self.last_id = id.0;
        Ok(id)
    }

    /// Pauses or resumes a listener.
    ///
    /// # Errors
    /// [`ConnError::Unknown`] if there is no such listener.
    pub(super) fn pause(&mut self, id: ListenerId, paused: bool) -> Result<(), ConnError> {
        self.by_id(id).ok_or(ConnError::Unknown)?.paused = paused;
        Ok(())
    }

    /// Removes a listener.
    ///
    /// # Errors
    /// [`ConnError::Unknown`] if there is no such listener.
    pub(super) fn remove(&mut self, id: ListenerId) -> Result<(), ConnError> {
        let before = self.all.len();
        self.all.retain(|listener| listener.id != id);
        if self.all.len() == before { Err(ConnError::Unknown) } else { Ok(()) }
    }

    /// Returns the context of a listener.
    pub(super) fn context(&self, id: ListenerId) -> Option<u64> {
        self.all.iter().find(|listener| listener.id == id).map(|listener| listener.spec.context)
    }

    /// Returns the listener for this address and port, of connections or of datagrams, unless it is paused. At most one matches.
    pub(super) fn matching(&self, ip: IpAddr, port: u16, datagrams: bool) -> Option<ListenerId> {
        let takes = |listener: &&Listener| {
            (listener.spec.port, listener.spec.datagrams) == (port, datagrams)
                && overlap(listener.spec.ip, Some(ip))
        };
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
fn overlap(a: Option<IpAddr>, b: Option<IpAddr>) -> bool {
    let (Some(a), Some(b)) = (a, b) else { return true };
    a == b || a.is_ipv4() == b.is_ipv4() && (a.is_unspecified() || b.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(ip: Option<[u8; 4]>, port: u16) -> ListenSpec {
        ListenSpec { ip: ip.map(IpAddr::from), port, datagrams: false, backlog: 1, context: 3 }
    }

    #[test]
    fn a_port_belongs_to_one_listener_of_an_address() {
        let mut listeners = Listeners::default();
        let one = listeners.add(&spec(Some([10, 0, 0, 1]), 7), 3).unwrap();
        let other = listeners.add(&spec(Some([10, 0, 0, 2]), 7), 3).unwrap();
        assert_eq!(listeners.add(&spec(None, 7), 3), Err(ConnError::PortInUse));
        listeners.add(&spec(None, 8), 3).unwrap();
        assert_eq!(listeners.add(&spec(None, 9), 3), Err(ConnError::TooMany));
        assert_eq!(listeners.matching([10, 0, 0, 1].into(), 7, false), Some(one));
        listeners.pause(one, true).unwrap();
        assert_eq!(listeners.matching([10, 0, 0, 1].into(), 7, false), None, "paused");
        listeners.remove(other).unwrap();
        assert_eq!(listeners.remove(other), Err(ConnError::Unknown));
        assert_eq!(listeners.pause(other, true), Err(ConnError::Unknown));
        assert_eq!(listeners.matching([10, 0, 0, 2].into(), 7, false), None, "removed");
    }

    #[test]
    fn a_backlog_has_room_again_once_a_request_is_answered() {
        let mut listeners = Listeners::default();
        let id = listeners.add(&spec(None, 7), 1).unwrap();
        assert!(listeners.has_room(id));
        listeners.request_queued(id);
        assert!(!listeners.has_room(id));
        listeners.request_dequeued(id);
        assert!(listeners.has_room(id));
    }
}
