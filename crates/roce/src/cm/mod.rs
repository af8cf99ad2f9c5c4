// SPDX-License-Identifier: MIT OR Apache-2.0

//! The connection manager (CM): establishes and releases connections (IBTA Volume 1, chapter 12).
//!
//! Responsible for listeners and for the life of connections from REQ to the end of TIMEWAIT: communication IDs,
//! retries and duplicates of messages, private data, read limits. Knows queue pairs by number only: events carry
//! the parameters that a queue pair needs, and commands report what happens to the queue pair.
//!
//! # Driving it
//! [`Cm`] does no I/O, has no clock, and is protected by one lock of the caller. The calls are of three kinds; drain
//! the outputs after each call that takes `&mut self`:
//! * **in**: [`Cm::handle`] takes MADs to queue pair 1 whose ICRC was checked, [`Cm::handle_timeout`]
//!   the time that [`Cm::poll_timeout`] returned;
//! * **commands**: [`Cm::set_addresses`]; [`Cm::listen`], [`Cm::pause`], [`Cm::unlisten`]; [`Cm::connect`], [`Cm::accept`],
//!   [`Cm::complete`], [`Cm::reject`], [`Cm::disconnect`], [`Cm::abort`], [`Cm::traffic_seen`],
//!   [`Cm::release`];
//! * **out**: [`Cm::poll_transmit`] writes frames, [`Cm::poll_event`] returns events; call both until they
//!   return `None`.
//!
//! A connection has at most one event of each [`CmEventKind`], in the order of the enum, and none after its release.
//! Every connection that a command created or an event named must be released. Released connections are torn
//! down in the background: the DREQ is retried, TIMEWAIT runs.
//!
//! # Bounds
//! [`CmConfig`] bounds connections, listeners, unanswered requests and pending answers, in total and per peer;
//! `bounds` says which connection is evicted. Memory is allocated when a connection is created, may be
//! unavailable, and is kept for the next connection. Each MAD draws at most one answer, of the same length, to
//! the address it came from; answers are not answered, so a spoofed source gains no amplification. A REP may
//! answer a spoofed REQ, so it is retried at most 7 times. Timeouts that a peer requests are capped at minutes.

mod address_change;
mod addresses;
mod answer;
mod attached_qps;
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

pub use attached_qps::AttachedQps;
pub use config::CmConfig;
pub use event::{CmEvent, CmEventKind, Ignored, LocalQp, PeerQp};

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
    conn::{ConnId, ConnRequest, DisconnectOutcome},
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
    config: CmConfig,
    prf: Prf,
    /// PSN of the last packet from queue pair 1.
    psn: Psn,
    addresses: Addresses,
    listeners: Listeners,
    conns: Table<Conn>,
    /// Connections by the peer's GUID and communication ID: finds duplicate REQs.
    by_id: Index,
    /// Connections by the peer's GUID and QPN: finds stale connections.
    by_qpn: Index,
    peers: Peers,
    deadlines: Deadlines,
    /// Connections that peers began and that are not established, the oldest first.
    half_open: Queue,
    /// Released connections in TIMEWAIT, the oldest first: their slots can be reused.
    reclaimable: Queue,
    /// Connections with a message to send.
    outbox: Queue,
    /// Connections with an event for the consumer.
    pending_events: Queue,
    /// Answers that belong to no connection.
    answers: Fifo<Answer>,
}

/// Maximum retries of a DREQ. When they are used up, the consumer of a vanished peer gets the receives of its
/// queue pair back: within 10 s by default.
const MAX_DREQ_RETRIES: u8 = 7;

/// Deadlines that one call handles. Bounds the duration of the call.
const TIMEOUT_BUDGET: usize = 64;

impl Cm {
    /// Creates a connection manager without addresses, listeners and connections. Allocates nothing.
    #[must_use]
    pub fn new(config: CmConfig) -> Self {
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
            reclaimable: Queue::new(),
            outbox: Queue::new(),
            pending_events: Queue::new(),
            answers: Fifo::new(),
        }
    }

    /// Number of connections, including those in TIMEWAIT.
    #[cfg(test)]
    fn connections(&self) -> usize {
        self.conns.len()
    }

    /// Returns `true` if [`Cm::poll_transmit`] has a frame to send.
    #[must_use]
    pub fn has_transmit(&self) -> bool {
        !self.outbox.is_empty() || !self.answers.is_empty()
    }

    /// Writes the next frame to the start of `slot` and returns its length. Returns `None` if there is nothing to
    /// send or `slot` is too small (384 bytes suffice for any frame).
    pub fn poll_transmit(&mut self, now: Instant, crc: Crc, slot: &mut [u8]) -> Option<usize> {
        if let Some(answer) = self.answers.pop() {
            return self.emit_answer(crc, slot, &answer);
        }
        let index = self.outbox.pop()?;
        // The response timeout begins when the message is sent.
        self.arm(now, index);
        let psn = self.next_psn();
        let conn = self.conns.get(index)?;
        emit(crc, slot, &conn.path, self.config.source_port, psn, &conn.message)
    }

    /// Queues an answer.
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

    /// Returns the next event, or `None` if there is none.
    pub fn poll_event(&mut self) -> Option<CmEvent> {
        let index = self.pending_events.pop()?;
        let conn = self.conns.get_mut(index)?;
        let next = conn.pending.iter().next()?;
        conn.pending -= next;
        if !conn.pending.is_empty() {
            self.pending_events.push(index);
        }
        let mut context = conn.context;
        let kind = match next {
            Pending::REQUEST => {
                // From now on the consumer owns the connection.
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
                CmEventKind::Request { request, peer: conn.peer }
            }
            Pending::REPLIED => CmEventKind::Replied { peer: conn.peer, private_data: conn.data },
            Pending::ESTABLISHED => CmEventKind::Established,
            Pending::REFUSED => CmEventKind::Refused { reason: conn.reason, private_data: conn.data },
            Pending::DISCONNECTED => CmEventKind::Disconnected,
            Pending::ABORTED => CmEventKind::Aborted,
            Pending::TIMED_OUT => CmEventKind::TimedOut,
            _ => CmEventKind::DisconnectDone(conn.disconnect_outcome),
        };
        Some(CmEvent { conn: conn_id(index, conn.generation), context, kind })
    }

    /// Returns when [`Cm::handle_timeout`] is to be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.addresses.is_sweeping() {
            return Some(Instant::default());
        }
        self.deadlines.first().map(|(deadline, _)| deadline)
    }

    /// Handles deadlines up to `now`, a bounded number per call: call [`Cm::poll_timeout`] afterwards.
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
                self.disconnect_done(index, DisconnectOutcome::TimedOut)
            } else {
                Pending::TIMED_OUT
            };
            self.advance_and_notify(now, index, Input::GiveUp, what);
        }
    }

    /// Ends a DREQ exchange and returns the event to report, if the consumer requested the disconnect.
    fn disconnect_done(&mut self, index: u32, outcome: DisconnectOutcome) -> Pending {
        match self.conns.get_mut(index) {
            Some(conn) if conn.disconnect_progress == DisconnectProgress::Requested => {
                conn.disconnect_progress = DisconnectProgress::Reported;
                conn.disconnect_outcome = outcome;
                Pending::DISCONNECT_DONE
            }
            _ => Pending::empty(),
        }
    }

    /// Makes the transition of `input`. Returns `false` and changes nothing if the state has none.
    fn advance(&mut self, now: Instant, index: u32, input: Input) -> bool {
        let Some(conn) = self.conns.get_mut(index) else { return false };
        let Ok(state) = conn.state.on(input) else { return false };
        if conn.state == State::ReqReceived
            && let Some(listener) = conn.listener
        {
            self.listeners.request_dequeued(listener);
            if !conn.owned {
                // The request was not reported to the consumer yet, and no longer has to be.
                conn.pending = Pending::empty();
                self.pending_events.remove(index);
            }
        }
        let (before, time_wait) = (conn.state, conn.time_wait);
        conn.state = state;
        conn.was_established |= state == State::Established;
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

    /// [`Cm::advance`], and reports `what` to the consumer.
    fn advance_and_notify(&mut self, now: Instant, index: u32, input: Input, what: Pending) {
        let Some(conn) = self.conns.get_mut(index) else { return };
        if conn.state.on(input).is_ok() {
            conn.notify(what);
            self.queue_event(index);
            self.advance(now, index, input);
        }
    }

    /// Queues a connection for [`Cm::poll_event`] if it has a pending event.
    fn queue_event(&mut self, index: u32) {
        if self.conns.get(index).is_some_and(|conn| !conn.pending.is_empty()) {
            self.pending_events.push(index);
        }
    }

    /// [`Cm::advance`], and sends `message` to the peer.
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
                    // The peer chose the interval of the REP; this side chooses the interval of its DREQ.
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

    /// Queues a connection's message for sending, the first time or as a retry.
    fn queue_message(&mut self, now: Instant, index: u32) {
        self.outbox.push(index);
        // The retry timer also runs if no transmit slot becomes free.
        self.arm(now, index);
    }

    /// Starts the retry timer, in states that retry.
    fn arm(&mut self, now: Instant, index: u32) {
        if let Some(conn) = self.conns.get(index)
            && conn.state.repeats()
        {
            self.deadlines.set(index, Some(now + conn.interval));
        }
    }

    /// Removes an idle connection from the indices, and from the table if the consumer has released it.
    fn forget(&mut self, index: u32) {
        let Some(conn) = self.conns.get_mut(index) else { return };
        if let Some(hash) = conn.id_hash.take() {
            self.by_id.remove(hash, index);
        }
        if let Some(hash) = conn.qpn_hash.take() {
            self.by_qpn.remove(hash, index);
        }
        if !conn.owned {
            self.pending_events.remove(index);
            self.reclaimable.remove(index);
            self.conns.free(index);
        }
    }

    /// Returns the communication ID of a slot: unique among slots, and unpredictable for peers.
    fn comm_id(&self, index: u32, generation: u32) -> CommId {
        let id = self.prf.permute(generation << 16 | index & 0xFFFF);
        // 0 is not a valid ID. Flipping the top bit of the generation gives another one.
        CommId(if id == 0 { self.prf.permute((generation ^ 0x8000) << 16 | index & 0xFFFF) } else { id })
    }

    /// Finds the connection with the local communication ID `id`.
    fn find(&self, id: CommId) -> Option<(u32, &Conn)> {
        let index = self.prf.unpermute(id.0) & 0xFFFF;
        let conn = self.conns.get(index)?;
        (conn.local_id == id).then_some((index, conn))
    }

    /// Finds the slot of a handle.
    fn resolve(&self, id: ConnId) -> Result<(u32, &Conn), ConnError> {
        let (index, generation) = (id.0 as u32, (id.0 >> 32) as u32);
        let conn = self.conns.get_generation(index, generation).filter(|conn| conn.owned);
        conn.map(|conn| (index, conn)).ok_or(ConnError::Unknown)
    }
}

fn conn_id(index: u32, generation: u32) -> ConnId {
    ConnId(u64::from(generation) << 32 | u64::from(index))
}

/// Writes the frame of a MAD.
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
