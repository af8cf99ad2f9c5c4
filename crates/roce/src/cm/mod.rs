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
//!
//! # Files
//! | file | content |
//! | --- | --- |
//! | `command` | commands of the consumer |
//! | `resolution` | the queue pair of a datagram service: SIDR |
//! | `receive`, `receive_request` | handlers of messages, REQ apart; `incoming` is what they share, `answer` what needs no connection |
//! | `path_mtu` | another path MTU after a refusal |
//! | `bounds` | admission of a connection, eviction |
//! | `conn_set` | transitions of a connection and what follows from them; `messages` to its peer |
//! | `slots` | connections by slot: `table`, `index`, `peers`, `queue`, `deadlines` |
//! | `conn`, `state` | one connection, its states |
//! | `addresses`, `listener` | local addresses, listeners |
//! | `config`, `event` | limits; events and parameters of queue pairs |
//! | `attached_qps` | queries about the queue pair of a connection |
//! | `sender`, `prf` | frames of messages; identifiers that peers cannot predict |

mod addresses;
mod answer;
mod attached_qps;
mod bounds;
mod command;
mod config;
mod conn;
mod conn_set;
mod deadlines;
mod event;
mod incoming;
mod index;
mod listener;
mod messages;
mod path_mtu;
mod peers;
mod prf;
mod queue;
mod receive;
mod receive_request;
mod resolution;
mod sender;
mod slots;
mod state;
mod table;
#[cfg(test)]
mod tests;

pub use attached_qps::AttachedQps;
pub use config::CmConfig;
pub use event::{CmEvent, CmEventKind, LocalQp, PeerQp};

use core::net::IpAddr;

use self::{
    addresses::Addresses,
    answer::{Answer, Answers},
    conn::Pending,
    conn_set::ConnSet,
    incoming::{Incoming, Origin},
    sender::Sender,
};
use crate::{conn::ConnRequest, error::ConnError, ignored::Ignored, random::Random, time::Instant};
use roce_wire::icrc::Crc;
use roce_wire::{
    Attribute, Deth, Mad, Packet, Psn, Qpn,
    cm::{CmMessage, SidrRep, SidrRepRepr, SidrReq, SidrReqRepr},
};

/// The connection manager.
pub struct Cm {
    conns: ConnSet,
    addresses: Addresses,
    /// Answers that belong to no connection.
    answers: Answers,
    sender: Sender,
}

/// Deadlines that one call handles. Bounds the duration of the call.
const TIMEOUT_BUDGET: usize = 64;

impl Cm {
    /// Creates a connection manager without addresses, listeners and connections. Allocates nothing.
    #[must_use]
    pub fn new(config: CmConfig) -> Self {
        let mut random = Random::new(config.seed);
        let sender = Sender::new(Psn::new(random.next_u32()), config.source_port);
        Self {
            conns: ConnSet::new(config, random),
            addresses: Addresses::default(),
            answers: Answers::new(),
            sender,
        }
    }

    /// Returns the number of connections, including those in TIMEWAIT.
    #[cfg(test)]
    fn connections(&self) -> usize {
        self.conns.slots.len()
    }

    /// Replaces the local addresses. [`Cm::handle_timeout`] aborts connections at removed addresses, a bounded
    /// number at a time; each peer is notified once, without retries, and its answer is ignored.
    ///
    /// # Errors
    /// [`ConnError::OutOfMemory`], [`ConnError::TooMany`]: some of the new addresses were not added; all removed
    /// addresses are removed.
    //= R-CONN-101
    pub fn set_addresses(&mut self, addresses: &[IpAddr]) -> Result<(), ConnError> {
        self.addresses.replace(addresses)
    }

    /// Returns whether `ip` is a local address.
    pub fn is_local(&self, ip: IpAddr) -> bool {
        self.addresses.contains(ip)
    }

    /// Handles a packet to queue pair 1 whose ICRC is valid. An established connection that the peer seems to have lost,
    /// because a message names the same queue pair of the peer, is challenged.
    ///
    /// # Errors
    /// The reason why the packet had no effect on a connection, for statistics.
    pub fn handle(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        queue_pairs: &dyn AttachedQps,
    ) -> Result<(), Ignored> {
        addresses::check(&self.addresses, packet, self.conns.config.loopback)?;
        let deth = packet.deth().ok_or(Ignored::NotCm)?;
        //= rocev2 §11
        if packet.bth().dest_qp() != Qpn::GSI
            || deth.source_qp() != Qpn::GSI
            || deth.q_key() != Deth::Q_KEY_GSI
            || packet.payload().len() != Mad::LEN
        {
            return Err(Ignored::NotCm);
        }
        let mad = Mad::new_checked(packet.payload()).map_err(|_| Ignored::NotCm)?;
        let header = mad.header();
        if !header.is_cm() {
            return Err(Ignored::NotCm);
        }
        let mut incoming = Incoming {
            origin: Origin { now, packet, transaction: header.transaction_id() },
            queue_pairs,
            conns: &mut self.conns,
            answers: &mut self.answers,
        };
        if header.attribute() == Attribute::CM_SIDR_REQ {
            return incoming.receive_sidr_req(&SidrReqRepr::parse(&SidrReq::new(mad.body())));
        }
        if header.attribute() == Attribute::CM_SIDR_REP {
            return incoming.receive_sidr_rep(&SidrRepRepr::parse(&SidrRep::new(mad.body())));
        }
        match CmMessage::parse(&mad).ok_or(Ignored::Unsupported)? {
            CmMessage::Req(req) => incoming.receive_req(&req),
            CmMessage::Rep(rep) => incoming.receive_rep(&rep),
            CmMessage::Rtu(rtu) => incoming.receive_rtu(&rtu),
            CmMessage::Mra(mra) => incoming.receive_mra(&mra),
            CmMessage::Rej(rej) => incoming.receive_rej(&rej),
            CmMessage::Dreq(dreq) => incoming.receive_dreq(&dreq),
            CmMessage::Drep(drep) => incoming.receive_drep(&drep),
        }
    }

    /// Returns `true` if [`Cm::poll_transmit`] has a frame to send.
    #[must_use]
    pub fn has_transmit(&self) -> bool {
        !self.conns.slots.outbox.is_empty() || !self.answers.is_empty()
    }

    /// Writes the next frame to the start of `slot` and returns its length. Returns `None` if there is nothing to
    /// send or `slot` is too small (384 bytes suffice for any frame).
    pub fn poll_transmit(&mut self, now: Instant, crc: Crc, slot: &mut [u8]) -> Option<usize> {
        if let Some(answer) = self.answers.pop() {
            return self.emit_answer(crc, slot, &answer);
        }
        let slots = &mut self.conns.slots;
        let index = slots.outbox.pop()?;
        // The response timeout begins when the message is sent.
        slots.arm(now, index);
        let conn = slots.get_mut(index)?;
        conn.record_transmission(now);
        self.sender.emit(crc, slot, &conn.path, &conn.message)
    }

    /// Writes the frame of an answer.
    #[inline(never)]
    fn emit_answer(&mut self, crc: Crc, slot: &mut [u8], answer: &Answer) -> Option<usize> {
        let mut mad = [0; Mad::LEN];
        answer.emit(self.conns.config.service_timeout, &mut mad);
        self.sender.emit(crc, slot, &answer.path, &mad)
    }

    /// Returns the next event, or `None` if there is none. Not inlined, because kernel stacks are small.
    #[inline(never)]
    pub fn poll_event(&mut self) -> Option<CmEvent> {
        let slots = &mut self.conns.slots;
        let index = slots.pending_events.pop()?;
        let id = slots.id_of(index);
        let conn = slots.get_mut(index)?;
        let next = conn.pending.iter().next()?;
        conn.pending -= next;
        let mut context = conn.context;
        let kind = match next {
            Pending::REQUEST => {
                // From now on the consumer owns the connection.
                conn.owned = true;
                context = conn.listener.and_then(|id| self.conns.listeners.context(id)).unwrap_or(0);
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
        slots.queue_event(index);
        Some(CmEvent { conn: id, context, kind })
    }

    /// Returns when [`Cm::handle_timeout`] is to be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.addresses.is_sweeping() {
            return Some(Instant::default());
        }
        self.conns.slots.deadlines.first().map(|(deadline, _)| deadline)
    }

    /// Handles deadlines up to `now`, a bounded number per call: call [`Cm::poll_timeout`] afterwards.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.sweep(now);
        for _ in 0..TIMEOUT_BUDGET {
            match self.conns.slots.deadlines.first() {
                Some((deadline, index)) if deadline <= now => self.conns.expire(now, index),
                _ => return,
            }
        }
    }

    /// Continues the search for connections at removed addresses.
    fn sweep(&mut self, now: Instant) {
        let Some(slots) = self.addresses.next_to_sweep(self.conns.slots.capacity()) else { return };
        for index in slots {
            let conn = self.conns.slots.get(index);
            if conn.is_some_and(|conn| !self.addresses.contains(conn.path.local_ip)) {
                self.conns.abort_without_address(now, index);
            }
        }
    }
}
