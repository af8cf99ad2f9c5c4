// SPDX-License-Identifier: MIT OR Apache-2.0

//! The harness's side of an adapter: the PnP manager and protocol drivers of Windows.
//!
//! Every method may be called on any thread. On a thread of another host or of none, the call is made on a
//! system thread of the adapter's host.

use std::{fmt, sync::Arc, time::Duration};

use ndk_abi::{
    ndis::{
        NDIS_DEVICE_PNP_EVENT, NDIS_HALT_ACTION, NDIS_MINIPORT_INIT_PARAMETERS,
        NDIS_MINIPORT_INIT_PARAMETERS_REVISION_1, NDIS_MINIPORT_PAUSE_PARAMETERS,
        NDIS_MINIPORT_PAUSE_PARAMETERS_REVISION_1, NDIS_MINIPORT_RESTART_PARAMETERS,
        NDIS_MINIPORT_RESTART_PARAMETERS_REVISION_1, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT,
        NDIS_OBJECT_TYPE_MINIPORT_INIT_PARAMETERS, NDIS_OID, NDIS_REQUEST_TYPE,
        NDIS_SIZEOF_MINIPORT_INIT_PARAMETER_REVISION_1, NDIS_SIZEOF_MINIPORT_PAUSE_PARAMETERS_REVISION_1,
        NDIS_SIZEOF_MINIPORT_RESTART_PARAMETERS_REVISION_1, NDIS_STATUS, NDIS_STATUS_PENDING,
        NDIS_STATUS_SUCCESS, NET_DEVICE_PNP_EVENT,
    },
    ndk::{NDIS_OPEN_NDK_ADAPTER_PARAMETERS, NDK_VERSION},
    netio::NET_LUID,
};

use nt_sim::{Host, current, image::call, thread::Lost};

use crate::{
    adapter::{ADAPTERS, Adapter, AdapterState, Attributes, StatusIndication},
    bus,
    driver::DRIVER,
    handle::HANDLES,
    in_flight::SendId,
    ndk::NdkAdapter,
    ndk_state::NdkEvent,
    oid::{OidError, OidPath},
    protocol::PROTOCOLS,
    rules::require,
    wait::wait,
};

/// Objects that an adapter must release before it is halted.
const OF_ADAPTER: [&str; 5] = [
    "NdisOpenConfigurationEx",
    "NdisMMapIoSpace",
    "NdisMAllocateSharedMemory",
    "NdisMRegisterScatterGatherDma",
    "NdisMRegisterInterruptEx",
];

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

/// A started adapter. Clones are the same adapter.
#[derive(Clone)]
pub struct Miniport {
    host: Arc<Host>,
    adapter: Arc<Adapter>,
}

/// Runs `body` on a thread of `host`: the calling one, or a new one.
fn on_host<T: Send + 'static>(
    host: &Arc<Host>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Lost> {
    if current().try_host().is_some_and(|mine| Arc::ptr_eq(mine, host)) {
        return Ok(body());
    }
    host.spawn(name, body).join()
}

impl Miniport {
    /// Starts the driver on the host's next NIC: initializes and restarts an adapter.
    ///
    /// # Errors
    /// [`StartError`]; the adapter is removed then, and checked for leaks.
    pub fn start(host: &Arc<Host>) -> Result<Self, StartError> {
        let this = host.clone();
        let miniport = on_host(host, "PnP", move || initialize(&this))??;
        match miniport.restart() {
            Ok(()) => Ok(miniport),
            Err(error) => {
                let _ = miniport.halt_with(NDIS_HALT_ACTION::NdisHaltDeviceFailed);
                Err(error)
            }
        }
    }

    #[must_use]
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }

    #[must_use]
    pub fn adapter(&self) -> &Arc<Adapter> {
        &self.adapter
    }

    #[must_use]
    pub fn state(&self) -> AdapterState {
        self.adapter.state()
    }

    #[must_use]
    pub fn attributes(&self) -> Attributes {
        self.adapter.attributes()
    }

    /// Pauses the adapter; returns when the miniport has completed the pause.
    ///
    /// # Errors
    /// [`Lost`] when the host dies.
    pub fn pause(&self) -> Result<(), Lost> {
        let this = self.clone();
        on_host(&self.host, "PnP", move || pause(&this.adapter))
    }

    /// Restarts the paused adapter.
    ///
    /// # Errors
    /// The status of MiniportRestart, or that the host died.
    pub fn restart(&self) -> Result<(), StartError> {
        let this = self.clone();
        let restart = move || {
            let status = restart(&this.adapter);
            if status == NDIS_STATUS_SUCCESS {
                for protocol in this.host.state(&PROTOCOLS) {
                    protocol.restarted(&this.host, &this.adapter);
                }
            }
            status
        };
        match on_host(&self.host, "PnP", restart)? {
            NDIS_STATUS_SUCCESS => Ok(()),
            status => Err(StartError::Restart(status)),
        }
    }

    /// Pauses and halts the adapter, and checks it for leaks.
    ///
    /// # Errors
    /// [`Lost`] when the host dies.
    pub fn halt(&self) -> Result<(), Lost> {
        if self.state() == AdapterState::Running {
            self.pause()?;
        }
        self.halt_with(NDIS_HALT_ACTION::NdisHaltDeviceDisabled)
    }

    fn halt_with(&self, action: NDIS_HALT_ACTION) -> Result<(), Lost> {
        let this = self.clone();
        on_host(&self.host, "PnP", move || halt(&this.host, &this.adapter, action))
    }

    /// Removes the device, notifies the miniport, pauses and halts it.
    ///
    /// # Errors
    /// [`Lost`] when the host dies.
    pub fn surprise_remove(&self) -> Result<(), Lost> {
        self.adapter.nic.remove();
        let this = self.clone();
        on_host(&self.host, "PnP", move || {
            notify(&this.adapter, NDIS_DEVICE_PNP_EVENT::NdisDevicePnPEventSurpriseRemoved);
        })?;
        if self.state() == AdapterState::Running {
            self.pause()?;
        }
        self.halt_with(NDIS_HALT_ACTION::NdisHaltDeviceSurpriseRemoved)
    }

    /// Queries an OID with a buffer of `length` bytes; returns what the miniport wrote into it.
    ///
    /// # Errors
    /// [`OidError`] when the miniport fails the request.
    ///
    /// # Panics
    /// When the host dies.
    pub fn query(&self, oid: NDIS_OID, length: usize) -> Result<Vec<u8>, OidError> {
        self.request(
            OidPath::Regular,
            NDIS_REQUEST_TYPE::NdisRequestQueryInformation,
            oid,
            vec![0xcc; length],
        )
    }

    /// As [`Miniport::query`], by a direct OID request.
    ///
    /// # Errors
    /// [`OidError`] when the miniport fails the request.
    ///
    /// # Panics
    /// When the host dies.
    pub fn query_direct(&self, oid: NDIS_OID, length: usize) -> Result<Vec<u8>, OidError> {
        self.request(OidPath::Direct, NDIS_REQUEST_TYPE::NdisRequestQueryInformation, oid, vec![0xcc; length])
    }

    /// Sets an OID.
    ///
    /// # Errors
    /// [`OidError`] when the miniport fails the request.
    ///
    /// # Panics
    /// When the host dies.
    pub fn set(&self, oid: NDIS_OID, value: &[u8]) -> Result<(), OidError> {
        let kind = NDIS_REQUEST_TYPE::NdisRequestSetInformation;
        self.request(OidPath::Regular, kind, oid, value.to_vec()).map(drop)
    }

    fn request(
        &self,
        path: OidPath,
        kind: NDIS_REQUEST_TYPE,
        oid: NDIS_OID,
        mut buffer: Vec<u8>,
    ) -> Result<Vec<u8>, OidError> {
        let adapter = self.adapter.clone();
        let answer = on_host(&self.host, "OID", move || {
            adapter.oid(path, kind, oid, &mut buffer).map(|written| {
                buffer.truncate(written as usize);
                buffer
            })
        });
        answer.unwrap_or_else(|lost| panic!("{lost}"))
    }

    /// Opens an NDK adapter.
    ///
    /// # Errors
    /// The status of OpenNDKAdapterHandler.
    ///
    /// # Panics
    /// When the host dies.
    pub fn open_ndk(&self, major: u16, minor: u16) -> Result<NdkAdapter, NDIS_STATUS> {
        let version = NDK_VERSION { Major: major, Minor: minor };
        self.open_ndk_with(NDIS_OPEN_NDK_ADAPTER_PARAMETERS { Version: version, SwitchId: 0, VPortId: 0 })
    }

    /// As [`Miniport::open_ndk`], with all parameters given.
    ///
    /// # Errors
    /// The status of OpenNDKAdapterHandler.
    ///
    /// # Panics
    /// When the host dies.
    pub fn open_ndk_with(
        &self,
        parameters: NDIS_OPEN_NDK_ADAPTER_PARAMETERS,
    ) -> Result<NdkAdapter, NDIS_STATUS> {
        let adapter = self.adapter.clone();
        let open = move || adapter.open_ndk(parameters);
        on_host(&self.host, "NDK", open).unwrap_or_else(|lost| panic!("{lost}"))
    }

    /// Closes an NDK adapter; returns when every object below it is closed.
    ///
    /// # Errors
    /// [`Lost`] when the host dies.
    pub fn close_ndk(&self, opened: NdkAdapter) -> Result<(), Lost> {
        let adapter = self.adapter.clone();
        on_host(&self.host, "NDK", move || adapter.close_ndk(opened))
    }

    /// Returns the NDK events the miniport reported so far.
    #[must_use]
    pub fn ndk_events(&self) -> Vec<NdkEvent> {
        self.adapter.ndk.events()
    }

    /// Waits until the miniport has reported `count` NDK events; returns `false` when `timeout` passes first.
    #[must_use]
    pub fn await_ndk_events(&self, count: usize, timeout: Duration) -> bool {
        let deadline = self.host.world().now() + timeout.as_nanos() as u64;
        while self.ndk_events().len() < count {
            let left = deadline.saturating_sub(self.host.world().now());
            if !self.adapter.ndk.reported.wait(Duration::from_nanos(left)) {
                return false;
            }
            if self.ndk_events().len() < count {
                self.adapter.ndk.reported.reset();
            }
        }
        true
    }

    /// Returns the number of open NDK adapters.
    #[must_use]
    pub fn open_ndk_adapters(&self) -> usize {
        self.adapter.ndk.open_count()
    }

    /// Returns what the miniport indicated by NdisMIndicateStatusEx so far.
    #[must_use]
    pub fn indications(&self) -> Vec<StatusIndication> {
        self.adapter.indications.lock().clone()
    }

    /// Sends a frame as a protocol driver does; returns the status of its completion, `None` when it is not
    /// completed within `timeout`.
    ///
    /// # Panics
    /// When the host dies or its memory is exhausted.
    #[must_use]
    pub fn send(&self, frame: &[u8], timeout: Duration) -> Option<NDIS_STATUS> {
        let ids = self.send_chain(&[frame.to_vec()], 0);
        ids.first().and_then(|&id| self.send_status(id, timeout))
    }

    /// Passes frames to the miniport in one chain, one NET_BUFFER_LIST each with the given cancel ID; does not wait.
    ///
    /// # Panics
    /// When the host dies or its memory is exhausted.
    #[must_use]
    pub fn send_chain(&self, frames: &[Vec<u8>], cancel_id: usize) -> Vec<SendId> {
        let (this, frames) = (self.clone(), frames.to_vec());
        let sent = on_host(&self.host, "protocol", move || {
            this.adapter.send(&this.host, &frames, cancel_id).expect("the host has memory for the frames")
        });
        sent.unwrap_or_else(|lost| panic!("{lost}"))
    }

    /// Cancels the sends with `cancel_id` that the miniport has not sent yet.
    ///
    /// # Panics
    /// When the host dies.
    pub fn cancel_sends(&self, cancel_id: usize) {
        let adapter = self.adapter.clone();
        let cancelled = on_host(&self.host, "protocol", move || adapter.cancel_sends(cancel_id));
        cancelled.unwrap_or_else(|lost| panic!("{lost}"));
    }

    /// Returns the status with which a send completed, `None` when it is not completed within `timeout`. The status of
    /// a send is returned once.
    ///
    /// # Panics
    /// When the host dies.
    #[must_use]
    pub fn send_status(&self, id: SendId, timeout: Duration) -> Option<NDIS_STATUS> {
        let this = self.clone();
        let status = on_host(&self.host, "protocol", move || {
            let adapter = &this.adapter;
            let deadline = this.host.world().now() + timeout.as_nanos() as u64;
            loop {
                adapter.data_path.changed.reset();
                if let Some(status) = adapter.send_status(id) {
                    return Some(status);
                }
                let left = Duration::from_nanos(deadline.saturating_sub(this.host.world().now()));
                if !adapter.data_path.changed.wait(left) {
                    return None;
                }
            }
        });
        status.unwrap_or_else(|lost| panic!("{lost}"))
    }

    /// Makes the stack keep received NET_BUFFER_LISTs from now on, or return those it kept.
    ///
    /// # Panics
    /// When the host dies.
    pub fn keep_received(&self, keep: bool) {
        let this = self.clone();
        let done = on_host(&self.host, "protocol", move || this.adapter.keep_received(&this.host, keep));
        done.unwrap_or_else(|lost| panic!("{lost}"));
    }

    /// Returns the frames that the miniport indicated since the last call.
    #[must_use]
    pub fn received(&self) -> Vec<Vec<u8>> {
        self.adapter.data_path.take_received()
    }
}

fn header(kind: u8, revision: u8, size: u16) -> NDIS_OBJECT_HEADER {
    NDIS_OBJECT_HEADER { Type: kind, Revision: revision, Size: size }
}

fn initialize(host: &Arc<Host>) -> Result<Miniport, StartError> {
    let driver = host.state(&DRIVER).lock().clone().ok_or(StartError::NothingToStart)?;
    let taken: Vec<_> =
        host.state(&ADAPTERS).lock().iter().map(|adapter| Arc::as_ptr(&adapter.nic)).collect();
    let nic = bus::nics(host).into_iter().find(|nic| !taken.contains(&Arc::as_ptr(nic)));
    let nic = nic.ok_or(StartError::NothingToStart)?;
    let if_index = 1 + host.state(&ADAPTERS).lock().len() as u32;
    let handles = host.state(&HANDLES);
    let adapter = handles.insert_with(|handle| Arc::new(Adapter::new(host, handle, driver, nic, if_index)));
    host.state(&ADAPTERS).lock().push(adapter.clone());
    let mut resources = bus::resources(&adapter.nic);
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
        IfIndex: if_index,
        NetLuid: NET_LUID { Value: adapter.luid },
        DefaultPortAuthStates: std::ptr::null_mut(),
        PciDeviceCustomProperties: std::ptr::null_mut(),
    };
    let pointer = &raw mut parameters;
    let initialize = adapter.driver.characteristics.InitializeHandlerEx.ok_or(StartError::NothingToStart)?;
    let status = call("MiniportInitializeEx", || {
        let (handle, context) = (adapter.handle as *mut _, adapter.driver.context as *mut _);
        // SAFETY: the image registered the function under this contract; the parameters live through the call.
        unsafe { initialize(handle, context, pointer) }
    });
    require(status != NDIS_STATUS_PENDING, || "MiniportInitializeEx pended".into());
    if status != NDIS_STATUS_SUCCESS {
        remove(host, &adapter, "a failed MiniportInitializeEx");
        return Err(StartError::Initialize(status));
    }
    let attributes = adapter.attributes();
    require(attributes.general.is_some(), || {
        "MiniportInitializeEx succeeded without general attributes".into()
    });
    let is_provider = adapter.driver.ndk.lock().is_some();
    require(!is_provider || attributes.ndk.is_some(), || {
        "MiniportInitializeEx of an NDK provider succeeded without NDK attributes".into()
    });
    *adapter.state.lock() = AdapterState::Paused;
    Ok(Miniport { host: host.clone(), adapter })
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

fn pause(adapter: &Arc<Adapter>) {
    assert_eq!(adapter.state(), AdapterState::Running, "a running adapter is paused");
    begin_transition(adapter, AdapterState::Pausing);
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
        let status = transition(adapter, status);
        require(status == NDIS_STATUS_SUCCESS, || format!("MiniportPause failed: {status:#010x}"));
    }
    adapter.await_bound();
    let (sending, lent) = adapter.data_path.outstanding();
    require(sending == 0, || format!("MiniportPause completed, but {sending} sends are not"));
    require(lent == 0, || format!("MiniportPause completed before {lent} received lists were returned"));
    *adapter.state.lock() = AdapterState::Paused;
}

fn restart(adapter: &Arc<Adapter>) -> NDIS_STATUS {
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
    status
}

fn halt(host: &Arc<Host>, adapter: &Arc<Adapter>, action: NDIS_HALT_ACTION) {
    assert_eq!(adapter.state(), AdapterState::Paused, "a paused adapter is halted");
    if let Some(handler) = adapter.driver.characteristics.HaltHandlerEx {
        call("MiniportHaltEx", || {
            // SAFETY: the image registered the function under this contract.
            unsafe { handler(adapter.context() as *mut _, action) }
        });
    }
    remove(host, adapter, "MiniportHaltEx");
}

/// Removes the adapter and checks that it released everything.
fn remove(host: &Arc<Host>, adapter: &Arc<Adapter>, after: &str) {
    //= R-PNP-5
    let open = adapter.ndk.open_count();
    require(open == 0, || format!("{after} returned with {open} NDK adapters open"));
    let left: Vec<_> =
        host.objects.list().into_iter().filter(|object| OF_ADAPTER.contains(&object.kind)).collect();
    require(left.is_empty(), || {
        let names: Vec<_> =
            left.iter().map(|object| format!("{} {:#x}", object.kind, object.address)).collect();
        format!("{after} returned without releasing: {}", names.join(", "))
    });
    require(!adapter.nic.is_running(), || {
        format!("{after} returned while the device is running; reset it first")
    });
    *adapter.state.lock() = AdapterState::Halted;
    let _ = host.state(&HANDLES).remove::<Adapter>(adapter.handle);
    host.state(&ADAPTERS).lock().retain(|other| other.handle != adapter.handle);
}

fn notify(adapter: &Arc<Adapter>, event: NDIS_DEVICE_PNP_EVENT) {
    let mut notification = NET_DEVICE_PNP_EVENT {
        Header: header(NDIS_OBJECT_TYPE_DEFAULT, DEVICE_PNP_EVENT_REVISION, DEVICE_PNP_EVENT_LEN),
        PortNumber: 0,
        DevicePnPEvent: event,
        InformationBuffer: std::ptr::null_mut(),
        InformationBufferLength: 0,
        NdisReserved: [0; 16],
    };
    let pointer = &raw mut notification;
    if let Some(handler) = adapter.driver.characteristics.DevicePnPEventNotifyHandler {
        call("MiniportDevicePnPEventNotify", || {
            // SAFETY: the image registered the function under this contract; the event lives through the call.
            unsafe { handler(adapter.context() as *mut _, pointer) }
        });
    }
}
