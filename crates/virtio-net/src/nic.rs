// SPDX-License-Identifier: MIT OR Apache-2.0

//! A device's receive, transmit and control queue, from feature negotiation to reset.

use alloc::boxed::Box;

use fallible::try_box;

use crate::control_queue::ControlQueue;
use crate::error::Error;
use crate::features::Features;
use crate::hal::{Hal, Registers};
use crate::receive::{ReceiveOptions, ReceiveQueue};
use crate::ring::RingOptions;
use crate::transmit::TransmitQueue;
use crate::transport::{Control, Vectors};

/// Queue indices of the first pair, and of the control queue of a device with one pair. (virtio §4)
const RECEIVE: u16 = 0;
const TRANSMIT: u16 = 1;
const CONTROL: u16 = 2;
/// Buffers for frames that the device divides, of 64 KiB each.
const LARGE_BUFFERS: u16 = 16;

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
    /// `None` without the feature.
    pub commands: Option<Box<ControlQueue<H, R>>>,
    /// Interrupt messages by purpose.
    pub vectors: Vectors,
}

/// A receive queue, a transmit queue, and the control queue if there is one.
type Queues<H, R> = (ReceiveQueue<H, R>, TransmitQueue<H, R>, Option<Box<ControlQueue<H, R>>>);

impl<H: Hal, R: Registers> Nic<H, R> {
    /// Allocates the queues and programs their addresses and the vectors into the device, whose features were negotiated.
    /// On an error the device is reset and all memory freed.
    ///
    /// # Errors
    /// [`Error::NoMemory`], [`Error::NoQueue`], [`Error::BadQueueSize`], [`Error::NotifyOutOfRange`],
    /// [`Error::VectorRefused`], [`Error::OutOfOrder`].
    pub fn new(hal: &H, control: &mut Control<H, R>, options: &Options) -> Result<Self, Error> {
        let (mut receive, mut transmit, mut commands) =
            Self::allocate(hal, control, options).inspect_err(|_| abandon(control))?;
        // On an error the queues are freed after the reset.
        let vectors = control
            .assign_vectors(options.messages, [RECEIVE, TRANSMIT])
            .and_then(|vectors| {
                Self::enable(control, &mut receive, &mut transmit, commands.as_deref_mut())?;
                Ok(vectors)
            })
            .inspect_err(|_| abandon(control))?;
        Ok(Self { receive, transmit, commands, vectors })
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
        mut commands: Option<&mut ControlQueue<H, R>>,
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
        if let Some(commands) = commands.as_deref_mut() {
            commands.stop();
            if control.queue_size(CONTROL)? < commands.ring().size() {
                return Err(Error::Changed);
            }
            commands.renew();
        }
        if control.assign_exactly(vectors, [RECEIVE, TRANSMIT]) {
            Self::enable(control, receive, transmit, commands.as_deref_mut()).inspect_err(|_| {
                receive.stop();
                transmit.stop();
                commands.into_iter().for_each(ControlQueue::stop);
            })
        } else {
            Err(Error::Changed)
        }
    }

    /// Not inlined: with the caller's, its frame is too large for a kernel stack.
    #[inline(never)]
    fn allocate(hal: &H, control: &mut Control<H, R>, options: &Options) -> Result<Queues<H, R>, Error> {
        let features = control.features();
        let rings = RingOptions::of(features);
        let receive_size = options.receive_size.min(control.queue_size(RECEIVE)?);
        let transmit_size = options.transmit_size.min(control.queue_size(TRANSMIT)?);
        let receive_options = ReceiveOptions {
            is_merged: features.contains(Features::MRG_RXBUF),
            has_checksums: features.contains(Features::GUEST_CSUM),
        };
        let receive = ReceiveQueue::new(hal, receive_size, options.receive_frame, receive_options, rings)?;
        let divides = features.intersects(Features::HOST_TSO4 | Features::HOST_TSO6);
        let completes = features.contains(Features::CSUM);
        let large = completes.then_some(if divides { LARGE_BUFFERS } else { 0 });
        let transmit = TransmitQueue::new(hal, transmit_size, options.transmit_frame, large, rings)?;
        let commands =
            if features.contains(Features::CTRL_VQ) { Some(Self::commands(hal, control)?) } else { None };
        Ok((receive, transmit, commands))
    }

    /// Not inlined, as above.
    #[inline(never)]
    fn commands(hal: &H, control: &mut Control<H, R>) -> Result<Box<ControlQueue<H, R>>, Error> {
        Ok(try_box(ControlQueue::new(hal, control.queue_size(CONTROL)?, control.features())?)?)
    }

    /// Enables the queues. The control queue has no vector: its user polls. Not inlined, as above.
    #[inline(never)]
    fn enable(
        control: &mut Control<H, R>,
        receive: &mut ReceiveQueue<H, R>,
        transmit: &mut TransmitQueue<H, R>,
        commands: Option<&mut ControlQueue<H, R>>,
    ) -> Result<(), Error> {
        let ring = receive.ring();
        let doorbell = control.enable_queue(RECEIVE, ring.size(), &ring.addresses())?;
        receive.connect(doorbell);
        let ring = transmit.ring();
        let doorbell = control.enable_queue(TRANSMIT, ring.size(), &ring.addresses())?;
        transmit.connect(doorbell);
        if let Some(commands) = commands {
            let ring = commands.ring();
            let doorbell = control.enable_queue(CONTROL, ring.size(), &ring.addresses())?;
            commands.connect(doorbell);
        }
        Ok(())
    }
}

/// Resets a device with enabled queues before their memory is freed.
fn abandon<H: Hal, R: Registers>(control: &mut Control<H, R>) {
    // If the reset fails: DRIVER_OK was never set, so the device does not use the memory.
    let _ = control.reset();
}
