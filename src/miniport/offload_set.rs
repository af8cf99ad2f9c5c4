// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sets of task offloads, and how NDIS describes them.

#[allow(clippy::wildcard_imports, reason = "a screen of structures and constants otherwise")]
use ndk_abi::ndis::*;
use virtio_net::{Features, MAX_UDP_SEGMENTS};

use crate::config::OffloadKeywords;

/// Longest payload of an LSO packet, in bytes. With the longest headers it fits in an IPv4 packet and in a buffer.
const MAX_LARGE_SEND: u32 = 64_000;
/// Longest payload of a USO packet, in bytes: with the MSS of IPv4's minimum MTU, 576, the most segments that Linux accepts.
const MAX_UDP_SEGMENTATION: u32 = 536 * MAX_UDP_SEGMENTS as u32;
/// `MinSegmentCount`: fewest segments of an LSO or USO packet.
const MIN_SEGMENT_COUNT: u32 = 2;

/// Support for IP options or extension headers, and for TCP options, in NDIS's encoding.
const OPTIONS: u32 = NDIS_OFFLOAD_SUPPORTED | NDIS_OFFLOAD_SUPPORTED << 2;

/// A set of task offloads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TaskOffloads(pub u32);

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

    pub const ALL_SENDS: Self = Self(0x1F);
    pub const ALL_RECEIVES: Self = Self(0x3E0);
    pub const ALL_IPV6: Self = Self(
        Self::SEND_TCP6.0
            | Self::SEND_UDP6.0
            | Self::RECEIVE_TCP6.0
            | Self::RECEIVE_UDP6.0
            | Self::LARGE_SEND6.0
            | Self::UDP_SEGMENTATION6.0
            | Self::COALESCING6.0,
    );
    pub const ALL_IPV4: Self = Self(0xFFFF & !Self::ALL_IPV6.0);
    /// Offloads of received packets, which are in force once the stack has started them.
    pub const STARTED: Self = Self(Self::ALL_RECEIVES.0 | Self::COALESCING4.0 | Self::COALESCING6.0);

    /// Returns the bits of a checksum for sent and for received packets. `number` is its position in the order above.
    pub const fn checksum(number: usize) -> (Self, Self) {
        let send = 1_u32.wrapping_shl(number as u32);
        (Self(send), Self(send.wrapping_shl(5)))
    }

    /// Returns whether the set contains all of `other`.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the offloads that are in both sets.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the set without `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the set with or without `other`.
    pub const fn set(self, other: Self, on: bool) -> Self {
        if on { Self(self.0 | other.0) } else { self.without(other) }
    }

    /// Returns the offloads that are possible on a device with these features. The driver computes checksums of IPv4
    /// headers itself.
    pub fn of_device(features: Features) -> Self {
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
    pub fn of_keywords(keywords: &OffloadKeywords) -> Self {
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
    pub const fn consistent(self) -> Self {
        self.set(
            Self::COALESCING4,
            self.has(Self(Self::COALESCING4.0 | Self::RECEIVE_IPV4.0 | Self::RECEIVE_TCP4.0)),
        )
        .set(Self::COALESCING6, self.has(Self(Self::COALESCING6.0 | Self::RECEIVE_TCP6.0)))
    }

    /// Returns the set as NDIS describes it.
    pub fn describe(self) -> NDIS_OFFLOAD {
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
