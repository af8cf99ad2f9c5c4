// SPDX-License-Identifier: MIT OR Apache-2.0

//! Received frames.

use lock_api::{MutexGuard, RawMutex};

use super::Engine;
use crate::drop_reason::DropReason;
use crate::object_table::Pinned;
use crate::qp::Qp;
use crate::shard::ShardState;
use crate::time::Instant;
use crate::trace::TraceEvent;
use crate::transport::env::{Batch, Env};
use crate::transport::packet::payload_copy::MIN_LENGTH;
use crate::transport::rc_transport::RcTransport;
use roce_wire::icrc::Crc;
use roce_wire::{
    Class, Mad, PKEY_DEFAULT, Packet, ParseError, PlainAck, PlainFrame, PlainHeaders, PlainSend, Qpn,
};

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

/// A batch of frames received by a shard, in the order of their arrival.
///
/// Frames are processed one by one, as by [`Shard::handle_frame`]. What several frames in a row need is kept from one to the next:
/// their queue pair, the region or window that they use, and what they add to the statistics. Meanwhile [`Engine::destroy_qp`],
/// [`MemoryCommands::deregister`] and [`MemoryCommands::destroy_window`] of these wait on other threads, and never return on this
/// one. So a batch is some tens of frames, IRQL == `DISPATCH_LEVEL` as long as it exists, and nothing else is done meanwhile.
///
/// [`Shard::handle_frame`]: crate::Shard::handle_frame
/// [`MemoryCommands::deregister`]: crate::MemoryCommands::deregister
/// [`MemoryCommands::destroy_window`]: crate::MemoryCommands::destroy_window
pub struct Receiver<'a, R: RawMutex> {
    engine: &'a Engine<R>,
    shard: &'a ShardState<R>,
    batch: Batch<'a, R>,
    /// The queue pair of the last frame.
    last: Option<(Qpn, Pinned<'a, Qp<R>>)>,
}

impl<R: RawMutex> core::fmt::Debug for Receiver<'_, R> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Receiver").field("shard", &self.shard).finish_non_exhaustive()
    }
}

impl<'a, R: RawMutex> Receiver<'a, R> {
    #[inline]
    pub(super) fn new(engine: &'a Engine<R>, shard: &'a ShardState<R>) -> Self {
        Self { engine, shard, batch: Batch::new(&engine.qps.shared, &shard.stats), last: None }
    }

    /// Processes a received frame, from its Ethernet header on, with or without padding. The frame is not used
    /// after the call. Other processors wait for the end of a copy of payload.
    #[inline]
    pub fn handle_frame(&mut self, now: Instant, frame: &[u8]) -> Verdict {
        let payload = match PlainFrame::parse(frame) {
            Some(PlainFrame::Ack(ack)) => self.handle_ack(now, ack).then_some(0),
            // Longer payload is copied without the lock of the queue pair.
            Some(PlainFrame::Send(send)) if send.payload().len() < MIN_LENGTH as usize => {
                self.handle_send(now, &send).then_some(send.payload().len())
            }
            _ => None,
        };
        match payload {
            Some(bytes) => {
                self.batch.stats.rx_frames.inc();
                self.batch.stats.rx_bytes.add(bytes as u64);
                Verdict::Consumed
            }
            None => self.handle_any(now, frame),
        }
    }

    #[inline]
    fn handle_ack(&mut self, now: Instant, ack: PlainAck<'_>) -> bool {
        let is_valid = |crc| ack.icrc_valid(crc);
        self.handle_plain(now, ack.headers, is_valid, |transport, env| transport.handle_plain_ack(env, ack))
    }

    fn handle_send(&mut self, now: Instant, send: &PlainSend<'_>) -> bool {
        let is_valid = |crc| send.icrc_valid(crc);
        self.handle_plain(now, send.headers, is_valid, |transport, env| {
            transport.handle_plain_send(env, send)
        })
    }

    /// Handles a frame of the usual form in fewer instructions than [`Receiver::handle_any`]. `is_valid` checks its ICRC.
    /// Returns `false`, and has changed nothing, if `handle` has not handled it.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every small message, of two kinds")]
    fn handle_plain(
        &mut self,
        now: Instant,
        headers: PlainHeaders<'_>,
        is_valid: impl FnOnce(Crc) -> bool,
        handle: impl FnOnce(&mut RcTransport, &Env<'_, R>) -> bool,
    ) -> bool {
        let Self { engine, shard, batch, last } = self;
        let Some(qp) = Self::queue_pair(engine, last, headers.dest_qp()) else { return false };
        //= rocev2 §2
        if !is_valid(engine.qps.shared.config.crc) {
            return false;
        }
        let env = Env::new(batch, &qp.attributes, now);
        let mut transport = qp.lock();
        let handled = shard.has(qp) && handle(&mut transport, &env);
        if handled {
            shard.follow_up(&mut transport, qp, || qp.to_arc());
        }
        handled
    }

    /// Returns queue pair `number`, which is pinned until another one is asked for.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every packet")]
    fn queue_pair<'l>(
        engine: &'a Engine<R>,
        last: &'l mut Option<(Qpn, Pinned<'a, Qp<R>>)>,
        number: Qpn,
    ) -> Option<&'l Pinned<'a, Qp<R>>> {
        if last.as_ref().is_none_or(|(last, _)| *last != number) {
            *last = None;
            let qp = engine.qps.table.get(number.value())?;
            // Loaded while the ICRC is computed.
            qp.prefetch();
            *last = Some((number, qp));
        }
        last.as_ref().map(|(_, qp)| qp)
    }

    /// Handles a frame of any form.
    #[inline(never)]
    fn handle_any(&mut self, now: Instant, frame: &[u8]) -> Verdict {
        let parsed = Packet::parse(frame);
        // By reference: moving the packet takes as long as a part of its headers.
        let reason = match &parsed {
            Ok(packet) => match self.handle_packet(now, packet) {
                Ok(()) => {
                    self.batch.stats.rx_frames.inc();
                    self.batch.stats.rx_bytes.add(packet.payload().len() as u64);
                    return Verdict::Consumed;
                }
                Err(reason) => reason,
            },
            Err(ParseError::NotRoce) => return Verdict::NotOurs,
            Err(ParseError::Malformed(reason)) => DropReason::Malformed(*reason),
        };
        self.dropped(frame, reason)
    }

    /// Counts a frame that had no effect, unless it is to another host. Such a frame is found here only: a queue pair takes no
    /// packet to another address than its own, and connection management none that is not to a local one.
    #[inline(never)]
    fn dropped(&self, frame: &[u8], reason: DropReason) -> Verdict {
        if roce_wire::destination(frame).is_some_and(|ip| !self.engine.connections.is_local(ip)) {
            return Verdict::NotOurs;
        }
        self.shard.stats.count_drop(reason);
        let shared = &self.engine.qps.shared;
        if shared.config.trace.is_some() {
            let bth = Packet::parse(frame).ok().map(|packet| packet.bth());
            let (qpn, psn) = bth.map_or_else(Default::default, |bth| (bth.dest_qp(), bth.psn()));
            shared.trace(qpn, psn, TraceEvent::Dropped(reason));
        }
        Verdict::Dropped(reason)
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "called in one place, for every packet")]
    fn handle_packet(&mut self, now: Instant, packet: &Packet<'_>) -> Result<(), DropReason> {
        let Self { engine, shard, batch, last } = self;
        let bth = packet.bth();
        //= rocev2 §13
        // With or without the bit of full membership.
        if bth.p_key() | !(PKEY_DEFAULT >> 1) != PKEY_DEFAULT {
            return Err(DropReason::PKey);
        }
        let number = bth.dest_qp();
        if number == Qpn::GSI {
            // Connection management may end it.
            *last = None;
            batch.regions.release();
            // Any host can send to QP 1: only frames of a datagram's length get their ICRC computed.
            if packet.payload().len() != Mad::LEN {
                return Err(DropReason::Datagram);
            }
            check_icrc(engine.qps.shared.config.crc, packet)?;
            return engine.connections.handle(&engine.qps, shard, now, packet);
        }
        let qp = Self::queue_pair(engine, last, number).ok_or(DropReason::NoQp)?;
        // Before anything is decided by the packet, or copied from it.
        check_icrc(engine.qps.shared.config.crc, packet)?;
        // A datagram has no peer whose addresses tell.
        if packet.info().class == Class::Datagram && !engine.connections.is_local(packet.destination()) {
            return Err(DropReason::Address);
        }
        let env = Env::new(batch, &qp.attributes, now);
        let mut transport = qp.lock();
        let mut placement = None;
        let mut handled = transport.handle(&env, packet, &mut placement);
        if let Some(placement) = &placement {
            // Before the lock is released, so that the batch keeps no other region during the copy than that of the copy.
            batch.regions.release();
            let placed = MutexGuard::unlocked(&mut transport, || placement.run(&env, packet.payload()));
            handled = Ok(transport.finish_placement(&env, packet, placement, placed));
        }
        // A packet that is not from the peer has no effect, not even on pending frames.
        if !matches!(handled, Err(DropReason::Address | DropReason::State | DropReason::Opcode)) {
            if !shard.has(qp) {
                engine.qps.shards.move_to(shard, &mut transport, qp);
            }
            shard.follow_up(&mut transport, qp, || qp.to_arc());
        }
        drop(transport);
        // Outside of the lock: connection management comes before queue pairs.
        let outcome = handled?;
        if let Some(conn) = outcome.established {
            *last = None;
            batch.regions.release();
            engine.connections.traffic_seen(now, conn);
        }
        Ok(())
    }
}

fn check_icrc(crc: Crc, packet: &Packet<'_>) -> Result<(), DropReason> {
    //= rocev2 §2
    packet.icrc_valid(crc).then_some(()).ok_or(DropReason::Malformed(roce_wire::DropReason::Icrc))
}
