// SPDX-License-Identifier: MIT OR Apache-2.0

//! The NDK provider of one adapter: its creation, its attributes, enabling and disabling it (`OID_NDK_SET_STATE`).

use core::time::Duration;

use fallible::Arc;
use ndk_abi::ndis::{
    NDIS_HANDLE, NDIS_MINIPORT_ADAPTER_ATTRIBUTES, NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES,
    NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT,
    NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_NDK_ATTRIBUTES, NDIS_SIZEOF_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1,
    NDIS_SIZEOF_NET_PNP_EVENT_NOTIFICATION_REVISION_1, NDIS_STATUS, NDIS_STATUS_NOT_SUPPORTED,
    NDIS_STATUS_SUCCESS, NET_PNP_EVENT_CODE, NET_PNP_EVENT_NOTIFICATION,
    NET_PNP_EVENT_NOTIFICATION_REVISION_1, NdisMNetPnPEvent, NdisMSetMiniportAttributes,
};
use ndk_provider::environment::Link;
use ndk_provider::{Config, Provider};
use nt::{Event, SpinLock};
use roce::{CongestionConfig, DcqcnConfig, Timing};

use super::addresses::Addresses;
use super::environment::{AdapterEnvironment, Handle};
use super::interface::Interface;
use super::state_event::{Situation, StateEvent};
use crate::config::{self, Configuration};
use crate::driver_object;
use crate::etw::{self, table};
use crate::events::{Failure, Request};
use crate::miniport::link;
use crate::nic::port::Port;
use crate::trace::{self, Tracing};

/// Minimum retransmission timeout: one tick of Windows' ordinary timer. The probe of the newest packet comes before, and costs one frame.
/// A DPC or a thread that waits for its processor delays received acknowledgements by as much, and a shorter
/// timeout then expires although nothing was lost (RFC 6298, section 2: the clock granularity bounds the timeout).
const MIN_RESEND: Duration = Duration::from_micros(15_600);

/// Network Direct on one adapter. A thread reports changes of its state to NDIS: the disable event waits for consumers, for
/// which a system worker thread is too precious, and a change must not depend on memory.
pub struct Ndk {
    shared: Arc<RunningProvider>,
    addresses: Arc<Addresses>,
    tracing: Tracing,
}

struct RunningProvider {
    provider: Provider,
    /// Of the thread only.
    event: StateEvent,
    port: Arc<Port>,
    handle: Handle,
    state: SpinLock<StateChange>,
    /// Set when the thread has something to report, or is to end.
    wake: Event,
    /// Set while the thread has nothing to report.
    idle: Event,
    /// Set when the thread has ended.
    ended: Event,
}

/// The state that NDIS requested, and the state that was reported to NDIS.
#[allow(clippy::struct_excessive_bools, reason = "independent of each other")]
struct StateChange {
    /// Requested by the last `OID_NDK_SET_STATE`, or by the configuration at start.
    wanted: bool,
    /// The device does not work, or is about to lose its state.
    suspended: bool,
    /// The device has lost its state since the last disable event: consumers have to close before RDMA is enabled again.
    lost: bool,
    /// Last reported to NDIS.
    reported: bool,
    /// `*NetworkDirect` disables RDMA, and Windows has not asked for anything since.
    by_keyword: bool,
    /// The adapter works: its state is written to the event log.
    started: bool,
    /// The thread has something to report.
    working: bool,
    /// The adapter is being halted, which raises the disable event itself.
    closed: bool,
    /// The thread is to end.
    stopping: bool,
}

impl StateChange {
    /// The state to report next.
    fn target(&self) -> bool {
        self.wanted && !self.suspended && !self.lost
    }

    /// The state for the event log; `None` unless the adapter works.
    fn situation(&self) -> Option<Situation> {
        let situation = match (self.reported, self.wanted) {
            (true, _) => Situation::On,
            (false, true) => Situation::OffByDevice,
            (false, false) if self.by_keyword => Situation::OffByKeyword,
            (false, false) => Situation::OffByWindows,
        };
        (self.started && !self.closed).then_some(situation)
    }
}

/// Properties of the adapter for [`Ndk::new`].
pub struct Setup<'a> {
    pub handle: NDIS_HANDLE,
    pub interface: Interface,
    pub configuration: &'a Configuration,
    pub mac: [u8; 6],
    /// Longest frame with its Ethernet header, in bytes.
    pub max_frame: u32,
}

impl Ndk {
    /// Creates the provider on `port`, enabled if the configuration allows. `PASSIVE_LEVEL`.
    pub fn new(port: Arc<Port>, setup: &Setup<'_>) -> Result<Self, Failure> {
        let addresses =
            Addresses::watch(setup.interface.luid, driver_object::get()).ok_or(Failure::NoResources)?;
        let addresses = Arc::try_new(addresses).map_err(|_| Failure::NoResources)?;
        let configuration = setup.configuration;
        let frame_size = configuration.roce_frame_size(setup.max_frame);
        let shards = port.pairs().len() as u32;
        let reaction = DcqcnConfig::for_line_rate(link::speed(port.speed()));
        let host = AdapterEnvironment {
            port: Arc::clone(&port),
            addresses: Arc::clone(&addresses),
            interface: setup.interface,
            link: Link {
                mac: setup.mac,
                mtu: config::ip_mtu_for(frame_size, setup.max_frame),
                scope: setup.interface.index,
            },
            same_subnet: !configuration.remote_subnets,
            handle: Handle::new(setup.handle),
        };
        let congestion =
            CongestionConfig { mode: configuration.congestion, reaction, ..CongestionConfig::default() };
        let tracing = Tracing::new(setup.handle, setup.interface.index);
        let timing = Timing { min_resend: MIN_RESEND, ..Timing::default() };
        let config = Config {
            create_completion: configuration.create_completion,
            shards,
            timing,
            congestion,
            early_placement: configuration.early_placement,
            trace: Some(tracing.sink()),
            strict: configuration.strict,
        };
        let provider = Provider::try_new(host, config);
        let provider = provider.map_err(|_| Failure::NoResources)?;
        let enabled = configuration.network_direct;
        //= R-OPEN-37
        provider.set_enabled(enabled);
        let event = || Event::try_new().ok_or(Failure::NoResources);
        let (wake, idle, ended) = (event()?, event()?, event()?);
        idle.set();
        let state = SpinLock::new(StateChange {
            wanted: enabled,
            suspended: false,
            lost: false,
            reported: enabled,
            by_keyword: !enabled,
            started: false,
            working: false,
            closed: false,
            stopping: false,
        });
        let handle = Handle::new(setup.handle);
        let mtu = setup.max_frame.saturating_sub(config::ETHERNET_HEADER);
        let event = StateEvent::new(frame_size, mtu, configuration.configured_roce_frame_size);
        let shared = RunningProvider { provider, event, port, handle, state, wake, idle, ended };
        let shared = Arc::try_new(shared).map_err(|_| Failure::NoResources)?;
        let reporter = Reporter(&raw const *shared);
        // SAFETY: `drop` stops the updates before the provider is dropped, and only handlers of this adapter call `refresh`.
        unsafe { addresses.set_provider(&shared.provider) };
        let this = Self { shared, addresses, tracing };
        if nt::start_thread(driver_object::get(), move || reporter.run()).is_err() {
            // `drop` waits for it.
            this.shared.ended.set();
            return Err(Failure::NoResources);
        }
        Ok(this)
    }

    pub fn provider(&self) -> &Provider {
        &self.shared.provider
    }

    pub fn tracing(&self) -> &Tracing {
        &self.tracing
    }

    /// Reads the adapter's IP addresses again. `PASSIVE_LEVEL`.
    pub fn refresh_addresses(&self) {
        self.addresses.refresh();
    }

    /// Reports the provider's capabilities and state to NDIS. `PASSIVE_LEVEL`, during initialization.
    //= R-OPEN-4, R-OPEN-5, R-OPEN-6, R-PNP-1, R-PNP-2, R-INFO-11
    pub fn set_attributes(&self) -> Result<(), Failure> {
        let mut attributes = NDIS_MINIPORT_ADAPTER_ATTRIBUTES {
            NDKAttributes: NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES {
                Header: NDIS_OBJECT_HEADER {
                    Type: NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_NDK_ATTRIBUTES,
                    Revision: NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1,
                    Size: NDIS_SIZEOF_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1,
                },
                Enabled: self.provider().is_enabled().into(),
                NdkCapabilities: core::ptr::from_ref(self.provider().capabilities()).cast_mut(),
            },
        };
        // SAFETY: the attributes are complete; the capabilities are static, and NDIS does not write to them.
        let status = unsafe { NdisMSetMiniportAttributes(self.shared.handle.get(), &raw mut attributes) };
        if status == NDIS_STATUS_SUCCESS {
            Ok(())
        } else {
            Err(Failure::Ndis(Request::NdkAttributes, status))
        }
    }

    /// `OID_NDK_SET_STATE`. Changes the state, which the thread reports to NDIS. `PASSIVE_LEVEL`.
    //= R-OIDNDK-4, R-OIDNDK-5, R-OIDNDK-6, R-OIDNDK-7, R-OIDNDK-8, R-OIDNDK-11, R-OIDNDK-13
    pub fn set_state(&self, enable: bool) -> NDIS_STATUS {
        if enable && !config::network_direct_allowed(self.shared.handle.get()) {
            return NDIS_STATUS_NOT_SUPPORTED;
        }
        self.change(|state| (state.wanted, state.by_keyword) = (enable, false));
        NDIS_STATUS_SUCCESS
    }

    /// Notes that the adapter works: the thread writes its state to the event log, now and after each change. `PASSIVE_LEVEL`.
    pub fn started(&self) {
        self.change(|state| state.started = true);
    }

    /// Disables RDMA while the device does not work: refuses opens, raises the disable event, and waits for `limit` until all
    /// NDK adapters are closed. Then connections that are left are aborted. `PASSIVE_LEVEL`.
    //= R-PNP-4, R-PNP-11
    pub fn suspend(&self, limit: Duration) {
        self.suspend_at_once();
        if !self.shared.idle.wait_for(limit) {
            // Consumers notice that their connections end.
            self.provider().remove();
        }
    }

    /// Disables RDMA because the device has failed or is gone: refuses opens and creations, aborts connections, and has the thread raise the
    /// disable event. Does not wait for consumers. IRQL <= `DISPATCH_LEVEL`.
    //= R-PNP-8
    pub fn lose(&self) {
        self.suspend_at_once();
        self.provider().remove();
    }

    fn suspend_at_once(&self) {
        self.shared.port.set_rdma_lost(true);
        self.change(|state| {
            state.suspended = true;
            state.lost = true;
        });
    }

    /// Enables RDMA again after [`suspend`](Self::suspend) or [`lose`](Self::lose), once all consumers have closed, unless it was disabled
    /// otherwise. `PASSIVE_LEVEL`, not inside an OID request.
    //= R-PNP-11, R-PNP-16
    pub fn resume(&self) {
        self.change(|state| state.suspended = false);
        self.provider().transmit_ready();
    }

    /// Applies `change` to the requested state, and has the thread report the result.
    fn change(&self, change: impl FnOnce(&mut StateChange)) {
        let mut state = self.shared.state.lock();
        if state.closed {
            return;
        }
        change(&mut state);
        if !state.target() {
            self.provider().set_enabled(false);
        }
        state.working = true;
        self.shared.idle.clear();
        drop(state);
        self.shared.wake.set();
    }

    /// Disables the provider before the device is stopped, and makes consumers close their objects. `PASSIVE_LEVEL`.
    //= R-PNP-4
    pub fn close(&self, handle: NDIS_HANDLE) {
        {
            let mut state = self.shared.state.lock();
            (state.wanted, state.closed) = (false, true);
        }
        self.provider().set_enabled(false);
        self.shared.idle.wait();
        if self.provider().open_adapters() != 0 {
            //= R-OIDNDK-15
            raise(handle, NET_PNP_EVENT_CODE::NetEventNDKDisable);
        }
    }
}

impl Drop for Ndk {
    fn drop(&mut self) {
        self.addresses.stop();
        self.shared.state.lock().stopping = true;
        self.shared.wake.set();
        self.shared.ended.wait();
    }
}

/// The thread's reference to [`RunningProvider`]. Not an `Arc`: the thread could drop the last one, and with it the device's memory, after
/// the adapter was halted.
struct Reporter(*const RunningProvider);

// SAFETY: the thread only borrows `RunningProvider`, which is `Sync`, and `Ndk::drop` waits for its end.
unsafe impl Send for Reporter {}

impl Reporter {
    /// Reports changes until the adapter's end. On a thread of its own.
    //= R-IRQL-9
    fn run(&self) {
        // SAFETY: `Ndk::drop` waits for `ended`, the last access.
        let shared = unsafe { &*self.0 };
        loop {
            if shared.event.is_omitted() {
                if !shared.wake.wait_for(StateEvent::RETRY) {
                    shared.event.retry();
                }
            } else {
                shared.wake.wait();
            }
            shared.wake.clear();
            let is_stopping = shared.report();
            shared.log();
            if is_stopping {
                break;
            }
        }
        shared.ended.set();
    }
}

impl RunningProvider {
    /// Reports state changes to NDIS until none is pending: one event at a time, alternating. Returns whether the thread is to
    /// end. `PASSIVE_LEVEL`.
    //= R-OIDNDK-10, R-OIDNDK-12, R-OIDNDK-14, R-PNP-15, R-PNP-16
    fn report(&self) -> bool {
        loop {
            let enable = {
                let mut state = self.state.lock();
                // Woken for a change that was reported together with an earlier one; or for the end.
                if !state.working {
                    return state.stopping;
                }
                if state.lost && !state.reported {
                    // All NDK adapters are closed.
                    state.lost = false;
                    self.port.set_rdma_lost(false);
                }
                let target = state.target();
                if target {
                    self.provider.set_enabled(true);
                }
                if state.reported == target {
                    state.working = false;
                    self.idle.set();
                    return state.stopping;
                }
                state.reported = target;
                target
            };
            // Before a disable event, which returns when consumers have closed.
            self.log();
            let event = if enable {
                NET_PNP_EVENT_CODE::NetEventNDKEnable
            } else {
                NET_PNP_EVENT_CODE::NetEventNDKDisable
            };
            raise(self.handle.get(), event);
        }
    }

    /// Writes the state to the event log, if that has another one. `PASSIVE_LEVEL`.
    fn log(&self) {
        let situation = self.state.lock().situation();
        if let Some(situation) = situation {
            self.event.write(self.handle.get(), situation, self.provider.open_adapters());
        }
    }
}

/// Raises a net PnP event without a buffer. `PASSIVE_LEVEL`; a disable event returns when all NDK adapters are closed.
fn raise(handle: NDIS_HANDLE, event: NET_PNP_EVENT_CODE) {
    etw::write(None, || table::NdkStateChanged {
        interface: trace::interface_of(handle),
        state: if event == NET_PNP_EVENT_CODE::NetEventNDKEnable { "enabled" } else { "disabled" },
    });
    // SAFETY: integers and pointers only: all zeroes is a value.
    let mut notification: NET_PNP_EVENT_NOTIFICATION = unsafe { core::mem::zeroed() };
    notification.Header = NDIS_OBJECT_HEADER {
        Type: NDIS_OBJECT_TYPE_DEFAULT,
        Revision: NET_PNP_EVENT_NOTIFICATION_REVISION_1,
        Size: NDIS_SIZEOF_NET_PNP_EVENT_NOTIFICATION_REVISION_1,
    };
    notification.NetPnPEvent.NetEvent = event;
    // SAFETY: the adapter's handle, a complete notification; no lock is held.
    unsafe { NdisMNetPnPEvent(handle, &raw mut notification) };
}
