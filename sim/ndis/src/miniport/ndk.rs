// SPDX-License-Identifier: MIT OR Apache-2.0

//! The harness's side of RDMA: NDK adapters that consumers open, and what the miniport reports of them.

use std::{sync::Arc, time::Duration};

use ndk_abi::{
    ndis::NDIS_STATUS,
    ndk::{NDIS_OPEN_NDK_ADAPTER_PARAMETERS, NDK_VERSION},
};
use nt_sim::{Host, thread::Lost};

use super::calls::on_host;
use crate::{adapter::Adapter, ndk::NdkAdapter, ndk_objects::NDK_OBJECTS, ndk_state::NdkEvent};

/// Requests of RDMA consumers and NDIS to an adapter; see [`Miniport::ndk`](super::Miniport::ndk).
pub struct NdkRequests<'a> {
    pub(super) host: &'a Arc<Host>,
    pub(super) adapter: &'a Arc<Adapter>,
}

impl NdkRequests<'_> {
    /// Opens an NDK adapter.
    ///
    /// # Errors
    /// The status of OpenNDKAdapterHandler.
    ///
    /// # Panics
    /// When the host dies.
    pub fn open(&self, major: u16, minor: u16) -> Result<NdkAdapter, NDIS_STATUS> {
        let version = NDK_VERSION { Major: major, Minor: minor };
        self.open_with(NDIS_OPEN_NDK_ADAPTER_PARAMETERS { Version: version, SwitchId: 0, VPortId: 0 })
    }

    /// Opens an NDK adapter with all parameters given, otherwise as [`open`](Self::open).
    ///
    /// # Errors
    /// The status of OpenNDKAdapterHandler.
    ///
    /// # Panics
    /// When the host dies.
    pub fn open_with(&self, parameters: NDIS_OPEN_NDK_ADAPTER_PARAMETERS) -> Result<NdkAdapter, NDIS_STATUS> {
        let adapter = self.adapter.clone();
        let open = move || adapter.open_ndk(parameters);
        on_host(self.host, "NDK", open).unwrap_or_else(|lost| panic!("{lost}"))
    }

    /// Closes an NDK adapter; returns when every object below it is closed.
    ///
    /// # Errors
    /// [`Lost`] when the host dies.
    pub fn close(&self, opened: NdkAdapter) -> Result<(), Lost> {
        let adapter = self.adapter.clone();
        on_host(self.host, "NDK", move || adapter.close_ndk(opened))
    }

    /// Returns the NDK events the miniport reported so far.
    #[must_use]
    pub fn events(&self) -> Vec<NdkEvent> {
        self.adapter.ndk.events()
    }

    /// Waits until the miniport has reported `count` NDK events; returns `false` when `timeout` passes first.
    #[must_use]
    pub fn await_events(&self, count: usize, timeout: Duration) -> bool {
        let deadline = self.host.world().now() + timeout.as_nanos() as u64;
        while self.events().len() < count {
            let left = deadline.saturating_sub(self.host.world().now());
            if !self.adapter.ndk.reported.wait(Duration::from_nanos(left)) {
                return false;
            }
            if self.events().len() < count {
                self.adapter.ndk.reported.reset();
            }
        }
        true
    }

    /// Returns the number of open NDK adapters.
    #[must_use]
    pub fn open_adapters(&self) -> usize {
        self.adapter.ndk.open_count()
    }

    /// Returns the types of the objects that consumers have open below the NDK adapters, e.g. "CQ". Empty unless
    /// [`NdisHost::track_ndk_objects`](crate::NdisHost::track_ndk_objects) was called before they were opened.
    #[must_use]
    pub fn open_objects(&self) -> Vec<&'static str> {
        let adapters = self.adapter.ndk.open();
        let objects = self.host.state(&NDK_OBJECTS);
        adapters.into_iter().flat_map(|adapter| objects.open_below(adapter)).collect()
    }
}
