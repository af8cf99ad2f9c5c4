// SPDX-License-Identifier: MIT OR Apache-2.0

//! The methods that NDIS adds to a simulated Windows host.

use std::sync::Arc;

use device_sim::{Nic, NicOptions};
use nt_sim::Host;

use crate::{
    adapter::{self, Adapter},
    bus,
    config::{self, Keyword},
    event_log::{self, LogEntry},
};

/// A host's NICs, adapters, registry keywords and event log.
pub trait NdisHost {
    /// Plugs a NIC into the host. The driver meets it when [`Miniport::start`](crate::Miniport::start) is
    /// called.
    ///
    /// # Panics
    /// When the host's memory cannot be mapped for it.
    fn plug(self: &Arc<Self>, options: NicOptions) -> Arc<Nic>;

    /// Returns the NICs in the host, in the order they were plugged in.
    #[must_use]
    fn nics(&self) -> Vec<Arc<Nic>>;

    /// Cuts the power and the cables: from now on nothing the host sends appears on a link.
    fn kill(&self);

    /// Returns the adapters of the host, in the order they were started.
    #[must_use]
    fn adapters(&self) -> Vec<Arc<Adapter>>;

    /// Sets a keyword of the adapter, e.g. `"*NetworkDirect"`.
    fn set_keyword(&self, name: &str, value: impl Into<Keyword>);

    /// Returns the value of a keyword.
    #[must_use]
    fn keyword(&self, name: &str) -> Option<Keyword>;

    /// Returns what the image wrote to the event log so far.
    #[must_use]
    fn event_log(&self) -> Vec<LogEntry>;
}

impl NdisHost for Host {
    fn plug(self: &Arc<Self>, options: NicOptions) -> Arc<Nic> {
        bus::plug(self, options)
    }

    fn nics(&self) -> Vec<Arc<Nic>> {
        bus::nics(self)
    }

    fn kill(&self) {
        bus::kill(self);
    }

    fn adapters(&self) -> Vec<Arc<Adapter>> {
        adapter::adapters(self)
    }

    fn set_keyword(&self, name: &str, value: impl Into<Keyword>) {
        config::set_keyword(self, name, value);
    }

    fn keyword(&self, name: &str) -> Option<Keyword> {
        config::keyword(self, name)
    }

    fn event_log(&self) -> Vec<LogEntry> {
        self.state(&event_log::LOG).lock().clone()
    }
}
