// SPDX-License-Identifier: MIT OR Apache-2.0

//! The IP stack as a protocol driver above the miniport: what it has the adapter receive, what it answers, how it finds
//! neighbors. Everything goes through the driver's ordinary send and receive paths.

use std::{net::IpAddr, sync::Arc, time::Duration};

use ndk_abi::{
    ndis::{
        NDIS_PACKET_TYPE_ALL_MULTICAST, NDIS_PACKET_TYPE_BROADCAST, NDIS_PACKET_TYPE_DIRECTED,
        NDIS_PACKET_TYPE_MULTICAST, OID_802_3_MULTICAST_LIST, OID_GEN_CURRENT_PACKET_FILTER,
    },
    netio::{MIB_NOTIFICATION_TYPE, NL_DAD_STATE},
};

use nt_sim::{Host, current, services::Slot};
use parking_lot::Mutex;

use super::{
    addresses::{ADDRESSES, Addresses, InterfaceAddress},
    frames::{self, Learned, Mac},
    interfaces::of_luid,
    neighbors::NEIGHBORS,
    unicast::Unicast,
};
use crate::{adapter::Adapter, protocol::Protocol};

/// How a host finds its neighbors.
pub(crate) static DISCOVERY: Slot<Mutex<Discovery>> = Slot::new();

/// How a host finds its neighbors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Discovery {
    /// It looks up the other hosts of the simulation: without frames and driver, in a fixed time.
    #[default]
    Simulated,
    /// By ARP and neighbor discovery. It also answers requests of other nodes, and echo requests.
    OnWire,
}

/// Number of solicitations, and time to wait for each. (RFC 4861 §10: `MAX_MULTICAST_SOLICIT`,
/// `RETRANS_TIMER`)
const SOLICITATIONS: u32 = 3;
const RETRANSMIT: Duration = Duration::from_secs(1);

/// Returns how the host finds its neighbors.
pub(super) fn discovery(host: &Host) -> Discovery {
    *host.state(&DISCOVERY).lock()
}

/// Whether the stack sends and answers frames.
fn is_on_wire(host: &Host) -> bool {
    discovery(host) == Discovery::OnWire
}

fn addresses(host: &Host) -> &Addresses {
    host.state(&ADDRESSES)
}

/// The IP stack as a protocol driver.
pub(super) struct IpStack;

impl Protocol for IpStack {
    fn restarted(&self, host: &Arc<Host>, adapter: &Arc<Adapter>) {
        if is_on_wire(host) {
            listen(host, adapter);
            for address in addresses(host).usable(adapter.interface.luid) {
                adapter.transmit(host, &frames::announcement(station(adapter), address));
            }
        }
    }

    fn received(&self, host: &Arc<Host>, adapter: &Arc<Adapter>, frame: &[u8]) {
        if !is_on_wire(host) {
            return;
        }
        if let Some(claimed) = frames::claim(station(adapter), frame) {
            settle(host, adapter.interface.luid, claimed, NL_DAD_STATE::IpDadStateDuplicate);
        }
        let luid = adapter.interface.luid;
        let reaction = frames::react(station(adapter), &addresses(host).usable(luid), frame);
        if let Some(learned) = reaction.learned {
            host.state(&NEIGHBORS).learn(luid, learned, host.world().now());
        }
        if let Some(answer) = reaction.answer {
            // Not from inside the indication.
            let (on, adapter) = (host.clone(), adapter.clone());
            host.queue_dpc(current().cpu(), move || adapter.transmit(&on, &answer));
        }
    }
}

/// Sets the adapter's filters so that it receives what the addresses of its interface need.
fn listen(host: &Host, adapter: &Arc<Adapter>) {
    // Tentative addresses as well: other nodes may object.
    let all: Vec<_> =
        addresses(host).of(adapter.interface.luid).into_iter().map(|unicast| unicast.address).collect();
    let groups = frames::groups(&all);
    let mut filter = NDIS_PACKET_TYPE_DIRECTED | NDIS_PACKET_TYPE_MULTICAST | NDIS_PACKET_TYPE_BROADCAST;
    if adapter.set_oid(OID_802_3_MULTICAST_LIST, &groups.concat()).is_err() {
        filter |= NDIS_PACKET_TYPE_ALL_MULTICAST;
    }
    // A miniport that refuses the filter receives nothing, which the tests of its traffic notice.
    let _ = adapter.set_oid(OID_GEN_CURRENT_PACKET_FILTER, &filter.to_le_bytes());
}

/// Returns the station address: the one that the driver has stated with its attributes, otherwise the device's.
pub(super) fn station(adapter: &Adapter) -> [u8; 6] {
    adapter.attributes().station().unwrap_or_else(|| adapter.nic.mac())
}

/// Adds an address to an interface.
pub(super) fn add_unicast(host: &Arc<Host>, luid: u64, unicast: Unicast) {
    addresses(host).add(luid, unicast);
    changed(host, InterfaceAddress { luid, unicast }, MIB_NOTIFICATION_TYPE::MibAddInstance);
}

/// Changes the state of an address, of one interface or of any, if `from` accepts the state it is in.
pub(super) fn change_dad_state(
    host: &Arc<Host>,
    luid: Option<u64>,
    address: IpAddr,
    from: impl Fn(NL_DAD_STATE) -> bool,
    dad: NL_DAD_STATE,
) {
    if let Some(address) = addresses(host).set_dad_state(luid, address, from, dad) {
        changed(host, address, MIB_NOTIFICATION_TYPE::MibParameterNotification);
    }
}

/// Removes an address from one interface or from the one that has it.
pub(super) fn remove_address(host: &Arc<Host>, luid: Option<u64>, address: IpAddr) {
    if let Some(address) = addresses(host).remove(luid, address) {
        changed(host, address, MIB_NOTIFICATION_TYPE::MibDeleteInstance);
    }
}

/// An address was added, removed, or changed its state. On any thread.
fn changed(host: &Arc<Host>, changed: InterfaceAddress, kind: MIB_NOTIFICATION_TYPE) {
    if is_on_wire(host) {
        let (on, luid, address) = (host.clone(), changed.luid, changed.unicast.address);
        host.queue_work(move || {
            let Some(adapter) = of_luid(&on, luid) else { return };
            adapter.while_running(|| listen(&on, &adapter));
            if addresses(&on).usable(luid).contains(&address) {
                adapter.transmit(&on, &frames::announcement(station(&adapter), address));
            }
        });
    }
    addresses(host).notify(host, changed, kind);
}

/// Adds an address as Windows does: tentative until no node on the link has objected for [`RETRANSMIT`].
///
/// # Panics
/// When the host's stack is not on the wire.
pub(super) fn claim_address(host: &Arc<Host>, luid: u64, address: IpAddr, prefix: u8) {
    assert!(is_on_wire(host), "duplicates are detected on the wire");
    add_unicast(host, luid, Unicast { address, prefix, dad: NL_DAD_STATE::IpDadStateTentative });
    let on = host.clone();
    host.queue_work(move || {
        if let Some(adapter) = of_luid(&on, luid) {
            // First, so that objections are received.
            adapter.while_running(|| listen(&on, &adapter));
            adapter.transmit(&on, &frames::probe(station(&adapter), address));
        }
        let settled = on.world().now() + RETRANSMIT.as_nanos() as u64;
        let later = on.clone();
        on.at(settled, move || settle(&later, luid, address, NL_DAD_STATE::IpDadStatePreferred));
    });
}

/// Ends duplicate address detection of an address, if it is in progress.
fn settle(host: &Arc<Host>, luid: u64, address: IpAddr, dad: NL_DAD_STATE) {
    change_dad_state(host, Some(luid), address, |state| state == NL_DAD_STATE::IpDadStateTentative, dad);
}

/// Solicits the link address of `target` up to [`SOLICITATIONS`] times. On a thread of the host, at
/// `PASSIVE_LEVEL`.
pub(super) fn solicit(
    host: &Arc<Host>,
    adapter: &Arc<Adapter>,
    source: Option<IpAddr>,
    target: IpAddr,
) -> Option<Mac> {
    let luid = adapter.interface.luid;
    let source = source.or_else(|| Some(addresses(host).on_link(Some(luid), target)?.unicast.address))?;
    let question = frames::solicitation(station(adapter), source, target)?;
    let answered = host.event();
    let neighbors = host.state(&NEIGHBORS);
    let ticket = neighbors.watch(luid, target, answered.clone());
    for _ in 0..SOLICITATIONS {
        adapter.transmit(host, &question);
        if answered.wait(RETRANSMIT) || host.is_dead() {
            break;
        }
    }
    neighbors.unwatch(ticket)
}

/// Records the answer to a solicitation.
pub(super) fn found(host: &Host, luid: u64, address: IpAddr, mac: Mac) {
    let learned = Learned { address, mac, how: frames::How::Answered };
    host.state(&NEIGHBORS).learn(luid, learned, host.world().now());
}
