// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counters and lists behind the NDK OIDs. The driver's OID handler does buffers and statuses.

use super::Provider;
use crate::base::address::{inet, with_scope};
use crate::base::state::ports::Purpose;
use crate::objects::connector::Connector;
use ndk_abi::ndk::{NDIS_NDK_CONNECTION_ENTRY, NDIS_NDK_LOCAL_ENDPOINT_ENTRY, NDIS_NDK_PERFORMANCE_COUNTERS};

impl Provider {
    /// Returns the counters of `OID_NDK_STATISTICS`. IRQL <= `DISPATCH_LEVEL`.
    pub fn performance_counters(&self) -> NDIS_NDK_PERFORMANCE_COUNTERS {
        self.state.counters.snapshot(self.state.engine.total(|stats| &stats.cq_overflows))
    }

    /// Calls `each` with the entry of every active connection, for `OID_NDK_CONNECTIONS`. Each entry is
    /// consistent in itself.
    //= R-OIDNDK-19, R-OIDNDK-21, R-OIDNDK-26, R-OIDNDK-27
    pub fn connections(&self, mut each: impl FnMut(NDIS_NDK_CONNECTION_ENTRY)) {
        self.state.registry.for_each(|connector: &Connector| {
            if let Some((local, remote)) = connector.active_addresses() {
                each(NDIS_NDK_CONNECTION_ENTRY {
                    Local: inet(local),
                    Remote: inet(remote),
                    UserModeOwner: 0,
                    OwnerPid: 0,
                });
            }
        });
    }

    /// Calls `each` with the entry of every listener and shared endpoint, for `OID_NDK_LOCAL_ENDPOINTS`.
    //= R-OIDNDK-23, R-OIDNDK-24
    pub fn local_endpoints(&self, mut each: impl FnMut(NDIS_NDK_LOCAL_ENDPOINT_ENTRY)) {
        let scope = self.state.environment.link().scope;
        self.state.ports.for_each(|address, purpose| {
            let address = with_scope(address.ip(), address.port(), scope);
            let listener = match purpose {
                Purpose::Listener => 1,
                Purpose::SharedEndpoint => 0,
                Purpose::Connector => return,
            };
            each(NDIS_NDK_LOCAL_ENDPOINT_ENTRY {
                Local: inet(address),
                UserModeOwner: 0,
                Listener: listener,
                OwnerPid: 0,
            });
        });
    }
}
