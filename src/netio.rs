//! The system's IP configuration as far as RDMA needs it: local addresses of the adapter, the way to a peer.

use core::ffi::c_void;
use core::mem::zeroed;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ptr::null_mut;
use core::slice;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use alloc::vec::Vec;
use fallible::{AliasableBox, vec};
use ndk_abi::netio::{
    AF_INET, AF_INET6, AF_UNSPEC, CancelMibChangeNotify2, FreeMibTable, GetBestRoute2, GetIpNetEntry2,
    GetUnicastIpAddressTable, IN_ADDR, IN_ADDR_S_un, IN6_ADDR, IN6_ADDR_u, MIB_IPFORWARD_ROW2,
    MIB_IPNET_ROW2, MIB_NOTIFICATION_TYPE, MIB_UNICASTIPADDRESS_ROW, NET_LUID, NL_DAD_STATE,
    NL_NEIGHBOR_STATE, NotifyUnicastIpAddressChange, ResolveIpNetEntry2, SOCKADDR_IN, SOCKADDR_IN6,
    SOCKADDR_INET,
};
use ndk_abi::nt::{HANDLE, NT_SUCCESS, STATUS_INSUFFICIENT_RESOURCES, STATUS_NO_MEMORY};
use ndk_provider::Provider;
use ndk_provider::environment::ResolveError;
use nt::SpinLock;

/// The network interface that an adapter is to the system.
#[derive(Clone, Copy)]
pub struct Interface {
    pub luid: NET_LUID,
    /// Its index, which is the scope of link-local addresses on it.
    pub index: u32,
}

/// The usable unicast addresses of an adapter, kept up to date by the system's notifications.
///
/// Between a change and its notification the answer is the old one, as it is for every user of addresses.
pub struct Addresses {
    shared: AliasableBox<Shared>,
    /// Null if the system gave no notifications, or gives none any more.
    notification: AtomicPtr<c_void>,
}

struct Shared {
    luid: NET_LUID,
    list: SpinLock<List>,
    /// How often the system's table was read.
    readings: AtomicU64,
    /// Who is told of the addresses; null as long as nobody is.
    provider: AtomicPtr<Provider>,
}

/// The addresses as of one reading of the system's table.
struct List {
    reading: u64,
    /// The provider has taken all of them, if there is one.
    told: bool,
    addresses: Vec<IpAddr>,
}

impl Addresses {
    /// Addresses of the adapter `luid`; `None` when pool has run dry. `PASSIVE_LEVEL`.
    pub fn watch(luid: NET_LUID) -> Option<Self> {
        let list = SpinLock::new(List { reading: 0, told: true, addresses: Vec::new() });
        let (readings, provider) = (AtomicU64::new(0), AtomicPtr::new(null_mut()));
        let shared = AliasableBox::try_new(Shared { luid, list, readings, provider }).ok()?;
        let this = Self { shared, notification: AtomicPtr::new(null_mut()) };
        let mut notification = null_mut();
        // SAFETY: the context lives until `drop` has cancelled the notification, which waits for callbacks.
        let status = unsafe {
            NotifyUnicastIpAddressChange(
                AF_UNSPEC,
                Some(changed),
                this.shared.as_ptr().cast(),
                0,
                &raw mut notification,
            )
        };
        if NT_SUCCESS(status) {
            this.notification.store(notification, Ordering::Release);
        }
        this.refresh();
        Some(this)
    }

    /// Whether `address` is a usable one of this adapter's. Who asks is about to use it: a provider that had no memory
    /// for the addresses is told them again. IRQL <= `DISPATCH_LEVEL`.
    pub fn contains(&self, address: IpAddr) -> bool {
        let mut list = self.shared.list.lock();
        if !list.told {
            let _ = self.shared.tell(&mut list);
        }
        list.addresses.contains(&address)
    }

    /// Reads the addresses anew. `PASSIVE_LEVEL`.
    pub fn refresh(&self) {
        self.shared.refresh();
    }

    /// Tells `provider` the addresses, now and whenever they change.
    ///
    /// # Safety
    /// `provider` lives until [`stop`](Self::stop) has returned, and nobody calls [`refresh`](Self::refresh) after that.
    /// [`contains`](Self::contains) is for the provider's own calls, while it lives.
    pub unsafe fn tell(&self, provider: &Provider) {
        let mut list = self.shared.list.lock();
        self.shared.provider.store(core::ptr::from_ref(provider).cast_mut(), Ordering::Release);
        let _ = self.shared.tell(&mut list);
    }

    /// Follows changes no longer; returns when no notification is under way. `PASSIVE_LEVEL`.
    pub fn stop(&self) {
        let notification: HANDLE = self.notification.swap(null_mut(), Ordering::AcqRel);
        if !notification.is_null() {
            // SAFETY: registered in `watch`, cancelled once, at PASSIVE_LEVEL, not from the callback.
            let _ = unsafe { CancelMibChangeNotify2(notification) };
        }
        self.shared.provider.store(null_mut(), Ordering::Release);
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// Reads the system's table, which may be paged: the lock comes after. Without memory the old addresses stay.
    fn refresh(&self) {
        // Numbered before reading: of two at once, the one that began later knows better.
        let reading = self.readings.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let mut table = null_mut();
        // SAFETY: the result lives through the call; PASSIVE_LEVEL.
        let status = unsafe { GetUnicastIpAddressTable(AF_UNSPEC, &raw mut table) };
        if !NT_SUCCESS(status) || table.is_null() {
            return;
        }
        // SAFETY: on success a table of the system's, ours until freed.
        let count = unsafe { (*table).NumEntries } as usize;
        // SAFETY: only the address of the member is taken.
        let first = unsafe { &raw const (*table).Table };
        // SAFETY: `NumEntries` rows lie there, one after the other.
        let rows = unsafe { slice::from_raw_parts(first.cast::<MIB_UNICASTIPADDRESS_ROW>(), count) };
        let usable = |row: &&MIB_UNICASTIPADDRESS_ROW| {
            row.InterfaceLuid == self.luid
                && [NL_DAD_STATE::IpDadStatePreferred, NL_DAD_STATE::IpDadStateDeprecated]
                    .contains(&row.DadState)
        };
        let usable = || rows.iter().filter(usable).filter_map(|row| address(&row.Address));
        let addresses = vec::with_capacity(usable().count()).and_then(|mut addresses| {
            usable().try_for_each(|address| vec::push_within_capacity(&mut addresses, address))?;
            Ok(addresses)
        });
        // SAFETY: from `GetUnicastIpAddressTable`, freed once; `rows` is not used any more.
        unsafe { FreeMibTable(table.cast()) };
        let Ok(mut addresses) = addresses else { return };
        let mut list = self.list.lock();
        if reading <= list.reading {
            return;
        }
        list.reading = reading;
        core::mem::swap(&mut list.addresses, &mut addresses);
        let provider = self.tell(&mut list);
        drop(list);
        if let Some(provider) = provider {
            provider.transmit_ready();
        }
    }

    /// Tells the provider, if there is one, what is in the list. The list is locked: of two readings, the newer one is
    /// told last.
    //= R-CONN-101
    fn tell(&self, list: &mut List) -> Option<&Provider> {
        // SAFETY: null, or a provider that lives as long as addresses are read or asked for (`Addresses::tell`).
        let provider = unsafe { self.provider.load(Ordering::Acquire).as_ref() }?;
        list.told = provider.set_addresses(&list.addresses).is_ok();
        Some(provider)
    }
}

unsafe extern "efiapi" fn changed(
    context: *mut c_void,
    _row: *mut MIB_UNICASTIPADDRESS_ROW,
    _kind: MIB_NOTIFICATION_TYPE,
) {
    // SAFETY: the context given to `NotifyUnicastIpAddressChange`, alive until the notification is cancelled.
    let shared = unsafe { &*context.cast::<Shared>() };
    shared.refresh();
}

/// The link address of the next hop from `local` to `remote` on `interface`. May wait for the network.
/// With `same_subnet`, gateways are not gone through. `PASSIVE_LEVEL`.
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
    // SAFETY: all pointers are good for the call.
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

/// The link address of a neighbor, from the cache or by asking.
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

/// The address in a socket address, `None` for other families.
fn address(from: &SOCKADDR_INET) -> Option<IpAddr> {
    // SAFETY: every member of the union begins with the family.
    match unsafe { from.si_family } {
        AF_INET => {
            // SAFETY: the family says which member it is.
            let v4 = unsafe { from.Ipv4 };
            Some(IpAddr::V4(Ipv4Addr::from(v4.sin_addr.S_un.S_addr.to_ne_bytes())))
        }
        AF_INET6 => {
            // SAFETY: the family says which member it is.
            let v6 = unsafe { from.Ipv6 };
            // SAFETY: every view of an IPv6 address is plain bytes.
            let bytes = unsafe { v6.sin6_addr.u.Byte };
            Some(IpAddr::V6(Ipv6Addr::from(bytes)))
        }
        _ => None,
    }
}

impl Interface {
    /// A socket address without port; the scope of a link-local one is the interface.
    fn socket_address(self, address: IpAddr) -> SOCKADDR_INET {
        // SAFETY: integers only: all zeroes is a value (family unspecified).
        let mut to: SOCKADDR_INET = unsafe { zeroed() };
        match address {
            IpAddr::V4(v4) => {
                to.Ipv4 = SOCKADDR_IN {
                    sin_family: AF_INET,
                    sin_port: 0,
                    sin_addr: IN_ADDR { S_un: IN_ADDR_S_un { S_addr: u32::from_ne_bytes(v4.octets()) } },
                    sin_zero: [0; 8],
                };
            }
            IpAddr::V6(v6) => {
                to.Ipv6 = SOCKADDR_IN6 {
                    sin6_family: AF_INET6,
                    sin6_port: 0,
                    sin6_flowinfo: 0,
                    sin6_addr: IN6_ADDR { u: IN6_ADDR_u { Byte: v6.octets() } },
                    sin6_scope_id: if v6.is_unicast_link_local() { self.index } else { 0 },
                };
            }
        }
        to
    }
}
