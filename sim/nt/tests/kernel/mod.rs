// SPDX-License-Identifier: MIT OR Apache-2.0

//! Running tests as threads of a host, and kernel objects for them. The tests call the imports themselves.

use std::{ffi::c_void, sync::Arc, time::Duration};

use ndk_abi::nt::{EVENT_TYPE, KDPC, KDPC_IMPORTANCE, KEVENT, KTIMER, LARGE_INTEGER, PROCESSOR_NUMBER};
use nt_sim::{
    ClockKind, Host, Irql, Sim, current,
    guest::Guest,
    host::HostOptions,
    nt::{dispatcher, dpc, irql, processor},
    sim::SimBuilder,
};

/// Both clocks.
pub fn clocks() -> [SimBuilder; 2] {
    [ClockKind::Threaded, ClockKind::Deterministic { seed: 1 }].map(|clock| Sim::builder().clock(clock))
}

/// The deterministic clock with several seeds.
pub fn seeds() -> impl Iterator<Item = SimBuilder> {
    (0..20).map(|seed| Sim::builder().clock(ClockKind::Deterministic { seed }))
}

pub fn options() -> HostOptions {
    HostOptions { memory: 64 << 20, ..HostOptions::new("host") }
}

/// Runs `body` on a thread of a host, and expects no violation.
pub fn on_a_thread<T: Send + 'static>(sim: SimBuilder, body: impl FnOnce() -> T + Send + 'static) -> T {
    on_a_thread_of(sim, options(), body)
}

pub fn on_a_thread_of<T: Send + 'static>(
    sim: SimBuilder,
    options: HostOptions,
    body: impl FnOnce() -> T + Send + 'static,
) -> T {
    let mut sim = sim.build();
    let host = sim.add_host(options);
    let result = host.spawn("test", body).join();
    assert!(sim.verdict().is_clean(), "{}", sim.verdict());
    result.unwrap()
}

/// Runs `body` on a thread of a host, and returns the first violation.
pub fn violation_of(
    sim: SimBuilder,
    options: HostOptions,
    body: impl FnOnce() + Send + 'static,
) -> nt_sim::Violation {
    let mut sim = sim.build();
    let host = sim.add_host(options);
    let ended = host.spawn("test", body).join();
    let verdict = sim.verdict();
    assert!(ended.is_err(), "no violation");
    verdict.violations.first().cloned().expect("a violation was reported")
}

pub fn host() -> Arc<Host> {
    current().host().clone()
}

pub fn raise(level: Irql) -> u8 {
    irql::KfRaiseIrql(level.0)
}

pub fn lower(level: u8) {
    irql::KeLowerIrql(level);
}

pub fn at_dispatch_level<T>(body: impl FnOnce() -> T) -> T {
    let old = raise(Irql::DISPATCH_LEVEL);
    let result = body();
    lower(old);
    result
}

pub fn cpu() -> u32 {
    processor::KeGetCurrentProcessorNumberEx(Guest::null())
}

/// Lets the thread work: each call takes time, and others may run.
pub fn call_imports(count: u32) {
    for _ in 0..count {
        let _ = irql::KeGetCurrentIrql();
    }
}

/// An object for imports, never freed.
pub fn object<T>() -> Guest<T> {
    Guest::new(Box::leak(Box::<T>::new_uninit()).as_mut_ptr())
}

/// A DPC and what it does. Its arguments are those of `KeInsertQueueDpc`.
#[derive(Clone, Copy)]
pub struct Dpc(pub Guest<KDPC>);

type Routine = Box<dyn Fn(usize, usize) + Send + Sync>;

unsafe extern "efiapi" fn run_routine(
    _: *mut KDPC,
    context: *mut c_void,
    first: *mut c_void,
    second: *mut c_void,
) {
    // SAFETY: the context is the leaked `Routine` that `Dpc::new` passed, which lives for ever.
    let routine = unsafe { &*context.cast::<Routine>() };
    routine(first.addr(), second.addr());
}

impl Dpc {
    pub fn new(routine: impl Fn(usize, usize) + Send + Sync + 'static) -> Self {
        let this = Self(object());
        let routine: Routine = Box::new(routine);
        let routine: &'static Routine = Box::leak(Box::new(routine));
        dpc::KeInitializeDpc(
            this.0,
            run_routine as *const () as usize,
            (&raw const *routine).expose_provenance(),
        );
        this
    }

    pub fn queue(self) -> bool {
        self.queue_with(0, 0)
    }

    pub fn queue_with(self, first: usize, second: usize) -> bool {
        dpc::KeInsertQueueDpc(self.0, first, second) != 0
    }

    pub fn remove(self) -> bool {
        dpc::KeRemoveQueueDpc(self.0) != 0
    }

    pub fn importance(self, importance: KDPC_IMPORTANCE) -> Self {
        dpc::KeSetImportanceDpc(self.0, importance);
        self
    }

    /// Sets the CPU; returns the status.
    pub fn set_target(self, cpu: u8) -> i32 {
        let number = object();
        number.write(PROCESSOR_NUMBER { Group: 0, Number: cpu, Reserved: 0 });
        dpc::KeSetTargetProcessorDpcEx(self.0, number)
    }

    pub fn target(self, cpu: u8) -> Self {
        assert_eq!(self.set_target(cpu), 0);
        self
    }
}

pub fn event(kind: EVENT_TYPE, state: bool) -> Guest<KEVENT> {
    let event = object();
    dispatcher::KeInitializeEvent(event, kind, state.into());
    event
}

/// Returns a timeout as imports take it. `None` waits forever.
pub fn timeout(time: Option<Duration>) -> Guest<LARGE_INTEGER> {
    let Some(time) = time else { return Guest::null() };
    let timeout = object();
    timeout.write(LARGE_INTEGER { QuadPart: relative(time) });
    timeout
}

/// Returns a relative time in units of 100 ns: negative.
pub fn relative(time: Duration) -> i64 {
    -i64::try_from(time.as_nanos() / 100).unwrap()
}

pub const MILLISECOND: Duration = Duration::from_millis(1);

/// Blocks the thread, longer than a clock tick.
pub fn sleep(time: Duration) {
    dispatcher::KeDelayExecutionThread(0, 0, timeout(Some(time)));
}

pub fn timer(kind: ndk_abi::nt::TIMER_TYPE) -> Guest<KTIMER> {
    let timer = object();
    nt_sim::nt::timer::KeInitializeTimerEx(timer, kind);
    timer
}
