// SPDX-License-Identifier: MIT OR Apache-2.0

//! `MiniportInitializeEx`: from assigned resources to a running device with an NDK provider on it. `PASSIVE_LEVEL`.
//!
//! The result of each stage owns what the stage set up, so that a failure undoes the earlier stages in reverse order.
//! The reason of a failure is written to the event log.

use alloc::boxed::Box;
use alloc::vec::Vec;

use fallible::{AliasableBox, Arc, Slot, try_box, vec};
use ndk_abi::ndis::{NDIS_HANDLE, NDIS_MINIPORT_INIT_PARAMETERS, NDIS_STATUS, NDIS_STATUS_SUCCESS};
use virtio_net::{Control, Layout};

use super::adapter::{Adapter, Parts};
use super::change_trace::changed;
use super::coalescing::Coalescing;
use super::device_settings::DeviceSettings;
use super::device_setup::{self, Wanted};
use super::failure::device_failed;
use super::lifecycle::take_down;
use super::mac_address::station_addresses;
use super::ndis_attributes::{set_general_attributes, set_offload_attributes, set_registration_attributes};
use super::offload_state::OffloadState;
use super::poll_setup::poll_objects;
use super::receive_backlog::Backlog;
use super::receive_lanes::ReceiveLanes;
use super::receive_pool::{Lists, ReceivePool};
use super::rss::Rss;
use super::transition_requests::announce_if_asked;
use super::transitions::Transitions;
use super::vlan::Vlan;
use super::{adapter_list, settings_thread, transmit_stall};
use crate::config::Configuration;
use crate::debug;
use crate::etw;
use crate::events::{self, AdapterEvents, Failure};
use crate::ndk::interface::Interface;
use crate::ndk::provider::{Ndk, Setup};
use crate::nic::dma::{DmaRegistration, SharedMemory};
use crate::nic::interrupt::Interrupt;
use crate::nic::pci_resources::{Resources, enable_registers};
use crate::nic::registers::{BarAccess, MappedBars};
use crate::nic::reset_wait::ResetWait;
use driver_states::adapter::Event;

/// `MiniportInitializeEx`.
pub unsafe extern "efiapi" fn initialize(
    handle: NDIS_HANDLE,
    _driver_context: NDIS_HANDLE,
    parameters: *mut NDIS_MINIPORT_INIT_PARAMETERS,
) -> NDIS_STATUS {
    // SAFETY: NDIS passes the parameters of this initialization, which are valid until this function returns.
    match unsafe { bring_up(handle, parameters) } {
        Ok(()) => {
            report_started(handle);
            NDIS_STATUS_SUCCESS
        }
        Err(failure) => {
            report_failure(handle, failure);
            failure.status()
        }
    }
}

/// Reports that the adapter works. Not inlined: together with the caller's, its stack frame is too large for a kernel stack.
#[inline(never)]
fn report_started(handle: NDIS_HANDLE) {
    changed(handle, "started", NDIS_STATUS_SUCCESS);
    if let Some(status) = etw::failure() {
        events::write(handle, events::table::NO_TRACE, [status.cast_unsigned(), 0]);
    }
}

/// Reports why the adapter does not work. Not inlined, either.
#[inline(never)]
fn report_failure(handle: NDIS_HANDLE, failure: Failure) {
    changed(handle, "not started", failure.status());
    events::not_started(handle, failure);
}

/// Initializes an adapter and registers it with NDIS.
///
/// # Safety
/// `parameters` is what NDIS gave `MiniportInitializeEx`, which has not returned yet.
unsafe fn bring_up(
    handle: NDIS_HANDLE,
    parameters: *const NDIS_MINIPORT_INIT_PARAMETERS,
) -> Result<(), Failure> {
    // The context is registered first and completed last: NDIS does not use it before initialization has succeeded.
    let slot = Slot::<Adapter>::try_new().map_err(|_| Failure::NoResources)?;
    set_registration_attributes(handle, &slot)?;
    let configuration = Configuration::read(handle).map_err(Failure::Configuration)?;
    // SAFETY: by this function's contract NDIS's initialization is in progress, so its parameters are valid.
    let resources = unsafe { Resources::collect(handle, parameters) }.map_err(|_| Failure::NoResources)?;
    // SAFETY: NDIS's parameters are valid until `MiniportInitializeEx` returns, and only read here.
    let luid = unsafe { (*parameters).NetLuid };
    // SAFETY: NDIS's parameters are valid until `MiniportInitializeEx` returns, and only read here.
    let index = unsafe { (*parameters).IfIndex };
    let interface = Interface { luid, index };
    // `Control` lets the device access memory after its reset, and no longer on a failure.
    enable_registers(handle);
    let adapter = build(handle, configuration, &resources, interface)?;
    run(slot.fill(adapter))
}

/// Builds the adapter: from the configuration to the programmed queues, before the first interrupt.
fn build(
    handle: NDIS_HANDLE,
    configuration: Configuration,
    resources: &Resources,
    interface: Interface,
) -> Result<Adapter, Failure> {
    let layout = Layout::find(&resources.config, |bar| resources.bar_len(bar))?;
    let bars = MappedBars::map(handle, &resources.bars, &layout)?;
    let mut control = Control::new(SharedMemory::new(handle), bars.access(), layout);
    let vlan = Vlan::new(configuration.priority_vlan_tag, configuration.vlan_id);
    control.refuse(device_setup::useless_features(&configuration, &vlan));
    negotiate(handle, &mut control)?;
    let device = control.net_config()?;
    let max_frame = device_setup::max_frame(&configuration, &device);
    let addresses = station_addresses(handle, &configuration, &device)?;
    let messages = resources.messages.max(1);
    let rss = Rss::new(&configuration)?;
    set_general_attributes(handle, &device, addresses, max_frame, &vlan, (&rss, messages))?;
    let offloads = OffloadState::new(control.features(), &configuration.offloads);
    set_offload_attributes(handle, &offloads)?;
    report_frame_size(handle, &configuration, max_frame);

    let dma = DmaRegistration::new(handle, max_frame)?;
    let mut interrupt = Interrupt::register(handle)?;
    let station = addresses.current;
    let (pairs, sizes) = (device_setup::pairs(&configuration), configuration.queue_sizes);
    let messages = if interrupt.is_line() { 0 } else { messages };
    let wanted = Wanted { pairs, sizes, messages, max_frame, station };
    let port = device_setup::build_port(handle, bars, dma, control, wanted, &device)?;
    let pairs = port.pairs().len();
    let [buffers, _] = port.queue_sizes();
    interrupt.add_deferred(handle, pairs)?;
    // Without poll objects, the DPC receives.
    let polls = if configuration.ndis_poll { poll_objects(handle, &port, &interrupt, &rss) } else { None };
    let lanes = match (&polls, rss.processors()) {
        (Some(_), _) => 0,
        // For frames that the device coalesces although it should not.
        (None, 0) if offloads.can_coalesce() => nt::processor::count(),
        (None, processors) => processors,
    };
    let lanes = ReceiveLanes::new(handle, lanes)?;
    let backlogs = backlogs(pairs, configuration.interrupt_moderation)?;
    let lists = Lists { pairs, buffers: buffers.into(), are_coalesced: offloads.can_coalesce() };
    let receive_pool = receive_pool(handle, max_frame as usize, lists)?;
    let setup = Setup { handle, interface, configuration: &configuration, mac: addresses.current, max_frame };
    let ndk = Ndk::new(Arc::clone(&port), &setup)?;
    ndk.set_attributes()?;
    let transitions = Transitions::try_new(handle).ok_or(Failure::NoResources)?;
    let settings = DeviceSettings::try_new().ok_or(Failure::NoResources)?;
    let parts = Parts {
        interrupt,
        polls,
        lanes,
        rss,
        ndk,
        port,
        receive_pool,
        handle,
        addresses,
        max_frame,
        offloads,
        coalescing: Coalescing::try_new().map_err(|_| Failure::NoResources)?,
        vlan,
        transitions,
        settings,
        backlogs,
        events: AdapterEvents::new(handle)?,
    };
    Ok(Adapter::new(parts))
}

/// Negotiates with the device, whose reset may take as long as it needs, up to [`ResetWait::LIMIT`]. Not inlined: together with the
/// caller's, its stack frame is too large for a kernel stack.
#[inline(never)]
fn negotiate(handle: NDIS_HANDLE, control: &mut Control<SharedMemory, BarAccess>) -> Result<(), Failure> {
    let wait = ResetWait::new();
    loop {
        match control.negotiate() {
            Err(virtio_net::Error::ResetTimeout) if wait.go_on(handle)? < ResetWait::LIMIT => {}
            outcome => return Ok(outcome.map(drop)?),
        }
    }
}

/// Allocates the pool of received NBLs. Not inlined: together with the caller's, its stack frame is too large for a kernel stack.
#[inline(never)]
fn receive_pool(handle: NDIS_HANDLE, max_frame: usize, lists: Lists) -> Result<Box<ReceivePool>, Failure> {
    let pool = ReceivePool::new(handle, max_frame, lists)?;
    try_box(pool).map_err(|_| Failure::NoResources)
}

fn backlogs(pairs: usize, are_moderated: bool) -> Result<Vec<Backlog>, Failure> {
    let mut backlogs = vec::with_capacity(pairs).map_err(|_| Failure::NoResources)?;
    for _ in 0..pairs {
        let backlog = Backlog::default();
        backlog.moderation.set_on(are_moderated);
        vec::push_within_capacity(&mut backlogs, backlog).map_err(|_| Failure::NoResources)?;
    }
    Ok(backlogs)
}

/// Connects the complete adapter to its interrupt, then starts the device. Not inlined: together with the caller's, its stack
/// frame is too large for a kernel stack.
#[inline(never)]
fn run(adapter: AliasableBox<Adapter>) -> Result<(), Failure> {
    // SAFETY: `take_down` disconnects the interrupt before the adapter is dropped.
    unsafe { adapter.interrupt.set_target(adapter.as_ptr()) };
    if let Some(polls) = &adapter.polls {
        // SAFETY: `take_down` disconnects the poll objects, too, before the adapter is dropped.
        unsafe { polls.set_target(adapter.as_ptr()) };
    }
    for (pair, deferred) in adapter.port().pairs().iter().zip(adapter.interrupt.deferred()) {
        pair.set_deferred(Some(Arc::clone(deferred)));
        pair.set_tag(adapter.vlan.own_tag());
    }
    adapter_list::add(&adapter);
    transmit_stall::watch(&adapter);
    adapter.step(Event::Initialized);
    match start(&adapter) {
        Ok(link_changed) => {
            if link_changed {
                adapter.indicate_link();
            }
            announce_if_asked(&adapter);
            if adapter.interrupt.is_line() {
                events::write(adapter.handle(), events::table::LINE_INTERRUPT, [0, 0]);
            }
            adapter.ndk().started();
            debug::started(adapter.handle(), adapter.port().features(), adapter.port().vectors);
            // NDIS got the address with the registration attributes; `halt` takes the adapter back.
            let _ = adapter.into_raw();
            Ok(())
        }
        Err(failure) => {
            take_down(adapter);
            Err(failure)
        }
    }
}

/// Starts the device. Returns whether the link state changed.
fn start(adapter: &AliasableBox<Adapter>) -> Result<bool, Failure> {
    if !settings_thread::start(adapter) {
        return Err(Failure::NoResources);
    }
    let link_changed = match adapter.port().start() {
        // Reset like any other that fails.
        Err(error @ virtio_net::Error::NeedsReset) => {
            device_failed(adapter, error);
            return Ok(false);
        }
        outcome => outcome?,
    };
    adapter.coalescing.complete_change(adapter.offloads.coalescing());
    adapter.settings.set_all(adapter.port());
    Ok(link_changed)
}

//= R-OPEN-36
fn report_frame_size(handle: NDIS_HANDLE, configuration: &Configuration, max_frame: u32) {
    let (used, configured) =
        (configuration.roce_frame_size(max_frame), configuration.configured_roce_frame_size);
    if configuration.network_direct && used != configured {
        events::write(handle, events::table::ROCE_FRAME_SIZE, [used, configured]);
    }
}
