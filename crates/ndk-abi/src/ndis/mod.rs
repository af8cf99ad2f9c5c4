// SPDX-License-Identifier: MIT OR Apache-2.0

//! NDIS 6.85, as an Ethernet miniport with NDK needs it.

mod attributes;
mod config;
mod dma;
mod interrupt;
mod miniport;
mod nbl;
mod oid;
mod pnp;
mod port;
mod runtime;
mod status;
mod types;

pub use attributes::*;
pub use config::*;
pub use dma::*;
pub use interrupt::*;
pub use miniport::*;
pub use nbl::*;
pub use oid::*;
pub use pnp::*;
pub use port::*;
pub use runtime::*;
pub use status::*;
pub use types::*;
