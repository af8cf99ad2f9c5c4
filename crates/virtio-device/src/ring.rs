// SPDX-License-Identifier: MIT OR Apache-2.0

//! Size and addresses of a queue.

use crate::{memory::DeviceMemory, violation::Violation};

/// Size and addresses of a queue, as the driver programmed them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RingAddresses {
    /// Entries of the queue; a power of two in the split format.
    pub size: u16,
    pub descriptors: u64,
    /// The available ring, or the driver's event suppression structure.
    pub driver: u64,
    /// The used ring, or the device's event suppression structure.
    pub device: u64,
    /// EVENT_IDX was negotiated.
    pub event_idx: bool,
    /// RING_PACKED was negotiated.
    pub packed: bool,
}

impl RingAddresses {
    /// Returns the lengths of the descriptor, driver and device area in bytes. (virtio §5, §6)
    #[must_use]
    pub fn lengths(&self) -> [u64; 3] {
        let size = u64::from(self.size);
        if self.packed { [16 * size, 4, 4] } else { [16 * size, 6 + 2 * size, 6 + 8 * size] }
    }

    /// Returns addresses and lengths of the descriptor, driver and device area.
    #[must_use]
    pub fn parts(&self) -> [(u64, u64); 3] {
        let [descriptors, driver, device] = self.lengths();
        [(self.descriptors, descriptors), (self.driver, driver), (self.device, device)]
    }

    /// Checks that the areas of queue number `queue` are aligned and mapped for the device.
    ///
    /// # Errors
    /// A [`Violation`] that names the area.
    pub fn check(&self, queue: usize, memory: &impl DeviceMemory) -> Result<(), Violation> {
        let rules = if self.packed {
            [(16, "descriptor ring"), (4, "driver's event structure"), (4, "device's event structure")]
        } else {
            [(16, "descriptor table"), (2, "available ring"), (4, "used ring")]
        };
        for ((address, len), (align, what)) in self.parts().into_iter().zip(rules) {
            let what = format!("the {what} of queue {queue}");
            if !address.is_multiple_of(align) {
                return Err(Violation::ring(format!("{what} at {address:#x} is not aligned to {align}")));
            }
            if !memory.is_mapped(address, len) {
                return Err(Violation::unmapped(&what, address, len));
            }
        }
        Ok(())
    }
}
