// SPDX-License-Identifier: MIT OR Apache-2.0

//! A simulation: its hosts and the threads that serve them.

use std::{ops::Deref, sync::Arc};

use crate::{
    clock::ClockKind,
    cng::CNG,
    cpu::id::CpuId,
    event::Event,
    host::{Host, HostList, HostOptions, Subsystem, Subsystems},
    image::stack,
    memory::Alone,
    nt::{NT, work},
    thread::{
        current::{attach, current, detach, try_current},
        shared::ThreadShared,
        spawn::{JoinHandle, spawn},
    },
    verifier::verdict::Verdict,
    world::World,
};

/// Configuration of a simulation.
#[derive(Clone)]
pub struct SimBuilder {
    clock: ClockKind,
    seed: u64,
    subsystems: Vec<&'static dyn Subsystem>,
}

impl SimBuilder {
    /// Sets the clock; [`ClockKind::Threaded`] by default.
    #[must_use]
    pub fn clock(mut self, clock: ClockKind) -> Self {
        self.clock = clock;
        if let ClockKind::Deterministic { seed } = clock {
            self.seed = seed;
        }
        self
    }

    /// Sets the seed of all random generators; 0 by default.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        if let ClockKind::Deterministic { seed: of_clock } = &mut self.clock {
            *of_clock = seed;
        }
        self
    }

    /// Adds a subsystem. NT and CNG are always present.
    #[must_use]
    pub fn with(mut self, subsystem: &'static dyn Subsystem) -> Self {
        self.subsystems.push(subsystem);
        self
    }

    /// Builds the simulation; the calling thread becomes its harness thread.
    ///
    /// # Panics
    /// When the calling thread belongs to a simulation already.
    #[must_use]
    pub fn build(self) -> Sim {
        assert!(try_current().is_none(), "one simulation per thread at a time");
        let alone = matches!(self.clock, ClockKind::Deterministic { .. }).then(Alone::wait);
        let world = Arc::new(World::new(self.clock, self.seed));
        let harness = Arc::new(ThreadShared::new(world.next_thread_id(), "harness"));
        world.clock.register(&harness);
        attach(harness, world.clone(), None, CpuId(0), false);
        let wire = world.clone();
        let services = vec![spawn(&world, None, CpuId(0), false, "wire", move || {
            wire.run_events(current().shared());
        })];
        Sim {
            world,
            subsystems: Arc::new(Subsystems::new(self.subsystems)),
            peers: Arc::default(),
            hosts: Vec::new(),
            services,
            _alone: alone,
        }
    }
}

/// A simulation, owned by its harness thread. Dropping it stops all its threads and unmaps the memory of its
/// hosts. A process runs one deterministic simulation at a time; building another waits.
pub struct Sim {
    world: Arc<World>,
    subsystems: Arc<Subsystems>,
    peers: Arc<HostList>,
    hosts: Vec<Arc<Host>>,
    services: Vec<JoinHandle<()>>,
    /// Reserves the addresses of deterministic simulations, which are the same in each run.
    _alone: Option<Alone>,
}

impl Sim {
    #[must_use]
    pub fn builder() -> SimBuilder {
        SimBuilder { clock: ClockKind::Threaded, seed: 0, subsystems: vec![&NT, &CNG] }
    }

    #[must_use]
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Adds a host and starts its hardware, its DPC threads and its workers.
    pub fn add_host(&mut self, options: HostOptions) -> Arc<Host> {
        let host = Host::new(&self.world, &self.subsystems, &self.peers, options, stack::capture_up_to);
        self.services.extend(start_services(&host));
        self.hosts.push(host.clone());
        host
    }

    /// Creates an event that harness and simulated threads may use.
    #[must_use]
    pub fn event(&self) -> Event {
        Event::new(&self.world)
    }

    /// Returns the violations reported so far.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.world.verdict()
    }
}

impl Deref for Sim {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.world.stop();
        let hosts = std::mem::take(&mut self.hosts);
        for host in &hosts {
            wake_services(host);
        }
        if !std::thread::panicking() {
            for service in self.services.drain(..) {
                // Threads of a dead host never end.
                let _ = service.join();
            }
        }
        for host in &hosts {
            // Stops the threads that still run on it.
            host.die();
            host.memory.vacate();
        }
        detach();
    }
}

/// Starts the threads that serve a host: its hardware, an idle thread per CPU, its workers.
fn start_services(host: &Arc<Host>) -> Vec<JoinHandle<()>> {
    let mut services = Vec::new();
    let this = host.clone();
    services.push(host.spawn_service(CpuId(0), "hardware", move || this.run_hardware(current().shared())));
    for cpu in (0..host.cpus.maximum()).map(CpuId) {
        let this = host.clone();
        services.push(host.spawn_service(cpu, &format!("DPC {}", cpu.0), move || run_idle(&this, cpu)));
    }
    services.extend(work::start(host));
    services
}

/// The body of a CPU's idle thread: runs the DPCs of its queue that no other thread runs.
fn run_idle(host: &Arc<Host>, cpu: CpuId) {
    let me = current();
    me.pin(cpu);
    host.cpus.dpcs(cpu).set_idle_thread(me.shared());
    while !host.world().is_stopping() {
        me.idle(host);
    }
}

/// Wakes the threads that serve a host, so that they notice that the simulation ends.
fn wake_services(host: &Host) {
    host.post(|| {});
    for cpu in (0..host.cpus.maximum()).map(CpuId) {
        host.cpus.dpcs(cpu).wake(&host.world().clock);
    }
    work::wake(host);
}
