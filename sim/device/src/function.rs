// SPDX-License-Identifier: MIT OR Apache-2.0

//! A network device as the system of its machine uses it.

use std::sync::Arc;

use crate::{dma::DmaSpace, link::wire::Port, pci::Message, registers::Registers};

/// A memory BAR and its assigned bus address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bar {
    pub number: u8,
    pub start: u64,
    /// Bytes.
    pub len: u64,
}

/// Ports of an I/O BAR: the first one, and their number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ports {
    pub start: u16,
    pub count: u16,
}

/// A PCI function that is a network device: [registers](Registers), configuration space, resources, interrupts, power.
///
/// A function that was [removed](PciFunction::remove) answers no access: its registers read all ones.
pub trait PciFunction: Registers {
    /// Returns the MAC address in use.
    fn mac(&self) -> [u8; 6];

    /// Returns the memory BARs, with the addresses that firmware assigned.
    fn bars(&self) -> Vec<Bar>;

    /// Returns the ports of the legacy interface, if there are any.
    fn ports(&self) -> Option<Ports>;

    /// Returns the number of MSI-X vectors; 0 if the device has its line instead.
    fn vectors(&self) -> u16;

    /// Returns whether the device asserts its line: it has a cause, and the line is not disabled.
    fn is_line_asserted(&self) -> bool;

    /// Returns how often the driver has read a cause of the line's interrupt, which ended the interrupt.
    fn line_acknowledgments(&self) -> u64;

    /// Returns the memory that the device reaches.
    fn memory(&self) -> &Arc<DmaSpace>;

    /// Returns the end of the link it is connected to. `None` when there is none, or the link is outside the simulation.
    fn port(&self) -> Option<&Port>;

    /// Reads configuration space from `offset`; returns the number of bytes read, `None` when the function is removed.
    fn read_config(&self, offset: usize, into: &mut [u8]) -> Option<usize>;

    /// Writes configuration space at `offset`; returns the number of bytes written, `None` when the function is removed.
    fn write_config(&self, offset: usize, from: &[u8]) -> Option<usize>;

    /// Programs and unmasks a vector, as the system does when interrupts are connected.
    fn program_vector(&self, vector: u16, message: Message);

    /// Switches MSI-X on or off, as the system does when interrupts are connected.
    fn enable_msix(&self, enabled: bool);

    /// Returns whether the driver has started the device, and it works and is a bus master: it may use memory and send interrupts.
    fn is_running(&self) -> bool;

    /// Returns whether the device may still write to a ring in `address..address + len`.
    fn uses(&self, address: u64, len: u64) -> bool;

    /// Takes the function out of its slot.
    fn remove(&self);

    /// The machine has lost power: from now on nothing that the device sends appears on its link.
    fn power_off(&self);

    /// The driver was shut down: from now on it is a misuse to start the device.
    fn shut_down(&self);

    /// Puts the function in D3. A driver must have stopped the device: in D3 no register may be accessed.
    fn enter_low_power(&self);

    /// Returns whether the function is in D3.
    fn is_in_low_power(&self) -> bool;

    /// Puts the function in D0, without the state it had before D3. The bus restores configuration space; the driver enables
    /// bus mastering.
    fn leave_low_power(&self);
}
