// SPDX-License-Identifier: MIT OR Apache-2.0

//! Stores request packets that arrive after a gap, and executes them once the gap is filled.
//!
//! See [`super::out_of_order`] for what is stored and why that is safe.

use super::sequence::Sequence;
use lock_api::RawMutex;

use super::env::Env;
use super::out_of_order::Placement;
use super::rc_transport::RcTransport;
use super::responder_state::InboundMessage;
use crate::region::access_rights::AccessError;
use crate::sge_cursor::TooShort;
use crate::work::Sge;
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
        let responder = &mut self.responder;
        let (info, payload, mtu) = (packet.info(), packet.payload(), responder.mtu);
        // Immediate data and an R_Key to invalidate are not stored. The last packet of a SEND is not, either: nothing
        // tells whether the message ends there.
        let ends_send = info.last && info.operation == Operation::Send;
        let plain = !info.first && !ends_send && packet.imm_dt().is_none() && packet.ieth().is_none();
        if !plain || !info.payload.admits(payload.len(), mtu as usize) || !env.shared.config.early_placement {
            return false;
        }
        let (distance, is_stored) = match responder.out_of_order.place(responder.expected, sequence) {
            Placement::Store(distance) => (distance, false),
            Placement::Compare(distance) => (distance, true),
            Placement::Reject => return false,
        };
        let (offset, len) = (distance.saturating_mul(mtu), payload.len() as u32);
        let regions = &env.shared.regions;
        let done = match (responder.message, info.operation) {
            (InboundMessage::Write { address, key, left, .. }, Operation::Write) => {
                let rest = left.checked_sub(offset).and_then(|left| left.checked_sub(len));
                let fits = rest.is_some_and(|rest| (rest == 0) == info.last);
                let address = address.wrapping_add(u64::from(offset));
                if is_stored {
                    fits && regions.holds_remote(env.qp.scope(), key, address, payload)
                } else {
                    fits && regions.write_remote(env.qp.scope(), key, address, payload).is_ok()
                }
            }
            (InboundMessage::Send, Operation::Send) => {
                let position = self.current_receive.cursor.position.saturating_add(offset);
                self.at_receive(position, payload, |sge, within, bytes| {
                    if is_stored {
                        regions.holds_local(env.qp.pd, sge, within, bytes).then_some(()).ok_or(AccessError)
                    } else {
                        regions.write_local(env.qp.pd, sge, within, bytes)
                    }
                })
                .is_ok()
            }
            _ => false,
        };
        match (is_stored, done) {
            (false, true) => self.responder.out_of_order.record(distance),
            (true, false) => self.responder.out_of_order.forget(distance),
            _ => {}
        }
        done
    }

    /// Writes a duplicate again that follows in order after a filled gap: the packet stored in its place may have
    /// been forged.
    #[inline(never)]
    pub(super) fn write_again<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: Sequence,
        packet: &Packet<'_>,
    ) {
        let responder = &mut self.responder;
        let (info, payload) = (packet.info(), packet.payload());
        // Between the ends of the message, all packets are full.
        if info.first || info.last || payload.len() != responder.mtu as usize {
            return;
        }
        let back = responder.expected.since(sequence).saturating_mul(u64::from(responder.mtu));
        let Ok(back) = u32::try_from(back) else { return };
        match (responder.message, info.operation) {
            (InboundMessage::Write { address, key, total, left }, Operation::Write)
                if back <= total.saturating_sub(left) && responder.out_of_order.follows(sequence) =>
            {
                let address = address.wrapping_sub(u64::from(back));
                // If the region is gone, the next packet in order reports it.
                let _ = env.shared.regions.write_remote(env.qp.scope(), key, address, payload);
            }
            (InboundMessage::Send, Operation::Send) => {
                if let Some(position) = self.current_receive.cursor.position.checked_sub(back)
                    && responder.out_of_order.follows(sequence)
                {
                    // It was writable before.
                    let _ = self.at_receive(position, payload, |sge, within, bytes| {
                        env.shared.regions.write_local(env.qp.pd, sge, within, bytes)
                    });
                }
            }
            _ => {}
        }
    }

    /// Calls `each` for the pieces of the current receive that `payload` takes at `position`.
    fn at_receive(
        &self,
        position: u32,
        payload: &[u8],
        mut each: impl FnMut(&Sge, u32, &[u8]) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        let sges = self.current_receive.sges();
        let mut cursor = self.current_receive.cursor;
        cursor.seek(sges, position).map_err(|TooShort| AccessError)?;
        let mut rest = payload;
        cursor.walk(sges, payload.len() as u32, AccessError, |sge, within, len| {
            let (now, later) = rest.split_at_checked(len as usize).ok_or(AccessError)?;
            rest = later;
            each(sge, within, now)
        })
    }

    /// Accepts the stored packets that follow the one at `sequence` without a gap.
    ///
    /// The effect is that of receiving them now and in order: each is accepted once, after all before it, and
    /// acknowledged only then. `newest` is the last packet that arrived after the gap.
    pub(super) fn accept_stored<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: Sequence,
        newest: Option<Sequence>,
    ) {
        //= rocev2 §6
        let responder = &mut self.responder;
        let count = responder.out_of_order.take_contiguous(sequence);
        responder.expected = responder.expected.add(u64::from(count));
        let bytes = count.saturating_mul(responder.mtu);
        let mut ended = false;
        match &mut responder.message {
            InboundMessage::Write { address, left, .. } => {
                *address = address.wrapping_add(u64::from(bytes));
                // The last packet may be shorter. It is stored only where it ends the message.
                *left = left.saturating_sub(bytes);
                ended = *left == 0;
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
            // There is another gap: report it now. And again if a packet arrives that is sent again, except the newest one,
            // which a peer sends only to have a loss reported.
            //= rocev2 §6
            responder.nak_pending = Some((Syndrome::nak(NakCode::PSN_SEQUENCE), responder.expected));
            responder.newest_after_gap = newest.map(|newest| newest.previous().max(responder.expected));
        }
        if ended {
            env.stats.rx_writes.inc();
            responder.end_message();
        }
    }
}
