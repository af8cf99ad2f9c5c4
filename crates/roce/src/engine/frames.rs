//! Frames in and out, and the passing of time.

use core::sync::atomic::Ordering;

use lock_api::RawMutex;

use super::Engine;
use crate::arc::Arc;
use crate::conn::ConnId;
use crate::cq::Cq;
use crate::qp::Qp;
use crate::rc::{Env, Rc};
use crate::time::Instant;
use crate::work::{Completion, Status};
use roce_wire::{self, Mad, PKEY_DEFAULT, Packet, ParseError, Qpn};

/// A queue of frames to be sent, with its lock held by the caller.
pub trait Transmit {
    /// The next free slot; the same one until [`Transmit::commit`]. `None` when the queue is full. Slots
    /// are at least as long as the longest frame: path MTU and 150 bytes.
    fn slot(&mut self) -> Option<&mut [u8]>;

    /// The slot holds a frame of `len` bytes, from its Ethernet header on, without frame check sequence.
    fn commit(&mut self, len: usize);
}

/// Whose a frame was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Taken in.
    Consumed,
    /// Not to the RoCEv2 port: someone else's.
    NotOurs,
    /// To the RoCEv2 port, and of no use.
    Dropped(Reason),
}

/// Why a frame was dropped. Nothing has changed by it but a counter; only of a request packet that came before
/// its turn ([`Reason::Sequence`]) the peer is told, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its headers do not fit together, or its ICRC is wrong.
    Malformed(roce_wire::DropReason),
    /// To connection management, and not as long as all of its datagrams are.
    Datagram,
    /// There is no such queue pair.
    NoQp,
    /// It is not from the queue pair's peer.
    Address,
    /// Another partition.
    PKey,
    /// The queue pair takes no packets in its state.
    State,
    /// An opcode that has no business here.
    Opcode,
    /// A sequence number or length that does not fit.
    Sequence,
}

/// Frames of one queue pair before the next one has its turn.
const TURN: usize = 32;

/// Queue pairs whose deadlines one call handles: bounds the time it takes.
const TIMEOUT_BUDGET: usize = 256;

impl<R: RawMutex> Engine<R> {
    /// Takes a received frame in, from its Ethernet header on; padding at the end does not matter. The
    /// frame is not used after the call.
    pub fn handle_frame(&self, now: Instant, frame: &[u8]) -> Verdict {
        let verdict = match Packet::parse(frame) {
            Ok(packet) => match self.handle_packet(now, &packet) {
                Ok(()) => {
                    self.stats.rx_frames.inc();
                    self.stats.rx_bytes.add(packet.payload().len() as u64);
                    return Verdict::Consumed;
                }
                Err(reason) => Verdict::Dropped(reason),
            },
            Err(ParseError::NotRoce) => return Verdict::NotOurs,
            Err(ParseError::Malformed(reason)) => Verdict::Dropped(Reason::Malformed(reason)),
        };
        if let Verdict::Dropped(reason) = verdict {
            self.stats.count_drop(reason);
        }
        verdict
    }

    fn handle_packet(&self, now: Instant, packet: &Packet<'_>) -> Result<(), Reason> {
        let bth = packet.bth();
        //= rocev2 §13
        if bth.p_key() & PKEY_DEFAULT >> 1 != PKEY_DEFAULT >> 1 {
            return Err(Reason::PKey);
        }
        if bth.dest_qp() == Qpn::GSI {
            // Anybody can send to this queue pair: the ICRC of no more than a datagram is computed for him.
            if packet.payload().len() != Mad::LEN {
                return Err(Reason::Datagram);
            }
            self.check_icrc(packet)?;
            self.handle_datagram(now, packet);
            return Ok(());
        }
        let qp = self.qps.get(bth.dest_qp().value()).ok_or(Reason::NoQp)?;
        // Before anything is decided by the packet, or copied from it.
        self.check_icrc(packet)?;
        let env = Env { engine: self, qp: &qp, now };
        let mut rc = qp.rc.lock();
        let handled = rc.handle(&env, packet);
        // What is not from the peer has no effect, not even on what waits to be sent.
        if !matches!(handled, Err(Reason::Address | Reason::State | Reason::Opcode)) {
            self.after(&mut rc, &qp, || qp.to_arc());
        }
        drop(rc);
        // Outside of the lock: connection management comes before queue pairs.
        let outcome = handled?;
        if let Some(conn) = outcome.established {
            drop(qp);
            self.traffic_seen(now, conn);
        }
        Ok(())
    }

    fn check_icrc(&self, packet: &Packet<'_>) -> Result<(), Reason> {
        //= rocev2 §2
        let valid = packet.icrc_valid(self.config.crc);
        valid.then_some(()).ok_or(Reason::Malformed(roce_wire::DropReason::Icrc))
    }

    /// Writes up to `budget` frames into slots of `tx`; how many it were. Fewer than `budget` means that
    /// there is nothing more to send, or that the slots have run out.
    pub fn poll_transmit(&self, now: Instant, tx: &mut dyn Transmit, budget: usize) -> usize {
        self.clock.fetch_max(now.as_nanos(), Ordering::Relaxed);
        self.settle();
        let mut sent = self.transmit_datagrams(now, tx, budget);
        while sent < budget {
            let Some(qp) = self.ready.lock().pop() else { break };
            // From here on whoever has something more for it puts it back into the list.
            qp.ready.store(false, Ordering::Release);
            let env = Env { engine: self, qp: &qp, now };
            let mut rc = qp.rc.lock();
            let mut full = false;
            let turn = TURN.min(budget.saturating_sub(sent));
            let mut more = true;
            for _ in 0..turn {
                let Some(slot) = tx.slot() else {
                    full = true;
                    break;
                };
                let Some(len) = rc.transmit(&env, slot) else {
                    more = false;
                    break;
                };
                tx.commit(len);
                sent = sent.saturating_add(1);
            }
            rc.rearm(qp.index, |index, at| self.wheel.lock().schedule(index, at));
            if more && rc.wants_to_transmit() {
                self.make_ready(&qp, || qp.clone());
            }
            if full {
                break;
            }
        }
        sent
    }

    /// Whether [`Engine::poll_transmit`] may have something. Cheap, and right unless other threads are at
    /// work.
    pub fn wants_transmit(&self) -> bool {
        self.wants_to_transmit_datagrams()
            || self.is_broken.load(Ordering::Acquire)
            || !self.ready.lock().is_empty()
    }

    /// When to call [`Engine::handle_timeout`]: not later than the first deadline, possibly earlier.
    /// `None` as long as nothing is waited for. To be asked again after any other call.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let transport = self.wheel.lock().next();
        match (transport, self.conn_deadline()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Handles deadlines that have passed: a bounded number of them, [`Engine::poll_timeout`] tells whether
    /// there are more.
    pub fn handle_timeout(&self, now: Instant) {
        self.clock.fetch_max(now.as_nanos(), Ordering::Relaxed);
        for _ in 0..TIMEOUT_BUDGET {
            let Some(index) = self.wheel.lock().expire(now) else { break };
            let Some(qp) = self.qps.at(index) else { continue };
            let env = Env { engine: self, qp: &qp, now };
            let mut rc = qp.rc.lock();
            rc.handle_timeout(&env);
            self.after(&mut rc, &qp, || qp.to_arc());
        }
        if self.conn_deadline().is_some_and(|deadline| deadline <= now) {
            self.handle_conn_timeout(now);
        }
    }

    /// What every step of a queue pair ends with: its timer, and its place in the list.
    fn after(&self, rc: &mut Rc, qp: &Qp<R>, arc: impl FnOnce() -> Arc<Qp<R>>) {
        rc.rearm(qp.index, |index, at| self.wheel.lock().schedule(index, at));
        if rc.wants_to_transmit() {
            self.make_ready(qp, arc);
        }
    }

    /// Puts a queue pair into the list of those with something to send, unless it stands there.
    pub(super) fn make_ready(&self, qp: &Qp<R>, arc: impl FnOnce() -> Arc<Qp<R>>) {
        if !qp.ready.swap(true, Ordering::AcqRel) {
            self.ready.lock().push(arc());
        }
    }

    /// A request has ended.
    pub(crate) fn push_completion(&self, cq: &Arc<Cq<R>>, completion: Completion, solicited: bool) {
        self.stats.completions.inc();
        match completion.status {
            Status::Success => {}
            Status::Flushed => self.stats.completions_flushed.inc(),
            _ => self.stats.completions_failed.inc(),
        }
        let pushed = cq.push(completion, solicited);
        self.follow_cq(cq, pushed.follow);
        if pushed.faulted {
            self.stats.cq_overflows.inc();
            self.cq_fault.store(true, Ordering::Release);
        }
    }

    /// The connection of a queue pair in error has to go.
    pub(crate) fn report_broken(&self, conn: ConnId) {
        self.broken.lock().push(conn);
        self.is_broken.store(true, Ordering::Release);
    }

    /// Does what could not be done under the lock under which it was found to be necessary.
    pub(super) fn settle(&self) {
        if self.cq_fault.load(Ordering::Relaxed) && self.cq_fault.swap(false, Ordering::AcqRel) {
            // Rare, and the end of those queue pairs: not worth a list per completion queue.
            //= R-CQ-32
            //= R-CQ-37
            self.qps.for_each(|qp| {
                if qp.send_cq.fault().is_some() || qp.recv_cq.fault().is_some() {
                    self.flush(qp);
                }
            });
        }
        if self.is_broken.load(Ordering::Relaxed) && self.is_broken.swap(false, Ordering::AcqRel) {
            loop {
                let Some(conn) = self.broken.lock().pop() else { break };
                self.abort(conn);
            }
        }
    }
}
