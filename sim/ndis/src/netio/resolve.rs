// SPDX-License-Identifier: MIT OR Apache-2.0

//! Finding the link address of a neighbor.

use std::{net::IpAddr, sync::Arc, time::Duration};

use device_sim::PciFunction;
use nt_sim::{Host, nt::time::sleep};

use super::{
    addresses::ADDRESSES,
    frames::Mac,
    interfaces::of_luid,
    stack::{self, Discovery},
};
use crate::{adapter::Adapter, interface::interfaces};

/// Time that resolving a neighbor takes with [`Discovery::Simulated`].
pub const RESOLUTION: Duration = Duration::from_micros(200);

/// Finds the link address of a neighbor. On a thread of the host, at `PASSIVE_LEVEL`.
pub(super) fn find(
    host: &Arc<Host>,
    adapter: &Arc<Adapter>,
    source: Option<IpAddr>,
    address: IpAddr,
) -> Option<Mac> {
    if host.state(&ADDRESSES).usable(adapter.interface.luid).contains(&address) {
        return Some(stack::station(adapter));
    }
    match stack::discovery(host) {
        Discovery::OnWire => stack::solicit(host, adapter, source, address),
        Discovery::Simulated => (0..3).find_map(|_| {
            sleep(RESOLUTION.as_nanos() as u64);
            look_up(host, &*adapter.nic, address)
        }),
    }
}

/// Looks for `address` at the NIC at the other end of the link, which may be in the same host.
fn look_up(host: &Host, nic: &dyn PciFunction, address: IpAddr) -> Option<Mac> {
    let port = nic.port()?;
    port.peer()?;
    let is_peer = |nic: &dyn PciFunction| {
        let other = nic.port();
        other.is_some_and(|other| Arc::ptr_eq(other.wire(), port.wire()) && other.end() != port.end())
    };
    let hosts = host.peers();
    hosts.iter().filter(|host| !host.is_dead()).find_map(|host| {
        let peer = interfaces(host).into_iter().find(|interface| is_peer(&*interface.nic))?;
        let has_address = host.state(&ADDRESSES).usable(peer.luid).contains(&address);
        let adapter = of_luid(host, peer.luid).filter(|_| has_address && peer.nic.is_running());
        adapter.map(|adapter| stack::station(&adapter))
    })
}
