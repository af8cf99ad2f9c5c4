// SPDX-License-Identifier: MIT OR Apache-2.0

//! Handles the peer's requests: the expected one, duplicates, and those after a gap (IBTA Volume 1, section 9.7).
//!
//! Handling a packet sends nothing. It leaves at most one pending ACK for everything accepted, at most one
//! pending NAK, and the READ responses still to send; `acknowledge` sends them.

use lock_api::RawMutex;

use super::Responder;
use super::execution::Execution;
use super::fatal_nak::FatalNak;
use super::message::InboundMessage;
use crate::drop_reason::DropReason;
use crate::transport::env::Env;
use crate::transport::failure::{Failure, PacketError};
use crate::transport::packet::placement::Placement;
use crate::transport::sequence::Sequence;
use crate::work::CompletionKind;
use roce_wire::{Operation, Packet, PlainSend, RethRepr};

impl Responder {
    /// Handles a request packet. It may set `placement` instead of copying the payload: [`Responder::finish_send`] or
    /// [`Responder::finish_write`] then follows.
    pub(crate) fn handle_request<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
        placement: &mut Option<Placement>,
    ) -> Result<(), PacketError> {
        let sequence = match self.psns.sequence(packet.bth().psn(), self.expected) {
            Some(sequence) if sequence == self.expected => sequence,
            Some(sequence) if sequence > self.expected => {
                if self.handle_after_gap(env, sequence, packet)? {
                    return Ok(());
                }
                sequence
            }
            sequence => {
                env.stats.rx_duplicates.inc();
                let sequence = sequence.ok_or(DropReason::Sequence)?;
                self.handle_duplicate(sequence, packet);
                self.write_again(env, sequence, packet);
                return Ok(());
            }
        };
        Ok(self.execute_next(env, sequence, packet, Some(placement))?)
    }

    /// Handles a SEND of the usual form, with less than [`MIN_LENGTH`](crate::transport::packet::payload_copy::MIN_LENGTH) bytes.
    /// Returns `None`, and has changed nothing, if [`Responder::handle_request`] has to handle it.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "called in one place, for every small SEND")]
    pub(crate) fn handle_plain_send<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        send: &PlainSend<'_>,
    ) -> Option<Result<(), Failure>> {
        let sequence = self.expected;
        let payload = send.payload();
        let is_usual = self.psns.psn(sequence) == send.headers.psn()
            && matches!(self.message, InboundMessage::None)
            && payload.len() <= self.mtu as usize;
        let (context, sge) = self.receives.queue.front_with_one()?;
        let bytes = payload.len() as u32;
        //= R-QP-47
        if !is_usual || bytes > sge.length {
            return None;
        }
        //= R-QP-48
        let executed = if env.regions.write_local(env.qp.pd, sge, 0, payload).is_ok() {
            self.receives.queue.drop_oldest();
            env.stats.rx_sends.inc();
            let (kind, solicited) = (CompletionKind::Receive, send.solicited());
            self.complete_message(env, context, kind, None, solicited, bytes);
            Ok(Execution::Executed(1))
        } else {
            self.receives.take_posted();
            Err(FatalNak::PROTECTION)
        };
        Some(self.conclude(env, sequence, send.ack_req(), executed))
    }

    /// Handles a duplicate packet.
    fn handle_duplicate(&mut self, sequence: Sequence, packet: &Packet<'_>) {
        //= rocev2 §6
        match (packet.info().operation, packet.reth()) {
            (Operation::Read, Some(reth)) => {
                self.reads.repeat(sequence, &RethRepr::parse(&reth), self.mtu);
            }
            // Not executed again, and acknowledged by its result only.
            (Operation::Atomic, _) => {
                if let Some(header) = packet.atomic_eth() {
                    self.reads.repeat_atomic(sequence, header.address(), header.r_key());
                }
            }
            _ => self.ack_pending = true,
        }
    }
}
