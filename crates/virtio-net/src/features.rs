// SPDX-License-Identifier: MIT OR Apache-2.0

//! Feature bits: one table of what a device may offer and whether this driver honours it. (virtio §4)

use bitflags::bitflags;

use crate::error::Error;

bitflags! {
    /// A set of features. Only bits this driver knows how to honour have names; unknown ones survive.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Features: u64 {
        /// The field `mtu` is valid.
        const MTU = 1 << 3;
        /// The field `mac` is valid.
        const MAC = 1 << 5;
        /// The field `status` is valid.
        const STATUS = 1 << 16;
        /// `used_event` and `avail_event` replace the ring flags.
        const EVENT_IDX = 1 << 29;
        /// The modern interface.
        const VERSION_1 = 1 << 32;
        /// The device reaches memory through the platform's DMA addresses.
        const ACCESS_PLATFORM = 1 << 33;
        /// The fields `speed` and `duplex` are valid.
        const SPEED_DUPLEX = 1 << 63;
        const _ = !0;
    }
}

/// What the driver does about one feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Without it the device is refused.
    Required,
    /// Accepted when offered.
    Accepted,
}

/// One row of [`TABLE`].
#[derive(Debug, Clone, Copy)]
pub struct Feature {
    pub feature: Features,
    pub name: &'static str,
    /// Features that must be accepted too, or this one may not be.
    pub needs: Features,
    pub policy: Policy,
    /// Why it is here.
    pub reason: &'static str,
}

/// Every feature this driver accepts. All others are refused, because several change the header's size
/// or the meaning of received frames.
pub const TABLE: &[Feature] = &[
    Feature {
        feature: Features::VERSION_1,
        name: "VERSION_1",
        needs: Features::empty(),
        policy: Policy::Required,
        reason: "the only interface the driver speaks",
    },
    Feature {
        feature: Features::ACCESS_PLATFORM,
        name: "ACCESS_PLATFORM",
        needs: Features::VERSION_1,
        policy: Policy::Accepted,
        reason: "every address given to the device is a DMA address of the platform",
    },
    Feature {
        feature: Features::EVENT_IDX,
        name: "EVENT_IDX",
        needs: Features::empty(),
        policy: Policy::Accepted,
        reason: "one notification and one interrupt per batch",
    },
    Feature {
        feature: Features::MAC,
        name: "MAC",
        needs: Features::empty(),
        policy: Policy::Accepted,
        reason: "permanent address",
    },
    Feature {
        feature: Features::STATUS,
        name: "STATUS",
        needs: Features::empty(),
        policy: Policy::Accepted,
        reason: "link state",
    },
    Feature {
        feature: Features::MTU,
        name: "MTU",
        needs: Features::empty(),
        policy: Policy::Accepted,
        reason: "frames the other side cannot take are not built",
    },
    Feature {
        feature: Features::SPEED_DUPLEX,
        name: "SPEED_DUPLEX",
        needs: Features::empty(),
        policy: Policy::Accepted,
        reason: "link speed as reported to the system",
    },
];

impl Features {
    /// The subset of `offered` to accept.
    ///
    /// # Errors
    /// [`Error::NoVersion1`]: the one required feature is missing.
    pub fn negotiate(offered: Self) -> Result<Self, Error> {
        let mut accepted = Self::empty();
        for row in TABLE {
            let usable = offered.contains(row.feature | row.needs);
            match row.policy {
                Policy::Required if !usable => return Err(Error::NoVersion1),
                _ if usable => accepted |= row.feature,
                _ => {}
            }
        }
        Ok(accepted)
    }
}
