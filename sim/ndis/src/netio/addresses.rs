// SPDX-License-Identifier: MIT OR Apache-2.0

//! The unicast addresses of a host's interfaces, and the notifications of their changes.

use std::{
    ffi::c_void,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
};

use ndk_abi::netio::{
    ADDRESS_FAMILY, MIB_NOTIFICATION_TYPE, MIB_UNICASTIPADDRESS_ROW, NL_DAD_STATE,
    PUNICAST_IPADDRESS_CHANGE_CALLBACK,
};
use nt_sim::{Host, image::call, nt::time::sleep, services::Slot};
use parking_lot::Mutex;

use super::{
    rows,
    unicast::{Unicast, matches, same_subnet},
};
use crate::interface::interfaces;

/// The addresses of a host.
pub(crate) static ADDRESSES: Slot<Addresses> = Slot::new();

/// Addresses and notifications of a host.
#[derive(Default)]
pub(crate) struct Addresses {
    list: Mutex<Vec<InterfaceAddress>>,
    /// Default gateways.
    gateways: Mutex<Vec<IpAddr>>,
    notifications: Mutex<Vec<Arc<Notification>>>,
    /// Number of registrations that fail.
    refused: AtomicU32,
    /// Number of tables that are not returned.
    refused_tables: AtomicU32,
}

/// An address and the LUID of its interface.
#[derive(Clone, Copy)]
pub(super) struct InterfaceAddress {
    pub luid: u64,
    pub unicast: Unicast,
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
    pub(super) fn add(&self, luid: u64, unicast: Unicast) {
        self.list.lock().push(InterfaceAddress { luid, unicast });
    }

    /// Changes the state of an address, of one interface or of any, if `from` accepts the state it is in; returns the
    /// address then.
    pub(super) fn set_dad_state(
        &self,
        luid: Option<u64>,
        address: IpAddr,
        from: impl Fn(NL_DAD_STATE) -> bool,
        dad: NL_DAD_STATE,
    ) -> Option<InterfaceAddress> {
        let mut list = self.list.lock();
        let on = |at: &InterfaceAddress| luid.is_none_or(|luid| luid == at.luid);
        let found =
            list.iter_mut().find(|at| on(at) && at.unicast.address == address && from(at.unicast.dad))?;
        found.unicast.dad = dad;
        Some(*found)
    }

    /// Removes an address, of one interface or of any.
    pub(super) fn remove(&self, luid: Option<u64>, address: IpAddr) -> Option<InterfaceAddress> {
        let mut list = self.list.lock();
        let index = list
            .iter()
            .position(|at| at.unicast.address == address && luid.is_none_or(|luid| luid == at.luid))?;
        Some(list.remove(index))
    }

    /// Returns all addresses.
    pub(super) fn all(&self) -> Vec<InterfaceAddress> {
        self.list.lock().clone()
    }

    /// Returns the addresses of an interface.
    pub(super) fn of(&self, luid: u64) -> Vec<Unicast> {
        let list = self.list.lock();
        list.iter().filter(|at| at.luid == luid).map(|at| at.unicast).collect()
    }

    /// Returns the addresses that an interface may use.
    pub(super) fn usable(&self, luid: u64) -> Vec<IpAddr> {
        let usable = self.of(luid).into_iter().filter(Unicast::is_usable);
        usable.map(|unicast| unicast.address).collect()
    }

    /// Returns the usable address, of one interface or of any, that shares its subnet with `destination`.
    pub(super) fn on_link(&self, luid: Option<u64>, destination: IpAddr) -> Option<InterfaceAddress> {
        let on_link = |&InterfaceAddress { luid: of, unicast }: &InterfaceAddress| {
            luid.is_none_or(|luid| luid == of)
                && unicast.is_usable()
                && same_subnet(unicast.address, destination, unicast.prefix)
        };
        self.all().into_iter().find(on_link)
    }

    pub(super) fn add_gateway(&self, gateway: IpAddr) {
        self.gateways.lock().push(gateway);
    }

    /// Returns the default gateway for `destination`, and the address in its subnet.
    pub(super) fn gateway(
        &self,
        luid: Option<u64>,
        destination: IpAddr,
    ) -> Option<(IpAddr, InterfaceAddress)> {
        let gateways = self.gateways.lock().clone();
        let mut of_family = gateways.into_iter().filter(|gateway| gateway.is_ipv4() == destination.is_ipv4());
        of_family.find_map(|gateway| Some((gateway, self.on_link(luid, gateway)?)))
    }

    /// Queues the callbacks of all notifications that cover the address.
    pub(super) fn notify(&self, host: &Arc<Host>, changed: InterfaceAddress, kind: MIB_NOTIFICATION_TYPE) {
        let interested: Vec<_> = self.notifications.lock().clone();
        let address = changed.unicast.address;
        for notification in interested.into_iter().filter(|one| matches(one.family, address)) {
            let on = host.clone();
            notification.running.fetch_add(1, SeqCst);
            host.queue_work(move || {
                notification.deliver(&on, changed, kind);
                notification.running.fetch_sub(1, SeqCst);
            });
        }
    }

    /// Makes the next `count` registrations fail.
    pub(super) fn refuse_notifications(&self, count: u32) {
        self.refused.store(count, SeqCst);
    }

    /// Returns whether a registration fails.
    pub(super) fn refuses_notification(&self) -> bool {
        self.refused.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok()
    }

    /// Makes the next `count` queries of the table fail.
    pub(super) fn refuse_tables(&self, count: u32) {
        self.refused_tables.store(count, SeqCst);
    }

    /// Returns whether a query of the table fails.
    pub(super) fn refuses_table(&self) -> bool {
        self.refused_tables.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok()
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

impl InterfaceAddress {
    /// Returns the row of the address; `None` when its NIC is gone.
    pub(super) fn row(self, host: &Host) -> Option<MIB_UNICASTIPADDRESS_ROW> {
        let interface = interfaces(host).into_iter().find(|interface| interface.luid == self.luid)?;
        Some(rows::unicast(self.unicast, &interface))
    }
}

impl Notification {
    fn deliver(&self, host: &Host, changed: InterfaceAddress, kind: MIB_NOTIFICATION_TYPE) {
        let Some(callback) = self.callback else { return };
        let Some(mut row) = changed.row(host) else { return };
        let pointer = &raw mut row;
        call("a unicast address change callback", || {
            // SAFETY: the image registered the function under this contract; the row lives through the call.
            unsafe { callback(self.context as *mut c_void, pointer, kind) }
        });
    }
}
