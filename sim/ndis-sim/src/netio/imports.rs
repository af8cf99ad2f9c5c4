// SPDX-License-Identifier: MIT OR Apache-2.0

//! The imports of `netio.sys`.

use std::{ffi::c_void, net::IpAddr, sync::Arc};

use ndk_abi::{
    netio::{
        ADDRESS_FAMILY, MIB_IPFORWARD_ROW2, MIB_IPINTERFACE_ROW, MIB_IPNET_ROW2, MIB_NOTIFICATION_TYPE,
        MIB_UNICASTIPADDRESS_ROW, NET_LUID, PIPFORWARD_CHANGE_CALLBACK, PIPINTERFACE_CHANGE_CALLBACK,
        PUNICAST_IPADDRESS_CHANGE_CALLBACK, SOCKADDR_INET,
    },
    nt::{
        STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER, STATUS_NETWORK_UNREACHABLE,
        STATUS_NOT_FOUND, STATUS_SUCCESS,
    },
};
use nt_sim::{
    BugCheck, Host, current,
    guest::Guest,
    image::call,
    imports,
    memory::pool::{Request, Tag},
    violation,
};

use super::{
    addresses::ADDRESSES,
    interfaces::interface,
    neighbors::NEIGHBORS,
    resolve,
    rows::{self, read_address, socket_address},
    stack,
    unicast::matches,
};
use crate::adapter::Adapter;

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

fn misuse(text: impl Into<String>) -> ! {
    violation(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, text)
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
    let Some((address, interface)) =
        named(&host, &asked.Address, asked.InterfaceLuid.Value, asked.InterfaceIndex)
    else {
        return STATUS_NOT_FOUND;
    };
    let source = if source.is_null() { None } else { read_address(&source.read()) };
    let source = source.filter(|source| !source.is_unspecified());
    let Some(mac) = resolve::find(&host, &interface, source, address) else { return NOT_ANSWERED };
    stack::found(&host, address, mac);
    let Some((mac, state)) = host.state(&NEIGHBORS).get(address, host.world().now()) else {
        return NOT_ANSWERED;
    };
    row.write(rows::neighbor(asked, &interface, mac, state));
    STATUS_SUCCESS
}

/// Returns the address and the interface of a row. A scope ID, if not 0, must be that of the interface.
fn named(host: &Host, address: &SOCKADDR_INET, luid: u64, index: u32) -> Option<(IpAddr, Arc<Adapter>)> {
    let interface = interface(host, luid, index)?;
    let scope = rows::scope_id(address);
    (scope == 0 || scope == interface.if_index).then(|| Some((read_address(address)?, interface)))?
}

fn best_route(
    luid: u64,
    index: u32,
    destination: &SOCKADDR_INET,
) -> Result<(MIB_IPFORWARD_ROW2, SOCKADDR_INET), i32> {
    let host = this_host();
    let (destination, interface) = named(&host, destination, luid, index).ok_or(STATUS_NOT_FOUND)?;
    let source = host.state(&ADDRESSES).on_link(destination).ok_or(STATUS_NETWORK_UNREACHABLE)?;
    let route = rows::route(destination, source.prefix, &interface);
    Ok((route, socket_address(source.address, Some(&interface))))
}

imports! { IMPORTS: "netio.sys" =>
    /// Returns the unicast addresses of the host.
    [== PASSIVE_LEVEL]
    fn GetUnicastIpAddressTable(family: ADDRESS_FAMILY, out: Guest<usize>) -> i32 {
        let host = this_host();
        let interface = interface(&host, 0, 0);
        let addresses = host.state(&ADDRESSES).all().into_iter();
        let rows: Vec<_> = addresses
            .filter(|unicast| matches(family, unicast.address))
            .map(|unicast| rows::unicast(unicast, interface.as_deref()))
            .collect();
        give_table(out, &rows)
    }

    /// Fills in the row of one unicast address.
    [== PASSIVE_LEVEL]
    fn GetUnicastIpAddressEntry(row: Guest<MIB_UNICASTIPADDRESS_ROW>) -> i32 {
        let host = this_host();
        let Some(requested) = read_address(&row.read().Address) else { return STATUS_INVALID_PARAMETER };
        let found = host.state(&ADDRESSES).all().into_iter().find(|unicast| unicast.address == requested);
        let Some(unicast) = found else { return STATUS_NOT_FOUND };
        row.write(rows::unicast(unicast, interface(&host, 0, 0).as_deref()));
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
        if callback.is_none() {
            return STATUS_INVALID_PARAMETER;
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
        let host = this_host();
        if !host.objects.remove(NOTIFICATION, handle) {
            misuse(format!("CancelMibChangeNotify2 of {handle:#x}, which is not a notification handle"));
        }
        host.state(&ADDRESSES).cancel(handle);
        STATUS_SUCCESS
    }

    /// Frees a table.
    [< DISPATCH_LEVEL]
    fn FreeMibTable(table: Guest<u8>) {
        let host = this_host();
        if !host.objects.remove(TABLE, table.address()) {
            misuse(format!("FreeMibTable of {:#x}, which is not a MIB table", table.address()));
        }
        let memory = &host.memory;
        if let Err(broken) = memory.pool.free(&memory.physical, &memory.space, table, Some(TABLE_TAG)) {
            violation(broken.code, broken.text);
        }
    }

    /// Returns the LUID of an interface.
    [== PASSIVE_LEVEL]
    fn ConvertInterfaceIndexToLuid(index: u32, luid: Guest<NET_LUID>) -> i32 {
        let Some(interface) = interface(current().host(), 0, index).filter(|_| index != 0) else {
            return STATUS_INVALID_PARAMETER;
        };
        luid.write(NET_LUID { Value: interface.luid });
        STATUS_SUCCESS
    }

    /// Returns the index of an interface.
    [== PASSIVE_LEVEL]
    fn ConvertInterfaceLuidToIndex(luid: Guest<NET_LUID>, index: Guest<u32>) -> i32 {
        let luid = luid.read().Value;
        let Some(interface) = interface(current().host(), luid, 0).filter(|_| luid != 0) else {
            return STATUS_INVALID_PARAMETER;
        };
        index.write(interface.if_index);
        STATUS_SUCCESS
    }

    /// Fills in the row of an IP interface, which its LUID or index names.
    [== PASSIVE_LEVEL]
    fn GetIpInterfaceEntry(row: Guest<MIB_IPINTERFACE_ROW>) -> i32 {
        let named = row.read();
        let Some(interface) = interface(current().host(), named.InterfaceLuid.Value, named.InterfaceIndex) else {
            return STATUS_NOT_FOUND;
        };
        row.write(rows::interface(named, &interface));
        STATUS_SUCCESS
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
        let Some((address, interface)) =
            named(&host, &asked.Address, asked.InterfaceLuid.Value, asked.InterfaceIndex)
        else {
            return STATUS_NOT_FOUND;
        };
        let Some((mac, state)) = host.state(&NEIGHBORS).get(address, host.world().now()) else {
            return STATUS_NOT_FOUND;
        };
        row.write(rows::neighbor(asked, &interface, mac, state));
        STATUS_SUCCESS
    }

    /// Resolves the link address of a neighbor, ignoring the cache. Blocks until it is resolved.
    [== PASSIVE_LEVEL]
    fn ResolveIpNetEntry2(row: Guest<MIB_IPNET_ROW2>, source: Guest<SOCKADDR_INET>) -> i32 {
        resolve_entry(row, source)
    }

    /// Returns the neighbors in the cache.
    [== PASSIVE_LEVEL]
    fn GetIpNetTable2(family: ADDRESS_FAMILY, out: Guest<usize>) -> i32 {
        let host = this_host();
        let Some(interface) = interface(&host, 0, 0) else { return STATUS_NOT_FOUND };
        let known = host.state(&NEIGHBORS).list(host.world().now()).into_iter();
        let rows: Vec<_> = known
            .filter(|&(address, ..)| matches(family, address))
            .map(|(address, mac, state)| {
                rows::neighbor(rows::empty_neighbor(address, &interface), &interface, mac, state)
            })
            .collect();
        give_table(out, &rows)
    }

    /// Empties the neighbor cache.
    [== PASSIVE_LEVEL]
    fn FlushIpNetTable2(family: ADDRESS_FAMILY, _index: u32) -> i32 {
        this_host().state(&NEIGHBORS).forget(|address| matches(family, address));
        STATUS_SUCCESS
    }

    /// Returns the route to a destination and the source address to use. There are no gateways.
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
        let host = this_host();
        let Some(interface) = interface(&host, 0, 0) else { return STATUS_NOT_FOUND };
        let addresses = host.state(&ADDRESSES).all().into_iter();
        let rows: Vec<_> = addresses
            .filter(|unicast| matches(family, unicast.address))
            .map(|unicast| rows::route(unicast.address, unicast.prefix, &interface))
            .collect();
        give_table(out, &rows)
    }
}
