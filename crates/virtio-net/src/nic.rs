// SPDX-License-Identifier: MIT OR Apache-2.0

//! A device's receive and transmit queue, from feature negotiation to reset.

use crate::error::Error;
use crate::hal::{Hal, Registers};
use crate::receive::ReceiveQueue;
use crate::ring::RingOptions;
use crate::transmit::TransmitQueue;
use crate::transport::{Control, Vectors};

/// Queue indices of the first pair. (virtio §4)
const RECEIVE: u16 = 0;
const TRANSMIT: u16 = 1;

/// Frame lengths, queue sizes and interrupt messages.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Longest frame sent, from the Ethernet header on, without check sequence, in bytes.
    pub transmit_frame: usize,
    /// Longest frame received, likewise. With the MTU feature at least that of the device's MTU, otherwise the device may
    /// have no buffer for a frame. (virtio §10)
    pub receive_frame: usize,
    /// Buffers in the receive queue, a power of two; at most the device's queue size is used.
    pub receive_size: u16,
    /// Slots in the transmit queue, a power of two; at most the device's queue size is used.
    pub transmit_size: u16,
    /// Interrupt messages that the platform granted; at least 1.
    pub messages: u32,
}

/// The queues of a device, and its interrupt vectors. The fields are public so that each queue can have its own user.
///
/// The queues own the memory that the device uses: call [`Control::reset`] before dropping them.
#[derive(Debug)]
pub struct Nic<H: Hal, R> {
    pub receive: ReceiveQueue<H, R>,
    pub transmit: TransmitQueue<H, R>,
    /// Interrupt messages by purpose.
    pub vectors: Vectors,
}

/// A receive and a transmit queue.
type Pair<H, R> = (ReceiveQueue<H, R>, TransmitQueue<H, R>);

impl<H: Hal, R: Registers> Nic<H, R> {
    /// Allocates both queues and programs their addresses and the vectors into the device, whose features were negotiated.
    /// On an error the device is reset and all memory freed.
    ///
    /// # Errors
    /// [`Error::NoMemory`], [`Error::NoQueue`], [`Error::BadQueueSize`], [`Error::NotifyOutOfRange`],
    /// [`Error::VectorRefused`], [`Error::OutOfOrder`].
    pub fn new(hal: &H, control: &mut Control<H, R>, options: &Options) -> Result<Self, Error> {
        let (mut receive, mut transmit) =
            Self::allocate(hal, control, options).inspect_err(|_| abandon(control))?;
        // On an error the queues are freed after the reset.
        let vectors = Self::program(control, options.messages, &mut receive, &mut transmit)
            .inspect_err(|_| abandon(control))?;
        Ok(Self { receive, transmit, vectors })
    }

    /// Starts the device: sets DRIVER_OK, then makes the receive buffers available. Interrupts may occur from now on.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`], [`Error::Removed`].
    pub fn start(&mut self, control: &mut Control<H, R>) -> Result<(), Error> {
        self.receive.start(control)
    }

    /// Programs queues that a device used before into the device again, which was reset and whose features were negotiated
    /// anew: [`Control::renegotiate`], this, [`ReceiveQueue::start`]. The queues keep their memory, so that no memory is
    /// needed; what they contained is dropped. IRQL <= DISPATCH_LEVEL.
    ///
    /// # Errors
    /// [`Error::Changed`] if the device has smaller queues, or refuses `vectors`; [`Error::NoQueue`],
    /// [`Error::BadQueueSize`], [`Error::NotifyOutOfRange`], [`Error::OutOfOrder`]. The queues are stopped then.
    //= virtio §16
    pub fn reprogram(
        control: &mut Control<H, R>,
        receive: &mut ReceiveQueue<H, R>,
        transmit: &mut TransmitQueue<H, R>,
        vectors: Vectors,
    ) -> Result<(), Error> {
        receive.stop();
        transmit.stop();
        let receive_size = control.queue_size(RECEIVE)?;
        let transmit_size = control.queue_size(TRANSMIT)?;
        if receive_size < receive.ring().size() || transmit_size < transmit.ring().size() {
            return Err(Error::Changed);
        }
        receive.renew()?;
        transmit.renew()?;
        if control.assign_exactly(vectors, [RECEIVE, TRANSMIT]) {
            Self::enable(control, receive, transmit).inspect_err(|_| {
                receive.stop();
                transmit.stop();
            })
        } else {
            Err(Error::Changed)
        }
    }

    fn allocate(hal: &H, control: &mut Control<H, R>, options: &Options) -> Result<Pair<H, R>, Error> {
        let rings = RingOptions::of(control.features());
        let receive_size = options.receive_size.min(control.queue_size(RECEIVE)?);
        let transmit_size = options.transmit_size.min(control.queue_size(TRANSMIT)?);
        let receive = ReceiveQueue::new(hal, receive_size, options.receive_frame, rings)?;
        let transmit = TransmitQueue::new(hal, transmit_size, options.transmit_frame, rings)?;
        Ok((receive, transmit))
    }

    fn program(
        control: &mut Control<H, R>,
        messages: u32,
        receive: &mut ReceiveQueue<H, R>,
        transmit: &mut TransmitQueue<H, R>,
    ) -> Result<Vectors, Error> {
        let vectors = control.assign_vectors(messages, [RECEIVE, TRANSMIT])?;
        Self::enable(control, receive, transmit)?;
        Ok(vectors)
    }

    fn enable(
        control: &mut Control<H, R>,
        receive: &mut ReceiveQueue<H, R>,
        transmit: &mut TransmitQueue<H, R>,
    ) -> Result<(), Error> {
        let ring = receive.ring();
        let doorbell = control.enable_queue(RECEIVE, ring.size(), &ring.addresses())?;
        receive.connect(doorbell);
        let ring = transmit.ring();
        let doorbell = control.enable_queue(TRANSMIT, ring.size(), &ring.addresses())?;
        transmit.connect(doorbell);
        Ok(())
    }
}

/// Resets a device with enabled queues before their memory is freed.
fn abandon<H: Hal, R: Registers>(control: &mut Control<H, R>) {
    // If the reset fails: DRIVER_OK was never set, so the device does not use the memory.
    let _ = control.reset();
}
