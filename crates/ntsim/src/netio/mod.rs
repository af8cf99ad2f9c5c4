//! The imports of `netio.sys` and the state behind them: addresses, routes, neighbors.
//!
//! Every adapter that is there is an interface. Addresses are given to the host by the harness
//! ([`Host::add_address`]) and belong to its first interface. A neighbor is found when the host at the other end of
//! the wire has the address and is alive; asking takes [`RESOLUTION`] once, and three times as long in vain.

mod rows;

use std::{
    ffi::c_void,
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use ndk_abi::{
    netio::{
        ADDRESS_FAMILY, AF_INET, AF_INET6, AF_UNSPEC, MIB_IPFORWARD_ROW2, MIB_IPINTERFACE_ROW,
        MIB_IPNET_ROW2, MIB_NOTIFICATION_TYPE, MIB_UNICASTIPADDRESS_ROW, NET_LUID, NL_NEIGHBOR_STATE,
        PIPFORWARD_CHANGE_CALLBACK, PIPINTERFACE_CHANGE_CALLBACK, PUNICAST_IPADDRESS_CHANGE_CALLBACK,
        SOCKADDR_INET,
    },
    nt::{
        STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER, STATUS_NETWORK_UNREACHABLE,
        STATUS_NOT_FOUND, STATUS_SUCCESS,
    },
};
use parking_lot::Mutex;

use self::rows::{read_address, socket_address};
use crate::{
    Host,
    guest::Guest,
    image::call,
    import::Import,
    imports,
    memory::pool::{Request, Tag},
    ndis::Adapter,
    nt::time::sleep,
    thread::current,
    verifier::{BugCheck, violation},
};

/// All imports of this module, one slice per file.
pub const IMPORTS: &[&[Import]] = &[FUNCTIONS];

/// How long a neighbor takes to answer.
pub const RESOLUTION: Duration = Duration::from_micros(200);

/// `STATUS_BAD_NETWORK_NAME`: nobody answered.
const NOT_ANSWERED: i32 = 0xC000_00CC_u32.cast_signed();

const TABLE_TAG: Tag = Tag(u32::from_le_bytes(*b"MibT"));
const TABLE: &str = "a MIB table";
const NOTIFICATION: &str = "NotifyUnicastIpAddressChange";

/// What a host keeps for this module.
#[derive(Default)]
pub struct State {
    addresses: Mutex<Vec<(IpAddr, u8)>>,
    neighbors: Mutex<Vec<(IpAddr, [u8; 6])>>,
    notifications: Mutex<Vec<Arc<Notification>>>,
}

struct Notification {
    handle: usize,
    family: ADDRESS_FAMILY,
    callback: Option<PUNICAST_IPADDRESS_CHANGE_CALLBACK>,
    context: usize,
    running: AtomicU32,
}

fn matches(family: ADDRESS_FAMILY, address: IpAddr) -> bool {
    match family {
        AF_INET => address.is_ipv4(),
        AF_INET6 => address.is_ipv6(),
        _ => family == AF_UNSPEC,
    }
}

impl Host {
    /// Gives the host an address with the length of its subnet's prefix.
    pub fn add_address(self: &Arc<Self>, address: IpAddr, prefix: u8) {
        self.netio.addresses.lock().push((address, prefix));
        self.notify_address(address, MIB_NOTIFICATION_TYPE::MibAddInstance);
    }

    /// Takes an address away.
    pub fn remove_address(self: &Arc<Self>, address: IpAddr) {
        self.netio.addresses.lock().retain(|&(known, _)| known != address);
        self.notify_address(address, MIB_NOTIFICATION_TYPE::MibDeleteInstance);
    }

    /// The host's addresses and prefix lengths.
    #[must_use]
    pub fn addresses(&self) -> Vec<(IpAddr, u8)> {
        self.netio.addresses.lock().clone()
    }

    fn notify_address(self: &Arc<Self>, address: IpAddr, kind: MIB_NOTIFICATION_TYPE) {
        let interested: Vec<_> = self.netio.notifications.lock().clone();
        for notification in interested.into_iter().filter(|one| matches(one.family, address)) {
            let host = self.clone();
            notification.running.fetch_add(1, SeqCst);
            self.queue_work(move || {
                notification.deliver(&host, address, kind);
                notification.running.fetch_sub(1, SeqCst);
            });
        }
    }

    /// The interface a row or a call names by LUID or index; the first one when it names none.
    fn interface(&self, luid: u64, index: u32) -> Option<Arc<Adapter>> {
        let adapters = self.adapters();
        let named = |adapter: &&Arc<Adapter>| match (luid, index) {
            (0, 0) => true,
            (0, index) => adapter.if_index == index,
            (luid, _) => adapter.luid == luid,
        };
        adapters.iter().find(named).cloned()
    }

    /// The length of the prefix that `destination` shares with an address of the host.
    fn on_link(&self, destination: IpAddr) -> Option<(IpAddr, u8)> {
        let addresses = self.addresses();
        addresses.into_iter().find(|&(local, prefix)| same_subnet(local, destination, prefix))
    }

    /// Asks the other end of the wire for the link address of `address`.
    fn ask(&self, interface: &Adapter, address: IpAddr) -> Option<[u8; 6]> {
        if self.addresses().iter().any(|&(own, _)| own == address) {
            return Some(interface.nic.mac());
        }
        let port = interface.nic.port()?;
        port.peer()?;
        let peers = self.world().hosts();
        peers.iter().filter(|host| !host.is_dead()).find_map(|host| {
            let nics = host.nics();
            let nic = nics.iter().find(|nic| {
                nic.port()
                    .is_some_and(|other| Arc::ptr_eq(other.wire(), port.wire()) && other.end() != port.end())
            })?;
            let has = host.addresses().iter().any(|&(theirs, _)| theirs == address);
            (has && nic.is_running()).then(|| nic.mac())
        })
    }
}

fn same_subnet(a: IpAddr, b: IpAddr, prefix: u8) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    };
    let ((a_bits, a_len), (b_bits, b_len)) = (bits(a), bits(b));
    let mask = if prefix == 0 { 0 } else { u128::MAX << (128 - u32::from(prefix.min(a_len))) };
    a_len == b_len && (a_bits ^ b_bits) & mask == 0
}

impl Notification {
    fn deliver(&self, host: &Host, address: IpAddr, kind: MIB_NOTIFICATION_TYPE) {
        let Some(callback) = self.callback else { return };
        let interface = host.interface(0, 0);
        let prefix =
            host.addresses().iter().find(|&&(known, _)| known == address).map_or(0, |&(_, prefix)| prefix);
        let mut row = rows::unicast(address, prefix, interface.as_deref());
        let pointer = &raw mut row;
        call("a unicast address change callback", || {
            // SAFETY: the image registered the function under this contract; the row lives through the call.
            unsafe { callback(self.context as *mut c_void, pointer, kind) }
        });
    }
}

/// A table of `rows` behind a count, in memory that `FreeMibTable` frees; null when resources run low.
fn table<T: Copy>(rows: &[T]) -> Guest<u8> {
    let host = current().host().clone();
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

/// A notification without events behind it.
fn register(
    family: ADDRESS_FAMILY,
    callback: Option<PUNICAST_IPADDRESS_CHANGE_CALLBACK>,
    context: usize,
) -> usize {
    let host = current().host().clone();
    let handle = host.new_handle();
    let notification = Notification { handle, family, callback, context, running: AtomicU32::new(0) };
    host.netio.notifications.lock().push(Arc::new(notification));
    host.objects.add(NOTIFICATION, handle);
    handle
}

fn resolve(row: Guest<MIB_IPNET_ROW2>) -> i32 {
    let host = current().host().clone();
    let asked = row.read();
    let Some(address) = read_address(&asked.Address) else { return STATUS_INVALID_PARAMETER };
    let Some(interface) = host.interface(asked.InterfaceLuid.Value, asked.InterfaceIndex) else {
        return STATUS_NOT_FOUND;
    };
    let nanos = RESOLUTION.as_nanos() as u64;
    for _ in 0..3 {
        sleep(nanos);
        if let Some(mac) = host.ask(&interface, address) {
            let mut neighbors = host.netio.neighbors.lock();
            neighbors.retain(|&(known, _)| known != address);
            neighbors.push((address, mac));
            drop(neighbors);
            row.write(rows::neighbor(asked, &interface, mac, NL_NEIGHBOR_STATE::NlnsReachable));
            return STATUS_SUCCESS;
        }
    }
    NOT_ANSWERED
}

fn best_route(luid: u64, index: u32, destination: IpAddr) -> Result<(MIB_IPFORWARD_ROW2, IpAddr), i32> {
    let host = current().host().clone();
    let interface = host.interface(luid, index).ok_or(STATUS_NOT_FOUND)?;
    let (source, prefix) = host.on_link(destination).ok_or(STATUS_NETWORK_UNREACHABLE)?;
    Ok((rows::route(destination, prefix, &interface), source))
}

fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    }
}

imports! { FUNCTIONS: "netio.sys" =>
    /// The unicast addresses of the host.
    [== PASSIVE_LEVEL]
    fn GetUnicastIpAddressTable(family: ADDRESS_FAMILY, out: Guest<usize>) -> i32 {
        let host = current().host().clone();
        let interface = host.interface(0, 0);
        let addresses = host.addresses();
        let rows: Vec<_> = addresses
            .iter()
            .filter(|&&(address, _)| matches(family, address))
            .map(|&(address, prefix)| rows::unicast(address, prefix, interface.as_deref()))
            .collect();
        give_table(out, &rows)
    }

    /// One unicast address, named by the row.
    [== PASSIVE_LEVEL]
    fn GetUnicastIpAddressEntry(row: Guest<MIB_UNICASTIPADDRESS_ROW>) -> i32 {
        let host = current().host().clone();
        let Some(wanted) = read_address(&row.read().Address) else { return STATUS_INVALID_PARAMETER };
        let found = host.addresses().into_iter().find(|&(address, _)| address == wanted);
        let Some((address, prefix)) = found else { return STATUS_NOT_FOUND };
        row.write(rows::unicast(address, prefix, host.interface(0, 0).as_deref()));
        STATUS_SUCCESS
    }

    /// Defaults for a row.
    [== PASSIVE_LEVEL]
    fn InitializeUnicastIpAddressEntry(row: Guest<MIB_UNICASTIPADDRESS_ROW>) {
        row.cast::<u8>().fill(0, size_of::<MIB_UNICASTIPADDRESS_ROW>());
    }

    /// Calls back when an address comes or goes.
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

    /// Calls back when an interface changes: none does.
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

    /// Calls back when a route changes: none does.
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

    /// Ends a notification; returns when no callback runs any more.
    [== PASSIVE_LEVEL]
    fn CancelMibChangeNotify2(handle: usize) -> i32 {
        let host = current().host().clone();
        if !host.objects.remove(NOTIFICATION, handle) {
            misuse(format!("CancelMibChangeNotify2 of {handle:#x}, which is no notification"));
        }
        let cancelled = {
            let mut notifications = host.netio.notifications.lock();
            let index = notifications.iter().position(|notification| notification.handle == handle);
            index.map(|index| notifications.remove(index))
        };
        while cancelled.as_ref().is_some_and(|one| one.running.load(SeqCst) != 0) {
            sleep(10_000);
        }
        STATUS_SUCCESS
    }

    /// Frees a table.
    [< DISPATCH_LEVEL]
    fn FreeMibTable(table: Guest<u8>) {
        let host = current().host().clone();
        if !host.objects.remove(TABLE, table.address()) {
            misuse(format!("FreeMibTable of {:#x}, which is no table", table.address()));
        }
        let memory = &host.memory;
        if let Err(broken) = memory.pool.free(&memory.physical, &memory.space, table, Some(TABLE_TAG)) {
            violation(broken.code, broken.text);
        }
    }

    /// The LUID of an interface.
    [== PASSIVE_LEVEL]
    fn ConvertInterfaceIndexToLuid(index: u32, luid: Guest<NET_LUID>) -> i32 {
        let Some(interface) = current().host().interface(0, index).filter(|_| index != 0) else {
            return STATUS_INVALID_PARAMETER;
        };
        luid.write(NET_LUID { Value: interface.luid });
        STATUS_SUCCESS
    }

    /// The index of an interface.
    [== PASSIVE_LEVEL]
    fn ConvertInterfaceLuidToIndex(luid: Guest<NET_LUID>, index: Guest<u32>) -> i32 {
        let luid = luid.read().Value;
        let Some(interface) = current().host().interface(luid, 0).filter(|_| luid != 0) else {
            return STATUS_INVALID_PARAMETER;
        };
        index.write(interface.if_index);
        STATUS_SUCCESS
    }

    /// An IP interface, named by the row's family and LUID or index.
    [== PASSIVE_LEVEL]
    fn GetIpInterfaceEntry(row: Guest<MIB_IPINTERFACE_ROW>) -> i32 {
        let named = row.read();
        let Some(interface) = current().host().interface(named.InterfaceLuid.Value, named.InterfaceIndex) else {
            return STATUS_NOT_FOUND;
        };
        row.write(rows::interface(named, &interface));
        STATUS_SUCCESS
    }

    /// Defaults for a row.
    [== PASSIVE_LEVEL]
    fn InitializeIpInterfaceEntry(row: Guest<MIB_IPINTERFACE_ROW>) {
        row.cast::<u8>().fill(0, size_of::<MIB_IPINTERFACE_ROW>());
    }

    /// A neighbor that is known already.
    [== PASSIVE_LEVEL]
    fn GetIpNetEntry2(row: Guest<MIB_IPNET_ROW2>) -> i32 {
        let host = current().host().clone();
        let asked = row.read();
        let Some(address) = read_address(&asked.Address) else { return STATUS_INVALID_PARAMETER };
        let known = host.netio.neighbors.lock().iter().find(|&&(known, _)| known == address).copied();
        let interface = host.interface(asked.InterfaceLuid.Value, asked.InterfaceIndex);
        let (Some((_, mac)), Some(interface)) = (known, interface) else { return STATUS_NOT_FOUND };
        row.write(rows::neighbor(asked, &interface, mac, NL_NEIGHBOR_STATE::NlnsReachable));
        STATUS_SUCCESS
    }

    /// Finds the link address of a neighbor. May take a while.
    [== PASSIVE_LEVEL]
    fn ResolveIpNetEntry2(row: Guest<MIB_IPNET_ROW2>, _source: Guest<SOCKADDR_INET>) -> i32 {
        resolve(row)
    }

    /// The neighbors that are known.
    [== PASSIVE_LEVEL]
    fn GetIpNetTable2(family: ADDRESS_FAMILY, out: Guest<usize>) -> i32 {
        let host = current().host().clone();
        let Some(interface) = host.interface(0, 0) else { return STATUS_NOT_FOUND };
        let known = host.netio.neighbors.lock().clone();
        let rows: Vec<_> = known
            .iter()
            .filter(|&&(address, _)| matches(family, address))
            .map(|&(address, mac)| {
                rows::neighbor(rows::empty_neighbor(address), &interface, mac, NL_NEIGHBOR_STATE::NlnsReachable)
            })
            .collect();
        give_table(out, &rows)
    }

    /// Forgets the neighbors that are known.
    [== PASSIVE_LEVEL]
    fn FlushIpNetTable2(family: ADDRESS_FAMILY, _index: u32) -> i32 {
        current().host().netio.neighbors.lock().retain(|&(address, _)| !matches(family, address));
        STATUS_SUCCESS
    }

    /// The way to a destination, and the address to use on it. There are no gateways.
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
        let Some(to) = read_address(&destination.read()) else { return STATUS_INVALID_PARAMETER };
        let wanted = if source.is_null() { None } else { read_address(&source.read()) };
        match best_route(luid, index, to) {
            Ok((row, local)) => {
                route.write(row);
                let wanted = wanted.filter(|&wanted| wanted != unspecified(wanted));
                best_source.write(socket_address(wanted.unwrap_or(local)));
                STATUS_SUCCESS
            }
            Err(status) => status,
        }
    }

    /// The routes of the host: one per subnet.
    [== PASSIVE_LEVEL]
    fn GetIpForwardTable2(family: ADDRESS_FAMILY, out: Guest<usize>) -> i32 {
        let host = current().host().clone();
        let Some(interface) = host.interface(0, 0) else { return STATUS_NOT_FOUND };
        let addresses = host.addresses();
        let rows: Vec<_> = addresses
            .iter()
            .filter(|&&(address, _)| matches(family, address))
            .map(|&(address, prefix)| rows::route(address, prefix, &interface))
            .collect();
        give_table(out, &rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets_are_told_by_their_prefix() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(same_subnet(address("10.0.0.1"), address("10.0.0.254"), 24));
        assert!(!same_subnet(address("10.0.0.1"), address("10.0.1.1"), 24));
        assert!(same_subnet(address("10.0.0.1"), address("192.168.0.1"), 0));
        assert!(same_subnet(address("fd00::1"), address("fd00::2"), 64));
        assert!(!same_subnet(address("fd00::1"), address("10.0.0.1"), 0));
    }
}
