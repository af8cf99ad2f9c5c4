// SPDX-License-Identifier: MIT OR Apache-2.0

//! The driver on a device that was written by others: QEMU's virtio-net-pci, in real time.

#![cfg(target_os = "linux")]

use lab::{
    device::{DeviceKind, QemuVariant},
    has_qemu, image,
    testbed::{Options, Testbed},
};

fn bed(variant: QemuVariant) -> Option<Testbed> {
    let options =
        Options { device: DeviceKind::Qemu(variant), real_time: true, path_mtu: 1024, ..Options::default() };
    if !has_qemu() {
        return None;
    }
    Some(Testbed::new(&image()?, &options).expect("QEMU starts and the image can be loaded"))
}

/// Stops both drivers. Fails if the verifier found a violation.
fn finish(mut bed: Testbed) {
    let stopped = bed.stop();
    let violations = bed.violations();
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    stopped.expect("both drivers stop");
}

#[test]
fn driver_starts_and_stops_on_qemus_device() {
    let Some(mut bed) = bed(QemuVariant::default()) else { return };
    bed.start().expect("both drivers start");
    assert_eq!(bed.events(), [""; 0], "nothing to report");
    assert!(bed.adapters().iter().all(|adapter| adapter.function().is_running()));
    finish(bed);
}
