//! The host's unicast addresses, and who is told when they change.

use std::{
    ffi::c_void,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
};

use ndk_abi::netio::{
    ADDRESS_FAMILY, AF_INET, AF_INET6, AF_UNSPEC, MIB_NOTIFICATION_TYPE, NL_DAD_STATE,
    PUNICAST_IPADDRESS_CHANGE_CALLBACK,
};
use parking_lot::Mutex;

use super::rows;
use crate::{Host, image::call, nt::time::sleep, thread::current};

/// A unicast address of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unicast {
    pub address: IpAddr,
    /// Bits that the addresses on the link have in common.
    pub prefix: u8,
    /// Whether duplicate address detection lets it be used.
    pub dad: NL_DAD_STATE,
}

impl Unicast {
    /// Whether the host may use it: preferred, or deprecated and not gone yet.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        [NL_DAD_STATE::IpDadStatePreferred, NL_DAD_STATE::IpDadStateDeprecated].contains(&self.dad)
    }
}

/// Addresses and notifications of a host.
#[derive(Default)]
pub(super) struct Addresses {
    list: Mutex<Vec<Unicast>>,
    notifications: Mutex<Vec<Arc<Notification>>>,
}

/// Somebody who wants to be told.
pub(super) struct Notification {
    pub handle: usize,
    pub family: ADDRESS_FAMILY,
    /// None is for events that never happen.
    pub callback: Option<PUNICAST_IPADDRESS_CHANGE_CALLBACK>,
    pub context: usize,
    running: AtomicU32,
}

/// Whether an address is of the family, or any will do.
pub(super) fn matches(family: ADDRESS_FAMILY, address: IpAddr) -> bool {
    match family {
        AF_INET => address.is_ipv4(),
        AF_INET6 => address.is_ipv6(),
        _ => family == AF_UNSPEC,
    }
}

impl Host {
    /// Gives the host an address with the length of its subnet's prefix, usable at once.
    pub fn add_address(self: &Arc<Self>, address: IpAddr, prefix: u8) {
        self.add_unicast(Unicast { address, prefix, dad: NL_DAD_STATE::IpDadStatePreferred });
    }

    /// Gives the host an address in any state of duplicate address detection.
    pub fn add_unicast(self: &Arc<Self>, unicast: Unicast) {
        self.netio.addresses.list.lock().push(unicast);
        self.notify_address(unicast, MIB_NOTIFICATION_TYPE::MibAddInstance);
    }

    /// Duplicate address detection, or its lifetime, has changed the state of an address.
    pub fn set_dad_state(self: &Arc<Self>, address: IpAddr, dad: NL_DAD_STATE) {
        self.change_dad_state(address, |_| true, dad);
    }

    /// As [`Host::set_dad_state`], if the state so far is one that `from` wants.
    pub(super) fn change_dad_state(
        self: &Arc<Self>,
        address: IpAddr,
        from: impl Fn(NL_DAD_STATE) -> bool,
        dad: NL_DAD_STATE,
    ) {
        let changed = {
            let mut list = self.netio.addresses.list.lock();
            let known = list.iter_mut().find(|unicast| unicast.address == address && from(unicast.dad));
            known.map(|unicast| {
                unicast.dad = dad;
                *unicast
            })
        };
        if let Some(unicast) = changed {
            self.notify_address(unicast, MIB_NOTIFICATION_TYPE::MibParameterNotification);
        }
    }

    /// Takes an address away.
    pub fn remove_address(self: &Arc<Self>, address: IpAddr) {
        let removed = {
            let mut list = self.netio.addresses.list.lock();
            let index = list.iter().position(|unicast| unicast.address == address);
            index.map(|index| list.remove(index))
        };
        if let Some(unicast) = removed {
            self.notify_address(unicast, MIB_NOTIFICATION_TYPE::MibDeleteInstance);
        }
    }

    /// The host's addresses.
    #[must_use]
    pub fn addresses(&self) -> Vec<Unicast> {
        self.netio.addresses.list.lock().clone()
    }

    /// The addresses that the host may use.
    #[must_use]
    pub fn usable_addresses(&self) -> Vec<IpAddr> {
        let list = self.netio.addresses.list.lock();
        list.iter().filter(|unicast| unicast.is_usable()).map(|unicast| unicast.address).collect()
    }

    fn notify_address(self: &Arc<Self>, unicast: Unicast, kind: MIB_NOTIFICATION_TYPE) {
        self.address_changed(unicast.address);
        let interested: Vec<_> = self.netio.addresses.notifications.lock().clone();
        for notification in interested.into_iter().filter(|one| matches(one.family, unicast.address)) {
            let host = self.clone();
            notification.running.fetch_add(1, SeqCst);
            self.queue_work(move || {
                notification.deliver(&host, unicast, kind);
                notification.running.fetch_sub(1, SeqCst);
            });
        }
    }
}

impl Addresses {
    pub(super) fn register(
        &self,
        handle: usize,
        family: ADDRESS_FAMILY,
        callback: Option<PUNICAST_IPADDRESS_CHANGE_CALLBACK>,
        context: usize,
    ) {
        let notification = Notification { handle, family, callback, context, running: AtomicU32::new(0) };
        self.notifications.lock().push(Arc::new(notification));
    }

    /// Ends a notification; returns when no callback runs any more.
    pub(super) fn cancel(&self, handle: usize) {
        let cancelled = {
            let mut notifications = self.notifications.lock();
            let index = notifications.iter().position(|notification| notification.handle == handle);
            index.map(|index| notifications.remove(index))
        };
        while cancelled.as_ref().is_some_and(|one| one.running.load(SeqCst) != 0) {
            sleep(10_000);
        }
    }
}

impl Notification {
    fn deliver(&self, host: &Host, unicast: Unicast, kind: MIB_NOTIFICATION_TYPE) {
        let Some(callback) = self.callback else { return };
        let interface = host.interface(0, 0);
        let mut row = rows::unicast(unicast, interface.as_deref());
        let pointer = &raw mut row;
        call("a unicast address change callback", || {
            // SAFETY: the image registered the function under this contract; the row lives through the call.
            unsafe { callback(self.context as *mut c_void, pointer, kind) }
        });
    }
}

/// The host of the calling thread.
pub(super) fn this_host() -> Arc<Host> {
    current().host().clone()
}
