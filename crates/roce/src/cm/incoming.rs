// SPDX-License-Identifier: MIT OR Apache-2.0

//! A received message, and what every handler of one uses: the connection that it is for, and answers without one.

use super::{
    answer::{Answer, AnswerKind, Answers},
    attached_qps::AttachedQps,
    conn::Conn,
    conn_set::ConnSet,
    state::State,
};
use crate::ignored::Ignored;
use crate::time::Instant;
use crate::trace::{Ends, Trace, TraceEvent, TraceRecord};
use core::net::SocketAddr;
use roce_wire::{
    Packet, Path, Qpn,
    cm::{CommId, RejReason, RespondedMessage},
};

/// The origin of a received message: its packet, transaction ID and arrival time.
#[derive(Clone, Copy)]
pub(super) struct Origin<'a> {
    pub(super) now: Instant,
    pub(super) packet: &'a Packet<'a>,
    pub(super) transaction: u64,
}

impl Origin<'_> {
    /// Returns the path back to the source.
    pub(super) fn path(&self) -> Path {
        let eth = self.packet.eth();
        Path {
            vlan: eth.vlan(),
            ..Path::new(eth.destination(), eth.source(), self.packet.destination(), self.packet.source())
        }
    }

    /// Returns `true` if it comes from the address of a connection's peer.
    pub(super) fn is_from(&self, conn: &Conn) -> bool {
        conn.path.remote_ip == self.packet.source() && conn.path.local_ip == self.packet.destination()
    }
}

/// A received message that is being handled.
pub(super) struct Incoming<'a> {
    pub(super) origin: Origin<'a>,
    pub(super) queue_pairs: &'a dyn AttachedQps,
    pub(super) conns: &'a mut ConnSet,
    pub(super) answers: &'a mut Answers,
}

impl Incoming<'_> {
    /// Returns a connection.
    ///
    /// # Errors
    /// [`Ignored::Unknown`].
    pub(super) fn conn(&self, index: u32) -> Result<&Conn, Ignored> {
        self.conns.slots.get(index).ok_or(Ignored::Unknown)
    }

    /// Returns a connection to change.
    ///
    /// # Errors
    /// [`Ignored::Unknown`].
    pub(super) fn conn_mut(&mut self, index: u32) -> Result<&mut Conn, Ignored> {
        self.conns.slots.get_mut(index).ok_or(Ignored::Unknown)
    }

    /// Finds the connection with the given local communication ID. The source address must be its peer's, and the
    /// remote ID must match if it is given.
    ///
    /// # Errors
    /// [`Ignored::Unknown`].
    pub(super) fn find_local(&self, local_id: CommId, remote_id: Option<CommId>) -> Result<u32, Ignored> {
        let (index, conn) = self.conns.slots.find(local_id).ok_or(Ignored::Unknown)?;
        let ids_fit = remote_id.is_none_or(|remote_id| remote_id == conn.remote_id);
        (!conn.datagrams && self.origin.is_from(conn) && ids_fit).then_some(index).ok_or(Ignored::Unknown)
    }

    /// Returns `true` if a connection with this queue pair of the peer exists: then the message is refused. The
    /// connection is stale only if its peer no longer answers, so that one that is established is challenged, and one that is being
    /// established waits for an answer anyway.
    pub(super) fn is_stale(&self, guid: u64, qpn: Qpn) -> bool {
        //= rocev2 §12
        let slots = &self.conns.slots;
        let stale = slots.find_by_qpn(guid, qpn, |conn| self.origin.is_from(conn));
        if let Some(index) = stale
            && slots.get(index).is_some_and(|conn| conn.state == State::Established)
        {
            self.queue_pairs.challenge(slots.id_of(index));
        }
        stale.is_some()
    }

    /// Queues an answer to the message, for the peer's connection `remote_id`.
    ///
    /// # Errors
    /// [`Ignored::NoRoom`].
    pub(super) fn answer(&mut self, remote_id: CommId, kind: AnswerKind) -> Result<(), Ignored> {
        let Origin { transaction, packet, .. } = self.origin;
        if let (Some(trace), AnswerKind::Rej { reason, .. }) = (&self.conns.config.trace, &kind) {
            report_refusal(trace, packet, *reason);
        }
        self.answers.push(Answer { path: self.origin.path(), transaction, remote_id, kind })
    }

    /// Queues an MRA.
    //= R-CONN-31
    pub(super) fn answer_mra(&mut self, index: u32, message: RespondedMessage) {
        let Ok(conn) = self.conn(index) else { return };
        let (remote_id, kind) = (conn.remote_id, AnswerKind::Mra { local_id: conn.local_id, message });
        // If it is dropped, the peer's retry asks for it again.
        let _ = self.answer(remote_id, kind);
    }

    /// Sends the last message of a connection again.
    pub(super) fn repeat_message(&mut self, index: u32) {
        self.conns.slots.queue_message(self.origin.now, index);
    }
}

/// Reports that a message was refused that belongs to no connection.
#[cold]
#[inline(never)]
fn report_refusal(trace: &Trace, packet: &Packet<'_>, reason: RejReason) {
    let ends =
        Ends { local: SocketAddr::new(packet.destination(), 0), remote: SocketAddr::new(packet.source(), 0) };
    let event = TraceEvent::Refused { reason, ends };
    (trace.sink)(trace.context, &TraceRecord { qpn: Qpn::GSI, psn: packet.bth().psn(), event });
}
