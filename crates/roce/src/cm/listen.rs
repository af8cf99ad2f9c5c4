// SPDX-License-Identifier: MIT OR Apache-2.0

//! Commands of the consumer for listeners.

use super::Cm;
use super::listener::{Listener, overlap};
use super::state::State;
use crate::{
    conn::{ListenSpec, ListenerId},
    error::ConnError,
    time::Instant,
};
use fallible::vec;
use roce_wire::cm::RejReason;

impl Cm {
    /// Creates a listener.
    ///
    /// # Errors
    /// [`ConnError::PortInUse`] if another listener has the port on an overlapping address;
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

    /// Pauses or resumes a listener. While paused, requests are refused as for a port without listener. A pause
    /// refuses requests that were not reported to the consumer yet; reported ones stay.
    ///
    /// # Errors
    /// [`ConnError::Unknown`] if there is no such listener.
    //= R-CONN-59
    //= R-CONN-60
    //= R-CONN-61
    pub fn pause(&mut self, now: Instant, id: ListenerId, paused: bool) -> Result<(), ConnError> {
        let listener = self.listeners.all.iter_mut().find(|listener| listener.id == id);
        listener.ok_or(ConnError::Unknown)?.paused = paused;
        if paused {
            self.refuse_unreported(now, id);
        }
        Ok(())
    }

    /// Removes a listener. Requests that were not reported to the consumer yet are refused; reported ones stay.
    ///
    /// # Errors
    /// [`ConnError::Unknown`] if there is no such listener.
    pub fn unlisten(&mut self, now: Instant, id: ListenerId) -> Result<(), ConnError> {
        self.refuse_unreported(now, id);
        let before = self.listeners.all.len();
        self.listeners.all.retain(|listener| listener.id != id);
        if self.listeners.all.len() == before { Err(ConnError::Unknown) } else { Ok(()) }
    }

    fn refuse_unreported(&mut self, now: Instant, id: ListenerId) {
        for index in 0..self.conns.capacity() as u32 {
            if self.conns.get(index).is_some_and(|conn| {
                conn.state == State::ReqReceived && conn.listener == Some(id) && !conn.owned
            }) {
                self.refuse(now, index, RejReason::INVALID_SERVICE_ID, &[]);
            }
        }
    }
}
