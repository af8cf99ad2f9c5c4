// SPDX-License-Identifier: MIT OR Apache-2.0

//! The host's unicast addresses, and the notifications of their changes.

use std::{
    ffi::c_void,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
};

use ndk_abi::netio::{
    ADDRESS_FAMILY, MIB_NOTIFICATION_TYPE, NL_DAD_STATE, PUNICAST_IPADDRESS_CHANGE_CALLBACK,
};
use nt_sim::{Host, image::call, nt::time::sleep, services::Slot};
use parking_lot::Mutex;

use super::{
    interfaces::interface,
    rows,
    unicast::{Unicast, matches, same_subnet},
};

/// The addresses of a host.
pub(crate) static ADDRESSES: Slot<Addresses> = Slot::new();

/// Addresses and notifications of a host.
#[derive(Default)]
pub(crate) struct Addresses {
    list: Mutex<Vec<Unicast>>,
    notifications: Mutex<Vec<Arc<Notification>>>,
}

/// A registration for change notifications.
pub(super) struct Notification {
    pub handle: usize,
    pub family: ADDRESS_FAMILY,
    /// `None` for registrations of events that never occur.
    pub callback: Option<PUNICAST_IPADDRESS_CHANGE_CALLBACK>,
    pub context: usize,
    running: AtomicU32,
}

impl Addresses {
    pub(super) fn add(&self, unicast: Unicast) {
        self.list.lock().push(unicast);
    }

    /// Changes the state of an address if `from` accepts the state it is in; returns the address then.
    pub(super) fn set_dad_state(
        &self,
        address: IpAddr,
        from: impl Fn(NL_DAD_STATE) -> bool,
        dad: NL_DAD_STATE,
    ) -> Option<Unicast> {
        let mut list = self.list.lock();
        let unicast = list.iter_mut().find(|unicast| unicast.address == address && from(unicast.dad))?;
        unicast.dad = dad;
        Some(*unicast)
    }

    pub(super) fn remove(&self, address: IpAddr) -> Option<Unicast> {
        let mut list = self.list.lock();
        let index = list.iter().position(|unicast| unicast.address == address)?;
        Some(list.remove(index))
    }

    /// Returns all addresses.
    pub(super) fn all(&self) -> Vec<Unicast> {
        self.list.lock().clone()
    }

    /// Returns the addresses that the host may use.
    pub(super) fn usable(&self) -> Vec<IpAddr> {
        let list = self.list.lock();
        list.iter().filter(|unicast| unicast.is_usable()).map(|unicast| unicast.address).collect()
    }

    /// Returns the usable address that shares its subnet with `destination`.
    pub(super) fn on_link(&self, destination: IpAddr) -> Option<Unicast> {
        let on_link = |unicast: &Unicast| {
            unicast.is_usable() && same_subnet(unicast.address, destination, unicast.prefix)
        };
        self.all().into_iter().find(on_link)
    }

    /// Queues the callbacks of all notifications that cover the address.
    pub(super) fn notify(&self, host: &Arc<Host>, unicast: Unicast, kind: MIB_NOTIFICATION_TYPE) {
        let interested: Vec<_> = self.notifications.lock().clone();
        for notification in interested.into_iter().filter(|one| matches(one.family, unicast.address)) {
            let on = host.clone();
            notification.running.fetch_add(1, SeqCst);
            host.queue_work(move || {
                notification.deliver(&on, unicast, kind);
                notification.running.fetch_sub(1, SeqCst);
            });
        }
    }

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

    /// Cancels a notification; returns when no callback is running.
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
        let interface = interface(host, 0, 0);
        let mut row = rows::unicast(unicast, interface.as_deref());
        let pointer = &raw mut row;
        call("a unicast address change callback", || {
            // SAFETY: the image registered the function under this contract; the row lives through the call.
            unsafe { callback(self.context as *mut c_void, pointer, kind) }
        });
    }
}
