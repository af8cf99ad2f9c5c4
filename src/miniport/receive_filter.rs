// SPDX-License-Identifier: MIT OR Apache-2.0

//! The software receive filter: the packet filter and the multicast list that NDIS has set, and the decision whether a received frame is
//! indicated. [`device_filter`](super::device_filter) programs the same filter into the device.

use core::sync::atomic::{AtomicU32, Ordering};

use ndk_abi::ndis::{
    NDIS_PACKET_TYPE_ALL_MULTICAST, NDIS_PACKET_TYPE_BROADCAST, NDIS_PACKET_TYPE_DIRECTED,
    NDIS_PACKET_TYPE_MULTICAST, NDIS_PACKET_TYPE_PROMISCUOUS,
};
use nt::SpinLock;

use super::statistics::Cast;

/// Number of multicast addresses an adapter supports.
pub const MAX_MULTICAST: usize = 32;

/// Supported packet types.
pub const SUPPORTED: u32 = NDIS_PACKET_TYPE_DIRECTED
    | NDIS_PACKET_TYPE_MULTICAST
    | NDIS_PACKET_TYPE_ALL_MULTICAST
    | NDIS_PACKET_TYPE_BROADCAST
    | NDIS_PACKET_TYPE_PROMISCUOUS;

/// Multicast addresses, and the number of those in use.
pub type MulticastList = ([[u8; 6]; MAX_MULTICAST], usize);

/// Packet types and multicast addresses of the frames that are indicated to NDIS.
pub struct ReceiveFilter {
    /// `NDIS_PACKET_TYPE_*`.
    packet_types: AtomicU32,
    multicast: SpinLock<MulticastList>,
}

impl ReceiveFilter {
    /// Returns a filter that admits no frame.
    pub const fn new() -> Self {
        Self { packet_types: AtomicU32::new(0), multicast: SpinLock::new(([[0; 6]; MAX_MULTICAST], 0)) }
    }

    /// Returns the packet types in force (`NDIS_PACKET_TYPE_*`).
    pub fn packet_types(&self) -> u32 {
        self.packet_types.load(Ordering::Relaxed)
    }

    /// Sets the packet types, a subset of [`SUPPORTED`].
    pub fn set_packet_types(&self, types: u32) {
        self.packet_types.store(types, Ordering::Relaxed);
    }

    /// Returns a copy of the multicast list. IRQL <= `DISPATCH_LEVEL`.
    pub fn multicast(&self) -> MulticastList {
        *self.multicast.lock()
    }

    /// Replaces the multicast list. IRQL <= `DISPATCH_LEVEL`.
    pub fn set_multicast(&self, list: MulticastList) {
        *self.multicast.lock() = list;
    }

    /// Returns whether the packet types and the multicast list admit a frame that arrives at the MAC address `station`. IRQL <=
    /// `DISPATCH_LEVEL`.
    pub fn admits(&self, frame: &[u8], station: [u8; 6]) -> bool {
        let types = self.packet_types();
        let has = |kind: u32| types & kind != 0;
        let Some(destination) = frame.first_chunk::<6>() else { return false };
        has(NDIS_PACKET_TYPE_PROMISCUOUS)
            || match Cast::of(frame) {
                Cast::Directed => has(NDIS_PACKET_TYPE_DIRECTED) && *destination == station,
                Cast::Broadcast => has(NDIS_PACKET_TYPE_BROADCAST),
                Cast::Multicast => {
                    has(NDIS_PACKET_TYPE_ALL_MULTICAST)
                        || (has(NDIS_PACKET_TYPE_MULTICAST) && self.is_member(*destination))
                }
            }
    }

    fn is_member(&self, group: [u8; 6]) -> bool {
        let multicast = self.multicast.lock();
        let (addresses, count) = &*multicast;
        addresses.iter().take(*count).any(|address| *address == group)
    }
}
