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

use super::shared::{ThreadId, ThreadShared};
use crate::{cpu::id::CpuId, host::Host, image::registers::StackBounds, irql::Irql, world::World};

/// Size of a simulated thread's own stack, on which host-side functions run, measured and rounded up. Code of an image
/// runs on a [kernel stack](crate::memory::KernelStack).
pub const STACK_SIZE: usize = 256 << 10;

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
    /// The thread runs on this CPU only (DPC threads, pinned threads).
    pub(super) pinned: Cell<bool>,
    /// The thread runs an interrupt service routine: above `DISPATCH_LEVEL` without a dispatch token, because it
    /// interrupted the thread that holds it.
    pub(super) interrupt: Cell<bool>,
    /// Lowest and highest address of the thread's stack.
    stack: (usize, usize),
    verifies: bool,
    /// Spin locks held, in the order of acquisition. Kept by the verifier only.
    pub(crate) locks: RefCell<Vec<HeldLock>>,
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
        self.pinned.set(true);
    }

    /// Blocks until unparked or `deadline`; see [`crate::clock::Clock::park`].
    pub fn park(&self, deadline: Option<u64>) {
        self.world.clock.park(&self.shared, deadline);
        self.stop_if_dead();
    }

    /// Lets other threads run.
    pub fn yield_now(&self) {
        self.world.clock.yield_now(&self.shared);
        self.stop_if_dead();
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
        // SAFETY: set by `attach` to a `Thread` that lives as long as the OS thread; `Current` cannot
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

/// Makes the calling OS thread one of the simulation. Its state is never freed, so that a [`Current`] stays
/// valid; a simulation has few threads.
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

/// Returns the lowest and highest address of the calling thread's stack, without guard pages.
fn stack_of_calling_thread() -> (usize, usize) {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: names the calling thread.
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

/// Removes the calling OS thread from the simulation.
pub(crate) fn detach() {
    CURRENT.set(std::ptr::null());
}
