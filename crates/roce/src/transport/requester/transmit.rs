// SPDX-License-Identifier: MIT OR Apache-2.0

//! The requester: sends the packets of the send queue in order, within the window, the READ limit and fences
//! (IBTA Volume 1, section 9.7).
//!
//! [`super::recovery`] decides what is sent again after a loss.

use crate::transport::sequence::Sequence;
use lock_api::RawMutex;

use super::Requester;
use super::send_queue::Payload;
use crate::region::access_rights::AccessError;
use crate::trace::TraceEvent;
use crate::transport::env::Env;
use crate::transport::packet::frame::{Unsent, build_frame};
use crate::transport::packet::payload_copy::{CopiedRequest, Copying, MIN_LENGTH, PayloadCopy};
use crate::transport::packet::pieces::Pieces;
use crate::transport::rc_transport::RcTransport;
use crate::transport::state::State;
use crate::work::{CompletionStatus, SendFlags, SendOperation};
use roce_wire::{Ext, Headers, IethRepr, Opcode, RethRepr};

impl RcTransport {
    /// Returns whether [`RcTransport::transmit_request`] may have a packet.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every packet")]
    pub(crate) fn wants_to_request(&self) -> bool {
        self.state == State::Rts
            && self.requester.recovery.rnr_until.is_none()
            && ((self.requester.next < self.send_queue.end() || self.send_queue.has_pending_local())
                && !self.requester.recovery.awaits_answer(self.requester.una, self.requester.next)
                || self.requester.waiting() && self.requester.gaps.is_wanted())
    }

    /// Writes the next request packet, if [`RcTransport::wants_to_request`].
    #[inline]
    pub(crate) fn transmit_request<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        slot: &mut [u8],
        copy: &mut Option<PayloadCopy>,
    ) -> Result<usize, Unsent> {
        self.skip_finished(env);
        self.transmit_plain_send(env, slot).unwrap_or_else(|| self.transmit_any_request(env, slot, copy))
    }

    /// Writes the next request packet if that is a short SEND of one packet and one element, and the window is not full. Returns
    /// `None`, and has changed nothing, if it is another one, or must wait.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "called in one place, for every small SEND")]
    fn transmit_plain_send<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        slot: &mut [u8],
    ) -> Option<Result<usize, Unsent>> {
        let requester = &self.requester;
        let wqe = self.send_queue.get(requester.index)?;
        if !matches!(wqe.operation, SendOperation::Send) || wqe.length >= MIN_LENGTH {
            return None;
        }
        let sge = wqe.only_element()?;
        let sequence = requester.next;
        let is_usual = wqe.packets == 1
            && wqe.length > 0
            && sequence.since(requester.una).saturating_add(1) < requester.recovery.window()
            && !requester.gaps.is_wanted()
            && requester.failed_request.is_none()
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
            psn: requester.psns.psn(sequence),
            ext: Ext::None,
        };
        let built = build_frame(self.link.as_ref(), env, slot, &headers, wqe.length as usize, |frame| {
            env.regions.read_local(env.qp.pd, sge, 0, wqe.length, frame)
        });
        Some(match built {
            Ok(Ok(length)) => {
                self.sent(env, sequence.next(), true);
                Ok(length)
            }
            Ok(Err(AccessError)) => Err(self.fail_request(env, sequence)),
            Err(unsent) => Err(unsent),
        })
    }

    /// [`RcTransport::transmit_request`] for any packet, of the request at the requester's position.
    #[inline(never)]
    fn transmit_any_request<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        slot: &mut [u8],
        copy: &mut Option<PayloadCopy>,
    ) -> Result<usize, Unsent> {
        if self.requester.gaps.is_wanted() {
            if let Some(sent) = self.request_again(env, slot) {
                return sent;
            }
            if !self.wants_to_request() {
                return Err(Unsent::Idle);
            }
        }
        let requester = &mut self.requester;
        let wqe = self.send_queue.get(requester.index).ok_or(Unsent::Idle)?;
        let failed = |(first, _)| first == wqe.first;
        if requester.next >= wqe.end() || requester.failed_request.is_some_and(failed) {
            return Err(Unsent::Idle);
        }
        //= R-QP-28
        if wqe.flags.contains(SendFlags::FENCE) && requester.reads_before > 0 {
            return Err(Unsent::Idle);
        }
        let in_flight = requester.next.since(requester.una);
        let mut window = requester.recovery.window();
        if in_flight.saturating_add(1) >= window {
            if requester.recovery.is_overdue(requester.una, env.now) {
                return self.resend_overdue(env, slot, copy);
            }
            window = requester.recovery.extended_window(requester.una);
        }
        // What is sent again to have a loss reported may be anywhere up to the newest packet.
        if in_flight >= window && !requester.recovery.is_resending(requester.next, requester.high) {
            return Err(Unsent::Idle);
        }
        let sequence = requester.next;
        let into = sequence.since(wqe.first);
        // Below the length, which is a `u32`.
        let offset = (into as u32).wrapping_mul(requester.mtu);
        let rest = wqe.length.saturating_sub(offset);
        let (first, last) = (into == 0, sequence.next() == wqe.end());

        if wqe.is_read() {
            return self.request_responses(env, slot, in_flight);
        }

        let len = rest.min(requester.mtu);
        // The first and the last packet of those that are resent request an ACK, so that a repeated loss is found early.
        let again = sequence < requester.high;
        // The first packet of a burst measures the path without the queue of the others.
        let measures_path = in_flight == 0 && !last && requester.recovery.is_unmeasured();
        let ack_req = last
            || measures_path
            || sequence.has_all(requester.ack_mask)
            || in_flight.saturating_add(1) >= window
            || (again && (in_flight == 0 || requester.recovery.ends_run(sequence)))
            || (self.rate.is_limited()
                && self.rate.requests_ack(env.now, len, requester.recovery.awaits_ack(requester.una)));
        let headers = Headers {
            opcode: opcode(wqe.operation, first, last),
            //= R-QP-76
            solicited: last && wqe.flags.contains(SendFlags::SOLICITED),
            ack_req,
            psn: requester.psns.psn(sequence),
            ext: ext(wqe.operation, wqe.length, first, last),
        };
        let payload = self.send_queue.payload(wqe);
        let cursor = &mut requester.cursor;
        if len >= MIN_LENGTH
            && let Payload::Sges(sges) = payload
            && let Some(pieces) = Pieces::collect(cursor, sges, offset, len)
        {
            *copy = Some(PayloadCopy::of_request(headers, pieces));
            let paced = self.rate.is_limited();
            self.copying =
                Some(Copying::Request(CopiedRequest { length: len, ack_req, measures_path, paced }));
            return Err(Unsent::Copying);
        }
        let built =
            build_frame(self.link.as_ref(), env, slot, &headers, len as usize, |frame| match payload {
                Payload::Inline(bytes) => {
                    let bytes = bytes.get(offset as usize..).unwrap_or_default();
                    frame.write(bytes.get(..len as usize).unwrap_or_default());
                    Ok(())
                }
                Payload::Sges(sges) => {
                    cursor.seek(sges, offset).map_err(|_| AccessError)?;
                    cursor.walk(sges, len, AccessError, |sge, within, len| {
                        env.regions.read_local(env.qp.pd, sge, within, len, frame)
                    })
                }
            })?;
        let Ok(length) = built else {
            let first = wqe.first;
            return Err(self.fail_request(env, first));
        };
        self.sent(env, sequence.next(), ack_req);
        if measures_path {
            self.requester.recovery.sample_path();
        }
        Ok(length)
    }

    /// What was resent is lost again, and nothing else tells: sends it once more.
    #[cold]
    #[inline(never)]
    fn resend_overdue<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        slot: &mut [u8],
        copy: &mut Option<PayloadCopy>,
    ) -> Result<usize, Unsent> {
        self.lost(env);
        if self.wants_to_request() { self.transmit_request(env, slot, copy) } else { Err(Unsent::Idle) }
    }

    /// Writes the request for the next chunk of the READ at the requester's position, with `in_flight` packets unacknowledged.
    #[inline(never)]
    fn request_responses<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        slot: &mut [u8],
        in_flight: u64,
    ) -> Result<usize, Unsent> {
        let requester = &mut self.requester;
        let sequence = requester.next;
        let is_new = sequence >= requester.high;
        let index = requester.index;
        if is_new && self.send_queue.get(index).is_some_and(|wqe| wqe.first == sequence) {
            self.send_queue.set_chunk(index, requester.recovery.chunk_shift());
        }
        let wqe = self.send_queue.get(index).ok_or(Unsent::Idle)?;
        let SendOperation::Read { address, key } = wqe.operation else { return Err(Unsent::Idle) };
        let end = Requester::chunk_end(wqe, sequence);
        let packets = end.since(sequence);
        let window = requester.recovery.read_window(requester.gaps.is_active());
        //= rocev2 §7
        //= R-QP-52
        if requester.reads_in_flight >= requester.max_reads
            || (in_flight > 0 && in_flight.saturating_add(packets) > window)
        {
            return Err(Unsent::Idle);
        }
        let reth = requester.part(wqe, sequence, end, address, key);
        let headers = Headers {
            opcode: Opcode::READ_REQUEST,
            solicited: false,
            ack_req: true,
            psn: requester.psns.psn(sequence),
            ext: Ext::Reth(reth),
        };
        let built = build_frame(self.link.as_ref(), env, slot, &headers, 0, |_| Ok::<_, AccessError>(()))?;
        requester.reads_in_flight = requester.reads_in_flight.saturating_add(1);
        requester.reads_end = requester.reads_end.max(end);
        if is_new {
            requester.read_sample.request(sequence, env.now);
        } else if requester.recovery.is_probe(sequence) && env.shared.config.early_placement {
            requester.gaps.record_request(sequence, end, requester.high, env.now);
        }
        self.sent(env, end, true);
        self.requester.recovery.sample_time_only();
        built.map_err(|_| Unsent::Failed)
    }

    /// Accounts for the packet at the requester's position, whose payload was copied without the lock.
    pub(crate) fn finish_request<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        copying: CopiedRequest,
        copied: Result<usize, AccessError>,
    ) -> Result<usize, Unsent> {
        let requester = &self.requester;
        let Ok(len) = copied else {
            let first = self.send_queue.get(requester.index).map(|wqe| wqe.first).ok_or(Unsent::Idle)?;
            return Err(self.fail_request(env, first));
        };
        env.built(copying.length as usize);
        self.sent(env, requester.next.next(), copying.ack_req);
        if copying.measures_path {
            self.requester.recovery.sample_path();
        }
        Ok(len)
    }

    /// The payload of the request that begins at `first` cannot be read.
    #[inline(never)]
    fn fail_request<R: RawMutex>(&mut self, env: &Env<'_, R>, first: Sequence) -> Unsent {
        //= R-QP-43
        //= R-QP-44
        self.requester.failed_request = Some((first, CompletionStatus::LocalProtection));
        self.finish_failed_request(env);
        Unsent::Idle
    }

    /// Accounts for the packets sent, up to `end`.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every packet")]
    fn sent<R: RawMutex>(&mut self, env: &Env<'_, R>, end: Sequence, ack_req: bool) {
        let requester = &mut self.requester;
        let recovery = &mut requester.recovery;
        if requester.next == requester.una {
            recovery.start_waiting(requester.una, env.now);
        }
        let sequence = requester.next;
        requester.next = end;
        let first = sequence >= requester.high;
        if ack_req {
            recovery.record_ack_request(requester.una, sequence, end, first, env.now);
        }
        if !first {
            env.stats.retransmissions.inc();
            env.trace(requester.psns.psn(sequence), TraceEvent::Retransmitted);
            requester.next = recovery.resume_after_resend(sequence, end);
        }
        requester.high = requester.high.max(requester.next);
    }
}

/// Returns the extended header of a packet of a SEND, or of a WRITE of `length` bytes.
#[inline]
const fn ext(operation: SendOperation, length: u32, first: bool, last: bool) -> Ext {
    match operation {
        //= R-QP-49
        //= R-QP-50
        SendOperation::Write { address, key } if first => Ext::Reth(RethRepr { address, r_key: key, length }),
        SendOperation::SendInvalidate { key } if last => Ext::Ieth(IethRepr { r_key: key }),
        _ => Ext::None,
    }
}

/// Returns the opcode of a packet of a SEND or WRITE.
//= rocev2 §4
const fn opcode(operation: SendOperation, first: bool, last: bool) -> Opcode {
    match (operation, first, last) {
        (SendOperation::Write { .. }, true, true) => Opcode::WRITE_ONLY,
        (SendOperation::Write { .. }, true, false) => Opcode::WRITE_FIRST,
        (SendOperation::Write { .. }, false, false) => Opcode::WRITE_MIDDLE,
        (SendOperation::Write { .. }, false, true) => Opcode::WRITE_LAST,
        (SendOperation::SendInvalidate { .. }, true, true) => Opcode::SEND_ONLY_INVALIDATE,
        (SendOperation::SendInvalidate { .. }, false, true) => Opcode::SEND_LAST_INVALIDATE,
        (_, true, true) => Opcode::SEND_ONLY,
        (_, true, false) => Opcode::SEND_FIRST,
        (_, false, false) => Opcode::SEND_MIDDLE,
        (_, false, true) => Opcode::SEND_LAST,
    }
}
