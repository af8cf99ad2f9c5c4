// SPDX-License-Identifier: MIT OR Apache-2.0

//! The methods that the IP helper adds to a simulated Windows host.

use std::{net::IpAddr, sync::Arc};

use ndk_abi::netio::NL_DAD_STATE;
use nt_sim::Host;

use super::{
    addresses::ADDRESSES,
    stack::{self, DISCOVERY, Discovery},
    unicast::Unicast,
};

/// A host's IP addresses, and how it finds its neighbors.
pub trait IpHost {
    /// Sets how the host finds its neighbors; [`Discovery::Simulated`] unless set. To be called before an adapter
    /// starts.
    fn set_discovery(&self, discovery: Discovery);

    /// Adds an address with the length of its subnet's prefix, usable at once.
    fn add_address(self: &Arc<Self>, address: IpAddr, prefix: u8);

    /// Adds an address in any state of duplicate address detection.
    fn add_unicast(self: &Arc<Self>, unicast: Unicast);

    /// Sets the state of duplicate address detection of an address.
    fn set_dad_state(self: &Arc<Self>, address: IpAddr, dad: NL_DAD_STATE);

    /// Removes an address.
    fn remove_address(self: &Arc<Self>, address: IpAddr);

    /// Adds an address as Windows does: tentative until no node on the link has objected for a second.
    ///
    /// # Panics
    /// When the host finds its neighbors without frames.
    fn claim_address(self: &Arc<Self>, address: IpAddr, prefix: u8);

    /// Returns the host's addresses.
    #[must_use]
    fn addresses(&self) -> Vec<Unicast>;

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
        stack::add_unicast(self, unicast);
    }

    fn set_dad_state(self: &Arc<Self>, address: IpAddr, dad: NL_DAD_STATE) {
        stack::change_dad_state(self, address, |_| true, dad);
    }

    fn remove_address(self: &Arc<Self>, address: IpAddr) {
        stack::remove_address(self, address);
    }

    fn claim_address(self: &Arc<Self>, address: IpAddr, prefix: u8) {
        stack::claim_address(self, address, prefix);
    }

    fn addresses(&self) -> Vec<Unicast> {
        self.state(&ADDRESSES).all()
    }

    fn usable_addresses(&self) -> Vec<IpAddr> {
        self.state(&ADDRESSES).usable()
    }
}
