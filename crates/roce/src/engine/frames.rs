//! Received frames, frames to transmit, and timeouts.

use core::sync::atomic::Ordering;

use lock_api::RawMutex;

use super::Engine;
use super::transmit::Transmit;
use crate::drop_reason::DropReason;
use crate::qp::Qp;
use crate::time::Instant;
use crate::transport::env::Env;
use crate::transport::rc_transport::RcTransport;
use fallible::Arc;
use roce_wire::{Mad, PKEY_DEFAULT, Packet, ParseError, Qpn};

/// Whose a frame was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Taken in.
    Consumed,
    /// Not to the RoCEv2 port: someone else's.
    NotOurs,
    /// To the RoCEv2 port, and of no use.
    Dropped(DropReason),
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
                    self.shared.stats.rx_frames.inc();
                    self.shared.stats.rx_bytes.add(packet.payload().len() as u64);
                    return Verdict::Consumed;
                }
                Err(reason) => Verdict::Dropped(reason),
            },
            Err(ParseError::NotRoce) => return Verdict::NotOurs,
            Err(ParseError::Malformed(reason)) => Verdict::Dropped(DropReason::Malformed(reason)),
        };
        if let Verdict::Dropped(reason) = verdict {
            self.shared.stats.count_drop(reason);
        }
        verdict
    }

    fn handle_packet(&self, now: Instant, packet: &Packet<'_>) -> Result<(), DropReason> {
        let bth = packet.bth();
        //= rocev2 §13
        if bth.p_key() & PKEY_DEFAULT >> 1 != PKEY_DEFAULT >> 1 {
            return Err(DropReason::PKey);
        }
        if bth.dest_qp() == Qpn::GSI {
            // Anybody can send to this queue pair: the ICRC of no more than a datagram is computed for him.
            if packet.payload().len() != Mad::LEN {
                return Err(DropReason::Datagram);
            }
            self.check_icrc(packet)?;
            self.handle_datagram(now, packet);
            return Ok(());
        }
        let qp = self.qps.get(bth.dest_qp().value()).ok_or(DropReason::NoQp)?;
        // Before anything is decided by the packet, or copied from it.
        self.check_icrc(packet)?;
        let env = Env { shared: &self.shared, qp: &qp.attributes, now };
        let mut transport = qp.transport.lock();
        let handled = transport.handle(&env, packet);
        // What is not from the peer has no effect, not even on what waits to be sent.
        if !matches!(handled, Err(DropReason::Address | DropReason::State | DropReason::Opcode)) {
            self.after(&mut transport, &qp, || qp.to_arc());
        }
        drop(transport);
        // Outside of the lock: connection management comes before queue pairs.
        let outcome = handled?;
        if let Some(conn) = outcome.established {
            drop(qp);
            self.traffic_seen(now, conn);
        }
        Ok(())
    }

    fn check_icrc(&self, packet: &Packet<'_>) -> Result<(), DropReason> {
        //= rocev2 §2
        let valid = packet.icrc_valid(self.shared.config.crc);
        valid.then_some(()).ok_or(DropReason::Malformed(roce_wire::DropReason::Icrc))
    }

    /// Writes up to `budget` frames into slots of `tx`; how many it were. Fewer than `budget` means that
    /// there is nothing more to send, or that the slots have run out.
    pub fn poll_transmit(&self, now: Instant, tx: &mut dyn Transmit, budget: usize) -> usize {
        self.clock.fetch_max(now.as_nanos(), Ordering::Relaxed);
        self.process_failures();
        let mut sent = self.transmit_datagrams(now, tx, budget);
        while sent < budget {
            let Some(qp) = self.ready.lock().pop() else { break };
            // From here on whoever has something more for it puts it back into the list.
            qp.ready.store(false, Ordering::Release);
            let env = Env { shared: &self.shared, qp: &qp.attributes, now };
            let mut transport = qp.transport.lock();
            let mut full = false;
            let turn = TURN.min(budget.saturating_sub(sent));
            let mut more = true;
            for _ in 0..turn {
                let Some(slot) = tx.slot() else {
                    full = true;
                    break;
                };
                let Some(len) = transport.transmit(&env, slot) else {
                    more = false;
                    break;
                };
                tx.commit(len);
                sent = sent.saturating_add(1);
            }
            transport.rearm(qp.attributes.index, |index, at| self.wheel.lock().schedule(index, at));
            if more && transport.wants_to_transmit() {
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
        self.connections.has_transmit()
            || self.shared.has_failed_connections.load(Ordering::Acquire)
            || !self.ready.lock().is_empty()
    }

    /// When to call [`Engine::handle_timeout`]: not later than the first deadline, possibly earlier.
    /// `None` as long as nothing is waited for. To be asked again after any other call.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let transport = self.wheel.lock().next();
        match (transport, self.connections.deadline()) {
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
            let env = Env { shared: &self.shared, qp: &qp.attributes, now };
            let mut transport = qp.transport.lock();
            transport.handle_timeout(&env);
            self.after(&mut transport, &qp, || qp.to_arc());
        }
        if self.connections.deadline().is_some_and(|deadline| deadline <= now) {
            self.handle_conn_timeout(now);
        }
    }

    /// What every step of a queue pair ends with: its timer, and its place in the list.
    fn after(&self, transport: &mut RcTransport, qp: &Qp<R>, arc: impl FnOnce() -> Arc<Qp<R>>) {
        transport.rearm(qp.attributes.index, |index, at| self.wheel.lock().schedule(index, at));
        if transport.wants_to_transmit() {
            self.make_ready(qp, arc);
        }
    }
}
