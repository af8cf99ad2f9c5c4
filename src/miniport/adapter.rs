// SPDX-License-Identifier: MIT OR Apache-2.0

//! One adapter: the object that NDIS's miniport adapter context points to.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use fallible::Arc;
use ndk_abi::ndis::{NDIS_HANDLE, NDIS_STATUS_PAUSED, NdisMPauseComplete};
use nt::SpinLock;

use super::coalescing::Coalescing;
use super::completion::abort_waiting;
use super::device_settings::DeviceSettings;
use super::link::LinkIndications;
use super::mac_address::StationAddresses;
use super::network_addresses::NetworkAddresses;
use super::offload_state::OffloadState;
use super::receive_backlog::Backlog;
use super::receive_filter::ReceiveFilter;
use super::receive_lanes::ReceiveLanes;
use super::receive_pool::ReceivePool;
use super::rss::Rss;
use super::statistics::Statistics;
use super::traffic::Traffic;
use super::transitions::Transitions;
use super::vlan::Vlan;
use crate::events::AdapterEvents;
use crate::ndk::provider::Ndk;
use crate::nic::interrupt::Interrupt;
use crate::nic::poll_objects::PollObjects;
use crate::nic::port::Port;
use driver_states::adapter::{Event, State};

/// An initialized adapter. NDIS and the interrupt hold its address, so it is only borrowed shared until both have released the address. Its
/// fields are dropped in the order of declaration: the interrupt, the poll objects, the receive lanes, the NDK provider, then the device.
pub struct Adapter {
    pub(super) interrupt: Interrupt<Adapter>,
    /// `None` if the driver receives in its DPC.
    pub(super) polls: Option<Arc<PollObjects<Adapter>>>,
    /// Empty if poll objects are used.
    pub(super) lanes: ReceiveLanes<Adapter>,
    pub(super) rss: Arc<Rss>,
    ndk: Ndk,
    port: Arc<Port>,
    /// Boxed, like others below, because an adapter is large for a kernel stack.
    receive_pool: Box<ReceivePool>,
    handle: NDIS_HANDLE,
    pub(super) addresses: StationAddresses,
    /// Longest frame with its Ethernet header, in bytes.
    pub(super) max_frame: u32,
    state: AtomicU8,
    pub(super) traffic: Traffic,
    statistics: Statistics,
    pub(super) filter: ReceiveFilter,
    pub(super) offloads: OffloadState,
    pub(super) coalescing: Box<Coalescing>,
    pub(super) vlan: Vlan,
    pub(super) network_addresses: SpinLock<NetworkAddresses>,
    pub(super) lookahead: AtomicU32,
    pub(super) transitions: Transitions,
    pub(super) settings: Box<DeviceSettings>,
    /// One for each queue pair.
    backlogs: Vec<Backlog>,
    link: LinkIndications,
    /// Dropped last.
    _events: AdapterEvents,
}

// SAFETY: the handle is one that NDIS takes on any thread; everything else is `Sync` by itself.
unsafe impl Sync for Adapter {}

/// The initialized parts of an [`Adapter`].
pub(super) struct Parts {
    pub interrupt: Interrupt<Adapter>,
    pub polls: Option<Arc<PollObjects<Adapter>>>,
    pub lanes: ReceiveLanes<Adapter>,
    pub rss: Arc<Rss>,
    pub ndk: Ndk,
    pub port: Arc<Port>,
    pub receive_pool: Box<ReceivePool>,
    pub handle: NDIS_HANDLE,
    pub addresses: StationAddresses,
    pub max_frame: u32,
    pub offloads: OffloadState,
    pub coalescing: Box<Coalescing>,
    pub vlan: Vlan,
    pub transitions: Transitions,
    pub settings: Box<DeviceSettings>,
    pub backlogs: Vec<Backlog>,
    pub events: AdapterEvents,
}

impl Adapter {
    pub(super) fn new(parts: Parts) -> Self {
        Self {
            interrupt: parts.interrupt,
            polls: parts.polls,
            lanes: parts.lanes,
            rss: parts.rss,
            ndk: parts.ndk,
            port: parts.port,
            receive_pool: parts.receive_pool,
            handle: parts.handle,
            addresses: parts.addresses,
            max_frame: parts.max_frame,
            state: AtomicU8::new(State::Initializing as u8),
            traffic: Traffic::new(),
            statistics: Statistics::default(),
            filter: ReceiveFilter::new(),
            offloads: parts.offloads,
            coalescing: parts.coalescing,
            vlan: parts.vlan,
            network_addresses: SpinLock::new(NetworkAddresses::new()),
            lookahead: AtomicU32::new(parts.max_frame),
            backlogs: parts.backlogs,
            link: LinkIndications::new(),
            _events: parts.events,
            transitions: parts.transitions,
            settings: parts.settings,
        }
    }

    /// Returns the adapter that a miniport adapter context refers to.
    ///
    /// # Safety
    /// `context` is the one registered at initialization, and the adapter has not been halted since.
    pub unsafe fn from_context<'a>(context: NDIS_HANDLE) -> &'a Self {
        // SAFETY: by this function's contract the context is an adapter that lives until it is halted, and an adapter is only ever borrowed
        // shared.
        unsafe { &*context.cast::<Self>() }
    }

    pub fn handle(&self) -> NDIS_HANDLE {
        self.handle
    }

    pub fn port(&self) -> &Port {
        &self.port
    }

    pub(super) fn backlog(&self, pair: u32) -> Option<&Backlog> {
        self.backlogs.get(pair as usize)
    }

    pub fn ndk(&self) -> &Ndk {
        &self.ndk
    }

    pub fn receive_pool(&self) -> &ReceivePool {
        &self.receive_pool
    }

    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Indicates the link's state to NDIS. IRQL <= `DISPATCH_LEVEL`, no lock held.
    pub(super) fn indicate_link(&self) {
        self.link.indicate(self.handle, &self.port);
    }

    /// Applies `event` to the adapter's state; `false` if the transition table does not allow it.
    pub fn step(&self, event: Event) -> bool {
        let next = |number: u8| Some(State::ALL.get(usize::from(number))?.on(event).ok()? as u8);
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).is_ok()
    }

    /// Returns permission to move frames between NDIS and the device; `None` unless the adapter runs. A pause completes
    /// only after the permission is dropped.
    pub fn pass(&self) -> Option<Passing<'_>> {
        // Constructed only after entering: dropping it leaves.
        self.traffic.enter().then(|| Passing(self))
    }

    /// Returns permission to move frames, also while the adapter pauses. The caller has received NBLs that the stack has not returned.
    pub fn pass_with_lists(&self) -> Passing<'_> {
        self.traffic.join();
        Passing(self)
    }

    /// Subtracts `count` NBLs or handlers from the adapter's traffic, and completes a pause that waited for the last of them. No lock is
    /// held.
    pub(super) fn passed(&self, count: u32) {
        if !self.traffic.leave(count) {
            return;
        }
        // A sender may have left NBLs waiting since the pause began.
        abort_waiting(self.handle, &self.port, NDIS_STATUS_PAUSED);
        if self.step(Event::Paused) {
            // SAFETY: `MiniportPause` returned pending, and this is the only completion.
            unsafe { NdisMPauseComplete(self.handle) };
        }
    }
}

/// Permission to move frames; see [`Adapter::pass`].
pub struct Passing<'a>(&'a Adapter);

impl Drop for Passing<'_> {
    fn drop(&mut self) {
        self.0.passed(1);
    }
}
