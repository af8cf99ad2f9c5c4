// SPDX-License-Identifier: MIT OR Apache-2.0

//! Route lookup and neighbor resolution: from an IP address to the link address of the next hop. `PASSIVE_LEVEL`.

use core::mem::zeroed;
use core::net::IpAddr;

use ndk_abi::netio::{
    GetBestRoute2, GetIpNetEntry2, MIB_IPFORWARD_ROW2, MIB_IPNET_ROW2, NL_NEIGHBOR_STATE, ResolveIpNetEntry2,
    SOCKADDR_INET,
};
use ndk_abi::nt::{NT_SUCCESS, STATUS_INSUFFICIENT_RESOURCES, STATUS_NO_MEMORY};
use ndk_provider::environment::ResolveError;

use super::interface::{Interface, address};

/// Returns the link address of the next hop from `local` to `remote` on `interface`. May wait for the network.
/// With `same_subnet`, routes through a gateway are refused. `PASSIVE_LEVEL`.
pub fn resolve(
    interface: Interface,
    local: IpAddr,
    remote: IpAddr,
    same_subnet: bool,
) -> Result<[u8; 6], ResolveError> {
    let (source, destination) = (interface.socket_address(local), interface.socket_address(remote));
    let mut luid = interface.luid;
    // SAFETY: integers and addresses only: all zeroes is a value.
    let mut route: MIB_IPFORWARD_ROW2 = unsafe { zeroed() };
    let mut best_source = source;
    // SAFETY: all pointers are valid for the call.
    let status = unsafe {
        GetBestRoute2(
            &raw mut luid,
            0,
            &raw const source,
            &raw const destination,
            0,
            &raw mut route,
            &raw mut best_source,
        )
    };
    if !NT_SUCCESS(status) {
        return Err(no_memory(status).unwrap_or(ResolveError::NetworkUnreachable));
    }
    let gateway = address(&route.NextHop).filter(|hop| !hop.is_unspecified());
    //= R-OPEN-38
    if route.InterfaceLuid != interface.luid || (gateway.is_some() && same_subnet) {
        return Err(ResolveError::NetworkUnreachable);
    }
    neighbor(interface, &source, gateway.unwrap_or(remote))
}

/// Returns the link address of a neighbor, from the neighbor cache or by resolving it (ARP, neighbor discovery).
fn neighbor(interface: Interface, source: &SOCKADDR_INET, neighbor: IpAddr) -> Result<[u8; 6], ResolveError> {
    // SAFETY: integers and addresses only: all zeroes is a value.
    let mut row: MIB_IPNET_ROW2 = unsafe { zeroed() };
    row.Address = interface.socket_address(neighbor);
    row.InterfaceLuid = interface.luid;
    // SAFETY: the row names address and interface, and lives through the call.
    let cached = unsafe { GetIpNetEntry2(&raw mut row) };
    let fresh = [NL_NEIGHBOR_STATE::NlnsReachable, NL_NEIGHBOR_STATE::NlnsPermanent];
    if !NT_SUCCESS(cached) || !fresh.contains(&row.State) {
        // SAFETY: integers and addresses only: all zeroes is a value.
        row = unsafe { zeroed() };
        row.Address = interface.socket_address(neighbor);
        row.InterfaceLuid = interface.luid;
        // SAFETY: the row names address and interface; both live through the call.
        let status = unsafe { ResolveIpNetEntry2(&raw mut row, source) };
        if !NT_SUCCESS(status) {
            return Err(no_memory(status).unwrap_or(ResolveError::HostUnreachable));
        }
    }
    let mac = row.PhysicalAddress.first_chunk().filter(|_| row.PhysicalAddressLength == 6);
    mac.copied().ok_or(ResolveError::HostUnreachable)
}

fn no_memory(status: i32) -> Option<ResolveError> {
    [STATUS_INSUFFICIENT_RESOURCES, STATUS_NO_MEMORY].contains(&status).then_some(ResolveError::NoResources)
}
