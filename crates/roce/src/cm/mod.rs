// SPDX-License-Identifier: MIT OR Apache-2.0

//! The connection manager: who may talk to whom, agreed in a handful of datagrams.
//!
//! Responsible for listeners and for the life of connections from REQ to the end of TIMEWAIT: identifiers,
//! repetition and duplicates of messages, private data, read limits. Knows queue pairs as numbers only: what
//! they need to begin is handed out with the events, and what happens to them is told through commands.
//!
//! # Driving it
//! [`Cm`] does no I/O, has no clock, and belongs under one lock. After anything that takes `&mut self`:
//! * **in**: [`Cm::handle`] takes datagrams to queue pair 1 (whose ICRC was checked), [`Cm::handle_timeout`]
//!   the time that [`Cm::poll_timeout`] asked for;
//! * **commands**: [`Cm::set_addresses`]; [`Cm::listen`], [`Cm::pause`], [`Cm::unlisten`]; [`Cm::connect`], [`Cm::accept`],
//!   [`Cm::complete`], [`Cm::reject`], [`Cm::disconnect`], [`Cm::abort`], [`Cm::traffic_seen`],
//!   [`Cm::release`];
//! * **out**: [`Cm::poll_transmit`] writes frames, [`Cm::poll_event`] tells what happened, both until they
//!   have no more.
//!
//! Of each [`EventKind`] a connection has at most one, in the order of the enum, and none once it is released.
//! Every connection that a command made or an event named is to be released. A connection may go on without
//! its consumer: a DREQ is repeated, TIMEWAIT waited for.
//!
//! # Bounds
//! Connections, listeners, unanswered requests and pending answers are bounded by [`Config`], in all and per
//! peer; `bounds` says who gives way. Memory is taken when a connection is made, may be refused, and is kept
//! for the next. One datagram is answered by one at most, of its own length, and to where it came from; no
//! answer is answered. A REP, which nobody may have asked for, is repeated 7 times at most. Whatever times a
//! peer asks for, it is waited for no longer than some minutes.

mod address_change;
mod addresses;
mod answer;
mod bounds;
mod command;
mod config;
mod conn;
mod deadlines;
mod event;
mod index;
mod listen;
mod listener;
mod peers;
mod prf;
mod queue;
mod receive;
mod request;
mod state;
mod table;
#[cfg(test)]
mod tests;

pub use config::Config;
pub use event::{Event, EventKind, Ignored, LocalQp, PeerQp};

use self::{
    addresses::Addresses,
    answer::{Answer, MAX_ANSWERS},
    conn::{Conn, DisconnectProgress, Pending},
    deadlines::Deadlines,
    index::Index,
    listener::Listeners,
    peers::Peers,
    prf::Prf,
    queue::Queue,
    state::{Input, State},
    table::Table,
};
use crate::{
    conn::{ConnId, ConnRequest},
    error::ConnError,
    time::Instant,
};
use fallible::Fifo;
use roce_wire::icrc::Crc;
use roce_wire::{
    DethRepr, Ext, Headers, Mad, Opcode, Path, Psn, Qpn, Template,
    cm::{CmMessage, CommId},
};

/// The connection manager.
pub struct Cm {
    config: Config,
    prf: Prf,
    /// Of queue pair 1.
    psn: Psn,
    addresses: Addresses,
    listeners: Listeners,
    conns: Table<Conn>,
    /// By the peer's GUID and communication id: finds repeated REQs.
    by_id: Index,
    /// By the peer's GUID and queue pair: finds stale connections.
    by_qpn: Index,
    peers: Peers,
    deadlines: Deadlines,
    /// Connections that peers have begun and that are not established, the oldest first.
    half_open: Queue,
    /// Connections that only wait for late messages, the oldest first.
    fading: Queue,
    /// Connections with a message to send.
    outbox: Queue,
    /// Connections with something to tell.
    telling: Queue,
    /// Answers about no connection of ours.
    answers: Fifo<Answer>,
}

/// How often a DREQ is repeated at most: whoever disconnects from a peer that has vanished gets the receives
/// of the queue pair back after that, within 10 s by default.
const MAX_DREQ_RETRIES: u8 = 7;

/// Deadlines that one call handles: bounds the time it takes.
const TIMEOUT_BUDGET: usize = 64;

impl Cm {
    pub fn new(config: Config) -> Self {
        let mut prf = Prf::new(&config.seed);
        let psn = Psn::new(prf.random() as u32);
        Self {
            config,
            prf,
            psn,
            addresses: Addresses::default(),
            listeners: Listeners::default(),
            conns: Table::new(),
            by_id: Index::default(),
            by_qpn: Index::default(),
            peers: Peers::default(),
            deadlines: Deadlines::default(),
            half_open: Queue::new(),
            fading: Queue::new(),
            outbox: Queue::new(),
            telling: Queue::new(),
            answers: Fifo::new(),
        }
    }

    /// Connections there are, those in TIMEWAIT included.
    #[cfg(test)]
    fn connections(&self) -> usize {
        self.conns.len()
    }

    /// Whether [`Cm::poll_transmit`] has something.
    pub fn has_transmit(&self) -> bool {
        !self.outbox.is_empty() || !self.answers.is_empty()
    }

    /// Writes the next frame to the start of `slot`; returns its length. `None` when there is nothing to send,
    /// or when `slot` is too small (384 bytes do for any frame).
    pub fn poll_transmit(&mut self, now: Instant, crc: Crc, slot: &mut [u8]) -> Option<usize> {
        if let Some(answer) = self.answers.pop() {
            return self.emit_answer(crc, slot, &answer);
        }
        let index = self.outbox.pop()?;
        // The time to answer begins when the message leaves.
        self.arm(now, index);
        let psn = self.next_psn();
        let conn = self.conns.get(index)?;
        emit(crc, slot, &conn.path, self.config.source_port, psn, &conn.message)
    }

    /// Has an answer sent.
    fn answer(&mut self, answer: Answer) -> Result<(), Ignored> {
        let room = self.answers.len() < MAX_ANSWERS && self.answers.reserve_for(MAX_ANSWERS).is_ok();
        if room && self.answers.push(answer) { Ok(()) } else { Err(Ignored::NoRoom) }
    }

    /// Writes the frame of an answer.
    #[inline(never)]
    fn emit_answer(&mut self, crc: Crc, slot: &mut [u8], answer: &Answer) -> Option<usize> {
        let mut mad = [0; Mad::LEN];
        answer.emit(self.config.service_timeout, &mut mad);
        let psn = self.next_psn();
        emit(crc, slot, &answer.path, self.config.source_port, psn, &mad)
    }

    fn next_psn(&mut self) -> Psn {
        self.psn = self.psn.next();
        self.psn
    }

    /// What happened next.
    pub fn poll_event(&mut self) -> Option<Event> {
        let index = self.telling.pop()?;
        let conn = self.conns.get_mut(index)?;
        let next = conn.pending.iter().next()?;
        conn.pending -= next;
        if !conn.pending.is_empty() {
            self.telling.push(index);
        }
        let mut context = conn.context;
        let kind = match next {
            Pending::REQUEST => {
                // From here on it is the consumer's.
                conn.owned = true;
                context = conn.listener.and_then(|id| self.listeners.context(id)).unwrap_or(0);
                let request = ConnRequest {
                    path: conn.path,
                    local_port: conn.local_port,
                    remote_port: conn.remote_port,
                    mtu: conn.peer.mtu,
                    reads: conn.peer.reads,
                    private_data: conn.data,
                };
                EventKind::Request { request, peer: conn.peer }
            }
            Pending::REPLIED => EventKind::Replied { peer: conn.peer, private_data: conn.data },
            Pending::ESTABLISHED => EventKind::Established,
            Pending::REFUSED => EventKind::Refused { reason: conn.reason, private_data: conn.data },
            Pending::DISCONNECTED => EventKind::Disconnected,
            Pending::ABORTED => EventKind::Aborted,
            Pending::TIMED_OUT => EventKind::TimedOut,
            _ => EventKind::DisconnectDone { graceful: conn.graceful },
        };
        Some(Event { conn: conn_id(index, conn.generation), context, kind })
    }

    /// When [`Cm::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.addresses.is_sweeping() {
            return Some(Instant::default());
        }
        self.deadlines.first().map(|(deadline, _)| deadline)
    }

    /// Lets time pass. Handles a bounded number of deadlines; ask [`Cm::poll_timeout`] again.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.sweep(now);
        for _ in 0..TIMEOUT_BUDGET {
            match self.deadlines.first() {
                Some((deadline, index)) if deadline <= now => self.expire(now, index),
                _ => return,
            }
        }
    }

    fn expire(&mut self, now: Instant, index: u32) {
        self.deadlines.set(index, None);
        let Some(conn) = self.conns.get_mut(index) else { return };
        if conn.state == State::TimeWait {
            self.advance(now, index, Input::Expire);
        } else if let Some(retries) = conn.retries.checked_sub(1) {
            //= rocev2 §12
            conn.retries = retries;
            self.queue_message(now, index);
        } else {
            let what = if conn.state == State::DreqSent {
                self.disconnect_done(index, false)
            } else {
                Pending::TIMED_OUT
            };
            self.advance_and_tell(now, index, Input::GiveUp, what);
        }
    }

    /// What is to be told when a DREQ's exchange is over.
    fn disconnect_done(&mut self, index: u32, graceful: bool) -> Pending {
        match self.conns.get_mut(index) {
            Some(conn) if conn.disconnect_progress == DisconnectProgress::Requested => {
                conn.disconnect_progress = DisconnectProgress::Reported;
                conn.graceful = graceful;
                Pending::DISCONNECT_DONE
            }
            _ => Pending::empty(),
        }
    }

    /// Makes the transition that `input` leads to. `false`, and nothing done, when there is none.
    fn advance(&mut self, now: Instant, index: u32, input: Input) -> bool {
        let Some(conn) = self.conns.get_mut(index) else { return false };
        let Ok(state) = conn.state.on(input) else { return false };
        if conn.state == State::ReqReceived
            && let Some(listener) = conn.listener
        {
            self.listeners.left(listener);
            if !conn.owned {
                // The consumer was not told of the request, and now there is nothing to tell.
                conn.pending = Pending::empty();
                self.telling.remove(index);
            }
        }
        let (before, time_wait) = (conn.state, conn.time_wait);
        conn.state = state;
        conn.stood |= state == State::Established;
        self.account(now, index, before);
        match state {
            State::TimeWait => self.deadlines.set(index, Some(now + time_wait)),
            State::Idle => {
                self.deadlines.set(index, None);
                self.outbox.remove(index);
                self.forget(index);
            }
            _ => self.deadlines.set(index, None),
        }
        true
    }

    /// [`Cm::advance`], and a word to the consumer.
    fn advance_and_tell(&mut self, now: Instant, index: u32, input: Input, what: Pending) {
        let Some(conn) = self.conns.get_mut(index) else { return };
        if conn.state.on(input).is_ok() {
            conn.tell(what);
            self.tell_pending(index);
            self.advance(now, index, input);
        }
    }

    /// Has [`Cm::poll_event`] come to a connection with something to tell.
    fn tell_pending(&mut self, index: u32) {
        if self.conns.get(index).is_some_and(|conn| !conn.pending.is_empty()) {
            self.telling.push(index);
        }
    }

    /// [`Cm::advance`], and a message to the peer.
    fn advance_and_send(&mut self, now: Instant, index: u32, input: Input, message: &CmMessage) -> bool {
        if !self.advance(now, index, input) {
            return false;
        }
        let transaction = match message {
            //= rocev2 §11
            CmMessage::Dreq(_) => self.prf.random(),
            _ => self.conns.get(index).map_or(0, |conn| conn.transaction),
        };
        if let Some(conn) = self.conns.get_mut(index) {
            let retries = match conn.state {
                State::RepSent => conn.retries,
                //= R-CONN-81
                State::DreqSent => {
                    // The REP's interval was the peer's to choose; this wait is this side's own.
                    conn.interval = conn.interval.min(self.config.interval());
                    self.config.max_retries.min(MAX_DREQ_RETRIES)
                }
                _ => self.config.max_retries,
            };
            conn.set_message(message, transaction, retries);
        }
        self.queue_message(now, index);
        true
    }

    /// Has a connection's message sent (again).
    fn queue_message(&mut self, now: Instant, index: u32) {
        self.outbox.push(index);
        // In case the wire does not take it.
        self.arm(now, index);
    }

    /// Begins to wait for an answer, in a state that has one.
    fn arm(&mut self, now: Instant, index: u32) {
        if let Some(conn) = self.conns.get(index)
            && conn.state.repeats()
        {
            self.deadlines.set(index, Some(now + conn.interval));
        }
    }

    /// Takes an idle connection out of the indices, and out of the table if no consumer has it in hand.
    fn forget(&mut self, index: u32) {
        let Some(conn) = self.conns.get_mut(index) else { return };
        if let Some(hash) = conn.id_hash.take() {
            self.by_id.remove(hash, index);
        }
        if let Some(hash) = conn.qpn_hash.take() {
            self.by_qpn.remove(hash, index);
        }
        if !conn.owned {
            self.telling.remove(index);
            self.fading.remove(index);
            self.conns.free(index);
        }
    }

    /// A slot's communication id: no two slots have the same, and nobody can tell the next.
    fn comm_id(&self, index: u32, generation: u32) -> CommId {
        let id = self.prf.permute(generation << 16 | index & 0xFFFF);
        // 0 names none; the other half of the generations gives another one.
        CommId(if id == 0 { self.prf.permute((generation ^ 0x8000) << 16 | index & 0xFFFF) } else { id })
    }

    /// The connection that goes by `id` here.
    fn find(&self, id: CommId) -> Option<(u32, &Conn)> {
        let index = self.prf.unpermute(id.0) & 0xFFFF;
        let conn = self.conns.get(index)?;
        (conn.local_id == id).then_some((index, conn))
    }

    /// The slot of a handle.
    fn resolve(&self, id: ConnId) -> Result<(u32, &Conn), ConnError> {
        let (index, generation) = (id.0 as u32, (id.0 >> 32) as u32);
        let conn = self.conns.get_generation(index, generation).filter(|conn| conn.owned);
        conn.map(|conn| (index, conn)).ok_or(ConnError::Unknown)
    }
}

fn conn_id(index: u32, generation: u32) -> ConnId {
    ConnId(u64::from(generation) << 32 | u64::from(index))
}

/// Writes the frame of a datagram.
fn emit(
    crc: Crc,
    slot: &mut [u8],
    path: &Path,
    source_port: u16,
    psn: Psn,
    mad: &[u8; Mad::LEN],
) -> Option<usize> {
    let template = Template::new(&Path { source_port, ..*path }, Qpn::GSI)?;
    let headers = Headers {
        opcode: Opcode::UD_SEND_ONLY,
        solicited: false,
        ack_req: false,
        psn,
        ext: Ext::Deth(DethRepr::GSI),
    };
    let mut frame = template.begin(crc, slot, &headers, mad.len()).ok()?;
    frame.write(mad);
    Some(frame.finish())
}
