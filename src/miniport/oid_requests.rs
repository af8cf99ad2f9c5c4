// SPDX-License-Identifier: MIT OR Apache-2.0

//! OID requests: the functions that NDIS calls. Each request is completed synchronously, except for changes of the power state.
//!
//! [`oid_table`] lists the OIDs and their handlers.

use core::ffi::c_void;

use ndk_abi::ndis::{
    NDIS_DEVICE_POWER_STATE, NDIS_HANDLE, NDIS_OID, NDIS_OID_REQUEST, NDIS_REQUEST_TYPE, NDIS_STATUS,
    NDIS_STATUS_NOT_SUPPORTED, OID_PNP_SET_POWER,
};
use viordma_inf::tracing::value::{Hex, Status};

use super::adapter::Adapter;
use super::set_value::value;
use super::{oid_table, power};
use crate::etw::{self, table};
use crate::trace::interface_of;

/// `MiniportOidRequest`. `PASSIVE_LEVEL`, one at a time.
pub unsafe extern "efiapi" fn oid_request(
    context: NDIS_HANDLE,
    request: *mut NDIS_OID_REQUEST,
) -> NDIS_STATUS {
    // SAFETY: NDIS passes the context registered for this adapter.
    let adapter = unsafe { Adapter::from_context(context) };
    // SAFETY: NDIS's request, the driver's alone until it returns.
    let request = unsafe { &mut *request };
    match request.RequestType {
        NDIS_REQUEST_TYPE::NdisRequestQueryInformation | NDIS_REQUEST_TYPE::NdisRequestQueryStatistics => {
            // SAFETY: the type says which member of the union is in use.
            let member = unsafe { &mut request.DATA.QUERY_INFORMATION };
            traced(adapter, "query", member.Oid, oid_table::query(adapter, member))
        }
        NDIS_REQUEST_TYPE::NdisRequestSetInformation => {
            // SAFETY: the type says which member of the union is in use.
            let member = unsafe { &mut request.DATA.SET_INFORMATION };
            if member.Oid == OID_PNP_SET_POWER {
                return match value::<NDIS_DEVICE_POWER_STATE>(member) {
                    Err(status) => traced(adapter, "set", OID_PNP_SET_POWER, status),
                    Ok(state) => power::set(adapter, state, request),
                };
            }
            traced(adapter, "set", member.Oid, oid_table::set(adapter, member))
        }
        _ => NDIS_STATUS_NOT_SUPPORTED,
    }
}

/// `MiniportDirectOidRequest`: concurrent with everything. IRQL <= `DISPATCH_LEVEL`.
//= R-OIDNDK-16
pub unsafe extern "efiapi" fn direct_oid_request(
    context: NDIS_HANDLE,
    request: *mut NDIS_OID_REQUEST,
) -> NDIS_STATUS {
    // SAFETY: NDIS passes the context registered for this adapter.
    let adapter = unsafe { Adapter::from_context(context) };
    // SAFETY: NDIS's request, the driver's alone until it returns.
    let request = unsafe { &mut *request };
    let kinds =
        [NDIS_REQUEST_TYPE::NdisRequestQueryInformation, NDIS_REQUEST_TYPE::NdisRequestQueryStatistics];
    if !kinds.contains(&request.RequestType) {
        return NDIS_STATUS_NOT_SUPPORTED;
    }
    // SAFETY: the type says which member of the union is in use.
    let member = unsafe { &mut request.DATA.QUERY_INFORMATION };
    traced(adapter, "direct query", member.Oid, oid_table::query_direct(adapter, member))
}

/// Writes a request that was handled to the trace. Returns its status.
fn traced(adapter: &Adapter, request: &'static str, oid: NDIS_OID, status: NDIS_STATUS) -> NDIS_STATUS {
    etw::write(None, || table::OidCompleted {
        interface: interface_of(adapter.handle()),
        request,
        oid: Hex(oid),
        status: Status(status),
    });
    status
}

/// `MiniportCancelOidRequest` and `MiniportCancelDirectOidRequest`: the only request that pends, `OID_PNP_SET_POWER`, ends in
/// bounded time.
pub unsafe extern "efiapi" fn cancel_oid_request(_context: NDIS_HANDLE, _request: *mut c_void) {}
