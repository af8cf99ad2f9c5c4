// SPDX-License-Identifier: MIT OR Apache-2.0

//! Life of an adapter: the calls of the miniport from initialization to halt. On a thread of the adapter's host, at
//! `PASSIVE_LEVEL`. (windows-packaging §8.2)

use std::{
    fmt,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use ndk_abi::{
    ndis::{
        NDIS_DEVICE_PNP_EVENT, NDIS_HALT_ACTION, NDIS_MINIPORT_INIT_PARAMETERS,
        NDIS_MINIPORT_INIT_PARAMETERS_REVISION_1, NDIS_MINIPORT_PAUSE_PARAMETERS,
        NDIS_MINIPORT_PAUSE_PARAMETERS_REVISION_1, NDIS_MINIPORT_RESTART_PARAMETERS,
        NDIS_MINIPORT_RESTART_PARAMETERS_REVISION_1, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT,
        NDIS_OBJECT_TYPE_MINIPORT_INIT_PARAMETERS, NDIS_SHUTDOWN_ACTION,
        NDIS_SIZEOF_MINIPORT_INIT_PARAMETER_REVISION_1, NDIS_SIZEOF_MINIPORT_PAUSE_PARAMETERS_REVISION_1,
        NDIS_SIZEOF_MINIPORT_RESTART_PARAMETERS_REVISION_1, NDIS_STATUS, NDIS_STATUS_PENDING,
        NDIS_STATUS_SUCCESS, NET_DEVICE_PNP_EVENT,
    },
    netio::NET_LUID,
};
use nt_sim::{Host, Tolerance, guest::Guest, image::call, thread::Lost};

use crate::{
    adapter::{ADAPTERS, Adapter, AdapterState, adapters},
    bus,
    driver::Driver,
    filter_pnp, filter_stack,
    handle::HANDLES,
    hang,
    interface::{Interface, interfaces},
    ndk_state, owner,
    protocol::Binding,
    rules::{self, require},
    wait::wait,
    wmi,
};

/// Revision 1 of `NET_DEVICE_PNP_EVENT`, and its `NDIS_SIZEOF_`.
const DEVICE_PNP_EVENT_REVISION: u8 = 1;
const DEVICE_PNP_EVENT_LEN: u16 = 0x2c;
/// Reasons why an adapter did not start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StartError {
    /// No driver is registered, or no NIC is left for it.
    NothingToStart,
    /// MiniportInitializeEx failed.
    Initialize(NDIS_STATUS),
    /// MiniportRestart failed.
    Restart(NDIS_STATUS),
    /// The host died.
    Lost(Lost),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingToStart => f.write_str("no driver is registered, or no NIC is left for it"),
            Self::Initialize(status) => write!(f, "MiniportInitializeEx failed: {status:#010x}"),
            Self::Restart(status) => write!(f, "MiniportRestart failed: {status:#010x}"),
            Self::Lost(lost) => lost.fmt(f),
        }
    }
}

impl std::error::Error for StartError {}

impl From<Lost> for StartError {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}
fn header(kind: u8, revision: u8, size: u16) -> NDIS_OBJECT_HEADER {
    NDIS_OBJECT_HEADER { Type: kind, Revision: revision, Size: size }
}

/// Returns the interface of the first NIC without an adapter.
pub(crate) fn next_interface(host: &Host) -> Option<Arc<Interface>> {
    let started = adapters(host);
    let is_free = |interface: &Arc<Interface>| {
        !started.iter().any(|adapter| Arc::ptr_eq(&adapter.interface, interface))
    };
    interfaces(host).into_iter().find(is_free)
}

/// Adds an adapter of `driver` on an interface.
///
/// # Errors
/// [`StartError::NothingToStart`] when the interface has one.
fn add(host: &Host, driver: Arc<Driver>, interface: Arc<Interface>) -> Result<Arc<Adapter>, StartError> {
    let mut started = host.state(&ADAPTERS).lock();
    if started.iter().any(|adapter| Arc::ptr_eq(&adapter.interface, &interface)) {
        return Err(StartError::NothingToStart);
    }
    let handles = host.state(&HANDLES);
    let binding = handles.insert(Arc::new(Binding));
    let adapter =
        handles.insert_with(|handle| Arc::new(Adapter::new(host, handle, binding, driver, interface)));
    started.push(adapter.clone());
    Ok(adapter)
}

/// Initializes an adapter.
pub(crate) fn initialize(
    host: &Arc<Host>,
    driver: Arc<Driver>,
    interface: Arc<Interface>,
) -> Result<Arc<Adapter>, StartError> {
    let initialize = driver.characteristics.InitializeHandlerEx.ok_or(StartError::NothingToStart)?;
    let adapter = add(host, driver, interface)?;
    if adapter.nic.is_in_low_power() {
        // An adapter was halted in D3. Devices are started in D0.
        adapter.nic.leave_low_power();
    }
    bus::enable_bus_mastering(host, &*adapter.nic);
    let mut resources = bus::resources(&*adapter.nic);
    let mut parameters = NDIS_MINIPORT_INIT_PARAMETERS {
        Header: header(
            NDIS_OBJECT_TYPE_MINIPORT_INIT_PARAMETERS,
            NDIS_MINIPORT_INIT_PARAMETERS_REVISION_1,
            NDIS_SIZEOF_MINIPORT_INIT_PARAMETER_REVISION_1,
        ),
        Flags: 0,
        AllocatedResources: resources.as_mut_ptr().cast(),
        IMDeviceInstanceContext: std::ptr::null_mut(),
        MiniportAddDeviceContext: std::ptr::null_mut(),
        IfIndex: adapter.if_index,
        NetLuid: NET_LUID { Value: adapter.interface.luid },
        DefaultPortAuthStates: std::ptr::null_mut(),
        PciDeviceCustomProperties: std::ptr::null_mut(),
    };
    let pointer = &raw mut parameters;
    let status = call("MiniportInitializeEx", || {
        let (handle, context) = (adapter.handle as *mut _, adapter.driver.context as *mut _);
        // SAFETY: the image registered the function under this contract; the parameters live through the call.
        unsafe { initialize(handle, context, pointer) }
    });
    require(status != NDIS_STATUS_PENDING, rules::INITIALIZED, || "MiniportInitializeEx pended".into());
    if status != NDIS_STATUS_SUCCESS {
        remove(host, &adapter, "a failed MiniportInitializeEx");
        return Err(StartError::Initialize(status));
    }
    let attributes = adapter.attributes();
    require(attributes.general.is_some(), rules::ATTRIBUTES_FIRST, || {
        "MiniportInitializeEx succeeded without general attributes".into()
    });
    let is_provider = adapter.driver.ndk.lock().is_some();
    require(!is_provider || attributes.ndk.is_some(), rules::NDK_ATTRIBUTES, || {
        "MiniportInitializeEx of an NDK provider succeeded without NDK attributes".into()
    });
    *adapter.state.lock() = AdapterState::Paused;
    wmi::register(&adapter);
    filter_stack::attach_all(host, &adapter);
    Ok(adapter)
}

/// Waits for the end of a pause or restart that may have pended.
fn transition(adapter: &Adapter, status: NDIS_STATUS) -> NDIS_STATUS {
    if status != NDIS_STATUS_PENDING {
        return status;
    }
    wait(&adapter.transition);
    *adapter.transition_status.lock()
}

fn begin_transition(adapter: &Adapter, state: AdapterState) {
    *adapter.transition_status.lock() = NDIS_STATUS_PENDING;
    adapter.transition.reset();
    *adapter.state.lock() = state;
}

/// Pauses a running adapter; returns when the miniport has completed the pause.
pub(crate) fn pause(adapter: &Arc<Adapter>) {
    assert_eq!(adapter.state(), AdapterState::Running, "a running adapter is paused");
    begin_transition(adapter, AdapterState::Pausing);
    filter_stack::pause(adapter);
    let mut parameters = NDIS_MINIPORT_PAUSE_PARAMETERS {
        Header: header(
            NDIS_OBJECT_TYPE_DEFAULT,
            NDIS_MINIPORT_PAUSE_PARAMETERS_REVISION_1,
            NDIS_SIZEOF_MINIPORT_PAUSE_PARAMETERS_REVISION_1,
        ),
        Flags: 0,
        PauseReason: 0,
    };
    let pointer = &raw mut parameters;
    if let Some(handler) = adapter.driver.characteristics.PauseHandler {
        let status = call("MiniportPause", || {
            // SAFETY: the image registered the function under this contract; the parameters live through the call.
            unsafe { handler(adapter.context() as *mut _, pointer) }
        });
        if status == NDIS_STATUS_SUCCESS {
            adapter.data_path.require_no_indication("MiniportPause");
        }
        let status = transition(adapter, status);
        require(status == NDIS_STATUS_SUCCESS, rules::PAUSED, || {
            format!("MiniportPause failed: {status:#010x}")
        });
    }
    adapter.await_bound();
    let (sending, lent) = adapter.data_path.outstanding();
    require(sending == 0, rules::PAUSED, || format!("MiniportPause completed, but {sending} sends are not"));
    require(lent == 0, rules::PAUSED, || {
        format!("MiniportPause completed before {lent} received lists were returned")
    });
    *adapter.state.lock() = AdapterState::Paused;
}

/// Restarts a paused adapter.
pub(crate) fn restart(host: &Arc<Host>, adapter: &Arc<Adapter>) -> NDIS_STATUS {
    assert_eq!(adapter.state(), AdapterState::Paused, "a paused adapter is restarted");
    begin_transition(adapter, AdapterState::Restarting);
    let mut parameters = NDIS_MINIPORT_RESTART_PARAMETERS {
        Header: header(
            NDIS_OBJECT_TYPE_DEFAULT,
            NDIS_MINIPORT_RESTART_PARAMETERS_REVISION_1,
            NDIS_SIZEOF_MINIPORT_RESTART_PARAMETERS_REVISION_1,
        ),
        RestartAttributes: std::ptr::null_mut(),
        Flags: 0,
    };
    let pointer = &raw mut parameters;
    let mut status = NDIS_STATUS_SUCCESS;
    if let Some(handler) = adapter.driver.characteristics.RestartHandler {
        status = call("MiniportRestart", || {
            // SAFETY: the image registered the function under this contract; the parameters live through the call.
            unsafe { handler(adapter.context() as *mut _, pointer) }
        });
        status = transition(adapter, status);
    }
    let state = if status == NDIS_STATUS_SUCCESS { AdapterState::Running } else { AdapterState::Paused };
    *adapter.state.lock() = state;
    if state == AdapterState::Running {
        hang::watch(host, adapter);
        filter_stack::restart(host, adapter);
    }
    status
}

/// Halts and removes a paused adapter.
fn halt(host: &Arc<Host>, adapter: &Arc<Adapter>, action: NDIS_HALT_ACTION) {
    assert_eq!(adapter.state(), AdapterState::Paused, "a paused adapter is halted");
    adapter.recheck_ndk_capabilities();
    adapter.direct_oids.wait_for_none();
    adapter.stack_oid.during(|| halt_and_remove(host, adapter, action));
}

/// Runs `body` while no other PnP or power transition of the adapter is in progress. On a thread of the host, at
/// `PASSIVE_LEVEL`.
pub(crate) fn exclusively<T>(adapter: &Adapter, body: impl FnOnce() -> T) -> T {
    adapter.pnp.during(body)
}

/// Pauses an adapter that runs, then halts and removes it. Does nothing if it was removed meanwhile.
pub(crate) fn stop(host: &Arc<Host>, adapter: &Arc<Adapter>, action: NDIS_HALT_ACTION) {
    if adapter.state() == AdapterState::Running {
        pause(adapter);
    }
    if adapter.state() == AdapterState::Paused {
        halt(host, adapter, action);
    }
}

fn halt_and_remove(host: &Arc<Host>, adapter: &Arc<Adapter>, action: NDIS_HALT_ACTION) {
    adapter.unbind();
    filter_stack::detach_all(host, adapter);
    adapter.without_oids(|| {
        adapter.ndk.refuse_opens();
        if host.state(&ndk_state::CLOSED_BEFORE_HALT).load(Relaxed) {
            adapter.ndk.await_closed();
        }
        if let Some(handler) = adapter.driver.characteristics.HaltHandlerEx {
            call("MiniportHaltEx", || {
                // SAFETY: the image registered the function under this contract.
                unsafe { handler(adapter.context() as *mut _, action) }
            });
        }
        remove(host, adapter, "MiniportHaltEx");
    });
}

/// Removes the adapter and checks that it released everything.
fn remove(host: &Arc<Host>, adapter: &Arc<Adapter>, after: &str) {
    //= R-PNP-5
    let open = adapter.ndk.open_count();
    if open > 0 {
        adapter.driver.undocumented(
            host,
            Tolerance::OpenAtHalt,
            &format!("{after} returned with {open} NDK adapters open"),
        );
    }
    let left = owner::held(host, adapter.handle);
    require(left.is_empty(), rules::HALTED, || {
        let names: Vec<_> =
            left.iter().map(|object| format!("{} {:#x}", object.kind, object.address)).collect();
        format!("{after} returned without releasing: {}", names.join(", "))
    });
    require(!adapter.nic.is_running(), rules::HALTED, || {
        format!("{after} returned while the device is running; reset it first")
    });
    *adapter.state.lock() = AdapterState::Halted;
    let _ = host.state(&HANDLES).remove::<Adapter>(adapter.handle);
    let _ = host.state(&HANDLES).remove::<Binding>(adapter.binding);
    host.state(&ADAPTERS).lock().retain(|other| other.handle != adapter.handle);
}

/// Calls `MiniportShutdownEx` before the system turns off: the device must not use memory afterwards, which firmware or the next
/// system owns then. NDIS does not halt the miniport.
pub(crate) fn shut_down(adapter: &Arc<Adapter>) {
    if adapter.state() == AdapterState::Halted {
        return;
    }
    if let Some(handler) = adapter.driver.characteristics.ShutdownHandlerEx {
        call("MiniportShutdownEx", || {
            // SAFETY: the image registered the function under this contract.
            unsafe { handler(adapter.context() as *mut _, NDIS_SHUTDOWN_ACTION::NdisShutdownPowerOff) }
        });
    }
    require(!adapter.nic.is_running(), rules::SHUT_DOWN, || {
        "MiniportShutdownEx returned while the device is running".into()
    });
    adapter.nic.shut_down();
}

/// Notifies the filter modules and the miniport of an event of its device.
pub(crate) fn notify(adapter: &Arc<Adapter>, event: NDIS_DEVICE_PNP_EVENT) {
    let mut notification = NET_DEVICE_PNP_EVENT {
        Header: header(NDIS_OBJECT_TYPE_DEFAULT, DEVICE_PNP_EVENT_REVISION, DEVICE_PNP_EVENT_LEN),
        PortNumber: 0,
        DevicePnPEvent: event,
        InformationBuffer: std::ptr::null_mut(),
        InformationBufferLength: 0,
        NdisReserved: [0; 16],
    };
    filter_pnp::pass_down(adapter, adapter.filters().len() + 1, Guest::new(&raw mut notification));
}
