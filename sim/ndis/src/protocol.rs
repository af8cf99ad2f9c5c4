// SPDX-License-Identifier: MIT OR Apache-2.0

//! Protocol drivers: what is bound to every adapter from above.

use std::sync::Arc;

use nt_sim::{Host, services::Slot};

use crate::adapter::Adapter;

/// The binding of the protocol drivers to an adapter.
pub(crate) struct Binding;

/// A driver above NDIS. Added to [`PROTOCOLS`] when a host is created.
pub trait Protocol: Send + Sync {
    /// An adapter has (re)started. Called on a thread of the host, at `PASSIVE_LEVEL`.
    fn restarted(&self, host: &Arc<Host>, adapter: &Arc<Adapter>);

    /// An adapter has received a frame. Called on a thread of the host, IRQL <= `DISPATCH_LEVEL`.
    fn received(&self, host: &Arc<Host>, adapter: &Arc<Adapter>, frame: &[u8]);
}

/// The protocol drivers of a host.
pub static PROTOCOLS: Slot<Vec<Box<dyn Protocol>>> = Slot::new();
