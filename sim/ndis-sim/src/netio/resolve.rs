// SPDX-License-Identifier: MIT OR Apache-2.0

//! Finding the link address of a neighbor.

use std::{net::IpAddr, sync::Arc, time::Duration};

use nt_sim::{Host, nt::time::sleep};

use super::{
    addresses::ADDRESSES,
    frames::Mac,
    stack::{self, Discovery},
};
use crate::{adapter::Adapter, bus};

/// Time that resolving a neighbor takes with [`Discovery::Simulated`].
pub const RESOLUTION: Duration = Duration::from_micros(200);

/// Finds the link address of a neighbor. On a thread of the host, at `PASSIVE_LEVEL`.
pub(super) fn find(
    host: &Arc<Host>,
    interface: &Arc<Adapter>,
    source: Option<IpAddr>,
    address: IpAddr,
) -> Option<Mac> {
    if host.state(&ADDRESSES).usable().contains(&address) {
        return Some(interface.nic.mac());
    }
    match stack::discovery(host) {
        Discovery::OnWire => stack::solicit(host, interface, source, address),
        Discovery::Simulated => (0..3).find_map(|_| {
            sleep(RESOLUTION.as_nanos() as u64);
            look_up(host, interface, address)
        }),
    }
}

/// Looks for `address` at the host at the other end of the link.
fn look_up(host: &Host, interface: &Adapter, address: IpAddr) -> Option<Mac> {
    let port = interface.nic.port()?;
    port.peer()?;
    let peers = host.peers();
    peers.iter().filter(|peer| !peer.is_dead()).find_map(|peer| {
        let nics = bus::nics(peer);
        let nic = nics.iter().find(|nic| {
            nic.port()
                .is_some_and(|other| Arc::ptr_eq(other.wire(), port.wire()) && other.end() != port.end())
        })?;
        (peer.state(&ADDRESSES).usable().contains(&address) && nic.is_running()).then(|| nic.mac())
    })
}
