// SPDX-License-Identifier: MIT OR Apache-2.0

//! Network interfaces: what remains of an adapter while it is not started.
//!
//! Plugging in a NIC makes its interface: index, LUID, GUID, name, and the registry key of the adapter. Addresses and
//! neighbors belong to an interface, too; the IP helper keeps them.

use std::{
    ptr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
};

use device_sim::PciFunction;
use ndk_abi::nt::GUID;
use nt_sim::{Host, services::Slot};
use parking_lot::Mutex;

use crate::keyword::{Keyword, Keywords};

/// The interfaces of a host.
pub(crate) static INTERFACES: Slot<Interfaces> = Slot::new();

/// Index of a host's first interface, as on a new Windows guest: lower ones belong to the loopback and tunnel
/// interfaces.
const FIRST_INDEX: u32 = 4;
/// `NetLuidIndex` of a host's first interface.
const FIRST_LUID: u64 = 0x8000;
/// `IF_TYPE_ETHERNET_CSMACD`.
pub(crate) const IF_TYPE: u32 = 6;
/// The GUID of the first interface; the number of an interface is added.
const GUIDS: u128 = 0x1d1a_0000_9e4c_4b7a_8d52_0a5e_c0de_0000;

/// The interfaces of a host, in the order their NICs were plugged in.
#[derive(Default)]
pub(crate) struct Interfaces(Mutex<Vec<Arc<Interface>>>);

/// A network interface.
pub struct Interface {
    pub nic: Arc<dyn PciFunction>,
    /// Locally unique identifier.
    pub luid: u64,
    pub guid: GUID,
    /// Name that administrators see, e.g. "Ethernet 2".
    pub alias: String,
    index: AtomicU32,
    /// MTU of IP that an administrator has set; 0 for the adapter's.
    ip_mtu: AtomicU32,
    /// Its physical device object; 0 before a driver asks for it.
    pub(crate) physical_device: Mutex<usize>,
    /// The adapter's registry key.
    keywords: Mutex<Keywords>,
}

impl Interface {
    fn new(number: usize, nic: Arc<dyn PciFunction>) -> Self {
        Self {
            nic,
            luid: u64::from(IF_TYPE) << 48 | (FIRST_LUID + number as u64) << 24,
            guid: GUID::from_u128(GUIDS + number as u128),
            alias: if number == 0 { "Ethernet".to_owned() } else { format!("Ethernet {}", number + 1) },
            index: AtomicU32::new(FIRST_INDEX + number as u32),
            ip_mtu: AtomicU32::new(0),
            physical_device: Mutex::new(0),
            keywords: Mutex::default(),
        }
    }

    #[must_use]
    pub fn index(&self) -> u32 {
        self.index.load(SeqCst)
    }

    /// Sets the MTU of IP below the adapter's, as `netsh interface ipv4 set subinterface` does.
    pub fn set_ip_mtu(&self, mtu: u32) {
        self.ip_mtu.store(mtu, SeqCst);
    }

    /// Returns the MTU of IP on an adapter with this one.
    pub(crate) fn ip_mtu(&self, of_adapter: u32) -> u32 {
        match self.ip_mtu.load(SeqCst) {
            0 => of_adapter,
            set => set.min(of_adapter),
        }
    }

    /// Sets a keyword in the adapter's registry key.
    pub fn set_keyword(&self, name: &str, value: impl Into<Keyword>) {
        self.keywords.lock().insert(name.to_lowercase(), value.into());
    }

    /// Removes a keyword from the adapter's registry key.
    pub(crate) fn remove_keyword(&self, name: &str) {
        self.keywords.lock().remove(&name.to_lowercase());
    }

    /// Returns the value of a keyword in the adapter's registry key.
    pub(crate) fn keyword(&self, name: &str) -> Option<Keyword> {
        self.keywords.lock().get(&name.to_lowercase()).cloned()
    }
}

/// Makes the interface of a NIC.
pub(crate) fn add(host: &Host, nic: Arc<dyn PciFunction>) {
    let mut interfaces = host.state(&INTERFACES).0.lock();
    let interface = Interface::new(interfaces.len(), nic);
    interfaces.push(Arc::new(interface));
}

/// Returns the interfaces of a host, in the order their NICs were plugged in.
pub(crate) fn interfaces(host: &Host) -> Vec<Arc<Interface>> {
    host.state(&INTERFACES).0.lock().clone()
}

/// Returns the interface of a NIC.
///
/// # Panics
/// When the NIC is not in the host.
pub(crate) fn of_nic(host: &Host, nic: &Arc<impl PciFunction + ?Sized>) -> Arc<Interface> {
    let found = interfaces(host)
        .into_iter()
        .find(|interface| ptr::addr_eq(Arc::as_ptr(&interface.nic), Arc::as_ptr(nic)));
    found.expect("the NIC is in the host")
}

/// Returns the interface of the first NIC.
///
/// # Panics
/// When the host has no NIC.
pub(crate) fn first(host: &Host) -> Arc<Interface> {
    interfaces(host).into_iter().next().expect("the host has a NIC")
}

/// Sets the index of a NIC's interface.
///
/// # Panics
/// When the index is 0 or that of another interface, or the NIC is not in the host.
pub(crate) fn set_index(host: &Host, nic: &Arc<impl PciFunction + ?Sized>, index: u32) {
    let interface = of_nic(host, nic);
    let others = interfaces(host).into_iter().filter(|other| !Arc::ptr_eq(other, &interface));
    let taken = others.map(|other| other.index()).any(|other| other == index);
    assert!(index != 0 && !taken, "interface index {index} is free");
    interface.index.store(index, SeqCst);
}
