// SPDX-License-Identifier: MIT OR Apache-2.0

//! The harness's side of receive side scaling: what the IP stack requests of an adapter.

use std::sync::Arc;

use device_sim::toeplitz::KEY_LEN;
use ndk_abi::ndis::{
    NDIS_OID, NDIS_RECEIVE_HASH_FLAG_ENABLE_HASH, NDIS_REQUEST_TYPE, NDIS_RSS_PARAM_FLAG_DISABLE_RSS,
    OID_GEN_RECEIVE_HASH, OID_GEN_RECEIVE_SCALE_PARAMETERS,
};
use nt_sim::Host;

use super::calls::request;
use crate::{
    adapter::Adapter,
    oid::{OidError, OidPath},
    receive_hash::HashParameters,
    rss::{RssCapabilities, RssParameters},
};

/// Requests of the IP stack to an adapter's receive side scaling; see [`Miniport::scaling`](super::Miniport::scaling).
pub struct ScalingRequests<'a> {
    pub(super) host: &'a Arc<Host>,
    pub(super) adapter: &'a Arc<Adapter>,
}

impl ScalingRequests<'_> {
    /// Returns what the miniport says of receive side scaling; `None` without it.
    #[must_use]
    pub fn capabilities(&self) -> Option<RssCapabilities> {
        self.adapter.rss.lock().capabilities
    }

    /// Returns the parameters of receive side scaling in force; `None` while it is disabled.
    #[must_use]
    pub fn parameters(&self) -> Option<RssParameters> {
        self.adapter.rss.lock().parameters()
    }

    /// Sets the parameters of receive side scaling, or disables it.
    ///
    /// # Errors
    /// [`OidError`] when the miniport fails the request.
    ///
    /// # Panics
    /// When the host dies.
    pub fn set(&self, parameters: Option<&RssParameters>) -> Result<(), OidError> {
        let disabled =
            || RssParameters { types: 0, key: [0; KEY_LEN], table: Vec::new(), default_processor: 0 };
        let groups = self.host.cpus.groups();
        let request = parameters.map_or_else(
            || disabled().encode_for(NDIS_RSS_PARAM_FLAG_DISABLE_RSS, groups),
            |parameters| parameters.encode_for(0, groups),
        );
        self.request(OID_GEN_RECEIVE_SCALE_PARAMETERS, request)
    }

    /// Returns which hashes are requested without receive side scaling; `None` if none are.
    #[must_use]
    pub fn hash(&self) -> Option<HashParameters> {
        self.adapter.rss.lock().hash()
    }

    /// Requests hashes without receive side scaling, or none.
    ///
    /// # Errors
    /// [`OidError`] when the miniport fails the request.
    ///
    /// # Panics
    /// When the host dies.
    pub fn set_hash(&self, parameters: Option<&HashParameters>) -> Result<(), OidError> {
        let none = || HashParameters { types: 0, key: [0; KEY_LEN] };
        let request = parameters.map_or_else(
            || none().encode(0),
            |parameters| parameters.encode(NDIS_RECEIVE_HASH_FLAG_ENABLE_HASH),
        );
        self.request(OID_GEN_RECEIVE_HASH, request)
    }

    fn request(&self, oid: NDIS_OID, value: Vec<u8>) -> Result<(), OidError> {
        let kind = NDIS_REQUEST_TYPE::NdisRequestSetInformation;
        request(self.host, self.adapter, OidPath::Regular, kind, oid, value).map(drop)
    }
}
