// SPDX-License-Identifier: MIT OR Apache-2.0

//! READ responses that are missing, and which of them are requested when.
//!
//! A READ is requested in chunks ([`crate::transport::requester`]). A chunk that misses responses although those after it arrive is
//! requested again, as far as it is missing. All such chunks are requested at once, so that any number of losses costs a round trip.
//!
//! Requests are answered in order. So what is missing still when a later request is answered is lost again:
//!
//! | answered | lost |
//! | --- | --- |
//! | the last response that was requested again of a chunk | what is missing of that chunk |
//! | a response that was requested again | chunks that were requested again before it |
//! | a chunk requested for the first time | chunks that were requested again before it |
//! | a request after READs | what is missing of all READs before it |
//! | the probe after a timeout | what is missing of all chunks requested before it |
//!
//! A chunk is requested from its first missing response on: rxe answers no repeated request for responses before those of the
//! last one, and continues the READ with Middle and Last. A peer that answers with First or Only takes each request for one of its
//! own: it is asked for each gap of a chunk by a request of its own. Where gaps are more than requests may be outstanding, those that
//! are far apart wait for answers to others, since one request for them would have everything between them sent again.

use crate::error::CreateError;
use crate::time::Instant;
use crate::transport::out_of_order::OutOfOrder;
use crate::transport::sequence::Sequence;
use alloc::vec::Vec;
use core::mem::offset_of;
use fallible::vec;

/// Responses after a chunk that show a loss in it: fewer may only have overtaken the missing one.
const REORDERED: u64 = 3;

/// Gaps of a chunk that are requested apart, as far as the peer has granted as many requests; the last one asks for the rest.
const MAX_GAPS: u8 = 16;

/// Packets from the first to the last gap of a chunk that are requested as one, rather than after a round trip, where no more requests
/// may be outstanding.
const CLOSE: u64 = 16;

/// The READ chunks that are requested again. What each packet uses comes last: see [`cache_lines`](crate::transport::cache_lines).
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ReadGaps {
    /// The first `count` are in use, in any order.
    chunks: Vec<Chunk>,
    count: usize,
    /// Chunks before it were looked at.
    frontier: Sequence,
    /// Number of the last request for a chunk.
    order: u64,
    /// End of the chunk whose request the peer reported lost last, [`Sequence::MAX`] for none.
    reported: Sequence,
    /// The peer drops requests after a lost one.
    peer_drops: bool,
    /// The peer answers each request as one of its own.
    as_gaps: bool,
    /// Chunks that are to be requested.
    wanted: u32,
}

/// A chunk that misses responses.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    first: Sequence,
    end: Sequence,
    step: Step,
    /// When it was last requested.
    at: Instant,
    /// Set once all missing responses were requested again.
    was_asked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Missing responses from `from` on are to be requested, after as many gaps.
    Wanted { from: Sequence, gaps: u8, probe: bool },
    /// Missing responses before `end` are requested, by `gaps` requests and one more; `high` is the first packet that was never
    /// requested at that time.
    Asked { end: Sequence, high: Sequence, order: u64, gaps: u8, probe: bool },
}

/// A request for responses that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repeat {
    pub(crate) first: Sequence,
    pub(crate) end: Sequence,
    /// Set if the missing responses of its chunk were requested again before.
    pub(crate) was_asked: bool,
    /// Set if the other missing responses of its chunk are requested once it is answered.
    pub(crate) others_wait: bool,
}

/// Result of looking for the next [`Repeat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Repeat(Repeat),
    /// The oldest chunk that is to be requested misses nothing.
    Complete,
    /// The oldest chunk that is to be requested has to wait for answers to other requests.
    Waits,
}

/// Responses that the requester has requested and received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress<'a> {
    /// The oldest missing response.
    pub(crate) una: Sequence,
    /// The first packet that was never requested.
    pub(crate) high: Sequence,
    /// Responses that arrived after `una`.
    pub(crate) stored: &'a OutOfOrder,
}

impl Progress<'_> {
    /// Returns the first missing response from `from` to before `end`.
    fn missing(&self, from: Sequence, end: Sequence) -> Option<Sequence> {
        // The bit of the oldest missing response may be that of one a ring behind it.
        if from <= self.una {
            return (self.una < end).then_some(self.una);
        }
        self.stored.first_missing(from, end)
    }

    /// Returns the end of the missing responses before `end`, of which the first is at `from`: of the gap or of all.
    fn missing_end(&self, from: Sequence, end: Sequence, gap: bool) -> Sequence {
        if gap {
            self.stored.first_stored(from.next(), end).unwrap_or(end)
        } else {
            self.stored.last_missing(from.next(), end).map_or(from.next(), Sequence::next)
        }
    }

    /// Returns whether one request for the missing responses from `from` to before `end` would have too many sent again.
    fn are_far_apart(&self, from: Sequence, end: Sequence) -> bool {
        self.missing(from, end).is_some_and(|first| self.missing_end(first, end, false).since(first) > CLOSE)
    }
}

impl ReadGaps {
    /// Offset from which on each packet uses this.
    pub(crate) const USUAL: usize = offset_of!(Self, wanted);

    /// Without room.
    pub(crate) const EMPTY: Self = Self {
        chunks: Vec::new(),
        count: 0,
        wanted: 0,
        frontier: Sequence::ZERO,
        order: 0,
        reported: Sequence::MAX,
        peer_drops: false,
        as_gaps: false,
    };

    /// Allocates room for as many chunks as may be in flight.
    pub(crate) fn try_new(chunks: u8) -> Result<Self, CreateError> {
        let none = Chunk {
            first: Sequence::ZERO,
            end: Sequence::ZERO,
            step: Step::Wanted { from: Sequence::ZERO, gaps: 0, probe: false },
            at: Instant::from_nanos(0),
            was_asked: false,
        };
        Ok(Self { chunks: vec::filled(usize::from(chunks), none)?, ..Self::EMPTY })
    }

    /// Returns whether a chunk is to be requested.
    #[inline]
    pub(crate) const fn is_wanted(&self) -> bool {
        self.wanted > 0
    }

    /// Returns whether there are chunks that miss responses.
    #[inline]
    pub(crate) const fn is_active(&self) -> bool {
        self.count > 0
    }

    /// Returns whether responses were requested again.
    pub(crate) const fn has_asked(&self) -> bool {
        self.order > 0
    }

    /// Forgets all chunks: everything is requested again in another way.
    pub(crate) fn clear(&mut self) {
        (self.count, self.wanted, self.frontier) = (0, 0, Sequence::ZERO);
    }

    /// A response of the chunk from `first` on that had arrived is missing again.
    pub(crate) fn forget(&mut self, first: Sequence) {
        self.frontier = self.frontier.min(first);
    }

    #[inline(never)]
    fn retain(&mut self, keep: impl Fn(&Chunk) -> bool) {
        let mut kept = 0usize;
        for at in 0..self.count {
            let Some(&chunk) = self.chunks.get(at) else { break };
            if keep(&chunk) {
                if let Some(slot) = self.chunks.get_mut(kept) {
                    *slot = chunk;
                }
                kept = kept.saturating_add(1);
            }
        }
        self.count = kept;
        self.count_wanted();
    }

    fn count_wanted(&mut self) {
        let wanted = self.active().filter(|chunk| matches!(chunk.step, Step::Wanted { .. })).count();
        self.wanted = wanted as u32;
    }

    fn active(&self) -> impl Iterator<Item = &Chunk> {
        self.chunks.iter().take(self.count)
    }

    fn active_mut(&mut self) -> impl Iterator<Item = &mut Chunk> {
        self.chunks.iter_mut().take(self.count)
    }

    fn find(&mut self, sequence: Sequence) -> Option<&mut Chunk> {
        self.active_mut().find(|chunk| (chunk.first..chunk.end).contains(&sequence))
    }

    /// Requests the chunk from `first` to `end` again.
    fn want(&mut self, first: Sequence, end: Sequence, probe: bool) {
        let step = Step::Wanted { from: first, gaps: 0, probe };
        if let Some(chunk) = self.find(first) {
            chunk.step = step;
        } else if let Some(slot) = self.chunks.get_mut(self.count) {
            *slot = Chunk { first, end, step, at: Instant::from_nanos(0), was_asked: false };
            self.count = self.count.saturating_add(1);
        }
    }

    /// Looks at the chunks before `end` for the first time, and requests those again that miss responses. `chunk_end` returns the
    /// end of the chunk of a packet, if that is a READ's. Returns whether there is one.
    fn advance(
        &mut self,
        progress: Progress<'_>,
        end: Sequence,
        mut chunk_end: impl FnMut(Sequence) -> Option<Sequence>,
    ) -> bool {
        let mut found = false;
        self.frontier = self.frontier.max(progress.una);
        while let Some(next) = chunk_end(self.frontier).filter(|&next| next <= end) {
            let first = self.frontier;
            if progress.missing(first, next).is_some() && self.find(first).is_none() {
                self.want(first, next, false);
                found = true;
            }
            self.frontier = next;
        }
        found
    }

    /// Requests chunks again that were requested before, and for which `is_lost` returns true, given the order of the request and
    /// the first packet that was never requested then. Returns whether there is one.
    fn lose(&mut self, progress: Progress<'_>, is_lost: impl Fn(&Chunk, u64, Sequence) -> bool) -> bool {
        let mut found = false;
        for chunk in self.active_mut() {
            if let Step::Asked { high, order, .. } = chunk.step
                && is_lost(chunk, order, high)
                && progress.missing(chunk.first, chunk.end).is_some()
            {
                chunk.step = Step::Wanted { from: chunk.first, gaps: 0, probe: false };
                found = true;
            }
        }
        found
    }

    /// Handles a response after a gap, or one in order while chunks are requested again. Returns whether it shows a loss.
    /// `begins` tells that it is a First or Only within a chunk; `round_trip` is in nanoseconds, `chunk_end` as in
    /// [`ReadGaps::advance`].
    #[inline(never)]
    pub(crate) fn handle_response(
        &mut self,
        progress: Progress<'_>,
        (sequence, begins): (Sequence, bool),
        (now, round_trip): (Instant, u64),
        chunk_end: impl FnMut(Sequence) -> Option<Sequence>,
    ) -> bool {
        let asked = self.find(sequence).and_then(|chunk| match chunk.step {
            Step::Asked { end, high, order, probe, .. } if sequence < end => Some((end, high, order, probe)),
            _ => None,
        });
        let mut end = sequence.next();
        let found = if let Some((last, high, order, probe)) = asked {
            self.as_gaps |= begins;
            let over = sequence.next() == last;
            if probe {
                end = high;
            }
            // The answer to a later request may have overtaken that to an earlier one.
            self.lose(progress, |chunk, other, _| {
                other < order && now.nanos_since(chunk.at) >= round_trip || over && other == order
            })
        } else {
            // The responses behind this may have overtaken others.
            let behind = sequence.next().before(REORDERED);
            if sequence.next() < progress.high {
                end = behind;
            }
            self.lose(progress, |_, _, high| behind >= high)
        };
        let found = self.advance(progress, end, chunk_end) || found;
        // This response completes no other chunk than its own, but for those before the oldest missing one.
        self.retain(|chunk| {
            let is_its_own = (chunk.first..chunk.end).contains(&sequence);
            chunk.end > progress.una && (!is_its_own || progress.missing(chunk.first, chunk.end).is_some())
        });
        found
    }

    /// Handles an acknowledgement of everything before `end`. Returns whether it shows a loss.
    pub(crate) fn handle_ack(
        &mut self,
        progress: Progress<'_>,
        end: Sequence,
        chunk_end: impl FnMut(Sequence) -> Option<Sequence>,
    ) -> bool {
        let found = self.lose(progress, |_, _, high| end > high);
        let found = self.advance(progress, end, chunk_end) || found;
        self.count_wanted();
        found
    }

    /// Handles the report that the request for the chunk from `first` on was lost. `newest` is the first packet of the last chunk
    /// that was requested; `round_trip` is in nanoseconds, `chunk_end` as in [`ReadGaps::advance`]. Returns whether the report is
    /// a new one.
    pub(crate) fn handle_nak(
        &mut self,
        progress: Progress<'_>,
        [first, newest]: [Sequence; 2],
        (now, round_trip): (Instant, u64),
        mut chunk_end: impl FnMut(Sequence) -> Option<Sequence>,
    ) -> bool {
        let Some(end) = chunk_end(first) else { return false };
        let reported_before = self.find(first).is_some_and(|chunk| match chunk.step {
            Step::Wanted { .. } => true,
            // The second copy of the report, or one that left before the request arrived.
            Step::Asked { .. } => now.nanos_since(chunk.at) < round_trip,
        });
        // Nothing of the chunk can have arrived.
        let is_missing = progress.missing(first, end) == Some(first);
        if reported_before || !is_missing || progress.missing_end(first, end, true) != end {
            return false;
        }
        self.peer_drops = first == self.reported;
        self.reported = end;
        self.want(first, end, false);
        // The newest one shows the peer that others are missing, or that they are not.
        let mut at = if self.peer_drops { end } else { newest.max(end) };
        while at < progress.high
            && let Some(end) = chunk_end(at)
        {
            self.want(at, end, false);
            at = end;
        }
        self.count_wanted();
        true
    }

    /// Requests the rest of the chunk from `una` to `end` again, after a timeout.
    pub(crate) fn probe(&mut self, una: Sequence, end: Sequence) {
        self.retain(|chunk| chunk.end > una);
        if self.find(una).is_none() && self.count >= self.chunks.len() {
            self.count = self.count.saturating_sub(1);
        }
        self.want(una, end, true);
        self.count_wanted();
    }

    /// The chunk from `first` to `end`, the oldest one, was requested again after a timeout, with other requests than READs behind
    /// it. No other chunk is being requested again.
    pub(crate) fn record_request(&mut self, first: Sequence, end: Sequence, high: Sequence, now: Instant) {
        self.clear();
        self.want(first, end, false);
        self.order = self.order.wrapping_add(1);
        let order = self.order;
        if let Some(chunk) = self.find(first) {
            chunk.at = now;
            chunk.step = Step::Asked { end, high, order, gaps: 0, probe: false };
        }
    }

    /// Returns the number of requests that may be outstanding besides one for each chunk: those for gaps of a chunk.
    pub(crate) fn extra(&self) -> u32 {
        let gaps = |chunk: &Chunk| match chunk.step {
            Step::Wanted { gaps, .. } | Step::Asked { gaps, .. } => u32::from(gaps),
        };
        self.active().fold(0, |sum, chunk| sum.saturating_add(gaps(chunk)))
    }

    /// Returns whether answers on their way leave room for other requests.
    fn makes_room(&self) -> bool {
        self.active().any(|chunk| matches!(chunk.step, Step::Asked { gaps: 1.., .. }))
    }

    /// Returns the next request. `spare` is the number of requests that may be outstanding besides one for each chunk.
    pub(crate) fn next(&self, progress: Progress<'_>, spare: u32) -> Next {
        let oldest = self.active().filter(|chunk| matches!(chunk.step, Step::Wanted { .. }));
        let Some(chunk) = oldest.min_by_key(|chunk| chunk.first) else { return Next::Complete };
        let Step::Wanted { from, gaps, probe } = chunk.step else { return Next::Complete };
        let Some(first) = progress.missing(from, chunk.end) else { return Next::Complete };
        let repeat = Repeat { first, end: chunk.end, was_asked: chunk.was_asked, others_wait: false };
        if probe {
            return Next::Repeat(repeat);
        }
        let has_room = |extra: u32| extra < spare;
        let extra = self.extra();
        let apart = self.as_gaps && gaps < MAX_GAPS.saturating_sub(1) && has_room(extra);
        if self.as_gaps
            && !apart
            && gaps == 0
            && self.makes_room()
            && progress.are_far_apart(first, chunk.end)
        {
            return Next::Waits;
        }
        let end = progress.missing_end(first, chunk.end, apart);
        let others_wait =
            apart && !has_room(extra.saturating_add(1)) && progress.are_far_apart(end, chunk.end);
        Next::Repeat(Repeat { end, others_wait, ..repeat })
    }

    /// The request that [`ReadGaps::next`] returned was sent, or there is none: the chunk is [`Next::Complete`].
    pub(crate) fn sent(&mut self, progress: Progress<'_>, repeat: Option<Repeat>, now: Instant) {
        let order = self.order.wrapping_add(1);
        self.order = order;
        let wanted = self.active_mut().filter(|chunk| matches!(chunk.step, Step::Wanted { .. }));
        if let Some(chunk) = wanted.min_by_key(|chunk| chunk.first)
            && let Step::Wanted { gaps, probe, .. } = chunk.step
        {
            let end = repeat.map_or(chunk.end, |repeat| repeat.end);
            chunk.at = now;
            let others_wait = repeat.is_some_and(|repeat| repeat.others_wait);
            chunk.step = if repeat.is_some() && !others_wait && progress.missing(end, chunk.end).is_some() {
                Step::Wanted { from: end, gaps: gaps.saturating_add(1), probe }
            } else {
                chunk.was_asked |= !others_wait;
                Step::Asked { end, high: progress.high, order, gaps, probe }
            };
        }
        self.count_wanted();
    }
}

#[cfg(test)]
mod tests;
