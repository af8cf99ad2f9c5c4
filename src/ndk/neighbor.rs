// SPDX-License-Identifier: MIT OR Apache-2.0

//! Route lookup and neighbor resolution: from an IP address to the link address of the next hop. `PASSIVE_LEVEL`.

use core::mem::zeroed;
use core::net::IpAddr;

use ndk_abi::netio::{
    AF_INET, AF_INET6, GetBestRoute2, GetIpInterfaceEntry, GetIpNetEntry2, InitializeIpInterfaceEntry,
    MIB_IPFORWARD_ROW2, MIB_IPINTERFACE_ROW, MIB_IPNET_ROW2, NL_NEIGHBOR_STATE, ResolveIpNetEntry2,
};
use ndk_abi::nt::{STATUS_INSUFFICIENT_RESOURCES, STATUS_NO_MEMORY};
use ndk_provider::environment::ResolveError;
use wdk::nt_success;

use super::interface::{Interface, address};

/// Returns the link address of the next hop from `local` to `remote` on `interface`, if the neighbor cache has it; `None` if it
/// must be resolved. Does not wait. With `same_subnet`, routes through a gateway are refused. `PASSIVE_LEVEL`.
pub fn known(
    interface: Interface,
    local: IpAddr,
    remote: IpAddr,
    same_subnet: bool,
) -> Result<Option<[u8; 6]>, ResolveError> {
    let mut row = neighbor(interface, next_hop(interface, local, remote, same_subnet)?);
    // SAFETY: the row names address and interface, and lives through the call.
    let status = unsafe { GetIpNetEntry2(&raw mut row) };
    let fresh = [NL_NEIGHBOR_STATE::NlnsReachable, NL_NEIGHBOR_STATE::NlnsPermanent];
    if nt_success(status) && fresh.contains(&row.State) { link_address(&row).map(Some) } else { Ok(None) }
}

/// Resolves the MAC address of the next hop (ARP, neighbor discovery), which may take seconds.
pub fn resolve(
    interface: Interface,
    local: IpAddr,
    remote: IpAddr,
    same_subnet: bool,
) -> Result<[u8; 6], ResolveError> {
    let mut row = neighbor(interface, next_hop(interface, local, remote, same_subnet)?);
    let source = interface.socket_address(local);
    // SAFETY: the row names address and interface; both live through the call.
    let status = unsafe { ResolveIpNetEntry2(&raw mut row, &raw const source) };
    if !nt_success(status) {
        return Err(no_memory(status).unwrap_or(ResolveError::HostUnreachable));
    }
    link_address(&row)
}

/// Returns the MTU of IP on `interface` for packets to `remote`, in bytes, which an administrator can set below the adapter's
/// (`netsh interface ipv4 set subinterface`); `u32::MAX` if it is unknown.
pub fn ip_mtu(interface: Interface, remote: IpAddr) -> u32 {
    // SAFETY: integers and booleans only: all zeroes is a value.
    let mut row: MIB_IPINTERFACE_ROW = unsafe { zeroed() };
    // SAFETY: the row lives through the call.
    unsafe { InitializeIpInterfaceEntry(&raw mut row) };
    row.Family = if remote.is_ipv6() { AF_INET6 } else { AF_INET };
    row.InterfaceLuid = interface.luid;
    // SAFETY: the row names family and interface, and lives through the call.
    let status = unsafe { GetIpInterfaceEntry(&raw mut row) };
    if nt_success(status) && row.NlMtu != 0 { row.NlMtu } else { u32::MAX }
}

/// Returns the address of the next hop from `local` to `remote`: `remote` itself, or a gateway.
fn next_hop(
    interface: Interface,
    local: IpAddr,
    remote: IpAddr,
    same_subnet: bool,
) -> Result<IpAddr, ResolveError> {
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
    if !nt_success(status) {
        return Err(no_memory(status).unwrap_or(ResolveError::NetworkUnreachable));
    }
    let gateway = address(&route.NextHop).filter(|hop| !hop.is_unspecified());
    //= R-OPEN-38
    if route.InterfaceLuid != interface.luid || (gateway.is_some() && same_subnet) {
        return Err(ResolveError::NetworkUnreachable);
    }
    Ok(gateway.unwrap_or(remote))
}

/// Returns a row that names a neighbor.
fn neighbor(interface: Interface, address: IpAddr) -> MIB_IPNET_ROW2 {
    // SAFETY: integers and addresses only: all zeroes is a value.
    let mut row: MIB_IPNET_ROW2 = unsafe { zeroed() };
    row.Address = interface.socket_address(address);
    row.InterfaceLuid = interface.luid;
    row
}

fn link_address(row: &MIB_IPNET_ROW2) -> Result<[u8; 6], ResolveError> {
    let mac = row.PhysicalAddress.first_chunk().filter(|_| row.PhysicalAddressLength == 6);
    mac.copied().ok_or(ResolveError::HostUnreachable)
}

fn no_memory(status: i32) -> Option<ResolveError> {
    [STATUS_INSUFFICIENT_RESOURCES, STATUS_NO_MEMORY].contains(&status).then_some(ResolveError::NoResources)
}
