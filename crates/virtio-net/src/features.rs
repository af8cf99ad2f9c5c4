// SPDX-License-Identifier: MIT OR Apache-2.0

//! Feature bits, and the table of those that this driver accepts. (virtio §4)

use bitflags::bitflags;

use crate::error::Error;

bitflags! {
    /// A set of feature bits. Bits that this driver does not support have no name and are preserved.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Features: u64 {
        /// The device completes checksums of sent frames.
        const CSUM = 1 << 0;
        /// The device reports verified checksums, and may deliver frames whose checksum is not complete.
        const GUEST_CSUM = 1 << 1;
        /// The control queue switches offloads of received frames on and off.
        const CTRL_GUEST_OFFLOADS = 1 << 2;
        /// The field `mtu` is valid.
        const MTU = 1 << 3;
        /// The field `mac` is valid.
        const MAC = 1 << 5;
        /// A received frame may consist of several TCP segments over IPv4.
        const GUEST_TSO4 = 1 << 7;
        /// As above, over IPv6.
        const GUEST_TSO6 = 1 << 8;
        /// The device segments TCP packets over IPv4 (TSO).
        const HOST_TSO4 = 1 << 11;
        /// The device segments TCP packets over IPv6 (TSO).
        const HOST_TSO6 = 1 << 12;
        /// The device segments TCP packets with the flag CWR.
        const HOST_ECN = 1 << 13;
        /// A received frame may continue in further buffers.
        const MRG_RXBUF = 1 << 15;
        /// The field `status` is valid.
        const STATUS = 1 << 16;
        /// The device has a control queue.
        const CTRL_VQ = 1 << 17;
        /// The control queue sets receive filters.
        const CTRL_RX = 1 << 18;
        /// The control queue sets the VLANs whose frames are delivered.
        const CTRL_VLAN = 1 << 19;
        /// The device asks the driver to announce its addresses.
        const GUEST_ANNOUNCE = 1 << 21;
        /// The device has several queue pairs, and delivers a flow on the pair that sends it.
        const MQ = 1 << 22;
        /// The control queue sets the MAC address.
        const CTRL_MAC_ADDR = 1 << 23;
        /// A descriptor may refer to a table of descriptors for the buffer's parts.
        const INDIRECT_DESC = 1 << 28;
        /// `used_event` and `avail_event` replace the ring flags.
        const EVENT_IDX = 1 << 29;
        /// The device has the modern interface.
        const VERSION_1 = 1 << 32;
        /// The device accesses memory by the platform's DMA addresses.
        const ACCESS_PLATFORM = 1 << 33;
        /// The rings have the packed format.
        const RING_PACKED = 1 << 34;
        /// The device needs the barriers of a hardware device, not only those between CPUs.
        const ORDER_PLATFORM = 1 << 36;
        /// The driver can reset a queue by itself.
        const RING_RESET = 1 << 40;
        /// The device coalesces the interrupts of each queue as the driver sets.
        const VQ_NOTF_COAL = 1 << 52;
        /// The device coalesces the interrupts of all receive queues, and of all transmit queues, as the driver sets.
        const NOTF_COAL = 1 << 53;
        /// The device segments UDP packets (USO).
        const HOST_USO = 1 << 56;
        /// The device reports the hashes of received frames.
        const HASH_REPORT = 1 << 57;
        /// The device steers received frames by an indirection table.
        const RSS = 1 << 60;
        /// The fields `speed` and `duplex` are valid.
        const SPEED_DUPLEX = 1 << 63;
        const _ = !0;
    }
}

/// Whether a device without the feature can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// A device without it is refused.
    Required,
    /// Accepted when offered.
    Accepted,
}

/// One row of [`TABLE`].
#[derive(Debug, Clone, Copy)]
pub struct Feature {
    pub feature: Features,
    pub name: &'static str,
    /// Features that this one depends on.
    pub needs: Features,
    pub policy: Policy,
    /// Why the driver accepts it.
    pub reason: &'static str,
}

/// Every feature that this driver accepts. It accepts no others, because several change the header's size or the
/// meaning of received frames.
pub const TABLE: &[Feature] = &[
    Feature {
        feature: Features::VERSION_1,
        name: "VERSION_1",
        needs: Features::empty(),
        policy: Policy::Required,
        reason: "the only interface that the driver supports",
    },
    Feature {
        feature: Features::ACCESS_PLATFORM,
        name: "ACCESS_PLATFORM",
        needs: Features::VERSION_1,
        policy: Policy::Accepted,
        reason: "every address given to the device is a DMA address of the platform; required if that remaps addresses",
    },
    // On other architectures, the barriers of the rings do not order memory before a register.
    #[cfg(target_arch = "x86_64")]
    Feature {
        feature: Features::ORDER_PLATFORM,
        name: "ORDER_PLATFORM",
        needs: Features::empty(),
        policy: Policy::Accepted,
        reason: "hardware devices offer it; on x64 the barriers between CPUs also order memory before a register",
    },
    Feature {
        feature: Features::RING_PACKED,
        name: "RING_PACKED",
        needs: Features::VERSION_1,
        policy: Policy::Accepted,
        reason: "one descriptor instead of three ring entries per frame",
    },
    Feature {
        feature: Features::INDIRECT_DESC,
        name: "INDIRECT_DESC",
        needs: Features::empty(),
        policy: Policy::Accepted,
        reason: "a command takes one descriptor",
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
        feature: Features::CTRL_VQ,
        name: "CTRL_VQ",
        needs: Features::empty(),
        policy: Policy::Accepted,
        reason: "commands to the device",
    },
    Feature {
        feature: Features::CTRL_RX,
        name: "CTRL_RX",
        needs: Features::CTRL_VQ,
        policy: Policy::Accepted,
        reason: "the device drops frames for other stations",
    },
    Feature {
        feature: Features::CTRL_VLAN,
        name: "CTRL_VLAN",
        needs: Features::CTRL_VQ.union(Features::CTRL_RX),
        policy: Policy::Accepted,
        reason: "the device drops frames of other VLANs; not accepted by an adapter that takes those of all",
    },
    Feature {
        feature: Features::CTRL_MAC_ADDR,
        name: "CTRL_MAC_ADDR",
        needs: Features::CTRL_VQ,
        policy: Policy::Accepted,
        reason: "a configured address is known to the device and the hypervisor",
    },
    Feature {
        feature: Features::GUEST_ANNOUNCE,
        name: "GUEST_ANNOUNCE",
        needs: Features::CTRL_VQ.union(Features::STATUS),
        policy: Policy::Accepted,
        reason: "switches learn where the machine is after a migration",
    },
    Feature {
        feature: Features::RING_RESET,
        name: "RING_RESET",
        needs: Features::empty(),
        policy: Policy::Accepted,
        reason: "a transmit queue that the device no longer serves is reset without the device",
    },
    Feature {
        feature: Features::MQ,
        name: "MQ",
        needs: Features::CTRL_VQ,
        policy: Policy::Accepted,
        reason: "a queue pair for each of several CPUs",
    },
    Feature {
        feature: Features::RSS,
        name: "RSS",
        needs: Features::CTRL_VQ,
        policy: Policy::Accepted,
        reason: "a frame is received on the processor that is to process it; several queue pairs also without MQ",
    },
    Feature {
        feature: Features::HASH_REPORT,
        name: "HASH_REPORT",
        needs: Features::CTRL_VQ,
        policy: Policy::Accepted,
        reason: "hashes of received frames need not be computed; without commands they would never be enabled",
    },
    Feature {
        feature: Features::MRG_RXBUF,
        name: "MRG_RXBUF",
        needs: Features::empty(),
        policy: Policy::Accepted,
        reason: "receive buffers that are shorter than the longest frame",
    },
    Feature {
        feature: Features::CSUM,
        name: "CSUM",
        needs: Features::empty(),
        policy: Policy::Accepted,
        reason: "no checksum is computed for frames that stay on the machine",
    },
    Feature {
        feature: Features::GUEST_CSUM,
        name: "GUEST_CSUM",
        needs: Features::empty(),
        policy: Policy::Accepted,
        reason: "checksums that the device has verified",
    },
    Feature {
        feature: Features::CTRL_GUEST_OFFLOADS,
        name: "CTRL_GUEST_OFFLOADS",
        needs: Features::CTRL_VQ,
        policy: Policy::Accepted,
        reason: "coalescing is switched on and off while the device runs",
    },
    Feature {
        feature: Features::GUEST_TSO4,
        name: "GUEST_TSO4",
        needs: COALESCING_NEEDS,
        policy: Policy::Accepted,
        reason: "TCP segments of a flow are received as one; only where that can be switched off, and in several buffers",
    },
    Feature {
        feature: Features::GUEST_TSO6,
        name: "GUEST_TSO6",
        needs: COALESCING_NEEDS,
        policy: Policy::Accepted,
        reason: "TCP segments of a flow are received as one; only where that can be switched off, and in several buffers",
    },
    Feature {
        feature: Features::HOST_TSO4,
        name: "HOST_TSO4",
        needs: Features::CSUM,
        policy: Policy::Accepted,
        reason: "TCP segments of up to 64 KiB are passed to the device whole",
    },
    Feature {
        feature: Features::HOST_TSO6,
        name: "HOST_TSO6",
        needs: Features::CSUM,
        policy: Policy::Accepted,
        reason: "TCP segments of up to 64 KiB are passed to the device whole",
    },
    Feature {
        feature: Features::HOST_ECN,
        name: "HOST_ECN",
        needs: Features::CSUM.union(Features::HOST_TSO4),
        policy: Policy::Accepted,
        reason: "the flag CWR stays in the first of the segments",
    },
    Feature {
        feature: Features::HOST_USO,
        name: "HOST_USO",
        needs: Features::CSUM,
        policy: Policy::Accepted,
        reason: "UDP packets of up to 64 KiB are passed to the device whole",
    },
    Feature {
        feature: Features::VQ_NOTF_COAL,
        name: "VQ_NOTF_COAL",
        needs: Features::CTRL_VQ,
        policy: Policy::Accepted,
        reason: "while a stream arrives on a queue, interrupts that the driver does not need at once are late",
    },
    Feature {
        feature: Features::NOTF_COAL,
        name: "NOTF_COAL",
        needs: Features::CTRL_VQ,
        policy: Policy::Accepted,
        reason: "the same, for all receive queues alike",
    },
    Feature {
        feature: Features::MTU,
        name: "MTU",
        needs: Features::empty(),
        policy: Policy::Accepted,
        reason: "no frame is larger than the network allows",
    },
    Feature {
        feature: Features::SPEED_DUPLEX,
        name: "SPEED_DUPLEX",
        needs: Features::empty(),
        policy: Policy::Accepted,
        reason: "link speed as reported to the system",
    },
];

/// Features that coalescing of received TCP segments depends on.
const COALESCING_NEEDS: Features = Features::GUEST_CSUM
    .union(Features::MRG_RXBUF)
    .union(Features::CTRL_VQ)
    .union(Features::CTRL_GUEST_OFFLOADS);

impl Features {
    /// Coalescing of interrupts by the device.
    pub const INTERRUPT_COALESCING: Self = Self::VQ_NOTF_COAL.union(Self::NOTF_COAL);

    /// Coalescing of received TCP segments, over IPv4 and IPv6.
    pub const COALESCING: Self = Self::GUEST_TSO4.union(Self::GUEST_TSO6);

    /// Returns the subset of `offered` to accept.
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
