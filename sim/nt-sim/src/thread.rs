//! Threads of the simulation, and what each knows of itself: its host, CPU and IRQL.

use std::{
    cell::{Cell, RefCell},
    marker::PhantomData,
    mem::MaybeUninit,
    ops::Deref,
    panic::{self, AssertUnwindSafe},
    ptr::NonNull,
    sync::Arc,
    time::Instant,
};

use parking_lot::{Condvar, Mutex};

use crate::{
    Irql,
    cpu::CpuId,
    host::Host,
    sim::World,
    verifier::{BugCheck, violation},
};

/// Size of a simulated thread's stack: what NT gives a driver on x64, and room for the host-side
/// functions behind imports, which live on the same stack. The page below it is a guard page.
pub const STACK_SIZE: usize = KERNEL_STACK_SIZE + HOST_STACK_SIZE;

/// The stack that an image and the consumers above it may use: 24 KiB on x64.
pub const KERNEL_STACK_SIZE: usize = 24 << 10;

/// What the host-side functions may need on top, measured with room to spare.
pub const HOST_STACK_SIZE: usize = 232 << 10;

/// Numbers threads in the order of their creation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThreadId(pub u32);

impl ThreadId {
    /// The thread that built the simulation.
    pub const HARNESS: Self = Self(0);
}

/// What other threads may know of a thread.
pub struct ThreadShared {
    pub id: ThreadId,
    pub name: String,
    pub(crate) gate: Gate,
}

/// Something to wait at: opened once per passage.
#[derive(Default)]
pub(crate) struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub fn open(&self) {
        *self.open.lock() = true;
        self.opened.notify_one();
    }

    pub fn wait(&self) {
        let mut open = self.open.lock();
        while !std::mem::take(&mut *open) {
            self.opened.wait(&mut open);
        }
    }

    pub fn wait_until(&self, deadline: Instant) {
        let mut open = self.open.lock();
        while !std::mem::take(&mut *open) {
            if self.opened.wait_until(&mut open, deadline).timed_out() {
                *open = false;
                return;
            }
        }
    }
}

/// A thread's own state. Reached through [`current`], never from another thread.
pub struct Thread {
    shared: Arc<ThreadShared>,
    world: Arc<World>,
    host: Option<Arc<Host>>,
    irql: Cell<Irql>,
    cpu: Cell<CpuId>,
    /// The CPU is this thread's own: it never runs on another (DPC threads, pinned threads).
    pinned: Cell<bool>,
    /// Runs an interrupt service routine: above `DISPATCH_LEVEL` without a dispatch token, because it
    /// interrupted whoever holds it.
    interrupt: Cell<bool>,
    /// Lowest and highest address of the thread's stack.
    stack: (usize, usize),
    verifies: bool,
    /// Spin locks held, in the order of acquisition. Kept by the verifier only.
    pub(crate) locks: RefCell<Vec<crate::nt::spin_lock::Held>>,
}

impl Thread {
    #[must_use]
    pub fn id(&self) -> ThreadId {
        self.shared.id
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    #[must_use]
    pub fn shared(&self) -> &Arc<ThreadShared> {
        &self.shared
    }

    #[must_use]
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// The host this thread belongs to.
    ///
    /// # Panics
    /// On the harness thread and on lanes between hosts, which belong to none.
    #[must_use]
    pub fn host(&self) -> &Arc<Host> {
        self.host.as_ref().expect("this thread belongs to no host")
    }

    #[must_use]
    pub fn try_host(&self) -> Option<&Arc<Host>> {
        self.host.as_ref()
    }

    #[must_use]
    pub fn irql(&self) -> Irql {
        self.irql.get()
    }

    /// Whether the verifier checks everything this thread does.
    #[inline]
    #[must_use]
    pub fn verifies(&self) -> bool {
        self.verifies
    }

    /// The CPU the thread runs on. Below `DISPATCH_LEVEL` it may change at any time.
    #[must_use]
    pub fn cpu(&self) -> CpuId {
        self.cpu.get()
    }

    /// Raises the IRQL; at `DISPATCH_LEVEL` and above the thread owns its CPU. Returns the old level.
    /// Raising to a lower level is a violation.
    pub fn raise(&self, level: Irql) -> Irql {
        let old = self.irql.get();
        if level < old {
            violation(BugCheck::IRQL_NOT_GREATER_OR_EQUAL, format!("raising the IRQL from {old} to {level}"));
        }
        if old < Irql::DISPATCH_LEVEL
            && level >= Irql::DISPATCH_LEVEL
            && let Some(host) = &self.host
        {
            self.cpu.set(host.cpus.acquire(
                &self.world.clock,
                &self.shared,
                self.cpu.get(),
                self.pinned.get(),
            ));
        }
        self.irql.set(level);
        old
    }

    /// Lowers the IRQL; below `DISPATCH_LEVEL` the CPU is given up.
    /// Lowering to a higher level is a violation.
    pub fn lower(&self, level: Irql) {
        let old = self.irql.get();
        if level > old {
            violation(BugCheck::IRQL_NOT_LESS_OR_EQUAL, format!("lowering the IRQL from {old} to {level}"));
        }
        if level < Irql::DISPATCH_LEVEL && old >= Irql::DISPATCH_LEVEL {
            crate::nt::spin_lock::check_none_held(self, level);
            self.irql.set(level);
            if !self.interrupt.get()
                && let Some(host) = &self.host
            {
                host.cpus.release(&self.world.clock, self.cpu.get());
            }
        }
        self.irql.set(level);
    }

    /// Runs `body` as an interrupt service routine would run: at a device level on `cpu`, above
    /// whatever runs there.
    pub fn interrupt<T>(&self, cpu: CpuId, level: Irql, body: impl FnOnce() -> T) -> T {
        let before = (self.irql.replace(level), self.cpu.replace(cpu), self.interrupt.replace(true));
        let result = body();
        self.irql.set(before.0);
        self.cpu.set(before.1);
        self.interrupt.set(before.2);
        result
    }

    /// Pins the thread to a CPU.
    pub(crate) fn pin(&self, cpu: CpuId) {
        self.cpu.set(cpu);
        self.pinned.set(true);
    }

    /// Blocks until unparked or `deadline`; see [`crate::clock::Clock::park`].
    pub fn park(&self, deadline: Option<u64>) {
        self.world.clock.park(&self.shared, deadline);
        self.stop_if_dead();
    }

    /// Lets others run.
    pub fn yield_now(&self) {
        self.world.clock.yield_now(&self.shared);
        self.stop_if_dead();
    }

    /// Freezes the calling thread for ever when its host has bug checked.
    #[inline]
    pub fn stop_if_dead(&self) {
        if let Some(host) = &self.host
            && host.is_dead()
        {
            self.world.clock.park_forever(&self.shared);
        }
    }

    #[inline]
    pub(crate) fn enter_import(&self) {
        self.stop_if_dead();
        self.world.clock.step(&self.shared);
        crate::image::stack::check_depth();
    }

    pub(crate) fn stack_bounds(&self) -> crate::image::StackBounds {
        crate::image::StackBounds { low: self.stack.0, high: self.stack.1 }
    }
}

thread_local! {
    static CURRENT: Cell<*const Thread> = const { Cell::new(std::ptr::null()) };
}

/// The calling thread. Valid on this thread only.
#[derive(Clone, Copy)]
pub struct Current {
    thread: NonNull<Thread>,
    not_send: PhantomData<*const Thread>,
}

impl Deref for Current {
    type Target = Thread;

    fn deref(&self) -> &Thread {
        // SAFETY: set by `attach` to a `Thread` that lives as long as the OS thread; `Current` cannot
        // leave that thread.
        unsafe { self.thread.as_ref() }
    }
}

/// The calling thread: which host, CPU and IRQL am I?
///
/// # Panics
/// When the thread is not one of a simulation.
#[inline]
#[must_use]
pub fn current() -> Current {
    try_current().expect("not a thread of a simulation")
}

#[inline]
#[must_use]
pub fn try_current() -> Option<Current> {
    let thread = NonNull::new(CURRENT.get().cast_mut())?;
    Some(Current { thread, not_send: PhantomData })
}

/// Makes the calling OS thread one of the simulation. Its state is never freed: whoever holds a
/// [`Current`] may rely on it, and a simulation has few threads.
pub(crate) fn attach(
    shared: Arc<ThreadShared>,
    world: Arc<World>,
    host: Option<Arc<Host>>,
    cpu: CpuId,
) -> Current {
    let thread = Box::leak(Box::new(Thread {
        shared,
        world,
        irql: Cell::new(Irql::PASSIVE_LEVEL),
        cpu: Cell::new(cpu),
        pinned: Cell::new(false),
        interrupt: Cell::new(false),
        stack: stack_of_calling_thread(),
        verifies: host.as_ref().is_some_and(|host| host.verifies()),
        locks: RefCell::default(),
        host,
    }));
    CURRENT.set(thread);
    current()
}

/// Lowest and highest address of the calling thread's stack, without guard pages.
fn stack_of_calling_thread() -> (usize, usize) {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: names the calling thread.
    let me = unsafe { libc::pthread_self() };
    // SAFETY: asks about a live thread; initializes the attributes when it returns 0.
    let result = unsafe { libc::pthread_getattr_np(me, attributes.as_mut_ptr()) };
    if result != 0 {
        return (0, 0);
    }
    let (mut low, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: initialized attributes and two places for the results.
    unsafe { libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut low, &raw mut size) };
    // SAFETY: initialized above, not used again.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    (low.addr(), low.addr() + size)
}

/// Ends the calling thread's membership.
pub(crate) fn detach() {
    CURRENT.set(std::ptr::null());
}

/// A thread was lost: its host bug checked, lost power, or the simulation can make no progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    pub thread: String,
    pub reason: String,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "thread '{}' is lost: {}", self.thread, self.reason)
    }
}

impl std::error::Error for Lost {}

/// A spawned thread's result to come.
pub struct JoinHandle<T> {
    name: String,
    host: Option<Arc<Host>>,
    result: Arc<Mutex<Option<std::thread::Result<T>>>>,
    done: crate::Event,
}

impl<T> JoinHandle<T> {
    /// Waits for the thread's end. A panic of the thread goes on here.
    ///
    /// # Errors
    /// [`Lost`] when the thread's host died first.
    pub fn join(self) -> Result<T, Lost> {
        loop {
            if let Some(result) = self.result.lock().take() {
                return result.map_err(|panic| panic::resume_unwind(panic));
            }
            let reason = if let Some(host) = &self.host
                && host.is_dead()
            {
                format!("{} is dead", host.name())
            } else if current().world().clock.is_stuck() {
                "every thread of the simulation waits for ever".to_owned()
            } else {
                self.done.wait_any();
                continue;
            };
            return Err(Lost { thread: self.name, reason });
        }
    }

    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.result.lock().is_some()
    }
}

/// Starts a thread of the simulation.
pub(crate) fn spawn<T: Send + 'static>(
    world: &Arc<World>,
    host: Option<&Arc<Host>>,
    cpu: CpuId,
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let shared =
        Arc::new(ThreadShared { id: world.next_thread_id(), name: name.to_owned(), gate: Gate::default() });
    let result = Arc::new(Mutex::new(None));
    let handle = JoinHandle {
        name: name.to_owned(),
        host: host.cloned(),
        result: result.clone(),
        done: crate::Event::new(world),
    };
    world.clock.register(&shared);
    let (world, host, done) = (world.clone(), host.cloned(), handle.done.clone());
    std::thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK_SIZE)
        .spawn(move || {
            world.clock.begin(&shared);
            let current = attach(shared.clone(), world.clone(), host, cpu);
            crate::image::fault::prepare_thread();
            let outcome = panic::catch_unwind(AssertUnwindSafe(body));
            if current.irql() != Irql::PASSIVE_LEVEL && outcome.is_ok() {
                violation(
                    BugCheck::IRQL_GT_ZERO_AT_SYSTEM_SERVICE,
                    format!("thread '{}' ended at {}", shared.name, current.irql()),
                );
            }
            *result.lock() = Some(outcome);
            done.set();
            detach();
            world.clock.finish(&shared);
        })
        .expect("the machine has threads");
    handle
}
