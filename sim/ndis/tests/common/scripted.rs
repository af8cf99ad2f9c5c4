// SPDX-License-Identifier: MIT OR Apache-2.0

//! A miniport that does the minimum, and what a test's script adds to it.
#![allow(unsafe_code, reason = "calls and implements functions of NDIS as drivers do")]

use std::{ffi::c_void, sync::Arc};

use device_sim::NicOptions;
use ndis_sim::{Miniport, NdisHost as _, adapter, interrupt, registration};
use ndk_abi::{
    ndis::{
        NDIS_HALT_ACTION, NDIS_HANDLE, NDIS_MEDIA_CONNECT_STATE, NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
        NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2, NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES,
        NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_2, NDIS_MINIPORT_ATTRIBUTES_BUS_MASTER,
        NDIS_MINIPORT_ATTRIBUTES_HARDWARE_DEVICE, NDIS_MINIPORT_DRIVER_CHARACTERISTICS,
        NDIS_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_3, NDIS_MINIPORT_INIT_PARAMETERS,
        NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS, NDIS_MINIPORT_INTERRUPT_REVISION_1,
        NDIS_MINIPORT_PAUSE_PARAMETERS, NDIS_MINIPORT_RESTART_PARAMETERS, NDIS_OBJECT_HEADER,
        NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
        NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES,
        NDIS_OBJECT_TYPE_MINIPORT_DRIVER_CHARACTERISTICS, NDIS_OBJECT_TYPE_MINIPORT_INTERRUPT,
        NDIS_OID_REQUEST, NDIS_SHUTDOWN_ACTION, NDIS_SIZEOF_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2,
        NDIS_SIZEOF_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_2,
        NDIS_SIZEOF_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_3,
        NDIS_SIZEOF_MINIPORT_INTERRUPT_CHARACTERISTICS_REVISION_1, NDIS_STATUS, NDIS_STATUS_NOT_SUPPORTED,
        NDIS_STATUS_SUCCESS, NET_BUFFER_LIST, NET_DEVICE_PNP_EVENT,
    },
    ndk::{
        NDIS_NDK_PROVIDER_CHARACTERISTICS, NDIS_NDK_PROVIDER_CHARACTERISTICS_REVISION_1,
        NDIS_OBJECT_TYPE_NDK_PROVIDER_CHARACTERISTICS, NDIS_OPEN_NDK_ADAPTER_PARAMETERS,
        NDIS_SIZEOF_NDK_PROVIDER_CHARACTERISTICS_REVISION_1, NDK_ADAPTER,
    },
    nt::DRIVER_OBJECT,
};
use nt_sim::{ClockKind, Host, Sim, guest::Guest, host::HostOptions};

/// The actions of the miniport in its handlers, besides the minimum.
#[derive(Clone, Copy, Default)]
pub struct Script {
    pub initialize: Option<fn(usize)>,
    pub restart: Option<fn(usize)>,
    pub halt: Option<fn(usize)>,
    pub oid: Option<fn(usize)>,
    /// Also completes the request.
    pub answer: Option<fn(usize, *mut NDIS_OID_REQUEST) -> NDIS_STATUS>,
    pub pause: Option<fn(usize) -> NDIS_STATUS>,
    /// Before `pause`.
    pub pausing: Option<fn(usize)>,
    /// Handles a chain of sends; they stay with the miniport without it.
    pub send: Option<fn(usize, *mut NET_BUFFER_LIST)>,
    /// `MiniportSetOptions`, with the driver's handle.
    pub options: Option<fn(usize)>,
    /// `OpenNDKAdapterHandler`: makes the miniport an NDK provider.
    pub open: Option<fn(*mut *mut NDK_ADAPTER) -> NDIS_STATUS>,
    /// `NDIS_MINIPORT_ATTRIBUTES_*` besides those of a bus master.
    pub attribute_flags: u32,
    /// Without the attribute flags of a bus master.
    pub is_virtual: bool,
    /// Initialization sets no attributes.
    pub silent: bool,
    /// The status of initialization.
    pub status: NDIS_STATUS,
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

fn registration(handle: usize, context: *mut Context, script: Script) -> NDIS_STATUS {
    registration_with(handle, context.expose_provenance(), |attributes| {
        let hardware = if script.is_virtual { 0 } else { attributes.AttributeFlags };
        attributes.AttributeFlags = hardware | script.attribute_flags;
    })
}

/// Sets the registration attributes after `edit` has changed them.
pub fn registration_with(
    handle: usize,
    context: usize,
    edit: impl FnOnce(&mut NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES),
) -> NDIS_STATUS {
    let mut attributes = NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES::zeroed();
    attributes.Header = header(
        NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES,
        NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_2,
        NDIS_SIZEOF_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_2,
    );
    attributes.MiniportAdapterContext = std::ptr::with_exposed_provenance_mut(context);
    attributes.AttributeFlags =
        NDIS_MINIPORT_ATTRIBUTES_HARDWARE_DEVICE | NDIS_MINIPORT_ATTRIBUTES_BUS_MASTER;
    edit(&mut attributes);
    adapter::NdisMSetMiniportAttributes(handle, Guest::new(&raw mut attributes).cast())
}

pub fn general(handle: usize) -> NDIS_STATUS {
    general_with(handle, |_| {})
}

/// Sets the general attributes after `edit` has changed them.
pub fn general_with(handle: usize, edit: fn(&mut NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES)) -> NDIS_STATUS {
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
    attributes.XmitLinkSpeed = 1;
    attributes.RcvLinkSpeed = 1;
    attributes.MediaConnectState = NDIS_MEDIA_CONNECT_STATE::MediaConnectStateConnected;
    attributes.MacAddressLength = 6;
    attributes.SupportedPacketFilters = 1;
    attributes.SupportedOidList = oids.as_mut_ptr();
    attributes.SupportedOidListLength = 4;
    edit(&mut attributes);
    adapter::NdisMSetMiniportAttributes(handle, Guest::new(&raw mut attributes).cast())
}

/// Connects interrupts whose handlers do nothing, after `edit` has changed their characteristics. Returns the handle.
pub fn interrupt_with(handle: usize, edit: fn(&mut NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS)) -> usize {
    connected(handle, edit).0
}

/// Connects the interrupt as [`interrupt_with`] does; returns the characteristics, too, as NDIS has completed them.
pub fn connected(
    handle: usize,
    edit: fn(&mut NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS),
) -> (usize, NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS) {
    unsafe extern "efiapi" fn isr(_: NDIS_HANDLE, _: *mut u8, _: *mut u32) -> u8 {
        0
    }
    unsafe extern "efiapi" fn message_isr(_: NDIS_HANDLE, _: u32, _: *mut u8, _: *mut u32) -> u8 {
        1
    }
    unsafe extern "efiapi" fn dpc(_: NDIS_HANDLE, _: *mut c_void, _: *mut c_void, _: *mut c_void) {}
    unsafe extern "efiapi" fn message_dpc(
        _: NDIS_HANDLE,
        _: u32,
        _: *mut c_void,
        _: *mut c_void,
        _: *mut c_void,
    ) {
    }
    unsafe extern "efiapi" fn switch(_: NDIS_HANDLE) {}
    unsafe extern "efiapi" fn message_switch(_: NDIS_HANDLE, _: u32) {}
    let mut characteristics = NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS::zeroed();
    characteristics.Header = header(
        NDIS_OBJECT_TYPE_MINIPORT_INTERRUPT,
        NDIS_MINIPORT_INTERRUPT_REVISION_1,
        NDIS_SIZEOF_MINIPORT_INTERRUPT_CHARACTERISTICS_REVISION_1,
    );
    characteristics.MsiSupported = 1;
    characteristics.InterruptHandler = Some(isr);
    characteristics.InterruptDpcHandler = Some(dpc);
    characteristics.DisableInterruptHandler = Some(switch);
    characteristics.EnableInterruptHandler = Some(switch);
    characteristics.MessageInterruptHandler = Some(message_isr);
    characteristics.MessageInterruptDpcHandler = Some(message_dpc);
    characteristics.DisableMessageInterruptHandler = Some(message_switch);
    characteristics.EnableMessageInterruptHandler = Some(message_switch);
    edit(&mut characteristics);
    let (registered, characteristics) = (kept(0_usize), kept(characteristics));
    let status = interrupt::NdisMRegisterInterruptEx(handle, 0, characteristics, registered);
    assert_eq!(status, NDIS_STATUS_SUCCESS);
    (registered.read(), characteristics.read())
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
        assert_eq!(registration(handle.addr(), context, script), NDIS_STATUS_SUCCESS);
        assert_eq!(general(handle.addr()), NDIS_STATUS_SUCCESS);
    }
    if let Some(violation) = script.initialize {
        violation(handle.addr());
    }
    script.status
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

unsafe extern "efiapi" fn oid(adapter: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    let context = context(adapter);
    if let Some(violation) = context.script.oid {
        violation(context.handle);
    }
    context.script.answer.map_or(NDIS_STATUS_NOT_SUPPORTED, |answer| answer(context.handle, request))
}

unsafe extern "efiapi" fn pause(
    adapter: NDIS_HANDLE,
    _parameters: *mut NDIS_MINIPORT_PAUSE_PARAMETERS,
) -> NDIS_STATUS {
    let context = context(adapter);
    if let Some(pausing) = context.script.pausing {
        pausing(context.handle);
    }
    context.script.pause.map_or(NDIS_STATUS_SUCCESS, |pause| pause(context.handle))
}

unsafe extern "efiapi" fn set_options(driver: NDIS_HANDLE, context: NDIS_HANDLE) -> NDIS_STATUS {
    // SAFETY: the script that `load` registered, never freed.
    let script = unsafe { *context.cast::<Script>() };
    if script.open.is_some() {
        return set_provider(driver.addr(), |_| {});
    }
    if let Some(violation) = script.options {
        violation(driver.addr());
    }
    NDIS_STATUS_SUCCESS
}

/// Makes the miniport an NDK provider. `edit` changes its characteristics.
pub fn set_provider(driver: usize, edit: fn(&mut NDIS_NDK_PROVIDER_CHARACTERISTICS)) -> NDIS_STATUS {
    let mut provider = NDIS_NDK_PROVIDER_CHARACTERISTICS::zeroed();
    provider.Header = header(
        NDIS_OBJECT_TYPE_NDK_PROVIDER_CHARACTERISTICS,
        NDIS_NDK_PROVIDER_CHARACTERISTICS_REVISION_1,
        NDIS_SIZEOF_NDK_PROVIDER_CHARACTERISTICS_REVISION_1,
    );
    provider.OpenNDKAdapterHandler = Some(open_ndk);
    provider.CloseNDKAdapterHandler = Some(close_ndk);
    edit(&mut provider);
    registration::NdisSetOptionalHandlers(driver, Guest::new(&raw mut provider).cast())
}

unsafe extern "efiapi" fn open_ndk(
    adapter: NDIS_HANDLE,
    _parameters: *mut NDIS_OPEN_NDK_ADAPTER_PARAMETERS,
    opened: *mut *mut NDK_ADAPTER,
) -> NDIS_STATUS {
    context(adapter).script.open.map_or(NDIS_STATUS_NOT_SUPPORTED, |open| open(opened))
}

unsafe extern "efiapi" fn close_ndk(_: NDIS_HANDLE, _: *mut NDK_ADAPTER) {}

unsafe extern "efiapi" fn unload(_driver: *mut DRIVER_OBJECT) {}
unsafe extern "efiapi" fn send(adapter: NDIS_HANDLE, lists: *mut NET_BUFFER_LIST, _: u32, _: u32) {
    let context = context(adapter);
    if let Some(send) = context.script.send {
        send(context.handle, lists);
    }
}
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
    characteristics.SetOptionsHandler = Some(set_options);
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
    register_as(host, kept(DRIVER_OBJECT::zeroed()), script, edit)
}

/// Registers the miniport as that of a driver object; otherwise as [`register`].
pub fn register_as(
    host: &Arc<Host>,
    object: Guest<DRIVER_OBJECT>,
    script: Script,
    edit: impl FnOnce(&mut NDIS_MINIPORT_DRIVER_CHARACTERISTICS) + Send + 'static,
) -> Option<NDIS_STATUS> {
    let entry = move || {
        let mut characteristics = characteristics();
        edit(&mut characteristics);
        let context = Box::leak(Box::new(script));
        let mut handle = 0_usize;
        registration::NdisMRegisterMiniportDriver(
            object,
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

/// Runs the miniport from registration to halt; returns what the verifier says.
pub fn verdict(script: Script) -> String {
    verdict_while_running(script, |_| {})
}

/// Runs `body` on a thread of the host, which it may kill; otherwise the thread ends.
#[track_caller]
pub fn run(host: &Arc<Host>, name: &str, body: impl FnOnce() + Send + 'static) {
    let ended = host.spawn(name, body).join();
    assert!(ended.is_ok() || host.is_dead(), "{ended:?}");
}

/// Returns the [`verdict`] of a script; `body` runs while the adapter does, on a thread of the host.
pub fn verdict_while_running(script: Script, body: fn(&Miniport)) -> String {
    let mut sim = simulation();
    let host = host(&mut sim);
    assert_eq!(register(&host, script, |_| {}), Some(NDIS_STATUS_SUCCESS), "{}", sim.verdict());
    if let Ok(miniport) = Miniport::start(&host) {
        let running = miniport.clone();
        run(&host, "caller", move || body(&running));
        if script.oid.is_some() || script.answer.is_some() {
            let asking = miniport.clone();
            run(&host, "OID", move || _ = asking.query(0x0001_0101, 4));
        }
        if !host.is_dead() {
            let _ = miniport.halt();
        }
    }
    sim.verdict().to_string()
}

#[track_caller]
pub fn assert_reported(script: Script, expected: &str) {
    let verdict = verdict(script);
    assert!(verdict.contains(expected), "expected '{expected}', got: {verdict}");
}

pub fn in_initialize(violation: fn(usize)) -> Script {
    Script { initialize: Some(violation), ..Script::default() }
}

/// A value that the miniport passes by address, never freed.
pub fn kept<T>(value: T) -> Guest<T> {
    Guest::new(Box::leak(Box::new(value)))
}

/// The action of an initialization, and the report.
pub type Offence = (fn(usize), &'static str);

#[track_caller]
pub fn assert_all_reported(offences: &[Offence]) {
    for &(offence, expected) in offences {
        assert_reported(in_initialize(offence), expected);
    }
}
