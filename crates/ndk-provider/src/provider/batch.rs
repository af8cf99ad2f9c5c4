// SPDX-License-Identifier: MIT OR Apache-2.0

//! A batch of received frames, whose time is read once for several frames: on Windows, the precise clock costs as much as
//! a part of a packet's processing.

use super::dpc;
use crate::base::shared::{Shared, now};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use roce::{Instant, Verdict};

/// Frames that get the same time. As many are processed in a few tens of microseconds, less than an operating system's
/// timers can tell.
const FRAMES_PER_TIME: u32 = 16;

/// A batch of received frames, in the order of their arrival. IRQL == `DISPATCH_LEVEL` as long as it exists.
pub struct Batch<'a> {
    shared: &'a Shared,
    /// Of the provider: whether it is enabled, and its open NDK adapters.
    enabled: &'a AtomicBool,
    open_adapters: &'a AtomicUsize,
    clock: BatchClock,
}

impl<'a> Batch<'a> {
    pub(super) fn new(shared: &'a Shared, enabled: &'a AtomicBool, open_adapters: &'a AtomicUsize) -> Self {
        Self { shared, enabled, open_adapters, clock: BatchClock::default() }
    }

    /// Processes a received frame in place. While the provider is disabled and has no consumer, and for other stations' frames,
    /// the result is [`Verdict::NotOurs`].
    pub fn receive(&mut self, frame: &[u8]) -> Verdict {
        let takes_frames =
            self.enabled.load(Ordering::Acquire) || self.open_adapters.load(Ordering::Acquire) != 0;
        if !takes_frames || !frame.starts_with(&self.shared.environment.link().mac) {
            return Verdict::NotOurs;
        }
        dpc::receive(self.shared, self.clock.time(now), frame)
    }

    /// Ends the batch: sends acknowledgments and makes callbacks.
    pub fn end(self) {
        dpc::run(self.shared);
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
