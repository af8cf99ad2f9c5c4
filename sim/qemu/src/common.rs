// SPDX-License-Identifier: MIT OR Apache-2.0

//! The common configuration structure of a device.

/// Offsets. (virtio §2)
pub const DRIVER_FEATURE_SELECT: u64 = 0x08;
pub const DRIVER_FEATURE: u64 = 0x0c;
pub const DEVICE_STATUS: u64 = 0x14;
pub const QUEUE_SELECT: u64 = 0x16;
pub const QUEUE_SIZE: u64 = 0x18;
pub const QUEUE_DESC: u64 = 0x20;
pub const QUEUE_DRIVER: u64 = 0x28;

/// Bits of [`DEVICE_STATUS`]. (virtio §3)
pub const DRIVER_OK: u64 = 4;
pub const NEEDS_RESET: u64 = 0x40;
