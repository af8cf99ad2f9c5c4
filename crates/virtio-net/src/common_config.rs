// SPDX-License-Identifier: MIT OR Apache-2.0

//! The registers of the common configuration structure: status, features, vectors, queues. (virtio §2)
//!
//! Knows no order of accesses: that is [`Control`](crate::Control)'s. Queue registers are those of the queue that was selected last, so
//! that [`SelectedQueue`] borrows the registers exclusively.

use crate::features::Features;
use crate::hal::Registers;
use crate::pci::Region;
use crate::register_map::common;
use crate::ring::QueueAddresses;

/// The registers of the common configuration structure except those of queues, borrowed for a few accesses.
#[derive(Debug)]
pub(crate) struct CommonConfig<'a, R> {
    registers: &'a R,
    region: Region,
}

impl<'a, R: Registers> CommonConfig<'a, R> {
    /// Creates the accessor of the structure at `region`.
    pub(crate) const fn new(registers: &'a R, region: Region) -> Self {
        Self { registers, region }
    }

    /// Returns whether the structure is long enough for the register that resets a queue.
    pub(crate) fn has_queue_reset(&self) -> bool {
        u64::from(self.region.len) >= common::QUEUE_RESET.wrapping_add(2)
    }

    /// Reads `device_status`; `None` if all bits are set, as they are if the device is removed. Any IRQL.
    pub(crate) fn status(&self) -> Option<u8> {
        let status = self.registers.read8(self.region.bar, self.at(common::DEVICE_STATUS));
        (status != common::STATUS_REMOVED).then_some(status)
    }

    /// Writes `device_status`. Any IRQL.
    pub(crate) fn write_status(&self, status: u8) {
        self.registers.write8(self.region.bar, self.at(common::DEVICE_STATUS), status);
    }

    /// Reads `config_generation`.
    pub(crate) fn generation(&self) -> u8 {
        self.registers.read8(self.region.bar, self.at(common::CONFIG_GENERATION))
    }

    /// Reads the features that the device offers.
    pub(crate) fn offered_features(&self) -> Features {
        self.write32(common::DEVICE_FEATURE_SELECT, 0);
        let low = self.read32(common::DEVICE_FEATURE);
        self.write32(common::DEVICE_FEATURE_SELECT, 1);
        let high = self.read32(common::DEVICE_FEATURE);
        Features::from_bits_retain(u64::from(high) << 32 | u64::from(low))
    }

    /// Writes the features that the driver accepts.
    pub(crate) fn write_features(&self, accepted: Features) {
        self.write32(common::DRIVER_FEATURE_SELECT, 0);
        self.write32(common::DRIVER_FEATURE, accepted.bits() as u32);
        self.write32(common::DRIVER_FEATURE_SELECT, 1);
        self.write32(common::DRIVER_FEATURE, (accepted.bits() >> 32) as u32);
    }

    /// Assigns a vector to configuration changes. Returns `false` if the device refuses it.
    pub(crate) fn set_config_vector(&self, vector: u16) -> bool {
        self.write16(common::CONFIG_MSIX_VECTOR, vector);
        self.read16(common::CONFIG_MSIX_VECTOR) == vector
    }

    fn at(&self, field: u64) -> u64 {
        self.region.offset.wrapping_add(field)
    }

    fn read16(&self, field: u64) -> u16 {
        self.registers.read16(self.region.bar, self.at(field))
    }

    fn read32(&self, field: u64) -> u32 {
        self.registers.read32(self.region.bar, self.at(field))
    }

    fn write16(&self, field: u64, value: u16) {
        self.registers.write16(self.region.bar, self.at(field), value);
    }

    fn write32(&self, field: u64, value: u32) {
        self.registers.write32(self.region.bar, self.at(field), value);
    }

    /// Writes a 64-bit register as two halves, low first.
    fn write64(&self, field: u64, value: u64) {
        self.write32(field, value as u32);
        self.write32(field.wrapping_add(4), (value >> 32) as u32);
    }
}

/// The registers of one queue, which no other queue's can be used beside.
#[derive(Debug)]
pub(crate) struct SelectedQueue<'a, R> {
    config: CommonConfig<'a, R>,
}

impl<'a, R: Registers> SelectedQueue<'a, R> {
    /// Selects a queue of the structure at `region`.
    pub(crate) fn new(registers: &'a mut R, region: Region, queue: u16) -> Self {
        let config = CommonConfig::new(registers, region);
        config.write16(common::QUEUE_SELECT, queue);
        Self { config }
    }

    /// Assigns an interrupt vector to the queue. Returns `false` if the device refuses it.
    pub(crate) fn set_vector(&mut self, vector: u16) -> bool {
        self.config.write16(common::QUEUE_MSIX_VECTOR, vector);
        self.config.read16(common::QUEUE_MSIX_VECTOR) == vector
    }

    /// Reads the size of the queue.
    pub(crate) fn size(&self) -> u16 {
        self.config.read16(common::QUEUE_SIZE)
    }

    /// Reads where the queue's notification register is, in multiples of the device's distance between them.
    pub(crate) fn notify_offset(&self) -> u16 {
        self.config.read16(common::QUEUE_NOTIFY_OFF)
    }

    /// Programs and enables the queue.
    pub(crate) fn enable(&mut self, size: u16, addresses: &QueueAddresses) {
        self.config.write16(common::QUEUE_SIZE, size);
        self.config.write64(common::QUEUE_DESC, addresses.descriptors);
        self.config.write64(common::QUEUE_DRIVER, addresses.driver);
        self.config.write64(common::QUEUE_DEVICE, addresses.device);
        self.config.write16(common::QUEUE_ENABLE, 1);
    }

    /// Starts the reset of the queue. The device has to have [`Features::RING_RESET`].
    pub(crate) fn reset(&mut self) {
        self.config.write16(common::QUEUE_RESET, 1);
    }

    /// Returns whether the reset of the queue has not ended.
    pub(crate) fn is_resetting(&self) -> bool {
        self.config.read16(common::QUEUE_RESET) != 0 || self.config.read16(common::QUEUE_ENABLE) != 0
    }
}
