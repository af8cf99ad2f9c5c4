//! Frames from the adapter to itself: they never reach the device.
//!
//! What the engine sends to the link's own address is put aside while the transmit queue is filled, and
//! taken in as if it had come from the wire on a stack of the provider's own. There is room for one budget of
//! frames; when it is used up, sending waits until they are taken in, so that neither the post that makes them
//! nor the DPC that takes them in stays at `DISPATCH_LEVEL` for long.

use crate::fallible;
use crate::status::Answer;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use ndk_abi::nt::STATUS_INSUFFICIENT_RESOURCES;
use nt::SpinLock;

/// Frames that may wait, and are taken in at a stretch.
const BUDGET: usize = crate::provider::BUDGET;
/// Bytes of frames that may wait: a batch of 4096 bytes of payload each, or so.
const CAPACITY: usize = 1 << 18;
/// Bytes in front of each frame: its length.
const HEAD: usize = 4;

/// The way from the adapter to itself.
pub struct Loopback {
    state: SpinLock<State>,
    /// There is room for frames, because somebody wants to connect this way.
    open: AtomicBool,
    /// Frames wait.
    waiting: AtomicBool,
}

struct State {
    /// Frames that wait.
    filling: Frames,
    /// Empty; `None` while its frames are being taken in.
    spare: Option<Frames>,
}

/// Frames one behind the other, each with its length in front.
struct Frames {
    /// As long as there is room.
    bytes: Vec<u8>,
    filled: usize,
    /// How many frames there are.
    count: usize,
}

impl Loopback {
    pub const fn new() -> Self {
        let state = State { filling: Frames::none(), spare: Some(Frames::none()) };
        Self { state: SpinLock::new(state), open: AtomicBool::new(false), waiting: AtomicBool::new(false) }
    }

    /// Makes room, once; until then nothing comes this way. `PASSIVE_LEVEL`, for there is much to clear.
    pub fn open(&self) -> Answer {
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
        self.waiting.load(Ordering::Acquire)
    }

    /// Whether a frame of `length` bytes may be put aside.
    pub fn has_room(&self, length: usize) -> bool {
        self.state.lock().filling.has_room(length)
    }

    /// Puts a frame aside. One for which there is no room is lost, as any frame may be.
    pub fn put(&self, frame: &[u8]) {
        let mut state = self.state.lock();
        state.filling.push(frame);
        self.waiting.store(true, Ordering::Release);
    }

    /// Shows every frame that waits to `each`, in order, under no lock. One thread at a time; whoever finds
    /// another one at it leaves its frames to the next round.
    pub fn take(&self, mut each: impl FnMut(&[u8])) {
        let mut frames = {
            let mut state = self.state.lock();
            let Some(spare) = state.spare.take() else { return };
            self.waiting.store(false, Ordering::Release);
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

    fn try_new() -> Answer<Self> {
        let bytes = fallible::zeroes(CAPACITY).ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
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
    fn frames_come_out_as_they_went_in() {
        let loopback = Loopback::new();
        assert!(!loopback.is_open() && !loopback.has_room(1));
        assert_eq!(loopback.open(), Ok(()));
        let frames: Vec<Vec<u8>> = (60..64).map(|length| vec![length as u8; length]).collect();
        for round in 0..3 {
            for frame in &frames {
                loopback.put(frame);
            }
            assert!(loopback.has_frames(), "round {round}");
            assert_eq!(taken(&loopback), frames);
            assert!(!loopback.has_frames());
        }
        assert_eq!(taken(&loopback), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn there_is_room_for_a_batch_of_the_longest_frames_and_not_without_end() {
        let loopback = Loopback::new();
        assert_eq!(loopback.open(), Ok(()));
        let mut count = 0;
        while loopback.has_room(4300) {
            loopback.put(&[1; 4300]);
            count += 1;
        }
        assert!(count >= 60, "{count}");
        loopback.put(&[2; 4300]);
        assert_eq!(taken(&loopback).len(), count);
        assert!(loopback.has_room(4300));
    }

    #[test]
    fn no_more_than_a_budget_of_short_frames_waits() {
        let loopback = Loopback::new();
        assert_eq!(loopback.open(), Ok(()));
        for round in 0..2 {
            let mut count = 0;
            while loopback.has_room(60) && count <= BUDGET {
                loopback.put(&[3; 60]);
                count += 1;
            }
            assert_eq!(count, BUDGET, "round {round}");
            assert_eq!(taken(&loopback).len(), BUDGET, "round {round}");
        }
    }

    #[test]
    fn what_is_put_aside_meanwhile_waits_for_the_next_round() {
        let loopback = Loopback::new();
        assert_eq!(loopback.open(), Ok(()));
        loopback.put(&[1; 60]);
        loopback.take(|frame| {
            loopback.put(&[frame[0] + 1; 60]);
            // Somebody else comes by.
            loopback.take(|_| panic!("out of turn"));
        });
        assert!(loopback.has_frames());
        assert_eq!(taken(&loopback), [[2; 60]]);
    }
}
