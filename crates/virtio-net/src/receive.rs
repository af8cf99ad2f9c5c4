// SPDX-License-Identifier: MIT OR Apache-2.0

//! The receive queue: every buffer is with the device except while a frame is looked at. (virtio §10)

use crate::buffers::{Buffers, HEADER_LEN};
use crate::error::Error;
use crate::hal::{Hal, Registers};
use crate::notify::Suppression;
use crate::ring::{Direction, Ring};
use crate::transport::{Control, Doorbell};

/// An Ethernet header: shorter frames are not frames.
const MIN_FRAME: usize = 14;

/// Counters of a receive queue, since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReceiveCounters {
    /// Frames handed out.
    pub frames: u64,
    /// Their bytes, from the Ethernet header on.
    pub bytes: u64,
    /// Buffers the device returned with an impossible length: dropped.
    pub bad_length: u64,
    /// Notifications sent for returned buffers.
    pub notifications: u64,
}

/// What one call of [`ReceiveQueue::poll`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Polled {
    /// Buffers taken from the ring; at most the budget.
    pub taken: u32,
    /// The budget ran out: there may be more.
    pub more: bool,
}

/// Receives frames into buffers of its own. One user at a time, at most at DISPATCH_LEVEL.
#[derive(Debug)]
pub struct ReceiveQueue<H: Hal, R> {
    ring: Ring<H>,
    buffers: Buffers<H>,
    doorbell: Option<Doorbell<R>>,
    counters: ReceiveCounters,
}

impl<H: Hal, R: Registers> ReceiveQueue<H, R> {
    /// `size` buffers for frames of up to `max_frame` bytes, described but not yet shown to a device.
    pub(crate) fn new(hal: &H, size: u16, max_frame: usize, suppression: Suppression) -> Result<Self, Error> {
        let mut ring = Ring::new(hal, size, suppression)?;
        let buffers = Buffers::new(hal, size, max_frame)?;
        let len = u32::try_from(buffers.len()).map_err(|_| Error::NoMemory)?;
        for id in 0..size {
            let address = buffers.device_address(id).ok_or(Error::NoMemory)?;
            ring.describe(id, address, len, Direction::FromDevice);
        }
        Ok(Self { ring, buffers, doorbell: None, counters: ReceiveCounters::default() })
    }

    pub(crate) fn ring(&self) -> &Ring<H> {
        &self.ring
    }

    pub(crate) fn connect(&mut self, doorbell: Doorbell<R>) {
        self.doorbell = Some(doorbell);
    }

    /// Lets the device run: DRIVER_OK, then every buffer. Interrupts may come from here on. For drivers that took a
    /// [`Nic`](crate::Nic) apart.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`], [`Error::Removed`].
    pub fn start(&mut self, control: &mut Control<H, R>) -> Result<(), Error> {
        control.start()?;
        for id in 0..self.ring.size() {
            self.ring.offer(id);
        }
        self.publish();
        Ok(())
    }

    /// Hands at most `budget` received frames to `sink`, each from its Ethernet header on and valid during the call,
    /// then returns their buffers to the device with at most one notification.
    ///
    /// # Errors
    /// [`Error::BrokenRing`]: the device broke the ring; frames before that were handed out. The queue stays broken.
    pub fn poll(&mut self, budget: u32, mut sink: impl FnMut(&[u8])) -> Result<Polled, Error> {
        let mut taken = 0;
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
            match self.frame_len(used.len) {
                Some(len) => {
                    // SAFETY: the ring just returned the buffer and it is offered again only below.
                    let frame = unsafe { self.buffers.frame(used.id, len) };
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

    /// Asks for no interrupts while [`poll`](Self::poll) is being called.
    pub fn suppress_interrupts(&mut self) {
        self.ring.suppress_interrupts();
    }

    /// Asks for an interrupt at the next frame; `true` if one is there already: poll again instead of waiting.
    #[must_use]
    pub fn request_interrupt(&mut self) -> bool {
        self.ring.request_interrupt(1)
    }

    /// Counters so far.
    pub fn counters(&self) -> ReceiveCounters {
        self.counters
    }

    /// Length of the frame in a buffer with `used` bytes written; `None` if that cannot be.
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
