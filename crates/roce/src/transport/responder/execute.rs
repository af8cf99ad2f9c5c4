// SPDX-License-Identifier: MIT OR Apache-2.0

//! The responder: executes the peer's requests in PSN order, each once (IBTA Volume 1, section 9.7).
//!
//! Handling a packet sends nothing. It leaves at most one pending ACK for everything accepted, at most one
//! pending NAK, and the READ responses still to send; `acknowledge` sends them.

use crate::transport::sequence::Sequence;
use lock_api::RawMutex;

use super::inbound_reads::InboundRead;
use super::{InboundMessage, MAX_LENGTH, MAX_UNACKNOWLEDGED};
use crate::drop_reason::DropReason;
use crate::region::access_rights::{Access, AccessError, KeyError};
use crate::sge_cursor::SgeCursor;
use crate::transport::env::Env;
use crate::transport::packet::payload_copy::{Copying, MIN_LENGTH};
use crate::transport::packet::pieces::Pieces;
use crate::transport::packet::placement::{InboundWrite, Placement};
use crate::transport::rc_transport::RcTransport;
use crate::transport::state::State;
use crate::work::{CompletionKind, CompletionStatus};
use roce_wire::{ImmDt, NakCode, Operation, Packet, PlainSend, RethRepr, Syndrome};

/// A NAK that ends the connection, and the status of the receive that the message was using.
#[derive(Clone, Copy, Debug)]
struct FatalNak {
    code: NakCode,
    receive: CompletionStatus,
}

impl FatalNak {
    const INVALID: Self = Self { code: NakCode::INVALID_REQUEST, receive: CompletionStatus::Flushed };
    const ACCESS: Self = Self { code: NakCode::REMOTE_ACCESS, receive: CompletionStatus::LocalAccess };
    /// The message is longer than the receive.
    const TOO_LONG: Self = Self { code: NakCode::INVALID_REQUEST, receive: CompletionStatus::LocalLength };
    /// The receive's memory cannot be written.
    const PROTECTION: Self =
        Self { code: NakCode::REMOTE_OPERATIONAL, receive: CompletionStatus::LocalProtection };
}

/// Result of executing a request packet that arrived in order.
#[derive(Clone, Copy, Debug)]
enum Execution {
    /// It was executed, and uses this many PSNs.
    Executed(u64),
    /// No receive is posted for it.
    NoReceive,
    /// Its payload is to be copied first.
    Copying,
}

impl RcTransport {
    /// Handles a request packet, received now or stored before. It may set `placement` instead of copying the payload:
    /// [`RcTransport::finish_send`] or [`RcTransport::finish_write`] then follows.
    pub(crate) fn handle_request<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
        placement: Option<&mut Option<Placement>>,
    ) -> Result<(), DropReason> {
        let stats = &env.stats;
        let responder = &mut self.responder;
        let psn = packet.bth().psn();
        let sequence = match responder.psns.sequence(psn, responder.expected) {
            Some(sequence) if sequence == responder.expected => sequence,
            Some(sequence) if sequence > responder.expected => {
                if let Some(handled) = self.handle_after_gap(env, sequence, packet) {
                    return handled;
                }
                sequence
            }
            sequence => {
                stats.rx_duplicates.inc();
                let sequence = sequence.ok_or(DropReason::Sequence)?;
                responder.handle_duplicate(sequence, packet);
                self.write_again(env, sequence, packet);
                return Ok(());
            }
        };
        let executed = self.execute(env, sequence, packet, placement);
        self.conclude(env, sequence, packet.bth().ack_req(), executed);
        Ok(())
    }

    /// Handles a SEND of the usual form, with less than [`MIN_LENGTH`] bytes. Its ICRC was checked. Returns `false`, and has
    /// changed nothing, if [`RcTransport::handle`] has to handle it.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "called in one place, for every small SEND")]
    pub(crate) fn handle_plain_send<R: RawMutex>(&mut self, env: &Env<'_, R>, send: &PlainSend<'_>) -> bool {
        //= rocev2 §6
        let is_peer = self.link.as_ref().is_some_and(|link| link.template.is_reverse_of_plain(send.headers));
        let responder = &self.responder;
        let sequence = responder.expected;
        let payload = send.payload();
        // In other states, it may establish the connection, or is of no use.
        let is_usual = self.state == State::Rts
            && is_peer
            && responder.psns.psn(sequence) == send.headers.psn()
            && matches!(responder.message, InboundMessage::None)
            && payload.len() <= responder.mtu as usize;
        let Some((context, sge)) = self.recv_queue.front_with_one() else { return false };
        let bytes = payload.len() as u32;
        //= R-QP-47
        if !is_usual || bytes > sge.length {
            return false;
        }
        //= R-QP-48
        let executed = if env.regions.write_local(env.qp.pd, sge, 0, payload).is_ok() {
            self.recv_queue.drop_oldest();
            env.stats.rx_sends.inc();
            let (kind, solicited) = (CompletionKind::Receive, send.solicited());
            self.complete_message(env, context, kind, None, solicited, bytes);
            Ok(Execution::Executed(1))
        } else {
            self.recv_queue.take(&mut self.current_receive);
            Err(FatalNak::PROTECTION)
        };
        self.conclude(env, sequence, send.ack_req(), executed);
        self.last_received = Some(env.now);
        true
    }

    /// Continues with the packet in order of a SEND whose payload was copied to the current receive before `end`.
    pub(crate) fn finish_send<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
        end: SgeCursor,
        placed: Result<(), AccessError>,
    ) {
        let executed = match placed {
            Ok(()) => self.end_send(env, packet, end),
            Err(AccessError) => Err(FatalNak::PROTECTION),
        };
        self.conclude(env, self.responder.expected, packet.bth().ack_req(), executed);
    }

    /// [`RcTransport::finish_send`] for a packet of a WRITE.
    pub(crate) fn finish_write<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
        write: InboundWrite,
        placed: Result<(), AccessError>,
    ) {
        let executed = match placed {
            Ok(()) => Ok(self.end_write(env, packet, write)),
            Err(AccessError) => Err(FatalNak::ACCESS),
        };
        self.conclude(env, self.responder.expected, packet.bth().ack_req(), executed);
    }

    /// Accounts for the execution of the packet at `sequence`, the expected one. `ack_req` is the packet's.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every request packet")]
    fn conclude<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: Sequence,
        ack_req: bool,
        executed: Result<Execution, FatalNak>,
    ) {
        match executed {
            Ok(Execution::Executed(packets)) => {
                let responder = &mut self.responder;
                responder.expected = sequence.add(packets);
                let newest = responder.newest_after_gap.take();
                let nak = responder.nak_pending.take();
                //= rocev2 §6
                responder.ack_pending |=
                    ack_req || responder.expected.since(responder.acknowledged) >= MAX_UNACKNOWLEDGED;
                if let Some(newest) = newest {
                    self.continue_after_gap(env, sequence, newest, nak.is_some(), ack_req);
                }
            }
            Ok(Execution::Copying) => {}
            Ok(Execution::NoReceive) => {
                env.stats.rx_rnr.inc();
                let responder = &mut self.responder;
                //= R-QP-6
                //= R-CONSUMER-15
                responder.nak_pending = Some((Syndrome::rnr_nak(responder.rnr_code), sequence));
                // The packets after it were sent before the peer got the RNR NAK: no sequence NAK for them.
                responder.newest_after_gap = Some(sequence);
                responder.without_receive = true;
                responder.nak_twice = false;
            }
            Err(nak) => {
                //= rocev2 §9
                //= R-QP-58
                self.responder.nak_pending = Some((Syndrome::nak(nak.code), sequence));
                if core::mem::take(&mut self.current_receive.active) {
                    env.complete_receive(self.current_receive.context, nak.receive);
                }
                self.fail(env, None);
            }
        }
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
        let responder = &mut self.responder;
        if !responder.message.continues_with(info)
            || !info.payload.admits(packet.payload().len(), responder.mtu as usize)
        {
            return Err(FatalNak::INVALID);
        }
        match info.operation {
            Operation::Send => self.execute_send(env, packet, placement),
            Operation::Write => self.execute_write(env, packet, placement),
            Operation::Read => {
                let reth = packet.reth().map(|reth| RethRepr::parse(&reth)).ok_or(FatalNak::INVALID)?;
                self.queue_read(env, sequence, &reth)
            }
            // Atomics are not supported.
            _ => Err(FatalNak::INVALID),
        }
    }

    fn execute_send<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
        placement: Option<&mut Option<Placement>>,
    ) -> Result<Execution, FatalNak> {
        if packet.info().first && !self.take_receive(env) {
            return Ok(Execution::NoReceive);
        }
        let payload = packet.payload();
        let length = payload.len() as u32;
        //= R-QP-46
        //= R-QP-47
        let sges = self.current_receive.sges();
        let mut cursor = self.current_receive.cursor;
        let position = cursor.position;
        if length >= MIN_LENGTH
            && let Some(placement) = placement
            && let Some(pieces) = Pieces::collect(&mut cursor, sges, position, length)
        {
            *placement = Some(Placement::Receive { pieces, end: cursor });
            self.copying = Some(Copying::Packet);
            return Ok(Execution::Copying);
        }
        self.write_receive(env, &mut cursor, payload)?;
        self.end_send(env, packet, cursor)
    }

    /// Writes payload to the current receive at `cursor`.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every small SEND")]
    fn write_receive<R: RawMutex>(
        &self,
        env: &Env<'_, R>,
        cursor: &mut SgeCursor,
        payload: &[u8],
    ) -> Result<(), FatalNak> {
        let mut rest = payload;
        let sges = self.current_receive.sges();
        cursor.walk(sges, payload.len() as u32, FatalNak::TOO_LONG, |sge, within, len| {
            let (now, later) = rest.split_at_checked(len as usize).ok_or(FatalNak::TOO_LONG)?;
            rest = later;
            let stored = env.regions.write_local(env.qp.pd, sge, within, now);
            stored.map_err(|AccessError| FatalNak::PROTECTION)
        })
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
        self.current_receive.cursor = cursor;
        if !packet.info().last {
            self.responder.message = InboundMessage::Send;
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
        let bytes = self.current_receive.cursor.position;
        self.complete_message(env, self.current_receive.context, kind, immediate, solicited, bytes);
    }

    fn execute_write<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
        placement: Option<&mut Option<Placement>>,
    ) -> Result<Execution, FatalNak> {
        let info = packet.info();
        let payload = packet.payload();
        let (address, key, total, left) = match (self.responder.message, packet.reth()) {
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
        if packet.imm_dt().is_some() && !self.take_receive(env) {
            return Ok(Execution::NoReceive);
        }
        let write = InboundWrite { address, key, total, left };
        if payload.len() >= MIN_LENGTH as usize
            && let Some(placement) = placement
        {
            *placement = Some(Placement::Write(write));
            self.copying = Some(Copying::Packet);
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
            self.responder.message = InboundMessage::Write { address, key, total, left };
            return Execution::Executed(1);
        }
        env.stats.rx_writes.inc();
        if packet.imm_dt().is_some() {
            let (context, kind) = (self.current_receive.context, CompletionKind::Receive);
            self.complete_message(env, context, kind, packet.imm_dt(), packet.bth().solicited(), total);
        } else {
            self.responder.end_message();
        }
        Execution::Executed(1)
    }

    /// Makes the oldest receive the current one. Returns `false` when none is posted.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every SEND")]
    fn take_receive<R: RawMutex>(&mut self, env: &Env<'_, R>) -> bool {
        //= R-SRQ-1
        match &env.qp.srq {
            Some(srq) => {
                let (taken, follow) = srq.take(&mut self.current_receive);
                env.shared.queue_srq_notice(srq, follow);
                taken
            }
            None => self.recv_queue.take(&mut self.current_receive),
        }
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
        let packets = reth.length.div_ceil(self.responder.mtu.max(1)).max(1);
        //= R-QP-54
        if !self.responder.reads.push(InboundRead::new(sequence, packets, *reth)) {
            return Err(FatalNak::INVALID);
        }
        env.stats.rx_reads.inc();
        self.responder.complete_msn();
        Ok(Execution::Executed(u64::from(packets)))
    }
}
