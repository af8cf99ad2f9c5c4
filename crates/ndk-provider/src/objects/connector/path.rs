// SPDX-License-Identifier: MIT OR Apache-2.0

//! Follows the next hop of a connection: a gateway that another one takes over for, or a peer with another link address.
//!
//! When a peer has not answered for a while, the link address of its next hop is resolved anew, on threads of the driver because
//! that waits for the network. Each thread goes over all connectors until none is suspect.

use core::net::IpAddr;
use core::sync::atomic::Ordering;

use super::object::Connector;
use crate::base::object::Ref;
use crate::base::state::provider_state::ProviderState;
use crate::objects::adapter::Adapter;
use nt::WorkItem;
use roce::ConnId;
use roce_wire::MacAddr;

/// A thread that resolves paths. Holds the adapter, whose close waits for it.
struct Resolver(Ref<Adapter>);

impl Connector {
    /// Has the path of a connection resolved anew. On the provider's own stack.
    ///
    /// If all resolving threads are in use, or memory for one is short, the path stays suspect: the next timeout of any connection
    /// starts one.
    #[inline(never)]
    pub fn on_suspect_path(this: &Ref<Self>, connection: ConnId) {
        let provider = this.provider();
        {
            let inner = this.inner.lock();
            let is_remote = inner.remote.is_some_and(|remote| !provider.environment.is_local(remote.ip()));
            if inner.connection != Some(connection) || !is_remote {
                return;
            }
        }
        this.path_suspect.store(true, Ordering::Release);
        let Some(resolver) = Resolver::claim(this.adapter()) else { return };
        let owner = provider.environment.owner();
        if let Ok(item) = WorkItem::try_new(owner, move || resolver.start()) {
            item.queue();
        }
    }

    /// Returns the addresses of a suspect path, which counts as resolved from now on.
    fn take_suspect_path(&self) -> Option<(IpAddr, IpAddr)> {
        if !self.path_suspect.swap(false, Ordering::AcqRel) {
            return None;
        }
        let inner = self.inner.lock();
        inner.local.zip(inner.remote).map(|(local, remote)| (local.ip(), remote.ip()))
    }

    fn set_next_hop(&self, provider: &ProviderState, mac: MacAddr) {
        if let Some(connection) = self.inner.lock().connection {
            // Unknown if the connection has ended.
            let _ = provider.engine.connections().set_next_hop(connection, mac);
        }
    }
}

impl Resolver {
    /// Claims one of the threads that may resolve paths at a time.
    fn claim(adapter: &Ref<Adapter>) -> Option<Self> {
        adapter.provider().quotas.next_hop_threads.admit().ok()?.keep();
        Some(Self(adapter.clone()))
    }

    /// Starts the thread. In a work item, which does not wait.
    fn start(self) {
        let driver = self.0.provider().environment.driver();
        // If there is none, the next timeout tries again.
        let _ = nt::start_thread(driver, move || self.run());
    }

    /// Resolves the suspect paths. `PASSIVE_LEVEL`, without a lock.
    fn run(self) {
        let provider = self.0.provider();
        let mut any = true;
        while core::mem::take(&mut any) {
            // Connections to the same peer are often next to each other.
            let mut last = None;
            provider.registry.for_each(|connector: &Connector| {
                let Some(path @ (local, remote)) = connector.take_suspect_path() else { return };
                any = true;
                let next_hop = match last {
                    Some((resolved, next_hop)) if resolved == path => next_hop,
                    _ => {
                        provider.environment.resolve(local, remote).ok().map(|path| MacAddr(path.remote_mac))
                    }
                };
                last = Some((path, next_hop));
                // Without an answer the old one is as good as any.
                if let Some(mac) = next_hop {
                    connector.set_next_hop(provider, mac);
                }
            });
        }
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.0.provider().quotas.next_hop_threads.give_back();
    }
}
