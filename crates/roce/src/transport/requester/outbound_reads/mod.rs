// SPDX-License-Identifier: MIT OR Apache-2.0

//! READs of this side: which responses have arrived, in order or not, and which are requested again
//! (IBTA Volume 1, section 9.7).
//!
//! Responses after a gap are stored if all requests from the oldest one to theirs are READs, of which no earlier one writes the
//! same memory ([`sinks`]). [`gaps`] decides what is requested again. Without early placement nothing after a gap is stored, and
//! the requester goes back.

pub(crate) mod gaps;
pub(crate) mod response;
pub(crate) mod sinks;

use core::mem::offset_of;

use lock_api::RawMutex;

use self::gaps::{Next, Progress, ReadGaps, Repeat};
use self::response::Response;
use self::sinks::ReadSinks;
use super::recovery::round_trip::{Measured, ReadSample};
use super::recovery::window::reads::MANY_READS;
use super::send_queue::{SendQueue, Wqe};
use crate::config::Config;
use crate::error::CreateError;
use crate::sge_cursor::SgeCursor;
use crate::time::Instant;
use crate::transport::env::Env;
use crate::transport::out_of_order::{Handling, OutOfOrder};
use crate::transport::sequence::Sequence;
use roce_wire::{Packet, RethRepr};

/// The outstanding READs. What each packet uses comes last: see [`cache_lines`](crate::transport::cache_lines).
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Reads {
    /// Limit of outstanding READ request packets.
    limit: u32,
    /// Outstanding READ request packets.
    in_flight: u32,
    /// The end of the last READ that was requested.
    end: Sequence,
    /// Position of the next response's payload in the oldest READ.
    pub(super) cursor: SgeCursor,
    /// Responses to that READ and to those after it that arrived after a gap.
    out_of_order: OutOfOrder,
    /// Which of them are stored.
    sinks: ReadSinks,
    /// The end of the responses that arrived after a gap and were not stored, because they had to wait for earlier READs.
    unstored: Sequence,
    sample: ReadSample,
    /// Everything before it is acknowledged but READs whose responses are missing.
    pub(super) acknowledged: Sequence,
    /// The newest response after a gap; `None` without a gap. Without early placement.
    newest_after_gap: Option<Sequence>,
    /// Which responses are requested again.
    pub(super) gaps: ReadGaps,
}

/// The send queue, and how far its requests are sent and answered.
#[derive(Clone, Copy)]
pub(super) struct Requested<'a> {
    pub(super) queue: &'a SendQueue,
    /// The oldest packet without an answer.
    pub(super) una: Sequence,
    /// The first packet that was never requested.
    pub(super) high: Sequence,
    /// Bytes per packet.
    pub(super) mtu: u32,
    pub(super) now: Instant,
    /// The round trip without queues, in nanoseconds.
    pub(super) round_trip: u64,
}

/// Result of the arrival of a response after a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// It is stored, or lost because it has to wait for earlier READs. `begins` as in [`Response::begins_within_chunk`]; the
    /// measurement is that of [`ReadSample::receive`].
    New { begins: bool, measured: Option<Measured> },
    /// It has no effect.
    Useless,
    /// It is not a response to one of the READs that may be stored.
    NotStorable,
}

impl<'a> Requested<'a> {
    /// Returns the READ that the response at `sequence` belongs to, if all requests before it are READs.
    pub(super) fn read_at(self, sequence: Sequence) -> Option<&'a Wqe> {
        // As many as there are chunks in flight, at most.
        (0..u32::from(u8::MAX))
            .map_while(|index| self.queue.get(index).filter(|wqe| wqe.is_read() && wqe.first <= sequence))
            .find(|wqe| sequence < wqe.end())
    }

    /// Returns the end of the chunk of the response at `sequence`, if that is one of [`Requested::read_at`].
    fn chunk_end(self, sequence: Sequence) -> Option<Sequence> {
        self.read_at(sequence).map(|wqe| wqe.chunk_end(sequence))
    }

    fn progress(self, stored: &'a OutOfOrder) -> Progress<'a> {
        Progress { una: self.una, high: self.high, stored }
    }
}

impl Reads {
    /// Offset from which on each packet uses this.
    pub(crate) const USUAL: usize = offset_of!(Self, gaps) + ReadGaps::USUAL;

    /// Without room.
    pub(super) const NONE: Self = Self {
        limit: 0,
        in_flight: 0,
        end: Sequence::ZERO,
        cursor: SgeCursor::START,
        out_of_order: OutOfOrder::EMPTY,
        sinks: ReadSinks::NEW,
        unstored: Sequence::ZERO,
        sample: ReadSample::NONE,
        acknowledged: Sequence::ZERO,
        newest_after_gap: None,
        gaps: ReadGaps::EMPTY,
    };

    /// Allocates room for as many responses and chunks as may be in flight.
    pub(super) fn initialize(&mut self, config: &Config) -> Result<(), CreateError> {
        self.out_of_order = OutOfOrder::try_new(config.most_in_flight())?;
        self.gaps = ReadGaps::try_new(config.max_reads.outbound)?;
        Ok(())
    }

    /// Forgets all responses. No request before `at` is outstanding, and none after it is sent.
    pub(super) fn reset(&mut self, at: Sequence) {
        self.in_flight = 0;
        (self.end, self.acknowledged) = (at, at);
        self.cursor = SgeCursor::START;
        self.out_of_order.clear();
        self.sinks = ReadSinks::NEW;
        self.unstored = Sequence::ZERO;
        self.sample = ReadSample::NONE;
        self.newest_after_gap = None;
        self.gaps.clear();
    }

    /// Returns the number of responses that have arrived after a gap.
    pub(super) const fn stored(&self) -> u64 {
        self.out_of_order.count() as u64
    }

    /// Sets the limit of outstanding READ request packets.
    pub(super) fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// Returns the limit of outstanding READ request packets.
    pub(super) const fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns whether READs may be posted.
    pub(crate) fn are_allowed(&self) -> bool {
        self.limit > 0
    }

    /// Returns whether another chunk may be requested now.
    pub(super) fn may_request(&self) -> bool {
        self.in_flight.saturating_add(self.gaps.extra()) < self.limit
    }

    /// Returns the end of the packets that a peer may store while it misses the one at `una`, which belongs to `oldest`. `high` is
    /// the first packet that was never sent. READs that were requested are requested again, so that the number of those in flight
    /// is known.
    pub(super) fn storable(&self, oldest: &Wqe, una: Sequence, high: Sequence) -> Sequence {
        let are_answered = una >= self.end;
        if are_answered { high } else { oldest.end() }
    }

    /// Returns whether the response fits, with `mtu` bytes per packet.
    pub(super) fn fits(&self, response: &Response<'_>, mtu: u32) -> bool {
        response.fits(mtu, self.gaps.has_asked())
    }

    /// Records a request for the chunk from `first` to `end`. `is_new` tells that it is requested for the first time.
    pub(super) fn record_request(&mut self, first: Sequence, end: Sequence, is_new: bool, now: Instant) {
        self.in_flight = self.in_flight.saturating_add(1);
        self.end = self.end.max(end);
        if is_new {
            // With few requests outstanding, the first response to one arrives after little of the window, the last one after all of it.
            let end = if self.limit < MANY_READS { end } else { first.next() };
            self.sample.request(first, end, now);
        }
    }

    /// Counts the chunks in flight again after the requester went back to `una`, in `oldest`: those before `resume` are not
    /// requested again. Without them, all chunks are.
    pub(super) fn go_back(&mut self, una: Sequence, kept: Option<(&Wqe, Sequence)>) {
        self.gaps.clear();
        self.sample.requested_again(una, Sequence::MAX);
        self.in_flight =
            kept.map_or(0, |(oldest, resume)| oldest.chunks_of(resume.since(oldest.chunk_end(una))));
    }

    /// Accounts for the responses to `wqe` from `before` up to `una`.
    pub(super) fn responses_received(&mut self, wqe: &Wqe, before: Sequence, una: Sequence) {
        let chunks = wqe.chunks_before(una).saturating_sub(wqe.chunks_before(before));
        self.in_flight = self.in_flight.saturating_sub(chunks);
    }

    /// Accounts for the oldest missing response, at `sequence`, whose payload is in the memory of the READ before `sink`. Returns
    /// the number of stored responses that follow it without a gap, and the measurement of [`ReadSample::receive`].
    pub(super) fn accept_next(
        &mut self,
        sequence: Sequence,
        sink: SgeCursor,
        now: Instant,
    ) -> (u32, Option<Measured>) {
        self.cursor = sink;
        self.newest_after_gap = None;
        let measured = self.sample.receive(sequence, now);
        (self.out_of_order.take_contiguous(sequence), measured)
    }

    /// Stores a response that arrived after a gap, unless it has to wait for earlier READs: then it is lost.
    pub(super) fn store<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        requested: Requested<'_>,
        sequence: Sequence,
        packet: &Packet<'_>,
    ) -> Stored {
        let Requested { queue, una, mtu, now, .. } = requested;
        let Some(wqe) = requested.read_at(sequence) else { return Stored::NotStorable };
        let response = Response::new(queue, wqe, mtu, sequence, packet);
        if !self.out_of_order.reach(una, sequence) {
            return Stored::Useless;
        }
        let begins = response.begins_within_chunk();
        if !self.sinks.may_store(queue, una, sequence) {
            self.unstored = self.unstored.max(sequence.next());
            return Stored::New { begins, measured: None };
        }
        // The cursor is that of the oldest READ.
        let mut sink = if wqe.first <= una { self.cursor } else { SgeCursor::START };
        match self.out_of_order.admit(una, sequence) {
            Handling::Store if self.fits(&response, mtu) && response.store(env, &mut sink).is_ok() => {
                self.out_of_order.record(sequence);
                Stored::New { begins, measured: self.sample.receive(sequence, now) }
            }
            Handling::Compare if !response.is_stored(env, sink) => {
                self.out_of_order.forget(sequence);
                self.gaps.forget(wqe.chunk_first(sequence));
                Stored::Useless
            }
            _ => Stored::Useless,
        }
    }

    /// Writes a response again that follows in order after a filled gap: the packet stored in its place may have been
    /// forged.
    #[inline(never)]
    pub(super) fn write_again<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        requested: Requested<'_>,
        sequence: Sequence,
        packet: &Packet<'_>,
    ) {
        let Requested { queue, mtu, .. } = requested;
        let oldest = queue.front().filter(|wqe| wqe.is_read() && sequence >= wqe.first);
        let Some(wqe) = oldest else { return };
        let response = Response::new(queue, wqe, mtu, sequence, packet);
        if self.fits(&response, mtu) && self.out_of_order.follows(sequence) {
            let mut sink = self.cursor;
            // It was writable before.
            let _ = response.store(env, &mut sink);
        }
    }

    /// Handles a response after a gap without early placement. Returns whether it shows again that an earlier one was lost:
    /// responses that were in flight when the requester went back report nothing new, but a PSN that does not rise does. The
    /// responder started again then, and the same response was lost again.
    pub(super) fn is_lost_again(&mut self, sequence: Sequence) -> bool {
        self.newest_after_gap.replace(sequence).is_some_and(|last| sequence <= last)
    }

    /// Looks for losses that the response at `sequence` shows, which is stored. Returns whether there are any.
    #[inline(never)]
    pub(super) fn find_losses(&mut self, requested: Requested<'_>, sequence: Sequence, begins: bool) -> bool {
        let time = (requested.now, requested.round_trip);
        let progress = requested.progress(&self.out_of_order);
        self.gaps.handle_response(progress, (sequence, begins), time, |at| requested.chunk_end(at))
    }

    /// Handles an acknowledgement of everything before `end`, while responses are missing. Returns whether responses were lost:
    /// those that are missing and were sent before it.
    pub(super) fn handle_ack(&mut self, requested: Requested<'_>, end: Sequence) -> bool {
        self.acknowledged = self.acknowledged.max(end);
        let progress = requested.progress(&self.out_of_order);
        self.gaps.handle_ack(progress, end, |at| requested.chunk_end(at))
    }

    /// Handles a sequence NAK while responses are missing. Returns whether responses were lost, or `None` if it does not report
    /// the request for one of their chunks.
    pub(super) fn handle_nak(&mut self, requested: Requested<'_>, sequence: Sequence) -> Option<bool> {
        let newest = requested.high.previous();
        let (wqe, last) = (requested.read_at(sequence)?, requested.read_at(newest)?);
        let newest = last.chunk_first(newest);
        if wqe.chunk_first(sequence) != sequence {
            return None;
        }
        let time = (requested.now, requested.round_trip);
        let progress = requested.progress(&self.out_of_order);
        Some(self.gaps.handle_nak(progress, [sequence, newest], time, |at| requested.chunk_end(at)))
    }

    /// Wants the oldest chunk that misses responses requested again, after a timeout. Returns `false` if another request than READs
    /// is outstanding, which may be lost, too.
    pub(super) fn probe(&mut self, requested: Requested<'_>) -> bool {
        let Requested { una, high, .. } = requested;
        let Some(end) = requested.chunk_end(una) else { return false };
        if una >= high || requested.read_at(high.previous()).is_none() {
            return false;
        }
        self.gaps.probe(una, end);
        true
    }

    /// Returns whether the responses from `sequence` on would be lost if they arrived now, as others were: an earlier READ misses responses,
    /// and writes the same memory.
    pub(super) fn must_wait(&mut self, requested: Requested<'_>, sequence: Sequence) -> bool {
        requested.una < self.unstored
            && requested.read_at(sequence).is_some()
            && !self.sinks.may_store(requested.queue, requested.una, sequence)
    }

    /// Returns the next request for missing responses, and the READ that they belong to. Returns `None` if there is none, or if these
    /// responses [have to wait](Self::must_wait) and were requested again before, or have to wait for answers.
    pub(super) fn next_repeat<'a>(&mut self, requested: Requested<'a>) -> Option<(Repeat, &'a Wqe)> {
        // As many chunks as there are at most: one that is complete by now is not requested.
        while self.gaps.is_wanted() {
            let progress = requested.progress(&self.out_of_order);
            let repeat = match self.gaps.next(progress, self.limit.saturating_sub(self.in_flight)) {
                Next::Repeat(repeat) => Some(repeat),
                Next::Complete => None,
                Next::Waits => return None,
            };
            if let Some((repeat, wqe)) =
                repeat.and_then(|repeat| Some((repeat, requested.read_at(repeat.first)?)))
            {
                // They show whether what the READs before them miss is lost again. More often, they would fill a full path.
                let waits = repeat.was_asked && self.must_wait(requested, repeat.first);
                return if waits { None } else { Some((repeat, wqe)) };
            }
            self.gaps.sent(progress, None, requested.now);
        }
        None
    }

    /// Records that the request of [`Reads::next_repeat`] was sent.
    pub(super) fn repeat_sent(&mut self, requested: Requested<'_>, repeat: Repeat) {
        let progress = requested.progress(&self.out_of_order);
        self.gaps.sent(progress, Some(repeat), requested.now);
        self.sample.requested_again(repeat.first, repeat.end);
    }
}

/// Returns the RETH of a request for the packets from `first` to `end` of `wqe`, a READ from `address` on, with `mtu` bytes per
/// packet.
pub(super) fn reth(
    wqe: &Wqe,
    mtu: u32,
    (first, end): (Sequence, Sequence),
    (address, key): (u64, u32),
) -> RethRepr {
    // Below the length, which is a `u32`.
    let offset = (first.since(wqe.first) as u32).wrapping_mul(mtu);
    let rest = u64::from(wqe.length.saturating_sub(offset));
    let length = end.since(first).saturating_mul(u64::from(mtu)).min(rest) as u32;
    RethRepr { address: address.wrapping_add(u64::from(offset)), r_key: key, length }
}
