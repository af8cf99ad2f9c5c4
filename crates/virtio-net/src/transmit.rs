// SPDX-License-Identifier: MIT OR Apache-2.0

//! The transmit queue: the driver builds each frame in the slot that the device reads.
//= virtio §11
#![allow(unsafe_code, reason = "memory that the device reads and writes")]

use alloc::boxed::Box;
use alloc::vec::Vec;

use fallible::vec;

use crate::buffers::{Buffers, HEADER_LEN};
use crate::error::Error;
use crate::features::Features;
use crate::hal::{Hal, Registers};
use crate::offload::Offload;
use crate::offload_slots::{LargeFrames, OffloadSlots, Use};
use crate::queue::Queue;
use crate::ring::Direction;
use crate::transport::Control;

/// Shortest Ethernet frame without its check sequence, in bytes; the device does not pad. (virtio §10)
pub const MIN_FRAME: usize = 60;

/// Counters of a transmit queue since its creation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TransmitCounters {
    /// Frames committed, counted as on the wire.
    pub frames: u64,
    /// Their bytes, padding included.
    pub bytes: u64,
    /// Frames dropped because their length was 0 or exceeded the slot.
    pub bad_length: u64,
    /// Notifications sent.
    pub notifications: u64,
    /// Calls of [`TransmitQueue::kick`] with frames for which the busy device had suppressed the notification.
    pub suppressed: u64,
    /// Calls of [`TransmitQueue::slot`] that found no free slot.
    pub full: u64,
}

impl core::iter::Sum for TransmitCounters {
    fn sum<I: Iterator<Item = Self>>(counters: I) -> Self {
        counters.fold(Self::default(), |sum, next| Self {
            frames: sum.frames.wrapping_add(next.frames),
            bytes: sum.bytes.wrapping_add(next.bytes),
            bad_length: sum.bad_length.wrapping_add(next.bad_length),
            notifications: sum.notifications.wrapping_add(next.notifications),
            suppressed: sum.suppressed.wrapping_add(next.suppressed),
            full: sum.full.wrapping_add(next.full),
        })
    }
}

/// Sends frames from its own slots. One user at a time, at IRQL <= DISPATCH_LEVEL.
///
/// Per frame: [`slot`](Self::slot), write, [`commit`](Self::commit). Per batch: [`kick`](Self::kick).
/// When no slot is free, [`request_interrupt`](Self::request_interrupt) requests an interrupt for when most are free again.
#[derive(Debug)]
pub struct TransmitQueue<H: Hal, R> {
    queue: Queue<H, R>,
    buffers: Buffers<H>,
    /// Buffers that are not outstanding; the last one is used next.
    free: Vec<u16>,
    /// `None` if the device completes no checksums.
    offloads: Option<Box<OffloadSlots<H>>>,
    counters: TransmitCounters,
    /// [`TransmitCounters::frames`] at the last kick.
    kicked: u64,
    /// Slots that the device has returned since the queue's creation.
    completed: u64,
}

impl<H: Hal, R: Registers> TransmitQueue<H, R> {
    /// Allocates queue `index` with `size` slots for frames of up to `max_frame` bytes. `large` describes the buffers for packets that the
    /// device segments; `None` if the device completes no checksums.
    pub(crate) fn new(
        hal: &H,
        index: u16,
        size: u16,
        max_frame: usize,
        large: Option<LargeFrames>,
        features: Features,
    ) -> Result<Self, Error> {
        let has_hash = features.contains(Features::HASH_REPORT);
        let queue = Queue::new(hal, index, size, features)?;
        let buffers = Buffers::new(hal, size, max_frame.max(MIN_FRAME), has_hash)?;
        let free = vec::with_capacity(usize::from(size))?;
        let offloads = match large {
            Some(large) => Some(OffloadSlots::boxed(hal, size, large, has_hash)?),
            None => None,
        };
        let counters = TransmitCounters::default();
        let mut this = Self { queue, buffers, free, offloads, counters, kicked: 0, completed: 0 };
        this.describe()?;
        Ok(this)
    }

    /// Describes every slot to the device, and marks it free.
    fn describe(&mut self) -> Result<(), Error> {
        self.free.clear();
        for id in 0..self.queue.ring.size() {
            self.restore(id);
        }
        for id in (0..self.queue.ring.size()).rev() {
            let address = self.buffers.device_address(id).ok_or(Error::NoMemory)?;
            self.queue.ring.describe(id, address, 0, Direction::ToDevice);
            vec::push_within_capacity(&mut self.free, id)?;
        }
        self.queue.ring.suppress_interrupts();
        Ok(())
    }

    /// Disconnects the queue from the device: from now on the queue does not access the device, and no slot is free. IRQL <=
    /// DISPATCH_LEVEL.
    pub fn stop(&mut self) {
        self.queue.stop();
    }

    /// Programs the queue again into a device that was reset and renegotiated. `vector` is the queue's interrupt message. The queue keeps
    /// its memory, so this allocates none. Frames that were not sent are dropped; the counters continue. IRQL <= DISPATCH_LEVEL.
    ///
    /// # Errors
    /// [`Error::Changed`] if the device's queue is smaller, or it refuses `vector`; [`Error::NoQueue`],
    /// [`Error::BadQueueSize`], [`Error::NotifyOutOfRange`], [`Error::OutOfOrder`]. The queue is stopped then.
    pub fn reprogram(&mut self, control: &mut Control<H, R>, vector: u16) -> Result<(), Error> {
        self.queue.clear(control, Some(vector))?;
        self.describe()?;
        self.enable(control)
    }

    /// Programs the queue into the device.
    pub(crate) fn enable(&mut self, control: &mut Control<H, R>) -> Result<(), Error> {
        self.queue.enable(control)
    }

    /// Returns the slot for the next frame, from its Ethernet header on; `None` if every slot is outstanding. Returns the
    /// same slot until [`commit`](Self::commit).
    pub fn slot(&mut self) -> Option<&mut [u8]> {
        if !self.queue.is_enabled() {
            return None;
        }
        if self.free.is_empty() {
            // An error leaves the queue full; `fault` reports it.
            let _ = self.reap();
        }
        let Some(&id) = self.free.last() else {
            self.counters.full = self.counters.full.wrapping_add(1);
            return None;
        };
        // SAFETY: `id` is on the free list, so it is not outstanding.
        Some(unsafe { self.buffers.frame_mut(id) })
    }

    /// Queues the first `len` bytes of the slot as a frame, padded with zeros to [`MIN_FRAME`], for the next
    /// [`kick`](Self::kick). A `len` of 0 or more than the slot's drops the frame.
    pub fn commit(&mut self, len: usize) {
        let capacity = self.buffers.frame_len();
        let Some(&id) = self.free.last() else { return };
        if len == 0 || len > capacity {
            self.counters.bad_length = self.counters.bad_length.wrapping_add(1);
            return;
        }
        let padded = len.max(MIN_FRAME);
        if len < MIN_FRAME {
            // SAFETY: `id` is still on the free list, so it is not outstanding.
            let frame = unsafe { self.buffers.frame_mut(id) };
            if let Some(padding) = frame.get_mut(len..padded) {
                padding.fill(0);
            }
        }
        let Ok(total) = u32::try_from(padded.saturating_add(self.buffers.header_len())) else { return };
        self.free.pop();
        self.queue.ring.set_len(id, total);
        self.queue.ring.offer(id);
        self.counters.frames = self.counters.frames.wrapping_add(1);
        self.counters.bytes = self.counters.bytes.wrapping_add(padded as u64);
    }

    /// Queues the frame in the slot, with an offload request for the device. If the device completes no checksums, the frame is dropped.
    pub fn commit_with(&mut self, len: usize, offload: &Offload) {
        let free = self.free.len();
        let (Some(&id), Some(offloads)) = (self.free.last(), &mut self.offloads) else {
            return self.commit(0);
        };
        offloads.set(id, Use::Header);
        // SAFETY: `id` is on the free list, so it is not outstanding.
        unsafe { self.buffers.write_header(id, offload.to_bytes()) };
        self.commit(len);
        if self.free.len() == free {
            // The frame was dropped.
            self.restore(id);
        }
    }

    /// Returns a buffer for the next frame, of [`MAX_LARGE_FRAME`](crate::MAX_LARGE_FRAME) bytes; `None` if every slot or every
    /// such buffer is outstanding.
    pub fn large_slot(&mut self) -> Option<&mut [u8]> {
        self.slot()?;
        if self.offloads.as_mut()?.free_large().is_none() {
            // As in `slot`.
            let _ = self.reap();
        }
        let offloads = self.offloads.as_mut()?;
        let id = offloads.free_large()?;
        // SAFETY: `id` is free, so it is not outstanding.
        Some(unsafe { offloads.large.frame_mut(id) })
    }

    /// Queues the first `len` bytes of the buffer of [`large_slot`](Self::large_slot), padded as in [`commit`](Self::commit). The device
    /// segments them as `offload` requests. A `len` of 0 or more than the buffer's drops the frame.
    pub fn commit_large(&mut self, len: usize, offload: &Offload) {
        let Some(offloads) = &mut self.offloads else { return };
        let (Some(&id), Some(large)) = (self.free.last(), offloads.free_large()) else { return };
        let padded = len.max(MIN_FRAME);
        if len == 0 || padded > offloads.large.frame_len() {
            self.counters.bad_length = self.counters.bad_length.wrapping_add(1);
            return;
        }
        let header = if offloads.has_ecn { offload.to_bytes_with_ecn() } else { offload.to_bytes() };
        // SAFETY: `large` is free, so it is not outstanding.
        if let Some(padding) = unsafe { offloads.large.frame_mut(large) }.get_mut(len..padded) {
            padding.fill(0);
        }
        // SAFETY: the slot `large` is free, so the device does not read it.
        unsafe { offloads.large.write_header(large, header) };
        let total = u32::try_from(padded.saturating_add(offloads.large.header_len()));
        let (Some(address), Ok(total)) = (offloads.large.device_address(large), total) else { return };
        offloads.set(id, Use::Large(large));
        self.free.pop();
        self.queue.ring.describe(id, address, total, Direction::ToDevice);
        self.queue.ring.offer(id);
        let (further, headers) = offload.further_frames();
        self.counters.frames = self.counters.frames.wrapping_add(further).wrapping_add(1);
        self.counters.bytes = self.counters.bytes.wrapping_add(headers).wrapping_add(padded as u64);
    }

    /// Makes a slot plain again. The slot is not outstanding.
    #[cold]
    fn restore(&mut self, id: u16) {
        match self.offloads.as_mut().map_or(Use::Plain, |offloads| offloads.clear(id)) {
            Use::Plain => {}
            // SAFETY: the callers' slots are not outstanding.
            Use::Header => unsafe { self.buffers.write_header(id, [0; HEADER_LEN]) },
            Use::Large(_) => {
                if let Some(address) = self.buffers.device_address(id) {
                    self.queue.ring.describe(id, address, 0, Direction::ToDevice);
                }
            }
        }
    }

    /// Makes the committed frames available to the device, with at most one notification.
    pub fn kick(&mut self) {
        if !self.queue.is_enabled() {
            return;
        }
        if self.queue.publish() {
            self.counters.notifications = self.counters.notifications.wrapping_add(1);
        } else if self.kicked != self.counters.frames {
            self.counters.suppressed = self.counters.suppressed.wrapping_add(1);
        }
        self.kicked = self.counters.frames;
    }

    /// Frees the slots of frames that the device has sent. Returns their number.
    ///
    /// # Errors
    /// [`Error::BrokenRing`]: the used ring is inconsistent. Every later call fails.
    pub fn reap(&mut self) -> Result<u16, Error> {
        let mut reaped = 0_u16;
        // The ring yields at most the outstanding buffers.
        while let Some(used) = self.queue.ring.take_used()? {
            // `free` has capacity for every id.
            vec::push_within_capacity(&mut self.free, used.id)?;
            if self.offloads.as_ref().is_some_and(|offloads| offloads.any()) {
                self.restore(used.id);
            }
            reaped = reaped.wrapping_add(1);
        }
        self.completed = self.completed.wrapping_add(reaped.into());
        self.queue.ring.suppress_interrupts();
        Ok(reaped)
    }

    /// Requests an interrupt when three quarters of the outstanding frames are sent. Returns `true` if slots are
    /// already free, or the frames already sent: the caller must continue instead of waiting. A queue that was stopped
    /// or has a [`fault`](Self::fault) requests no interrupt and returns `false`.
    #[must_use]
    pub fn request_interrupt(&mut self) -> bool {
        if !self.queue.is_enabled() || self.queue.ring.fault().is_some() {
            return false;
        }
        if self.offloads.as_ref().is_some_and(|offloads| offloads.waits()) {
            // Slots may be free, but the caller waits for a large buffer.
            return self.queue.ring.request_interrupt(1);
        }
        let outstanding = self.queue.ring.outstanding();
        let after = outstanding.wrapping_sub(outstanding.wrapping_shr(2)).max(1);
        !self.free.is_empty() || self.queue.ring.request_interrupt(after)
    }

    /// Returns the inconsistency of the used ring, if one was found. Slots are then not freed until a reset. A queue that was stopped has
    /// none: it waits for its reset.
    pub fn fault(&self) -> Option<Error> {
        if self.queue.is_enabled() { self.queue.ring.fault() } else { None }
    }

    /// Whether the device uses the queue, and no frame is outstanding.
    pub fn is_idle(&self) -> bool {
        self.queue.is_enabled() && self.queue.ring.outstanding() == 0
    }

    /// Returns the number of slots that [`reap`](Self::reap) has freed.
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// Returns the number of slots.
    pub fn size(&self) -> u16 {
        self.queue.ring.size()
    }

    /// Returns the counters.
    pub fn counters(&self) -> TransmitCounters {
        self.counters
    }
}
