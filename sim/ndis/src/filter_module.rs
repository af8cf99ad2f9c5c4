// SPDX-License-Identifier: MIT OR Apache-2.0

//! Filter drivers, and their modules between a miniport and the protocol drivers above it. (WDK: NDIS_FILTER_DRIVER_CHARACTERISTICS,
//! "Filter Module States and Operations")

use std::{
    ffi::c_void,
    fmt,
    sync::{
        Arc,
        atomic::{
            AtomicU32, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

use ndk_abi::{
    ndis::{
        NDIS_HANDLE, NDIS_OBJECT_HEADER, NDIS_OID_REQUEST, NDIS_STATUS, NDIS_STATUS_INDICATION,
        NDIS_STATUS_PENDING, NET_BUFFER_LIST, NET_DEVICE_PNP_EVENT, NET_PNP_EVENT_NOTIFICATION,
    },
    nt::UNICODE_STRING,
};
use nt_sim::{Event, Host, guest::Guest, image, nt::runtime::unicode, services::Slot};
use parking_lot::Mutex;

use crate::{
    handle,
    pending_oids::{PendingOids, Turn},
    rules::{self, require},
    wait::{OnExit, wait, wait_until},
};

/// The registered filter drivers of a host, in the order they registered.
pub(crate) static FILTER_DRIVERS: Slot<Mutex<Vec<Arc<FilterDriver>>>> = Slot::new();

/// The service names of the filter drivers whose modules NDIS attaches to each adapter.
pub(crate) static BOUND_FILTERS: Slot<Mutex<Vec<String>>> = Slot::new();

/// Offsets of members of NDIS_FILTER_DRIVER_CHARACTERISTICS.
const SERVICE_NAME: usize = 0x30;
const HANDLERS: usize = 0x50;
/// Handlers from `AttachHandler` to `CancelDirectOidRequestHandler`.
const HANDLER_COUNT: usize = 18;

/// `FilterAttach`: the module's handle, the driver's context, NDIS_FILTER_ATTACH_PARAMETERS.
pub(crate) type Attach = unsafe extern "efiapi" fn(NDIS_HANDLE, NDIS_HANDLE, *mut c_void) -> NDIS_STATUS;
/// `FilterDetach`.
pub(crate) type Detach = unsafe extern "efiapi" fn(NDIS_HANDLE);
/// `FilterRestart`, `FilterPause`: the module's context, and the parameters.
pub(crate) type Transition = unsafe extern "efiapi" fn(NDIS_HANDLE, *mut c_void) -> NDIS_STATUS;
/// `FilterSendNetBufferLists`: port, flags.
pub(crate) type Send = unsafe extern "efiapi" fn(NDIS_HANDLE, *mut NET_BUFFER_LIST, u32, u32);
/// `FilterSendNetBufferListsComplete`, `FilterReturnNetBufferLists`: flags.
pub(crate) type GiveBack = unsafe extern "efiapi" fn(NDIS_HANDLE, *mut NET_BUFFER_LIST, u32);
/// `FilterCancelSendNetBufferLists`, `FilterCancelOidRequest`, `FilterCancelDirectOidRequest`.
pub(crate) type Cancel = unsafe extern "efiapi" fn(NDIS_HANDLE, *mut c_void);
/// `FilterReceiveNetBufferLists`: port, number of lists, flags.
pub(crate) type Receive = unsafe extern "efiapi" fn(NDIS_HANDLE, *mut NET_BUFFER_LIST, u32, u32, u32);
/// `FilterOidRequest`, `FilterDirectOidRequest`.
pub(crate) type OidRequest = unsafe extern "efiapi" fn(NDIS_HANDLE, *mut NDIS_OID_REQUEST) -> NDIS_STATUS;
/// `FilterOidRequestComplete`, `FilterDirectOidRequestComplete`.
pub(crate) type OidComplete = unsafe extern "efiapi" fn(NDIS_HANDLE, *mut NDIS_OID_REQUEST, NDIS_STATUS);
/// `FilterDevicePnPEventNotify`.
pub(crate) type DevicePnpEvent = unsafe extern "efiapi" fn(NDIS_HANDLE, *mut NET_DEVICE_PNP_EVENT);
/// `FilterNetPnPEvent`.
pub(crate) type NetPnpEvent =
    unsafe extern "efiapi" fn(NDIS_HANDLE, *mut NET_PNP_EVENT_NOTIFICATION) -> NDIS_STATUS;
/// `FilterStatus`.
pub(crate) type Status = unsafe extern "efiapi" fn(NDIS_HANDLE, *mut NDIS_STATUS_INDICATION);

/// A handler of a filter driver, in the order of NDIS_FILTER_DRIVER_CHARACTERISTICS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Handler {
    Attach,
    Detach,
    Restart,
    Pause,
    Send,
    SendComplete,
    CancelSend,
    Receive,
    Return,
    OidRequest,
    OidRequestComplete,
    CancelOidRequest,
    DevicePnpEvent,
    NetPnpEvent,
    Status,
    DirectOidRequest,
    DirectOidRequestComplete,
    CancelDirectOidRequest,
}

/// A registered filter driver.
pub(crate) struct FilterDriver {
    pub context: usize,
    pub service: String,
    handlers: [usize; HANDLER_COUNT],
}

/// States of a filter module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModuleState {
    Attaching,
    Paused,
    Restarting,
    Running,
    Pausing,
    Detached,
}

/// A filter module on an adapter.
pub(crate) struct FilterModule {
    pub handle: usize,
    /// The handle of the adapter.
    pub adapter: usize,
    pub driver: Arc<FilterDriver>,
    /// The context of `NdisFSetAttributes`; 0 before.
    context: AtomicUsize,
    state: Mutex<ModuleState>,
    /// Set when a pause or restart that pended is completed.
    transition: Event,
    transition_status: Mutex<NDIS_STATUS>,
    /// Number of threads that are inside a handler for NET_BUFFER_LISTs.
    users: AtomicU32,
    /// The requests that it has got, and the right to send it one.
    pub oids: PendingOids,
    pub oid_turn: Turn,
    /// Whether it has made an odd number of requests of its own so far, and the number of those in progress.
    own_oids: Mutex<(bool, u32)>,
}

impl fmt::Display for ModuleState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Attaching => "Attaching",
            Self::Paused => "Paused",
            Self::Restarting => "Restarting",
            Self::Running => "Running",
            Self::Pausing => "Pausing",
            Self::Detached => "Detached",
        };
        f.write_str(name)
    }
}

impl Handler {
    /// The name in the WDK.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Attach => "FilterAttach",
            Self::Detach => "FilterDetach",
            Self::Restart => "FilterRestart",
            Self::Pause => "FilterPause",
            Self::Send => "FilterSendNetBufferLists",
            Self::SendComplete => "FilterSendNetBufferListsComplete",
            Self::CancelSend => "FilterCancelSendNetBufferLists",
            Self::Receive => "FilterReceiveNetBufferLists",
            Self::Return => "FilterReturnNetBufferLists",
            Self::OidRequest => "FilterOidRequest",
            Self::OidRequestComplete => "FilterOidRequestComplete",
            Self::CancelOidRequest => "FilterCancelOidRequest",
            Self::DevicePnpEvent => "FilterDevicePnPEventNotify",
            Self::NetPnpEvent => "FilterNetPnPEvent",
            Self::Status => "FilterStatus",
            Self::DirectOidRequest => "FilterDirectOidRequest",
            Self::DirectOidRequestComplete => "FilterDirectOidRequestComplete",
            Self::CancelDirectOidRequest => "FilterCancelDirectOidRequest",
        }
    }
}

impl FilterDriver {
    /// Reads the characteristics, which are valid.
    pub fn new(context: usize, characteristics: Guest<u8>) -> Self {
        let name = unicode(characteristics.field::<UNICODE_STRING>(SERVICE_NAME));
        let size = usize::from(characteristics.field::<NDIS_OBJECT_HEADER>(0).read().Size);
        // The first revision ends before the handlers of direct OID requests.
        let handler = |index: usize| {
            let offset = HANDLERS + index * size_of::<usize>();
            if offset < size { characteristics.field(offset).read() } else { 0 }
        };
        let handlers = std::array::from_fn(handler);
        Self { context, service: String::from_utf16_lossy(&name), handlers }
    }

    /// Whether the driver has a handler.
    pub fn has(&self, handler: Handler) -> bool {
        self.handlers[handler as usize] != 0
    }

    /// Returns a handler.
    ///
    /// # Safety
    /// `F` is the type of the handler.
    pub unsafe fn handler<F: Copy>(&self, handler: Handler) -> F {
        // SAFETY: this function's contract: the driver registered the function as this handler.
        unsafe { image::function(handler.name(), self.handlers[handler as usize]) }
    }
}

impl FilterModule {
    pub fn new(host: &Host, handle: usize, adapter: usize, driver: Arc<FilterDriver>) -> Self {
        Self {
            handle,
            adapter,
            driver,
            context: AtomicUsize::new(0),
            state: Mutex::new(ModuleState::Attaching),
            transition: host.event(),
            transition_status: Mutex::new(NDIS_STATUS_PENDING),
            users: AtomicU32::new(0),
            oids: PendingOids::default(),
            oid_turn: Turn::default(),
            own_oids: Mutex::new((false, 0)),
        }
    }

    pub fn state(&self) -> ModuleState {
        *self.state.lock()
    }

    pub fn set_state(&self, state: ModuleState) {
        *self.state.lock() = state;
    }

    /// The driver's context for the module.
    pub fn context(&self) -> usize {
        self.context.load(Relaxed)
    }

    pub fn set_context(&self, context: usize) {
        self.context.store(context, Relaxed);
    }

    /// Runs `body`, which calls a handler for NET_BUFFER_LISTs, unless the module is paused; `false` if it is.
    pub fn while_unpaused(&self, body: impl FnOnce()) -> bool {
        {
            let state = self.state.lock();
            if !matches!(*state, ModuleState::Running | ModuleState::Pausing) {
                return false;
            }
            self.users.fetch_add(1, SeqCst);
        }
        let _end = self.one_user_less();
        body();
        true
    }

    /// Runs `body`, which calls a handler that gives lists back, or the one for statuses.
    pub fn entered(&self, body: impl FnOnce()) {
        self.users.fetch_add(1, SeqCst);
        let _end = self.one_user_less();
        body();
    }

    fn one_user_less(&self) -> OnExit<impl Fn()> {
        OnExit(|| _ = self.users.fetch_sub(1, SeqCst))
    }

    /// Waits until no thread is inside [`FilterModule::while_unpaused`] or [`FilterModule::entered`]. The module is paused.
    pub fn await_users(&self) {
        wait_until(|| self.users.load(SeqCst) == 0);
    }

    /// Begins a request of the module's own; returns whether it is a second one: `false` and `true` by turns.
    pub fn begin_oid(&self) -> bool {
        let mut own = self.own_oids.lock();
        own.1 += 1;
        own.0 = !own.0;
        !own.0
    }

    /// Ends a request of the module's own.
    pub fn end_oid(&self) {
        self.own_oids.lock().1 -= 1;
    }

    /// Waits until no request is in progress, neither one that the module has got nor one of its own.
    pub fn await_oids(&self) {
        self.oids.wait_for_none();
        wait_until(|| self.own_oids.lock().1 == 0);
    }

    /// Begins a pause or a restart.
    pub fn begin(&self, state: ModuleState) {
        *self.transition_status.lock() = NDIS_STATUS_PENDING;
        self.transition.reset();
        self.set_state(state);
    }

    /// Returns the status of a pause or restart whose handler returned `status`, after the end of one that pended.
    pub fn await_end(&self, status: NDIS_STATUS) -> NDIS_STATUS {
        if status != NDIS_STATUS_PENDING {
            return status;
        }
        wait(&self.transition);
        *self.transition_status.lock()
    }

    /// Ends a pause or a restart that pended.
    pub fn end(&self, what: &str, expected: ModuleState, status: NDIS_STATUS) {
        let state = self.state();
        require(state == expected, rules::FILTER_COMPLETED, || format!("{what} was called in state {state}"));
        require(status != NDIS_STATUS_PENDING, rules::FILTER_COMPLETED, || {
            format!("{what} with NDIS_STATUS_PENDING")
        });
        let before = std::mem::replace(&mut *self.transition_status.lock(), status);
        require(before == NDIS_STATUS_PENDING, rules::FILTER_COMPLETED, || {
            format!("{what} was called twice")
        });
        self.transition.set();
    }
}

/// Returns the module of a filter handle. Any other value is a violation.
pub(crate) fn module(handle: usize) -> Arc<FilterModule> {
    handle::object("handle of a filter module", handle)
}
