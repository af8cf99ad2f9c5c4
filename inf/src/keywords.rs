// SPDX-License-Identifier: MIT OR Apache-2.0

//! The registry keywords of an adapter: one table, from which the driver reads them, and the INF and the page for administrators are
//! generated.

use crate::Edition;

/// Longest Ethernet frame, with its header, in bytes: that of an MTU of 9216.
pub const MAX_FRAME: u32 = 9230;

/// Longest name of a keyword, in characters.
pub const MAX_NAME: usize = 40;

/// A keyword as the driver reads it.
#[derive(Clone, Copy, Debug)]
pub struct Keyword {
    /// Number in events, from 1 on: the place in [`PROPERTIES`].
    pub number: u32,
    /// Name of the registry value; standardized ones begin with an asterisk.
    pub name: &'static str,
    /// Used when the value is absent or not allowed.
    pub default: u32,
    pub values: Values,
}

/// The values that a keyword may have.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// Exactly these.
    OneOf(&'static [Choice]),
    /// These limits and all values between them.
    Range { min: u32, max: u32 },
}

/// A value with the text that the Advanced page shows for it.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    pub value: u32,
    pub text: &'static str,
}

/// A keyword as the Advanced page of the adapter shows it: a row of [`PROPERTIES`].
#[derive(Clone, Copy, Debug)]
pub struct Property {
    pub name: &'static str,
    /// The name on the Advanced page.
    pub label: &'static str,
    pub values: Values,
    pub default: u32,
    /// Effect of the keyword, in sentences, for the documentation.
    pub text: &'static str,
    pub section: Section,
    pub audience: Audience,
    pub effect: Effect,
    /// The first edition of the driver that reads it.
    pub edition: Edition,
    /// The type by which the INF declares a range.
    pub integer: Integer,
}

/// Type of a range in the INF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integer {
    Int,
    Long,
    /// Of 4 bytes, without a sign: what Microsoft's certification tests (Test-NetHLK) demand of most standardized keywords.
    Dword,
}

impl Integer {
    /// Returns the name of the type in an INF.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int => "int",
            Self::Long => "long",
            Self::Dword => "dword",
        }
    }
}

/// The section of the INF that declares a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    Ethernet,
    Rdma,
}

/// Who needs a property or an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    Administrator,
    /// An author of NDK consumers.
    ConsumerAuthor,
}

/// When a change takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// When the adapter starts again, which the Advanced page does at once.
    Restart,
    /// Then, and whenever Windows enables RDMA.
    RestartOrEnabling,
}

impl Keyword {
    /// Returns whether `value` is allowed.
    #[must_use]
    pub const fn allows(&self, value: u32) -> bool {
        match self.values {
            Values::Range { min, max } => min <= value && value <= max,
            Values::OneOf(mut choices) => {
                while let [first, rest @ ..] = choices {
                    if first.value == value {
                        return true;
                    }
                    choices = rest;
                }
                false
            }
        }
    }
}

impl Property {
    /// Returns what the driver needs to read the property at this place of the table.
    #[must_use]
    pub const fn keyword(&self, number: u32) -> Keyword {
        Keyword { number, name: self.name, default: self.default, values: self.values }
    }

    /// Returns whether the INF of an edition declares the property, so that the Advanced page shows it. In the standard edition, that page
    /// has the properties of administrators only.
    #[must_use]
    pub fn is_declared(&self, edition: Edition) -> bool {
        let is_for_reader = match edition {
            Edition::Standard => self.audience == Audience::Administrator,
            Edition::Strict => true,
        };
        self.edition <= edition && is_for_reader
    }
}

const fn choice(value: u32, text: &'static str) -> Choice {
    Choice { value, text }
}

/// Off and on.
const SWITCH: Values = Values::OneOf(&[choice(0, "Disabled"), choice(1, "Enabled")]);

/// Directions of packets.
const DIRECTIONS: Values = Values::OneOf(&[
    choice(0, "Disabled"),
    choice(1, "Tx Enabled"),
    choice(2, "Rx Enabled"),
    choice(3, "Rx & Tx Enabled"),
]);

/// Defaults of most properties of Ethernet. Name, label and text are missing.
const ETHERNET: Property = Property {
    name: "",
    label: "",
    values: SWITCH,
    default: 0,
    text: "",
    section: Section::Ethernet,
    audience: Audience::Administrator,
    effect: Effect::Restart,
    edition: Edition::Standard,
    integer: Integer::Int,
};

/// The same, of RDMA.
const RDMA: Property = Property { section: Section::Rdma, ..ETHERNET };

/// The same, for authors of NDK consumers.
const CONSUMERS: Property = Property { audience: Audience::ConsumerAuthor, ..RDMA };

/// The same, of the strict provider.
const STRICT: Property = Property { edition: Edition::Strict, ..CONSUMERS };

macro_rules! properties {
    ($($(#[$attribute:meta])* $name:ident = $property:expr;)*) => {
        /// Numbers the properties.
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "named as the properties")]
        enum Place { $($name),* }
        $($(#[$attribute])* pub const $name: Keyword = ($property).keyword(Place::$name as u32 + 1);)*
        /// All properties with numeric values, in the order of the INF.
        pub const PROPERTIES: &[Property] = &[$($property),*];
    };
}

properties! {
    JUMBO_PACKET = Property {
        name: "*JumboPacket",
        label: "Jumbo Packet",
        // The certification demands a limit of at least 9174 bytes, and one of at most 800.
        values: Values::Range { min: 590, max: MAX_FRAME },
        default: 1514,
        text: "Longest Ethernet frame with header, in bytes; never more than the device's MTU allows. 1514: as long \
            as the device's MTU allows, 1514 if it states none. For RDMA frames of 4096 bytes: 4206 or more.",
        integer: Integer::Dword,
        ..ETHERNET
    };
    // The range is NetKVM's of `RxCapacity`. Its default is 1024.
    RECEIVE_BUFFERS = Property {
        name: "*ReceiveBuffers",
        label: "Receive Buffers",
        values: Values::Range { min: 16, max: 4096 },
        default: 2048,
        text: "Frames that the device can deliver to a queue pair before the driver processes them: 2048 are 1.8 ms of \
            10 Gb/s at a RoCE frame size of 1024. Rounded down to a power of two; never more than the device's queue \
            has, or than 8 MiB hold (event 45 if there is less memory).",
        integer: Integer::Dword,
        ..ETHERNET
    };
    // As NetKVM's `TxCapacity`.
    TRANSMIT_BUFFERS = Property {
        name: "*TransmitBuffers",
        label: "Transmit Buffers",
        values: Values::Range { min: 16, max: 1024 },
        default: 1024,
        text: "Frames of a queue pair that wait for the device at most. Limited as `*ReceiveBuffers`.",
        integer: Integer::Dword,
        ..ETHERNET
    };
    QUEUE_PAIRS = Property {
        name: "QueuePairs",
        label: "Queue Pairs",
        values: Values::Range { min: 1, max: 16 },
        default: 16,
        text: "Queue pairs of the device that are used at most, for RDMA and Ethernet alike. Never more \
            than the device has, than there are processors, or than interrupt messages beside that of \
            the configuration.",
        ..ETHERNET
    };
    IP_CHECKSUM_IPV4 = Property {
        name: "*IPChecksumOffloadIPv4",
        label: "IPv4 Checksum Offload",
        values: DIRECTIONS,
        default: 3,
        text: "Checksums of IPv4 headers that the stack leaves to the adapter, as far as the device offers \
            it: 1 of sent packets, 2 of received packets, 3 of both.",
        ..ETHERNET
    };
    TCP_CHECKSUM_IPV4 = Property {
        name: "*TCPChecksumOffloadIPv4",
        label: "TCP Checksum Offload (IPv4)",
        values: DIRECTIONS,
        default: 3,
        text: "Checksums of TCP over IPv4 that the stack leaves to the adapter, as far as the device offers \
            it: 1 of sent packets, 2 of received packets, 3 of both.",
        ..ETHERNET
    };
    UDP_CHECKSUM_IPV4 = Property {
        name: "*UDPChecksumOffloadIPv4",
        label: "UDP Checksum Offload (IPv4)",
        values: DIRECTIONS,
        default: 3,
        text: "Checksums of UDP over IPv4 that the stack leaves to the adapter, as far as the device offers \
            it: 1 of sent packets, 2 of received packets, 3 of both.",
        ..ETHERNET
    };
    TCP_CHECKSUM_IPV6 = Property {
        name: "*TCPChecksumOffloadIPv6",
        label: "TCP Checksum Offload (IPv6)",
        values: DIRECTIONS,
        default: 3,
        text: "Checksums of TCP over IPv6 that the stack leaves to the adapter, as far as the device offers \
            it: 1 of sent packets, 2 of received packets, 3 of both.",
        ..ETHERNET
    };
    UDP_CHECKSUM_IPV6 = Property {
        name: "*UDPChecksumOffloadIPv6",
        label: "UDP Checksum Offload (IPv6)",
        values: DIRECTIONS,
        default: 3,
        text: "Checksums of UDP over IPv6 that the stack leaves to the adapter, as far as the device offers \
            it: 1 of sent packets, 2 of received packets, 3 of both.",
        ..ETHERNET
    };
    LARGE_SEND_IPV4 = Property {
        name: "*LsoV2IPv4",
        label: "Large Send Offload V2 (IPv4)",
        values: SWITCH,
        default: 1,
        text: "1: the stack passes TCP packets of up to 64,000 bytes over IPv4, which the device divides, \
            as far as it offers that.",
        ..ETHERNET
    };
    LARGE_SEND_IPV6 = Property {
        name: "*LsoV2IPv6",
        label: "Large Send Offload V2 (IPv6)",
        values: SWITCH,
        default: 1,
        text: "1: the stack passes TCP packets of up to 64,000 bytes over IPv6, which the device divides, \
            as far as it offers that.",
        ..ETHERNET
    };
    UDP_SEGMENTATION_IPV4 = Property {
        name: "*UsoIPv4",
        label: "UDP Segmentation Offload (IPv4)",
        values: SWITCH,
        default: 1,
        text: "1: the stack passes UDP packets of up to 34,304 bytes over IPv4, \
            which the device divides, as far as it offers that.",
        ..ETHERNET
    };
    UDP_SEGMENTATION_IPV6 = Property {
        name: "*UsoIPv6",
        label: "UDP Segmentation Offload (IPv6)",
        values: SWITCH,
        default: 1,
        text: "1: the stack passes UDP packets of up to 34,304 bytes over IPv6, \
            which the device divides, as far as it offers that.",
        ..ETHERNET
    };
    COALESCING_IPV4 = Property {
        name: "*RscIPv4",
        label: "Recv Segment Coalescing (IPv4)",
        values: SWITCH,
        default: 1,
        text: "1: the device delivers TCP segments over IPv4 that follow each other as one packet, as far \
            as it offers that.",
        ..ETHERNET
    };
    COALESCING_IPV6 = Property {
        name: "*RscIPv6",
        label: "Recv Segment Coalescing (IPv6)",
        values: SWITCH,
        default: 1,
        text: "1: the device delivers TCP segments over IPv6 that follow each other as one packet, as far \
            as it offers that.",
        ..ETHERNET
    };
    INTERRUPT_MODERATION = Property {
        name: "*InterruptModeration",
        label: "Interrupt Moderation",
        values: SWITCH,
        default: 1,
        text: "1: while received frames follow each other closely, the driver waits for the next one instead of \
            having each interrupt. 0: each frame may interrupt.",
        ..ETHERNET
    };
    NDIS_POLL = Property {
        name: "*NdisPoll",
        label: "Ndis Poll Mode",
        values: SWITCH,
        default: 0,
        text: "1: Windows polls the driver for received frames, and limits them, instead of the driver's \
            DPC.",
        ..ETHERNET
    };
    PRIORITY_VLAN_TAG = Property {
        name: "*PriorityVLANTag",
        label: "Packet Priority & VLAN",
        values: Values::OneOf(&[choice(0, "Packet Priority & VLAN Disabled"), choice(1, "Packet Priority Enabled"), choice(2, "VLAN Enabled"), choice(3, "Packet Priority & VLAN Enabled")]),
        default: 3,
        text: "What of 802.1Q tags Windows sets in sent frames and gets of received ones: 1 priorities, 2 \
            VLANs, 3 both. Without VLANs, `VlanID` has no effect, and frames of VLANs are dropped.",
        ..ETHERNET
    };
    // The HLK's NICStrictPropertyValidation demands the longer type.
    VLAN_ID = Property {
        name: "VlanID",
        label: "VLAN ID",
        values: Values::Range { min: 0, max: 4094 },
        default: 0,
        text: "The VLAN of the adapter, of Ethernet and RDMA alike: frames are sent with its tag, with \
            priority 0 if they are RDMA's, and others are not received. 0: none; Windows may then send \
            and receive frames of any VLAN, RDMA those without a VLAN only.",
        integer: Integer::Long,
        ..ETHERNET
    };
    RSS = Property {
        name: "*RSS",
        label: "Receive Side Scaling",
        values: SWITCH,
        default: 1,
        text: "1: offers receive side scaling: Windows chooses the processor on which the frames of a \
            connection are received. Not with one processor. A device that steers by it spreads RDMA \
            over the same processors; other RDMA is not affected.",
        ..ETHERNET
    };
    NUM_RSS_QUEUES = Property {
        name: "*NumRSSQueues",
        label: "Maximum Number of RSS Queues",
        values: Values::Range { min: 1, max: 64 },
        default: 16,
        text: "Receive queues that are reported to Windows, which has frames received on so many processors \
            at most; never more than there are processors.",
        integer: Integer::Dword,
        ..ETHERNET
    };
    // NDIS reads it.
    MAX_RSS_PROCESSORS = Property {
        name: "*MaxRssProcessors",
        label: "Maximum number of RSS Processors",
        values: Values::Range { min: 1, max: 64 },
        default: 16,
        text: "Processors that Windows uses for receive side scaling at most.",
        integer: Integer::Dword,
        ..ETHERNET
    };
    // NDIS reads it.
    RSS_PROFILE = Property {
        name: "*RSSProfile",
        label: "RSS load balancing profile",
        values: Values::OneOf(&[choice(1, "ClosestProcessor"), choice(2, "ClosestProcessorStatic"), choice(3, "NUMAScaling"), choice(4, "NUMAScalingStatic"), choice(5, "ConservativeScaling")]),
        default: 4,
        text: "How Windows chooses these processors: 1 the closest, 2 the same without load balancing, 3 \
            spread over NUMA nodes, 4 the same without load balancing, 5 as few as possible.",
        ..ETHERNET
    };
    //= R-OPEN-34
    NETWORK_DIRECT = Property {
        name: "*NetworkDirect",
        label: "NetworkDirect Functionality",
        values: SWITCH,
        default: 1,
        text: "0 keeps RDMA off. The driver shows its limits all the same, so that Windows knows what could \
            be enabled.",
        effect: Effect::RestartOrEnabling,
        ..RDMA
    };
    //= R-OPEN-35
    // Numbered as `NDK_RDMA_TECHNOLOGY`.
    NETWORK_DIRECT_TECHNOLOGY = Property {
        name: "*NetworkDirectTechnology",
        label: "NetworkDirect Technology",
        values: Values::OneOf(&[choice(4, "RoCEv2")]),
        default: 4,
        text: "The wire protocol: RoCEv2.",
        ..RDMA
    };
    //= R-OPEN-36
    ROCE_FRAME_SIZE = Property {
        name: "*NetworkDirectRoCEFrameSize",
        label: "NetworkDirect RoCE Frame Size",
        values: Values::OneOf(&[choice(256, "256"), choice(512, "512"), choice(1024, "1024"), choice(2048, "2048"), choice(4096, "4096")]),
        default: 1024,
        text: "Largest payload of an RDMA packet, in bytes. If packets of that size do not fit the \
            adapter's frames, the largest size that does is used, and event 40 says so.",
        ..RDMA
    };
    // Numbered as `roce::CongestionMode`.
    ROCE_CONGESTION = Property {
        name: "RoCECongestionControl",
        label: "NetworkDirect RoCE Congestion Control",
        values: Values::OneOf(&[choice(0, "Disabled"), choice(1, "Send CNPs"), choice(2, "Send CNPs and reduce rate")]),
        default: 1,
        text: "What RDMA does about congestion. 0: nothing. 1: marks that switches put into packets (ECN) \
            are answered with notifications (CNPs, DSCP 48), at most one per connection and 50 us, so \
            that senders that listen slow down. 2: also sends packets as ECN-capable, and slows down for \
            the notifications of peers (DCQCN).",
        ..RDMA
    };
    ROCE_EARLY_PLACEMENT = Property {
        name: "RoCEEarlyPlacement",
        label: "NetworkDirect RoCE Early Placement",
        values: SWITCH,
        default: 1,
        text: "1: RDMA packets that arrive after a missing one are written to memory at once, or stored \
            until it arrives (in at most 12 MiB of nonpaged memory), so that a lost packet costs two and \
            not a window. 0: they are dropped, and the peer sends them again; a forged packet then needs \
            the exact sequence number.",
        ..RDMA
    };
    NDK_CREATE_COMPLETION = Property {
        name: "NdkCreateCompletion",
        label: "NetworkDirect Create Completion",
        values: Values::OneOf(&[choice(0, "Automatic"), choice(1, "Inline"), choice(2, "Asynchronous"), choice(3, "Asynchronous, logical address mappings too")]),
        default: 0,
        text: "Whether requests complete inline where their memory is at hand at the caller's IRQL, and otherwise later, \
            through the completion (0), always inline (1), always later (2), or so also for `NdkBuildLAM` (3).",
        ..CONSUMERS
    };
    NDK_STRICT_REPORT = Property {
        name: "NdkStrictReport",
        label: "NetworkDirect Strict: Report Mistakes of Consumers",
        values: SWITCH,
        default: 0,
        text: "1: the mistakes of consumers are reported as events 60 to 90.",
        ..STRICT
    };
    NDK_STRICT_FAIL_CREATE = Property {
        name: "NdkStrictFailCreate",
        label: "NetworkDirect Strict: Create Call That Fails",
        values: Values::Range { min: 0, max: 1_000_000 },
        default: 0,
        text: "The number of the create call that fails for lack of resources. 0: none.",
        ..STRICT
    };
    // Numbered as `NDK_OBJECT_TYPE`.
    NDK_STRICT_FAIL_TYPE = Property {
        name: "NdkStrictFailType",
        label: "NetworkDirect Strict: Object Type of the Create Call That Fails",
        values: Values::OneOf(&[choice(0, "Any"), choice(2, "QP"), choice(3, "CQ"), choice(4, "MR"), choice(5, "MW"), choice(6, "PD"), choice(7, "Shared endpoint"), choice(8, "Connector"), choice(9, "Listener"), choice(10, "SRQ")]),
        default: 0,
        text: "The type of object (`NDK_OBJECT_TYPE`) whose create calls are counted. 0: all types.",
        ..STRICT
    };
    NDK_STRICT_DELAY = Property {
        name: "NdkStrictDelay",
        label: "NetworkDirect Strict: Callback Delay (us)",
        values: Values::Range { min: 0, max: 1_000_000 },
        default: 0,
        text: "How long callbacks are held back, in microseconds.",
        ..STRICT
    };
    NDK_STRICT_DELAY_RANDOM = Property {
        name: "NdkStrictDelayRandom",
        label: "NetworkDirect Strict: Random Callback Delay",
        values: SWITCH,
        default: 0,
        text: "1: each callback is held back for a random time up to `NdkStrictDelay`.",
        ..STRICT
    };
}

/// Checksums that the device computes and verifies: of IPv4 headers, of TCP and UDP over IPv4, of TCP and UDP over IPv6.
pub const CHECKSUM_OFFLOADS: [Keyword; 5] =
    [IP_CHECKSUM_IPV4, TCP_CHECKSUM_IPV4, UDP_CHECKSUM_IPV4, TCP_CHECKSUM_IPV6, UDP_CHECKSUM_IPV6];

/// Number of [`NETWORK_ADDRESS`] in events.
pub const NETWORK_ADDRESS_NUMBER: u32 = 0;

/// The station address, read through NDIS; empty by default. The template of the INF declares it.
pub const NETWORK_ADDRESS: &str = "NetworkAddress";
