// SPDX-License-Identifier: MIT OR Apache-2.0

//! Received frames, frames to transmit, and timeouts.

use core::sync::atomic::Ordering;

use lock_api::RawMutex;

use super::Engine;
use super::transmit::Transmit;
use crate::drop_reason::DropReason;
use crate::qp::Qp;
use crate::time::Instant;
use crate::trace::TraceEvent;
use crate::transport::env::Env;
use crate::transport::rc_transport::RcTransport;
use fallible::Arc;
use roce_wire::{Mad, PKEY_DEFAULT, Packet, ParseError, Qpn};

/// Outcome of processing a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Processed.
    Consumed,
    /// Not to the RoCEv2 UDP port of a local address: for the network stack.
    NotOurs,
    /// To the RoCEv2 UDP port of a local address, and dropped.
    Dropped(DropReason),
}

/// Frames of one queue pair before the next one transmits.
const TURN: usize = 32;

/// Deadlines that one call handles: bounds its duration.
const TIMEOUT_BUDGET: usize = 256;

impl<R: RawMutex> Engine<R> {
    /// Processes a received frame, from its Ethernet header on, with or without padding. The frame is not used
    /// after the call. IRQL == `DISPATCH_LEVEL`.
    pub fn handle_frame(&self, now: Instant, frame: &[u8]) -> Verdict {
        let reason = match Packet::parse(frame) {
            Ok(packet) => match self.handle_packet(now, &packet) {
                Ok(()) => {
                    self.shared.stats.rx_frames.inc();
                    self.shared.stats.rx_bytes.add(packet.payload().len() as u64);
                    return Verdict::Consumed;
                }
                Err(reason) => reason,
            },
            Err(ParseError::NotRoce) => return Verdict::NotOurs,
            Err(ParseError::Malformed(reason)) => DropReason::Malformed(reason),
        };
        self.dropped(frame, reason)
    }

    /// Counts a frame that had no effect, unless it is to another host. Such a frame is found here only: a queue pair takes no
    /// packet to another address than its own, and connection management none that is not to a local one.
    #[inline(never)]
    fn dropped(&self, frame: &[u8], reason: DropReason) -> Verdict {
        if roce_wire::destination(frame).is_some_and(|ip| !self.is_local(ip)) {
            return Verdict::NotOurs;
        }
        self.shared.stats.count_drop(reason);
        if self.shared.config.trace.is_some() {
            let bth = Packet::parse(frame).ok().map(|packet| packet.bth());
            let (qpn, psn) = bth.map_or_else(Default::default, |bth| (bth.dest_qp(), bth.psn()));
            self.shared.trace(qpn, psn, TraceEvent::Dropped(reason));
        }
        Verdict::Dropped(reason)
    }

    fn handle_packet(&self, now: Instant, packet: &Packet<'_>) -> Result<(), DropReason> {
        let bth = packet.bth();
        //= rocev2 §13
        if bth.p_key() & PKEY_DEFAULT >> 1 != PKEY_DEFAULT >> 1 {
            return Err(DropReason::PKey);
        }
        if bth.dest_qp() == Qpn::GSI {
            // Any host can send to QP 1: only frames of a datagram's length get their ICRC computed.
            if packet.payload().len() != Mad::LEN {
                return Err(DropReason::Datagram);
            }
            self.check_icrc(packet)?;
            return self.handle_datagram(now, packet);
        }
        let qp = self.qps.get(bth.dest_qp().value()).ok_or(DropReason::NoQp)?;
        // Before anything is decided by the packet, or copied from it.
        self.check_icrc(packet)?;
        let env = Env { shared: &self.shared, qp: &qp.attributes, now };
        let mut transport = qp.transport.lock();
        let handled = transport.handle(&env, packet);
        // A packet that is not from the peer has no effect, not even on pending frames.
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

    /// Writes up to `budget` frames into slots of `tx`, and returns their number. Fewer than `budget` means that
    /// there is nothing more to send, or no free slot.
    pub fn poll_transmit(&self, now: Instant, tx: &mut dyn Transmit, budget: usize) -> usize {
        self.clock.fetch_max(now.as_nanos(), Ordering::Relaxed);
        self.process_failures();
        let mut sent = self.transmit_datagrams(now, tx, budget);
        while sent < budget {
            let Some(qp) = self.ready.lock().pop() else { break };
            // From here on a thread with more to send for it puts it back into the list.
            qp.ready.store(false, Ordering::Release);
            let env = Env { shared: &self.shared, qp: &qp.attributes, now };
            let mut transport = qp.transport.lock();
            let mut full = false;
            let turn = TURN.min(budget.saturating_sub(sent));
            let mut more = true;
            for _ in 0..turn {
                if !transport.has_next() {
                    more = false;
                    break;
                }
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
        [transport, self.connections.deadline(), self.shared.held.deadline()].into_iter().flatten().min()
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
        for _ in 0..TIMEOUT_BUDGET {
            let Some(cq) = self.shared.held.expire(now) else { break };
            let action = cq.expire(now);
            self.shared.queue_cq_notice(&cq, action);
        }
        if self.connections.deadline().is_some_and(|deadline| deadline <= now) {
            self.handle_conn_timeout(now);
        }
    }

    /// Ends a step of a queue pair: schedules its timer, and puts it into the ready list.
    pub(super) fn after(&self, transport: &mut RcTransport, qp: &Qp<R>, arc: impl FnOnce() -> Arc<Qp<R>>) {
        transport.rearm(qp.attributes.index, |index, at| self.wheel.lock().schedule(index, at));
        if transport.wants_to_transmit() {
            self.make_ready(qp, arc);
        }
    }
}
