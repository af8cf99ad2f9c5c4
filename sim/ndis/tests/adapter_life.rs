// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls of a miniport from initialization to shutdown: what they pass, and what ends with the adapter.

use std::sync::{
    Mutex, OnceLock,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

use crate::common::{
    device::{reset_device, run_device, set_power_capable},
    scripted::{Script, assert_reported, general_with, host, in_initialize, kept, register, run, simulation},
};
use device_sim::NicOptions;
use ndis_sim::{Miniport, NdisHost as _, bus};
use ndk_abi::{
    ndis::{
        MINIPORT_INITIALIZE, NDIS_HANDLE, NDIS_MINIPORT_DRIVER_CHARACTERISTICS,
        NDIS_MINIPORT_INIT_PARAMETERS, NDIS_MINIPORT_INIT_PARAMETERS_REVISION_1,
        NDIS_MINIPORT_PAUSE_PARAMETERS, NDIS_MINIPORT_PAUSE_PARAMETERS_REVISION_1,
        NDIS_MINIPORT_RESTART_PARAMETERS, NDIS_MINIPORT_RESTART_PARAMETERS_REVISION_1, NDIS_OBJECT_HEADER,
        NDIS_OBJECT_TYPE_DEFAULT, NDIS_OBJECT_TYPE_MINIPORT_INIT_PARAMETERS, NDIS_OID_REQUEST,
        NDIS_SHUTDOWN_ACTION, NDIS_SIZEOF_MINIPORT_INIT_PARAMETER_REVISION_1,
        NDIS_SIZEOF_MINIPORT_PAUSE_PARAMETERS_REVISION_1, NDIS_SIZEOF_MINIPORT_RESTART_PARAMETERS_REVISION_1,
        NDIS_STATUS, NDIS_STATUS_BUFFER_TOO_SHORT, NDIS_STATUS_SUCCESS, NET_DEVICE_PNP_EVENT,
        OID_GEN_SUPPORTED_GUIDS,
    },
    nt::{
        CM_RESOURCE_INTERRUPT_LATCHED, CM_RESOURCE_INTERRUPT_MESSAGE, CmResourceTypeInterrupt,
        CmResourceTypeMemory,
    },
};
use nt_sim::{Irql, guest::Guest, host::HostOptions};

/// Type, revision and size of the parameters of each call.
static HEADERS: Mutex<Vec<(u8, u8, u16)>> = Mutex::new(Vec::new());
/// The resources, as bytes.
static RESOURCES: Mutex<Vec<u8>> = Mutex::new(Vec::new());
/// The scripted handler.
static INITIALIZE: OnceLock<MINIPORT_INITIALIZE> = OnceLock::new();

fn note(header: NDIS_OBJECT_HEADER) {
    HEADERS.lock().unwrap().push((header.Type, header.Revision, header.Size));
}

unsafe extern "efiapi" fn initialize(
    handle: NDIS_HANDLE,
    driver: NDIS_HANDLE,
    parameters: *mut NDIS_MINIPORT_INIT_PARAMETERS,
) -> NDIS_STATUS {
    let given = Guest::new(parameters).read();
    note(given.Header);
    let list: Guest<u8> = Guest::new(given.AllocatedResources.cast());
    let mut bytes = vec![0; 8 + DESCRIPTOR * list.field::<u32>(4).read() as usize];
    list.read_bytes(&mut bytes);
    *RESOURCES.lock().unwrap() = bytes;
    // SAFETY: the handler of the scripted miniport, with what NDIS has passed.
    unsafe { INITIALIZE.get().expect("it is registered")(handle, driver, parameters) }
}

unsafe extern "efiapi" fn pause(
    _: NDIS_HANDLE,
    parameters: *mut NDIS_MINIPORT_PAUSE_PARAMETERS,
) -> NDIS_STATUS {
    note(Guest::new(parameters).read().Header);
    NDIS_STATUS_SUCCESS
}

unsafe extern "efiapi" fn restart(
    _: NDIS_HANDLE,
    parameters: *mut NDIS_MINIPORT_RESTART_PARAMETERS,
) -> NDIS_STATUS {
    note(Guest::new(parameters).read().Header);
    NDIS_STATUS_SUCCESS
}

unsafe extern "efiapi" fn notify(_: NDIS_HANDLE, event: *mut NET_DEVICE_PNP_EVENT) {
    note(Guest::new(event).read().Header);
}

/// Bytes of a resource descriptor.
const DESCRIPTOR: usize = 20;

#[test]
fn calls_have_parameters_with_headers_and_the_resources_of_the_device() {
    let options = NicOptions::new([2, 0, 0, 0, 0, 1]);
    for vectors in [options.vectors, 0] {
        HEADERS.lock().unwrap().clear();
        assert_calls(NicOptions { vectors, ..options.clone() });
    }
}

/// Starts a miniport on such a device, and has it removed; checks what its handlers get.
fn assert_calls(device: NicOptions) {
    let mut sim = simulation();
    let host = sim.add_host(HostOptions::new("host"));
    host.plug(device);
    let edit = |of: &mut NDIS_MINIPORT_DRIVER_CHARACTERISTICS| {
        let _ = INITIALIZE.set(of.InitializeHandlerEx.expect("a handler"));
        of.InitializeHandlerEx = Some(initialize);
        of.PauseHandler = Some(pause);
        of.RestartHandler = Some(restart);
        of.DevicePnPEventNotifyHandler = Some(notify);
    };
    assert_eq!(register(&host, Script::default(), edit), Some(NDIS_STATUS_SUCCESS));
    let miniport = Miniport::start(&host).expect("it starts");
    let vectors = host.nics()[0].vectors();
    let bars = host.nics()[0].bars().len();
    miniport.surprise_remove().expect("the host lives");
    let initialization = (
        NDIS_OBJECT_TYPE_MINIPORT_INIT_PARAMETERS,
        NDIS_MINIPORT_INIT_PARAMETERS_REVISION_1,
        NDIS_SIZEOF_MINIPORT_INIT_PARAMETER_REVISION_1,
    );
    let of = |revision, size| (NDIS_OBJECT_TYPE_DEFAULT, revision, size);
    let headers = HEADERS.lock().unwrap().clone();
    let restart =
        of(NDIS_MINIPORT_RESTART_PARAMETERS_REVISION_1, NDIS_SIZEOF_MINIPORT_RESTART_PARAMETERS_REVISION_1);
    let pause =
        of(NDIS_MINIPORT_PAUSE_PARAMETERS_REVISION_1, NDIS_SIZEOF_MINIPORT_PAUSE_PARAMETERS_REVISION_1);
    // The event: NDIS_SIZEOF_NET_DEVICE_PNP_EVENT_REVISION_1.
    assert_eq!(headers, [initialization, restart, of(1, 0x2c), pause]);
    let resources = RESOURCES.lock().unwrap().clone();
    let interrupts = usize::from(vectors).max(1);
    assert_eq!(resources[..8], [1, 0, 1, 0, (bars + interrupts) as u8, 0, 0, 0]);
    let (descriptors, rest) = resources[8..].as_chunks::<DESCRIPTOR>();
    assert_eq!(rest, []);
    // A line is level-triggered.
    let message = (CM_RESOURCE_INTERRUPT_MESSAGE | CM_RESOURCE_INTERRUPT_LATCHED) as u8;
    let flags = if vectors == 0 { 0 } else { message };
    for (index, descriptor) in descriptors.iter().enumerate() {
        // Type, CmResourceShareDeviceExclusive, flags; level and vector as translated.
        let Some(number) = index.checked_sub(bars) else {
            assert_eq!(descriptor[..4], [CmResourceTypeMemory, 1, 0, 0], "{index}");
            continue;
        };
        let expected = [CmResourceTypeInterrupt, 1, flags, 0, Irql::DEVICE_LEVEL.0, 0, 0, 0];
        assert_eq!(descriptor[..8], expected, "{number}");
        assert_eq!(descriptor[8..12], [0x50 + number as u8, 0, 0, 0]);
    }
    assert_eq!(sim.verdict().to_string(), "no violation");
}

#[test]
fn miniport_stops_its_device_when_the_system_shuts_down() {
    static SHUT_DOWN: AtomicBool = AtomicBool::new(false);
    static ADAPTER: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "efiapi" fn shutdown(_: NDIS_HANDLE, action: NDIS_SHUTDOWN_ACTION) {
        assert_eq!(action, NDIS_SHUTDOWN_ACTION::NdisShutdownPowerOff);
        reset_device(ADAPTER.load(SeqCst));
        SHUT_DOWN.store(true, SeqCst);
    }
    let initialize = |handle| {
        ADAPTER.store(handle, SeqCst);
        run_device(handle);
    };
    let mut sim = simulation();
    let host = host(&mut sim);
    let edit = |of: &mut NDIS_MINIPORT_DRIVER_CHARACTERISTICS| of.ShutdownHandlerEx = Some(shutdown);
    assert_eq!(register(&host, in_initialize(initialize), edit), Some(NDIS_STATUS_SUCCESS));
    let miniport = Miniport::start(&host).expect("it starts");
    miniport.shut_down().expect("the host lives");
    assert!(SHUT_DOWN.load(SeqCst));
    assert_eq!(sim.verdict().to_string(), "no violation");
}

#[test]
fn device_of_an_adapter_that_was_halted_in_d3_is_started_in_d0() {
    let mut sim = simulation();
    let host = host(&mut sim);
    let script = Script {
        answer: Some(|_, _: *mut NDIS_OID_REQUEST| NDIS_STATUS_SUCCESS),
        ..in_initialize(set_power_capable)
    };
    assert_eq!(register(&host, script, |_| {}), Some(NDIS_STATUS_SUCCESS));
    let miniport = Miniport::start(&host).expect("it starts");
    miniport.sleep().expect("the host lives");
    miniport.halt().expect("the host lives");
    assert!(host.nics()[0].is_in_low_power());
    let miniport = Miniport::start(&host).expect("it starts");
    assert!(!host.nics()[0].is_in_low_power());
    miniport.halt().expect("the host lives");
    assert_eq!(sim.verdict().to_string(), "no violation");
}

#[test]
fn handle_of_an_adapter_ends_with_it() {
    let mut sim = simulation();
    let host = host(&mut sim);
    assert_eq!(register(&host, Script::default(), |_| {}), Some(NDIS_STATUS_SUCCESS));
    let miniport = Miniport::start(&host).expect("it starts");
    let handle = miniport.adapter().handle;
    let use_it = move || _ = bus::NdisMGetBusData(handle, 0, 0, kept([0_u8; 4]).cast(), 4);
    run(&host, "miniport", use_it);
    miniport.halt().expect("the host lives");
    assert_eq!(sim.verdict().to_string(), "no violation");
    run(&host, "miniport", use_it);
    let verdict = sim.verdict().to_string();
    assert!(verdict.contains(&format!("{handle:#x} is not a miniport adapter handle")), "{verdict}");
}

/// NDIS asks for custom GUIDs when the miniport has started. (WDK, "Customized OIDs and Status Indications")
#[test]
fn wrong_custom_guids_are_reported_when_the_adapter_starts() {
    let initialize = |handle| {
        let status = general_with(handle, |of| {
            of.SupportedOidList = kept([OID_GEN_SUPPORTED_GUIDS]).cast().as_ptr();
        });
        assert_eq!(status, NDIS_STATUS_SUCCESS);
    };
    let answer = |_, request: *mut NDIS_OID_REQUEST| {
        let request = Guest::new(request);
        let mut whole = request.read();
        // SAFETY: all members of the union are integers and pointers, of which any bytes are a value.
        let mut query = unsafe { whole.DATA.QUERY_INFORMATION };
        if query.Oid != OID_GEN_SUPPORTED_GUIDS {
            return NDIS_STATUS_SUCCESS;
        }
        if query.InformationBufferLength < 28 {
            query.BytesNeeded = 28;
            whole.DATA.QUERY_INFORMATION = query;
            request.write(whole);
            return NDIS_STATUS_BUFFER_TOO_SHORT;
        }
        Guest::<u8>::new(query.InformationBuffer.cast()).fill(0, 28);
        query.BytesWritten = 28;
        whole.DATA.QUERY_INFORMATION = query;
        request.write(whole);
        NDIS_STATUS_SUCCESS
    };
    let script = Script { answer: Some(answer), ..in_initialize(initialize) };
    assert_reported(script, "null, or not unique");
}
