// SPDX-License-Identifier: MIT OR Apache-2.0

//! Winsock Kernel: registration of clients, and how they open NDK adapters.
//!
//! A client registers, captures the provider's dispatch table, gets the NDK functions from `WskControlClient` and
//! opens the NDK adapter of an interface by its index. There are no sockets: their functions fail with
//! `STATUS_NOT_SUPPORTED`.
//!
//! | module | responsible for |
//! | --- | --- |
//! | `client` | registered clients, what they captured and opened |
//! | `tables` | the dispatch tables that clients call through |
//! | [`ndk`] | opening and closing NDK adapters |
//! | [`provider`] | the provider's functions |
//! | [`registration`] | the imports |

mod client;
pub mod ndk;
pub mod provider;
pub mod registration;
mod tables;

use nt_sim::{HostId, host::Subsystem, import::Import, services::Services, world::World};

/// Winsock Kernel. NDIS and the IP helper must be installed before it.
pub struct Wsk;

/// The one [`Wsk`].
pub static WSK: Wsk = Wsk;

impl Subsystem for Wsk {
    fn imports(&self) -> &'static [&'static [Import]] {
        &[registration::IMPORTS]
    }

    fn install(&self, services: &mut Services, _world: &World, _host: HostId) {
        services.add(&client::CLIENTS, client::Clients::default());
        services.add(&tables::TABLES, tables::Tables::new(provider::FUNCTIONS, ndk::FUNCTIONS));
    }
}
