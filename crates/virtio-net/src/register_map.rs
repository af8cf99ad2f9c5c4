// SPDX-License-Identifier: MIT OR Apache-2.0

//! Offsets and bits of everything the driver reads and writes outside of the rings: PCI configuration space, virtio
//! capabilities, the common configuration structure, the network device's configuration. Offsets are in bytes.

/// The header of PCI configuration space.
pub(crate) mod header {
    pub(crate) const VENDOR_ID: usize = 0x00;
    pub(crate) const STATUS: usize = 0x06;
    pub(crate) const CAPABILITIES_POINTER: usize = 0x34;

    /// Bit of `STATUS`: the function has a capability list.
    pub(crate) const STATUS_CAPABILITIES: u16 = 1 << 4;
    /// Capabilities begin after the header, four-byte aligned.
    pub(crate) const FIRST_CAPABILITY: u8 = 0x40;
}

/// PCI capabilities: ids, and offsets in the vendor capability. (virtio §1)
pub(crate) mod capability {
    pub(crate) const ID_VENDOR: u8 = 0x09;
    pub(crate) const ID_MSIX: u8 = 0x11;

    pub(crate) const LEN: usize = 2;
    pub(crate) const CFG_TYPE: usize = 3;
    pub(crate) const BAR: usize = 4;
    pub(crate) const OFFSET: usize = 8;
    pub(crate) const LENGTH: usize = 12;
    /// In the capability of the notification structure only.
    pub(crate) const NOTIFY_OFF_MULTIPLIER: usize = 16;

    /// Message control of the MSI-X capability.
    pub(crate) const MSIX_CONTROL: usize = 2;
    /// Bits of the message control: size of the vector table minus one.
    pub(crate) const MSIX_TABLE_SIZE: u16 = 0x7FF;

    /// Largest BAR number; larger ones are reserved.
    pub(crate) const MAX_BAR: u8 = 5;
}

/// Smallest length of each structure that the driver can use. (virtio §1)
pub(crate) mod min_len {
    pub(crate) const COMMON: u32 = 0x38;
    pub(crate) const NOTIFY: u32 = 2;
    pub(crate) const ISR: u32 = 1;
    /// Length of the MAC address. Other fields exist only with their features.
    pub(crate) const DEVICE: u32 = 6;
}

/// The common configuration structure.
//= virtio §2
pub(crate) mod common {
    pub(crate) const DEVICE_FEATURE_SELECT: u64 = 0x00;
    pub(crate) const DEVICE_FEATURE: u64 = 0x04;
    pub(crate) const DRIVER_FEATURE_SELECT: u64 = 0x08;
    pub(crate) const DRIVER_FEATURE: u64 = 0x0C;
    pub(crate) const CONFIG_MSIX_VECTOR: u64 = 0x10;
    pub(crate) const DEVICE_STATUS: u64 = 0x14;
    pub(crate) const CONFIG_GENERATION: u64 = 0x15;
    pub(crate) const QUEUE_SELECT: u64 = 0x16;
    pub(crate) const QUEUE_SIZE: u64 = 0x18;
    pub(crate) const QUEUE_MSIX_VECTOR: u64 = 0x1A;
    pub(crate) const QUEUE_ENABLE: u64 = 0x1C;
    pub(crate) const QUEUE_NOTIFY_OFF: u64 = 0x1E;
    pub(crate) const QUEUE_DESC: u64 = 0x20;
    pub(crate) const QUEUE_DRIVER: u64 = 0x28;
    pub(crate) const QUEUE_DEVICE: u64 = 0x30;
    /// With RING_RESET.
    pub(crate) const QUEUE_RESET: u64 = 0x3A;

    /// `DEVICE_STATUS` reads this if the device was removed. (virtio §16)
    pub(crate) const STATUS_REMOVED: u8 = 0xFF;
}

/// The network device's configuration. (virtio §14)
pub(crate) mod device {
    pub(crate) const MAC: u64 = 0;
    pub(crate) const STATUS: u64 = 6;
    pub(crate) const MAX_PAIRS: u64 = 8;
    pub(crate) const MTU: u64 = 10;
    pub(crate) const SPEED: u64 = 12;
    pub(crate) const DUPLEX: u64 = 16;
    pub(crate) const RSS_KEY_LEN: u64 = 17;
    pub(crate) const RSS_ENTRIES: u64 = 18;
    pub(crate) const HASH_TYPES: u64 = 20;

    /// Bit of `STATUS`.
    pub(crate) const LINK_UP: u16 = 1;
    /// Bit of `STATUS`, with GUEST_ANNOUNCE.
    pub(crate) const ANNOUNCE: u16 = 2;
    /// Larger values of `SPEED` mean "unknown".
    pub(crate) const MAX_SPEED: u32 = 0x7FFF_FFFF;
}
