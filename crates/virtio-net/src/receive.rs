// SPDX-License-Identifier: MIT OR Apache-2.0

//! The receive queue: every buffer is outstanding except while its frame is copied. (virtio §10)
//!
//! A frame is copied before anything is read from it: a device that writes to a buffer it has returned cannot change what was
//! checked.

use alloc::vec::Vec;

use fallible::vec;

use crate::buffers::{Buffers, HEADER_LEN};
use crate::error::Error;
use crate::hal::{Hal, Registers};
use crate::ring::{Direction, Ring, RingOptions};
use crate::transport::{Control, Doorbell};

/// Length of an Ethernet header in bytes. Shorter frames are dropped.
const MIN_FRAME: usize = 14;

/// Counters of a receive queue since its creation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReceiveCounters {
    /// Frames received.
    pub frames: u64,
    /// Their bytes, from the Ethernet header on.
    pub bytes: u64,
    /// Buffers dropped because the device returned them with an invalid length.
    pub bad_length: u64,
    /// Notifications sent for returned buffers.
    pub notifications: u64,
}

/// Result of [`ReceiveQueue::poll`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Polled {
    /// Buffers taken from the ring; at most the budget.
    pub taken: u32,
    /// The budget is used up: the ring may contain more.
    pub more: bool,
}

/// Receives frames into its own buffers. One user at a time, at IRQL <= DISPATCH_LEVEL.
#[derive(Debug)]
pub struct ReceiveQueue<H: Hal, R> {
    ring: Ring<H>,
    buffers: Buffers<H>,
    /// Memory of the driver for the frame that is being processed.
    frame: Vec<u8>,
    doorbell: Option<Doorbell<R>>,
    counters: ReceiveCounters,
}

impl<H: Hal, R: Registers> ReceiveQueue<H, R> {
    /// Allocates `size` buffers for frames of up to `max_frame` bytes and describes them, without making them available.
    pub(crate) fn new(hal: &H, size: u16, max_frame: usize, options: RingOptions) -> Result<Self, Error> {
        let ring = Ring::new(hal, size, options)?;
        let buffers = Buffers::new(hal, size, max_frame)?;
        let frame = vec::filled(max_frame, 0)?;
        let mut queue = Self { ring, buffers, frame, doorbell: None, counters: ReceiveCounters::default() };
        queue.describe()?;
        Ok(queue)
    }

    /// Describes every buffer to the device.
    fn describe(&mut self) -> Result<(), Error> {
        let len = u32::try_from(self.buffers.len()).map_err(|_| Error::NoMemory)?;
        for id in 0..self.ring.size() {
            let address = self.buffers.device_address(id).ok_or(Error::NoMemory)?;
            self.ring.describe(id, address, len, Direction::FromDevice);
        }
        Ok(())
    }

    /// Disconnects the queue from the device: from now on nothing here accesses the device, and no frame is received. IRQL <=
    /// DISPATCH_LEVEL.
    pub fn stop(&mut self) {
        self.doorbell = None;
    }

    /// Makes the queue like a new one, after the device was reset. The counters go on.
    pub(crate) fn renew(&mut self) -> Result<(), Error> {
        self.ring.clear();
        self.describe()
    }

    pub(crate) fn ring(&self) -> &Ring<H> {
        &self.ring
    }

    pub(crate) fn connect(&mut self, doorbell: Doorbell<R>) {
        self.doorbell = Some(doorbell);
    }

    /// Starts the device: sets DRIVER_OK, then makes every buffer available. Interrupts may occur from now on. For drivers
    /// that took the queues out of [`Nic`](crate::Nic).
    ///
    /// # Errors
    /// [`Error::OutOfOrder`], [`Error::Removed`].
    pub fn start(&mut self, control: &mut Control<H, R>) -> Result<(), Error> {
        control.start()?;
        // At the first frame; without a buffer none has arrived.
        let _ = self.ring.request_interrupt(1);
        for id in 0..self.ring.size() {
            self.ring.offer(id);
        }
        self.publish();
        Ok(())
    }

    /// Passes at most `budget` received frames to `sink`, each from its Ethernet header on, a copy that is valid during the call and
    /// that the device cannot access. Then makes their buffers available again with at most one notification.
    ///
    /// # Errors
    /// [`Error::BrokenRing`]: the used ring is inconsistent. Frames before the fault were passed to `sink`; every later call
    /// fails.
    /// A queue that was stopped has no frames.
    pub fn poll(&mut self, budget: u32, mut sink: impl FnMut(&[u8])) -> Result<Polled, Error> {
        let mut taken = 0;
        if self.doorbell.is_none() {
            return Ok(Polled { taken, more: false });
        }
        let outcome = loop {
            if taken == budget {
                break Ok(Polled { taken, more: true });
            }
            let used = match self.ring.take_used() {
                Ok(Some(used)) => used,
                Ok(None) => break Ok(Polled { taken, more: false }),
                Err(error) => break Err(error),
            };
            taken = taken.wrapping_add(1);
            match self.frame_len(used.len).and_then(|len| self.frame.get_mut(..len)) {
                Some(frame) => {
                    let len = frame.len();
                    self.buffers.read(used.id, frame);
                    self.counters.frames = self.counters.frames.wrapping_add(1);
                    self.counters.bytes = self.counters.bytes.wrapping_add(len as u64);
                    sink(frame);
                }
                None => self.counters.bad_length = self.counters.bad_length.wrapping_add(1),
            }
            self.ring.offer(used.id);
        };
        self.publish();
        outcome
    }

    /// Suppresses interrupts while the caller polls.
    pub fn suppress_interrupts(&mut self) {
        self.ring.suppress_interrupts();
    }

    /// Requests an interrupt at the next frame. Returns `true` if a frame has already arrived and the caller must poll
    /// again.
    #[must_use]
    pub fn request_interrupt(&mut self) -> bool {
        self.doorbell.is_some() && self.ring.request_interrupt(1)
    }

    /// Returns the counters.
    pub fn counters(&self) -> ReceiveCounters {
        self.counters
    }

    /// Returns the length of the frame in a buffer with `used` bytes written; `None` if `used` is invalid.
    //= virtio §10
    fn frame_len(&self, used: u32) -> Option<usize> {
        let used = usize::try_from(used).ok()?;
        let len = used.checked_sub(HEADER_LEN)?;
        (used <= self.buffers.len() && len >= MIN_FRAME).then_some(len)
    }

    fn publish(&mut self) {
        if self.ring.publish() {
            self.counters.notifications = self.counters.notifications.wrapping_add(1);
            if let Some(doorbell) = &self.doorbell {
                doorbell.ring();
            }
        }
    }
}
