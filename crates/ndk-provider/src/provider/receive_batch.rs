// SPDX-License-Identifier: MIT OR Apache-2.0

//! A batch of received frames. Several of them share a time, a [`Receiver`] of the engine and an addition to the counters: on
//! Windows, the precise clock costs as much as a part of a packet's processing.

use super::rounds;
use crate::base::state::provider_state::{ProviderState, Shard, now};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use nt::RawSpinLock;
use roce::{Instant, Receiver, Verdict};

/// Frames that get the same time, those of other stations included. As many are processed in a few tens of microseconds, less than
/// an operating system's timers can tell, and as long as the destruction of a queue pair may wait for a batch.
const FRAMES_PER_TIME: u32 = 16;

/// A batch of received frames, in the order of their arrival. IRQL == `DISPATCH_LEVEL` as long as it exists.
pub struct ReceiveBatch<'a> {
    state: &'a ProviderState,
    /// The shard whose queue pair has received the frames.
    of: Shard<'a>,
    /// Of the provider: whether it is enabled, and its open NDK adapters.
    enabled: &'a AtomicBool,
    open_adapters: &'a AtomicUsize,
    clock: BatchClock,
    /// As long as frames get the same time.
    receiver: Option<Receiver<'a, RawSpinLock>>,
    /// RDMA frames of the receiver, which are not counted yet, and their bytes.
    frames: usize,
    octets: usize,
    /// The engine has processed a frame, and may have to answer it or report something.
    has_work: bool,
}

impl<'a> ReceiveBatch<'a> {
    pub(super) fn new(
        state: &'a ProviderState,
        of: Shard<'a>,
        enabled: &'a AtomicBool,
        open_adapters: &'a AtomicUsize,
    ) -> Self {
        let clock = BatchClock::default();
        Self {
            state,
            of,
            enabled,
            open_adapters,
            clock,
            receiver: None,
            frames: 0,
            octets: 0,
            has_work: false,
        }
    }

    /// Processes a received frame in place. While the provider is disabled and has no consumer, and for other stations' frames,
    /// the result is [`Verdict::NotOurs`].
    ///
    /// Until the next [`ReceiveBatch::pause`], queue pairs, regions and windows must not be destroyed on this thread.
    pub fn receive(&mut self, frame: &[u8]) -> Verdict {
        let takes_frames =
            self.enabled.load(Ordering::Acquire) || self.open_adapters.load(Ordering::Acquire) != 0;
        if !roce_wire::may_be_roce(frame)
            || !takes_frames
            || !frame.starts_with(&self.state.environment.link().mac)
        {
            self.pass_over();
            return Verdict::NotOurs;
        }
        if self.clock.is_due() {
            self.pause();
        }
        let now = self.clock.time(now);
        let receiver = self.receiver.get_or_insert_with(|| self.of.receiver());
        let verdict = receiver.handle_frame(now, frame);
        self.has_work |= verdict != Verdict::NotOurs;
        if verdict == Verdict::Consumed {
            self.frames = self.frames.saturating_add(1);
            self.octets = self.octets.saturating_add(frame.len());
        }
        verdict
    }

    /// Accounts for a frame that the engine does not get: it takes time, too.
    fn pass_over(&mut self) {
        if self.receiver.is_some() && self.clock.pass_over() {
            self.pause();
        }
    }

    /// Releases what is kept from one frame to the next, and counts the frames: before other code runs on this thread.
    pub fn pause(&mut self) {
        self.receiver = None;
        if self.frames > 0 {
            let counters = &self.state.counters;
            counters.frames_in.add_many(core::mem::take(&mut self.frames));
            counters.octets_in.add_many(core::mem::take(&mut self.octets));
        }
    }

    /// Ends the batch: sends acknowledgments and makes callbacks, if there was an RDMA frame.
    pub fn end(mut self) {
        self.pause();
        if self.has_work {
            // Frames advance the deadlines of queue pairs, whose timer may be a tick of the system's clock late.
            self.of.handle_due(self.clock.now);
            rounds::run(self.state, Some(&self.of));
        }
    }
}

impl Drop for ReceiveBatch<'_> {
    fn drop(&mut self) {
        self.pause();
    }
}

/// The time of a batch's frames.
#[derive(Default)]
struct BatchClock {
    now: Instant,
    /// Frames that get this time, too.
    left: u32,
}

impl BatchClock {
    /// Returns whether the next frame gets another time.
    fn is_due(&self) -> bool {
        self.left == 0
    }

    /// Accounts for a frame that needs no time. Returns whether the next one gets another time.
    fn pass_over(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.is_due()
    }

    /// Returns the time of the next frame. `read` reads the clock.
    fn time(&mut self, read: impl FnOnce() -> Instant) -> Instant {
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
        } else {
            self.left = FRAMES_PER_TIME.saturating_sub(1);
            self.now = read();
        }
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_read_once_for_several_frames_and_again_in_a_long_batch() {
        let (mut clock, mut ticks) = (BatchClock::default(), 0);
        let times: Vec<u64> = (0..40)
            .map(|_| {
                let read = || {
                    ticks += 1;
                    Instant::from_nanos(ticks)
                };
                clock.time(read).as_nanos()
            })
            .collect();
        let expected: Vec<u64> = [(1, 16), (2, 16), (3, 8)]
            .into_iter()
            .flat_map(|(time, frames)| std::iter::repeat_n(time, frames))
            .collect();
        assert_eq!(times, expected);
    }
}
