//! Connections: what joins connection management, which knows numbers, with queue pairs.

use core::marker::PhantomData;

use lock_api::RawMutex;

use super::{Config, Engine, Event};
use crate::arc::Arc;
use crate::conn::{AcceptSpec, ConnId, ConnectSpec, ListenSpec, ListenerId};
use crate::error::ConnError;
use crate::qp::Qp;
use crate::random::Random;
use crate::time::Instant;

pub(super) struct Conns<R: RawMutex>(PhantomData<R>);

impl<R: RawMutex> Conns<R> {
    pub(super) fn new(_config: &Config, _random: &mut Random) -> Self {
        Self(PhantomData)
    }
}

impl<R: RawMutex> Engine<R> {
    /// Lets peers ask for connections to a port. Each request becomes a
    /// [`ConnEvent::Request`](crate::ConnEvent::Request) with a new connection.
    pub fn listen(&self, spec: &ListenSpec) -> Result<ListenerId, ConnError> {
        let _ = spec;
        Err(ConnError::State)
    }

    /// Ends a listener. Connections that were asked for through it stay.
    pub fn unlisten(&self, listener: ListenerId) -> Result<(), ConnError> {
        let _ = listener;
        Err(ConnError::Unknown)
    }

    /// While paused, requests are refused as if nobody listened.
    pub fn pause(&self, listener: ListenerId, paused: bool) -> Result<(), ConnError> {
        let _ = (listener, paused);
        Err(ConnError::Unknown)
    }

    /// Asks a peer for a connection of `qp`. Ends with
    /// [`ConnEvent::Replied`](crate::ConnEvent::Replied), `Refused` or `TimedOut`.
    pub fn connect(
        &self,
        now: Instant,
        qp: &Arc<Qp<R>>,
        spec: &ConnectSpec<'_>,
    ) -> Result<ConnId, ConnError> {
        let _ = (now, qp, spec);
        Err(ConnError::State)
    }

    /// Completes a connection that the peer has accepted: from now on requests may be posted.
    pub fn complete(&self, now: Instant, conn: ConnId) -> Result<(), ConnError> {
        let _ = (now, conn);
        Err(ConnError::Unknown)
    }

    /// Accepts a connection with `qp`. Ends with [`ConnEvent::Established`](crate::ConnEvent::Established),
    /// `Refused`, `Disconnected` or `TimedOut`; requests may be posted from then on.
    pub fn accept(
        &self,
        now: Instant,
        conn: ConnId,
        qp: &Arc<Qp<R>>,
        spec: &AcceptSpec<'_>,
    ) -> Result<(), ConnError> {
        let _ = (now, conn, qp, spec);
        Err(ConnError::Unknown)
    }

    /// Refuses: a request that has come in, or a connection that the peer has accepted and this side has
    /// not completed. Up to [`PrivateData::MAX_REJECT`](crate::PrivateData::MAX_REJECT) bytes. The
    /// connection is then good for [`Engine::release`] only.
    pub fn reject(&self, now: Instant, conn: ConnId, private_data: &[u8]) -> Result<(), ConnError> {
        let _ = (now, conn, private_data);
        Err(ConnError::Unknown)
    }

    /// Says goodbye, or answers the peer's. Flushes the queue pair. Ends with
    /// [`ConnEvent::DisconnectDone`](crate::ConnEvent::DisconnectDone), at once if the peer was first.
    pub fn disconnect(&self, now: Instant, conn: ConnId) -> Result<(), ConnError> {
        let _ = (now, conn);
        Err(ConnError::Unknown)
    }

    /// Forgets a connection in whatever state; the peer is told if it has to know, and the queue pair is
    /// flushed. No event of it comes after this.
    pub fn release(&self, now: Instant, conn: ConnId) {
        let _ = (now, conn);
    }

    pub(super) fn poll_conn_event(&self) -> Option<Event<'_, R>> {
        None
    }
}
