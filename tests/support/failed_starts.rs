// SPDX-License-Identifier: MIT OR Apache-2.0

//! Loading, starting, stopping and unloading the driver, on valid devices and on broken ones.

use device_sim::{Quirks, pci};
use lab::{
    image,
    testbed::{Options, Testbed},
};

/// Event numbers of the driver's event table.
pub mod event {
    pub const NO_CAPABILITIES: u32 = 11;
    pub const BROKEN_CAPABILITIES: u32 = 12;
    pub const MISSING_STRUCTURE: u32 = 13;
    pub const NO_VERSION_1: u32 = 15;
    pub const BYPASSES_IOMMU: u32 = 31;
    pub const FEATURES_REJECTED: u32 = 16;
}

pub fn bed_with(options: &Options) -> Option<Testbed> {
    Some(Testbed::new(&image()?, options).expect("the image can be loaded"))
}

/// A testbed whose first device misbehaves.
pub fn bed(quirks: Quirks) -> Option<Testbed> {
    bed_with(&Options { quirks, ..Options::default() })
}

/// Stops both drivers. Fails if the verifier found a violation.
pub fn finish(mut bed: Testbed) {
    bed.stop().expect("both drivers stop");
    let violations = bed.violations();
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

/// The PCI command register of the first device.
pub fn command(bed: &Testbed) -> u16 {
    bed.machines()[0].nic().with_config(|config| config.command()).expect("the device is there")
}

/// Returns the events of a start on a broken device.
pub fn events_of_failed_start(quirks: Quirks) -> Option<Vec<u32>> {
    events_with(&Options { quirks, ..Options::default() })
}

/// Starts the driver, which has to fail. Returns the numbers of the logged events.
pub fn events_with(options: &Options) -> Option<Vec<u32>> {
    let mut bed = bed_with(options)?;
    let machine = bed.machine_mut(0);
    machine.enter().expect("DriverEntry succeeds with any device");
    assert!(machine.start_adapter().is_err(), "a broken device is not started");
    let events = machine.event_log().iter().map(|entry| entry.code & 0xffff).collect();
    assert_eq!(command(&bed), pci::COMMAND_AT_START, "the device may not access memory");
    finish(bed);
    Some(events)
}
