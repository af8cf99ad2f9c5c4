// SPDX-License-Identifier: MIT OR Apache-2.0

//! The IP addresses of an adapter, kept up to date by the system's notifications.

use alloc::vec::Vec;
use core::ffi::c_void;
use core::net::IpAddr;
use core::ptr::null_mut;
use core::slice;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use core::time::Duration;

use fallible::{AliasableBox, vec};
use ndk_abi::netio::{
    AF_UNSPEC, CancelMibChangeNotify2, FreeMibTable, GetUnicastIpAddressTable, MIB_NOTIFICATION_TYPE,
    MIB_UNICASTIPADDRESS_ROW, NET_LUID, NL_DAD_STATE, NotifyUnicastIpAddressChange,
};
use ndk_abi::nt::{HANDLE, STATUS_NOT_FOUND};
use ndk_provider::Provider;
use nt::{DriverObject, Event, SpinLock};
use wdk::nt_success;

use super::interface::address;

/// Time after which a failed registration for notifications, or a failed reading, is tried again; doubled each time.
const FIRST_RETRY: Duration = Duration::from_millis(100);
/// Longest time between two attempts.
const LAST_RETRY: Duration = Duration::from_secs(30);

/// The usable unicast addresses of an adapter, kept up to date by the system's notifications.
///
/// Between a change and its notification the answer is the old one, as it is for every user of addresses. What fails for lack
/// of memory is tried again by a thread, which exists from the start on.
pub struct Addresses {
    shared: AliasableBox<AddressTable>,
}

struct AddressTable {
    luid: NET_LUID,
    list: SpinLock<List>,
    /// Number of times that the system's table was read.
    readings: AtomicU64,
    /// The newest reading that failed.
    failed_reading: AtomicU64,
    /// The provider to update; null if there is none.
    provider: AtomicPtr<Provider>,
    /// Null as long as registering has failed, or after [`stop`](Addresses::stop).
    notification: AtomicPtr<c_void>,
    /// Set when the thread may have to try again, or to end.
    wake: Event,
    stopping: AtomicBool,
    /// Set when the thread has ended.
    ended: Event,
}

/// The addresses as of one reading of the system's table.
struct List {
    reading: u64,
    /// The provider, if there is one, has these addresses.
    delivered: bool,
    addresses: Vec<IpAddr>,
}

impl Addresses {
    /// Addresses of the adapter `luid`; `None` if memory is short. If the system refuses to register for notifications or to
    /// return its table, a thread tries again until it succeeds. `PASSIVE_LEVEL`.
    pub fn watch(luid: NET_LUID, driver: DriverObject) -> Option<Self> {
        let shared = AliasableBox::try_new(AddressTable {
            luid,
            list: SpinLock::new(List { reading: 0, delivered: true, addresses: Vec::new() }),
            readings: AtomicU64::new(0),
            failed_reading: AtomicU64::new(0),
            provider: AtomicPtr::new(null_mut()),
            notification: AtomicPtr::new(null_mut()),
            wake: Event::try_new()?,
            stopping: AtomicBool::new(false),
            ended: Event::try_new()?,
        });
        let this = Self { shared: shared.ok()? };
        this.shared.register();
        this.refresh();
        let updater = Updater(this.shared.as_ptr());
        if nt::start_thread(driver, move || updater.run()).is_err() {
            this.shared.ended.set();
            return None;
        }
        Some(this)
    }

    /// Whether `address` is a usable address of this adapter. Retries an update of the provider that failed for lack of
    /// memory, since the caller is about to use the address. IRQL <= `DISPATCH_LEVEL`.
    pub fn contains(&self, address: IpAddr) -> bool {
        let mut list = self.shared.list.lock();
        if !list.delivered {
            let _ = self.shared.deliver(&mut list);
        }
        list.addresses.contains(&address)
    }

    /// Reads the system's table again. `PASSIVE_LEVEL`.
    pub fn refresh(&self) {
        self.shared.refresh();
    }

    /// Updates `provider` with the addresses, now and whenever they change.
    ///
    /// # Safety
    /// `provider` lives until [`stop`](Self::stop) has returned, and [`refresh`](Self::refresh) is not called after that.
    /// [`contains`](Self::contains) is for the provider's own calls, while it lives.
    pub unsafe fn set_provider(&self, provider: &Provider) {
        let mut list = self.shared.list.lock();
        self.shared.provider.store(core::ptr::from_ref(provider).cast_mut(), Ordering::Release);
        let _ = self.shared.deliver(&mut list);
    }

    /// Ends the updates. Returns when neither a notification nor the thread is running. `PASSIVE_LEVEL`.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.wake.set();
        self.shared.ended.wait();
        let notification: HANDLE = self.shared.notification.swap(null_mut(), Ordering::AcqRel);
        if !notification.is_null() {
            // SAFETY: from `register`, cancelled once, at PASSIVE_LEVEL, not from the callback.
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

/// The reference to [`AddressTable`] of the thread that tries again.
struct Updater(*const AddressTable);

// SAFETY: the thread only borrows `AddressTable`, which is `Sync`, and `Addresses::stop` waits for its end.
unsafe impl Send for Updater {}

impl Updater {
    /// Tries again what has failed, until [`Addresses::stop`] is called. On a thread of its own.
    fn run(&self) {
        // SAFETY: `Addresses::stop`, which `drop` calls, waits for `ended`, the last access.
        let shared = unsafe { &*self.0 };
        let mut after = FIRST_RETRY;
        while !shared.stopping.load(Ordering::Acquire) {
            if shared.is_current() {
                after = FIRST_RETRY;
                shared.wake.wait();
                shared.wake.clear();
            } else if shared.wake.wait_for(after) {
                // A notification has failed to read, too, or this is the end.
                shared.wake.clear();
            } else {
                shared.register();
                // Changes since the last reading were perhaps not notified.
                shared.refresh();
                after = after.saturating_mul(2).min(LAST_RETRY);
            }
        }
        shared.ended.set();
    }
}

impl AddressTable {
    /// Returns whether notifications are registered, the newest reading has succeeded, and the provider has its addresses.
    fn is_current(&self) -> bool {
        let list = self.list.lock();
        list.delivered
            && list.reading > self.failed_reading.load(Ordering::Acquire)
            && !self.notification.load(Ordering::Acquire).is_null()
    }

    /// Registers for notifications, unless they are registered. `PASSIVE_LEVEL`, by one thread at a time.
    fn register(&self) {
        if !self.notification.load(Ordering::Acquire).is_null() {
            return;
        }
        let context = core::ptr::from_ref(self).cast_mut().cast();
        let mut notification = null_mut();
        // SAFETY: the context lives until `Addresses::stop` has cancelled the notification, which waits for callbacks.
        let status = unsafe {
            NotifyUnicastIpAddressChange(AF_UNSPEC, Some(changed), context, 0, &raw mut notification)
        };
        if nt_success(status) {
            self.notification.store(notification, Ordering::Release);
        }
    }

    /// Reads the system's table. If memory is short, the old addresses stay until the thread has read it. `PASSIVE_LEVEL`.
    fn refresh(&self) {
        // Numbered before reading: of two concurrent readings, the one that began later is newer.
        let reading = self.readings.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if !self.read(reading) {
            self.failed_reading.fetch_max(reading, Ordering::AcqRel);
            self.wake.set();
        }
    }

    /// Reads the system's table, which may be paged, so before taking the lock. Returns `false` if memory is short.
    fn read(&self, reading: u64) -> bool {
        let mut table = null_mut();
        // SAFETY: the result lives through the call; PASSIVE_LEVEL.
        let status = unsafe { GetUnicastIpAddressTable(AF_UNSPEC, &raw mut table) };
        // The documented answer when the host has no address at all.
        let is_empty = status == STATUS_NOT_FOUND;
        if !is_empty && (!nt_success(status) || table.is_null()) {
            return false;
        }
        let rows = if is_empty {
            &[][..]
        } else {
            // SAFETY: on success, a table that the caller owns until it is freed.
            let count = unsafe { (*table).NumEntries } as usize;
            // SAFETY: only the address of the member is taken.
            let first = unsafe { &raw const (*table).Table };
            // SAFETY: `NumEntries` rows lie there, one after the other.
            unsafe { slice::from_raw_parts(first.cast::<MIB_UNICASTIPADDRESS_ROW>(), count) }
        };
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
        if !is_empty {
            // SAFETY: from `GetUnicastIpAddressTable`, freed once; `rows` is not used afterwards.
            unsafe { FreeMibTable(table.cast()) };
        }
        let Ok(mut addresses) = addresses else { return false };
        let mut list = self.list.lock();
        if reading <= list.reading {
            return true;
        }
        list.reading = reading;
        core::mem::swap(&mut list.addresses, &mut addresses);
        let provider = self.deliver(&mut list);
        drop(list);
        if let Some(provider) = provider {
            provider.transmit_ready();
        }
        true
    }

    /// Updates the provider, if there is one. The list is locked, so that of two readings the newer one is delivered last.
    //= R-CONN-101
    fn deliver(&self, list: &mut List) -> Option<&Provider> {
        // SAFETY: null, or a provider that lives as long as addresses are read or queried (`Addresses::set_provider`).
        let provider = unsafe { self.provider.load(Ordering::Acquire).as_ref() }?;
        list.delivered = provider.set_addresses(&list.addresses).is_ok();
        if !list.delivered {
            self.wake.set();
        }
        Some(provider)
    }
}

unsafe extern "efiapi" fn changed(
    context: *mut c_void,
    _row: *mut MIB_UNICASTIPADDRESS_ROW,
    _kind: MIB_NOTIFICATION_TYPE,
) {
    // SAFETY: the context given to `NotifyUnicastIpAddressChange`, alive until the notification is cancelled.
    let shared = unsafe { &*context.cast::<AddressTable>() };
    shared.refresh();
}
