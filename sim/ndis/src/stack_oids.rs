// SPDX-License-Identifier: MIT OR Apache-2.0

//! The OID requests of protocol drivers: to the filter modules and the miniport below.

use std::sync::Arc;

use ndk_abi::ndis::{NDIS_OID, NDIS_OID_REQUEST, NDIS_REQUEST_TYPE, NDIS_STATUS_ADAPTER_REMOVED};
use nt_sim::guest::Guest;

use crate::{
    adapter::{Adapter, AdapterState},
    filter_oid,
    oid::{OidError, OidPath, new_request, result},
};

impl Adapter {
    /// Sends a request after the previous ones are completed and waits for its completion; returns the number of bytes
    /// written or read. On a thread of the host, at `PASSIVE_LEVEL`.
    pub(crate) fn oid(
        self: &Arc<Self>,
        kind: NDIS_REQUEST_TYPE,
        oid: NDIS_OID,
        buffer: &mut [u8],
    ) -> Result<u32, OidError> {
        self.stack_oid.during(|| {
            if matches!(self.state(), AdapterState::Halted | AdapterState::Initializing) {
                return Err(OidError { status: NDIS_STATUS_ADAPTER_REMOVED, needed: 0 });
            }
            let mut request = new_request(kind, oid, buffer);
            let request = Guest::new(&raw mut *request);
            let status = filter_oid::pass_down(self, self.filters().len() + 1, OidPath::Regular, request);
            result(request, status)
        })
    }

    /// Sets an OID, as a protocol driver does. On a thread of the host, at `PASSIVE_LEVEL`.
    pub(crate) fn set_oid(self: &Arc<Self>, oid: NDIS_OID, value: &[u8]) -> Result<(), OidError> {
        let kind = NDIS_REQUEST_TYPE::NdisRequestSetInformation;
        self.oid(kind, oid, &mut value.to_vec()).map(drop)
    }
}

/// Sends a direct request and waits for its completion, whatever other requests are in progress; returns the number of bytes written or
/// read. On a thread of the host, at `PASSIVE_LEVEL`.
pub(crate) fn send_direct(
    adapter: &Arc<Adapter>,
    kind: NDIS_REQUEST_TYPE,
    oid: NDIS_OID,
    buffer: &mut [u8],
) -> Result<u32, OidError> {
    if matches!(adapter.state(), AdapterState::Halted | AdapterState::Initializing) {
        return Err(OidError { status: NDIS_STATUS_ADAPTER_REMOVED, needed: 0 });
    }
    let mut request = new_request(kind, oid, buffer);
    let request: Guest<NDIS_OID_REQUEST> = Guest::new(&raw mut *request);
    let status = filter_oid::pass_down(adapter, adapter.filters().len() + 1, OidPath::Direct, request);
    result(request, status)
}
