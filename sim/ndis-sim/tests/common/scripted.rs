// SPDX-License-Identifier: MIT OR Apache-2.0

//! A miniport that does the minimum, and what a test's script adds to it.

use std::{ffi::c_void, sync::Arc};

use device_sim::NicOptions;
use ndis_sim::{NdisHost as _, adapter, registration};
use ndk_abi::{
    ndis::{
        NDIS_HALT_ACTION, NDIS_HANDLE, NDIS_MEDIA_CONNECT_STATE, NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
        NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2, NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES,
        NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_2, NDIS_MINIPORT_ATTRIBUTES_BUS_MASTER,
        NDIS_MINIPORT_ATTRIBUTES_HARDWARE_DEVICE, NDIS_MINIPORT_DRIVER_CHARACTERISTICS,
        NDIS_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_3, NDIS_MINIPORT_INIT_PARAMETERS,
        NDIS_MINIPORT_PAUSE_PARAMETERS, NDIS_MINIPORT_RESTART_PARAMETERS, NDIS_OBJECT_HEADER,
        NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
        NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES,
        NDIS_OBJECT_TYPE_MINIPORT_DRIVER_CHARACTERISTICS, NDIS_OID_REQUEST, NDIS_SHUTDOWN_ACTION,
        NDIS_SIZEOF_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2,
        NDIS_SIZEOF_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_2,
        NDIS_SIZEOF_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_3, NDIS_STATUS, NDIS_STATUS_NOT_SUPPORTED,
        NDIS_STATUS_SUCCESS, NET_BUFFER_LIST, NET_DEVICE_PNP_EVENT,
    },
    nt::DRIVER_OBJECT,
};
use nt_sim::{ClockKind, Host, Sim, guest::Guest, host::HostOptions};

/// What the miniport does in its handlers, besides the minimum.
#[derive(Clone, Copy, Default)]
pub struct Script {
    pub initialize: Option<fn(usize)>,
    pub restart: Option<fn(usize)>,
    pub halt: Option<fn(usize)>,
    pub oid: Option<fn(usize)>,
    /// Initialization sets no attributes.
    pub silent: bool,
}

struct Context {
    script: Script,
    handle: usize,
}

pub fn header(kind: u8, revision: u8, size: u16) -> NDIS_OBJECT_HEADER {
    NDIS_OBJECT_HEADER { Type: kind, Revision: revision, Size: size }
}

fn context<'a>(pointer: NDIS_HANDLE) -> &'a Context {
    // SAFETY: the context that `initialize` registered, never freed.
    unsafe { &*pointer.cast::<Context>() }
}

fn registration(handle: usize, context: *mut Context) -> NDIS_STATUS {
    let mut attributes = NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES::zeroed();
    attributes.Header = header(
        NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES,
        NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_2,
        NDIS_SIZEOF_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_2,
    );
    attributes.MiniportAdapterContext = context.cast();
    attributes.AttributeFlags =
        NDIS_MINIPORT_ATTRIBUTES_HARDWARE_DEVICE | NDIS_MINIPORT_ATTRIBUTES_BUS_MASTER;
    adapter::NdisMSetMiniportAttributes(handle, Guest::new(&raw mut attributes).cast())
}

pub fn general(handle: usize) -> NDIS_STATUS {
    let mut oids = [0x0001_0101_u32];
    let mut attributes = NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES::zeroed();
    attributes.Header = header(
        NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
        NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2,
        NDIS_SIZEOF_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2,
    );
    attributes.MtuSize = 1500;
    attributes.MaxXmitLinkSpeed = 1;
    attributes.MaxRcvLinkSpeed = 1;
    attributes.MediaConnectState = NDIS_MEDIA_CONNECT_STATE::MediaConnectStateConnected;
    attributes.MacAddressLength = 6;
    attributes.SupportedPacketFilters = 1;
    attributes.SupportedOidList = oids.as_mut_ptr();
    attributes.SupportedOidListLength = 4;
    adapter::NdisMSetMiniportAttributes(handle, Guest::new(&raw mut attributes).cast())
}

unsafe extern "efiapi" fn initialize(
    handle: NDIS_HANDLE,
    driver: NDIS_HANDLE,
    _parameters: *mut NDIS_MINIPORT_INIT_PARAMETERS,
) -> NDIS_STATUS {
    // SAFETY: the script that `load` registered, never freed.
    let script = unsafe { *driver.cast::<Script>() };
    let context = Box::leak(Box::new(Context { script, handle: handle.addr() }));
    if !script.silent {
        assert_eq!(registration(handle.addr(), context), NDIS_STATUS_SUCCESS);
        assert_eq!(general(handle.addr()), NDIS_STATUS_SUCCESS);
    }
    if let Some(violation) = script.initialize {
        violation(handle.addr());
    }
    NDIS_STATUS_SUCCESS
}

unsafe extern "efiapi" fn halt(adapter: NDIS_HANDLE, _action: NDIS_HALT_ACTION) {
    let context = context(adapter);
    if let Some(violation) = context.script.halt {
        violation(context.handle);
    }
}

unsafe extern "efiapi" fn restart(
    adapter: NDIS_HANDLE,
    _parameters: *mut NDIS_MINIPORT_RESTART_PARAMETERS,
) -> NDIS_STATUS {
    let context = context(adapter);
    if let Some(violation) = context.script.restart {
        violation(context.handle);
    }
    NDIS_STATUS_SUCCESS
}

unsafe extern "efiapi" fn oid(adapter: NDIS_HANDLE, _request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    let context = context(adapter);
    if let Some(violation) = context.script.oid {
        violation(context.handle);
    }
    NDIS_STATUS_NOT_SUPPORTED
}

unsafe extern "efiapi" fn unload(_driver: *mut DRIVER_OBJECT) {}
unsafe extern "efiapi" fn pause(_: NDIS_HANDLE, _: *mut NDIS_MINIPORT_PAUSE_PARAMETERS) -> NDIS_STATUS {
    NDIS_STATUS_SUCCESS
}
unsafe extern "efiapi" fn send(_: NDIS_HANDLE, _: *mut NET_BUFFER_LIST, _: u32, _: u32) {}
unsafe extern "efiapi" fn give_back(_: NDIS_HANDLE, _: *mut NET_BUFFER_LIST, _: u32) {}
unsafe extern "efiapi" fn cancel(_: NDIS_HANDLE, _: *mut c_void) {}
unsafe extern "efiapi" fn pnp(_: NDIS_HANDLE, _: *mut NET_DEVICE_PNP_EVENT) {}
unsafe extern "efiapi" fn shutdown(_: NDIS_HANDLE, _: NDIS_SHUTDOWN_ACTION) {}

pub fn characteristics() -> NDIS_MINIPORT_DRIVER_CHARACTERISTICS {
    let mut characteristics = NDIS_MINIPORT_DRIVER_CHARACTERISTICS::zeroed();
    characteristics.Header = header(
        NDIS_OBJECT_TYPE_MINIPORT_DRIVER_CHARACTERISTICS,
        NDIS_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_3,
        NDIS_SIZEOF_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_3,
    );
    characteristics.MajorNdisVersion = 6;
    characteristics.MinorNdisVersion = 85;
    characteristics.InitializeHandlerEx = Some(initialize);
    characteristics.HaltHandlerEx = Some(halt);
    characteristics.UnloadHandler = Some(unload);
    characteristics.PauseHandler = Some(pause);
    characteristics.RestartHandler = Some(restart);
    characteristics.OidRequestHandler = Some(oid);
    characteristics.SendNetBufferListsHandler = Some(send);
    characteristics.ReturnNetBufferListsHandler = Some(give_back);
    characteristics.CancelSendHandler = Some(cancel);
    characteristics.DevicePnPEventNotifyHandler = Some(pnp);
    characteristics.ShutdownHandlerEx = Some(shutdown);
    characteristics
}

pub fn host(sim: &mut Sim) -> Arc<Host> {
    let host = sim.add_host(HostOptions::new("host"));
    host.plug(NicOptions::new([2, 0, 0, 0, 0, 1]));
    host
}

/// Registers the miniport on a thread of the host; the host may die of it.
pub fn register(
    host: &Arc<Host>,
    script: Script,
    edit: impl FnOnce(&mut NDIS_MINIPORT_DRIVER_CHARACTERISTICS) + Send + 'static,
) -> Option<NDIS_STATUS> {
    let entry = move || {
        let mut characteristics = characteristics();
        edit(&mut characteristics);
        let object = Box::leak(Box::new(DRIVER_OBJECT::zeroed()));
        let context = Box::leak(Box::new(script));
        let mut handle = 0_usize;
        registration::NdisMRegisterMiniportDriver(
            Guest::new(object),
            Guest::null(),
            std::ptr::from_mut(context).expose_provenance(),
            Guest::new(&raw mut characteristics),
            Guest::new(&raw mut handle),
        )
    };
    host.spawn("system", entry).join().ok()
}

pub fn simulation() -> Sim {
    ndis_sim::builder().clock(ClockKind::Deterministic { seed: 1 }).build()
}
