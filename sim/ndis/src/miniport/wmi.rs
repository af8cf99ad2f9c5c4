// SPDX-License-Identifier: MIT OR Apache-2.0

//! Requests of WMI.

use std::sync::Arc;

use ndk_abi::{ndis::NDIS_GUID, nt::GUID};
use nt_sim::Host;

use super::calls::on_host;
use crate::{adapter::Adapter, oid::OidError, wmi};

/// The custom GUIDs of a miniport, as WMI uses them for an administrator.
pub struct WmiRequests {
    host: Arc<Host>,
    adapter: Arc<Adapter>,
}

impl WmiRequests {
    /// Returns those of an adapter of a host.
    #[must_use]
    pub fn of(host: &Arc<Host>, adapter: &Arc<Adapter>) -> Self {
        Self { host: host.clone(), adapter: adapter.clone() }
    }

    /// Returns the GUIDs that NDIS has registered.
    #[must_use]
    pub fn guids(&self) -> Vec<NDIS_GUID> {
        self.adapter.guids.lock().clone()
    }

    /// Queries a GUID. `None` if the miniport has no such GUID.
    ///
    /// # Errors
    /// [`OidError`] when the miniport fails the request.
    ///
    /// # Panics
    /// When the host dies.
    #[must_use]
    pub fn query(&self, guid: GUID) -> Option<Result<Vec<u8>, OidError>> {
        let adapter = self.adapter.clone();
        on_host(&self.host, "WMI", move || wmi::query_guid(&adapter, guid)).expect("the host is alive")
    }

    /// Sets a GUID. `None` if the miniport has no such GUID.
    ///
    /// # Errors
    /// [`OidError`] when the miniport fails the request.
    ///
    /// # Panics
    /// When the host dies.
    #[must_use]
    pub fn set(&self, guid: GUID, value: &[u8]) -> Option<Result<(), OidError>> {
        let (adapter, value) = (self.adapter.clone(), value.to_vec());
        on_host(&self.host, "WMI", move || wmi::set_guid(&adapter, guid, &value)).expect("the host is alive")
    }
}
