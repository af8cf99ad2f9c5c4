// SPDX-License-Identifier: MIT OR Apache-2.0

//! The queues of pairs that the driver does not use. Some devices work only if all queues of the accepted features are enabled.

use alloc::boxed::Box;
use core::ops::Range;

use fallible::try_box;

use crate::error::Error;
use crate::hal::{Hal, Registers};
use crate::pair_queue::PairQueue;
use crate::ring::{Ring, RingOptions};
use crate::transport::Control;

/// Descriptors of an idle queue, if the device's queue has as many.
const SIZE: u16 = 64;

/// Queues without buffers. All of them have the same ring, whatever their number: a device may have thousands. Neither side adds anything to it.
#[derive(Debug)]
pub struct IdleQueues<H: Hal> {
    /// `None` if the queues are not enabled. Boxed, because the queues pass through the large stack frames of `MiniportInitializeEx`.
    ring: Option<Box<Ring<H>>>,
    pairs: Range<u16>,
}

impl<H: Hal> IdleQueues<H> {
    /// Allocates the ring for the queues of the device's pairs from number `first` on; none if a queue is missing, or there is no memory: most
    /// devices work without them. Not inlined: together with the caller's, its stack frame is too large for a kernel stack.
    #[inline(never)]
    pub(crate) fn new<R: Registers>(hal: &H, control: &mut Control<H, R>, first: u16) -> Self {
        let pairs = first..control.max_pairs();
        let are_usable = !pairs.is_empty() && indices(&pairs).all(|index| control.queue_size(index).is_ok());
        let ring = || try_box(Ring::new(hal, SIZE, RingOptions::of(control.features())).ok()?).ok();
        let ring = if are_usable { ring() } else { None };
        Self { ring, pairs }
    }

    /// Programs the queues into the device.
    pub(crate) fn enable<R: Registers>(&self, control: &mut Control<H, R>) -> Result<(), Error> {
        let Some(ring) = &self.ring else { return Ok(()) };
        let addresses = ring.addresses();
        indices(&self.pairs).try_for_each(|index| {
            let size = control.queue_size(index)?.min(ring.size());
            control.enable_queue(index, size, &addresses).map(drop)
        })
    }

    /// Programs the queues into a device that was reset and renegotiated. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// [`Error::Changed`] if the device's queues differ from before; [`Error::NotifyOutOfRange`], [`Error::OutOfOrder`].
    pub fn reprogram<R: Registers>(&mut self, control: &mut Control<H, R>) -> Result<(), Error> {
        if let Some(ring) = &mut self.ring {
            ring.clear();
        }
        self.enable(control).map_err(|error| match error {
            Error::NoQueue(_) | Error::BadQueueSize(_) => Error::Changed,
            error => error,
        })
    }
}

/// Returns the numbers of the queues of `pairs`.
fn indices(pairs: &Range<u16>) -> impl Iterator<Item = u16> {
    let queues = |pair| [PairQueue::Receive(pair), PairQueue::Transmit(pair)].map(PairQueue::index);
    pairs.clone().flat_map(queues)
}
