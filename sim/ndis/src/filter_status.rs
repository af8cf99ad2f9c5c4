// SPDX-License-Identifier: MIT OR Apache-2.0

//! Statuses on their way from a miniport through the filter modules to the protocol drivers. (WDK: `FILTER_STATUS`, `NdisFIndicateStatus`)

use ndk_abi::ndis::{
    NDIS_OBJECT_TYPE_STATUS_INDICATION, NDIS_SIZEOF_STATUS_INDICATION_REVISION_1, NDIS_STATUS_INDICATION,
};
use nt_sim::{guest::Guest, image::call, imports};

use crate::{
    adapter::{Adapter, StatusIndication, adapter},
    filter_module::{self, Handler, module},
    rules::{self, require},
};

/// Returns the statuses that have reached the protocol drivers of an adapter so far: those of the miniport as far as filter modules pass them
/// on, and those of the modules.
#[must_use]
pub fn statuses(adapter: &Adapter) -> Vec<StatusIndication> {
    adapter.statuses.lock().clone()
}

/// Passes a status to the driver above the place `from`: a filter module that has a handler for it, in any state, or the protocol drivers.
pub(crate) fn pass_up(adapter: &Adapter, from: usize, indication: Guest<NDIS_STATUS_INDICATION>) {
    let filters = adapter.filters();
    let Some(module) = filters.iter().skip(from).find(|module| module.driver.has(Handler::Status)) else {
        let of = indication.read();
        let mut buffer = vec![0; of.StatusBufferSize as usize];
        if !buffer.is_empty() {
            Guest::<u8>::new(of.StatusBuffer.cast()).read_bytes(&mut buffer);
        }
        adapter.statuses.lock().push(StatusIndication { code: of.StatusCode, buffer });
        return;
    };
    // SAFETY: the type of the handler.
    let handler: filter_module::Status = unsafe { module.driver.handler(Handler::Status) };
    module.entered(|| {
        call(Handler::Status.name(), || {
            // SAFETY: the filter driver registered the function under this contract; the indication lives through the call.
            unsafe { handler(module.context() as *mut _, indication.as_ptr()) }
        });
    });
}

imports! { IMPORTS: "ndis.sys" =>
    /// Passes a status on to the drivers above, or reports one of the module's own.
    [<= DISPATCH_LEVEL]
    fn NdisFIndicateStatus(handle: usize, indication: Guest<NDIS_STATUS_INDICATION>) {
        let module = module(handle);
        require(module.context() != 0, rules::FILTER_STATUS, || {
            "NdisFIndicateStatus was called before NdisFSetAttributes".into()
        });
        let header = indication.read().Header;
        let (kind, size) = (NDIS_OBJECT_TYPE_STATUS_INDICATION, NDIS_SIZEOF_STATUS_INDICATION_REVISION_1);
        require(header.Type == kind && header.Revision >= 1 && header.Size >= size, rules::HEADER, || {
            format!("NdisFIndicateStatus with an indication of type {:#x} and {} bytes", header.Type, header.Size)
        });
        let adapter = adapter(module.adapter);
        let filters = adapter.filters();
        // A module that is being attached is above all others.
        let above = filters.iter().position(|other| other.handle == handle).map_or(filters.len(), |index| index + 1);
        pass_up(&adapter, above, indication);
    }
}
