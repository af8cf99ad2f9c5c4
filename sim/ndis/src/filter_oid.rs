// SPDX-License-Identifier: MIT OR Apache-2.0

//! OID requests on their way from the protocol drivers through the filter modules to the miniport, and those that modules originate. (WDK:
//! "Filter Module OID Requests", "Filter Module Direct OID Requests")

use std::{ffi::c_void, sync::Arc};

use ndk_abi::ndis::{
    NDIS_OBJECT_TYPE_OID_REQUEST, NDIS_OID_REQUEST, NDIS_SIZEOF_OID_REQUEST_REVISION_1, NDIS_STATUS,
    NDIS_STATUS_INVALID_PARAMETER, NDIS_STATUS_PENDING, NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS,
};
use nt_sim::{Host, Irql, current, guest::Guest, image::call, imports, memory::pool::Tag};

use crate::{
    adapter::{Adapter, adapter},
    block, direct_oid,
    filter_module::{self, FilterModule, Handler, ModuleState, module},
    oid::OidPath,
    owner,
    rules::{self, require},
};

const CLONE: &str = "NdisAllocateCloneOidRequest";
const CLONE_TAG: Tag = Tag(u32::from_le_bytes(*b"NDor"));

impl OidPath {
    const fn handler(self) -> Handler {
        match self {
            Self::Regular => Handler::OidRequest,
            Self::Direct => Handler::DirectOidRequest,
        }
    }

    const fn completion(self) -> Handler {
        match self {
            Self::Regular => Handler::OidRequestComplete,
            Self::Direct => Handler::DirectOidRequestComplete,
        }
    }

    const fn cancellation(self) -> Handler {
        match self {
            Self::Regular => Handler::CancelOidRequest,
            Self::Direct => Handler::CancelDirectOidRequest,
        }
    }
}

/// Returns the place of the module below `from` that has a handler; `None` for the miniport.
fn place_below(filters: &[Arc<FilterModule>], from: usize, handler: Handler) -> Option<usize> {
    (1..from).rev().find(|&place| filters[place - 1].driver.has(handler))
}

/// Passes a request to the driver below the place `from`, a filter module or the miniport; returns the status with which that completes it. On a
/// thread of the host, at `PASSIVE_LEVEL`.
pub(crate) fn pass_down(
    adapter: &Arc<Adapter>,
    from: usize,
    path: OidPath,
    request: Guest<NDIS_OID_REQUEST>,
) -> NDIS_STATUS {
    let filters = adapter.filters();
    match (place_below(&filters, from, path.handler()), path) {
        // NDIS serializes the requests to a driver, except for direct ones.
        (Some(place), OidPath::Regular) => {
            let module = &filters[place - 1];
            module.oid_turn.during(|| pass_to(module, path, request))
        }
        (Some(place), OidPath::Direct) => pass_to(&filters[place - 1], path, request),
        (None, OidPath::Regular) => adapter.without_oids(|| adapter.carry_out(request)),
        (None, OidPath::Direct) => direct_oid::carry_out(adapter, request),
    }
}

fn pass_to(module: &Arc<FilterModule>, path: OidPath, request: Guest<NDIS_OID_REQUEST>) -> NDIS_STATUS {
    let pending = module.oids.begin(request.address(), current().host().event());
    // SAFETY: the type of both handlers.
    let handler: filter_module::OidRequest = unsafe { module.driver.handler(path.handler()) };
    let mut status = NDIS_STATUS_PENDING;
    module.entered(|| {
        status = call(path.handler().name(), || {
            // SAFETY: the filter driver registered the function under this contract; the request lives until it is completed.
            unsafe { handler(module.context() as *mut _, request.as_ptr()) }
        });
    });
    if status == NDIS_STATUS_PENDING {
        crate::wait::wait(&pending.done);
        return pending.status();
    }
    let is_in_progress = module.oids.end(request.address()).is_some();
    require(is_in_progress, rules::FILTER_OID, || {
        let name = path.handler().name();
        format!("an OID request was completed, and {name} returned {status:#010x} for it")
    });
    status
}

/// Passes a request of a module down: on its thread, or later if that is not possible. NDIS may do either, so that each second one is passed
/// later.
fn originate(handle: usize, path: OidPath, request: Guest<NDIS_OID_REQUEST>) -> NDIS_STATUS {
    let what = match path {
        OidPath::Regular => "NdisFOidRequest",
        OidPath::Direct => "NdisFDirectOidRequest",
    };
    let module = module(handle);
    let state = module.state();
    let is_attached = !matches!(state, ModuleState::Attaching | ModuleState::Detached);
    require(is_attached, rules::FILTER_OID_STATES, || format!("{what} was called in state {state}"));
    let header = request.read().Header;
    if header.Type != NDIS_OBJECT_TYPE_OID_REQUEST || header.Size < NDIS_SIZEOF_OID_REQUEST_REVISION_1 {
        return NDIS_STATUS_INVALID_PARAMETER;
    }
    require(!module.oids.has(request.address()), rules::FILTER_OID_CLONED, || {
        format!("{what} of the request {:#x} that the module has got, not of a clone", request.address())
    });
    let adapter = adapter(module.adapter);
    let filters = adapter.filters();
    let from = filters.iter().position(|other| other.handle == handle).map_or(1, |index| index + 1);
    let is_busy = match (place_below(&filters, from, path.handler()), path) {
        (_, OidPath::Direct) => false,
        (Some(place), OidPath::Regular) => filters[place - 1].oid_turn.is_taken(),
        (None, OidPath::Regular) => adapter.miniport_oid.is_taken(),
    };
    let is_second = module.begin_oid();
    if current().irql() == Irql::PASSIVE_LEVEL && !is_busy && !is_second {
        let status = pass_down(&adapter, from, path, request);
        module.end_oid();
        return status;
    }
    let (host, request) = (current().host().clone(), request.address());
    drop(host.spawn("OID", move || {
        let request = Guest::from_address(request);
        let status = pass_down(&adapter, from, path, request);
        // SAFETY: the type of both handlers.
        let handler: filter_module::OidComplete = unsafe { module.driver.handler(path.completion()) };
        call(path.completion().name(), || {
            // SAFETY: the filter driver registered the function under this contract; the request is its own again.
            unsafe { handler(module.context() as *mut _, request.as_ptr(), status) }
        });
        module.end_oid();
    }));
    NDIS_STATUS_PENDING
}

fn complete(handle: usize, path: OidPath, request: Guest<NDIS_OID_REQUEST>, status: NDIS_STATUS) {
    let what = match path {
        OidPath::Regular => "NdisFOidRequestComplete",
        OidPath::Direct => "NdisFDirectOidRequestComplete",
    };
    require(status != NDIS_STATUS_PENDING, rules::FILTER_OID, || format!("{what} with NDIS_STATUS_PENDING"));
    let pending = module(handle).oids.end(request.address());
    require(pending.is_some(), rules::FILTER_OID, || {
        format!("{what} of {:#x}, which the module does not have", request.address())
    });
    if let Some(pending) = pending {
        pending.complete(status);
    }
}

/// Passes the cancellation of a module's requests down.
fn cancel(handle: usize, path: OidPath, id: *mut c_void) {
    let module = module(handle);
    let adapter = adapter(module.adapter);
    let filters = adapter.filters();
    let from = filters.iter().position(|other| other.handle == handle).map_or(1, |index| index + 1);
    if let Some(place) = place_below(&filters, from, path.cancellation()) {
        let below = &filters[place - 1];
        // SAFETY: the type of both handlers.
        let handler: filter_module::Cancel = unsafe { below.driver.handler(path.cancellation()) };
        below.entered(|| {
            call(path.cancellation().name(), || {
                // SAFETY: the filter driver registered the function under this contract; the ID is a value.
                unsafe { handler(below.context() as *mut _, id) }
            });
        });
        return;
    }
    let characteristics = &adapter.driver.characteristics;
    let context = adapter.context() as *mut _;
    match path {
        OidPath::Regular => {
            let Some(handler) = characteristics.CancelOidRequestHandler else { return };
            // SAFETY: the miniport registered the function under this contract; the ID is a value.
            call("MiniportCancelOidRequest", || unsafe { handler(context, id) });
        }
        OidPath::Direct => {
            let Some(handler) = characteristics.CancelDirectOidRequestHandler else { return };
            // SAFETY: the miniport registered the function under this contract; the ID is a value.
            call("MiniportCancelDirectOidRequest", || unsafe { handler(context, id) });
        }
    }
}

fn clone(host: &Host, source: usize, request: Guest<NDIS_OID_REQUEST>) -> Option<usize> {
    let memory = block::allocate(host, size_of::<NDIS_OID_REQUEST>(), CLONE_TAG)?;
    let mut bytes = [0; size_of::<NDIS_OID_REQUEST>()];
    let length = usize::from(request.read().Header.Size).min(bytes.len());
    request.cast::<u8>().read_bytes(&mut bytes[..length]);
    memory.write_bytes(&bytes);
    owner::hold(host, source, CLONE, memory.address());
    Some(memory.address())
}

imports! { IMPORTS: "ndis.sys" =>
    /// Passes a request of a filter module to the drivers below.
    [<= DISPATCH_LEVEL]
    fn NdisFOidRequest(handle: usize, request: Guest<NDIS_OID_REQUEST>) -> NDIS_STATUS {
        originate(handle, OidPath::Regular, request)
    }

    /// Passes a direct request of a filter module to the drivers below.
    [<= DISPATCH_LEVEL]
    fn NdisFDirectOidRequest(handle: usize, request: Guest<NDIS_OID_REQUEST>) -> NDIS_STATUS {
        originate(handle, OidPath::Direct, request)
    }

    /// Completes a request that a filter module has got, and that pended.
    [<= DISPATCH_LEVEL]
    fn NdisFOidRequestComplete(handle: usize, request: Guest<NDIS_OID_REQUEST>, status: NDIS_STATUS) {
        complete(handle, OidPath::Regular, request, status);
    }

    /// Completes a direct request that a filter module has got, and that pended.
    [<= DISPATCH_LEVEL]
    fn NdisFDirectOidRequestComplete(handle: usize, request: Guest<NDIS_OID_REQUEST>, status: NDIS_STATUS) {
        complete(handle, OidPath::Direct, request, status);
    }

    /// Cancels requests in the drivers below.
    [<= DISPATCH_LEVEL]
    fn NdisFCancelOidRequest(handle: usize, id: usize) {
        cancel(handle, OidPath::Regular, std::ptr::without_provenance_mut(id));
    }

    /// Cancels direct requests in the drivers below.
    [<= DISPATCH_LEVEL]
    fn NdisFCancelDirectOidRequest(handle: usize, id: usize) {
        cancel(handle, OidPath::Direct, std::ptr::without_provenance_mut(id));
    }

    /// Copies a request, so that the copy can be passed down.
    [<= DISPATCH_LEVEL]
    fn NdisAllocateCloneOidRequest(
        source: usize,
        request: Guest<NDIS_OID_REQUEST>,
        tag: u32,
        result: Guest<usize>,
    ) -> NDIS_STATUS {
        let _ = tag;
        let clone = clone(current().host(), source, request);
        result.write(clone.unwrap_or(0));
        if clone.is_some() { NDIS_STATUS_SUCCESS } else { NDIS_STATUS_RESOURCES }
    }

    /// Frees the copy of a request.
    [<= DISPATCH_LEVEL]
    fn NdisFreeCloneOidRequest(source: usize, request: Guest<NDIS_OID_REQUEST>) {
        let me = current();
        let is_its = owner::is_held(me.host(), source, CLONE, request.address());
        require(is_its, rules::OID_CLONE, || {
            format!("NdisFreeCloneOidRequest of {:#x}, which is no clone of this driver's", request.address())
        });
        let _ = owner::release(me.host(), CLONE, request.address());
        block::release(me.host(), request.cast(), CLONE_TAG);
    }
}
