// SPDX-License-Identifier: MIT OR Apache-2.0

//! The part of NDIS 6.85 that an Ethernet miniport with NDK uses.

mod attributes;
mod config;
mod device;
mod dma;
mod interrupt;
mod miniport;
mod nbl;
mod offload;
mod oid;
mod pnp;
mod poll;
mod port;
mod rss;
mod runtime;
mod status;
mod types;

pub use attributes::*;
pub use config::*;
pub use device::*;
pub use dma::*;
pub use interrupt::*;
pub use miniport::*;
pub use nbl::*;
pub use offload::*;
pub use oid::*;
pub use pnp::*;
pub use poll::*;
pub use port::*;
pub use rss::*;
pub use runtime::*;
pub use status::*;
pub use types::*;
