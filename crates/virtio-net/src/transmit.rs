// SPDX-License-Identifier: MIT OR Apache-2.0

//! The transmit queue: frames are built in place in the slot that the device will read. (virtio §11)

use alloc::vec::Vec;

use fallible::vec;

use crate::buffers::{Buffers, HEADER_LEN};
use crate::error::Error;
use crate::hal::{Hal, Registers};
use crate::notify::Suppression;
use crate::ring::{Direction, Ring};
use crate::transport::Doorbell;

/// Shortest Ethernet frame without its check sequence; the device does not pad. (virtio §10)
pub const MIN_FRAME: usize = 60;

/// Counters of a transmit queue, since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TransmitCounters {
    /// Frames committed.
    pub frames: u64,
    /// Their bytes, padding included.
    pub bytes: u64,
    /// Frames committed with a length that no slot has: dropped.
    pub bad_length: u64,
    /// Notifications sent.
    pub notifications: u64,
    /// How often no slot was free.
    pub full: u64,
}

/// Sends frames from slots of its own. One user at a time (a lock above it), at most at DISPATCH_LEVEL.
///
/// Per frame: [`slot`](Self::slot), write, [`commit`](Self::commit). Per batch: [`kick`](Self::kick).
/// When `slot` finds none free, [`request_interrupt`](Self::request_interrupt) requests an interrupt when many are free again.
#[derive(Debug)]
pub struct TransmitQueue<H: Hal, R> {
    ring: Ring<H>,
    buffers: Buffers<H>,
    /// Buffers the device does not hold; the last one is next.
    free: Vec<u16>,
    doorbell: Option<Doorbell<R>>,
    counters: TransmitCounters,
}

impl<H: Hal, R: Registers> TransmitQueue<H, R> {
    /// `size` slots for frames of up to `max_frame` bytes, their headers in place.
    pub(crate) fn new(hal: &H, size: u16, max_frame: usize, suppression: Suppression) -> Result<Self, Error> {
        let mut ring = Ring::new(hal, size, suppression)?;
        // The header of a frame without offloads is all zeroes, as DMA memory is from the start. (virtio §9)
        let buffers = Buffers::new(hal, size, max_frame.max(MIN_FRAME))?;
        let mut free = vec::with_capacity(usize::from(size))?;
        for id in (0..size).rev() {
            let address = buffers.device_address(id).ok_or(Error::NoMemory)?;
            ring.describe(id, address, 0, Direction::ToDevice);
            vec::push_within_capacity(&mut free, id)?;
        }
        ring.suppress_interrupts();
        Ok(Self { ring, buffers, free, doorbell: None, counters: TransmitCounters::default() })
    }

    pub(crate) fn ring(&self) -> &Ring<H> {
        &self.ring
    }

    pub(crate) fn connect(&mut self, doorbell: Doorbell<R>) {
        self.doorbell = Some(doorbell);
    }

    /// Room for the next frame, from its Ethernet header on; `None` if the device holds every slot.
    /// The same room again until [`commit`](Self::commit).
    pub fn slot(&mut self) -> Option<&mut [u8]> {
        if self.free.is_empty() {
            // A broken ring shows as a full queue, and as a `fault`.
            let _ = self.reap();
        }
        let Some(&id) = self.free.last() else {
            self.counters.full = self.counters.full.wrapping_add(1);
            return None;
        };
        // SAFETY: `id` is on the free list, so that the device does not hold it.
        Some(unsafe { self.buffers.frame_mut(id) })
    }

    /// Takes the first `len` bytes of the slot as a frame, padded to [`MIN_FRAME`]. The device sees it at the next [`kick`](Self::kick).
    /// A `len` of 0 or above the slot's drops the frame.
    pub fn commit(&mut self, len: usize) {
        let capacity = self.buffers.len().saturating_sub(HEADER_LEN);
        let Some(&id) = self.free.last() else { return };
        if len == 0 || len > capacity {
            self.counters.bad_length = self.counters.bad_length.wrapping_add(1);
            return;
        }
        let padded = len.max(MIN_FRAME);
        if len < MIN_FRAME {
            // SAFETY: `id` is still on the free list, so that the device does not hold it.
            let frame = unsafe { self.buffers.frame_mut(id) };
            if let Some(padding) = frame.get_mut(len..padded) {
                padding.fill(0);
            }
        }
        let Ok(total) = u32::try_from(padded.saturating_add(HEADER_LEN)) else { return };
        self.free.pop();
        self.ring.set_len(id, total);
        self.ring.offer(id);
        self.counters.frames = self.counters.frames.wrapping_add(1);
        self.counters.bytes = self.counters.bytes.wrapping_add(padded as u64);
    }

    /// Shows everything committed to the device, with at most one notification.
    pub fn kick(&mut self) {
        if self.ring.publish() {
            self.counters.notifications = self.counters.notifications.wrapping_add(1);
            if let Some(doorbell) = &self.doorbell {
                doorbell.ring();
            }
        }
    }

    /// Takes back what the device has sent; returns how many.
    ///
    /// # Errors
    /// [`Error::BrokenRing`]: the device broke the ring. The queue stays broken.
    pub fn reap(&mut self) -> Result<u16, Error> {
        let mut reaped = 0_u16;
        // The ring yields at most what is outstanding.
        while let Some(used) = self.ring.take_used()? {
            // Room for every id was reserved at the start.
            vec::push_within_capacity(&mut self.free, used.id)?;
            reaped = reaped.wrapping_add(1);
        }
        self.ring.suppress_interrupts();
        Ok(reaped)
    }

    /// Asks for an interrupt once three quarters of what is outstanding was sent; `true` if slots are free
    /// already: go on instead of waiting. A queue with a [`fault`](Self::fault) has nothing to wait for and gets none.
    #[must_use]
    pub fn request_interrupt(&mut self) -> bool {
        if self.ring.fault().is_some() {
            return false;
        }
        let outstanding = self.ring.outstanding();
        let after = outstanding.wrapping_sub(outstanding.wrapping_shr(2)).max(1);
        !self.free.is_empty() || self.ring.request_interrupt(after)
    }

    /// How the device broke the ring, once it did: slots no longer come back, and only a reset helps.
    pub fn fault(&self) -> Option<Error> {
        self.ring.fault()
    }

    /// Whether every frame was sent.
    pub fn is_idle(&self) -> bool {
        self.ring.outstanding() == 0
    }

    /// Counters so far.
    pub fn counters(&self) -> TransmitCounters {
        self.counters
    }
}
