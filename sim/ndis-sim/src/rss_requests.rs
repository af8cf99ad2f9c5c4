// SPDX-License-Identifier: MIT OR Apache-2.0

//! The harness's side of receive side scaling: what the IP stack requests of an adapter.

use device_sim::toeplitz::KEY_LEN;
use ndk_abi::ndis::{NDIS_RSS_PARAM_FLAG_DISABLE_RSS, OID_GEN_RECEIVE_SCALE_PARAMETERS};

use crate::{
    miniport::Miniport,
    oid::OidError,
    rss::{RssCapabilities, RssParameters},
};

impl Miniport {
    /// Returns what the miniport says of receive side scaling; `None` without it.
    #[must_use]
    pub fn rss_capabilities(&self) -> Option<RssCapabilities> {
        self.adapter().rss.lock().capabilities
    }

    /// Returns the parameters of receive side scaling in force; `None` while it is disabled.
    #[must_use]
    pub fn rss_parameters(&self) -> Option<RssParameters> {
        self.adapter().rss.lock().parameters()
    }

    /// Sets the parameters of receive side scaling, or disables it.
    ///
    /// # Errors
    /// [`OidError`] when the miniport fails the request.
    ///
    /// # Panics
    /// When the host dies.
    pub fn set_rss(&self, parameters: Option<&RssParameters>) -> Result<(), OidError> {
        let disabled =
            || RssParameters { types: 0, key: [0; KEY_LEN], table: Vec::new(), default_processor: 0 };
        let request = parameters.map_or_else(
            || disabled().encode(NDIS_RSS_PARAM_FLAG_DISABLE_RSS),
            |parameters| parameters.encode(0),
        );
        self.set(OID_GEN_RECEIVE_SCALE_PARAMETERS, &request)
    }
}
