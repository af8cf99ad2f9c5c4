// SPDX-License-Identifier: MIT OR Apache-2.0

//! One simulated Windows machine, and the subsystems that extend it.
//!
//! Everything else in this crate that concerns a host stands above this file: threads, interrupts, drivers
//! and the services of NT add their methods to [`Host`] in their own files.

use std::{
    any::Any,
    path::Path,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;

use crate::{
    cpu::{Cpus, groups::MAX_GROUP_SIZE, id::CpuId},
    delays::Delays,
    event_queue::{EventId, EventQueue},
    image::{
        LoadError,
        frame::Capture,
        guard,
        images::Images,
        load::{self as image, Image},
        missing,
        registers::FaultContext,
    },
    import::table::{Import, ImportTable},
    memory::Memory,
    services::{Services, Slot},
    thread::shared::ThreadShared,
    verifier::{codes::BugCheck, low_resources::LowResources, objects::Objects, tolerance::Tolerances},
    world::World,
};

/// Index of a host in its simulation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostId(pub usize);

/// Configuration of a host.
#[derive(Clone, Debug)]
pub struct HostOptions {
    pub name: String,
    /// Number of CPUs.
    pub cpus: u32,
    /// CPUs of a processor group, at most 64. Windows has smaller groups for tests (`bcdedit /set groupsize`).
    pub group_size: u32,
    /// Bytes of physical memory, a quarter of it below 4 GiB. Pages are allocated on first access.
    pub memory: u64,
    /// Makes all checks (the default), or only those without cost (for benches).
    pub verifier: bool,
    /// Copy debug output to standard error.
    pub echo: bool,
    pub watchdog: WatchdogLimits,
    pub timers: TimerResolution,
}

/// When timers and timeouts expire, and how exact the time is that is not read with the performance counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TimerResolution {
    /// All of it is exact.
    #[default]
    Exact,
    /// As on Windows: at ticks of the clock, every 15.625 ms. High-resolution timers (`EX_TIMER_HIGH_RESOLUTION`) expire
    /// at multiples of `high`: 0.5 to 1 ms, depending on the machine.
    Windows { high: Duration },
}

/// Limits of the DPC watchdog, in the time of the simulation's clock. Exceeding one is the bug check
/// `DPC_WATCHDOG_VIOLATION`. The verifier enforces them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatchdogLimits {
    /// Time allowed for one DPC or interrupt service routine.
    pub routine: Duration,
    /// Time allowed at `DISPATCH_LEVEL` and above without a return below it.
    pub cumulative: Duration,
}

impl Default for WatchdogLimits {
    /// Returns the limits that Windows' crash dumps of this bug check show: 1,280 and 7,680 ticks of 15.625 ms.
    fn default() -> Self {
        Self { routine: Duration::from_secs(20), cumulative: Duration::from_secs(120) }
    }
}

impl HostOptions {
    /// Returns options for a host with two CPUs, 2 GiB of memory, and the verifier on.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            cpus: 2,
            group_size: MAX_GROUP_SIZE,
            memory: 2 << 30,
            verifier: true,
            echo: false,
            watchdog: WatchdogLimits::default(),
            timers: TimerResolution::Exact,
        }
    }
}

/// A part of the simulated system that extends every host: it brings imports and keeps state.
///
/// Subsystems are independent of the kernel: NT itself is one, NDIS is another. Each is a `static` that
/// [`SimBuilder::with`](crate::sim::SimBuilder::with) adds to a simulation.
pub trait Subsystem: Sync {
    /// Returns the functions that an image may import from it, one slice per file.
    fn imports(&self) -> &'static [&'static [Import]];

    /// Adds the state it keeps on a new host. Subsystems are installed in the order they were added.
    fn install(&self, services: &mut Services, world: &World, host: HostId);

    /// Returns what of a driver is still pending after its unload routine returned, e.g. "a timer that is
    /// set". `image` is the driver's.
    fn pending_after_unload(&self, host: &Host, image: &Image) -> Option<&'static str> {
        let _ = (host, image);
        None
    }

    /// Handles an access to memory that faulted. Called in a signal handler: it may take no lock that code
    /// of an image is called with.
    ///
    /// # Safety
    /// `context` is that of the calling thread, as the fault interrupted it.
    unsafe fn handle_fault(
        &self,
        host: &Host,
        address: usize,
        context: &mut FaultContext<'_>,
    ) -> FaultOutcome {
        let _ = (host, address, context);
        FaultOutcome::NotMine
    }
}

/// Outcome of [`Subsystem::handle_fault`].
pub enum FaultOutcome {
    /// The access was executed; the thread continues.
    Handled,
    /// The address does not belong to the subsystem.
    NotMine,
    /// The access violates a rule.
    Violation(BugCheck, String),
}

/// The subsystems of a simulation, and the imports they bring together.
pub(crate) struct Subsystems {
    list: Vec<&'static dyn Subsystem>,
    imports: ImportTable,
}

impl Subsystems {
    pub fn new(list: Vec<&'static dyn Subsystem>) -> Self {
        let imports = ImportTable::new(list.iter().flat_map(|one| one.imports()).copied().flatten());
        Self { list, imports }
    }
}

/// All hosts of a simulation, in the order they were added.
pub(crate) type HostList = Mutex<Vec<Weak<Host>>>;

/// One simulated Windows machine: physical memory, CPUs, hardware, the images of its drivers.
pub struct Host {
    id: HostId,
    options: HostOptions,
    world: Arc<World>,
    peers: Arc<HostList>,
    subsystems: Arc<Subsystems>,
    dead: AtomicBool,
    next_cpu: AtomicU32,
    hardware: EventQueue,
    pub cpus: Cpus,
    pub memory: Memory,
    images: Images,
    /// Objects besides pool that the image holds.
    pub objects: Objects,
    /// Fails allocations on purpose.
    pub low_resources: LowResources,
    /// Threads delayed by a test.
    pub delays: Delays,
    handles: AtomicUsize,
    log: Mutex<Vec<String>>,
    services: Services,
}

impl Host {
    /// Creates a host and adds it to `peers`. `capture` walks the calling thread's stack.
    pub(crate) fn new(
        world: &Arc<World>,
        subsystems: &Arc<Subsystems>,
        peers: &Arc<HostList>,
        options: HostOptions,
        capture: Capture,
    ) -> Arc<Self> {
        let id = HostId(peers.lock().len());
        let mut services = Services::default();
        for subsystem in &subsystems.list {
            subsystem.install(&mut services, world, id);
        }
        let deterministic = world.clock.is_deterministic();
        let host = Arc::new(Self {
            id,
            world: world.clone(),
            peers: peers.clone(),
            subsystems: subsystems.clone(),
            dead: AtomicBool::new(false),
            next_cpu: AtomicU32::new(0),
            hardware: EventQueue::default(),
            cpus: Cpus::new(options.cpus, options.group_size, deterministic),
            memory: Memory::new(
                options.memory,
                options.verifier,
                deterministic,
                capture,
                world.random(&format!("physical memory {}", id.0)),
            )
            .expect("the machine has memory to map"),
            images: Images::default(),
            objects: Objects::new(capture),
            low_resources: LowResources::new(world.random(&format!("low resources {}", id.0))),
            delays: Delays::default(),
            handles: AtomicUsize::new(0),
            log: Mutex::default(),
            services,
            options,
        });
        peers.lock().push(Arc::downgrade(&host));
        host
    }

    /// Returns all hosts of the simulation, in the order they were added.
    #[must_use]
    pub fn peers(&self) -> Vec<Arc<Self>> {
        self.peers.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns the state that a subsystem keeps on this host.
    ///
    /// # Panics
    /// When the subsystem is not part of the simulation.
    #[inline]
    #[must_use]
    pub fn state<T: Any + Send + Sync>(&self, slot: &'static Slot<T>) -> &T {
        self.services.get(slot)
    }

    /// Loads an image, behind those that are loaded already.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub(crate) fn load_image(
        &self,
        path: &Path,
        tolerates: Tolerances,
        (on_missing, on_unlisted): (missing::Handler, guard::Handler),
    ) -> Result<Arc<Image>, LoadError> {
        let load = |base| {
            // The upper 16 bits of a cookie are 0, as on Windows.
            let cookie = self.world.random(&format!("security cookie {base:x}")).u64(1..1 << 48);
            let yields_at_pauses = self.world.clock.is_deterministic();
            let options = image::Options { cookie, tolerates, on_missing, on_unlisted, yields_at_pauses };
            Image::load(path, base, options, &self.subsystems.imports)
        };
        let image = self.images.load(self.memory.image_base(), load)?;
        if self.verifies() {
            image.make_sections_pageable(&self.memory.paged);
        }
        Ok(image)
    }

    /// Returns what of a driver is still pending after its unload routine returned.
    pub(crate) fn pending_after_unload(&self, image: &Image) -> Option<&'static str> {
        self.subsystems.list.iter().find_map(|subsystem| subsystem.pending_after_unload(self, image))
    }

    /// Lets the subsystems handle an access that faulted.
    ///
    /// # Safety
    /// As [`Subsystem::handle_fault`].
    pub(crate) unsafe fn handle_fault(&self, address: usize, context: &mut FaultContext<'_>) -> FaultOutcome {
        for subsystem in &self.subsystems.list {
            // SAFETY: the caller passes the context of a fault of this thread, which is forwarded unchanged.
            let outcome = unsafe { subsystem.handle_fault(self, address, context) };
            if !matches!(outcome, FaultOutcome::NotMine) {
                return outcome;
            }
        }
        FaultOutcome::NotMine
    }

    #[must_use]
    pub fn id(&self) -> HostId {
        self.id
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.options.name
    }

    #[must_use]
    pub fn options(&self) -> &HostOptions {
        &self.options
    }

    #[must_use]
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Returns the images that were loaded.
    #[must_use]
    pub fn images(&self) -> &Images {
        &self.images
    }

    /// Whether the verifier checks everything on this host.
    #[must_use]
    pub fn verifies(&self) -> bool {
        self.options.verifier
    }

    /// Whether the host has bug checked or lost power.
    #[inline]
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead.load(Relaxed)
    }

    /// Cuts the power: every thread of the host stops at its next import, and its devices stop.
    pub fn power_off(&self) {
        self.die();
    }

    pub(crate) fn die(&self) {
        self.dead.store(true, Relaxed);
        self.world.wake_waiters();
    }

    /// Runs `event` at `time` on the host's hardware thread.
    pub fn at(&self, time: u64, event: impl FnOnce() + Send + 'static) -> EventId {
        self.hardware.at(&self.world.clock, time, event)
    }

    /// Runs `event` on the host's hardware thread as soon as possible.
    pub fn post(&self, event: impl FnOnce() + Send + 'static) -> EventId {
        self.at(self.world.now(), event)
    }

    /// Cancels an event of [`Host::at`] or [`Host::post`]; returns `false` when it has run already.
    pub fn cancel(&self, event: EventId) -> bool {
        self.hardware.cancel(event)
    }

    /// Returns a new handle that the image cannot dereference: its address is not canonical.
    #[must_use]
    pub fn new_handle(&self) -> usize {
        const FIRST: usize = 0x00ff_0000_0000_0000;
        FIRST + self.handles.fetch_add(1, Relaxed) * 0x40
    }

    /// Records a line of debug output.
    pub(crate) fn debug_print(&self, text: String) {
        if self.options.echo {
            eprint!("{}: {text}{}", self.name(), if text.ends_with('\n') { "" } else { "\n" });
        }
        self.log.lock().push(text);
    }

    /// Returns what the image printed so far.
    #[must_use]
    pub fn debug_output(&self) -> Vec<String> {
        self.log.lock().clone()
    }

    /// Returns the CPU that the next thread starts on.
    pub(crate) fn next_cpu(&self) -> CpuId {
        CpuId(self.next_cpu.fetch_add(1, Relaxed) % self.cpus.count())
    }

    /// The body of the host's hardware thread.
    pub(crate) fn run_hardware(&self, me: &Arc<ThreadShared>) {
        self.hardware.run(&self.world.clock, me, || self.world.is_stopping());
    }
}
