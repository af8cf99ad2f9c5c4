// SPDX-License-Identifier: MIT OR Apache-2.0

//! The queues of pairs that the driver does not use. Some devices work only if all queues of the accepted features are enabled.

use alloc::vec::Vec;

use fallible::vec;

use crate::error::Error;
use crate::hal::{Hal, Registers};
use crate::pair_queue::PairQueue;
use crate::queue::Queue;
use crate::transport::Control;

/// Most pairs of a device that are enabled, used or not: a device may state 32767.
const MAX_PAIRS: u16 = 64;
/// Descriptors of an idle queue, if the device's queue has as many.
const SIZE: u16 = 64;

/// Queues without buffers.
#[derive(Debug)]
pub struct IdleQueues<H: Hal, R>(Vec<Queue<H, R>>);

impl<H: Hal, R: Registers> IdleQueues<H, R> {
    /// Allocates the queues of the device's pairs from number `first` on; none if there are too many, or there is not memory enough for all:
    /// most devices work without them. Not inlined: together with the caller's, its stack frame is too large for a kernel stack.
    #[inline(never)]
    pub(crate) fn new(hal: &H, control: &mut Control<H, R>, first: u16) -> Self {
        let pairs = control.max_pairs();
        let all =
            if pairs > MAX_PAIRS { Err(Error::NoMemory) } else { Self::all(hal, control, first..pairs) };
        Self(all.unwrap_or_default())
    }

    fn all(
        hal: &H,
        control: &mut Control<H, R>,
        pairs: core::ops::Range<u16>,
    ) -> Result<Vec<Queue<H, R>>, Error> {
        let mut queues = vec::with_capacity(2_usize.saturating_mul(pairs.len()))?;
        for index in
            pairs.flat_map(|pair| [PairQueue::Receive(pair), PairQueue::Transmit(pair)].map(PairQueue::index))
        {
            let size = control.queue_size(index)?.min(SIZE);
            vec::push_within_capacity(&mut queues, Queue::new(hal, index, size, control.features())?)?;
        }
        Ok(queues)
    }

    /// Programs the queues into the device.
    pub(crate) fn enable(&mut self, control: &mut Control<H, R>) -> Result<(), Error> {
        self.0.iter_mut().try_for_each(|queue| queue.enable(control))
    }

    /// Programs the queues into a device that was reset and renegotiated. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// [`Error::Changed`] if the device's queues differ from before; [`Error::NotifyOutOfRange`], [`Error::OutOfOrder`].
    pub fn reprogram(&mut self, control: &mut Control<H, R>) -> Result<(), Error> {
        for queue in &mut self.0 {
            queue.clear(control, None).map_err(|_| Error::Changed)?;
            queue.enable(control)?;
        }
        Ok(())
    }
}
