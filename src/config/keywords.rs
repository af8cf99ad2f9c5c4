// SPDX-License-Identifier: MIT OR Apache-2.0

//! The adapter's registry keywords: one table, which the driver reads and against which tests check the INF.
#![allow(dead_code, reason = "the driver reads most of it, the INF's test all of it")]

/// A keyword under the adapter's key, as the Advanced page shows it.
#[derive(Clone, Copy, Debug)]
pub struct Keyword {
    /// Name of the registry value; standardized ones begin with an asterisk.
    pub name: &'static str,
    /// Used when the value is absent or not allowed.
    pub default: u32,
    pub allowed: Allowed,
}

/// The values a keyword may have.
#[derive(Clone, Copy, Debug)]
pub enum Allowed {
    /// Exactly these.
    OneOf(&'static [u32]),
    /// These limits and all values between them.
    Range { min: u32, max: u32 },
}

impl Keyword {
    /// Whether `value` is allowed.
    pub const fn allows(&self, value: u32) -> bool {
        match self.allowed {
            Allowed::Range { min, max } => min <= value && value <= max,
            Allowed::OneOf(mut values) => {
                while let [first, rest @ ..] = values {
                    if *first == value {
                        return true;
                    }
                    values = rest;
                }
                false
            }
        }
    }
}

/// 0 disables RDMA regardless of other settings.
//= R-OPEN-34
pub const NETWORK_DIRECT: Keyword =
    Keyword { name: "*NetworkDirect", default: 1, allowed: Allowed::OneOf(&[0, 1]) };

/// The wire protocol, numbered as `NDK_RDMA_TECHNOLOGY`: RoCEv2 only.
//= R-OPEN-35
pub const NETWORK_DIRECT_TECHNOLOGY: Keyword =
    Keyword { name: "*NetworkDirectTechnology", default: 4, allowed: Allowed::OneOf(&[4]) };

/// The largest RoCE payload of a packet, in bytes.
//= R-OPEN-36
pub const ROCE_FRAME_SIZE: Keyword = Keyword {
    name: "*NetworkDirectRoCEFrameSize",
    default: 1024,
    allowed: Allowed::OneOf(&[256, 512, 1024, 2048, 4096]),
};

/// The longest Ethernet frame, header included, check sequence not, in bytes.
pub const JUMBO_PACKET: Keyword =
    Keyword { name: "*JumboPacket", default: 1514, allowed: Allowed::Range { min: 1514, max: 9014 } };

/// Queue pairs of the device that are used at most. Each has an interrupt message and a processor.
pub const QUEUE_PAIRS: Keyword =
    Keyword { name: "QueuePairs", default: 16, allowed: Allowed::Range { min: 1, max: 16 } };

/// Whether NDIS polls for received frames. 0: the driver's DPC receives them.
pub const NDIS_POLL: Keyword = Keyword { name: "*NdisPoll", default: 0, allowed: Allowed::OneOf(&[0, 1]) };

/// What of 802.1Q tags is used: 0 nothing, 1 priorities, 2 VLANs, 3 both.
pub const PRIORITY_VLAN_TAG: Keyword =
    Keyword { name: "*PriorityVLANTag", default: 3, allowed: Allowed::OneOf(&[0, 1, 2, 3]) };

/// The VLAN of the adapter, of Ethernet and RDMA alike; 0 for none.
pub const VLAN_ID: Keyword =
    Keyword { name: "VlanID", default: 0, allowed: Allowed::Range { min: 0, max: 4094 } };

/// Whether receive side scaling is offered to NDIS.
pub const RSS: Keyword = Keyword { name: "*RSS", default: 1, allowed: Allowed::OneOf(&[0, 1]) };

/// Receive queues that are reported to NDIS at most: on so many processors it has frames received.
pub const NUM_RSS_QUEUES: Keyword =
    Keyword { name: "*NumRSSQueues", default: 16, allowed: Allowed::Range { min: 1, max: 64 } };

/// Processors that NDIS uses for receive side scaling at most. NDIS reads it.
pub const MAX_RSS_PROCESSORS: Keyword =
    Keyword { name: "*MaxRssProcessors", default: 16, allowed: Allowed::Range { min: 1, max: 64 } };

/// How NDIS chooses these processors: 1 closest, 2 closest static, 3 NUMA, 4 NUMA static, 5 conservative. NDIS reads it.
pub const RSS_PROFILE: Keyword =
    Keyword { name: "*RSSProfile", default: 4, allowed: Allowed::OneOf(&[1, 2, 3, 4, 5]) };

/// Checksums that the device computes and verifies: 0 none, 1 of sent packets, 2 of received packets, 3 of both.
pub const CHECKSUM_OFFLOADS: [Keyword; 5] = [
    checksum("*IPChecksumOffloadIPv4"),
    checksum("*TCPChecksumOffloadIPv4"),
    checksum("*UDPChecksumOffloadIPv4"),
    checksum("*TCPChecksumOffloadIPv6"),
    checksum("*UDPChecksumOffloadIPv6"),
];

const fn checksum(name: &'static str) -> Keyword {
    Keyword { name, default: 3, allowed: Allowed::OneOf(&[0, 1, 2, 3]) }
}

/// Whether the device divides TCP packets over IPv4.
pub const LARGE_SEND_IPV4: Keyword =
    Keyword { name: "*LsoV2IPv4", default: 1, allowed: Allowed::OneOf(&[0, 1]) };

/// Whether the device divides TCP packets over IPv6.
pub const LARGE_SEND_IPV6: Keyword =
    Keyword { name: "*LsoV2IPv6", default: 1, allowed: Allowed::OneOf(&[0, 1]) };

/// Whether the device divides UDP packets over IPv4.
pub const UDP_SEGMENTATION_IPV4: Keyword =
    Keyword { name: "*UsoIPv4", default: 1, allowed: Allowed::OneOf(&[0, 1]) };

/// Whether the device divides UDP packets over IPv6.
pub const UDP_SEGMENTATION_IPV6: Keyword =
    Keyword { name: "*UsoIPv6", default: 1, allowed: Allowed::OneOf(&[0, 1]) };

/// Whether received TCP segments over IPv4 are coalesced.
pub const COALESCING_IPV4: Keyword =
    Keyword { name: "*RscIPv4", default: 1, allowed: Allowed::OneOf(&[0, 1]) };

/// Whether received TCP segments over IPv6 are coalesced.
pub const COALESCING_IPV6: Keyword =
    Keyword { name: "*RscIPv6", default: 1, allowed: Allowed::OneOf(&[0, 1]) };

/// Congestion control, numbered as `roce::CongestionMode`: 0 none; 1 answers ECN marks with CNPs; 2 also sends ECN-capable
/// frames and reduces the rate on CNPs.
pub const ROCE_CONGESTION: Keyword =
    Keyword { name: "RoCECongestionControl", default: 1, allowed: Allowed::OneOf(&[0, 1, 2]) };

/// Whether RDMA packets that arrive after a missing one are written to memory before it arrives. 0: they are dropped, and
/// the peer sends them again.
pub const ROCE_EARLY_PLACEMENT: Keyword =
    Keyword { name: "RoCEEarlyPlacement", default: 1, allowed: Allowed::OneOf(&[0, 1]) };

/// How requests of NDK consumers complete: 0 inline if possible, otherwise through the completion; 1 always inline; 2 always
/// through the completion, except `NdkBuildLAM`; 3 that too.
pub const NDK_CREATE_COMPLETION: Keyword =
    Keyword { name: "NdkCreateCompletion", default: 0, allowed: Allowed::OneOf(&[0, 1, 2, 3]) };

/// Whether the mistakes of NDK consumers are reported as events.
pub const NDK_STRICT_REPORT: Keyword =
    Keyword { name: "NdkStrictReport", default: 0, allowed: Allowed::OneOf(&[0, 1]) };

/// The create call of a consumer that fails, counted from 1; 0 for none.
pub const NDK_STRICT_FAIL_CREATE: Keyword =
    Keyword { name: "NdkStrictFailCreate", default: 0, allowed: Allowed::Range { min: 0, max: 1_000_000 } };

/// The type of object whose create calls `NdkStrictFailCreate` counts, numbered as `NDK_OBJECT_TYPE`; 0 for all.
pub const NDK_STRICT_FAIL_TYPE: Keyword = Keyword {
    name: "NdkStrictFailType",
    default: 0,
    allowed: Allowed::OneOf(&[0, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
};

/// How long callbacks are held back, in microseconds.
pub const NDK_STRICT_DELAY: Keyword =
    Keyword { name: "NdkStrictDelay", default: 0, allowed: Allowed::Range { min: 0, max: 1_000_000 } };

/// Whether each callback is held back for a random time up to `NdkStrictDelay`.
pub const NDK_STRICT_DELAY_RANDOM: Keyword =
    Keyword { name: "NdkStrictDelayRandom", default: 0, allowed: Allowed::OneOf(&[0, 1]) };

/// All keywords with numeric values.
pub const KEYWORDS: &[Keyword] = &[
    NETWORK_DIRECT,
    NETWORK_DIRECT_TECHNOLOGY,
    ROCE_FRAME_SIZE,
    JUMBO_PACKET,
    QUEUE_PAIRS,
    NDIS_POLL,
    PRIORITY_VLAN_TAG,
    VLAN_ID,
    RSS,
    NUM_RSS_QUEUES,
    MAX_RSS_PROCESSORS,
    RSS_PROFILE,
    CHECKSUM_OFFLOADS[0],
    CHECKSUM_OFFLOADS[1],
    CHECKSUM_OFFLOADS[2],
    CHECKSUM_OFFLOADS[3],
    CHECKSUM_OFFLOADS[4],
    LARGE_SEND_IPV4,
    LARGE_SEND_IPV6,
    UDP_SEGMENTATION_IPV4,
    UDP_SEGMENTATION_IPV6,
    COALESCING_IPV4,
    COALESCING_IPV6,
    ROCE_CONGESTION,
    ROCE_EARLY_PLACEMENT,
    NDK_CREATE_COMPLETION,
    NDK_STRICT_REPORT,
    NDK_STRICT_FAIL_CREATE,
    NDK_STRICT_FAIL_TYPE,
    NDK_STRICT_DELAY,
    NDK_STRICT_DELAY_RANDOM,
];

/// The station address, read through NDIS; empty by default.
pub const NETWORK_ADDRESS: &str = "NetworkAddress";
