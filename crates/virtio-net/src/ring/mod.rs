// SPDX-License-Identifier: MIT OR Apache-2.0

//! A virtqueue in either ring format. Each buffer is one descriptor, a chain of descriptors that [`link`](Ring::link) makes, or a
//! [table](Ring::table) of descriptors. (virtio §5, §6, §7, §8)
//!
//! [`Ring`] owns the memory and knows which buffers the device has. Its owner adds buffers with [`offer`](Ring::offer), makes them
//! available with [`publish`](Ring::publish) and takes returned buffers with [`take_used`](Ring::take_used). Data that the device writes is
//! not trusted: each element is read once, then checked against the outstanding buffers. After the first inconsistency `take_used` only
//! returns that error.
//!
//! A ring has one user at a time (`&mut self`), at IRQL <= DISPATCH_LEVEL.

mod indirect;
mod packed;
mod split;

use alloc::vec::Vec;

use fallible::vec;

pub(crate) use self::indirect::Table;
use self::packed::PackedRing;
use self::split::SplitRing;
use crate::error::{Error, RingFault};
use crate::features::Features;
use crate::hal::{Dma, Hal};
use crate::notify::Suppression;

/// Direction of transfers between driver and device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The device reads (transmit).
    ToDevice,
    /// The device writes (receive).
    FromDevice,
}

/// Device addresses of the three areas of a queue: in a packed ring, of the descriptor ring and of the event suppression
/// structures of driver and device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueAddresses {
    pub(crate) descriptors: u64,
    pub(crate) driver: u64,
    pub(crate) device: u64,
    /// An IOMMU translates them.
    pub(crate) are_remapped: bool,
}

/// A buffer that the device returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Used {
    /// The buffer: below the ring's size, and outstanding until now.
    pub(crate) id: u16,
    /// Number of bytes written according to the device; not checked here.
    pub(crate) len: u32,
}

/// Ring format and event suppression of a device's queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingOptions {
    pub(crate) packed: bool,
    pub(crate) suppression: Suppression,
}

impl RingOptions {
    /// Returns the options for the `accepted` features.
    pub(crate) fn of(accepted: Features) -> Self {
        let event_idx = accepted.contains(Features::EVENT_IDX);
        Self {
            packed: accepted.contains(Features::RING_PACKED),
            suppression: if event_idx { Suppression::EventIndex } else { Suppression::Flags },
        }
    }
}

/// The batch of no buffer.
const FREE: u64 = 0;

#[derive(Debug)]
enum Format {
    Split(SplitRing),
    Packed(PackedRing),
}

#[derive(Debug)]
pub(crate) struct Ring<H: Hal> {
    memory: Dma<H>,
    format: Format,
    suppression: Suppression,
    /// Interrupts were suppressed, and have not been requested since.
    is_suppressed: bool,
    /// By id: the batch in which the buffer was added, if it has not returned; otherwise [`FREE`].
    outstanding: Vec<u64>,
    /// The batch that is not published yet, from 1 on: its buffers the device cannot return.
    batch: u64,
    outstanding_count: u16,
    broken: Option<RingFault>,
}

impl<H: Hal> Ring<H> {
    /// Allocates a ring of `size` buffers, none described yet.
    ///
    /// # Errors
    /// [`Error::BadQueueSize`] if the format does not allow `size`; [`Error::NoMemory`].
    pub(crate) fn new(hal: &H, size: u16, options: RingOptions) -> Result<Self, Error> {
        let format = if options.packed {
            PackedRing::new(size)?.map(Format::Packed)
        } else {
            SplitRing::new(size).map(Format::Split)
        };
        let format = format.ok_or(Error::BadQueueSize(size))?;
        let outstanding = vec::filled(usize::from(size), FREE)?;
        let len = match &format {
            Format::Split(ring) => ring.len(),
            Format::Packed(ring) => ring.len(),
        };
        let memory = Dma::new(hal, len)?;
        let suppression = options.suppression;
        let is_suppressed = false;
        Ok(Self {
            memory,
            format,
            suppression,
            is_suppressed,
            outstanding,
            batch: 1,
            outstanding_count: 0,
            broken: None,
        })
    }

    /// Returns the ring to the state of a new one: no buffer is described, outstanding or returned. The device was reset, so it does not
    /// use the ring.
    pub(crate) fn clear(&mut self) {
        match &mut self.format {
            Format::Split(ring) => ring.clear(&self.memory),
            Format::Packed(ring) => ring.clear(&self.memory),
        }
        self.is_suppressed = false;
        self.outstanding.fill(FREE);
        self.outstanding_count = 0;
        self.broken = None;
    }

    pub(crate) fn addresses(&self) -> QueueAddresses {
        let areas = match &self.format {
            Format::Split(ring) => ring.areas(),
            Format::Packed(ring) => ring.areas(),
        };
        let [descriptors, driver, device] = areas.map(|offset| self.memory.device_address(offset));
        QueueAddresses { descriptors, driver, device, are_remapped: self.memory.is_remapped() }
    }

    pub(crate) fn size(&self) -> u16 {
        match &self.format {
            Format::Split(ring) => ring.size(),
            Format::Packed(ring) => ring.size(),
        }
    }

    /// Returns the inconsistency that the device caused, if one was found.
    pub(crate) fn fault(&self) -> Option<Error> {
        self.broken.map(Error::BrokenRing)
    }

    /// Returns the number of buffers that the device has.
    pub(crate) fn outstanding(&self) -> u16 {
        self.outstanding_count
    }

    /// Describes buffer `id`. Only its length changes later.
    pub(crate) fn describe(&mut self, id: u16, address: u64, len: u32, direction: Direction) {
        let writable = direction == Direction::FromDevice;
        match &mut self.format {
            Format::Split(ring) => ring.describe(&self.memory, id, address, len, writable),
            Format::Packed(ring) => ring.describe(id, address, len, writable),
        }
    }

    /// Continues buffer `id` in buffer `id + 1`. The chain is added, returned and outstanding as buffer `id`. Both were described; neither
    /// is outstanding.
    pub(crate) fn link(&mut self, id: u16) {
        match &mut self.format {
            Format::Split(ring) => ring.link(&self.memory, id),
            Format::Packed(ring) => ring.link(id),
        }
    }

    /// Allocates a table for a buffer of `N` parts, for a device that has INDIRECT_DESC.
    pub(crate) fn table<const N: usize>(&self, hal: &H) -> Result<Table<H, N>, Error> {
        Table::new(hal, matches!(self.format, Format::Packed(_)))
    }

    /// Describes buffer `id` by a table of its parts, which lives as long as the ring is in use.
    pub(crate) fn describe_table<const N: usize>(&mut self, id: u16, table: &Table<H, N>) {
        let (address, len) = (table.device_address(), Table::<H, N>::LEN);
        match &mut self.format {
            Format::Split(ring) => ring.describe_table(&self.memory, id, address, len),
            Format::Packed(ring) => ring.describe_table(id, address, len),
        }
    }

    /// Sets the length of buffer `id`, which is not outstanding.
    pub(crate) fn set_len(&mut self, id: u16, len: u32) {
        match &mut self.format {
            Format::Split(ring) => ring.set_len(&self.memory, id, len),
            Format::Packed(ring) => ring.set_len(id, len),
        }
    }

    /// Adds buffer `id`, which is not outstanding, to the ring, for the next [`publish`](Self::publish).
    pub(crate) fn offer(&mut self, id: u16) {
        let Some(outstanding) = self.outstanding.get_mut(usize::from(id)) else { return };
        if *outstanding != FREE {
            return;
        }
        *outstanding = self.batch;
        self.outstanding_count = self.outstanding_count.wrapping_add(1);
        match &mut self.format {
            Format::Split(ring) => ring.offer(&self.memory, id),
            Format::Packed(ring) => ring.offer(&self.memory, id),
        }
    }

    /// Makes the added buffers available to the device. Returns `true` if the device must be notified.
    pub(crate) fn publish(&mut self) -> bool {
        self.batch = self.batch.wrapping_add(1);
        match &mut self.format {
            Format::Split(ring) => ring.publish(&self.memory, self.suppression),
            Format::Packed(ring) => ring.publish(&self.memory),
        }
    }

    /// Takes the next buffer that the device returned; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::BrokenRing`], from the first inconsistency on.
    //= virtio §18
    pub(crate) fn take_used(&mut self) -> Result<Option<Used>, Error> {
        if let Some(error) = self.fault() {
            return Err(error);
        }
        let used = match &mut self.format {
            Format::Split(ring) => ring.used(&self.memory),
            Format::Packed(ring) => ring.used(&self.memory),
        };
        let Some((id, len)) = used.map_err(|fault| self.give_up(fault))? else { return Ok(None) };
        let entry = self.outstanding.get_mut(id as usize);
        let Some(entry) = entry.filter(|batch| **batch != FREE && **batch != self.batch) else {
            return Err(self.give_up(RingFault::BadId));
        };
        // A ring has at most 32768 buffers.
        let id = id as u16;
        *entry = FREE;
        self.outstanding_count = self.outstanding_count.wrapping_sub(1);
        match &mut self.format {
            Format::Split(ring) => ring.take(),
            Format::Packed(ring) => ring.take(id),
        }
        Ok(Some(Used { id, len }))
    }

    /// Suppresses interrupts. A pending or spurious one may still occur.
    pub(crate) fn suppress_interrupts(&mut self) {
        if core::mem::replace(&mut self.is_suppressed, true) {
            return;
        }
        match &self.format {
            Format::Split(ring) => ring.suppress(&self.memory, self.suppression),
            Format::Packed(ring) => ring.suppress(&self.memory),
        }
    }

    /// Requests an interrupt at the `after`-th completion from now (at least 1). Returns `true` if the device has already completed that
    /// many: possibly no interrupt will occur, and the caller must continue.
    //= virtio §7
    pub(crate) fn request_interrupt(&mut self, after: u16) -> bool {
        self.is_suppressed = false;
        match &self.format {
            Format::Split(ring) => ring.request(&self.memory, self.suppression, after),
            Format::Packed(ring) => ring.request(&self.memory, self.suppression, after),
        }
    }

    /// Records an inconsistency: from now on, taking buffers fails.
    pub(crate) fn give_up(&mut self, fault: RingFault) -> Error {
        self.broken = Some(fault);
        Error::BrokenRing(fault)
    }
}
