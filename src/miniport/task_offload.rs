// SPDX-License-Identifier: MIT OR Apache-2.0

//! Task offloads in NDIS's terms: the offloads that the adapter supports, the offloads in force, and the OIDs that
//! change them.

use core::sync::atomic::{AtomicU32, Ordering};

use ndk_abi::ndis::NDIS_TCP_IP_CHECKSUM_NET_BUFFER_LIST_INFO as Checksum;
#[allow(clippy::wildcard_imports, reason = "a screen of structures and constants otherwise")]
use ndk_abi::ndis::*;
use virtio_net::{Features, MAX_UDP_SEGMENTS, Protocol, Transport, ipv4_checksum_is_valid};

use super::status;
use crate::config::OffloadKeywords;

/// Longest payload of an LSO packet, in bytes. With the longest headers it fits in an IPv4 packet and in a buffer.
const MAX_LARGE_SEND: u32 = 64_000;
/// Longest payload of a USO packet, in bytes: with the MSS of IPv4's minimum MTU, 576, the most segments that Linux accepts.
const MAX_UDP_SEGMENTATION: u32 = 536 * MAX_UDP_SEGMENTS as u32;
/// `MinSegmentCount`: fewest segments of an LSO or USO packet.
const MIN_SEGMENT_COUNT: u32 = 2;

/// Lengths in bytes of `NDIS_OFFLOAD_PARAMETERS`: of revision 1, and with all members that the driver uses. The last
/// two members are `UdpSegmentation`, which revision 5 added.
pub const PARAMETERS_LEN: usize = NDIS_SIZEOF_OFFLOAD_PARAMETERS_REVISION_1 as usize;
pub const LONGEST_PARAMETERS: usize = 34;
/// Offset of `RscIPv4` in that structure, in bytes.
const PARAMETERS_RSC: usize = 22;

/// Support for IP options or extension headers, and for TCP options, in NDIS's encoding.
const OPTIONS: u32 = NDIS_OFFLOAD_SUPPORTED | NDIS_OFFLOAD_SUPPORTED << 2;

/// A set of task offloads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TaskOffloads(u32);

impl TaskOffloads {
    pub const NONE: Self = Self(0);
    /// Checksums of sent packets: IPv4 header, TCP and UDP over IPv4, TCP and UDP over IPv6.
    pub const SEND_IPV4: Self = Self(1 << 0);
    pub const SEND_TCP4: Self = Self(1 << 1);
    pub const SEND_UDP4: Self = Self(1 << 2);
    pub const SEND_TCP6: Self = Self(1 << 3);
    pub const SEND_UDP6: Self = Self(1 << 4);
    /// The same checksums, of received packets.
    pub const RECEIVE_IPV4: Self = Self(1 << 5);
    pub const RECEIVE_TCP4: Self = Self(1 << 6);
    pub const RECEIVE_UDP4: Self = Self(1 << 7);
    pub const RECEIVE_TCP6: Self = Self(1 << 8);
    pub const RECEIVE_UDP6: Self = Self(1 << 9);
    /// LSO: the device segments TCP packets.
    pub const LARGE_SEND4: Self = Self(1 << 10);
    pub const LARGE_SEND6: Self = Self(1 << 11);
    /// USO: the device segments UDP packets.
    pub const UDP_SEGMENTATION4: Self = Self(1 << 12);
    pub const UDP_SEGMENTATION6: Self = Self(1 << 13);

    /// RSC: consecutive TCP segments of a flow are received as one frame.
    pub const COALESCING4: Self = Self(1 << 14);
    pub const COALESCING6: Self = Self(1 << 15);

    const ALL_SENDS: Self = Self(0x1F);
    const ALL_RECEIVES: Self = Self(0x3E0);
    const ALL_IPV6: Self = Self(
        Self::SEND_TCP6.0
            | Self::SEND_UDP6.0
            | Self::RECEIVE_TCP6.0
            | Self::RECEIVE_UDP6.0
            | Self::LARGE_SEND6.0
            | Self::UDP_SEGMENTATION6.0
            | Self::COALESCING6.0,
    );
    const ALL_IPV4: Self = Self(0xFFFF & !Self::ALL_IPV6.0);
    /// Offloads of received packets, which are in force once the stack has started them.
    const STARTED: Self = Self(Self::ALL_RECEIVES.0 | Self::COALESCING4.0 | Self::COALESCING6.0);

    /// Returns the bits of a checksum for sent and for received packets. `number` is its position in the order above.
    const fn checksum(number: usize) -> (Self, Self) {
        let send = 1_u32.wrapping_shl(number as u32);
        (Self(send), Self(send.wrapping_shl(5)))
    }

    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    const fn set(self, other: Self, on: bool) -> Self {
        if on { Self(self.0 | other.0) } else { self.without(other) }
    }

    /// Returns the offloads that are possible on a device with these features. The driver computes checksums of IPv4
    /// headers itself.
    fn of_device(features: Features) -> Self {
        Self::NONE
            .set(Self::ALL_SENDS, features.contains(Features::CSUM))
            .set(Self::ALL_RECEIVES, features.contains(Features::GUEST_CSUM))
            .set(Self::LARGE_SEND4, features.contains(Features::HOST_TSO4))
            .set(Self::LARGE_SEND6, features.contains(Features::HOST_TSO6))
            .set(Self::UDP_SEGMENTATION4, features.contains(Features::HOST_USO))
            .set(Self::UDP_SEGMENTATION6, features.contains(Features::HOST_USO))
            .set(Self::COALESCING4, features.contains(Features::GUEST_TSO4))
            .set(Self::COALESCING6, features.contains(Features::GUEST_TSO6))
    }

    /// Returns the offloads that the keywords allow.
    fn of_keywords(keywords: &OffloadKeywords) -> Self {
        let checksums = keywords.checksums.iter().enumerate();
        let both = checksums.fold(Self::NONE, |set, (number, &value)| {
            let (send, receive) = Self::checksum(number);
            set.set(send, value & 1 != 0).set(receive, value & 2 != 0)
        });
        let [v4, v6] = keywords.large_sends;
        let [udp4, udp6] = keywords.udp_segmentation;
        let [rsc4, rsc6] = keywords.coalescing;
        both.set(Self::LARGE_SEND4, v4)
            .set(Self::LARGE_SEND6, v6)
            .set(Self::UDP_SEGMENTATION4, udp4)
            .set(Self::UDP_SEGMENTATION6, udp6)
            .set(Self::COALESCING4, rsc4)
            .set(Self::COALESCING6, rsc6)
    }

    /// Returns the set without coalescing for IP versions whose receive checksums are not in it: a coalesced packet is
    /// indicated with verified checksums.
    const fn consistent(self) -> Self {
        self.set(
            Self::COALESCING4,
            self.has(Self(Self::COALESCING4.0 | Self::RECEIVE_IPV4.0 | Self::RECEIVE_TCP4.0)),
        )
        .set(Self::COALESCING6, self.has(Self(Self::COALESCING6.0 | Self::RECEIVE_TCP6.0)))
    }

    /// Returns the set as NDIS describes it.
    fn describe(self) -> NDIS_OFFLOAD {
        // SAFETY: integers only: all zeroes is a value, and means "not supported" wherever it is left.
        let mut offload: NDIS_OFFLOAD = unsafe { core::mem::zeroed() };
        offload.Header = NDIS_OBJECT_HEADER {
            Type: NDIS_OBJECT_TYPE_OFFLOAD,
            Revision: NDIS_OFFLOAD_REVISION_6,
            Size: NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_6,
        };
        let bits = |of: [Self; 3]| {
            let [tcp, udp, ip] =
                of.map(|one| if one != Self::NONE && self.has(one) { NDIS_OFFLOAD_SUPPORTED } else { 0 });
            // Every checksum offload supports options.
            let any = if tcp | udp | ip == 0 { 0 } else { OPTIONS };
            let word = any | tcp << 4 | udp << 6 | ip << 8;
            (if word == 0 { NDIS_ENCAPSULATION_NOT_SUPPORTED } else { NDIS_ENCAPSULATION_IEEE_802_3 }, word)
        };
        let (encapsulation, word) = bits([Self::SEND_TCP4, Self::SEND_UDP4, Self::SEND_IPV4]);
        offload.Checksum.IPv4Transmit =
            NDIS_IPV4_TRANSMIT_CHECKSUM { Encapsulation: encapsulation, IpOptionsSupported: word };
        let (encapsulation, word) = bits([Self::RECEIVE_TCP4, Self::RECEIVE_UDP4, Self::RECEIVE_IPV4]);
        offload.Checksum.IPv4Receive =
            NDIS_IPV4_RECEIVE_CHECKSUM { Encapsulation: encapsulation, IpOptionsSupported: word };
        let (encapsulation, word) = bits([Self::SEND_TCP6, Self::SEND_UDP6, Self::NONE]);
        offload.Checksum.IPv6Transmit =
            NDIS_IPV6_TRANSMIT_CHECKSUM { Encapsulation: encapsulation, IpExtensionHeadersSupported: word };
        let (encapsulation, word) = bits([Self::RECEIVE_TCP6, Self::RECEIVE_UDP6, Self::NONE]);
        offload.Checksum.IPv6Receive =
            NDIS_IPV6_RECEIVE_CHECKSUM { Encapsulation: encapsulation, IpExtensionHeadersSupported: word };
        if self.has(Self::LARGE_SEND4) {
            offload.LsoV2.IPv4 = NDIS_LSOV2_IPV4 {
                Encapsulation: NDIS_ENCAPSULATION_IEEE_802_3,
                MaxOffLoadSize: MAX_LARGE_SEND,
                MinSegmentCount: MIN_SEGMENT_COUNT,
            };
        }
        if self.has(Self::LARGE_SEND6) {
            offload.LsoV2.IPv6 = NDIS_LSOV2_IPV6 {
                Encapsulation: NDIS_ENCAPSULATION_IEEE_802_3,
                MaxOffLoadSize: MAX_LARGE_SEND,
                MinSegmentCount: MIN_SEGMENT_COUNT,
                IpExtensionHeadersSupported: OPTIONS,
            };
        }
        let counts = MIN_SEGMENT_COUNT | NDIS_USO_IPV4::SUB_MSS_FINAL_SEGMENT_SUPPORTED;
        if self.has(Self::UDP_SEGMENTATION4) {
            offload.UdpSegmentation.IPv4 = NDIS_USO_IPV4 {
                Encapsulation: NDIS_ENCAPSULATION_IEEE_802_3,
                MaxOffLoadSize: MAX_UDP_SEGMENTATION,
                MinSegmentCount: counts,
            };
        }
        if self.has(Self::UDP_SEGMENTATION6) {
            offload.UdpSegmentation.IPv6 = NDIS_USO_IPV6 {
                Encapsulation: NDIS_ENCAPSULATION_IEEE_802_3,
                MaxOffLoadSize: MAX_UDP_SEGMENTATION,
                MinSegmentCount: counts,
                IpExtensionHeadersSupported: NDIS_OFFLOAD_SUPPORTED,
            };
        }
        offload.Rsc.IPv4.Enabled = u8::from(self.has(Self::COALESCING4));
        offload.Rsc.IPv6.Enabled = u8::from(self.has(Self::COALESCING6));
        offload
    }
}

/// The task offloads of an adapter.
pub struct OffloadState {
    possible: TaskOffloads,
    /// Set by keywords and `OID_TCP_OFFLOAD_PARAMETERS`.
    configured: AtomicU32,
    /// Receive offloads that `OID_OFFLOAD_ENCAPSULATION` has started.
    started: AtomicU32,
    /// Offloads of the IP versions for which `OID_OFFLOAD_ENCAPSULATION` has stopped them.
    stopped: AtomicU32,
}

impl OffloadState {
    pub fn new(features: Features, keywords: &OffloadKeywords) -> Self {
        let possible = TaskOffloads::of_device(features);
        let configured = possible.and(TaskOffloads::of_keywords(keywords));
        Self {
            possible,
            configured: AtomicU32::new(configured.0),
            started: AtomicU32::new(0),
            stopped: AtomicU32::new(0),
        }
    }

    /// Whether the device completes checksums of sent frames.
    pub fn completes_checksums(&self) -> bool {
        self.possible.has(TaskOffloads::ALL_SENDS)
    }

    /// Returns the offloads in force.
    pub fn current(&self) -> TaskOffloads {
        let stopped = TaskOffloads(self.stopped.load(Ordering::Relaxed));
        TaskOffloads(self.configured.load(Ordering::Relaxed)).without(stopped).consistent()
    }

    /// Returns the receive offloads in force, which the stack has started.
    fn current_receives(&self) -> TaskOffloads {
        self.current().and(TaskOffloads(self.started.load(Ordering::Relaxed)))
    }

    /// Whether the device can coalesce received TCP segments.
    pub fn can_coalesce(&self) -> bool {
        self.possible.has(TaskOffloads::COALESCING4) || self.possible.has(TaskOffloads::COALESCING6)
    }

    /// Returns whether received TCP segments are to be coalesced, for IPv4 and for IPv6.
    pub fn coalescing(&self) -> [bool; 2] {
        let current = self.current_receives();
        [TaskOffloads::COALESCING4, TaskOffloads::COALESCING6].map(|of| current.has(of))
    }

    /// Returns the possible offloads, for the offload attributes.
    pub fn describe_possible(&self) -> NDIS_OFFLOAD {
        self.possible.describe()
    }

    /// Returns the offloads in force.
    pub fn describe_current(&self) -> NDIS_OFFLOAD {
        self.current().describe()
    }

    /// Returns `TcpIpChecksumNetBufferListInfo` of a coalesced frame, whose checksums were verified.
    pub fn report_coalesced(frame: &[u8]) -> u32 {
        match ipv4_checksum_is_valid(frame) {
            Some(_) => Checksum::RECEIVE_TCP_SUCCEEDED | Checksum::RECEIVE_IP_SUCCEEDED,
            None => Checksum::RECEIVE_TCP_SUCCEEDED,
        }
    }

    /// Returns `TcpIpChecksumNetBufferListInfo` of a received frame. `is_verified`: its TCP or UDP checksum was verified.
    pub fn report(&self, frame: &[u8], is_verified: bool) -> u32 {
        let current = self.current_receives();
        if current == TaskOffloads::NONE {
            return 0;
        }
        let ip = match ipv4_checksum_is_valid(frame) {
            Some(is_valid) if current.has(TaskOffloads::RECEIVE_IPV4) => {
                if is_valid {
                    Checksum::RECEIVE_IP_SUCCEEDED
                } else {
                    Checksum::RECEIVE_IP_FAILED
                }
            }
            _ => 0,
        };
        let Some(found) = Transport::find(frame).filter(|_| is_verified) else { return ip };
        let (offload, succeeded) = match (found.protocol, found.is_ipv6) {
            (Protocol::Tcp, false) => (TaskOffloads::RECEIVE_TCP4, Checksum::RECEIVE_TCP_SUCCEEDED),
            (Protocol::Udp, false) => (TaskOffloads::RECEIVE_UDP4, Checksum::RECEIVE_UDP_SUCCEEDED),
            (Protocol::Tcp, true) => (TaskOffloads::RECEIVE_TCP6, Checksum::RECEIVE_TCP_SUCCEEDED),
            (Protocol::Udp, true) => (TaskOffloads::RECEIVE_UDP6, Checksum::RECEIVE_UDP_SUCCEEDED),
        };
        if current.has(offload) { ip | succeeded } else { ip }
    }

    /// `OID_TCP_OFFLOAD_PARAMETERS`: changes the configured offloads. Members that the request lacks are 0, which changes nothing. The
    /// caller [indicates](Self::indicate) the change. `PASSIVE_LEVEL`.
    pub fn set_parameters(&self, parameters: &[u8; LONGEST_PARAMETERS]) -> NDIS_STATUS {
        let &[kind, revision, _, _, ip4, tcp4, udp4, tcp6, udp6, others @ ..] = parameters;
        let [lso1, ipsec, lso4, lso6, connection4, connection6, ..] = others;
        let [uso4, uso6] = match parameters.last_chunk() {
            Some(&uso) if revision >= NDIS_OFFLOAD_PARAMETERS_REVISION_5 => uso,
            _ => [NDIS_OFFLOAD_PARAMETERS_NO_CHANGE; 2],
        };
        if kind != NDIS_OBJECT_TYPE_DEFAULT || revision < NDIS_OFFLOAD_PARAMETERS_REVISION_1 {
            return NDIS_STATUS_INVALID_DATA;
        }
        let mut changed = TaskOffloads(self.configured.load(Ordering::Relaxed));
        for (number, value) in [ip4, tcp4, udp4, tcp6, udp6].into_iter().enumerate() {
            let (send, receive) = TaskOffloads::checksum(number);
            let (sends, receives) = match value {
                NDIS_OFFLOAD_PARAMETERS_NO_CHANGE => continue,
                NDIS_OFFLOAD_PARAMETERS_TX_RX_DISABLED => (false, false),
                NDIS_OFFLOAD_PARAMETERS_TX_ENABLED_RX_DISABLED => (true, false),
                NDIS_OFFLOAD_PARAMETERS_RX_ENABLED_TX_DISABLED => (false, true),
                NDIS_OFFLOAD_PARAMETERS_TX_RX_ENABLED => (true, true),
                _ => return NDIS_STATUS_INVALID_DATA,
            };
            changed = changed.set(send, sends).set(receive, receives);
        }
        // Revision 3 added `RscIPv4` and `RscIPv6`.
        let [rsc4, rsc6] = match parameters.get(PARAMETERS_RSC..).and_then(<[u8]>::first_chunk) {
            Some(&rsc) if revision >= NDIS_OFFLOAD_PARAMETERS_REVISION_3 => rsc,
            _ => [NDIS_OFFLOAD_PARAMETERS_NO_CHANGE; 2],
        };
        let switched = [
            (TaskOffloads::LARGE_SEND4, lso4),
            (TaskOffloads::LARGE_SEND6, lso6),
            (TaskOffloads::UDP_SEGMENTATION4, uso4),
            (TaskOffloads::UDP_SEGMENTATION6, uso6),
            (TaskOffloads::COALESCING4, rsc4),
            (TaskOffloads::COALESCING6, rsc6),
        ];
        // All members have the same values.
        const {
            assert!(NDIS_OFFLOAD_PARAMETERS_USO_DISABLED == NDIS_OFFLOAD_PARAMETERS_LSOV2_DISABLED);
            assert!(NDIS_OFFLOAD_PARAMETERS_USO_ENABLED == NDIS_OFFLOAD_PARAMETERS_LSOV2_ENABLED);
            assert!(NDIS_OFFLOAD_PARAMETERS_RSC_DISABLED == NDIS_OFFLOAD_PARAMETERS_LSOV2_DISABLED);
            assert!(NDIS_OFFLOAD_PARAMETERS_RSC_ENABLED == NDIS_OFFLOAD_PARAMETERS_LSOV2_ENABLED);
        }
        for (of, value) in switched {
            changed = match value {
                NDIS_OFFLOAD_PARAMETERS_NO_CHANGE => changed,
                NDIS_OFFLOAD_PARAMETERS_LSOV2_DISABLED => changed.set(of, false),
                NDIS_OFFLOAD_PARAMETERS_LSOV2_ENABLED => changed.set(of, true),
                _ => return NDIS_STATUS_INVALID_DATA,
            };
        }
        // For an offload that the adapter lacks, only "no change" and "disabled", which is 1, are valid.
        if !self.possible.has(changed)
            || [lso1, ipsec, connection4, connection6].iter().any(|&value| value > 1)
        {
            return NDIS_STATUS_INVALID_DATA;
        }
        self.configured.store(changed.0, Ordering::Relaxed);
        NDIS_STATUS_SUCCESS
    }

    /// `OID_OFFLOAD_ENCAPSULATION`: starts or stops the configured offloads. The caller [indicates](Self::indicate) the change.
    /// `PASSIVE_LEVEL`.
    pub fn set_encapsulation(&self, to: &NDIS_OFFLOAD_ENCAPSULATION) -> NDIS_STATUS {
        if to.Header.Type != NDIS_OBJECT_TYPE_OFFLOAD_ENCAPSULATION
            || to.Header.Revision < NDIS_OFFLOAD_ENCAPSULATION_REVISION_1
        {
            return NDIS_STATUS_INVALID_DATA;
        }
        if self.possible == TaskOffloads::NONE {
            return NDIS_STATUS_NOT_SUPPORTED;
        }
        let mut started = TaskOffloads(self.started.load(Ordering::Relaxed));
        let mut stopped = TaskOffloads(self.stopped.load(Ordering::Relaxed));
        let versions = [
            (to.IPv4.Enabled, to.IPv4.EncapsulationType, TaskOffloads::ALL_IPV4),
            (to.IPv6.Enabled, to.IPv6.EncapsulationType, TaskOffloads::ALL_IPV6),
        ];
        for (enabled, encapsulation, of) in versions {
            let on = match enabled {
                NDIS_OFFLOAD_SET_NO_CHANGE => continue,
                NDIS_OFFLOAD_SET_ON if encapsulation == NDIS_ENCAPSULATION_IEEE_802_3 => true,
                NDIS_OFFLOAD_SET_OFF => false,
                _ => return NDIS_STATUS_INVALID_PARAMETER,
            };
            started = started.set(of.and(TaskOffloads::STARTED), on);
            stopped = stopped.set(of, !on);
        }
        self.started.store(started.0, Ordering::Relaxed);
        self.stopped.store(stopped.0, Ordering::Relaxed);
        NDIS_STATUS_SUCCESS
    }

    /// Indicates the offloads in force to NDIS.
    pub fn indicate(&self, handle: NDIS_HANDLE) {
        let mut offload = self.describe_current();
        status::indicate(handle, NDIS_STATUS_TASK_OFFLOAD_CURRENT_CONFIG, &mut offload);
    }
}
