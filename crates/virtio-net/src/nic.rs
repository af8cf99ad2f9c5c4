// SPDX-License-Identifier: MIT OR Apache-2.0

//! A device's queue pairs and control queue, from feature negotiation to reset.

use alloc::boxed::Box;
use alloc::vec::Vec;

use fallible::{try_box, vec};

use crate::control_queue::ControlQueue;
use crate::error::Error;
use crate::features::Features;
use crate::hal::{Hal, Registers};
use crate::idle::IdleQueues;
use crate::offload_slots::LargeFrames;
use crate::pair_queue::PairQueue;
use crate::receive::ReceiveQueue;
use crate::transmit::TransmitQueue;
use crate::transport::Control;
use crate::vectors::Vectors;

/// Buffers in each transmit queue for packets that the device segments, of 64 KiB each.
const LARGE_BUFFERS: u16 = 16;
/// Buffers of a queue below which none are saved if memory is short.
const FEW_BUFFERS: u16 = 64;

/// Frame lengths, queue sizes and interrupt messages.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Longest frame sent, from the Ethernet header on, without check sequence, in bytes.
    pub transmit_frame: usize,
    /// Longest frame received, likewise. With the MTU feature it must be at least the frame of the device's MTU; otherwise the device may
    /// have no buffer for a frame. (virtio §10)
    pub receive_frame: usize,
    /// Queue pairs, at least 1. Fewer are used if the device has fewer, or there are fewer interrupt messages or less memory.
    pub pairs: u16,
    /// Buffers in each receive queue, a power of two; at most the device's queue size is used.
    pub receive_size: u16,
    /// Slots in each transmit queue, a power of two; at most the device's queue size is used.
    pub transmit_size: u16,
    /// Interrupt messages that the platform granted; 0 if the device interrupts by its line.
    pub messages: u32,
}

impl Options {
    /// Returns the options for queues of half the size; `None` if both have few buffers already.
    fn halved(self) -> Option<Self> {
        let half = |size: u16| if size > FEW_BUFFERS { size / 2 } else { size };
        let (receive_size, transmit_size) = (half(self.receive_size), half(self.transmit_size));
        let is_less = (receive_size, transmit_size) != (self.receive_size, self.transmit_size);
        is_less.then_some(Self { receive_size, transmit_size, ..self })
    }
}

/// A receive queue and a transmit queue.
#[derive(Debug)]
pub struct QueuePair<H: Hal, R> {
    pub receive: ReceiveQueue<H, R>,
    pub transmit: TransmitQueue<H, R>,
}

/// The queues of a device, and its interrupt vectors. The fields are public so that each queue can have its own user.
///
/// The queues own the memory that the device uses: call [`Control::reset`] before dropping them.
#[derive(Debug)]
pub struct Nic<H: Hal, R> {
    /// At least one. The device uses the first until [`ControlQueue::set_pairs`].
    pub pairs: Vec<QueuePair<H, R>>,
    /// Those of the device's other pairs.
    pub idle: IdleQueues<H>,
    /// `None` without CTRL_VQ.
    pub commands: Option<Box<ControlQueue<H, R>>>,
    /// Interrupt messages by purpose.
    pub vectors: Vectors,
    /// Number of pairs that are missing because there was no memory for them.
    pub missing: u16,
    /// The queues are smaller than requested and possible because there was no memory for larger ones.
    pub is_reduced: bool,
}

impl<H: Hal, R: Registers> Nic<H, R> {
    /// Allocates the queues and programs their addresses and the vectors into the negotiated device. On an error the device is reset and
    /// all memory freed. Memory for one pair of small queues is enough.
    ///
    /// # Errors
    /// [`Error::NoMemory`], [`Error::NoQueue`], [`Error::BadQueueSize`], [`Error::NotifyOutOfRange`],
    /// [`Error::VectorRefused`], [`Error::OutOfOrder`].
    pub fn new(hal: &H, control: &mut Control<H, R>, options: &Options) -> Result<Self, Error> {
        let mut nic = Self::allocate(hal, control, options).inspect_err(|_| abandon(control))?;
        // On an error the queues are freed after the reset.
        nic.enable(control).inspect_err(|_| abandon(control))?;
        Ok(nic)
    }

    /// Starts the device: sets DRIVER_OK, then makes the receive buffers available. Interrupts may occur from now on. The
    /// device uses the first pair only.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`], [`Error::Removed`].
    pub fn start(&mut self, control: &mut Control<H, R>) -> Result<(), Error> {
        control.start()?;
        for pair in &mut self.pairs {
            pair.receive.start();
        }
        Ok(())
    }

    /// Not inlined: together with the caller's, its stack frame is too large for a kernel stack.
    #[inline(never)]
    fn allocate(hal: &H, control: &mut Control<H, R>, options: &Options) -> Result<Self, Error> {
        let commands = Self::commands(hal, control)?;
        // Several pairs imply a control queue, which MQ and RSS depend on.
        let wanted = options.pairs.min(control.max_pairs());
        let vectors = control.assign_vectors(options.messages, wanted)?;
        let mut pairs = vec::with_capacity(usize::from(vectors.pairs))?;
        // What is saved is saved of what the device has.
        let whole = Options {
            receive_size: options.receive_size.min(control.queue_size(PairQueue::Receive(0).index())?),
            transmit_size: options.transmit_size.min(control.queue_size(PairQueue::Transmit(0).index())?),
            ..*options
        };
        let options = Self::add_first(&mut pairs, hal, control, &whole)?;
        let mut missing = 0;
        for number in 1..vectors.pairs {
            match Self::add(&mut pairs, hal, control, number, &options) {
                Ok(()) => {}
                // The device does not use a pair without buffers.
                Err(Error::NoMemory) => {
                    missing = vectors.pairs.wrapping_sub(number);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        let vectors = Vectors { pairs: vectors.pairs.wrapping_sub(missing), ..vectors };
        let is_reduced =
            (options.receive_size, options.transmit_size) != (whole.receive_size, whole.transmit_size);
        let idle = IdleQueues::new(hal, control, vectors.pairs);
        Ok(Self { pairs, idle, commands, vectors, missing, is_reduced })
    }

    /// Allocates the first pair, with smaller queues if there is no memory for those requested. Returns the options for further pairs, too.
    fn add_first(
        pairs: &mut Vec<QueuePair<H, R>>,
        hal: &H,
        control: &mut Control<H, R>,
        options: &Options,
    ) -> Result<Options, Error> {
        let mut options = *options;
        loop {
            match (Self::add(pairs, hal, control, 0, &options), options.halved()) {
                (Err(Error::NoMemory), Some(halved)) => options = halved,
                (outcome, _) => return outcome.map(|()| options),
            }
        }
    }

    /// Allocates a pair, for which `pairs` has room. Not inlined, as above.
    #[inline(never)]
    fn add(
        pairs: &mut Vec<QueuePair<H, R>>,
        hal: &H,
        control: &mut Control<H, R>,
        number: u16,
        options: &Options,
    ) -> Result<(), Error> {
        let receive = Self::receive(hal, control, PairQueue::Receive(number).index(), options)?;
        let transmit = Self::transmit(hal, control, PairQueue::Transmit(number).index(), options)?;
        Ok(vec::push_within_capacity(pairs, QueuePair { receive, transmit })?)
    }

    /// Not inlined, as above.
    #[inline(never)]
    fn receive(
        hal: &H,
        control: &mut Control<H, R>,
        index: u16,
        options: &Options,
    ) -> Result<ReceiveQueue<H, R>, Error> {
        let features = control.features();
        let size = options.receive_size.min(control.queue_size(index)?);
        ReceiveQueue::new(hal, index, size, options.receive_frame, features)
    }

    /// Not inlined, as above.
    #[inline(never)]
    fn transmit(
        hal: &H,
        control: &mut Control<H, R>,
        index: u16,
        options: &Options,
    ) -> Result<TransmitQueue<H, R>, Error> {
        let features = control.features();
        let size = options.transmit_size.min(control.queue_size(index)?);
        let divides = features.intersects(Features::HOST_TSO4 | Features::HOST_TSO6 | Features::HOST_USO);
        let completes = features.contains(Features::CSUM);
        let has_ecn = features.contains(Features::HOST_ECN);
        let large =
            completes.then_some(LargeFrames { buffers: if divides { LARGE_BUFFERS } else { 0 }, has_ecn });
        TransmitQueue::new(hal, index, size, options.transmit_frame, large, features)
    }

    /// Not inlined, as above.
    #[inline(never)]
    fn commands(hal: &H, control: &mut Control<H, R>) -> Result<Option<Box<ControlQueue<H, R>>>, Error> {
        if !control.features().contains(Features::CTRL_VQ) {
            return Ok(None);
        }
        let index = control.control_queue();
        let size = control.queue_size(index)?;
        Ok(Some(try_box(ControlQueue::new(hal, index, size, control.features())?)?))
    }

    /// Enables the queues. Not inlined, as above.
    #[inline(never)]
    fn enable(&mut self, control: &mut Control<H, R>) -> Result<(), Error> {
        for QueuePair { receive, transmit } in &mut self.pairs {
            receive.enable(control)?;
            transmit.enable(control)?;
        }
        self.idle.enable(control)?;
        match &mut self.commands {
            Some(commands) => commands.enable(control),
            None => Ok(()),
        }
    }
}

/// Resets a device with enabled queues before their memory is freed.
fn abandon<H: Hal, R: Registers>(control: &mut Control<H, R>) {
    // If the reset fails, the device may not access memory.
    let _ = control.reset();
}
