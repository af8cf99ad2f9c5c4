// SPDX-License-Identifier: MIT OR Apache-2.0

//! The receive filters of the device, set through the control queue: they admit the frames that the packet filter, the multicast list, the
//! VLAN and RDMA require.
//!
//! They only reduce the number of frames that arrive. The driver drops unwanted frames that the device delivers nevertheless
//! ([`receive_filter`](super::receive_filter)), so a device that has no filters or refuses them works, too.

use ndk_abi::ndis::{
    NDIS_PACKET_TYPE_ALL_MULTICAST, NDIS_PACKET_TYPE_MULTICAST, NDIS_PACKET_TYPE_PROMISCUOUS,
};
use virtio_net::{Error, ReceiveMode};

use super::adapter::Adapter;

/// Programs the filters into the started device. Does nothing if the device has no control queue. Waits for its answers. `PASSIVE_LEVEL`.
///
/// # Errors
/// The device failed, or was stopped.
pub fn program(adapter: &Adapter) -> Result<(), Error> {
    let port = adapter.port();
    port.with_commands(|commands| {
        // Read only now: a later change is programmed next.
        let types = adapter.filter.packet_types();
        let (addresses, count) = adapter.filter.multicast();
        let has = |kind: u32| types & kind != 0;
        let count = if has(NDIS_PACKET_TYPE_MULTICAST) { count } else { 0 };
        let current = adapter.addresses.current;
        let mode = ReceiveMode {
            promiscuous: has(NDIS_PACKET_TYPE_PROMISCUOUS),
            all_multicast: has(NDIS_PACKET_TYPE_ALL_MULTICAST),
            station: (port.device_address() != Some(current)).then_some(current),
            multicast: addresses.get(..count).unwrap_or_default(),
            vlan: adapter.vlan.filter(),
        };
        commands.set_receive_mode(&mode, |waited| adapter.settings.go_on(adapter.port(), waited)).map(drop)
    })
}
