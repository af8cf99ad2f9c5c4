// SPDX-License-Identifier: MIT OR Apache-2.0

//! One provider for one miniport adapter: the driver's interface.
//!
//! **Driving.** The driver begins a [`ReceiveBatch`] with [`Provider::receive_batch`], calls [`ReceiveBatch::receive`] for every received frame,
//! and [`ReceiveBatch::end`]. The provider's own timer runs when the engine has a timeout, and its deferred routine when a
//! consumer's call leaves events to deliver. These three run on the provider's own stack, so they make the consumer's callbacks
//! ([`rounds`]). A consumer's call makes none.

mod engine_config;
mod engine_events;
mod oid;
#[allow(unsafe_code, reason = "CloseNDKAdapterHandler passes an object")]
mod open;
mod receive_batch;
mod rounds;

use crate::base::environment::Environment;
use crate::base::limits;
use crate::base::object::closed::ClosedObjects;
use crate::base::object::registry::Registry;
use crate::base::object::removal::Removal;
use crate::base::state::affinity::Turns;
use crate::base::state::config::Config;
use crate::base::state::counters::Counters;
use crate::base::state::loopback::Loopback;
use crate::base::state::ports::PortSpace;
use crate::base::state::provider_state::{Engine, ProviderState};
use crate::base::state::quota::Quotas;
use crate::base::state::scheduler::{Routines, Scheduler};
use crate::base::status::{self, NtResult};
use crate::base::strict::Checker;
use crate::base::strict::CreateFaults;
use crate::base::strict::HeldCallbacks;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use fallible::{Arc, try_box};
use ndk_abi::ndk::NDIS_NDK_CAPABILITIES;
use ndk_abi::nt::{NTSTATUS, STATUS_INSUFFICIENT_RESOURCES};
use nt::{Deferred, Timer, random_seed};

pub use receive_batch::ReceiveBatch;

const NO_RESOURCES: NTSTATUS = STATUS_INSUFFICIENT_RESOURCES;

/// The NDK provider of one miniport adapter.
pub struct Provider {
    state: Arc<ProviderState>,
    enabled: AtomicBool,
    /// Number of open NDK adapters.
    open_adapters: AtomicUsize,
}

impl Provider {
    /// Creates a provider that is enabled and has no addresses. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(environment: impl Environment, config: Config) -> NtResult<Self> {
        let environment = try_box(environment).map_err(|_| NO_RESOURCES)?;
        Self::with_environment(environment, &config)
    }

    /// Not inlined: with the caller's, its frame is too large for a kernel stack.
    #[inline(never)]
    fn with_environment(environment: Box<dyn Environment>, config: &Config) -> NtResult<Self> {
        let seed = random_seed().ok_or(NO_RESOURCES)?;
        // Peers see the port numbers: they must not reveal the engine's seed.
        let random = random_seed().ok_or(NO_RESOURCES)?;
        let [low, high, delays @ ..] = random;
        let delay_seed = delays.first_chunk().copied().unwrap_or_default();
        let engine = engine_config::new(environment.link(), seed, config);
        let strict = config.strict;
        let checker = Checker::for_settings(strict, environment.owner()).map_err(|_| NO_RESOURCES)?;
        let engine = Engine::try_new(engine).map_err(|_| NO_RESOURCES)?;
        let ports =
            Arc::try_new(PortSpace::new(u16::from_le_bytes([low, high]))).map_err(|_| NO_RESOURCES)?;
        let registry = Arc::try_new(Registry::new()).map_err(|_| NO_RESOURCES)?;
        // In place: the state is large for a kernel stack.
        let state = Arc::try_new_with(|| ProviderState {
            engine,
            environment,
            ports,
            registry,
            counters: Counters::default(),
            quotas: Quotas::new(),
            loopback: Loopback::new(),
            create_completion: config.create_completion,
            create_faults: CreateFaults::new(strict),
            held_callbacks: HeldCallbacks::new(strict, u64::from_le_bytes(delay_seed)),
            checker,
            scheduler: Scheduler::new(),
            turns: Turns::default(),
            removal: Removal::new(),
            closed: ClosedObjects::new(),
        })
        .map_err(|_| NO_RESOURCES)?;
        state.scheduler.start(routines(&state).ok_or(NO_RESOURCES)?);
        Ok(Self { state, enabled: AtomicBool::new(true), open_adapters: AtomicUsize::new(0) })
    }

    /// Returns the limits to report to NDIS, whether or not the provider is enabled. They stay where they are.
    //= R-OPEN-5, R-PNP-1
    pub fn capabilities(&self) -> &'static NDIS_NDK_CAPABILITIES {
        limits::capabilities()
    }

    /// Returns whether an open would succeed now.
    //= R-OPEN-6
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Acquire) && self.state.environment.is_present()
    }

    /// Allows or refuses opens from now on. Open adapters stay open.
    //= R-PNP-3
    pub fn set_enabled(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Release);
    }

    /// Returns the number of open NDK adapters.
    pub fn open_adapters(&self) -> usize {
        self.open_adapters.load(Ordering::Acquire)
    }

    /// Begins a batch of frames that the queue pair of a shard has received; `None` if there are fewer shards. IRQL ==
    /// `DISPATCH_LEVEL`.
    #[must_use]
    pub fn receive_batch(&self, shard: u32) -> Option<ReceiveBatch<'_>> {
        let shard = self.state.engine.shard(shard)?;
        Some(ReceiveBatch::new(&self.state, shard, &self.enabled, &self.open_adapters))
    }

    /// All transmit queues have free slots again, or something else has changed that frames may wait for. IRQL <=
    /// `DISPATCH_LEVEL`.
    pub fn transmit_ready(&self) {
        self.state.after_call();
    }

    /// The transmit queue of a shard has free slots again. IRQL <= `DISPATCH_LEVEL`.
    pub fn shard_ready(&self, shard: u32) {
        if let Some(shard) = self.state.engine.shard(shard) {
            self.state.after_call_of(&shard);
        }
    }

    /// The device is removed, or loses its state: has the deferred routine abort connections and cancel requests, and refuses
    /// opens until [`set_enabled`](Self::set_enabled). IRQL <= `DISPATCH_LEVEL`.
    //= R-PNP-8, R-PNP-10
    pub fn remove(&self) {
        self.set_enabled(false);
        self.state.removal.begin();
        self.state.defer();
    }

    /// Sets the adapter's addresses; initially there are none. Only frames to these are processed. Connections
    /// on other addresses are aborted, once [`Provider::transmit_ready`] is called. May be called with the
    /// caller's list of addresses locked, so that two changes arrive in order. IRQL <= `DISPATCH_LEVEL`.
    ///
    /// # Errors
    /// Fails without memory, or with more addresses than supported. Removed addresses are no longer served
    /// then, but some new ones may not be until the call is repeated.
    //= R-CONN-101
    pub fn set_addresses(&self, addresses: &[IpAddr]) -> NtResult {
        self.state.engine.connections().set_addresses(addresses).map_err(status::connection)
    }

    /// Returns the numbers of the engine's objects. For tests that compare them: it takes locks.
    pub fn objects(&self) -> roce::Objects {
        self.state.engine.objects()
    }

    /// Calls `each` with the name and value of every counter of the engine: packets, retransmissions, and
    /// drops by reason.
    pub fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
        self.state.engine.each_total(each);
    }
}

/// Returns the timer and the deferred routines of a provider; `None` if pool is exhausted. `PASSIVE_LEVEL`.
fn routines(state: &Arc<ProviderState>) -> Option<Routines> {
    let (of_timer, of_events) = (Arc::clone(state), Arc::clone(state));
    let owner = state.environment.owner();
    let timer = Timer::try_new(move || rounds::on_timer(&of_timer))?;
    let events = Deferred::try_new(owner, move || rounds::round(&of_events, None))?;
    let mut processors = Vec::new();
    for processor in 0..state.engine.config().notice_queues {
        let state = Arc::clone(state);
        let routine = Deferred::try_new_on(owner, processor, move || rounds::round_on(&state, processor))?;
        fallible::vec::push(&mut processors, routine).ok()?;
    }
    Some(Routines { timer, events, processors })
}

impl Drop for Provider {
    /// Stops the timer and the deferred routine and waits for them. No NDK adapter is open. `PASSIVE_LEVEL`.
    //= R-PNP-14
    fn drop(&mut self) {
        self.state.scheduler.stop();
    }
}
