// SPDX-License-Identifier: MIT OR Apache-2.0

//! A ring and its queue in the device: the common part of receive, transmit and control queues.

use crate::error::Error;
use crate::features::Features;
use crate::hal::{Hal, Registers};
use crate::ring::{Ring, RingOptions};
use crate::transport::{Control, Doorbell, NotifyRegister};

#[derive(Debug)]
pub(crate) struct Queue<H: Hal, R> {
    /// The queue's number.
    index: u16,
    pub(crate) ring: Ring<H>,
    /// `None` unless the queue is programmed into the device.
    doorbell: Option<Doorbell<R>>,
}

impl<H: Hal, R: Registers> Queue<H, R> {
    /// Allocates the ring of queue `index`, with `size` buffers.
    pub(crate) fn new(hal: &H, index: u16, size: u16, features: Features) -> Result<Self, Error> {
        Ok(Self { index, ring: Ring::new(hal, size, RingOptions::of(features))?, doorbell: None })
    }

    pub(crate) fn index(&self) -> u16 {
        self.index
    }

    /// Programs the queue into the device.
    pub(crate) fn enable(&mut self, control: &mut Control<H, R>) -> Result<(), Error> {
        let doorbell = control.enable_queue(self.index, self.ring.size(), &self.ring.addresses())?;
        self.doorbell = Some(doorbell);
        Ok(())
    }

    /// Whether the queue is programmed into the device.
    pub(crate) fn is_enabled(&self) -> bool {
        self.doorbell.is_some()
    }

    /// Returns the notification register of a queue that is programmed into the device.
    pub(crate) fn notify_register(&self) -> Option<NotifyRegister> {
        Some(self.doorbell.as_ref()?.place)
    }

    /// Disconnects the queue from the device. The queue does not notify it from now on.
    pub(crate) fn stop(&mut self) {
        self.doorbell = None;
    }

    /// Empties the ring, for a device that was reset, so that its buffers can be described and the queue [enabled](Self::enable)
    /// again. Assigns its interrupt message if it has one.
    ///
    /// # Errors
    /// [`Error::Changed`] if the device's queue is smaller than the ring, or the device refuses `vector`;
    /// [`Error::NoQueue`], [`Error::BadQueueSize`]. The queue is stopped in any case.
    //= virtio §16
    pub(crate) fn clear(&mut self, control: &mut Control<H, R>, vector: Option<u16>) -> Result<(), Error> {
        self.stop();
        control.check_queue(self.index, self.ring.size(), vector)?;
        self.ring.clear();
        Ok(())
    }

    /// Makes the added buffers available to the device, unless the queue is stopped. Returns whether the device was notified.
    pub(crate) fn publish(&mut self) -> bool {
        let Some(doorbell) = &self.doorbell else { return false };
        let notifies = self.ring.publish();
        if notifies {
            doorbell.ring();
        }
        notifies
    }
}
