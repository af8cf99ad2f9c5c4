// SPDX-License-Identifier: MIT OR Apache-2.0

//! The driver's registration with NDIS, with the table of all handlers, and its deregistration. `PASSIVE_LEVEL`.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use ndk_abi::ndis::{
    NDIS_HANDLE, NDIS_MINIPORT_DRIVER_CHARACTERISTICS, NDIS_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_3,
    NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_MINIPORT_DRIVER_CHARACTERISTICS,
    NDIS_SIZEOF_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_3, NDIS_STATUS, NDIS_STATUS_SUCCESS,
    NdisMDeregisterMiniportDriver, NdisMRegisterMiniportDriver,
};
use ndk_abi::nt::{DRIVER_OBJECT, UNICODE_STRING};

use super::version::DRIVER_VERSION;
use super::{initialize, lifecycle, oid_requests, receive, send};
use crate::driver_object;
use crate::etw;
use crate::ndk::open::set_options;

/// NDIS 6.85: Windows Server 2022.
const NDIS_VERSION: (u8, u8) = (6, 85);

/// The handle from `NdisMRegisterMiniportDriver`.
static DRIVER_HANDLE: AtomicPtr<core::ffi::c_void> = AtomicPtr::new(null_mut());

/// Registers the driver.
///
/// # Safety
/// The arguments are those of `DriverEntry`, which has not returned yet.
pub unsafe fn register(driver: *mut DRIVER_OBJECT, path: *mut UNICODE_STRING) -> NDIS_STATUS {
    driver_object::set(driver);
    etw::register();
    let (major, minor) = NDIS_VERSION;
    //= R-OPEN-3
    let mut characteristics = NDIS_MINIPORT_DRIVER_CHARACTERISTICS {
        Header: NDIS_OBJECT_HEADER {
            Type: NDIS_OBJECT_TYPE_MINIPORT_DRIVER_CHARACTERISTICS,
            Revision: NDIS_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_3,
            Size: NDIS_SIZEOF_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_3,
        },
        MajorNdisVersion: major,
        MinorNdisVersion: minor,
        MajorDriverVersion: DRIVER_VERSION.0,
        MinorDriverVersion: DRIVER_VERSION.1,
        Flags: 0,
        SetOptionsHandler: Some(set_options),
        InitializeHandlerEx: Some(initialize::initialize),
        HaltHandlerEx: Some(lifecycle::halt),
        UnloadHandler: Some(unload),
        PauseHandler: Some(lifecycle::pause),
        RestartHandler: Some(lifecycle::restart),
        OidRequestHandler: Some(oid_requests::oid_request),
        SendNetBufferListsHandler: Some(send::send_net_buffer_lists),
        ReturnNetBufferListsHandler: Some(receive::return_net_buffer_lists),
        CancelSendHandler: Some(send::cancel_send),
        CheckForHangHandlerEx: None,
        ResetHandlerEx: None,
        DevicePnPEventNotifyHandler: Some(lifecycle::device_pnp_event),
        ShutdownHandlerEx: Some(lifecycle::shutdown),
        CancelOidRequestHandler: Some(oid_requests::cancel_oid_request),
        DirectOidRequestHandler: Some(oid_requests::direct_oid_request),
        CancelDirectOidRequestHandler: Some(oid_requests::cancel_oid_request),
        SynchronousOidRequestHandler: None,
    };
    let mut handle: NDIS_HANDLE = null_mut();
    // SAFETY: this function's contract; the characteristics are complete and copied by NDIS.
    let status = unsafe {
        NdisMRegisterMiniportDriver(driver, path, null_mut(), &raw mut characteristics, &raw mut handle)
    };
    DRIVER_HANDLE.store(handle, Ordering::Release);
    if status != NDIS_STATUS_SUCCESS {
        etw::unregister();
    }
    status
}

/// `MiniportDriverUnload`: deregisters the driver. No adapter is left.
unsafe extern "efiapi" fn unload(_driver: *mut DRIVER_OBJECT) {
    let handle = DRIVER_HANDLE.swap(null_mut(), Ordering::AcqRel);
    // SAFETY: the handle of the one registration, given back once.
    unsafe { NdisMDeregisterMiniportDriver(handle) };
    etw::unregister();
}
