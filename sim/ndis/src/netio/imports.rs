// SPDX-License-Identifier: MIT OR Apache-2.0

//! The imports of `netio.sys` for addresses, neighbors and routes.

use std::{ffi::c_void, net::IpAddr, sync::Arc};

use ndk_abi::{
    netio::{
        ADDRESS_FAMILY, AF_INET, AF_INET6, MIB_IPFORWARD_ROW2, MIB_IPINTERFACE_ROW, MIB_IPNET_ROW2,
        MIB_NOTIFICATION_TYPE, MIB_UNICASTIPADDRESS_ROW, NET_LUID, PIPFORWARD_CHANGE_CALLBACK,
        PIPINTERFACE_CHANGE_CALLBACK, PUNICAST_IPADDRESS_CHANGE_CALLBACK, SOCKADDR_INET,
    },
    nt::{
        STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER, STATUS_NETWORK_UNREACHABLE,
        STATUS_NO_MEMORY, STATUS_NOT_FOUND, STATUS_SUCCESS,
    },
};
use nt_sim::{
    BugCheck, Host, Tolerance, current,
    guest::Guest,
    image::call,
    imports,
    memory::pool::{Request, Tag},
    nt::work::on_worker,
    verifier::undocumented_call,
    violation,
};

use super::{
    addresses::{ADDRESSES, InterfaceAddress},
    interfaces::{named, of_luid, require_family},
    neighbors::NEIGHBORS,
    resolve,
    rows::{self, read_address, socket_address},
    stack,
    unicast::matches,
};
use crate::{
    adapter::Adapter,
    network_rules::{self, broken},
    rules::POISON,
};

/// `STATUS_BAD_NETWORK_NAME`: no answer.
const NOT_ANSWERED: i32 = 0xC000_00CC_u32.cast_signed();

const TABLE_TAG: Tag = Tag(u32::from_le_bytes(*b"MibT"));
const TABLE: &str = "a MIB table";
const NOTIFICATION: &str = "NotifyUnicastIpAddressChange";

/// Returns the host of the calling thread.
fn this_host() -> Arc<Host> {
    current().host().clone()
}

/// Allocates a table: a count and `rows`. `FreeMibTable` frees it. Returns null when resources run low.
fn table<T: Copy>(rows: &[T]) -> Guest<u8> {
    let host = this_host();
    if host.low_resources.fails() {
        return Guest::null();
    }
    let first = size_of::<u32>().next_multiple_of(align_of::<T>());
    let size = first + size_of_val(rows).max(size_of::<T>());
    let request = Request { size, tag: TABLE_TAG, zeroed: true, cache_aligned: false };
    let Some(block) = host.memory.pool.allocate(&host.memory.physical, &host.memory.space, request) else {
        return Guest::null();
    };
    block.cast::<u32>().write(rows.len() as u32);
    for (index, row) in rows.iter().enumerate() {
        block.field::<T>(first).add(index).write(*row);
    }
    host.objects.add(TABLE, block.address());
    block
}

fn give_table<T: Copy>(out: Guest<usize>, rows: &[T]) -> i32 {
    let made = table(rows);
    if made.is_null() {
        return STATUS_INSUFFICIENT_RESOURCES;
    }
    out.write(made.address());
    STATUS_SUCCESS
}

/// Registers a notification; without `callback` for an event that never occurs.
fn register(
    family: ADDRESS_FAMILY,
    callback: Option<PUNICAST_IPADDRESS_CHANGE_CALLBACK>,
    context: usize,
) -> usize {
    let host = this_host();
    let handle = host.new_handle();
    host.state(&ADDRESSES).register(handle, family, callback, context);
    host.objects.add(NOTIFICATION, handle);
    handle
}

fn resolve_entry(row: Guest<MIB_IPNET_ROW2>, source: Guest<SOCKADDR_INET>) -> i32 {
    let host = this_host();
    let asked = row.read();
    let (address, adapter) =
        match neighbor(&host, &asked.Address, asked.InterfaceLuid.Value, asked.InterfaceIndex) {
            Ok(neighbor) => neighbor,
            Err(status) => return status,
        };
    let source = if source.is_null() { None } else { read_address(&source.read()) };
    let source = source.filter(|source| !source.is_unspecified());
    let Some(mac) = resolve::find(&host, &adapter, source, address) else { return NOT_ANSWERED };
    let luid = adapter.interface.luid;
    stack::found(&host, luid, address, mac);
    let Some((mac, state)) = host.state(&NEIGHBORS).get(luid, address, host.world().now()) else {
        return NOT_ANSWERED;
    };
    row.write(rows::neighbor(asked, &adapter.interface, mac, state));
    STATUS_SUCCESS
}

/// Returns the address and the interface that a row of a neighbor names. A scope ID, if not 0, must be that of the
/// interface.
fn neighbor(
    host: &Host,
    address: &SOCKADDR_INET,
    luid: u64,
    index: u32,
) -> Result<(IpAddr, Arc<Adapter>), i32> {
    let requested = read_address(address).ok_or(STATUS_INVALID_PARAMETER)?;
    let adapter = named(host, luid, index)?;
    let scope = rows::scope_id(address);
    if scope != 0 && scope != adapter.if_index {
        return Err(STATUS_NOT_FOUND);
    }
    Ok((requested, adapter))
}

/// Returns a table of the addresses, routes or neighbors of a family.
fn family_table<T: Copy>(
    family: ADDRESS_FAMILY,
    out: Guest<usize>,
    rows: impl FnOnce(&Host) -> Vec<T>,
) -> i32 {
    if out.is_null() {
        return STATUS_INVALID_PARAMETER;
    }
    if let Err(status) = require_family(family) {
        return status;
    }
    let rows = rows(&this_host());
    if rows.is_empty() { STATUS_NOT_FOUND } else { give_table(out, &rows) }
}

fn best_route(
    luid: u64,
    index: u32,
    destination: &SOCKADDR_INET,
) -> Result<(MIB_IPFORWARD_ROW2, SOCKADDR_INET), i32> {
    let host = this_host();
    let addresses = host.state(&ADDRESSES);
    // The gateway and the source address.
    let next_hop = |luid, destination| {
        let on_link = addresses.on_link(luid, destination).map(|source| (None, source));
        let routed = || addresses.gateway(luid, destination).map(|(gateway, source)| (Some(gateway), source));
        on_link.or_else(routed).ok_or(STATUS_NETWORK_UNREACHABLE)
    };
    let (destination, (gateway, source), adapter) = if luid == 0 && index == 0 {
        let destination = read_address(destination).ok_or(STATUS_INVALID_PARAMETER)?;
        let next_hop = next_hop(None, destination)?;
        (destination, next_hop, named(&host, next_hop.1.luid, 0)?)
    } else {
        let (destination, adapter) = neighbor(&host, destination, luid, index)?;
        (destination, next_hop(Some(adapter.interface.luid), destination)?, adapter)
    };
    let prefix = if gateway.is_some() { 0 } else { source.unicast.prefix };
    let mut route = rows::route(destination, prefix, &adapter.interface);
    if let Some(gateway) = gateway {
        route.NextHop = socket_address(gateway, Some(&adapter.interface));
    }
    Ok((route, socket_address(source.unicast.address, Some(&adapter.interface))))
}

imports! { IMPORTS: "netio.sys" =>
    /// Returns the unicast addresses of all interfaces.
    [== PASSIVE_LEVEL]
    fn GetUnicastIpAddressTable(family: ADDRESS_FAMILY, out: Guest<usize>) -> i32 {
        if this_host().state(&ADDRESSES).refuses_table() {
            out.write(POISON);
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        family_table(family, out, |host| {
            let addresses = host.state(&ADDRESSES).all().into_iter();
            addresses.filter(|at| matches(family, at.unicast.address)).filter_map(|at| at.row(host)).collect()
        })
    }

    /// Fills in the row of one unicast address, which address and interface name.
    [== PASSIVE_LEVEL]
    fn GetUnicastIpAddressEntry(row: Guest<MIB_UNICASTIPADDRESS_ROW>) -> i32 {
        let host = this_host();
        let asked = row.read();
        let (requested, adapter) =
            match neighbor(&host, &asked.Address, asked.InterfaceLuid.Value, asked.InterfaceIndex) {
                Ok(named) => named,
                Err(status) => return status,
            };
        let of_interface = host.state(&ADDRESSES).of(adapter.interface.luid).into_iter();
        let Some(unicast) = of_interface.into_iter().find(|unicast| unicast.address == requested) else {
            return STATUS_NOT_FOUND;
        };
        row.write(rows::unicast(unicast, &adapter.interface));
        STATUS_SUCCESS
    }

    /// Initializes a row with defaults.
    [== PASSIVE_LEVEL]
    fn InitializeUnicastIpAddressEntry(row: Guest<MIB_UNICASTIPADDRESS_ROW>) {
        row.cast::<u8>().fill(0, size_of::<MIB_UNICASTIPADDRESS_ROW>());
    }

    /// Registers a callback for added, changed and removed addresses.
    [== PASSIVE_LEVEL]
    fn NotifyUnicastIpAddressChange(
        family: ADDRESS_FAMILY,
        callback: Option<PUNICAST_IPADDRESS_CHANGE_CALLBACK>,
        context: usize,
        initial: u8,
        handle: Guest<usize>,
    ) -> i32 {
        if callback.is_none() || handle.is_null() {
            return STATUS_INVALID_PARAMETER;
        }
        if let Err(status) = require_family(family) {
            return status;
        }
        if this_host().state(&ADDRESSES).refuses_notification() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        handle.write(register(family, callback, context));
        if initial != 0 && let Some(callback) = callback {
            call("a unicast address change callback", || {
                let kind = MIB_NOTIFICATION_TYPE::MibInitialNotification;
                // SAFETY: the image registered the function under this contract; the first call has no row.
                unsafe { callback(context as *mut c_void, std::ptr::null_mut(), kind) }
            });
        }
        STATUS_SUCCESS
    }

    /// Registers a callback for interface changes, which never occur.
    [== PASSIVE_LEVEL]
    fn NotifyIpInterfaceChange(
        family: ADDRESS_FAMILY,
        _callback: Option<PIPINTERFACE_CHANGE_CALLBACK>,
        context: usize,
        _initial: u8,
        handle: Guest<usize>,
    ) -> i32 {
        handle.write(register(family, None, context));
        STATUS_SUCCESS
    }

    /// Registers a callback for route changes, which never occur.
    [== PASSIVE_LEVEL]
    fn NotifyRouteChange2(
        family: ADDRESS_FAMILY,
        _callback: Option<PIPFORWARD_CHANGE_CALLBACK>,
        context: usize,
        _initial: u8,
        handle: Guest<usize>,
    ) -> i32 {
        handle.write(register(family, None, context));
        STATUS_SUCCESS
    }

    /// Cancels a notification; returns when no callback is running.
    [== PASSIVE_LEVEL]
    fn CancelMibChangeNotify2(handle: usize) -> i32 {
        if handle == 0 {
            return STATUS_INVALID_PARAMETER;
        }
        let host = this_host();
        if !host.objects.remove(NOTIFICATION, handle) {
            broken(network_rules::NOTIFICATION, format!("CancelMibChangeNotify2 of {handle:#x}, which is not a notification handle"));
        }
        host.state(&ADDRESSES).cancel(handle);
        STATUS_SUCCESS
    }

    /// Frees a table.
    [< DISPATCH_LEVEL]
    fn FreeMibTable(table: Guest<u8>) {
        let host = this_host();
        if !host.objects.remove(TABLE, table.address()) {
            broken(network_rules::MIB_TABLE, format!("FreeMibTable of {:#x}, which is not a MIB table", table.address()));
        }
        let memory = &host.memory;
        if let Err(misuse) = memory.pool.free(&memory.physical, &memory.space, table, Some(TABLE_TAG)) {
            violation(misuse.code, misuse.text);
        }
    }

    /// Fills in the row of an IP interface, which its LUID or index names.
    [== PASSIVE_LEVEL]
    fn GetIpInterfaceEntry(row: Guest<MIB_IPINTERFACE_ROW>) -> i32 {
        let asked = row.read();
        if ![AF_INET, AF_INET6].contains(&asked.Family) {
            return STATUS_INVALID_PARAMETER;
        }
        match named(current().host(), asked.InterfaceLuid.Value, asked.InterfaceIndex) {
            Ok(adapter) => {
                let mtu = adapter.attributes().general.map_or(1500, |general| general.MtuSize);
                row.write(rows::interface(asked, &adapter.interface, adapter.interface.ip_mtu(mtu)));
                STATUS_SUCCESS
            }
            Err(status) => status,
        }
    }

    /// Initializes a row with defaults.
    [== PASSIVE_LEVEL]
    fn InitializeIpInterfaceEntry(row: Guest<MIB_IPINTERFACE_ROW>) {
        row.cast::<u8>().fill(0, size_of::<MIB_IPINTERFACE_ROW>());
    }

    /// Fills in the row of a neighbor in the cache.
    [== PASSIVE_LEVEL]
    fn GetIpNetEntry2(row: Guest<MIB_IPNET_ROW2>) -> i32 {
        let host = this_host();
        let asked = row.read();
        let (address, adapter) =
            match neighbor(&host, &asked.Address, asked.InterfaceLuid.Value, asked.InterfaceIndex) {
                Ok(neighbor) => neighbor,
                Err(status) => return status,
            };
        let known = host.state(&NEIGHBORS).get(adapter.interface.luid, address, host.world().now());
        let Some((mac, state)) = known else { return STATUS_NOT_FOUND };
        row.write(rows::neighbor(asked, &adapter.interface, mac, state));
        STATUS_SUCCESS
    }

    /// Resolves the link address of a neighbor, ignoring the cache. Blocks until it is resolved. Needs memory.
    [== PASSIVE_LEVEL]
    fn ResolveIpNetEntry2(row: Guest<MIB_IPNET_ROW2>, source: Guest<SOCKADDR_INET>) -> i32 {
        if current().verifies() && on_worker() {
            undocumented_call(Tolerance::ResolveInWorkItem, BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, "ResolveIpNetEntry2 in a work item, which waits for the network on a worker thread");
        }
        if this_host().low_resources.fails() {
            return STATUS_NO_MEMORY;
        }
        resolve_entry(row, source)
    }

    /// Returns the neighbors in the cache.
    [== PASSIVE_LEVEL]
    fn GetIpNetTable2(family: ADDRESS_FAMILY, out: Guest<usize>) -> i32 {
        family_table(family, out, |host| {
            let known = host.state(&NEIGHBORS).list(host.world().now()).into_iter();
            let of_family = known.filter(|&(_, address, ..)| matches(family, address));
            let row = |(luid, address, mac, state)| {
                let interface = &of_luid(host, luid)?.interface;
                Some(rows::neighbor(rows::empty_neighbor(address, interface), interface, mac, state))
            };
            of_family.filter_map(row).collect()
        })
    }

    /// Empties the neighbor cache of an interface, or of all when the index is 0.
    [== PASSIVE_LEVEL]
    fn FlushIpNetTable2(family: ADDRESS_FAMILY, index: u32) -> i32 {
        let host = this_host();
        let of_index = if index == 0 { Ok(None) } else { named(&host, 0, index).map(Some) };
        let adapter = match require_family(family).and(of_index) {
            Ok(adapter) => adapter,
            Err(status) => return status,
        };
        host.state(&NEIGHBORS).forget(|luid, address| {
            matches(family, address) && adapter.as_ref().is_none_or(|adapter| adapter.interface.luid == luid)
        });
        STATUS_SUCCESS
    }

    /// Returns the route to a destination and the source address to use. Needs memory.
    [== PASSIVE_LEVEL]
    fn GetBestRoute2(
        luid: Guest<NET_LUID>,
        index: u32,
        source: Guest<SOCKADDR_INET>,
        destination: Guest<SOCKADDR_INET>,
        _sort: u32,
        route: Guest<MIB_IPFORWARD_ROW2>,
        best_source: Guest<SOCKADDR_INET>,
    ) -> i32 {
        if this_host().low_resources.fails() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let luid = if luid.is_null() { 0 } else { luid.read().Value };
        match best_route(luid, index, &destination.read()) {
            Ok((row, local)) => {
                route.write(row);
                let requested = if source.is_null() { None } else { Some(source.read()) };
                let requested = requested.filter(|from| read_address(from).is_some_and(|from| !from.is_unspecified()));
                best_source.write(requested.unwrap_or(local));
                STATUS_SUCCESS
            }
            Err(status) => status,
        }
    }

    /// Returns the routes of the host: one per subnet.
    [== PASSIVE_LEVEL]
    fn GetIpForwardTable2(family: ADDRESS_FAMILY, out: Guest<usize>) -> i32 {
        family_table(family, out, |host| {
            let addresses = host.state(&ADDRESSES).all().into_iter();
            let of_family = addresses.filter(|at| matches(family, at.unicast.address));
            let row = |at: InterfaceAddress| {
                let interface = &of_luid(host, at.luid)?.interface;
                Some(rows::route(at.unicast.address, at.unicast.prefix, interface))
            };
            of_family.filter_map(row).collect()
        })
    }
}
