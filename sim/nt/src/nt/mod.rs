// SPDX-License-Identifier: MIT OR Apache-2.0

//! NT as a subsystem: the imports of `ntoskrnl.exe` and the state behind them.

pub mod critical_region;
pub mod crt;
pub mod debug;
pub mod dispatcher;
pub mod dpc;
pub mod etw;
pub mod file_tree;
pub mod files;
pub mod format;
pub mod handles;
mod header;
pub mod io;
pub mod ip_strings;
pub mod irql;
pub mod lists;
mod lock_order;
pub mod lookaside;
pub mod mdl;
pub mod mutant;
pub mod mutex;
pub mod named_events;
pub mod pool;
pub mod processor;
pub mod push_lock;
pub mod random;
pub mod registry;
pub mod registry_tree;
pub mod registry_values;
pub mod resource;
pub mod rundown;
pub mod runtime;
pub mod security;
pub mod semaphore;
mod shared_data;
pub mod spin_lock;
pub mod stdio;
pub mod strings;
pub mod system_routine;
pub mod system_threads;
pub mod thread_objects;
pub mod time;
pub mod timer;
pub mod trace_logging;
pub mod trace_recorder;
pub mod trace_sessions;
pub mod variables;
pub mod version;
mod waits;
pub mod wide_text;
pub mod work;

use std::sync::OnceLock;

use parking_lot::Mutex;

use crate::{
    driver,
    host::{FaultOutcome, Host, HostId, Subsystem},
    image::{EntryPoints, Image, registers::FaultContext},
    import::table::Import,
    services::Services,
    world::World,
};

/// All imports of this module, one slice per file.
pub const IMPORTS: &[&[Import]] = &[
    critical_region::IMPORTS,
    crt::IMPORTS,
    debug::IMPORTS,
    dispatcher::IMPORTS,
    dpc::IMPORTS,
    etw::IMPORTS,
    files::IMPORTS,
    handles::IMPORTS,
    io::allocated::IMPORTS,
    io::attach::IMPORTS,
    io::built::IMPORTS,
    io::cancel::IMPORTS,
    io::cancel_lock::IMPORTS,
    io::complete::IMPORTS,
    io::csq::IMPORTS,
    io::device::IMPORTS,
    io::dispatch::IMPORTS,
    io::property::IMPORTS,
    io::remove_lock::IMPORTS,
    io::symlink::IMPORTS,
    io::wmi::IMPORTS,
    ip_strings::IMPORTS,
    irql::IMPORTS,
    lists::IMPORTS,
    lookaside::IMPORTS,
    mdl::IMPORTS,
    mutant::IMPORTS,
    mutex::IMPORTS,
    named_events::IMPORTS,
    pool::IMPORTS,
    processor::IMPORTS,
    push_lock::IMPORTS,
    registry::IMPORTS,
    registry_values::IMPORTS,
    resource::IMPORTS,
    rundown::IMPORTS,
    runtime::IMPORTS,
    security::IMPORTS,
    security::VARIABLES,
    semaphore::IMPORTS,
    spin_lock::IMPORTS,
    stdio::IMPORTS,
    strings::IMPORTS,
    system_routine::IMPORTS,
    system_threads::IMPORTS,
    thread_objects::IMPORTS,
    time::IMPORTS,
    timer::IMPORTS,
    trace_recorder::IMPORTS,
    variables::IMPORTS,
    version::IMPORTS,
    wide_text::IMPORTS,
    work::IMPORTS,
];

/// The kernel's own services, part of every simulation.
pub struct Nt;

/// The one [`Nt`].
pub static NT: Nt = Nt;

impl Subsystem for Nt {
    fn imports(&self) -> &'static [&'static [Import]] {
        IMPORTS
    }

    fn install(&self, services: &mut Services, world: &World, host: HostId) {
        driver::install(services);
        services.add(&work::WORK, work::Queue::default());
        services.add(&work::IO_WORK_ITEMS, work::IoWorkItems::default());
        services.add(&work::QUEUED_ITEMS, work::QueuedItems::default());
        services.add(&system_threads::SYSTEM_THREADS, system_threads::SystemThreads::default());
        services.add(&thread_objects::THREAD_OBJECTS, thread_objects::ThreadObjects::default());
        services.add(&waits::WAITS, waits::Waits::default());
        services.add(&critical_region::REGIONS, critical_region::Regions::default());
        services.add(&push_lock::PUSH_LOCKS, push_lock::PushLocks::default());
        services.add(&resource::RESOURCES, resource::Resources::default());
        services.add(&dispatcher::DISPATCHER, dispatcher::Dispatcher::default());
        services.add(&dpc::DPCS, dpc::Queued::default());
        services.add(&timer::TIMERS, timer::Timers::default());
        services.add(&spin_lock::LOCK_ORDER, lock_order::Order::default());
        services.add(&mdl::CONTIGUOUS, mdl::Contiguous::default());
        services.add(&time::STALLED, std::sync::atomic::AtomicU64::new(0));
        services.add(&mdl::MAPPINGS, std::sync::atomic::AtomicU64::new(0));
        services.add(&io::namespace::NAMESPACE, Mutex::default());
        services.add(&io::device::DEVICES, Mutex::default());
        services.add(
            &io::device::DEFAULT_DISPATCH,
            EntryPoints::new(io::device::DEFAULTS).expect("memory for code"),
        );
        services.add(&io::property::PHYSICAL_DEVICES, io::property::PhysicalDevices::default());
        services.add(&io::request::REQUESTS, io::request::Requests::default());
        services.add(&io::remove_lock::HOLDERS, io::remove_lock::Holders::default());
        services.add(&io::cancel_lock::CANCEL_LOCK, OnceLock::new());
        services.add(&io::csq::CANCEL_ROUTINE, EntryPoints::new(io::csq::ROUTINES).expect("memory for code"));
        services.add(&handles::HANDLES, handles::Handles::default());
        services.add(&named_events::NAMED_EVENTS, named_events::NamedEvents::default());
        services.add(&file_tree::FILES, file_tree::Files::default());
        services.add(&registry_tree::REGISTRY, registry_tree::Registry::default());
        services.add(&system_routine::SYSTEM_ROUTINES, system_routine::SystemRoutines::new(IMPORTS));
        services.add(&trace_sessions::SESSIONS, trace_sessions::Sessions::default());
        services.add(&random::RANDOM, random::generator(world, host));
        services.add(&shared_data::READERS, trapped_access::Decoder::default());
    }

    unsafe fn handle_fault(
        &self,
        host: &Host,
        address: usize,
        context: &mut FaultContext<'_>,
    ) -> FaultOutcome {
        // SAFETY: the caller passes the context of a fault of this thread, which is forwarded unchanged.
        unsafe { shared_data::read(host, address, context) }
    }

    fn pending_after_unload(&self, host: &Host, image: &Image) -> Option<&'static str> {
        if host.state(&timer::TIMERS).is_set_by(image) {
            Some("a timer that is set")
        } else if host.state(&dpc::DPCS).is_queued_by(image) {
            Some("a DPC that is queued")
        } else if thread_objects::runs(host, |routine| image.contains(routine)) {
            Some("a thread that runs")
        } else {
            None
        }
    }
}
