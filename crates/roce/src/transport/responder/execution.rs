// SPDX-License-Identifier: MIT OR Apache-2.0

//! Executes request packets in PSN order, each once (IBTA Volume 1, section 9.7).

use lock_api::RawMutex;

use super::Responder;
use super::atomics;
use super::fatal_nak::FatalNak;
use super::inbound_reads::InboundRead;
use super::message::InboundMessage;
use crate::region::access_rights::{Access, AccessError, KeyError};
use crate::sge_cursor::SgeCursor;
use crate::transport::env::Env;
use crate::transport::failure::Failure;
use crate::transport::packet::payload_copy::MIN_LENGTH;
use crate::transport::packet::pieces::Pieces;
use crate::transport::packet::placement::{InboundWrite, Placement};
use crate::transport::sequence::Sequence;
use crate::work::{CompletionKind, CompletionStatus};
use roce_wire::{ImmDt, Operation, Packet, RethRepr, Syndrome};

/// Packets accepted without AckReq before an ACK is sent anyway. A requester that requests few ACKs (rxe: one
/// in 66 packets, with a window of 128) would wait for its timer when one is lost.
const MAX_UNACKNOWLEDGED: u64 = 32;

/// Maximum message length (IBTA Volume 1, chapter 9): 2^31 bytes.
const MAX_LENGTH: u32 = 1 << 31;

/// Result of executing a request packet that arrived in order.
#[derive(Clone, Copy, Debug)]
pub(super) enum Execution {
    /// It was executed, and uses this many PSNs.
    Executed(u64),
    /// No receive is posted for it.
    NoReceive,
    /// Its payload is to be copied first.
    Copying,
}

impl Responder {
    /// Executes the request packet at `sequence`, the expected one. It may set `placement` instead of copying the payload:
    /// [`Responder::finish_send`] or [`Responder::finish_write`] then follows.
    #[inline]
    pub(super) fn execute_next<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: Sequence,
        packet: &Packet<'_>,
        placement: Option<&mut Option<Placement>>,
    ) -> Result<(), Failure> {
        let executed = self.execute(env, sequence, packet, placement);
        self.conclude(env, sequence, packet.bth().ack_req(), executed)
    }

    /// Continues with the packet in order of a SEND whose payload was copied to the current receive before `end`.
    #[inline]
    pub(crate) fn finish_send<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
        end: SgeCursor,
        placed: Result<(), AccessError>,
    ) -> Result<(), Failure> {
        let executed = match placed {
            Ok(()) => self.end_send(env, packet, end),
            Err(AccessError) => Err(FatalNak::PROTECTION),
        };
        self.conclude(env, self.expected, packet.bth().ack_req(), executed)
    }

    /// Continues with the packet in order of a WRITE whose payload was copied to its memory.
    #[inline]
    pub(crate) fn finish_write<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
        write: InboundWrite,
        placed: Result<(), AccessError>,
    ) -> Result<(), Failure> {
        let executed = match placed {
            Ok(()) => Ok(self.end_write(env, packet, write)),
            Err(AccessError) => Err(FatalNak::ACCESS),
        };
        self.conclude(env, self.expected, packet.bth().ack_req(), executed)
    }

    /// Accounts for the execution of the packet at `sequence`, the expected one. `ack_req` is the packet's.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every request packet")]
    pub(super) fn conclude<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: Sequence,
        ack_req: bool,
        executed: Result<Execution, FatalNak>,
    ) -> Result<(), Failure> {
        match executed {
            Ok(Execution::Executed(packets)) => {
                self.expected = sequence.add(packets);
                let newest = self.newest_after_gap.take();
                let nak = self.nak_pending.take();
                //= rocev2 §6
                self.ack_pending |= ack_req || self.expected.since(self.acknowledged) >= MAX_UNACKNOWLEDGED;
                if let Some(newest) = newest {
                    self.continue_after_gap(env, sequence, newest, nak.is_some(), ack_req);
                }
            }
            Ok(Execution::Copying) => {}
            Ok(Execution::NoReceive) => {
                env.stats.rx_rnr.inc();
                //= R-QP-6
                //= R-CONSUMER-15
                self.nak_pending = Some((Syndrome::rnr_nak(self.rnr_code), sequence));
                // The packets after it were sent before the peer got the RNR NAK: no sequence NAK for them.
                self.newest_after_gap = Some(sequence);
                self.without_receive = true;
                self.nak_twice = false;
            }
            Err(nak) => {
                //= rocev2 §9
                //= R-QP-58
                self.nak_pending = Some((Syndrome::nak(nak.code), sequence));
                self.receives.fail_current(env, nak.receive);
                return Err(Failure::Refused);
            }
        }
        Ok(())
    }

    /// Executes the request packet with the expected PSN.
    fn execute<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: Sequence,
        packet: &Packet<'_>,
        placement: Option<&mut Option<Placement>>,
    ) -> Result<Execution, FatalNak> {
        let info = packet.info();
        if !self.message.continues_with(info)
            || !info.payload.admits(packet.payload().len(), self.mtu as usize)
        {
            return Err(FatalNak::INVALID);
        }
        match info.operation {
            Operation::Send => self.execute_send(env, packet, placement),
            Operation::Write if self.access.contains(Access::REMOTE_WRITE) => {
                self.execute_write(env, packet, placement)
            }
            Operation::Read if self.access.contains(Access::REMOTE_READ) => {
                let reth = packet.reth().map(|reth| RethRepr::parse(&reth)).ok_or(FatalNak::INVALID)?;
                self.queue_read(env, sequence, &reth)
            }
            Operation::Atomic if self.access.contains(Access::REMOTE_ATOMIC) => {
                atomics::execute(&mut self.reads, env, sequence, packet)?;
                self.complete_msn();
                Ok(Execution::Executed(1))
            }
            // The peer of the queue pair may not request the operation.
            _ => Err(FatalNak::INVALID),
        }
    }

    fn execute_send<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
        placement: Option<&mut Option<Placement>>,
    ) -> Result<Execution, FatalNak> {
        if packet.info().first && !self.receives.take(env) {
            return Ok(Execution::NoReceive);
        }
        let payload = packet.payload();
        let length = payload.len() as u32;
        //= R-QP-46
        //= R-QP-47
        let sges = self.receives.current.sges();
        let mut cursor = self.receives.current.cursor;
        let position = cursor.position;
        if length >= MIN_LENGTH
            && let Some(placement) = placement
            && let Some(pieces) = Pieces::collect(&mut cursor, sges, position, length)
        {
            *placement = Some(Placement::Receive { pieces, end: cursor });
            return Ok(Execution::Copying);
        }
        self.receives.write(env, &mut cursor, payload)?;
        self.end_send(env, packet, cursor)
    }

    /// Ends the execution of a packet of a SEND whose payload is in the current receive, before `cursor`.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every SEND")]
    fn end_send<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
        cursor: SgeCursor,
    ) -> Result<Execution, FatalNak> {
        self.receives.current.cursor = cursor;
        if !packet.info().last {
            self.message = InboundMessage::Send;
            return Ok(Execution::Executed(1));
        }
        let mut kind = CompletionKind::Receive;
        if let Some(ieth) = packet.ieth() {
            let key = ieth.r_key();
            //= rocev2 §9
            //= rocev2 §10
            //= R-QP-77
            //= R-QP-78
            //= R-MR-48
            //= R-MR-49
            let done = env.shared.regions.invalidate_remotely(env.qp.scope(), key);
            done.map_err(|KeyError| FatalNak::ACCESS)?;
            env.stats.rx_invalidations.inc();
            kind = CompletionKind::ReceiveInvalidate { key };
        }
        self.complete_send(env, kind, packet.imm_dt(), packet.bth().solicited());
        Ok(Execution::Executed(1))
    }

    /// Completes a SEND, whose message is in the current receive.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every SEND")]
    fn complete_send<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        kind: CompletionKind,
        immediate: Option<ImmDt<'_>>,
        solicited: bool,
    ) {
        env.stats.rx_sends.inc();
        let bytes = self.receives.current.cursor.position;
        self.complete_message(env, self.receives.current.context, kind, immediate, solicited, bytes);
    }

    fn execute_write<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
        placement: Option<&mut Option<Placement>>,
    ) -> Result<Execution, FatalNak> {
        let info = packet.info();
        let payload = packet.payload();
        let (address, key, total, left) = match (self.message, packet.reth()) {
            (InboundMessage::Write { address, key, total, left }, _) => (address, key, total, left),
            (_, Some(reth)) => {
                let reth = RethRepr::parse(&reth);
                if reth.length > MAX_LENGTH {
                    return Err(FatalNak::INVALID);
                }
                //= rocev2 §6
                // The whole range, before the first byte; an empty range is not checked.
                if reth.length > 0 {
                    let right = Access::REMOTE_WRITE;
                    let (key, length) = (reth.r_key, u64::from(reth.length));
                    let checked = env.regions.check_remote(env.qp.scope(), key, reth.address, length, right);
                    checked.map_err(|AccessError| FatalNak::ACCESS)?;
                }
                (reth.address, reth.r_key, reth.length, reth.length)
            }
            _ => return Err(FatalNak::INVALID),
        };
        let left = match left.checked_sub(payload.len() as u32) {
            Some(0) if info.last => 0,
            Some(rest) if rest > 0 && !info.last => rest,
            _ => return Err(FatalNak::INVALID),
        };
        if packet.imm_dt().is_some() && !self.receives.take(env) {
            return Ok(Execution::NoReceive);
        }
        let write = InboundWrite { address, key, total, left };
        if payload.len() >= MIN_LENGTH as usize
            && let Some(placement) = placement
        {
            *placement = Some(Placement::Write(write));
            return Ok(Execution::Copying);
        }
        if !payload.is_empty() {
            // Checked for each packet: the region may be deregistered meanwhile.
            //= R-MR-17
            let written = env.regions.write_remote(env.qp.scope(), key, address, payload);
            written.map_err(|AccessError| FatalNak::ACCESS)?;
        }
        Ok(self.end_write(env, packet, write))
    }

    /// Ends the execution of a packet of a WRITE whose payload is written.
    #[inline]
    fn end_write<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
        write: InboundWrite,
    ) -> Execution {
        let InboundWrite { address, key, total, left } = write;
        let payload = packet.payload();
        if !packet.info().last {
            let address = address.wrapping_add(payload.len() as u64);
            self.message = InboundMessage::Write { address, key, total, left };
            return Execution::Executed(1);
        }
        env.stats.rx_writes.inc();
        if packet.imm_dt().is_some() {
            let (context, kind) = (self.receives.current.context, CompletionKind::ReceiveWrite);
            self.complete_message(env, context, kind, packet.imm_dt(), packet.bth().solicited(), total);
        } else {
            self.end_message();
        }
        Execution::Executed(1)
    }

    /// Completes the current message and its receive, of this `context`.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every SEND")]
    pub(super) fn complete_message<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        context: u64,
        kind: CompletionKind,
        immediate: Option<ImmDt<'_>>,
        solicited: bool,
        bytes: u32,
    ) {
        self.receives.current.active = false;
        self.end_message();
        //= R-CQ-23
        //= R-CQ-26
        let mut completion = env.completion(context, kind, CompletionStatus::Success, bytes);
        completion.immediate = immediate.map(|imm| imm.data());
        //= R-CQ-5
        env.push_completion(&env.qp.recv_cq, completion, solicited);
    }

    fn queue_read<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: Sequence,
        reth: &RethRepr,
    ) -> Result<Execution, FatalNak> {
        if reth.length > MAX_LENGTH {
            return Err(FatalNak::INVALID);
        }
        if reth.length > 0 {
            let (key, length) = (reth.r_key, u64::from(reth.length));
            let right = Access::REMOTE_READ;
            let checked = env.regions.check_remote(env.qp.scope(), key, reth.address, length, right);
            checked.map_err(|AccessError| FatalNak::ACCESS)?;
        }
        let packets = reth.length.div_ceil(self.mtu.max(1)).max(1);
        //= R-QP-54
        if !self.reads.push(InboundRead::new(sequence, packets, *reth)) {
            return Err(FatalNak::INVALID);
        }
        env.stats.rx_reads.inc();
        self.complete_msn();
        Ok(Execution::Executed(u64::from(packets)))
    }
}
