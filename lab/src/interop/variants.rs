// SPDX-License-Identifier: MIT OR Apache-2.0

//! Variants of QEMU's device: offered features, ring format, identity, interrupt messages.

use qemu_device::{Identity, Slot};

use crate::device::{DeviceKind, QemuVariant};

/// How a device differs from QEMU's default.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// Part of [`Case::title`](super::cases::Case::title).
    pub name: &'static str,
    /// As QEMU names them: `packed=on`.
    properties: &'static [&'static str],
    identity: Identity,
    slot: Slot,
    /// Its receive buffers differ with the MTU: there are cases with either.
    pub depends_on_mtu: bool,
    /// Cases of RDMA are part of `cargo xtask interop --short`.
    pub short: bool,
}

/// QEMU's device as it is by default.
pub const DEFAULT: Variant = Variant {
    name: "QEMU",
    properties: &[],
    identity: Identity::Modern,
    slot: Slot::RootBus,
    depends_on_mtu: false,
    short: false,
};

/// All variants.
pub const VARIANTS: [Variant; 11] = [
    Variant {
        name: "QEMU, packed=on",
        properties: &["packed=on"],
        depends_on_mtu: true,
        short: true,
        ..DEFAULT
    },
    Variant {
        name: "QEMU, packed=on, event_idx=off",
        properties: &["packed=on", "event_idx=off"],
        ..DEFAULT
    },
    Variant { name: "QEMU, event_idx=off", properties: &["event_idx=off"], ..DEFAULT },
    Variant { name: "QEMU, indirect_desc=off", properties: &["indirect_desc=off"], ..DEFAULT },
    Variant { name: "QEMU, mrg_rxbuf=off", properties: &["mrg_rxbuf=off"], depends_on_mtu: true, ..DEFAULT },
    Variant { name: "QEMU, ctrl_vq=off", properties: &["ctrl_vq=off"], ..DEFAULT },
    Variant { name: "QEMU, iommu_platform=on", properties: &["iommu_platform=on"], ..DEFAULT },
    Variant { name: "QEMU, vectors=2", properties: &["vectors=2"], ..DEFAULT },
    Variant { name: "QEMU, vectors=1", properties: &["vectors=1"], ..DEFAULT },
    Variant { name: "QEMU, transitional", identity: Identity::Transitional, ..DEFAULT },
    Variant { name: "QEMU, root port", slot: Slot::RootPort, ..DEFAULT },
];

impl Variant {
    /// Returns the device.
    #[must_use]
    pub fn device(&self) -> DeviceKind {
        DeviceKind::Qemu(QemuVariant {
            properties: self.properties.iter().map(|&property| property.to_owned()).collect(),
            identity: self.identity,
            slot: self.slot,
            ..QemuVariant::default()
        })
    }
}
