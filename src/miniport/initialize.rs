// SPDX-License-Identifier: MIT OR Apache-2.0

//! `MiniportInitializeEx`: from assigned resources to a running device with an NDK provider on it. `PASSIVE_LEVEL`.
//!
//! The result of each stage owns what the stage set up, so that a failure undoes the earlier stages in reverse order.
//! The reason of a failure is written to the event log.

use core::ptr::null_mut;

use alloc::boxed::Box;
use alloc::vec::Vec;
use fallible::{AliasableBox, Arc, Slot, try_box, vec};
use ndk_abi::ndis::{
    IF_TYPE_ETHERNET_CSMACD, NDIS_HANDLE, NDIS_INTERFACE_TYPE, NDIS_MAC_OPTION_COPY_LOOKAHEAD_DATA,
    NDIS_MAC_OPTION_NO_LOOPBACK, NDIS_MAC_OPTION_TRANSFERS_NOT_PEND, NDIS_MEDIUM,
    NDIS_MINIPORT_ADAPTER_ATTRIBUTES, NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
    NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2, NDIS_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES,
    NDIS_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES_REVISION_1, NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES,
    NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_1, NDIS_MINIPORT_ATTRIBUTES_BUS_MASTER,
    NDIS_MINIPORT_ATTRIBUTES_HARDWARE_DEVICE, NDIS_MINIPORT_ATTRIBUTES_SURPRISE_REMOVE_OK,
    NDIS_MINIPORT_INIT_PARAMETERS, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
    NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES,
    NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES, NDIS_PHYSICAL_MEDIUM,
    NDIS_SIZEOF_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2,
    NDIS_SIZEOF_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES_REVISION_1,
    NDIS_SIZEOF_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_1, NDIS_STATUS, NDIS_STATUS_SUCCESS,
    NET_IF_ACCESS_TYPE, NET_IF_CONNECTION_TYPE, NET_IF_DIRECTION_TYPE, NdisMSetMiniportAttributes,
};
use virtio_net::{Control, Features, Layout, NetConfig, Nic, Options, receive_buffer_len};

use super::adapter::{Adapter, Backlog, Parts, StationAddresses};
use super::adapter_state::Event;
use super::coalescing::Coalescing;
use super::lifecycle::take_down;
use super::link::{self, Link};
use super::offload_state::OffloadState;
use super::receive_filter::{self, MAX_MULTICAST};
use super::receive_lanes::ReceiveLanes;
use super::receive_pool::ReceivePool;
use super::rss::Rss;
use super::transition_requests::announce_if_asked;
use super::transitions::Transitions;
use super::vlan::Vlan;
use super::{device_settings, power, transmit_stall};
use super::{oid_table, wire_statistics};
use crate::config::{Configuration, ETHERNET_HEADER};
use crate::events::{self, Failure, Request};
use crate::ndk::interface::Interface;
use crate::ndk::provider::{Ndk, Setup};
use crate::nic::dma::{DmaRegistration, SharedMemory};
use crate::nic::interrupt::Interrupt;
use crate::nic::pci_resources::{Resources, enable_registers};
use crate::nic::poll_objects::PollObjects;
use crate::nic::port::{self, Port, Queues};
use crate::nic::queue_pair::Pair;
use crate::nic::registers::{BarAccess, MappedBars};
use crate::nic::vlan_tag::TAG_LEN;

/// Buffers in each queue, if the device supports that many.
const QUEUE_SIZE: u16 = 256;
/// Upper limit of the memory for receive buffers, in bytes.
const RECEIVE_MEMORY: usize = 4 << 20;

/// Configuration that the driver requests from the device.
#[derive(Clone, Copy)]
struct Wanted {
    /// Queue pairs.
    pairs: u16,
    /// Interrupt messages that the system granted.
    messages: u32,
    /// Longest frame with its Ethernet header, in bytes.
    max_frame: u32,
    /// The MAC address in use.
    station: [u8; 6],
}

/// `MiniportInitializeEx`.
pub unsafe extern "efiapi" fn initialize(
    handle: NDIS_HANDLE,
    _driver_context: NDIS_HANDLE,
    parameters: *mut NDIS_MINIPORT_INIT_PARAMETERS,
) -> NDIS_STATUS {
    // SAFETY: NDIS's parameters, good for the call.
    match unsafe { bring_up(handle, parameters) } {
        Ok(()) => NDIS_STATUS_SUCCESS,
        Err(failure) => {
            events::not_started(handle, failure);
            failure.status()
        }
    }
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
    // SAFETY: this function's contract.
    let resources = unsafe { Resources::collect(handle, parameters) };
    // SAFETY: this function's contract.
    let luid = unsafe { (*parameters).NetLuid };
    // SAFETY: this function's contract.
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
    control.refuse(useless_features(&configuration, &vlan));
    control.negotiate()?;
    let device = control.net_config()?;
    let max_frame = max_frame(&configuration, &device);
    let addresses = station_addresses(&configuration, &device)?;
    let messages = resources.messages.max(1);
    let rss = Rss::new(&configuration)?;
    set_general_attributes(handle, &device, addresses, max_frame, &vlan, (&rss, messages))?;
    let offloads = OffloadState::new(control.features(), &configuration.offloads);
    set_offload_attributes(handle, &offloads)?;
    report_frame_size(handle, &configuration, max_frame);

    let dma = DmaRegistration::new(handle, max_frame)?;
    let mut interrupt = Interrupt::register(handle)?;
    let station = addresses.current;
    let wanted = Wanted { pairs: pairs(&configuration), messages, max_frame, station };
    let port = build_port(handle, bars, dma, control, wanted, &device)?;
    let pairs = port.pairs().len();
    interrupt.add_deferred(handle, pairs)?;
    // Without poll objects, the DPC receives.
    let polls = if configuration.ndis_poll { poll_objects(handle, &port, &interrupt, &rss) } else { None };
    let lanes = ReceiveLanes::new(handle, if polls.is_none() { rss.processors() } else { 0 })?;
    let backlogs = backlogs(pairs)?;
    let receive_pool = receive_pool(handle, max_frame as usize, pairs, offloads.can_coalesce())?;
    let setup = Setup { handle, interface, configuration: &configuration, mac: addresses.current, max_frame };
    let ndk = Ndk::new(Arc::clone(&port), &setup)?;
    ndk.set_attributes()?;
    let transitions = Transitions::try_new(handle).ok_or(Failure::NoResources)?;
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
        backlogs,
    };
    Ok(Adapter::new(parts))
}

/// Returns the features that this adapter does not use.
fn useless_features(configuration: &Configuration, vlan: &Vlan) -> Features {
    let mut useless = Features::empty();
    if vlan.filter().is_none() {
        // Frames of all VLANs are received: nothing to filter, and a filter would take one command for each VLAN.
        useless |= Features::CTRL_VLAN;
    }
    if !Rss::is_offered(configuration) {
        // HASH_REPORT would make the header of each frame longer.
        useless |= Features::RSS | Features::HASH_REPORT;
    }
    useless
}

/// Programs the queues into the negotiated device. The result owns their memory. On a failure, `control` is dropped first, which resets the
/// device; then the resources that the device used. (Parameters are dropped in the reverse order of their declaration.)
fn build_port(
    handle: NDIS_HANDLE,
    bars: MappedBars,
    dma: DmaRegistration,
    mut control: Control<SharedMemory, BarAccess>,
    wanted: Wanted,
    device: &NetConfig,
) -> Result<Arc<Port>, Failure> {
    let receive_frame = TAG_LEN.saturating_add(receive_frame(device, wanted.max_frame) as usize);
    let is_merged = control.features().contains(Features::MRG_RXBUF);
    let options = Options {
        transmit_frame: TAG_LEN.saturating_add(wanted.max_frame as usize),
        receive_frame,
        receive_size: receive_size(receive_buffer_len(receive_frame, is_merged)),
        transmit_size: QUEUE_SIZE,
        pairs: wanted.pairs,
        messages: wanted.messages,
    };
    let queues = program(handle, &mut control, &options)?;
    // If there is no memory for the port, the parts are dropped in the order of their fields.
    let parts = port::Parts { control, queues, dma, bars };
    // Constructed in place, because a port is large for a kernel stack.
    Arc::try_new_with(|| Port::new(handle, parts, device, wanted.station)).map_err(|_| Failure::NoResources)
}

/// Not inlined: together with the caller's, its stack frame is too large for a kernel stack.
#[inline(never)]
fn program(
    handle: NDIS_HANDLE,
    control: &mut Control<SharedMemory, BarAccess>,
    options: &Options,
) -> Result<Queues, virtio_net::Error> {
    // Allocated first, so that nothing fails after the queues were programmed.
    let mut pairs = vec::with_capacity(usize::from(options.pairs))?;
    let Nic { pairs: programmed, commands, vectors, missing } =
        Nic::new(&SharedMemory::new(handle), control, options)?;
    if missing != 0 {
        let wanted = u32::from(vectors.pairs).saturating_add(missing.into());
        events::write(handle, events::table::FEWER_PAIRS, [vectors.pairs.into(), wanted]);
    }
    for (number, queues) in (0..).zip(programmed) {
        vec::push_within_capacity(&mut pairs, Pair::new(queues, vectors.of_pair(number)))?;
    }
    Ok(Queues { pairs, commands, vectors })
}

/// Registers poll objects: with RSS one for each processor, which serves the pairs whose messages interrupt that processor; without RSS one
/// for each pair. `None` if NDIS refuses or there is no memory. Not inlined, as above.
#[inline(never)]
fn poll_objects(
    handle: NDIS_HANDLE,
    port: &Port,
    interrupt: &Interrupt<Adapter>,
    rss: &Rss,
) -> Option<Arc<PollObjects<Adapter>>> {
    let (pairs, processors) = (port.pairs().len() as u32, rss.processors());
    let mut of_pairs = vec::with_capacity(port.pairs().len()).ok()?;
    for pair in 0..pairs {
        let [message, _] = port.vectors.of_pair(pair as u16);
        let processor = interrupt.processor_of(message).filter(|&processor| processor < processors);
        vec::push_within_capacity(&mut of_pairs, processor.unwrap_or(pair)).ok()?;
    }
    if processors == 0 {
        PollObjects::register(handle, pairs, of_pairs, |_| None)
    } else {
        PollObjects::register(handle, processors, of_pairs, Some)
    }
}

/// Returns the number of queue pairs to ask for: the configured number, but at most the number of processors.
fn pairs(configuration: &Configuration) -> u16 {
    let processors = u16::try_from(nt::processor::count()).unwrap_or(u16::MAX);
    configuration.queue_pairs.min(processors).max(1)
}

/// Not inlined, as above.
#[inline(never)]
fn receive_pool(
    handle: NDIS_HANDLE,
    max_frame: usize,
    pairs: usize,
    is_coalesced: bool,
) -> Result<Box<ReceivePool>, Failure> {
    let pool = ReceivePool::new(handle, max_frame, pairs, is_coalesced)?;
    try_box(pool).map_err(|_| Failure::NoResources)
}

fn backlogs(pairs: usize) -> Result<Vec<Backlog>, Failure> {
    let mut backlogs = vec::with_capacity(pairs).map_err(|_| Failure::NoResources)?;
    for _ in 0..pairs {
        vec::push_within_capacity(&mut backlogs, Backlog::default()).map_err(|_| Failure::NoResources)?;
    }
    Ok(backlogs)
}

/// Connects the complete adapter to its interrupt, then starts the device. Not inlined, as above.
#[inline(never)]
fn run(adapter: AliasableBox<Adapter>) -> Result<(), Failure> {
    // SAFETY: `take_down` disconnects the interrupt before the adapter is dropped.
    unsafe { adapter.interrupt.set_target(adapter.as_ptr()) };
    if let Some(polls) = &adapter.polls {
        // SAFETY: as above: it disconnects the poll objects, too.
        unsafe { polls.set_target(adapter.as_ptr()) };
    }
    for (pair, deferred) in adapter.port().pairs().iter().zip(adapter.interrupt.deferred()) {
        pair.set_deferred(Some(Arc::clone(deferred)));
        pair.set_tag(adapter.vlan.own_tag());
    }
    transmit_stall::watch(&adapter);
    adapter.step(Event::Initialized);
    match start(&adapter) {
        Ok(link_changed) => {
            if link_changed {
                adapter.indicate_link();
            }
            announce_if_asked(&adapter);
            // NDIS got the address with the registration attributes; `halt` takes the adapter back.
            let _ = adapter.into_raw();
            Ok(())
        }
        Err(error) => {
            take_down(adapter);
            Err(error.into())
        }
    }
}

/// Starts the device. Returns whether the link state changed.
fn start(adapter: &Adapter) -> Result<bool, virtio_net::Error> {
    let link_changed = adapter.port().start()?;
    device_settings::program(adapter)?;
    Ok(link_changed)
}

/// Returns the length of the longest frame with its Ethernet header: the configured one, limited by the device's MTU.
fn max_frame(configuration: &Configuration, device: &NetConfig) -> u32 {
    let device = device.mtu.map_or(u32::MAX, |mtu| u32::from(mtu).saturating_add(ETHERNET_HEADER));
    configuration.jumbo_packet.min(device)
}

/// Returns the length of the longest frame that the device may deliver, without a tag. The driver accepted the device's MTU, so it must
/// provide buffers for it, even if the configured frame length is smaller.
fn receive_frame(device: &NetConfig, max_frame: u32) -> u32 {
    device.mtu.map_or(max_frame, |mtu| max_frame.max(u32::from(mtu).saturating_add(ETHERNET_HEADER)))
}

/// Returns the number of receive buffers of `buffer` bytes that fit in [`RECEIVE_MEMORY`].
fn receive_size(buffer: usize) -> u16 {
    let mut size = QUEUE_SIZE;
    while size > 16 && usize::from(size).saturating_mul(buffer) > RECEIVE_MEMORY {
        size /= 2;
    }
    size
}

fn station_addresses(configuration: &Configuration, device: &NetConfig) -> Result<StationAddresses, Failure> {
    let permanent = device.mac.or_else(local_address).ok_or(Failure::NoResources)?;
    Ok(StationAddresses { permanent, current: configuration.network_address.unwrap_or(permanent) })
}

/// Returns a random, locally administered MAC address, for a device that has none.
fn local_address() -> Option<[u8; 6]> {
    let mut address: [u8; 6] = *nt::entropy()?.first_chunk()?;
    let [first, ..] = &mut address;
    *first = 0x02;
    Some(address)
}

//= R-OPEN-36
fn report_frame_size(handle: NDIS_HANDLE, configuration: &Configuration, max_frame: u32) {
    let (used, configured) =
        (configuration.roce_frame_size(max_frame), configuration.configured_roce_frame_size);
    if configuration.network_direct && used != configured {
        events::write(handle, events::table::ROCE_FRAME_SIZE, [used, configured]);
    }
}

/// Registers the miniport adapter context and the registration attributes. Not inlined, as above.
#[inline(never)]
fn set_registration_attributes(handle: NDIS_HANDLE, slot: &Slot<Adapter>) -> Result<(), Failure> {
    let attributes = NDIS_MINIPORT_ADAPTER_ATTRIBUTES {
        RegistrationAttributes: NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES {
            Header: NDIS_OBJECT_HEADER {
                Type: NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES,
                Revision: NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_1,
                Size: NDIS_SIZEOF_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_1,
            },
            MiniportAdapterContext: slot.as_ptr().cast(),
            AttributeFlags: NDIS_MINIPORT_ATTRIBUTES_HARDWARE_DEVICE
                | NDIS_MINIPORT_ATTRIBUTES_BUS_MASTER
                | NDIS_MINIPORT_ATTRIBUTES_SURPRISE_REMOVE_OK,
            CheckForHangTimeInSeconds: 0,
            InterfaceType: NDIS_INTERFACE_TYPE::NdisInterfacePci,
        },
    };
    set_attributes(handle, attributes, Request::RegistrationAttributes)
}

/// Reports the adapter's general attributes to NDIS. Not inlined, as above.
#[inline(never)]
fn set_general_attributes(
    handle: NDIS_HANDLE,
    device: &NetConfig,
    addresses: StationAddresses,
    max_frame: u32,
    vlan: &Vlan,
    (rss, messages): (&Rss, u32),
) -> Result<(), Failure> {
    let mbits = device.speed.unwrap_or(0);
    let (speed, link) = (link::speed(mbits), Link::new(device.link_up, mbits));
    let mut oids = oid_table::supported();
    let mut power = power::capabilities();
    let mut scaling = rss.capabilities(messages);
    // SAFETY: integers and pointers only: all zeroes is a value, and means "not supported" wherever it is left.
    let mut general: NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES = unsafe { core::mem::zeroed() };
    general.Header = NDIS_OBJECT_HEADER {
        Type: NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
        Revision: NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2,
        Size: NDIS_SIZEOF_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2,
    };
    general.MediaType = NDIS_MEDIUM::NdisMedium802_3;
    general.PhysicalMediumType = NDIS_PHYSICAL_MEDIUM::NdisPhysicalMedium802_3;
    general.MtuSize = max_frame.saturating_sub(ETHERNET_HEADER);
    general.LookaheadSize = max_frame;
    general.MaxXmitLinkSpeed = speed;
    general.MaxRcvLinkSpeed = speed;
    general.XmitLinkSpeed = link.speed;
    general.RcvLinkSpeed = link.speed;
    general.MediaConnectState = link.connected;
    general.MediaDuplexState = link.duplex;
    general.MacOptions = NDIS_MAC_OPTION_COPY_LOOKAHEAD_DATA
        | NDIS_MAC_OPTION_TRANSFERS_NOT_PEND
        | NDIS_MAC_OPTION_NO_LOOPBACK
        | vlan.mac_options();
    general.SupportedPacketFilters = receive_filter::SUPPORTED;
    general.MaxMulticastListSize = MAX_MULTICAST as u32;
    general.MacAddressLength = 6;
    set_address(&mut general.PermanentMacAddress, addresses.permanent);
    set_address(&mut general.CurrentMacAddress, addresses.current);
    general.RecvScaleCapabilities =
        scaling.as_mut().map_or(null_mut(), |capabilities| &raw mut *capabilities);
    general.AccessType = NET_IF_ACCESS_TYPE::NET_IF_ACCESS_BROADCAST;
    general.DirectionType = NET_IF_DIRECTION_TYPE::NET_IF_DIRECTION_SENDRECEIVE;
    general.ConnectionType = NET_IF_CONNECTION_TYPE::NET_IF_CONNECTION_DEDICATED;
    general.IfType = IF_TYPE_ETHERNET_CSMACD as u16;
    general.IfConnectorPresent = 1;
    general.PowerManagementCapabilitiesEx = &raw mut power;
    general.SupportedStatistics = wire_statistics::SUPPORTED;
    general.SupportedOidList = oids.as_mut_ptr();
    general.SupportedOidListLength = size_of_val(&oids) as u32;
    let attributes = NDIS_MINIPORT_ADAPTER_ATTRIBUTES { GeneralAttributes: general };
    set_attributes(handle, attributes, Request::GeneralAttributes)
}

/// Reports the task offloads that the adapter supports, and the offloads in force. Not inlined, as above.
#[inline(never)]
fn set_offload_attributes(handle: NDIS_HANDLE, offloads: &OffloadState) -> Result<(), Failure> {
    let (mut possible, mut current) = (offloads.describe_possible(), offloads.describe_current());
    let attributes = NDIS_MINIPORT_ADAPTER_ATTRIBUTES {
        OffloadAttributes: NDIS_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES {
            Header: NDIS_OBJECT_HEADER {
                Type: NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES,
                Revision: NDIS_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES_REVISION_1,
                Size: NDIS_SIZEOF_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES_REVISION_1,
            },
            DefaultOffloadConfiguration: &raw mut current,
            HardwareOffloadCapabilities: &raw mut possible,
            DefaultTcpConnectionOffloadConfiguration: null_mut(),
            TcpConnectionOffloadHardwareCapabilities: null_mut(),
        },
    };
    set_attributes(handle, attributes, Request::OffloadAttributes)
}

fn set_address(field: &mut [u8; 32], address: [u8; 6]) {
    for (to, from) in field.iter_mut().zip(address) {
        *to = from;
    }
}

fn set_attributes(
    handle: NDIS_HANDLE,
    mut attributes: NDIS_MINIPORT_ADAPTER_ATTRIBUTES,
    request: Request,
) -> Result<(), Failure> {
    // SAFETY: the attributes and what they point to are complete; NDIS copies them.
    let status = unsafe { NdisMSetMiniportAttributes(handle, &raw mut attributes) };
    if status == NDIS_STATUS_SUCCESS { Ok(()) } else { Err(Failure::Ndis(request, status)) }
}
