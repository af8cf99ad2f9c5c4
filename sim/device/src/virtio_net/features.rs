// SPDX-License-Identifier: MIT OR Apache-2.0

//! Feature bits and the device status register. (virtio §2, §3)

use std::ops::BitOr;

/// A set of feature bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features(pub u64);

impl Features {
    pub const CSUM: Self = Self(1 << 0);
    pub const GUEST_CSUM: Self = Self(1 << 1);
    pub const CTRL_GUEST_OFFLOADS: Self = Self(1 << 2);
    pub const MTU: Self = Self(1 << 3);
    pub const MAC: Self = Self(1 << 5);
    pub const GUEST_TSO4: Self = Self(1 << 7);
    pub const GUEST_TSO6: Self = Self(1 << 8);
    pub const HOST_TSO4: Self = Self(1 << 11);
    pub const HOST_TSO6: Self = Self(1 << 12);
    pub const HOST_ECN: Self = Self(1 << 13);
    pub const MRG_RXBUF: Self = Self(1 << 15);
    pub const STATUS: Self = Self(1 << 16);
    pub const CTRL_VQ: Self = Self(1 << 17);
    pub const CTRL_RX: Self = Self(1 << 18);
    pub const CTRL_VLAN: Self = Self(1 << 19);
    pub const GUEST_ANNOUNCE: Self = Self(1 << 21);
    pub const MQ: Self = Self(1 << 22);
    pub const CTRL_MAC_ADDR: Self = Self(1 << 23);
    pub const INDIRECT_DESC: Self = Self(1 << 28);
    pub const EVENT_IDX: Self = Self(1 << 29);
    pub const VERSION_1: Self = Self(1 << 32);
    pub const ACCESS_PLATFORM: Self = Self(1 << 33);
    pub const RING_PACKED: Self = Self(1 << 34);
    pub const RING_RESET: Self = Self(1 << 40);
    pub const VQ_NOTF_COAL: Self = Self(1 << 52);
    pub const NOTF_COAL: Self = Self(1 << 53);
    pub const HOST_USO: Self = Self(1 << 56);
    pub const HASH_REPORT: Self = Self(1 << 57);
    pub const RSS: Self = Self(1 << 60);
    pub const SPEED_DUPLEX: Self = Self(1 << 63);

    /// Checksums both ways, and segmentation.
    pub const OFFLOADS: Self = Self(
        Self::CSUM.0
            | Self::GUEST_CSUM.0
            | Self::HOST_TSO4.0
            | Self::HOST_TSO6.0
            | Self::HOST_ECN.0
            | Self::HOST_USO.0,
    );

    /// Coalescing of received TCP segments, which the driver switches on and off.
    pub const COALESCING: Self = Self(Self::CTRL_GUEST_OFFLOADS.0 | Self::GUEST_TSO4.0 | Self::GUEST_TSO6.0);

    /// Offloads that the driver can switch off by the control queue.
    pub(super) const GUEST_OFFLOADS: Self =
        Self(Self::GUEST_CSUM.0 | Self::GUEST_TSO4.0 | Self::GUEST_TSO6.0);

    /// The features a NIC offers by default.
    pub const DEFAULT: Self = Self(
        Self::OFFLOADS.0
            | Self::COALESCING.0
            | Self::MTU.0
            | Self::MAC.0
            | Self::MRG_RXBUF.0
            | Self::STATUS.0
            | Self::CTRL_VQ.0
            | Self::CTRL_RX.0
            | Self::CTRL_VLAN.0
            | Self::GUEST_ANNOUNCE.0
            | Self::RING_RESET.0
            | Self::CTRL_MAC_ADDR.0
            | Self::INDIRECT_DESC.0
            | Self::EVENT_IDX.0
            | Self::VERSION_1.0
            | Self::ACCESS_PLATFORM.0
            | Self::SPEED_DUPLEX.0,
    );

    /// A feature, and the feature that must be accepted with it.
    pub(super) const NEEDS: &[(Self, Self)] = &[
        (Self::HOST_TSO4, Self::CSUM),
        (Self::HOST_TSO6, Self::CSUM),
        (Self::HOST_USO, Self::CSUM),
        (Self::GUEST_TSO4, Self::GUEST_CSUM),
        (Self::GUEST_TSO6, Self::GUEST_CSUM),
        (Self::CTRL_GUEST_OFFLOADS, Self::CTRL_VQ),
        (Self::CTRL_RX, Self::CTRL_VQ),
        (Self::CTRL_VLAN, Self::CTRL_VQ),
        (Self::GUEST_ANNOUNCE, Self::CTRL_VQ),
        (Self::CTRL_MAC_ADDR, Self::CTRL_VQ),
        (Self::MQ, Self::CTRL_VQ),
        (Self::RSS, Self::CTRL_VQ),
        (Self::NOTF_COAL, Self::CTRL_VQ),
        (Self::VQ_NOTF_COAL, Self::CTRL_VQ),
    ];

    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns these features but those that need another one.
    #[must_use]
    pub fn consistent(self) -> Self {
        Self::NEEDS.iter().fold(self, |features, &(feature, needed)| {
            if features.contains(needed) { features } else { features.without(feature) }
        })
    }

    /// Returns these features without those that are not among `others`.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    pub(super) const fn half(self, select: u32) -> u32 {
        match select {
            0 => self.0 as u32,
            1 => (self.0 >> 32) as u32,
            _ => 0,
        }
    }
}

impl BitOr for Features {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The device status register.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Status(pub u8);

impl Status {
    pub const ACKNOWLEDGE: Self = Self(1);
    pub const DRIVER: Self = Self(2);
    pub const DRIVER_OK: Self = Self(4);
    pub const FEATURES_OK: Self = Self(8);
    pub const NEEDS_RESET: Self = Self(0x40);
    pub const FAILED: Self = Self(0x80);

    pub(super) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}
