//! One simulated machine.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed},
};

use parking_lot::Mutex;

use crate::{
    Event,
    clock::{EventId, Lane},
    cpu::{CpuId, Cpus, dpc::Dpc, irql::Irql},
    driver::Driver,
    image::Image,
    memory::Memory,
    ndis,
    netio::{self, Discovery},
    nt,
    sim::World,
    thread::{self, JoinHandle, current},
    verifier::{low_resources::LowResources, objects::Objects},
};

/// Index of a host in its simulation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostId(pub usize);

/// How a host is made.
#[derive(Clone, Debug)]
pub struct HostOptions {
    pub name: String,
    /// Number of CPUs.
    pub cpus: u32,
    /// Bytes of physical memory. Pages cost nothing until touched.
    pub memory: u64,
    /// Check everything (the default), or only what costs nothing (for benches).
    pub verifier: bool,
    /// Copy debug output to standard error.
    pub echo: bool,
    /// How it finds its neighbors.
    pub discovery: Discovery,
}

impl HostOptions {
    /// Two CPUs, 2 GiB, verifier on, neighbors found without frames.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            cpus: 2,
            memory: 2 << 30,
            verifier: true,
            echo: false,
            discovery: Discovery::Simulated,
        }
    }
}

/// One simulated machine: physical memory, CPUs, hardware, one image.
pub struct Host {
    id: HostId,
    options: HostOptions,
    world: Arc<World>,
    dead: AtomicBool,
    next_cpu: AtomicU32,
    hardware: Lane,
    pub cpus: Cpus,
    pub memory: Memory,
    image: OnceLock<Image>,
    /// What the image holds besides pool.
    pub objects: Objects,
    /// Fails allocations on purpose.
    pub low_resources: LowResources,
    handles: AtomicUsize,
    pub(crate) driver: Mutex<Option<Driver>>,
    log: Mutex<Vec<String>>,
    pub(crate) nt: nt::State,
    pub(crate) ndis: ndis::State,
    pub(crate) netio: netio::State,
}

impl Host {
    pub(crate) fn start(
        world: &Arc<World>,
        index: usize,
        options: HostOptions,
    ) -> (Arc<Self>, Vec<JoinHandle<()>>) {
        let host = Arc::new(Self {
            id: HostId(index),
            world: world.clone(),
            dead: AtomicBool::new(false),
            next_cpu: AtomicU32::new(0),
            hardware: Lane::default(),
            cpus: Cpus::new(options.cpus, world.clock.is_deterministic()),
            memory: Memory::new(options.memory, options.verifier, world.clock.is_deterministic())
                .expect("the machine has memory to map"),
            image: OnceLock::new(),
            objects: Objects::default(),
            nt: nt::State::new(world.random(&format!("nt {index}"))),
            low_resources: LowResources::new(world.random(&format!("low resources {index}"))),
            handles: AtomicUsize::new(0),
            driver: Mutex::default(),
            log: Mutex::default(),
            ndis: ndis::State::default(),
            netio: netio::State::default(),
            options,
        });
        let mut services = Vec::new();
        let lane = host.clone();
        services.push(host.spawn_on(CpuId(0), "hardware", move || {
            let me = current();
            lane.hardware.run(&lane.world.clock, me.shared(), || lane.world.is_stopping());
        }));
        for cpu in (0..host.cpus.count()).map(CpuId) {
            let this = host.clone();
            services.push(host.spawn_on(cpu, &format!("DPC {}", cpu.0), move || {
                current().pin(cpu);
                this.cpus.dpcs(cpu).run(&this);
            }));
        }
        services.extend(nt::work::start(&host));
        (host, services)
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

    /// The loaded image.
    #[must_use]
    pub fn image(&self) -> Option<&Image> {
        self.image.get()
    }

    /// Sets the image; `false` when there is one already.
    pub(crate) fn set_image(&self, image: Image) -> bool {
        self.image.set(image).is_ok()
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

    /// Cuts the power: every thread of the host stops at its next import; devices do no more.
    pub fn power_off(&self) {
        self.die();
    }

    pub(crate) fn die(&self) {
        self.dead.store(true, Relaxed);
        self.world.wake_waiters();
    }

    /// Starts a system thread at `PASSIVE_LEVEL`.
    pub fn spawn<T: Send + 'static>(
        self: &Arc<Self>,
        name: &str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let cpu = CpuId(self.next_cpu.fetch_add(1, Relaxed) % self.cpus.count());
        self.spawn_on(cpu, name, body)
    }

    fn spawn_on<T: Send + 'static>(
        self: &Arc<Self>,
        cpu: CpuId,
        name: &str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        thread::spawn(&self.world, Some(self), cpu, &format!("{} {name}", self.name()), body)
    }

    /// An event that callbacks of the image may set.
    #[must_use]
    pub fn event(&self) -> Event {
        Event::new(&self.world)
    }

    /// Runs `event` at `time` on the host's hardware thread.
    pub fn at(&self, time: u64, event: impl FnOnce() + Send + 'static) -> EventId {
        self.hardware.at(&self.world.clock, time, event)
    }

    /// Runs `event` on the host's hardware thread as soon as possible.
    pub fn post(&self, event: impl FnOnce() + Send + 'static) -> EventId {
        self.at(self.world.now(), event)
    }

    /// Takes back an event of [`Host::at`] or [`Host::post`]; `false` when it ran already.
    pub fn cancel(&self, event: EventId) -> bool {
        self.hardware.cancel(event)
    }

    /// Runs an interrupt service routine on `cpu` at `level`, from the hardware thread: it
    /// interrupts whatever runs there.
    pub fn interrupt(&self, cpu: CpuId, level: Irql, routine: impl FnOnce() + Send + 'static) {
        self.post(move || current().interrupt(cpu, level, routine));
    }

    /// A handle that the image can hold but not look into: its address is not canonical.
    #[must_use]
    pub fn new_handle(&self) -> usize {
        const FIRST: usize = 0x00ff_0000_0000_0000;
        FIRST + self.handles.fetch_add(1, Relaxed) * 0x40
    }

    /// Notes a line of debug output.
    pub(crate) fn debug_print(&self, text: String) {
        if self.options.echo {
            eprint!("{}: {text}{}", self.name(), if text.ends_with('\n') { "" } else { "\n" });
        }
        self.log.lock().push(text);
    }

    /// What the image printed so far.
    #[must_use]
    pub fn debug_output(&self) -> Vec<String> {
        self.log.lock().clone()
    }

    /// Queues a host-side routine to run at `DISPATCH_LEVEL` on `cpu`.
    pub fn queue_dpc(&self, cpu: CpuId, routine: impl FnOnce() + Send + 'static) {
        self.cpus.dpcs(cpu).push(&self.world.clock, Dpc { key: 0, routine: Box::new(routine) }, false);
    }

    /// Queues a host-side routine to run at `PASSIVE_LEVEL` on a worker thread.
    pub fn queue_work(&self, routine: impl FnOnce() + Send + 'static) {
        self.nt.work.push(&self.world.clock, Box::new(routine));
    }

    /// Wakes the host's service threads so that they see that the simulation ends.
    pub(crate) fn stop(&self) {
        self.post(|| {});
        for cpu in (0..self.cpus.count()).map(CpuId) {
            self.queue_dpc(cpu, || {});
        }
        self.nt.work.stop(&self.world.clock);
    }
}
