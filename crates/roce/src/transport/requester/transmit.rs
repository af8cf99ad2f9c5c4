// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sends the packets of the send queue in order, within the window, the READ limit and fences
//! (IBTA Volume 1, section 9.7).

use lock_api::RawMutex;

use super::Requester;
use super::payload::Payload;
use crate::region::access_rights::AccessError;
use crate::transport::congestion::rate::RateLimiter;
use crate::transport::env::Env;
use crate::transport::packet::frame::{Unsent, build_frame};
use crate::transport::packet::payload_copy::{MIN_LENGTH, PayloadCopy, RequestPacket};
use crate::transport::packet::pieces::Pieces;
use crate::transport::peer::Link;
use crate::work::{SendFlags, SendOperation};
use roce_wire::{Ext, Headers, IethRepr, ImmDtRepr, Opcode, RethRepr};

impl Requester {
    /// Writes the next request packet to `slot`, or sets `copy`, if [`Requester::wants_to_send`]. `rate` tells whether the packet
    /// should request an ACK.
    #[inline]
    pub(crate) fn transmit<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        link: &Link,
        rate: &RateLimiter,
        slot: &mut [u8],
        copy: &mut Option<PayloadCopy>,
    ) -> Result<usize, Unsent> {
        self.skip_finished(env)?;
        self.transmit_plain_send(env, link, slot)
            .unwrap_or_else(|| self.transmit_any(env, link, rate, slot, copy))
    }

    /// Writes the next request packet if that is a short SEND of one packet and one element, and the window is not full. Returns
    /// `None`, and has changed nothing, if it is another one, or must wait.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "called in one place, for every small SEND")]
    fn transmit_plain_send<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        link: &Link,
        slot: &mut [u8],
    ) -> Option<Result<usize, Unsent>> {
        let wqe = self.send_queue.get(self.position.index)?;
        if !matches!(wqe.operation, SendOperation::Send) || wqe.length >= MIN_LENGTH {
            return None;
        }
        let sge = wqe.only_element()?;
        let sequence = self.next;
        let is_usual = wqe.packets == 1
            && wqe.length > 0
            && sequence.since(self.una).saturating_add(1) < self.recovery.window.packets()
            && !self.reads.gaps.is_wanted()
            && !self.barrier.is_some()
            //= R-QP-28
            && !wqe.flags.contains(SendFlags::FENCE);
        if !is_usual {
            return None;
        }
        let headers = Headers {
            opcode: Opcode::SEND_ONLY,
            //= R-QP-76
            solicited: wqe.flags.contains(SendFlags::SOLICITED),
            ack_req: true,
            psn: self.psns.psn(sequence),
            ext: Ext::None,
        };
        let built = build_frame(link, env, slot, &headers, wqe.length as usize, |frame| {
            env.regions.read_local(env.qp.pd, sge, 0, wqe.length, frame)
        });
        Some(match built {
            Ok(Ok(length)) => {
                self.sent(env, sequence.next(), true);
                Ok(length)
            }
            Ok(Err(AccessError)) => Err(self.barrier.unreadable(sequence, &self.send_queue)),
            Err(failure) => Err(failure.into()),
        })
    }

    /// Writes the next request packet, of any kind.
    #[inline(never)]
    fn transmit_any<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        link: &Link,
        rate: &RateLimiter,
        slot: &mut [u8],
        copy: &mut Option<PayloadCopy>,
    ) -> Result<usize, Unsent> {
        if self.reads.gaps.is_wanted() {
            if let Some(sent) = self.request_again(env, link, slot) {
                return Ok(sent?);
            }
            if !self.wants_to_send() {
                return Err(Unsent::Idle);
            }
        }
        let wqe = self.send_queue.get(self.position.index).ok_or(Unsent::Idle)?;
        if self.next >= wqe.end() || self.barrier.is(wqe.first) {
            return Err(Unsent::Idle);
        }
        //= R-QP-28
        if wqe.flags.contains(SendFlags::FENCE) && self.position.reads_before > 0 {
            return Err(Unsent::Idle);
        }
        let in_flight = self.next.since(self.una);
        let mut window = self.recovery.window.packets();
        if in_flight.saturating_add(1) >= window {
            if self.recovery.is_overdue(self.una, env.now) {
                // What was resent is lost again, and nothing else tells.
                self.lost(env)?;
                let wants = self.wants_to_send();
                return if wants { self.transmit(env, link, rate, slot, copy) } else { Err(Unsent::Idle) };
            }
            window = if wqe.is_read() && self.reads.gaps.is_active() {
                // What has arrived is not in flight.
                self.recovery.window.reaching_over(self.reads.stored())
            } else {
                self.recovery.extended_window(self.una)
            };
        }
        // What is sent again to have a loss reported may be anywhere up to the newest packet.
        let is_newest = self.next.next() == self.high;
        if in_flight >= window && !is_newest && !self.recovery.is_resending(self.next, self.high) {
            return Err(Unsent::Idle);
        }
        let sequence = self.next;
        let into = sequence.since(wqe.first);
        // Below the length, which is a `u32`.
        let offset = (into as u32).wrapping_mul(self.mtu);
        let rest = wqe.length.saturating_sub(offset);
        let (first, last) = (into == 0, sequence.next() == wqe.end());

        if wqe.is_read() {
            return self.request_responses(env, link, slot, in_flight);
        }

        let len = rest.min(self.mtu);
        // The first and the last packet of those that are resent request an ACK, so that a repeated loss is found early.
        let again = sequence < self.high;
        // The first packet of a burst measures the path without the queue of the others.
        let measures_path = in_flight == 0 && !last && self.recovery.window.is_unmeasured();
        let ack_req = last
            || measures_path
            || sequence.has_all(self.ack_mask)
            || in_flight.saturating_add(1) >= window
            || (again
                && (in_flight == 0 || self.recovery.ends_run(sequence) || sequence.next() == self.high))
            || (rate.is_limited()
                && rate.requests_ack(env.now, len, self.recovery.timeout.awaits_ack(self.una)));
        let immediate = self.send_queue.immediate(wqe);
        let headers = Headers {
            opcode: opcode(wqe.operation, immediate.is_some(), first, last),
            //= R-QP-76
            solicited: last && wqe.flags.contains(SendFlags::SOLICITED),
            ack_req,
            psn: self.psns.psn(sequence),
            ext: ext(wqe.operation, immediate, wqe.length, first, last),
        };
        let payload = self.send_queue.payload(wqe);
        let cursor = &mut self.position.cursor;
        if len >= MIN_LENGTH
            && let Payload::Sges(sges) = payload
            && let Some(pieces) = Pieces::collect(cursor, sges, offset, len)
        {
            let packet = RequestPacket { ack_req, measures_path };
            *copy = Some(PayloadCopy::of_request(headers, len, pieces, packet));
            return Err(Unsent::Copying);
        }
        let built = build_frame(link, env, slot, &headers, len as usize, |frame| {
            payload.copy(env, cursor, (offset, len), frame)
        })?;
        let Ok(length) = built else {
            let first = wqe.first;
            return Err(self.barrier.unreadable(first, &self.send_queue));
        };
        self.sent(env, sequence.next(), ack_req);
        if measures_path {
            self.recovery.sample_path();
        }
        Ok(length)
    }

    /// Accounts for the packet at the requester's position, whose payload was copied without the lock. Returns the length of its
    /// frame, which is `copied`.
    #[inline]
    pub(crate) fn finish_copy<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        copy: &PayloadCopy,
        packet: RequestPacket,
        copied: Result<usize, AccessError>,
    ) -> Result<usize, Unsent> {
        let Ok(len) = copied else {
            let wqe = self.send_queue.get(self.position.index).ok_or(Unsent::Idle)?;
            return Err(self.barrier.unreadable(wqe.first, &self.send_queue));
        };
        env.built(copy.length as usize);
        self.sent(env, self.next.next(), packet.ack_req);
        if packet.measures_path {
            self.recovery.sample_path();
        }
        Ok(len)
    }
}

/// Returns the extended headers of a packet of a SEND, or of a WRITE of `length` bytes, with the immediate data that the last
/// packet has.
#[inline]
pub(in crate::transport) const fn ext(
    operation: SendOperation,
    immediate: Option<[u8; 4]>,
    length: u32,
    first: bool,
    last: bool,
) -> Ext {
    let immediate = if last { immediate } else { None };
    match (operation, immediate) {
        //= R-QP-49
        //= R-QP-50
        (SendOperation::Write { address, key }, None) if first => {
            Ext::Reth(RethRepr { address, r_key: key, length })
        }
        (SendOperation::Write { address, key }, Some(data)) if first => {
            Ext::RethImm(RethRepr { address, r_key: key, length }, ImmDtRepr { data })
        }
        (_, Some(data)) => Ext::Imm(ImmDtRepr { data }),
        (SendOperation::SendInvalidate { key }, None) if last => Ext::Ieth(IethRepr { r_key: key }),
        _ => Ext::None,
    }
}

/// Returns the opcode of a packet of a SEND or WRITE.
//= rocev2 §4
pub(in crate::transport) const fn opcode(
    operation: SendOperation,
    immediate: bool,
    first: bool,
    last: bool,
) -> Opcode {
    match (operation, first, last) {
        (SendOperation::Write { .. }, true, true) if immediate => Opcode::WRITE_ONLY_IMM,
        (SendOperation::Write { .. }, true, true) => Opcode::WRITE_ONLY,
        (SendOperation::Write { .. }, true, false) => Opcode::WRITE_FIRST,
        (SendOperation::Write { .. }, false, false) => Opcode::WRITE_MIDDLE,
        (SendOperation::Write { .. }, false, true) if immediate => Opcode::WRITE_LAST_IMM,
        (SendOperation::Write { .. }, false, true) => Opcode::WRITE_LAST,
        (SendOperation::SendInvalidate { .. }, true, true) => Opcode::SEND_ONLY_INVALIDATE,
        (SendOperation::SendInvalidate { .. }, false, true) => Opcode::SEND_LAST_INVALIDATE,
        (_, true, true) if immediate => Opcode::SEND_ONLY_IMM,
        (_, true, true) => Opcode::SEND_ONLY,
        (_, true, false) => Opcode::SEND_FIRST,
        (_, false, false) => Opcode::SEND_MIDDLE,
        (_, false, true) if immediate => Opcode::SEND_LAST_IMM,
        (_, false, true) => Opcode::SEND_LAST,
    }
}
