// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registration as a Network Direct provider, and opening and closing of NDK adapters by NDIS.

use core::ptr::null_mut;

use ndk_abi::ndis::{
    NDIS_DRIVER_OPTIONAL_HANDLERS, NDIS_HANDLE, NDIS_OBJECT_HEADER, NDIS_STATUS,
    NDIS_STATUS_INVALID_PARAMETER, NDIS_STATUS_SUCCESS, NdisSetOptionalHandlers,
};
use ndk_abi::ndk::{
    NDIS_NDK_PROVIDER_CHARACTERISTICS, NDIS_NDK_PROVIDER_CHARACTERISTICS_REVISION_1,
    NDIS_OBJECT_TYPE_NDK_PROVIDER_CHARACTERISTICS, NDIS_OPEN_NDK_ADAPTER_PARAMETERS,
    NDIS_SIZEOF_NDK_PROVIDER_CHARACTERISTICS_REVISION_1, NDK_ADAPTER,
};
use viordma_inf::tracing::value::Status;

use crate::etw::{self, table};
use crate::miniport::adapter::Adapter;
use crate::trace::interface_of;

/// `MiniportSetOptions`: registers the driver as an NDK provider. `PASSIVE_LEVEL`.
//= R-OPEN-1, R-OPEN-2
pub unsafe extern "efiapi" fn set_options(driver: NDIS_HANDLE, _context: NDIS_HANDLE) -> NDIS_STATUS {
    let mut handlers = NDIS_NDK_PROVIDER_CHARACTERISTICS {
        Header: NDIS_OBJECT_HEADER {
            Type: NDIS_OBJECT_TYPE_NDK_PROVIDER_CHARACTERISTICS,
            Revision: NDIS_NDK_PROVIDER_CHARACTERISTICS_REVISION_1,
            Size: NDIS_SIZEOF_NDK_PROVIDER_CHARACTERISTICS_REVISION_1,
        },
        Flags: 0,
        OpenNDKAdapterHandler: Some(open_ndk_adapter),
        CloseNDKAdapterHandler: Some(close_ndk_adapter),
    };
    let handlers = (&raw mut handlers).cast::<NDIS_DRIVER_OPTIONAL_HANDLERS>();
    // SAFETY: the handle is the driver's; the header describes the structure; NDIS copies it.
    unsafe { NdisSetOptionalHandlers(driver, handlers) }
}

/// `OpenNDKAdapterHandler`. `PASSIVE_LEVEL`.
//= R-OPEN-8, R-OPEN-18, R-OPEN-31
unsafe extern "efiapi" fn open_ndk_adapter(
    context: NDIS_HANDLE,
    parameters: *mut NDIS_OPEN_NDK_ADAPTER_PARAMETERS,
    opened: *mut *mut NDK_ADAPTER,
) -> NDIS_STATUS {
    // SAFETY: NDIS passes the context registered for this adapter.
    let adapter = unsafe { Adapter::from_context(context) };
    // SAFETY: NDIS passes a variable of its own for the result, valid for the call.
    unsafe { *opened = null_mut() };
    // SAFETY: NDIS's parameters, valid for the call.
    let parameters = unsafe { *parameters };
    if parameters.SwitchId != 0 || parameters.VPortId != 0 {
        return NDIS_STATUS_INVALID_PARAMETER;
    }
    let ndk = adapter.ndk();
    ndk.refresh_addresses();
    let result = ndk.provider().open(parameters.Version);
    etw::write(None, || table::NdkAdapterOpened {
        interface: interface_of(adapter.handle()),
        status: Status(result.err().unwrap_or(NDIS_STATUS_SUCCESS)),
    });
    match result {
        Ok(instance) => {
            // SAFETY: NDIS passes a variable of its own for the result, valid for the call.
            unsafe { *opened = instance };
            NDIS_STATUS_SUCCESS
        }
        Err(status) => status,
    }
}

/// `CloseNDKAdapterHandler`: returns when all objects of the NDK adapter are closed. `PASSIVE_LEVEL`.
//= R-OPEN-24
unsafe extern "efiapi" fn close_ndk_adapter(context: NDIS_HANDLE, instance: *mut NDK_ADAPTER) {
    // SAFETY: NDIS passes the context registered for this adapter.
    let adapter = unsafe { Adapter::from_context(context) };
    // SAFETY: an instance that `open_ndk_adapter` returned and that is closed once.
    unsafe { adapter.ndk().provider().close(instance) };
    etw::write(None, || table::NdkAdapterClosed { interface: interface_of(adapter.handle()) });
}
