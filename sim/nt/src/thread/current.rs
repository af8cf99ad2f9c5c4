// SPDX-License-Identifier: MIT OR Apache-2.0

//! The calling thread: its host, CPU and IRQL.

use std::{
    cell::{Cell, RefCell},
    marker::PhantomData,
    mem::MaybeUninit,
    ops::Deref,
    ptr::NonNull,
    sync::Arc,
};

use super::{
    shared::{ThreadId, ThreadShared},
    watchdog::Watchdog,
};
use crate::{
    cpu::id::{Affinity, CpuId},
    host::Host,
    image::registers::StackBounds,
    irql::Irql,
    world::World,
};

/// Size of a simulated thread's own stack, on which host-side functions run, and DPCs' on top of them: measured and
/// rounded up. Code of an image runs on a [kernel stack](crate::memory::KernelStack).
pub const STACK_SIZE: usize = 512 << 10;

/// A spin lock that a thread holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldLock {
    pub address: usize,
}

/// A thread's own state. Accessed through [`current`], never from another thread.
pub struct Thread {
    shared: Arc<ThreadShared>,
    world: Arc<World>,
    host: Option<Arc<Host>>,
    pub(super) irql: Cell<Irql>,
    pub(super) cpu: Cell<CpuId>,
    /// The CPUs that the thread may run on.
    pub(super) affinity: Cell<Affinity>,
    /// The thread needs a CPU while it runs: it is not simulated hardware, and not a CPU's idle thread.
    pub(super) needs_processor: bool,
    /// The thread owns its CPU at every IRQL.
    pub(super) owns_processor: Cell<bool>,
    /// The DPC queue of the thread's CPU must be processed, which no other thread does.
    pub(super) dispatch_requested: Cell<bool>,
    /// The CPU whose DPCs the thread runs, on top of what it did before.
    pub(super) dpcs_of: Cell<Option<CpuId>>,
    /// Number that the thread runs under: its own, or that of the idle thread of the CPU whose DPCs it runs.
    pub(super) acting: Cell<ThreadId>,
    pub(super) watchdog: Watchdog,
    /// The thread runs an interrupt service routine: above `DISPATCH_LEVEL` without a dispatch token, because it
    /// interrupted the thread that holds it.
    pub(super) interrupt: Cell<bool>,
    /// Lowest and highest address of the thread's stack.
    stack: (usize, usize),
    verifies: bool,
    /// The thread has a host, without verifier, and time is real.
    pub(super) is_plain: bool,
    /// Spin locks held, in the order of acquisition. Kept by the verifier only.
    pub(crate) locks: RefCell<Vec<HeldLock>>,
}

impl Thread {
    /// Returns the number that the thread runs under. While it runs DPCs it is that of its CPU's idle thread, so that
    /// they are not mistaken for the interrupted thread; [`Thread::shared`] always names the thread itself.
    #[must_use]
    pub fn id(&self) -> ThreadId {
        self.acting.get()
    }

    /// Returns the name that the thread runs under, as [`Thread::id`].
    #[must_use]
    pub fn name(&self) -> &str {
        let idle =
            self.dpcs_of.get().zip(self.try_host()).and_then(|(cpu, host)| host.cpus.dpcs(cpu).idle_thread());
        &idle.unwrap_or(&self.shared).name
    }

    #[must_use]
    pub fn shared(&self) -> &Arc<ThreadShared> {
        &self.shared
    }

    #[must_use]
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Returns the host this thread belongs to.
    ///
    /// # Panics
    /// On the harness thread and the thread of the links, which belong to none.
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

    /// Returns the CPU the thread runs on. Below `DISPATCH_LEVEL` it may change at any time.
    #[must_use]
    pub fn cpu(&self) -> CpuId {
        self.cpu.get()
    }

    /// Pins the thread to a CPU.
    pub(crate) fn pin(&self, cpu: CpuId) {
        self.cpu.set(cpu);
        self.affinity.set(Affinity::only(cpu));
    }

    /// Stops the calling thread forever when its host has bug checked.
    #[inline]
    pub fn stop_if_dead(&self) {
        if let Some(host) = &self.host
            && host.is_dead()
        {
            self.world.clock.park_forever(&self.shared);
        }
    }

    pub(crate) fn stack_bounds(&self) -> StackBounds {
        StackBounds { low: self.stack.0, high: self.stack.1 }
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
        // SAFETY: set by `attach` to a `Thread` that lives until the OS thread ends, or for ever; `Current` cannot
        // leave that thread.
        unsafe { self.thread.as_ref() }
    }
}

/// Returns the calling thread.
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

/// Makes the calling OS thread one of the simulation; one that `needs_processor` starts without one. Its state is freed
/// by [`Ended`] only, so that a [`Current`] stays valid.
pub(crate) fn attach(
    shared: Arc<ThreadShared>,
    world: Arc<World>,
    host: Option<Arc<Host>>,
    cpu: CpuId,
    needs_processor: bool,
) -> Current {
    let id = shared.id;
    let is_plain = host.as_ref().is_some_and(|host| !host.verifies()) && !world.clock.is_deterministic();
    let thread = Box::leak(Box::new(Thread {
        shared,
        world,
        irql: Cell::new(Irql::PASSIVE_LEVEL),
        cpu: Cell::new(cpu),
        affinity: Cell::new(Affinity::ALL),
        needs_processor,
        owns_processor: Cell::new(false),
        dispatch_requested: Cell::new(false),
        dpcs_of: Cell::new(None),
        acting: Cell::new(id),
        watchdog: Watchdog::default(),
        interrupt: Cell::new(false),
        stack: stack_of_calling_thread(),
        verifies: host.as_ref().is_some_and(|host| host.verifies()),
        is_plain,
        locks: RefCell::default(),
        host,
    }));
    CURRENT.set(thread);
    current()
}

/// Returns the lowest and highest address of the calling thread's stack, without guard pages.
fn stack_of_calling_thread() -> (usize, usize) {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: `pthread_self` has no preconditions: it returns the handle of the calling thread.
    let me = unsafe { libc::pthread_self() };
    // SAFETY: queries a live thread; initializes the attributes when it returns 0.
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

/// Removes the calling OS thread from the simulation. The thread's state stays: the caller may have a [`Current`].
pub(crate) fn detach() {
    CURRENT.set(std::ptr::null());
}

/// The state of a thread that has left the simulation and is about to end. It holds the host and the world: a dropped
/// simulation is freed when the last of its threads has ended.
pub(crate) struct Ended(NonNull<Thread>);

impl Ended {
    /// Removes the calling OS thread from the simulation.
    ///
    /// # Safety
    /// No [`Current`] of this thread is used from now on.
    pub unsafe fn detach(current: Current) -> Self {
        detach();
        Self(current.thread)
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        // SAFETY: leaked by `attach`, and freed once; nothing refers to it, by the promise to `detach`.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
