// SPDX-License-Identifier: MIT OR Apache-2.0

//! A device with its two queues, between feature negotiation and reset.

use crate::error::Error;
use crate::features::Features;
use crate::hal::{Hal, Registers};
use crate::notify::Suppression;
use crate::receive::ReceiveQueue;
use crate::transmit::TransmitQueue;
use crate::transport::{Control, Vectors};

/// Queue indices of the first pair. (virtio §4)
const RECEIVE: u16 = 0;
const TRANSMIT: u16 = 1;

/// What the driver wants of the queues.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Longest frame sent, from the Ethernet header on, without check sequence, in bytes.
    pub transmit_frame: usize,
    /// Longest frame received, likewise. With the MTU feature at least the length that follows from the device's MTU, or the device
    /// might find no buffer for a frame. (virtio §10)
    pub receive_frame: usize,
    /// Buffers in the receive queue; lowered to what the device has. A power of two.
    pub receive_size: u16,
    /// Slots in the transmit queue; lowered to what the device has. A power of two.
    pub transmit_size: u16,
    /// Interrupt messages the platform granted; at least 1.
    pub messages: u32,
}

/// The parts of a device that was brought up. The driver takes them apart: each queue has its own user.
///
/// The queues own the memory that the device uses: [`Control::reset`] comes before dropping them.
#[derive(Debug)]
pub struct Nic<H: Hal, R> {
    pub receive: ReceiveQueue<H, R>,
    pub transmit: TransmitQueue<H, R>,
    /// Which message serves what.
    pub vectors: Vectors,
}

/// A receive and a transmit queue.
type Pair<H, R> = (ReceiveQueue<H, R>, TransmitQueue<H, R>);

impl<H: Hal, R: Registers> Nic<H, R> {
    /// Allocates both queues, and programs them and the vectors into the negotiated device. On an error the
    /// device is reset and everything freed.
    ///
    /// # Errors
    /// [`Error::NoMemory`], [`Error::NoQueue`], [`Error::BadQueueSize`], [`Error::NotifyOutOfRange`],
    /// [`Error::VectorRefused`], [`Error::OutOfOrder`].
    pub fn new(hal: &H, control: &mut Control<H, R>, options: &Options) -> Result<Self, Error> {
        let (mut receive, mut transmit) =
            Self::allocate(hal, control, options).inspect_err(|_| abandon(control))?;
        // The queues are freed only after the device was reset.
        let vectors = Self::program(control, options.messages, &mut receive, &mut transmit)
            .inspect_err(|_| abandon(control))?;
        Ok(Self { receive, transmit, vectors })
    }

    /// Lets the device run: DRIVER_OK, then the receive buffers. Interrupts may come from here on.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`], [`Error::Removed`].
    pub fn start(&mut self, control: &mut Control<H, R>) -> Result<(), Error> {
        self.receive.start(control)
    }

    fn allocate(hal: &H, control: &mut Control<H, R>, options: &Options) -> Result<Pair<H, R>, Error> {
        let suppression = if control.features().contains(Features::EVENT_IDX) {
            Suppression::EventIndex
        } else {
            Suppression::Flags
        };
        let receive_size = options.receive_size.min(control.queue_size(RECEIVE)?);
        let transmit_size = options.transmit_size.min(control.queue_size(TRANSMIT)?);
        let receive = ReceiveQueue::new(hal, receive_size, options.receive_frame, suppression)?;
        let transmit = TransmitQueue::new(hal, transmit_size, options.transmit_frame, suppression)?;
        Ok((receive, transmit))
    }

    fn program(
        control: &mut Control<H, R>,
        messages: u32,
        receive: &mut ReceiveQueue<H, R>,
        transmit: &mut TransmitQueue<H, R>,
    ) -> Result<Vectors, Error> {
        let vectors = control.assign_vectors(messages, [RECEIVE, TRANSMIT])?;
        let ring = receive.ring();
        let doorbell = control.enable_queue(RECEIVE, ring.size(), &ring.addresses())?;
        receive.connect(doorbell);
        let ring = transmit.ring();
        let doorbell = control.enable_queue(TRANSMIT, ring.size(), &ring.addresses())?;
        transmit.connect(doorbell);
        Ok(vectors)
    }
}

/// Takes an enabled but unstarted queue away from the device before its memory goes.
fn abandon<H: Hal, R: Registers>(control: &mut Control<H, R>) {
    // A device that neither resets nor disappears has not been started: it uses no memory.
    let _ = control.reset();
}
