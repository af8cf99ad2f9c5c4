// SPDX-License-Identifier: MIT OR Apache-2.0

//! The harness's side of receive side scaling: what the IP stack requests of an adapter.

use device_sim::toeplitz::KEY_LEN;
use ndk_abi::ndis::{
    NDIS_RECEIVE_HASH_FLAG_ENABLE_HASH, NDIS_RSS_PARAM_FLAG_DISABLE_RSS, OID_GEN_RECEIVE_HASH,
    OID_GEN_RECEIVE_SCALE_PARAMETERS,
};

use crate::{
    miniport::Miniport,
    oid::OidError,
    receive_hash::HashParameters,
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
        let groups = self.host().cpus.groups();
        let request = parameters.map_or_else(
            || disabled().encode_for(NDIS_RSS_PARAM_FLAG_DISABLE_RSS, groups),
            |parameters| parameters.encode_for(0, groups),
        );
        self.set(OID_GEN_RECEIVE_SCALE_PARAMETERS, &request)
    }

    /// Returns which hashes are requested without receive side scaling; `None` if none are.
    #[must_use]
    pub fn receive_hash(&self) -> Option<HashParameters> {
        self.adapter().rss.lock().hash()
    }

    /// Requests hashes without receive side scaling, or none.
    ///
    /// # Errors
    /// [`OidError`] when the miniport fails the request.
    ///
    /// # Panics
    /// When the host dies.
    pub fn set_receive_hash(&self, parameters: Option<&HashParameters>) -> Result<(), OidError> {
        let none = || HashParameters { types: 0, key: [0; KEY_LEN] };
        let request = parameters.map_or_else(
            || none().encode(0),
            |parameters| parameters.encode(NDIS_RECEIVE_HASH_FLAG_ENABLE_HASH),
        );
        self.set(OID_GEN_RECEIVE_HASH, &request)
    }
}
