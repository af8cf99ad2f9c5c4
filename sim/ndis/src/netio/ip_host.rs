// SPDX-License-Identifier: MIT OR Apache-2.0

//! The methods that the IP helper adds to a simulated Windows host.

use std::{net::IpAddr, sync::Arc};

use device_sim::PciFunction;
use ndk_abi::netio::NL_DAD_STATE;
use nt_sim::Host;

use super::{
    addresses::ADDRESSES,
    stack::{self, DISCOVERY, Discovery},
    unicast::Unicast,
};
use crate::interface;

/// A host's IP addresses, and how it finds its neighbors.
pub trait IpHost {
    /// Sets how the host finds its neighbors; [`Discovery::Simulated`] unless set. To be called before an adapter
    /// starts.
    fn set_discovery(&self, discovery: Discovery);

    /// Adds an address to the first interface, with the length of its subnet's prefix, usable at once.
    ///
    /// # Panics
    /// When the host has no NIC.
    fn add_address(self: &Arc<Self>, address: IpAddr, prefix: u8);

    /// Adds an address to the interface of a NIC, otherwise as [`IpHost::add_address`].
    ///
    /// # Panics
    /// When the NIC is not in the host.
    fn add_address_on(self: &Arc<Self>, nic: &Arc<impl PciFunction + ?Sized>, address: IpAddr, prefix: u8);

    /// Adds an address to the first interface, in any state of duplicate address detection.
    ///
    /// # Panics
    /// When the host has no NIC.
    fn add_unicast(self: &Arc<Self>, unicast: Unicast);

    /// Sets the state of duplicate address detection of an address.
    fn set_dad_state(self: &Arc<Self>, address: IpAddr, dad: NL_DAD_STATE);

    /// Adds a default gateway, through which destinations outside of all subnets are reached.
    fn add_gateway(&self, gateway: IpAddr);

    /// Makes the next `count` calls of `NotifyUnicastIpAddressChange` fail for lack of memory.
    fn refuse_address_notifications(&self, count: u32);

    /// Makes the next `count` calls of `GetUnicastIpAddressTable` fail for lack of memory.
    fn refuse_address_tables(&self, count: u32);

    /// Removes an address.
    fn remove_address(self: &Arc<Self>, address: IpAddr);

    /// Adds an address to the first interface as Windows does: tentative until no node on the link has objected for
    /// a second.
    ///
    /// # Panics
    /// When the host finds its neighbors without frames, or has no NIC.
    fn claim_address(self: &Arc<Self>, address: IpAddr, prefix: u8);

    /// Returns the addresses of all interfaces.
    #[must_use]
    fn addresses(&self) -> Vec<Unicast>;

    /// Returns the addresses of the interface of a NIC.
    ///
    /// # Panics
    /// When the NIC is not in the host.
    #[must_use]
    fn addresses_on(&self, nic: &Arc<impl PciFunction + ?Sized>) -> Vec<Unicast>;

    /// Returns the addresses that the host may use.
    #[must_use]
    fn usable_addresses(&self) -> Vec<IpAddr>;
}

impl IpHost for Host {
    fn set_discovery(&self, discovery: Discovery) {
        *self.state(&DISCOVERY).lock() = discovery;
    }

    fn add_address(self: &Arc<Self>, address: IpAddr, prefix: u8) {
        self.add_unicast(Unicast { address, prefix, dad: NL_DAD_STATE::IpDadStatePreferred });
    }

    fn add_unicast(self: &Arc<Self>, unicast: Unicast) {
        stack::add_unicast(self, interface::first(self).luid, unicast);
    }

    fn add_address_on(self: &Arc<Self>, nic: &Arc<impl PciFunction + ?Sized>, address: IpAddr, prefix: u8) {
        let unicast = Unicast { address, prefix, dad: NL_DAD_STATE::IpDadStatePreferred };
        stack::add_unicast(self, interface::of_nic(self, nic).luid, unicast);
    }

    fn set_dad_state(self: &Arc<Self>, address: IpAddr, dad: NL_DAD_STATE) {
        stack::change_dad_state(self, None, address, |_| true, dad);
    }

    fn add_gateway(&self, gateway: IpAddr) {
        self.state(&ADDRESSES).add_gateway(gateway);
    }

    fn refuse_address_notifications(&self, count: u32) {
        self.state(&ADDRESSES).refuse_notifications(count);
    }

    fn refuse_address_tables(&self, count: u32) {
        self.state(&ADDRESSES).refuse_tables(count);
    }

    fn remove_address(self: &Arc<Self>, address: IpAddr) {
        stack::remove_address(self, None, address);
    }

    fn claim_address(self: &Arc<Self>, address: IpAddr, prefix: u8) {
        stack::claim_address(self, interface::first(self).luid, address, prefix);
    }

    fn addresses(&self) -> Vec<Unicast> {
        self.state(&ADDRESSES).all().into_iter().map(|at| at.unicast).collect()
    }

    fn addresses_on(&self, nic: &Arc<impl PciFunction + ?Sized>) -> Vec<Unicast> {
        self.state(&ADDRESSES).of(interface::of_nic(self, nic).luid)
    }

    fn usable_addresses(&self) -> Vec<IpAddr> {
        let usable = self.addresses().into_iter().filter(Unicast::is_usable);
        usable.map(|unicast| unicast.address).collect()
    }
}
