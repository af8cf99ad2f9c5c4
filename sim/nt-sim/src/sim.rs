//! A simulation: its clock, its hosts, what was reported.

use std::{
    collections::BTreeMap,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use crate::{
    Event,
    clock::{Clock, ClockKind, EventId, Lane},
    cpu::CpuId,
    host::{Host, HostOptions},
    memory::Alone,
    thread::{self, Gate, JoinHandle, ThreadId, ThreadShared},
    verifier::{Verdict, Violation},
};

/// What all parts of a simulation share.
pub struct World {
    pub clock: Clock,
    /// Events of what lies between hosts.
    lane: Lane,
    kind: ClockKind,
    seed: u64,
    stopping: AtomicBool,
    threads: AtomicU32,
    hosts: Mutex<Vec<Arc<Host>>>,
    violations: Mutex<Vec<Violation>>,
    /// Threads that wait for something that may never come once a host is dead.
    waiters: Mutex<BTreeMap<ThreadId, Arc<ThreadShared>>>,
}

impl World {
    #[must_use]
    pub fn kind(&self) -> ClockKind {
        self.kind
    }

    /// Nanoseconds since the simulation was built.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Runs `event` at `time` on the thread of what lies between hosts (the wire).
    pub fn at(&self, time: u64, event: impl FnOnce() + Send + 'static) -> EventId {
        self.lane.at(&self.clock, time, event)
    }

    /// Takes back an event of [`World::at`].
    pub fn cancel(&self, event: EventId) -> bool {
        self.lane.cancel(event)
    }

    /// A random generator of its own for `purpose`: what others draw does not change what it yields.
    #[must_use]
    pub fn random(&self, purpose: &str) -> fastrand::Rng {
        // FNV-1a: stable across runs and machines, unlike the standard library's hasher.
        let hash = purpose.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        fastrand::Rng::with_seed(self.seed.rotate_left(32) ^ hash)
    }

    /// Whether the simulation ends: service threads return from their loops.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    /// All hosts, in the order they were added.
    #[must_use]
    pub fn hosts(&self) -> Vec<Arc<Host>> {
        self.hosts.lock().clone()
    }

    pub(crate) fn next_thread_id(&self) -> ThreadId {
        ThreadId(self.threads.fetch_add(1, Relaxed))
    }

    pub(crate) fn record(&self, violation: Violation) {
        self.violations.lock().push(violation);
    }

    pub(crate) fn register_waiter(&self, thread: &Arc<ThreadShared>) {
        self.waiters.lock().insert(thread.id, thread.clone());
    }

    pub(crate) fn unregister_waiter(&self, thread: ThreadId) {
        self.waiters.lock().remove(&thread);
    }

    /// Wakes every waiting thread, to look at what happened.
    pub(crate) fn wake_waiters(&self) {
        let waiters: Vec<_> = self.waiters.lock().values().cloned().collect();
        for waiter in waiters {
            self.clock.unpark(&waiter);
        }
    }
}

/// How a simulation is made.
#[derive(Clone, Copy, Debug)]
pub struct SimBuilder {
    clock: ClockKind,
    seed: u64,
}

impl SimBuilder {
    /// The clock; threaded unless told otherwise.
    #[must_use]
    pub fn clock(mut self, clock: ClockKind) -> Self {
        self.clock = clock;
        if let ClockKind::Deterministic { seed } = clock {
            self.seed = seed;
        }
        self
    }

    /// The seed of everything random, 0 unless told otherwise.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        if let ClockKind::Deterministic { seed: of_clock } = &mut self.clock {
            *of_clock = seed;
        }
        self
    }

    /// Builds the simulation; the calling thread becomes its harness thread.
    ///
    /// # Panics
    /// When the calling thread belongs to a simulation already.
    #[must_use]
    pub fn build(self) -> Sim {
        assert!(thread::try_current().is_none(), "one simulation per thread at a time");
        let alone = matches!(self.clock, ClockKind::Deterministic { .. }).then(Alone::wait);
        let world = Arc::new(World {
            clock: Clock::new(self.clock),
            lane: Lane::default(),
            kind: self.clock,
            seed: self.seed,
            stopping: AtomicBool::new(false),
            threads: AtomicU32::new(0),
            hosts: Mutex::default(),
            violations: Mutex::default(),
            waiters: Mutex::default(),
        });
        let harness = Arc::new(ThreadShared {
            id: world.next_thread_id(),
            name: "harness".to_owned(),
            gate: Gate::default(),
        });
        world.clock.register(&harness);
        thread::attach(harness, world.clone(), None, CpuId(0));
        let mut sim = Sim { world: world.clone(), services: Vec::new(), _alone: alone };
        let lane = world.clone();
        sim.services.push(thread::spawn(&world, None, CpuId(0), "wire", move || {
            let me = thread::current();
            lane.lane.run(&lane.clock, me.shared(), || lane.is_stopping());
        }));
        sim
    }
}

/// A simulation, owned by its harness thread. Dropping it ends it: whatever still runs stops, and memory
/// of its hosts must not be touched any more. A process runs one deterministic simulation at a time;
/// building another waits.
pub struct Sim {
    world: Arc<World>,
    services: Vec<JoinHandle<()>>,
    /// Hosts of deterministic simulations lie at the same addresses each time.
    _alone: Option<Alone>,
}

impl Sim {
    #[must_use]
    pub fn builder() -> SimBuilder {
        SimBuilder { clock: ClockKind::Threaded, seed: 0 }
    }

    #[must_use]
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Adds a host and starts its hardware, its DPC threads and its workers.
    pub fn add_host(&mut self, options: HostOptions) -> Arc<Host> {
        let index = self.world.hosts.lock().len();
        let (host, services) = Host::start(&self.world, index, options);
        self.services.extend(services);
        self.world.hosts.lock().push(host.clone());
        host
    }

    /// An event that harness and simulated threads may use.
    #[must_use]
    pub fn event(&self) -> Event {
        Event::new(&self.world)
    }

    /// What the verifier found so far.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        Verdict { violations: self.world.violations.lock().clone() }
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
        self.world.stopping.store(true, Relaxed);
        let hosts = std::mem::take(&mut *self.world.hosts.lock());
        for host in &hosts {
            host.stop();
        }
        self.world.at(0, || {});
        if !std::thread::panicking() {
            for service in self.services.drain(..) {
                // Threads of a dead host never end.
                let _ = service.join();
            }
        }
        for host in &hosts {
            // Whatever still runs on it stops.
            host.die();
            host.memory.vacate();
        }
        thread::detach();
    }
}
