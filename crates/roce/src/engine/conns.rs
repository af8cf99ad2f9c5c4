//! Connections: what joins connection management, which knows numbers, with queue pairs.
//!
//! [`Cm`] and the table of who belongs to whom share one lock. It is taken before a queue pair's; what a
//! queue pair has to say to its connection waits in a list for [`Engine::settle`].

use alloc::vec::Vec;
use core::net::IpAddr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;

use lock_api::RawMutex;

use super::{Config, Engine, Event, Transmit};
use crate::arc::Arc;
use crate::cm::{self, Cm, EventKind, Ignored, LocalQp, PeerQp};
use crate::conn::{
    AcceptSpec, ConnEvent, ConnId, ConnectSpec, ListenSpec, ListenerId, ReadLimits, RejectReason,
};
use crate::error::ConnError;
use crate::qp::Qp;
use crate::random::Random;
use crate::rc::Peer;
use crate::room;
use crate::time::Instant;
use roce_wire::{Packet, Path, Psn, Template, ack_timeout, ack_timeout_code, flow_source_port};

/// The longest ACK timeout that is kept to, whatever the peer asks for (0 would be for ever): 1.07 s, so that
/// with all eight attempts a peer that has vanished is given up within 10 s.
const MAX_ACK_TIMEOUT: u8 = 18;

/// How long a connection counts as alive after a packet of the peer: less than a host takes to come up again
/// that has lost its connections without a word.
const LATELY: Duration = Duration::from_secs(5);

/// Connection management, and the queue pairs of connections.
pub(super) struct Conns<R: RawMutex> {
    cm: Cm,
    /// By the lower half of a connection's number.
    entries: Vec<Option<Entry<R>>>,
}

/// A connection of the consumer.
struct Entry<R: RawMutex> {
    id: ConnId,
    qp: Option<Arc<Qp<R>>>,
    /// Where this side expects the peer to begin.
    receive_psn: Psn,
    /// Once it is known.
    peer: Option<PeerQp>,
    reads: ReadLimits,
    /// Until the connection is accepted, see [`Engine::set_context`].
    context: Option<u64>,
}

/// What connections have to do, so that nobody takes their lock for nothing.
pub(super) struct Due {
    transmit: AtomicBool,
    events: AtomicBool,
    /// Nanoseconds; `u64::MAX` for never.
    deadline: AtomicU64,
}

impl Due {
    pub(super) const fn new() -> Self {
        Self {
            transmit: AtomicBool::new(false),
            events: AtomicBool::new(false),
            deadline: AtomicU64::new(u64::MAX),
        }
    }
}

impl<R: RawMutex> Conns<R> {
    pub(super) fn new(config: &Config, random: &mut Random) -> Self {
        let mut seed = [0; 32];
        for bytes in seed.chunks_exact_mut(8) {
            bytes.copy_from_slice(&random.next_u64().to_le_bytes());
        }
        let cm = Cm::new(cm::Config {
            max_connections: config.max_connections as usize,
            max_per_peer: config.max_connections_per_peer as usize,
            max_half_open: config.max_half_open as usize,
            max_half_open_per_peer: config.max_half_open_per_peer as usize,
            reads: config.max_reads,
            max_mtu: config.max_mtu,
            ..cm::Config::new(config.ca_guid, seed)
        });
        Self { cm, entries: Vec::new() }
    }

    fn handle(&mut self, now: Instant, packet: &Packet<'_>) -> Result<(), Ignored> {
        let entries = &self.entries;
        let is_heard = |id| {
            let entry = entries.get(place(id)).and_then(Option::as_ref).filter(|entry| entry.id == id);
            let qp = entry.and_then(|entry| entry.qp.as_ref());
            let heard = qp.and_then(|qp| qp.rc.lock().heard());
            heard.is_some_and(|heard| now.duration_since(heard) < LATELY)
        };
        self.cm.handle(now, packet, &is_heard)
    }

    /// Enters a connection; an error when there is no memory.
    fn insert(&mut self, entry: Entry<R>) -> Result<(), ConnError> {
        let index = place(entry.id);
        if index >= self.entries.len() {
            // Numbers are given out densely.
            room::grow_to(&mut self.entries, index.saturating_add(1).next_power_of_two(), || None)?;
        }
        if let Some(room) = self.entries.get_mut(index) {
            *room = Some(entry);
        }
        Ok(())
    }

    fn entry(&mut self, id: ConnId) -> Option<&mut Entry<R>> {
        self.entries.get_mut(place(id))?.as_mut().filter(|entry| entry.id == id)
    }

    fn remove(&mut self, id: ConnId) -> Option<Entry<R>> {
        self.entries.get_mut(place(id))?.take_if(|entry| entry.id == id)
    }
}

const fn place(id: ConnId) -> usize {
    id.0 as u32 as usize
}

impl<R: RawMutex> Engine<R> {
    /// Says which addresses are the adapter's from now on; at first it has none. Connections are made at
    /// these only. Those at addresses that have gone are aborted as soon as time is handled, and their peers
    /// are told once.
    ///
    /// An error when there is no memory for some of the new ones: they are not known then. Those that are
    /// not among `addresses` are gone all the same.
    //= R-CONN-101
    pub fn set_addresses(&self, addresses: &[IpAddr]) -> Result<(), ConnError> {
        self.with_conns(|conns| conns.cm.set_addresses(addresses))
    }

    /// Lets peers ask for connections to a port. Each request becomes a [`ConnEvent::Request`] with a new
    /// connection.
    pub fn listen(&self, spec: &ListenSpec) -> Result<ListenerId, ConnError> {
        self.with_conns(|conns| conns.cm.listen(spec))
    }

    /// Ends a listener. Requests that were told of stay; others are refused.
    pub fn unlisten(&self, listener: ListenerId) -> Result<(), ConnError> {
        self.with_conns(|conns| conns.cm.unlisten(self.now(), listener))
    }

    /// While paused, requests are refused as if nobody listened.
    pub fn pause(&self, listener: ListenerId, paused: bool) -> Result<(), ConnError> {
        self.with_conns(|conns| conns.cm.pause(self.now(), listener, paused))
    }

    /// Asks a peer for a connection of `qp`. Ends with [`ConnEvent::Replied`], [`ConnEvent::Refused`] or
    /// [`ConnEvent::TimedOut`].
    pub fn connect(
        &self,
        now: Instant,
        qp: &Arc<Qp<R>>,
        spec: &ConnectSpec<'_>,
    ) -> Result<ConnId, ConnError> {
        let local = self.local_qp(qp);
        self.with_conns(|conns| {
            let mut rc = qp.rc.lock();
            //= R-QP-75
            if !rc.is_free() {
                return Err(ConnError::QpBusy);
            }
            let id = conns.cm.connect(now, spec, local)?;
            let entry = Entry {
                id,
                qp: Some(qp.clone()),
                receive_psn: local.receive_psn,
                peer: None,
                reads: ReadLimits::default(),
                context: None,
            };
            if let Err(error) = conns.insert(entry) {
                conns.cm.release(now, id)?;
                return Err(error);
            }
            rc.attach(id);
            Ok(id)
        })
    }

    /// Completes a connection that the peer has accepted: from now on requests may be posted.
    pub fn complete(&self, now: Instant, conn: ConnId) -> Result<(), ConnError> {
        self.with_conns(|conns| {
            let qp = conns.entry(conn).and_then(|entry| entry.qp.clone()).ok_or(ConnError::Unknown)?;
            let mut rc = qp.rc.lock();
            if rc.state() != crate::QpState::Rtr {
                return Err(ConnError::State);
            }
            conns.cm.complete(now, conn)?;
            //= R-CONN-33
            rc.established().map_err(|_| ConnError::State)?;
            self.stats.connections.inc();
            Ok(())
        })
    }

    /// Accepts a connection with `qp`, whose receives are used from now on. Ends with
    /// [`ConnEvent::Established`], [`ConnEvent::Refused`], [`ConnEvent::Disconnected`],
    /// [`ConnEvent::Aborted`] or [`ConnEvent::TimedOut`]; requests may be posted once established.
    pub fn accept(
        &self,
        now: Instant,
        conn: ConnId,
        qp: &Arc<Qp<R>>,
        spec: &AcceptSpec<'_>,
    ) -> Result<(), ConnError> {
        let local = self.local_qp(qp);
        self.with_conns(|conns| {
            let peer = conns.entry(conn).and_then(|entry| entry.peer).ok_or(ConnError::Unknown)?;
            let mut rc = qp.rc.lock();
            //= R-QP-75
            if !rc.is_free() {
                return Err(ConnError::QpBusy);
            }
            let reads = conns.cm.accept(now, conn, spec, local)?;
            // Served from the moment the REP is sent, which cannot be before the lock is free.
            let params = self
                .peer_params(conn, qp, &PeerQp { reads, ..peer }, local.receive_psn)
                .ok_or(ConnError::Invalid)?;
            rc.peer_known(params, &self.config).map_err(|_| ConnError::QpBusy)?;
            if let Some(entry) = conns.entry(conn) {
                entry.qp = Some(qp.clone());
                entry.reads = reads;
                entry.context = None;
            }
            Ok(())
        })
    }

    /// Gives a connection that has come in as a request a context of its own, for what happens to it until
    /// [`Engine::accept`] gives it another.
    pub fn set_context(&self, conn: ConnId, context: u64) {
        if let Some(entry) = self.conns.lock().entry(conn) {
            entry.context = Some(context);
        }
    }

    /// Refuses: a request that has come in, or a connection that the peer has accepted and this side has
    /// not completed. Up to [`PrivateData::MAX_REJECT`](crate::PrivateData::MAX_REJECT) bytes. The
    /// connection is then good for [`Engine::release`] only.
    pub fn reject(&self, now: Instant, conn: ConnId, private_data: &[u8]) -> Result<(), ConnError> {
        self.stats.connections_refused.inc();
        self.with_conns(|conns| conns.cm.reject(now, conn, private_data))
    }

    /// Says goodbye, or answers the peer's. Ends with [`ConnEvent::DisconnectDone`], before which the
    /// queue pair is flushed; at once if the peer was first.
    pub fn disconnect(&self, now: Instant, conn: ConnId) -> Result<(), ConnError> {
        self.with_conns(|conns| conns.cm.disconnect(now, conn))
    }

    /// Forgets a connection in whatever state; the peer is told if it has to know, and the queue pair is
    /// flushed unless it was never used. No event of it comes after this.
    pub fn release(&self, now: Instant, conn: ConnId) {
        let entry = self.with_conns(|conns| {
            // Unknown only if it was released before.
            let _ = conns.cm.release(now, conn);
            conns.remove(conn)
        });
        if let Some(qp) = entry.and_then(|entry| entry.qp) {
            self.close(&qp);
        }
    }

    /// The connection of `qp` is over, and knows.
    fn close(&self, qp: &Arc<Qp<R>>) {
        let mut rc = qp.rc.lock();
        //= R-QP-74
        if rc.leave() {
            rc.abandon(&self.env(qp));
        }
    }

    pub(super) fn has_conn_event(&self) -> bool {
        self.conns_due.events.load(Ordering::Acquire)
    }

    pub(super) fn wants_to_transmit_datagrams(&self) -> bool {
        self.conns_due.transmit.load(Ordering::Acquire)
    }

    #[inline(never)]
    pub(super) fn poll_conn_event(&self) -> Option<Event<'_, R>> {
        if !self.conns_due.events.load(Ordering::Acquire) {
            return None;
        }
        loop {
            let mut conns = self.conns.lock();
            let Some(event) = conns.cm.poll_event() else {
                self.conns_due.events.store(false, Ordering::Release);
                return None;
            };
            let event = self.translate(&mut conns, self.now(), &event);
            self.note_due(&conns);
            if event.is_some() {
                return event;
            }
        }
    }

    /// What an event of connection management means for the queue pair, and to the driver.
    #[inline(never)]
    fn translate(&self, conns: &mut Conns<R>, now: Instant, event: &cm::Event) -> Option<Event<'_, R>> {
        let id = event.conn;
        let context = conns.entry(id).and_then(|entry| entry.context).unwrap_or(event.context);
        let told = match &event.kind {
            EventKind::Request { request, peer } => {
                let entry = Entry {
                    id,
                    qp: None,
                    receive_psn: Psn::default(),
                    peer: Some(*peer),
                    reads: ReadLimits::default(),
                    context: None,
                };
                if conns.insert(entry).is_err() {
                    // Nobody was told: the peer is refused.
                    let _ = conns.cm.release(now, id);
                    return None;
                }
                ConnEvent::Request(*request)
            }
            EventKind::Replied { peer, private_data } => {
                let entry = conns.entry(id)?;
                entry.reads = peer.reads;
                let (qp, receive_psn) = (entry.qp.clone()?, entry.receive_psn);
                //= R-CONN-35
                let known = self
                    .peer_params(id, &qp, peer, receive_psn)
                    .is_some_and(|params| qp.rc.lock().peer_known(params, &self.config).is_ok());
                if !known {
                    // The queue pair was flushed meanwhile.
                    let _ = conns.cm.abort(now, id);
                    return None;
                }
                ConnEvent::Replied { reads: peer.reads, private_data: *private_data }
            }
            EventKind::Established => {
                let entry = conns.entry(id)?;
                let (qp, reads) = (entry.qp.clone()?, entry.reads);
                //= R-CONN-34
                if qp.rc.lock().established().is_err() {
                    let _ = conns.cm.abort(now, id);
                    return None;
                }
                self.stats.connections.inc();
                ConnEvent::Established { reads }
            }
            EventKind::Refused { reason, private_data } => {
                self.stats.connections_refused.inc();
                conns.free_qp(id);
                ConnEvent::Refused { reason: RejectReason(reason.0), private_data: *private_data }
            }
            EventKind::TimedOut => {
                conns.free_qp(id);
                ConnEvent::TimedOut
            }
            //= R-QP-72
            //= R-CONN-90
            EventKind::Disconnected => ConnEvent::Disconnected,
            EventKind::Aborted => {
                self.stats.connections_aborted.inc();
                if let Some(qp) = conns.entry(id).and_then(|entry| entry.qp.clone()) {
                    self.close(&qp);
                }
                ConnEvent::Aborted
            }
            EventKind::DisconnectDone { graceful } => {
                //= R-QP-71
                //= R-CONN-83
                //= R-CONN-84
                if let Some(qp) = conns.entry(id).and_then(|entry| entry.qp.clone()) {
                    self.close(&qp);
                }
                ConnEvent::DisconnectDone { graceful: *graceful }
            }
        };
        Some(Event::Conn { id, context, event: told })
    }

    /// A packet has come whose connection waits for the RTU.
    pub(super) fn traffic_seen(&self, now: Instant, conn: ConnId) {
        // Unknown when it was released meanwhile.
        let _ = self.with_conns(|conns| conns.cm.traffic_seen(now, conn));
    }

    /// The queue pair of a connection has failed.
    pub(super) fn abort(&self, conn: ConnId) {
        // Unknown when it was released meanwhile.
        let _ = self.with_conns(|conns| conns.cm.abort(self.now(), conn));
    }

    #[inline(never)]
    pub(super) fn handle_datagram(&self, now: Instant, packet: &Packet<'_>) {
        self.stats.rx_datagrams.inc();
        if let Err(why) = self.with_conns(|conns| conns.handle(now, packet)) {
            self.stats.count_ignored(why);
        }
    }

    #[inline(never)]
    pub(super) fn transmit_datagrams(&self, now: Instant, tx: &mut dyn Transmit, budget: usize) -> usize {
        if !self.conns_due.transmit.load(Ordering::Acquire) {
            return 0;
        }
        self.with_conns(|conns| {
            let mut sent = 0;
            while sent < budget {
                let Some(slot) = tx.slot() else { break };
                let Some(len) = conns.cm.poll_transmit(now, self.config.crc, slot) else { break };
                tx.commit(len);
                self.stats.tx_datagrams.inc();
                sent = sent.saturating_add(1);
            }
            sent
        })
    }

    pub(super) fn conn_deadline(&self) -> Option<Instant> {
        let deadline = self.conns_due.deadline.load(Ordering::Acquire);
        (deadline != u64::MAX).then(|| Instant::from_nanos(deadline))
    }

    #[inline(never)]
    pub(super) fn handle_conn_timeout(&self, now: Instant) {
        self.with_conns(|conns| conns.cm.handle_timeout(now));
    }

    /// The latest time that was told.
    fn now(&self) -> Instant {
        Instant::from_nanos(self.clock.load(Ordering::Relaxed))
    }

    /// Does something under the connections' lock, and notes what they have to do afterwards.
    fn with_conns<T>(&self, act: impl FnOnce(&mut Conns<R>) -> T) -> T {
        let mut conns = self.conns.lock();
        let result = act(&mut conns);
        self.note_due(&conns);
        result
    }

    /// Notes what the connections have to do, with their lock held.
    fn note_due(&self, conns: &Conns<R>) {
        let due = &self.conns_due;
        due.transmit.store(conns.cm.has_transmit(), Ordering::Release);
        due.events.store(true, Ordering::Release);
        let deadline = conns.cm.poll_timeout().map_or(u64::MAX, Instant::as_nanos);
        due.deadline.store(deadline, Ordering::Release);
    }

    /// What the peer is told of a queue pair.
    fn local_qp(&self, qp: &Qp<R>) -> LocalQp {
        let timing = &self.config.timing;
        LocalQp {
            qpn: qp.qpn,
            receive_psn: Psn::new(self.random.lock().next_u32()),
            srq: qp.srq.is_some(),
            retry_count: timing.retries.min(7),
            rnr_retry_count: timing.rnr_retries.min(7),
            ack_timeout: ack_timeout_code(timing.ack_timeout),
        }
    }

    /// What a queue pair has to know of its peer.
    #[inline(never)]
    fn peer_params(&self, conn: ConnId, qp: &Qp<R>, peer: &PeerQp, receive_psn: Psn) -> Option<Peer> {
        let path = Path {
            source_port: flow_source_port(qp.qpn, peer.qpn),
            traffic_class: peer.path.traffic_class & !3 | self.config.congestion.ecn(),
            ..peer.path
        };
        Some(Peer {
            conn,
            template: Template::new(&path, peer.qpn)?,
            local_ip: path.local_ip,
            remote_ip: path.remote_ip,
            mtu: peer.mtu,
            reads: peer.reads,
            send_psn: peer.send_psn,
            receive_psn,
            retries: peer.retry_count,
            rnr_retries: peer.rnr_retry_count,
            //= rocev2 §8
            //= R-QP-90
            ack_timeout: match peer.ack_timeout {
                code @ 1..=MAX_ACK_TIMEOUT => ack_timeout(code),
                _ => ack_timeout(MAX_ACK_TIMEOUT),
            },
        })
    }
}

impl<R: RawMutex> Conns<R> {
    /// A connection that was not made gives its queue pair back.
    fn free_qp(&mut self, id: ConnId) {
        if let Some(entry) = self.entry(id) {
            //= R-QP-74
            entry.qp.take_if(|qp| qp.rc.lock().detach());
        }
    }
}
