// SPDX-License-Identifier: MIT OR Apache-2.0

//! Stores request packets that arrive after a gap, and executes them once the gap is filled.
//!
//! See [`super::out_of_order`] for what is stored and why that is safe.

use super::sequence::Sequence;
use lock_api::RawMutex;

use super::env::Env;
use super::out_of_order::{LastPacket, Placement};
use super::rc_transport::RcTransport;
use super::responder_state::InboundMessage;
use crate::region::access_rights::AccessError;
use crate::sge_cursor::TooShort;
use crate::work::CompletionKind;
use roce_wire::{NakCode, Operation, Packet, Syndrome};

impl RcTransport {
    /// Stores a packet of the current message that arrived after a gap. Returns whether it is stored.
    ///
    /// The peer cannot tell this from dropping, except by what it has to send again: a NAK for the gap is
    /// pending either way, and the memory of a message that has not completed is the peer's to write.
    pub(super) fn store_out_of_order<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: Sequence,
        packet: &Packet<'_>,
    ) -> bool {
        //= rocev2 §6
        let responder = &self.responder;
        let (info, payload, mtu) = (packet.info(), packet.payload(), responder.mtu);
        // Immediate data and an R_Key to invalidate are not stored.
        let plain = !info.first && packet.imm_dt().is_none() && packet.ieth().is_none();
        if !plain || !info.payload.admits(payload.len(), mtu as usize) {
            return false;
        }
        let distance = match responder.out_of_order.classify(responder.expected, sequence, info.last) {
            Placement::Store(distance) => distance,
            Placement::Duplicate => return true,
            Placement::Reject => return false,
        };
        let (offset, len) = (distance.saturating_mul(mtu), payload.len() as u32);
        let stored = match (responder.message, info.operation) {
            (InboundMessage::Write { address, key, left, .. }, Operation::Write) => {
                let rest = left.checked_sub(offset).and_then(|left| left.checked_sub(len));
                let fits = rest.is_some_and(|rest| (rest == 0) == info.last);
                let address = address.wrapping_add(u64::from(offset));
                fits && env.shared.regions.write_remote(env.qp.scope(), key, address, payload).is_ok()
            }
            (InboundMessage::Send, Operation::Send) => self.store_send_payload(env, offset, payload).is_ok(),
            _ => false,
        };
        if stored {
            let last = LastPacket { sequence, len, solicited: packet.bth().solicited() };
            self.responder.out_of_order.record(distance, info.last.then_some(last));
        }
        stored
    }

    /// Copies payload into the current receive, `offset` bytes after the payload received in order.
    fn store_send_payload<R: RawMutex>(
        &self,
        env: &Env<'_, R>,
        offset: u32,
        payload: &[u8],
    ) -> Result<(), AccessError> {
        let sges = self.current_receive.sges();
        let mut cursor = self.current_receive.cursor;
        let position = cursor.position.saturating_add(offset);
        cursor.seek(sges, position).map_err(|TooShort| AccessError)?;
        let mut rest = payload;
        cursor.walk(sges, payload.len() as u32, AccessError, |sge, within, len| {
            let (now, later) = rest.split_at_checked(len as usize).ok_or(AccessError)?;
            rest = later;
            env.shared.regions.write_local(env.qp.pd, sge, within, now)
        })
    }

    /// Accepts the stored packets that follow the one at `sequence` without a gap.
    ///
    /// The effect is that of receiving them now and in order: each is accepted once, after all before it, and
    /// acknowledged only then.
    pub(super) fn accept_stored<R: RawMutex>(&mut self, env: &Env<'_, R>, sequence: Sequence) {
        //= rocev2 §6
        let responder = &mut self.responder;
        let run = responder.out_of_order.take_contiguous(sequence);
        let count = u64::from(run.full).saturating_add(u64::from(run.last.is_some()));
        responder.expected = responder.expected.add(count);
        let bytes =
            run.full.saturating_mul(responder.mtu).saturating_add(run.last.map_or(0, |last| last.len));
        match &mut responder.message {
            InboundMessage::Write { address, left, .. } => {
                *address = address.wrapping_add(u64::from(bytes));
                *left = left.saturating_sub(bytes);
            }
            InboundMessage::Send => {
                let mut cursor = self.current_receive.cursor;
                // Succeeds, as it did when the packets were stored.
                let position = cursor.position.saturating_add(bytes);
                if cursor.seek(self.current_receive.sges(), position).is_ok() {
                    self.current_receive.cursor = cursor;
                }
            }
            InboundMessage::None => {}
        }
        responder.ack_pending |= count > 0;
        if !responder.out_of_order.is_empty() {
            // There is another gap: report it now.
            //= rocev2 §6
            responder.nak_pending = Some((Syndrome::nak(NakCode::PSN_SEQUENCE), responder.expected));
            responder.newest_after_gap = Some(responder.expected);
        }
        if let Some(last) = run.last {
            if let InboundMessage::Send = responder.message {
                env.shared.stats.rx_sends.inc();
                let bytes = self.current_receive.cursor.position;
                self.complete_message(env, CompletionKind::Receive, None, last.solicited, bytes);
            } else {
                env.shared.stats.rx_writes.inc();
                responder.end_message();
            }
        }
    }
}
