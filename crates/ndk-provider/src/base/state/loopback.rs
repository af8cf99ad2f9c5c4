// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frames from the adapter to itself. They never reach the device.
//!
//! Frames to the link's own MAC address are queued here while the transmit queue is filled. The provider's DPC
//! processes them as if they had been received. The queue holds one budget of frames; when it is full,
//! transmission waits until they are processed, so that neither the post that produces them nor the DPC that
//! processes them stays at `DISPATCH_LEVEL` for long.

use crate::base::limits::BUDGET;
use crate::base::status::NtResult;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use ndk_abi::nt::STATUS_INSUFFICIENT_RESOURCES;
use nt::SpinLock;

/// Capacity in bytes: a budget of frames with 4096 bytes of payload each. Miri takes minutes to clear as much.
const CAPACITY: usize = if cfg!(miri) { 1 << 14 } else { 1 << 18 };
/// Bytes of the length in front of each frame.
const HEAD: usize = 4;

/// The queue of loopback frames.
pub struct Loopback {
    state: SpinLock<State>,
    /// Whether buffers are allocated, because a consumer has connected to the adapter's own address.
    open: AtomicBool,
    /// Whether frames are queued.
    queued: AtomicBool,
}

struct State {
    /// The queued frames.
    filling: Frames,
    /// An empty buffer; `None` while its frames are being processed.
    spare: Option<Frames>,
}

/// Frames in one buffer, each preceded by its length.
struct Frames {
    /// Its length is the capacity.
    bytes: Vec<u8>,
    filled: usize,
    /// Number of frames.
    count: usize,
}

impl Loopback {
    pub const fn new() -> Self {
        let state = State { filling: Frames::none(), spare: Some(Frames::none()) };
        Self { state: SpinLock::new(state), open: AtomicBool::new(false), queued: AtomicBool::new(false) }
    }

    /// Allocates the buffers, once; until then no frame is diverted. `PASSIVE_LEVEL`, because half a megabyte is
    /// cleared.
    ///
    /// # Errors
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn open(&self) -> NtResult {
        if self.is_open() {
            return Ok(());
        }
        let (filling, spare) = (Frames::try_new()?, Frames::try_new()?);
        let mut state = self.state.lock();
        if !self.open.swap(true, Ordering::AcqRel) {
            *state = State { filling, spare: Some(spare) };
        }
        Ok(())
    }

    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    pub fn has_frames(&self) -> bool {
        self.queued.load(Ordering::Acquire)
    }

    /// Returns whether a frame of `length` bytes can be queued.
    pub fn has_room(&self, length: usize) -> bool {
        self.state.lock().filling.has_room(length)
    }

    /// Queues a frame. It is dropped if there is no room, as the network may drop any frame.
    pub fn push(&self, frame: &[u8]) {
        let mut state = self.state.lock();
        state.filling.push(frame);
        self.queued.store(true, Ordering::Release);
    }

    /// Calls `each` with every queued frame, in order and without the lock. If another thread is inside, returns
    /// at once; the frames are left to the next call.
    pub fn take(&self, mut each: impl FnMut(&[u8])) {
        let mut frames = {
            let mut state = self.state.lock();
            let Some(spare) = state.spare.take() else { return };
            self.queued.store(false, Ordering::Release);
            core::mem::replace(&mut state.filling, spare)
        };
        frames.iter().for_each(&mut each);
        frames.clear();
        self.state.lock().spare = Some(frames);
    }
}

impl Frames {
    const fn none() -> Self {
        Self { bytes: Vec::new(), filled: 0, count: 0 }
    }

    fn try_new() -> NtResult<Self> {
        let bytes = fallible::vec::filled(CAPACITY, 0).map_err(|_| STATUS_INSUFFICIENT_RESOURCES)?;
        Ok(Self { bytes, filled: 0, count: 0 })
    }

    fn has_room(&self, length: usize) -> bool {
        self.count < BUDGET && self.bytes.len().saturating_sub(self.filled) >= length.saturating_add(HEAD)
    }

    fn push(&mut self, frame: &[u8]) {
        let room = self.bytes.get_mut(self.filled..).and_then(|room| {
            let (head, behind) = room.split_first_chunk_mut::<HEAD>()?;
            Some((head, behind.split_at_mut_checked(frame.len())?.0))
        });
        let (Some((head, body)), Ok(length)) = (room, u32::try_from(frame.len())) else { return };
        *head = length.to_ne_bytes();
        body.copy_from_slice(frame);
        self.filled = self.filled.saturating_add(HEAD).saturating_add(frame.len());
        self.count = self.count.saturating_add(1);
    }

    fn clear(&mut self) {
        self.filled = 0;
        self.count = 0;
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.bytes.get(..self.filled).unwrap_or_default();
        core::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk::<HEAD>()?;
            let (frame, behind) = behind.split_at_checked(u32::from_ne_bytes(*length) as usize)?;
            rest = behind;
            Some(frame)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(loopback: &Loopback) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        loopback.take(|frame| frames.push(frame.to_vec()));
        frames
    }

    #[test]
    fn frames_are_taken_unchanged_and_in_order() {
        let loopback = Loopback::new();
        assert!(!loopback.is_open() && !loopback.has_room(1));
        assert_eq!(loopback.open(), Ok(()));
        let frames: Vec<Vec<u8>> = (60..64).map(|length| vec![length as u8; length]).collect();
        for round in 0..3 {
            for frame in &frames {
                loopback.push(frame);
            }
            assert!(loopback.has_frames(), "round {round}");
            assert_eq!(taken(&loopback), frames);
            assert!(!loopback.has_frames());
        }
        assert_eq!(taken(&loopback), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn capacity_is_about_one_budget_of_the_longest_frames() {
        let loopback = Loopback::new();
        assert_eq!(loopback.open(), Ok(()));
        let mut count = 0;
        while loopback.has_room(4300) {
            loopback.push(&[1; 4300]);
            count += 1;
        }
        assert!(count >= 60, "{count}");
        loopback.push(&[2; 4300]);
        assert_eq!(taken(&loopback).len(), count);
        assert!(loopback.has_room(4300));
    }

    #[test]
    fn at_most_one_budget_of_short_frames_is_queued() {
        let loopback = Loopback::new();
        assert_eq!(loopback.open(), Ok(()));
        for round in 0..2 {
            let mut count = 0;
            while loopback.has_room(60) && count <= BUDGET {
                loopback.push(&[3; 60]);
                count += 1;
            }
            assert_eq!(count, BUDGET, "round {round}");
            assert_eq!(taken(&loopback).len(), BUDGET, "round {round}");
        }
    }

    #[test]
    fn frame_queued_while_frames_are_taken_waits_for_the_next_call() {
        let loopback = Loopback::new();
        assert_eq!(loopback.open(), Ok(()));
        loopback.push(&[1; 60]);
        loopback.take(|frame| {
            loopback.push(&[frame[0] + 1; 60]);
            // A nested or concurrent call.
            loopback.take(|_| panic!("a nested call took frames"));
        });
        assert!(loopback.has_frames());
        assert_eq!(taken(&loopback), [[2; 60]]);
    }
}
