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

/// Programs the filters into the started device. Does nothing if the device does not run, because its start calls this again. Waits at most
/// two seconds for each answer of the device. `PASSIVE_LEVEL`.
///
/// # Errors
/// The device failed.
pub fn program(adapter: &Adapter) -> Result<(), Error> {
    let port = adapter.port();
    let programmed = port.with_commands(|commands| {
        // Read only with the control queue taken: a later change is programmed by the next user of the queue.
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
        commands.set_receive_mode(&mode, || port.is_running())
    });
    match programmed {
        Some(Err(error)) if port.is_running() => Err(error),
        _ => Ok(()),
    }
}
