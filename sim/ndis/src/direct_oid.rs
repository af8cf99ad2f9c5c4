// SPDX-License-Identifier: MIT OR Apache-2.0

//! Direct OID requests: NDIS does not serialize them, neither with each other nor with regular ones. (WDK, "Miniport Adapter Direct OID
//! Requests")

use ndk_abi::ndis::{NDIS_OID_REQUEST, NDIS_STATUS, NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_PENDING};
use nt_sim::{current, guest::Guest, image::call, imports};

use crate::{
    adapter::{Adapter, adapter},
    oid::{check_written, information},
    rules::{self, require},
    wait::wait,
};

/// Passes a direct request to the miniport; returns the status of its completion.
pub(crate) fn carry_out(adapter: &Adapter, request: Guest<NDIS_OID_REQUEST>) -> NDIS_STATUS {
    let Some(handler) = adapter.driver.characteristics.DirectOidRequestHandler else {
        return NDIS_STATUS_NOT_SUPPORTED;
    };
    let pending = adapter.direct_oids.begin(request.address(), current().host().event());
    let mut status = call("MiniportDirectOidRequest", || {
        // SAFETY: the image registered the function under this contract; the request lives until it is completed.
        unsafe { handler(adapter.context() as *mut _, request.as_ptr()) }
    });
    let oid = information(request).Oid;
    if status == NDIS_STATUS_PENDING {
        wait(&pending.done);
        status = pending.status();
    } else {
        let is_in_progress = adapter.direct_oids.end(request.address()).is_some();
        require(is_in_progress, rules::OID_COMPLETED, || {
            format!(
                "direct OID {oid:#x} was completed, and MiniportDirectOidRequest returned {status:#010x} for it"
            )
        });
    }
    check_written(request, status);
    status
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
