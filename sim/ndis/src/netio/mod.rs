// SPDX-License-Identifier: MIT OR Apache-2.0

//! The IP helper: the imports of `netio.sys` and the IP stack behind them.
//!
//! Every adapter is an interface. The harness adds addresses to interfaces ([`IpHost::add_address_on`]).
//! [`Discovery`] selects how neighbors are found: by looking into the other
//! hosts of the simulation, which takes [`RESOLUTION`] on success and three times as long on failure; or by
//! frames through the driver, as on a real link.
//!
//! | module | responsible for |
//! | --- | --- |
//! | `interfaces` | interfaces as IP knows them |
//! | `unicast` | a unicast address, its family and its subnet |
//! | `addresses` | the addresses of the interfaces, and notifications of changes |
//! | `neighbors` | the neighbor caches |
//! | `frames` | ARP, neighbor discovery and echo as bytes |
//! | `rows` | rows of MIB tables |
//! | `stack` | the protocol driver: receive filters, answers, solicitations, duplicate address detection |
//! | `resolve` | finding the link address of a neighbor |
//! | [`imports`] | the imports for addresses, neighbors and routes |
//! | [`identifiers`] | the imports that convert identifiers of interfaces |
//! | `ip_host` | the methods added to a host |

mod addresses;
mod frames;
pub mod identifiers;
pub mod imports;
mod interfaces;
mod ip_host;
mod neighbors;
mod resolve;
mod rows;
mod stack;
mod unicast;

use nt_sim::{HostId, host::Subsystem, import::Import, services::Services, world::World};
use parking_lot::Mutex;

pub use self::{
    frames::link_local, ip_host::IpHost, resolve::RESOLUTION, stack::Discovery, unicast::Unicast,
};
use crate::protocol::PROTOCOLS;

/// The IP helper. NDIS must be installed before it.
pub struct Netio;

/// The one [`Netio`].
pub static NETIO: Netio = Netio;

impl Subsystem for Netio {
    fn imports(&self) -> &'static [&'static [Import]] {
        &[imports::IMPORTS, identifiers::IMPORTS]
    }

    fn install(&self, services: &mut Services, _world: &World, _host: HostId) {
        services.add(&addresses::ADDRESSES, addresses::Addresses::default());
        services.add(&neighbors::NEIGHBORS, neighbors::Neighbors::default());
        services.add(&stack::DISCOVERY, Mutex::default());
        services.get_mut(&PROTOCOLS).push(Box::new(stack::IpStack));
    }
}
