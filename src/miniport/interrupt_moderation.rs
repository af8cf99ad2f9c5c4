// SPDX-License-Identifier: MIT OR Apache-2.0

//! Moderation of receive interrupts: while frames follow each other closely, the DPC polls the queue again when the next one should have
//! arrived, then each microsecond. When none has arrived for twice the time that usually passes between frames, the DPC requests the interrupt.
//!
//! An interrupt in a virtual machine takes several microseconds, so that to wait for a frame costs no more than the interrupt of that
//! frame, if the wait is at most as long. The DPC does not poll for frames that are farther apart.
//!
//! A processor that polls runs no thread, and those of the consumers may be what the peer waits for. So the DPC requests the interrupt after
//! [`LONGEST`] even if frames are expected, and threads run until the next one arrives. If this goes on, and the device can coalesce
//! interrupts, it is [asked](super::device_interrupts) to: the interrupt is late then, and threads run for longer.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use nt::time;

/// Longest time that one DPC waits for frames, in microseconds. Then other DPCs run, and NDIS or the driver calls it again.
pub const WAITS: u32 = 32;

/// Frames follow others closely if less than this time passed between them, in nanoseconds. No poll waits longer.
const CLOSE: u64 = 5_000;
/// Longest time between two requests for the interrupt, in nanoseconds, while the queue becomes empty. (WDK: a DPC should not run longer
/// than 100 us.)
const LONGEST: u64 = 100_000;
/// Frames that come after this time, in nanoseconds, do not belong to a stream. Longer than the device coalesces interrupts.
const APART: u64 = 25_000;
/// Number of times that [`LONGEST`] passes until a stream counts as sustained, and of frames that are [`APART`] until it has ended.
const SUSTAINED: u32 = 8;

/// How closely the frames of a receive queue follow each other. One thread at a time polls the queue.
#[derive(Default)]
pub struct Moderation {
    /// When frames were found last, in nanoseconds.
    last: AtomicU64,
    /// Mean time between frames, in nanoseconds. 0 if the last frames did not follow others closely.
    gap: AtomicU64,
    /// When the DPC began to poll again instead of requesting the interrupt, in nanoseconds; 0 if it has requested it since.
    began: AtomicU64,
    /// From 0 to [`SUSTAINED`]: signs of a stream.
    signs: AtomicU32,
    is_sustained: AtomicBool,
    /// Each frame may interrupt: no poll is repeated, and there is no stream.
    is_off: AtomicBool,
}

/// Result of [`Moderation::polled`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// Frames are expected soon: poll again after these microseconds, 1 to 4. If 0, the caller requests the interrupt.
    pub wait: u32,
    /// [`Moderation::is_sustained`] has changed.
    pub is_changed: bool,
}

impl Moderation {
    /// Switches the moderation on or off. Any IRQL.
    pub fn set_on(&self, is_on: bool) {
        self.is_off.store(!is_on, Ordering::Relaxed);
    }

    /// Whether interrupts are moderated.
    pub fn is_on(&self) -> bool {
        !self.is_off.load(Ordering::Relaxed)
    }

    /// Records a poll, which has found so many frames. Any IRQL.
    pub fn polled(&self, frames: u32) -> Next {
        if !self.is_on() {
            self.began.store(0, Ordering::Relaxed);
            self.signs.store(0, Ordering::Relaxed);
            return Next { wait: 0, is_changed: self.is_sustained.swap(false, Ordering::Relaxed) };
        }
        let now = time::now();
        let Next { wait: expected, mut is_changed } =
            if frames == 0 { self.found_none(now) } else { self.found(now, frames) };
        let wait = match self.began.load(Ordering::Relaxed) {
            // A DPC that finds nothing at first does not wait: the frame of its interrupt was found before.
            0 if frames == 0 => 0,
            0 => {
                self.began.store(now, Ordering::Relaxed);
                expected
            }
            began if now.saturating_sub(began) < LONGEST => expected,
            _ => {
                if expected != 0 {
                    is_changed |= self.sign(true);
                }
                0
            }
        };
        if wait == 0 {
            self.began.store(0, Ordering::Relaxed);
        }
        Next { wait, is_changed }
    }

    /// Whether frames have followed each other closely for long.
    pub fn is_sustained(&self) -> bool {
        self.is_sustained.load(Ordering::Relaxed)
    }

    /// Measures the time since frames were found last. Returns after which time the next one should arrive, if it was short for so many.
    fn found(&self, now: u64, frames: u32) -> Next {
        let passed = now.saturating_sub(self.last.swap(now, Ordering::Relaxed));
        let is_changed = passed >= APART && self.sign(false);
        let each = passed.checked_div(frames.into()).unwrap_or(passed);
        if each >= CLOSE {
            self.gap.store(0, Ordering::Relaxed);
            return Next { wait: 0, is_changed };
        }
        let gap = match self.gap.load(Ordering::Relaxed) {
            0 => each,
            gap => gap.saturating_sub(gap / 8).saturating_add(each / 8),
        };
        self.gap.store(gap, Ordering::Relaxed);
        // About a thousand: a shift takes fewer instructions than a division. Below 5.
        let wait = (gap / 1024) as u32;
        Next { wait: wait.max(1), is_changed }
    }

    /// Returns whether frames may still arrive as they did: after a microsecond.
    fn found_none(&self, now: u64) -> Next {
        let gap = self.gap.load(Ordering::Relaxed);
        let is_expecting =
            now.saturating_sub(self.last.load(Ordering::Relaxed)) < gap.saturating_mul(2).min(CLOSE);
        Next { wait: is_expecting.into(), is_changed: false }
    }

    /// Counts a sign that a stream goes on, or has ended. Returns whether [`is_sustained`](Self::is_sustained) has changed.
    #[cold]
    fn sign(&self, goes_on: bool) -> bool {
        let signs = self.signs.load(Ordering::Relaxed);
        let signs = if goes_on { signs.saturating_add(1).min(SUSTAINED) } else { signs.saturating_sub(1) };
        self.signs.store(signs, Ordering::Relaxed);
        let is_sustained = signs != 0;
        (signs == 0 || signs == SUSTAINED)
            && self.is_sustained.swap(is_sustained, Ordering::Relaxed) != is_sustained
    }
}
