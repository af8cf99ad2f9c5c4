//! The IP stack as a protocol driver above the miniport: what it has the adapter receive, what it answers, how it finds
//! neighbors. Everything goes through the driver's ordinary send and receive paths.

use std::{net::IpAddr, sync::Arc, time::Duration};

use ndk_abi::{
    ndis::{
        NDIS_PACKET_TYPE_ALL_MULTICAST, NDIS_PACKET_TYPE_BROADCAST, NDIS_PACKET_TYPE_DIRECTED,
        NDIS_PACKET_TYPE_MULTICAST, OID_802_3_MULTICAST_LIST, OID_GEN_CURRENT_PACKET_FILTER,
    },
    netio::{NL_DAD_STATE, NL_NEIGHBOR_STATE},
};

use super::{
    Unicast,
    frames::{self, Learned, Mac},
};
use crate::{Host, ndis::Adapter, thread::current};

/// How a host finds its neighbors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Discovery {
    /// It looks into the other hosts of the simulation: no frame, no driver, a fixed time.
    #[default]
    Simulated,
    /// By ARP and neighbor discovery. It answers those of others, and echo requests.
    OnWire,
}

/// Times a neighbor is asked, and how long it may take each time. (RFC 4861 §10: `MAX_MULTICAST_SOLICIT`,
/// `RETRANS_TIMER`)
const SOLICITATIONS: u32 = 3;
const RETRANSMIT: Duration = Duration::from_secs(1);

impl Host {
    fn speaks(&self) -> bool {
        self.options().discovery == Discovery::OnWire
    }

    /// The stack meets an adapter that has (re)started. On a thread of the host, at `PASSIVE_LEVEL`.
    pub(crate) fn bind_stack(self: &Arc<Self>, adapter: &Arc<Adapter>) {
        if self.speaks() {
            self.listen(adapter);
            for address in self.usable_addresses() {
                adapter.transmit(self, &frames::announcement(adapter.nic.mac(), address));
            }
        }
    }

    /// Has the adapter receive what the host's addresses need.
    fn listen(self: &Arc<Self>, adapter: &Arc<Adapter>) {
        // Those that are tentative yet as well: others may object.
        let addresses: Vec<_> = self.addresses().into_iter().map(|unicast| unicast.address).collect();
        let groups = frames::groups(&addresses);
        let mut filter = NDIS_PACKET_TYPE_DIRECTED | NDIS_PACKET_TYPE_MULTICAST | NDIS_PACKET_TYPE_BROADCAST;
        if adapter.set_oid(OID_802_3_MULTICAST_LIST, &groups.concat()).is_err() {
            filter |= NDIS_PACKET_TYPE_ALL_MULTICAST;
        }
        // A miniport that refuses has no traffic; whoever misses it will say so.
        let _ = adapter.set_oid(OID_GEN_CURRENT_PACKET_FILTER, &filter.to_le_bytes());
    }

    /// An address has become usable, or is no more. On any thread.
    pub(super) fn address_changed(self: &Arc<Self>, address: IpAddr) {
        if !self.speaks() {
            return;
        }
        let host = self.clone();
        self.queue_work(move || {
            let Some(adapter) = host.interface(0, 0) else { return };
            adapter.while_running(|| host.listen(&adapter));
            if host.usable_addresses().contains(&address) {
                adapter.transmit(&host, &frames::announcement(adapter.nic.mac(), address));
            }
        });
    }

    /// The adapter has received a frame. On a thread of the host, IRQL <= `DISPATCH_LEVEL`.
    pub(crate) fn hear(self: &Arc<Self>, adapter: &Arc<Adapter>, frame: &[u8]) {
        if !self.speaks() {
            return;
        }
        if let Some(claimed) = frames::claim(adapter.nic.mac(), frame) {
            self.settle(claimed, NL_DAD_STATE::IpDadStateDuplicate);
        }
        let reaction = frames::react(adapter.nic.mac(), &self.usable_addresses(), frame);
        if let Some(learned) = reaction.learned {
            self.netio.neighbors.learn(learned, self.world().now());
        }
        if let Some(answer) = reaction.answer {
            // Not from inside the indication.
            let (host, adapter) = (self.clone(), adapter.clone());
            self.queue_dpc(current().cpu(), move || adapter.transmit(&host, &answer));
        }
    }

    /// Gives the host an address as Windows does: tentative, until nobody on the link has objected for [`RETRANSMIT`].
    ///
    /// # Panics
    /// When the host's stack is not on the wire.
    pub fn claim_address(self: &Arc<Self>, address: IpAddr, prefix: u8) {
        assert!(self.speaks(), "duplicates are detected on the wire");
        self.add_unicast(Unicast { address, prefix, dad: NL_DAD_STATE::IpDadStateTentative });
        let host = self.clone();
        self.queue_work(move || {
            if let Some(adapter) = host.interface(0, 0) {
                // First, so that objections are heard.
                adapter.while_running(|| host.listen(&adapter));
                adapter.transmit(&host, &frames::probe(adapter.nic.mac(), address));
            }
            let settled = host.world().now() + RETRANSMIT.as_nanos() as u64;
            let later = host.clone();
            host.at(settled, move || later.settle(address, NL_DAD_STATE::IpDadStatePreferred));
        });
    }

    /// Ends the detection of duplicates of an address, if it is under way.
    fn settle(self: &Arc<Self>, address: IpAddr, dad: NL_DAD_STATE) {
        self.change_dad_state(address, |state| state == NL_DAD_STATE::IpDadStateTentative, dad);
    }

    /// Asks the link for the link address of `target` until it answers, or for the last time in vain. On a thread of
    /// the host, at `PASSIVE_LEVEL`.
    pub(super) fn solicit(
        self: &Arc<Self>,
        adapter: &Arc<Adapter>,
        source: Option<IpAddr>,
        target: IpAddr,
    ) -> Option<Mac> {
        let source = source.or_else(|| Some(self.on_link(target)?.address))?;
        let question = frames::solicitation(adapter.nic.mac(), source, target)?;
        let answered = self.event();
        let ticket = self.netio.neighbors.watch(target, answered.clone());
        for _ in 0..SOLICITATIONS {
            adapter.transmit(self, &question);
            if answered.wait(RETRANSMIT) || self.is_dead() {
                break;
            }
        }
        self.netio.neighbors.unwatch(ticket);
        let known = self.netio.neighbors.get(target, self.world().now());
        known.filter(|&(_, state)| state == NL_NEIGHBOR_STATE::NlnsReachable).map(|(mac, _)| mac)
    }

    /// What an adapter or another host was found to have, as an answer to a question.
    pub(super) fn found(&self, address: IpAddr, mac: Mac) {
        let learned = Learned { address, mac, how: frames::How::Answered };
        self.netio.neighbors.learn(learned, self.world().now());
    }
}
