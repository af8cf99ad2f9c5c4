// SPDX-License-Identifier: MIT OR Apache-2.0

//! The simulated protocol stack's handling of the lists that it gets, and a record of them.

use std::sync::Arc;

use nt_sim::{Event, Host};

use super::calls::on_host;
use crate::adapter::Adapter;

/// The protocol stack above an adapter; see [`Miniport::stack`](super::Miniport::stack).
pub struct ProtocolStack<'a> {
    pub(super) host: &'a Arc<Host>,
    pub(super) adapter: &'a Arc<Adapter>,
}

impl<'a> ProtocolStack<'a> {
    /// Returns the number of sends that the miniport has completed with the flag of `DISPATCH_LEVEL`.
    #[must_use]
    pub fn flagged_completions(&self) -> u64 {
        self.adapter.data_path.state.lock().flagged_completions
    }

    /// Makes the stack keep received NET_BUFFER_LISTs from now on, or return those it kept.
    ///
    /// # Panics
    /// When the host dies.
    pub fn keep(&self, keep: bool) {
        let (host, adapter) = (self.host.clone(), self.adapter.clone());
        let done = on_host(self.host, "protocol", move || adapter.keep_received(&host, keep));
        done.unwrap_or_else(|lost| panic!("{lost}"));
    }

    /// Returns how many received NET_BUFFER_LISTs the stack has not returned.
    #[must_use]
    pub fn lent(&self) -> usize {
        self.adapter.data_path.state.lock().lent.len()
    }

    /// Makes the stack return received NET_BUFFER_LISTs during their indication from now on, or later.
    pub fn return_at_once(&self, at_once: bool) {
        self.adapter.data_path.state.lock().returns_at_once = at_once;
    }

    /// Calls `handler` with each frame that the miniport indicates from now on until the adapter is halted: during the
    /// indication, on the miniport's thread and at its IRQL.
    pub fn on_received(&self, handler: impl Fn(&[u8]) + Send + Sync + 'static) {
        self.adapter.data_path.state.lock().on_received = Some(Arc::new(handler));
    }

    /// Returns the event that is set when frames were received.
    pub(crate) fn arrived(&self) -> &'a Event {
        &self.adapter.data_path.arrived
    }
}
