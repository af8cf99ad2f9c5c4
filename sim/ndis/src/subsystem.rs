// SPDX-License-Identifier: MIT OR Apache-2.0

//! NDIS as a subsystem of the simulated kernel.

use device_sim::mmio::Windows;
use nt_sim::{
    Host, HostId, Sim, SimBuilder,
    host::{FaultOutcome, Subsystem},
    image::registers::FaultContext,
    import::Import,
    services::Services,
    world::World,
};
use parking_lot::Mutex;

use crate::{
    adapter, bus, clones, config, data_path, device, direct_oid, dma, driver, event_log, filter_module,
    filter_oid, filter_path, filter_pnp, filter_stack, filter_status, handle, hang, interface, interrupt,
    nbl, ndk, ndk_objects, ndk_state, netio, oid, owner, physical_device, poll, protocol, registration,
    removal, rss_processors, runtime, sg_list, shared_memory, upper_drivers, wsk,
};

/// The imports of `ndis.sys`, one slice per file.
const IMPORTS: &[&[Import]] = &[
    adapter::IMPORTS,
    bus::IMPORTS,
    clones::IMPORTS,
    config::IMPORTS,
    data_path::IMPORTS,
    device::IMPORTS,
    direct_oid::IMPORTS,
    dma::IMPORTS,
    event_log::IMPORTS,
    filter_oid::IMPORTS,
    filter_path::IMPORTS,
    filter_pnp::IMPORTS,
    filter_stack::IMPORTS,
    filter_status::IMPORTS,
    hang::IMPORTS,
    interrupt::IMPORTS,
    nbl::IMPORTS,
    ndk::IMPORTS,
    oid::IMPORTS,
    physical_device::IMPORTS,
    poll::IMPORTS,
    registration::IMPORTS,
    removal::IMPORTS,
    rss_processors::IMPORTS,
    runtime::IMPORTS,
    sg_list::IMPORTS,
    shared_memory::IMPORTS,
    upper_drivers::IMPORTS,
];

/// NDIS.
pub struct Ndis;

/// The one [`Ndis`].
pub static NDIS: Ndis = Ndis;

impl Subsystem for Ndis {
    fn imports(&self) -> &'static [&'static [Import]] {
        IMPORTS
    }

    fn install(&self, services: &mut Services, _world: &World, _host: HostId) {
        services.add(&handle::HANDLES, handle::Handles::default());
        services.add(&driver::DRIVERS, Mutex::default());
        services.add(&adapter::ADAPTERS, Mutex::default());
        services.add(&filter_module::FILTER_DRIVERS, Mutex::default());
        services.add(&filter_module::BOUND_FILTERS, Mutex::default());
        services.add(&interface::INTERFACES, interface::Interfaces::default());
        services.add(&ndk_objects::NDK_OBJECTS, ndk_objects::NdkObjects::new());
        services.add(&owner::OWNERS, owner::Owners::default());
        services.add(&bus::WINDOWS, Windows::default());
        services.add(&bus::BUS_MASTERING, false.into());
        services.add(&config::KEYWORDS, Mutex::default());
        services.add(&config::READ, Mutex::default());
        services.add(&event_log::LOG, Mutex::default());
        services.add(&interrupt::VECTORS, Mutex::default());
        services.add(&interrupt::RECEIVE_LIMIT, interrupt::DEFAULT_RECEIVE_LIMIT.into());
        services.add(&protocol::PROTOCOLS, Vec::new());
        services.add(&nbl::LENT, Mutex::default());
        services.add(&nbl::LONG_MDLS, false.into());
        services.add(&ndk_state::CLOSED_BEFORE_HALT, false.into());
        services.add(&clones::CLONES, Mutex::default());
        services.add(&sg_list::MAPPED_BUFFERS, Mutex::default());
    }

    unsafe fn handle_fault(
        &self,
        host: &Host,
        address: usize,
        context: &mut FaultContext<'_>,
    ) -> FaultOutcome {
        // SAFETY: the caller passes the context of a fault of this thread, which is forwarded unchanged.
        unsafe { bus::access_register(host, address, context) }
    }
}

/// Builds simulations whose hosts have NDIS, the IP helper and Winsock Kernel.
#[must_use]
pub fn builder() -> SimBuilder {
    Sim::builder().with(&NDIS).with(&netio::NETIO).with(&wsk::WSK)
}
