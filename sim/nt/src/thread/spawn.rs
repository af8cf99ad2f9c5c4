// SPDX-License-Identifier: MIT OR Apache-2.0

//! Starting a thread and waiting for its end.

use std::{
    any::Any,
    marker::PhantomData,
    panic::{self, AssertUnwindSafe},
    sync::Arc,
};

use parking_lot::Mutex;

use super::{
    current::{Ended, STACK_SIZE, attach, current},
    shared::ThreadShared,
};
use crate::{
    cpu::id::CpuId,
    event::Event,
    host::Host,
    image::{fault, switch},
    irql::Irql,
    verifier::{codes::BugCheck, report::violation},
    world::World,
};

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

/// The result of a thread, of any type.
type AnyResult = Box<dyn Any + Send>;

/// Waits for a spawned thread's result.
pub struct JoinHandle<T> {
    thread: Running,
    result: PhantomData<fn() -> T>,
}

impl<T: 'static> JoinHandle<T> {
    /// Waits until the thread ends and returns its result. A panic of the thread is resumed here.
    ///
    /// # Errors
    /// [`Lost`] when the thread's host died first.
    ///
    /// # Panics
    /// With the panic of the thread.
    pub fn join(self) -> Result<T, Lost> {
        Ok(*self.thread.join()?.downcast().expect("the thread's body has this type"))
    }

    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.result.lock().is_some()
    }
}

/// A thread that was started.
struct Running {
    name: String,
    host: Option<Arc<Host>>,
    result: Arc<Mutex<Option<std::thread::Result<AnyResult>>>>,
    done: Event,
}

impl Running {
    fn join(self) -> Result<AnyResult, Lost> {
        loop {
            if let Some(result) = self.result.lock().take() {
                return result.map_err(|panic| panic::resume_unwind(panic));
            }
            let died = || self.host.as_ref().filter(|host| host.is_dead());
            let reason = if let Some(host) = died() {
                format!("{} is dead", host.name())
            } else if current().world().clock.is_stuck() {
                "every thread of the simulation waits without a deadline".to_owned()
            } else {
                self.done.wait_unless(|| died().is_some());
                continue;
            };
            return Err(Lost { thread: self.name, reason });
        }
    }
}

/// Starts a thread of the simulation. One that `needs_processor` runs on a CPU of its host.
pub(crate) fn spawn<T: Send + 'static>(
    world: &Arc<World>,
    host: Option<&Arc<Host>>,
    cpu: CpuId,
    needs_processor: bool,
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let body = Box::new(move || -> AnyResult { Box::new(body()) });
    JoinHandle { thread: start(world, host, cpu, needs_processor, name, body), result: PhantomData }
}

/// Starts a thread. Compiled once, not for each body.
fn start(
    world: &Arc<World>,
    host: Option<&Arc<Host>>,
    cpu: CpuId,
    needs_processor: bool,
    name: &str,
    body: Box<dyn FnOnce() -> AnyResult + Send>,
) -> Running {
    let shared = Arc::new(ThreadShared::new(world.next_thread_id(), name));
    let result = Arc::new(Mutex::new(None));
    let running = Running {
        name: name.to_owned(),
        host: host.cloned(),
        result: result.clone(),
        done: Event::new(world),
    };
    world.clock.register(&shared);
    let (world, host, done) = (world.clone(), host.cloned(), running.done.clone());
    std::thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK_SIZE)
        .spawn(move || {
            world.clock.begin(&shared);
            let current = attach(shared.clone(), world.clone(), host, cpu, needs_processor);
            let faults = fault::prepare_thread();
            current.start_running();
            let outcome = panic::catch_unwind(AssertUnwindSafe(body));
            if current.irql() != Irql::PASSIVE_LEVEL && outcome.is_ok() {
                violation(
                    BugCheck::IRQL_GT_ZERO_AT_SYSTEM_SERVICE,
                    format!(
                        "system thread '{}' ended at {}; it must end at PASSIVE_LEVEL",
                        shared.name,
                        current.irql()
                    ),
                );
            }
            *result.lock() = Some(outcome);
            done.set();
            current.stop_running();
            switch::end_thread();
            // SAFETY: the body has returned, and `current` is not used any further.
            let ended = unsafe { Ended::detach(current) };
            world.clock.finish(&shared);
            drop((ended, faults));
        })
        .expect("the machine has threads");
    running
}

impl Host {
    /// Starts a system thread at `PASSIVE_LEVEL`.
    pub fn spawn<T: Send + 'static>(
        self: &Arc<Self>,
        name: &str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let name = format!("{} {name}", self.name());
        spawn(self.world(), Some(self), self.next_cpu(), true, &name, body)
    }

    /// Starts a thread that needs no processor: simulated hardware, or the idle thread of `cpu`.
    pub(crate) fn spawn_service<T: Send + 'static>(
        self: &Arc<Self>,
        cpu: CpuId,
        name: &str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        spawn(self.world(), Some(self), cpu, false, &format!("{} {name}", self.name()), body)
    }
}
