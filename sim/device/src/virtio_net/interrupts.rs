// SPDX-License-Identifier: MIT OR Apache-2.0

//! Interrupts for used buffers. (virtio §7)

use virtio_device::DeviceQueue;

use super::{device::Device, interrupt_coalescing::Due};
use crate::registers::Misuse;

/// The interrupts of a device.
pub(super) struct Interrupts<'a> {
    pub(super) device: &'a Device,
}

impl Interrupts<'_> {
    /// Returns whether queue `index`, which has used so many buffers now, interrupts; otherwise the time at which it may, if that is new.
    pub(super) fn after(
        &self,
        index: usize,
        queue: &mut DeviceQueue,
        used: usize,
    ) -> Result<(bool, Option<u64>), Misuse> {
        let due = self.device.interrupt_coalescing.lock().add(index, used, self.device.bus.now());
        match due {
            Due::Now if queue.is_enabled() => {
                let is_wanted = queue.needs_interrupt(&self.device.memory)?;
                Ok((is_wanted || self.device.options.quirks.ignores_suppression, None))
            }
            Due::At(time) => Ok((false, Some(time))),
            Due::Now | Due::Waits => Ok((false, None)),
        }
    }
}
