// SPDX-License-Identifier: MIT OR Apache-2.0

//! The MAC addresses of an adapter: that of the device, or a random one for a device that has none (`VIRTIO_NET_F_MAC`) or reports an invalid
//! one, and the one that an administrator has configured.

use ndk_abi::ndis::NDIS_HANDLE;
use virtio_net::NetConfig;

use crate::config::Configuration;
use crate::events::{self, Failure};

/// MAC addresses of an adapter.
#[derive(Clone, Copy, Debug)]
pub struct StationAddresses {
    pub permanent: [u8; 6],
    pub current: [u8; 6],
}

/// Returns the addresses of an adapter: the device's or a random one as the permanent address, and the configured one, if there is one, as
/// the current address. `PASSIVE_LEVEL`.
///
/// # Errors
/// The device has no address, and the system's generator of random numbers failed.
pub fn station_addresses(
    handle: NDIS_HANDLE,
    configuration: &Configuration,
    device: &NetConfig,
) -> Result<StationAddresses, Failure> {
    let of_device = device.mac.filter(|mac| is_of_station(*mac));
    if device.mac.is_some() && of_device.is_none() {
        events::write(handle, events::table::INVALID_ADDRESS, [0, 0]);
    }
    let permanent = of_device.or_else(local_address).ok_or(Failure::NoResources)?;
    Ok(StationAddresses { permanent, current: configuration.network_address.unwrap_or(permanent) })
}

/// Returns whether an address can be that of a station: it is neither a group's nor zero.
fn is_of_station(address: [u8; 6]) -> bool {
    let [first, ..] = address;
    first & 1 == 0 && address != [0; 6]
}

/// Returns a random, locally administered MAC address, for a device that has none.
fn local_address() -> Option<[u8; 6]> {
    let mut address: [u8; 6] = *nt::random_seed()?.first_chunk()?;
    let [first, ..] = &mut address;
    *first = 0x02;
    Some(address)
}
