// SPDX-License-Identifier: MIT OR Apache-2.0

//! The adapter's configuration, read from the registry and validated. `PASSIVE_LEVEL`.

mod key;
#[cfg(feature = "strict")]
mod strict;

use ndk_abi::ndis::{NDIS_HANDLE, NDIS_STATUS};
use ndk_abi::ndk::NETWORK_DIRECT_GLOBAL_FLAGS_ALLOW_REMOTE_IP_SUBNET;
use ndk_provider::{CreateCompletion, StrictSettings};
use roce::CongestionMode;
use roce_wire::PathMtu;

use viordma_inf::keywords;

use self::key::Key;

/// The Ethernet header, in bytes.
pub const ETHERNET_HEADER: u32 = 14;

/// A machine-wide setting, which NDIS reports for every adapter; no INF writes it.
const GLOBAL_FLAGS: &str = "*NetworkDirectGlobalFlags";

/// The task offloads that the keywords allow.
#[derive(Clone, Copy, Debug)]
pub struct OffloadKeywords {
    /// Bit 0 for sent, bit 1 for received packets: IPv4 header, TCP and UDP over IPv4, TCP and UDP over IPv6.
    pub checksums: [u32; 5],
    /// Segmentation of TCP over IPv4 and IPv6.
    pub large_sends: [bool; 2],
    /// The same, of UDP.
    pub udp_segmentation: [bool; 2],
    /// Coalescing of received TCP segments.
    pub coalescing: [bool; 2],
}

/// The configuration of one adapter. Every value is valid.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "settings that are independent of each other")]
pub struct Configuration {
    /// Whether RDMA may be enabled.
    pub network_direct: bool,
    /// Configured RoCE payload limit, in bytes; see [`Configuration::roce_frame_size`].
    pub configured_roce_frame_size: u32,
    /// Longest Ethernet frame with header, in bytes.
    pub jumbo_packet: u32,
    /// Queue pairs used at most.
    pub queue_pairs: u16,
    /// Sizes of the receive and of the transmit queues at most: powers of two.
    pub queue_sizes: [u16; 2],
    /// Whether receive interrupts are moderated.
    pub interrupt_moderation: bool,
    /// Whether NDIS polls for received frames.
    pub ndis_poll: bool,
    /// Bit 0: priorities, bit 1: VLANs.
    pub priority_vlan_tag: u32,
    /// The adapter's VLAN; 0 for none.
    pub vlan_id: u16,
    /// Whether receive side scaling is offered, and with how many receive queues at most.
    pub rss: bool,
    pub rss_queues: u32,
    pub offloads: OffloadKeywords,
    pub congestion: CongestionMode,
    /// Whether packets after a gap are placed when they arrive.
    pub early_placement: bool,
    pub create_completion: CreateCompletion,
    /// For authors of consumers.
    pub strict: StrictSettings,
    /// Whether connections to peers in other IP subnets are allowed.
    pub remote_subnets: bool,
    /// Station address that replaces the permanent one.
    pub network_address: Option<[u8; 6]>,
}

impl Configuration {
    /// Reads the configuration of the adapter `handle`. Absent and invalid values are replaced by defaults, the latter with an event.
    //= R-PNP-13
    pub fn read(handle: NDIS_HANDLE) -> Result<Self, NDIS_STATUS> {
        let key = Key::open(handle)?;
        Ok(Self {
            network_direct: key.read(&keywords::NETWORK_DIRECT) != 0,
            configured_roce_frame_size: key.read(&keywords::ROCE_FRAME_SIZE),
            jumbo_packet: key.read(&keywords::JUMBO_PACKET),
            queue_pairs: key.read(&keywords::QUEUE_PAIRS) as u16,
            queue_sizes: [&keywords::RECEIVE_BUFFERS, &keywords::TRANSMIT_BUFFERS]
                .map(|keyword| power_of_two(key.read(keyword))),
            interrupt_moderation: key.read(&keywords::INTERRUPT_MODERATION) != 0,
            ndis_poll: key.read(&keywords::NDIS_POLL) != 0,
            priority_vlan_tag: key.read(&keywords::PRIORITY_VLAN_TAG),
            vlan_id: key.read(&keywords::VLAN_ID) as u16,
            rss: key.read(&keywords::RSS) != 0,
            rss_queues: key.read(&keywords::NUM_RSS_QUEUES),
            offloads: OffloadKeywords {
                checksums: keywords::CHECKSUM_OFFLOADS.map(|keyword| key.read(&keyword)),
                large_sends: [&keywords::LARGE_SEND_IPV4, &keywords::LARGE_SEND_IPV6]
                    .map(|keyword| key.read(keyword) != 0),
                udp_segmentation: [&keywords::UDP_SEGMENTATION_IPV4, &keywords::UDP_SEGMENTATION_IPV6]
                    .map(|keyword| key.read(keyword) != 0),
                coalescing: [&keywords::COALESCING_IPV4, &keywords::COALESCING_IPV6]
                    .map(|keyword| key.read(keyword) != 0),
            },
            congestion: match key.read(&keywords::ROCE_CONGESTION) {
                0 => CongestionMode::Ignore,
                2 => CongestionMode::React,
                _ => CongestionMode::Notify,
            },
            early_placement: key.read(&keywords::ROCE_EARLY_PLACEMENT) != 0,
            create_completion: match key.read(&keywords::NDK_CREATE_COMPLETION) {
                1 => CreateCompletion::Inline,
                2 => CreateCompletion::Pend,
                3 => CreateCompletion::PendAll,
                _ => CreateCompletion::Auto,
            },
            #[cfg(feature = "strict")]
            strict: strict::read(&key),
            #[cfg(not(feature = "strict"))]
            strict: StrictSettings::default(),
            //= R-OPEN-38
            remote_subnets: key
                .value(GLOBAL_FLAGS)
                .is_some_and(|flags| flags & NETWORK_DIRECT_GLOBAL_FLAGS_ALLOW_REMOTE_IP_SUBNET != 0),
            network_address: key.network_address(),
        })
    }

    /// Returns the operational RoCE payload limit: the configured one, or the largest smaller one whose packets fit in
    /// frames of `max_frame` bytes.
    //= R-OPEN-36
    pub fn roce_frame_size(&self, max_frame: u32) -> u32 {
        let ip_mtu = max_frame.saturating_sub(ETHERNET_HEADER);
        let fitting = PathMtu::largest_for(ip_mtu as usize).map_or(0, |mtu| mtu.bytes() as u32);
        self.configured_roce_frame_size.min(fitting)
    }
}

/// Returns the IP MTU with which RoCE packets with payloads of `frame_size` bytes are the largest that fit in frames of at
/// most `max_frame` bytes.
pub fn ip_mtu_for(frame_size: u32, max_frame: u32) -> u32 {
    let needed = frame_size.saturating_add(PathMtu::OVERHEAD as u32);
    needed.min(max_frame.saturating_sub(ETHERNET_HEADER))
}

/// Returns the largest power of two that is at most `value`, a size of a queue.
fn power_of_two(value: u32) -> u16 {
    value.checked_ilog2().and_then(|exponent| 1_u16.checked_shl(exponent)).unwrap_or(1)
}

/// Reads whether `*NetworkDirect` allows RDMA now.
//= R-OIDNDK-9
pub fn network_direct_allowed(handle: NDIS_HANDLE) -> bool {
    Key::open(handle).is_ok_and(|key| key.read(&keywords::NETWORK_DIRECT) != 0)
}
