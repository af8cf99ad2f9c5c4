// SPDX-License-Identifier: MIT OR Apache-2.0

//! Direct OID requests: NDIS does not serialize them, neither with each other nor with regular ones. (WDK, "Miniport Adapter Direct OID
//! Requests")

use ndk_abi::ndis::{
    NDIS_OID, NDIS_OID_REQUEST, NDIS_REQUEST_TYPE, NDIS_STATUS, NDIS_STATUS_ADAPTER_REMOVED,
    NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_PENDING, NDIS_STATUS_SUCCESS,
};
use nt_sim::{current, guest::Guest, image::call, imports};

use crate::{
    adapter::{Adapter, AdapterState, adapter},
    oid::{OidError, check_written, new_request},
    rules::{self, require},
    wait::wait,
};

/// Sends a direct request and waits for its completion, whatever other requests are in progress; returns the number of bytes written or
/// read. On a thread of the host, at `PASSIVE_LEVEL`.
pub(crate) fn send(
    adapter: &Adapter,
    kind: NDIS_REQUEST_TYPE,
    oid: NDIS_OID,
    buffer: &mut [u8],
) -> Result<u32, OidError> {
    if matches!(adapter.state(), AdapterState::Halted | AdapterState::Initializing) {
        return Err(OidError { status: NDIS_STATUS_ADAPTER_REMOVED, needed: 0 });
    }
    let Some(handler) = adapter.driver.characteristics.DirectOidRequestHandler else {
        return Err(OidError { status: NDIS_STATUS_NOT_SUPPORTED, needed: 0 });
    };
    let mut request = new_request(kind, oid, buffer);
    let pointer: *mut NDIS_OID_REQUEST = &raw mut *request;
    let pending = adapter.direct_oids.begin(pointer.addr(), current().host().event());
    let mut status = call("MiniportDirectOidRequest", || {
        // SAFETY: the image registered the function under this contract; the request lives until it is completed.
        unsafe { handler(adapter.context() as *mut _, pointer) }
    });
    if status == NDIS_STATUS_PENDING {
        wait(&pending.done);
        status = pending.status();
    } else {
        let is_in_progress = adapter.direct_oids.end(pointer.addr()).is_some();
        require(is_in_progress, rules::OID_COMPLETED, || {
            format!(
                "direct OID {oid:#x} was completed, and MiniportDirectOidRequest returned {status:#010x} for it"
            )
        });
    }
    // SAFETY: query and set have the same layout; the miniport is done with it.
    let query = unsafe { Guest::new(pointer).read().DATA.QUERY_INFORMATION };
    if status != NDIS_STATUS_SUCCESS {
        return Err(OidError { status, needed: query.BytesNeeded });
    }
    check_written(oid, query.BytesWritten, buffer.len());
    Ok(query.BytesWritten)
}

fn complete(adapter: &Adapter, request: Guest<NDIS_OID_REQUEST>, status: NDIS_STATUS) {
    require(status != NDIS_STATUS_PENDING, rules::OID_COMPLETED, || {
        "a direct OID request was completed with NDIS_STATUS_PENDING".into()
    });
    let pending = adapter.direct_oids.end(request.address());
    require(pending.is_some(), rules::OID_COMPLETED, || {
        "a direct OID request was completed twice, or does not pend".into()
    });
    if let Some(pending) = pending {
        pending.complete(status);
    }
}

imports! { IMPORTS: "ndis.sys" =>
    /// Completes a direct OID request that pended.
    [<= DISPATCH_LEVEL]
    fn NdisMDirectOidRequestComplete(handle: usize, request: Guest<NDIS_OID_REQUEST>, status: NDIS_STATUS) {
        complete(&adapter(handle), request, status);
    }
}
