// SPDX-License-Identifier: MIT OR Apache-2.0

//! The interface of a device to the machine that it is plugged into.

use crate::{pci::Message, registers::Misuse};

/// The machine, as its device uses it.
pub trait Bus: Send + Sync {
    /// Returns the simulation's time in nanoseconds.
    fn now(&self) -> u64;

    /// Runs `job` on the machine's hardware thread at `time`, or as soon as possible after it.
    fn at(&self, time: u64, job: Box<dyn FnOnce() + Send>);

    /// Delivers a message-signaled interrupt.
    fn message(&self, message: Message);

    /// Says that the device has asserted its [line](crate::PciFunction::is_line_asserted).
    fn line(&self);

    /// Reports that the driver broke a rule of the device. May not return.
    fn misuse(&self, misuse: Misuse);

    /// Returns whether the machine has power.
    fn is_alive(&self) -> bool;
}
