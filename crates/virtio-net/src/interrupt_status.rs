// SPDX-License-Identifier: MIT OR Apache-2.0

//! The interrupt status, which says why a device without message interrupts has asserted its line. (virtio §15)

use bitflags::bitflags;

use crate::hal::Registers;
use crate::pci::{Layout, Region};

bitflags! {
    /// Causes of a line interrupt.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Causes: u8 {
        /// A queue has used buffers.
        const QUEUE = 1;
        /// The configuration has changed.
        const CONFIG = 2;
        const _ = !0;
    }
}

/// The register of the interrupt status.
#[derive(Debug)]
pub struct InterruptStatus<R> {
    registers: R,
    region: Region,
}

impl<R: Registers> InterruptStatus<R> {
    /// Creates the accessor of the register that `layout` states.
    pub const fn new(registers: R, layout: &Layout) -> Self {
        Self { registers, region: layout.isr }
    }

    /// Reads the causes of the interrupt. That ends it: the device clears the causes and de-asserts its line. Empty if the interrupt is that
    /// of another device on the line, or if the device was removed. Any IRQL.
    //= virtio §15
    pub fn take(&self) -> Causes {
        let causes = Causes::from_bits_retain(self.registers.read8(self.region.bar, self.region.offset));
        // The registers of a device that was removed read all ones.
        if causes.is_all() { Causes::empty() } else { causes }
    }
}
