// SPDX-License-Identifier: MIT OR Apache-2.0

//! Stores READ responses, in order or not, and requests again those that are missing (IBTA Volume 1, section 9.7).
//!
//! Responses after a gap are stored if all requests from the oldest one to theirs are READs, of which no earlier one writes the
//! same memory ([`super::sinks`]). [`super::gaps`] decides what is requested again. Without early placement nothing
//! after a gap is stored, and the requester goes back.

use crate::transport::sequence::Sequence;
use lock_api::RawMutex;

use super::gaps::Progress;
use crate::region::access_rights::AccessError;
use crate::sge_cursor::{SgeCursor, TooShort};
use crate::trace::TraceEvent;
use crate::transport::env::Env;
use crate::transport::out_of_order::Placement;
use crate::transport::packet::frame::{Unsent, build_frame};
use crate::transport::packet::payload_copy::{Copying, MIN_LENGTH};
use crate::transport::packet::pieces::Pieces;
use crate::transport::packet::placement as packet_placement;
use crate::transport::rc_transport::RcTransport;
use crate::transport::requester::Requester;
use crate::transport::requester::send_queue::{Payload, SendQueue, Wqe};
use crate::work::{CompletionStatus, SendOperation, Sge};
use roce_wire::{Ext, Headers, Opcode, Packet};

/// Returns the READ that the response at `sequence` belongs to, if all requests before it are READs.
fn read_at(queue: &SendQueue, sequence: Sequence) -> Option<&Wqe> {
    // As many as there are chunks in flight, at most.
    (0..u32::from(u8::MAX))
        .map_while(|index| queue.get(index).filter(|wqe| wqe.is_read() && wqe.first <= sequence))
        .find(|wqe| sequence < wqe.end())
}

/// Returns the end of the chunk of the response at `sequence`, if that is one of [`read_at`].
fn chunk_end(queue: &SendQueue, sequence: Sequence) -> Option<Sequence> {
    read_at(queue, sequence).map(|wqe| Requester::chunk_end(wqe, sequence))
}

/// Returns whether a response begins an answer that is not the answer to the request for its whole chunk.
fn begins_within_chunk(wqe: &Wqe, sequence: Sequence, packet: &Packet<'_>) -> bool {
    packet.info().first && Requester::chunk_first(wqe, sequence) != sequence
}

impl RcTransport {
    /// Handles the READ response at `sequence`. It may set `placement` instead of copying the payload:
    /// [`RcTransport::response_stored`] then follows.
    pub(crate) fn handle_read_response<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: Sequence,
        packet: &Packet<'_>,
        placement: &mut Option<packet_placement::Placement>,
    ) {
        //= rocev2 §7
        if sequence < self.requester.una {
            self.write_response_again(env, sequence, packet);
            return;
        }
        // A READ response acknowledges everything before it.
        if !self.advance(env, sequence) {
            self.handle_response_after_gap(env, sequence, packet);
            return;
        }
        let Some(wqe) = self.send_queue.front().filter(|wqe| wqe.is_read()) else {
            self.fail(env, Some(CompletionStatus::BadResponse));
            return;
        };
        if !self.fits(wqe, sequence, packet) {
            self.fail(env, Some(CompletionStatus::BadResponse));
            return;
        }
        let mut sink = self.requester.response_cursor;
        if let Some(pieces) = self.response_pieces(wqe, &mut sink, sequence, packet) {
            *placement = Some(packet_placement::Placement::Response { pieces, end: sink });
            self.copying = Some(Copying::Packet);
            return;
        }
        let stored = self.store_response(env, wqe, &mut sink, sequence, packet);
        self.response_stored(env, packet, sink, stored);
    }

    /// Returns the pieces of the READ's memory that the payload of a response takes, and advances `sink` over them. Returns `None` if
    /// the payload is short, or there are too many pieces.
    fn response_pieces(
        &self,
        wqe: &Wqe,
        sink: &mut SgeCursor,
        sequence: Sequence,
        packet: &Packet<'_>,
    ) -> Option<Pieces> {
        let length = packet.payload().len() as u32;
        match self.send_queue.payload(wqe) {
            Payload::Sges(sges) if length >= MIN_LENGTH => {
                Pieces::collect(sink, sges, self.response_offset(wqe, sequence), length)
            }
            _ => None,
        }
    }

    /// Accounts for the response that was the oldest missing one, whose payload is `stored` in the READ's memory before `sink`.
    pub(crate) fn response_stored<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
        sink: SgeCursor,
        stored: Result<(), AccessError>,
    ) {
        let sequence = self.requester.una;
        //= R-QP-43
        let Some(wqe) = self.send_queue.front().filter(|_| stored.is_ok()) else {
            self.fail(env, Some(CompletionStatus::LocalProtection));
            return;
        };
        let begins = begins_within_chunk(wqe, sequence, packet);
        let requester = &mut self.requester;
        requester.response_cursor = sink;
        requester.response_received(sequence, env.now);
        requester.newest_after_gap = None;
        // Stored responses count now.
        let kept = u64::from(requester.out_of_order.take_contiguous(sequence));
        if !self.accept_responses(env, sequence.next().add(kept)) {
            return;
        }
        // Before losses are looked for: they use no retry of a peer that answers.
        self.requester.handle_progress(env.now);
        if self.requester.gaps.is_active() {
            self.find_gaps(env, sequence, begins);
        }
    }

    /// Accounts for the responses up to `end`, all of which are stored, and completes their READs. Returns `false` if that fails.
    fn accept_responses<R: RawMutex>(&mut self, env: &Env<'_, R>, end: Sequence) -> bool {
        while let Some(wqe) = self.send_queue.front().filter(|wqe| wqe.is_read()) {
            let requester = &mut self.requester;
            let before = requester.una;
            requester.una = wqe.end().min(end);
            requester.responses_received(wqe, before);
            //= R-CQ-57
            if requester.una < wqe.end() {
                break;
            }
            if wqe.invalidates_sink() && !self.invalidate_sink(env) {
                self.fail(env, Some(CompletionStatus::MemoryManagement));
                return false;
            }
            self.complete_oldest(env);
            if self.requester.una >= end {
                self.advance_acknowledged(env);
                break;
            }
        }
        true
    }

    /// Invalidates the key of the first element of the oldest READ, which is complete. Returns `false` if there is none,
    /// or if it cannot be invalidated.
    //= R-QP-85
    //= R-QP-86
    #[inline(never)]
    fn invalidate_sink<R: RawMutex>(&self, env: &Env<'_, R>) -> bool {
        let Some(Payload::Sges([first, ..])) =
            self.send_queue.front().map(|wqe| self.send_queue.payload(wqe))
        else {
            return false;
        };
        env.shared.regions.invalidate(env.qp.scope(), first.key).is_ok()
    }

    /// Returns the offset of the payload of a response in the READ's memory.
    #[inline]
    fn response_offset(&self, wqe: &Wqe, sequence: Sequence) -> u32 {
        sequence.since(wqe.first).saturating_mul(u64::from(self.requester.mtu)) as u32
    }

    /// Returns whether a response has the expected length and ends the chunk where it must.
    fn fits(&self, wqe: &Wqe, sequence: Sequence, packet: &Packet<'_>) -> bool {
        let offset = self.response_offset(wqe, sequence);
        let expected = wqe.length.saturating_sub(offset).min(self.requester.mtu);
        // After a loss a responder may start with First or continue with Middle (rocev2 §6), and ends where the request for what
        // is missing does, but it must end at the end of the chunk.
        let ends = sequence.next() == Requester::chunk_end(wqe, sequence);
        let last = packet.info().last;
        (last == ends || last && self.requester.gaps.has_asked())
            && packet.payload().len() == expected as usize
    }

    /// Copies the payload of a response to the READ's memory.
    #[inline]
    fn store_response<R: RawMutex>(
        &self,
        env: &Env<'_, R>,
        wqe: &Wqe,
        sink: &mut SgeCursor,
        sequence: Sequence,
        packet: &Packet<'_>,
    ) -> Result<(), AccessError> {
        self.at_response(wqe, sink, sequence, packet.payload(), |sge, within, bytes| {
            env.regions.write_local(env.qp.pd, sge, within, bytes)
        })
    }

    /// Returns whether the READ's memory holds the payload of a response.
    #[inline(never)]
    fn holds_response<R: RawMutex>(
        &self,
        env: &Env<'_, R>,
        wqe: &Wqe,
        mut sink: SgeCursor,
        sequence: Sequence,
        packet: &Packet<'_>,
    ) -> bool {
        let held = self.at_response(wqe, &mut sink, sequence, packet.payload(), |sge, within, bytes| {
            let held = env.regions.holds_local(env.qp.pd, sge, within, bytes);
            held.then_some(()).ok_or(AccessError)
        });
        held.is_ok()
    }

    /// Calls `each` for the pieces of the READ's memory that the payload of a response takes.
    #[inline]
    fn at_response(
        &self,
        wqe: &Wqe,
        sink: &mut SgeCursor,
        sequence: Sequence,
        payload: &[u8],
        mut each: impl FnMut(&Sge, u32, &[u8]) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        let Payload::Sges(sges) = self.send_queue.payload(wqe) else { return Err(AccessError) };
        let offset = self.response_offset(wqe, sequence);
        let mut rest = payload;
        sink.seek(sges, offset).map_err(|TooShort| AccessError)?;
        sink.walk(sges, payload.len() as u32, AccessError, |sge, within, len| {
            let (now, later) = rest.split_at_checked(len as usize).ok_or(AccessError)?;
            rest = later;
            each(sge, within, now)
        })
    }

    /// Handles a response that arrived after a gap: stores it, and requests again what is lost.
    #[inline(never)]
    fn handle_response_after_gap<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: Sequence,
        packet: &Packet<'_>,
    ) {
        if env.shared.config.early_placement
            && let Some(wqe) = read_at(&self.send_queue, sequence)
        {
            let begins = begins_within_chunk(wqe, sequence, packet);
            if self.store_out_of_order_response(env, sequence, packet) {
                self.find_gaps(env, sequence, begins);
            }
            return;
        }
        let requester = &mut self.requester;
        // Responses that were in flight when the requester went back report nothing new. A PSN that does
        // not rise does: the responder started again, and the same response was lost again.
        let again = requester.newest_after_gap.replace(sequence).is_some_and(|last| sequence <= last);
        if again || requester.recovery.is_unhandled_loss(requester.una, requester.next) {
            self.implied_nak(env);
        }
    }

    /// Looks for losses that the response at `sequence` shows, which is stored.
    #[inline(never)]
    fn find_gaps<R: RawMutex>(&mut self, env: &Env<'_, R>, sequence: Sequence, begins: bool) {
        let (requester, queue) = (&mut self.requester, &self.send_queue);
        let (una, high, stored) = (requester.una, requester.high, &requester.out_of_order);
        let progress = Progress { una, high, stored };
        let time = (env.now, requester.recovery.round_trip());
        if requester.gaps.handle_response(progress, (sequence, begins), time, |at| chunk_end(queue, at)) {
            self.responses_lost(env);
        }
    }

    /// An acknowledgement of everything before `end` shows that responses were lost that are missing: they were sent before it.
    pub(crate) fn handle_ack_after_gap<R: RawMutex>(&mut self, env: &Env<'_, R>, end: Sequence) {
        let (requester, queue) = (&mut self.requester, &self.send_queue);
        requester.acknowledged = requester.acknowledged.max(end);
        let (una, high, stored) = (requester.una, requester.high, &requester.out_of_order);
        let progress = Progress { una, high, stored };
        if requester.gaps.handle_ack(progress, end, |at| chunk_end(queue, at)) {
            self.responses_lost(env);
        }
    }

    /// Handles a sequence NAK while responses are missing. Returns `false` if it does not report the request for one of their
    /// chunks.
    pub(crate) fn handle_lost_request<R: RawMutex>(&mut self, env: &Env<'_, R>, sequence: Sequence) -> bool {
        if !env.shared.config.early_placement {
            return false;
        }
        let (requester, queue) = (&mut self.requester, &self.send_queue);
        let newest = requester.high.previous();
        let (Some(wqe), Some(last)) = (read_at(queue, sequence), read_at(queue, newest)) else {
            return false;
        };
        let newest = Requester::chunk_first(last, newest);
        if Requester::chunk_first(wqe, sequence) != sequence {
            return false;
        }
        let (una, high, stored) = (requester.una, requester.high, &requester.out_of_order);
        let progress = Progress { una, high, stored };
        let time = (env.now, requester.recovery.round_trip());
        if requester.gaps.handle_nak(progress, [sequence, newest], time, |at| chunk_end(queue, at)) {
            self.responses_lost(env);
        }
        true
    }

    /// Asks for the oldest chunk that misses responses after a timeout. Returns `false` if another request than READs is
    /// outstanding, which may be lost, too.
    pub(crate) fn probe_for_responses<R: RawMutex>(&mut self, env: &Env<'_, R>) -> bool {
        let requester = &mut self.requester;
        let Some(end) = chunk_end(&self.send_queue, requester.una) else { return false };
        let newest = read_at(&self.send_queue, requester.high.previous());
        if !env.shared.config.early_placement || requester.una >= requester.high || newest.is_none() {
            return false;
        }
        requester.gaps.probe(requester.una, end);
        requester.recovery.record_repair(requester.high);
        true
    }

    /// Accounts for a loss of responses that are to be requested again.
    fn responses_lost<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        env.stats.implied_naks.inc();
        let requester = &mut self.requester;
        if requester.recovery.may_retry(env.now) {
            requester.recovery.record_repair(requester.high);
            requester.recovery.restart_timeout(env.now);
        } else {
            self.fail(env, Some(CompletionStatus::RetryExceeded));
        }
    }

    /// Writes the next request for missing responses. Returns `None` if there is none.
    #[inline(never)]
    pub(crate) fn request_again<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        slot: &mut [u8],
    ) -> Option<Result<usize, Unsent>> {
        // As many chunks as there are at most: one that is complete by now is not requested.
        while self.requester.gaps.is_wanted() {
            let requester = &mut self.requester;
            let progress =
                Progress { una: requester.una, high: requester.high, stored: &requester.out_of_order };
            let again = requester.gaps.next(progress);
            let found = again.and_then(|again| Some((again, read_at(&self.send_queue, again.first)?)));
            let Some((again, wqe)) = found else {
                requester.gaps.sent(progress, None, env.now);
                continue;
            };
            let SendOperation::Read { address, key } = wqe.operation else { return None };
            let reth = requester.part(wqe, again.first, again.end, address, key);
            let psn = requester.psns.psn(again.first);
            let headers = Headers {
                opcode: Opcode::READ_REQUEST,
                solicited: false,
                ack_req: true,
                psn,
                ext: Ext::Reth(reth),
            };
            let built = build_frame(self.link.as_ref(), env, slot, &headers, 0, |_| Ok::<_, AccessError>(()));
            let built = match built {
                Ok(built) => built.map_err(|_| Unsent::Failed),
                Err(unsent) => return Some(Err(unsent)),
            };
            requester.gaps.sent(progress, Some(again), env.now);
            env.stats.retransmissions.inc();
            env.trace(psn, TraceEvent::Retransmitted);
            return Some(built);
        }
        None
    }

    /// Stores a response that arrived after a gap, unless it has to wait for earlier READs: then it is lost. Returns whether it
    /// was missing.
    fn store_out_of_order_response<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: Sequence,
        packet: &Packet<'_>,
    ) -> bool {
        if !self.requester.out_of_order.reach(self.requester.una, sequence) {
            return false;
        }
        let requester = &mut self.requester;
        if !requester.sinks.may_store(&self.send_queue, requester.una, sequence) {
            return true;
        }
        let Some(wqe) = read_at(&self.send_queue, sequence) else { return false };
        let requester = &self.requester;
        // The cursor is that of the oldest READ.
        let mut sink = if wqe.first <= requester.una { requester.response_cursor } else { SgeCursor::START };
        match requester.out_of_order.place(requester.una, sequence) {
            Placement::Store
                if self.fits(wqe, sequence, packet)
                    && self.store_response(env, wqe, &mut sink, sequence, packet).is_ok() =>
            {
                self.requester.out_of_order.record(sequence);
                self.requester.response_received(sequence, env.now);
                true
            }
            Placement::Compare if !self.holds_response(env, wqe, sink, sequence, packet) => {
                let first = Requester::chunk_first(wqe, sequence);
                self.requester.out_of_order.forget(sequence);
                self.requester.gaps.forget(first);
                false
            }
            _ => false,
        }
    }

    /// Writes a response again that follows in order after a filled gap: the packet stored in its place may have been
    /// forged.
    #[inline(never)]
    fn write_response_again<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: Sequence,
        packet: &Packet<'_>,
    ) {
        let Some(wqe) = self.send_queue.front().filter(|wqe| wqe.is_read() && sequence >= wqe.first) else {
            return;
        };
        if self.fits(wqe, sequence, packet) && self.requester.out_of_order.follows(sequence) {
            let mut sink = self.requester.response_cursor;
            // It was writable before.
            let _ = self.store_response(env, wqe, &mut sink, sequence, packet);
        }
    }
}
