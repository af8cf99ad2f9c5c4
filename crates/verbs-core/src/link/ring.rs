// SPDX-License-Identifier: MIT OR Apache-2.0

//! A ring of frames in memory that two processes share: one writes, the other reads.
//!
//! A process does not trust what the other one writes: numbers are checked, and frames are copied before they are looked at.

use core::sync::atomic::{AtomicU64, Ordering, fence};
use std::os::fd::OwnedFd;

use super::frame::{FRAME, FrameBuffer};
use crate::error::Error;
use crate::sys::SharedMemory;

/// Frames that fit: those of the windows of a few queue pairs.
const SLOTS: u64 = 1024;

/// Offsets of the numbers, each in a cache line of its own: frames written, frames read, threads that wait for frames.
const WRITTEN: usize = 0;
const READ: usize = 128;
const WAITING: usize = 256;

/// Where the first frame is, and the bytes between two: the length of a frame is before it.
const FRAMES: usize = 4096;
const STRIDE: usize = (8 + FRAME).next_multiple_of(64);

const BYTES: usize = FRAMES + SLOTS as usize * STRIDE;

fn offset(number: u64) -> usize {
    FRAMES + (number % SLOTS) as usize * STRIDE
}

/// The end of a ring that writes frames.
#[derive(Debug)]
pub struct Producer {
    memory: SharedMemory,
    written: u64,
}

impl Producer {
    /// Creates a ring, and a descriptor for the process that reads.
    ///
    /// # Errors
    /// Those of [`SharedMemory::create`].
    pub fn create() -> Result<(Self, OwnedFd), Error> {
        let (memory, fd) = SharedMemory::create(BYTES)?;
        Ok((Self { memory, written: 0 }, fd))
    }

    /// Writes frames as far as there is room. Returns how many, and whether a thread of the reader is to be woken.
    pub fn push<'a>(&mut self, frames: impl Iterator<Item = &'a [u8]>) -> (usize, bool) {
        let Self { memory, written } = self;
        let read = memory.number(READ).load(Ordering::Acquire);
        // A count without a meaning makes the ring full.
        let room = SLOTS.saturating_sub(written.wrapping_sub(read));
        let mut count = 0;
        for (frame, number) in frames.zip(*written..written.saturating_add(room)) {
            let at = offset(number);
            memory.number(at).store(frame.len() as u64, Ordering::Relaxed);
            memory.write(at + 8, frame);
            count += 1;
        }
        *written += count as u64;
        memory.number(WRITTEN).store(*written, Ordering::Release);
        // Orders the frames before the look at the flag; the reader does the opposite.
        fence(Ordering::SeqCst);
        (count, memory.number(WAITING).load(Ordering::Relaxed) != 0)
    }
}

/// The end of a ring that reads frames.
#[derive(Debug)]
pub struct Consumer {
    memory: SharedMemory,
    /// One thread at a time reads.
    read: AtomicU64,
}

impl Consumer {
    /// Opens a ring that another process has created.
    ///
    /// # Errors
    /// Those of [`SharedMemory::open`].
    pub fn open(fd: &OwnedFd) -> Result<Self, Error> {
        Ok(Self { memory: SharedMemory::open(fd, BYTES)?, read: AtomicU64::new(0) })
    }

    /// Returns whether there are frames.
    pub fn has_frames(&self) -> bool {
        self.memory.number(WRITTEN).load(Ordering::Acquire) != self.read.load(Ordering::Relaxed)
    }

    /// Takes a frame. Returns its length; 0 for one of a wrong length.
    pub fn pop(&self, buffer: &mut FrameBuffer) -> Option<usize> {
        let read = self.read.load(Ordering::Relaxed);
        if self.memory.number(WRITTEN).load(Ordering::Acquire) == read {
            return None;
        }
        let at = offset(read);
        let length = self.memory.number(at).load(Ordering::Relaxed);
        let length = usize::try_from(length).ok().filter(|&length| length <= FRAME).unwrap_or(0);
        self.memory.read(at + 8, &mut buffer[..length]);
        self.read.store(read.wrapping_add(1), Ordering::Relaxed);
        self.memory.number(READ).store(read.wrapping_add(1), Ordering::Release);
        Some(length)
    }

    /// Records that a thread waits for frames. It has to look whether there are some before it waits.
    pub fn begin_wait(&self) {
        self.memory.number(WAITING).fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Records that a thread waits no longer.
    pub fn end_wait(&self) {
        self.memory.number(WAITING).fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> (Producer, Consumer) {
        let (producer, fd) = Producer::create().unwrap();
        (producer, Consumer::open(&fd).unwrap())
    }

    fn popped(consumer: &Consumer) -> Vec<Vec<u8>> {
        let mut buffer = [0; FRAME];
        core::iter::from_fn(|| consumer.pop(&mut buffer).map(|length| buffer[..length].to_vec())).collect()
    }

    #[test]
    fn frames_are_read_in_their_order_many_times_around() {
        let (mut producer, consumer) = ring();
        for round in 0..3000u32 {
            let frames = [round.to_be_bytes().to_vec(), vec![7; FRAME], Vec::new()];
            assert_eq!(producer.push(frames.iter().map(Vec::as_slice)), (3, false));
            assert!(consumer.has_frames());
            assert_eq!(popped(&consumer), frames);
        }
        assert!(!consumer.has_frames());
    }

    #[test]
    fn a_full_ring_takes_no_more() {
        let (mut producer, consumer) = ring();
        let frame = &[1][..];
        assert_eq!(producer.push(core::iter::repeat_n(frame, 2000)).0, SLOTS as usize);
        assert_eq!(producer.push([frame].into_iter()).0, 0);
        assert_eq!(popped(&consumer).len(), SLOTS as usize);
        assert_eq!(producer.push([frame].into_iter()).0, 1);
    }

    #[test]
    fn a_reader_that_waits_is_to_be_woken() {
        let (mut producer, consumer) = ring();
        consumer.begin_wait();
        assert_eq!(producer.push([&[1][..]].into_iter()), (1, true));
        consumer.end_wait();
        assert_eq!(producer.push([&[1][..]].into_iter()), (1, false));
    }

    #[test]
    fn numbers_without_a_meaning_do_no_harm() {
        let (mut producer, consumer) = ring();
        producer.push([&[1][..]].into_iter());
        producer.memory.number(offset(0)).store(u64::MAX, Ordering::Relaxed);
        let mut buffer = [0; FRAME];
        assert_eq!(consumer.pop(&mut buffer), Some(0));
        consumer.memory.number(READ).store(5000, Ordering::Relaxed);
        assert_eq!(producer.push([&[1][..]].into_iter()).0, 0);
    }
}
