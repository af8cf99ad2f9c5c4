// SPDX-License-Identifier: MIT OR Apache-2.0

//! Transmit slots for RDMA frames: the engine's access to the transmit queue, with a budget and the VLAN tag.

use virtio_net::TransmitQueue;

use super::dma::SharedMemory;
use super::registers::BarAccess;
use super::vlan_tag::{self, TAG_LEN, Tag};

/// The transmit queue, with the memory and registers of this platform.
pub type TransmitSlots = TransmitQueue<SharedMemory, BarAccess>;

/// The transmit queue with a budget, as the RoCE engine's transmitter.
pub struct RdmaSlots<'a> {
    pub queue: &'a mut TransmitSlots,
    /// Inserted into each frame.
    pub tag: Option<Tag>,
    /// Frames that may still be queued.
    pub left: usize,
    /// No slot was free, or the budget is used up.
    pub exhausted: bool,
}

impl roce::Transmit for RdmaSlots<'_> {
    fn slot(&mut self) -> Option<&mut [u8]> {
        let slot = if self.left == 0 { None } else { self.queue.slot() };
        self.exhausted = slot.is_none();
        match self.tag {
            None => slot,
            Some(_) => slot?.get_mut(TAG_LEN..),
        }
    }

    fn commit(&mut self, len: usize) {
        self.left = self.left.saturating_sub(1);
        let Some(tag) = self.tag else { return self.queue.commit(len) };
        // `slot` returns the same slot until `commit`.
        if let Some(slot) = self.queue.slot() {
            vlan_tag::insert(slot, tag);
        }
        self.queue.commit(len.saturating_add(TAG_LEN));
    }
}
