//! Listeners.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::{Cm, state::State};
use crate::{
    conn::{ListenSpec, ListenerId},
    error::ConnError,
    time::Instant,
};
use fallible::vec;
use roce_wire::cm::RejReason;

struct Listener {
    id: ListenerId,
    spec: ListenSpec,
    paused: bool,
    /// Requests that wait for an answer of the consumer.
    waiting: u16,
}

/// All listeners, few enough to be looked through.
#[derive(Default)]
pub(super) struct Listeners {
    all: Vec<Listener>,
    last_id: u64,
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
fn overlap(a: Option<IpAddr>, b: Option<IpAddr>) -> bool {
    let (Some(a), Some(b)) = (a, b) else { return true };
    a == b || a.is_ipv4() == b.is_ipv4() && (a.is_unspecified() || b.is_unspecified())
}

impl Cm {
    /// Begins to listen.
    ///
    /// # Errors
    /// [`ConnError::PortInUse`] when another listener has the port on an address that this one asks for;
    /// [`ConnError::OutOfMemory`], [`ConnError::TooMany`].
    pub fn listen(&mut self, spec: &ListenSpec) -> Result<ListenerId, ConnError> {
        //= R-CONN-53
        let overlaps = |other: &ListenSpec| other.port == spec.port && overlap(other.ip, spec.ip);
        let listeners = &mut self.listeners;
        if listeners.all.iter().any(|listener| overlaps(&listener.spec)) {
            return Err(ConnError::PortInUse);
        }
        if listeners.all.len() >= self.config.max_listeners {
            return Err(ConnError::TooMany);
        }
        let id = ListenerId(listeners.last_id.wrapping_add(1));
        vec::push(&mut listeners.all, Listener { id, spec: *spec, paused: false, waiting: 0 })?;
        listeners.last_id = id.0;
        Ok(id)
    }

    /// Treats requests as if nobody listened, or no longer so. Requests that the consumer was not told of
    /// yet are refused; those it was told of stay.
    //= R-CONN-59
    //= R-CONN-60
    //= R-CONN-61
    pub fn pause(&mut self, now: Instant, id: ListenerId, paused: bool) -> Result<(), ConnError> {
        let listener = self.listeners.all.iter_mut().find(|listener| listener.id == id);
        listener.ok_or(ConnError::Unknown)?.paused = paused;
        if paused {
            self.refuse_untold(now, id);
        }
        Ok(())
    }

    /// Ends a listener. Requests that the consumer was not told of yet are refused; those it was told of
    /// stay.
    pub fn unlisten(&mut self, now: Instant, id: ListenerId) -> Result<(), ConnError> {
        self.refuse_untold(now, id);
        let before = self.listeners.all.len();
        self.listeners.all.retain(|listener| listener.id != id);
        if self.listeners.all.len() == before { Err(ConnError::Unknown) } else { Ok(()) }
    }

    fn refuse_untold(&mut self, now: Instant, id: ListenerId) {
        for index in 0..self.conns.capacity() as u32 {
            if self.conns.get(index).is_some_and(|conn| {
                conn.state == State::ReqReceived && conn.listener == Some(id) && !conn.owned
            }) {
                self.refuse(now, index, RejReason::INVALID_SERVICE_ID, &[]);
            }
        }
    }
}
