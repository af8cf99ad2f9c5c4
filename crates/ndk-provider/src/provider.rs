//! One provider for one miniport adapter: the engine, the clockwork that drives it, and what all NDK
//! adapters opened on it share.
//!
//! **Driving.** The driver calls [`Provider::receive`] for every frame and [`Provider::batch_end`] once per
//! batch; a timer calls back when the engine wants it. Both are nobody's stack but the provider's, so they
//! deliver what the engine has to tell: [`Core::work`]. A consumer's call delivers nothing, for the consumer
//! may hold locks and may itself be inside a callback; it sends what it made ready and leaves the rest to a
//! DPC: [`Core::after_call`]. So callbacks never nest (R-CQ-14, R-CQ-15, R-IRQL-4, R-IRQL-11).
//!
//! Each round has a budget (R-IRQL-10); what is left over is for the DPC.
//= R-CQ-14, R-CQ-15, R-IRQL-4, R-IRQL-11
//= R-IRQL-10

use crate::adapter::{self, Adapter};
use crate::connector::Connector;
use crate::events;
use crate::host::{Host, Link};
use crate::info::LIMITS;
use crate::loopback::Loopback;
use crate::object::{Body, Context, CreateRequest, Created, Ref, Request};
use crate::oid::Counters;
use crate::ports::PortSpace;
use crate::quota::Quotas;
use crate::registry::Registry;
use crate::status::{self, Answer};
use alloc::boxed::Box;
use core::net::IpAddr;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use ndk_abi::ndis::{
    NDIS_STATUS, NDIS_STATUS_ADAPTER_NOT_READY, NDIS_STATUS_BAD_VERSION, NDIS_STATUS_RESOURCES,
};
use ndk_abi::ndk::{NDIS_NDK_CAPABILITIES, NDK_ADAPTER, NDK_FN_REQUEST_COMPLETION, NDK_VERSION};
use ndk_abi::nt::{NTSTATUS, STATUS_INSUFFICIENT_RESOURCES, STATUS_PENDING};
use nt::{Dpc, RawSpinLock, SpinLock, Timer, WorkItem, entropy, try_box};
use roce::{Arc, Instant, ReadLimits, Transmit, Verdict};
use roce_wire::PathMtu;

/// The engine with the kernel's lock.
pub type Engine = roce::Engine<RawSpinLock>;

/// Frames per call of the transmit pump and of the way from the adapter to itself, and events per round.
pub const BUDGET: usize = 64;

/// When calls that may pend do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pending {
    /// When they cannot be answered inline: only what waits for the network.
    #[default]
    Auto,
    /// The same; for those who want to say so.
    Inline,
    /// Always, if the consumer gave a callback: a work item at `PASSIVE_LEVEL` answers. For testing
    /// consumers.
    Pend,
}

/// What an administrator decides.
#[derive(Clone, Copy, Debug, Default)]
pub struct Config {
    pub pending: Pending,
    /// Delays of the transport and of connection management.
    pub timing: roce::Timing,
    pub congestion: roce::Congestion,
}

/// The provider of one miniport adapter.
pub struct Provider {
    core: Arc<Core>,
    enabled: AtomicBool,
}

/// What the provider's objects share.
pub struct Core {
    pub engine: Arc<Engine>,
    pub host: Box<dyn Host>,
    pub ports: Arc<PortSpace>,
    pub registry: Arc<Registry>,
    pub counters: Counters,
    pub quotas: Quotas,
    pub loopback: Loopback,
    pending: Pending,
    clockwork: SpinLock<Option<Clockwork>>,
    /// When the timer is due, in nanoseconds; `u64::MAX` when it is not set.
    due: AtomicU64,
    /// NDK adapters open.
    adapters: AtomicUsize,
}

struct Clockwork {
    timer: Timer,
    dpc: Dpc,
}

impl Provider {
    /// A provider that is enabled. `STATUS_INSUFFICIENT_RESOURCES` is the only failure. `PASSIVE_LEVEL`.
    pub fn try_new(host: impl Host, config: Config) -> Answer<Self> {
        const NO: NTSTATUS = STATUS_INSUFFICIENT_RESOURCES;
        let seed = entropy().ok_or(NO)?;
        // Peers see the ports: they come from bytes of their own.
        let ports = entropy().ok_or(NO)?;
        let host: Box<dyn Host> = try_box(host).ok_or(NO)?;
        let [low, high, ..] = ports;
        let core = Arc::try_new(Core {
            engine: Engine::try_new(engine_config(host.link(), seed, &config)).map_err(|_| NO)?,
            host,
            ports: Arc::try_new(PortSpace::new(u16::from_le_bytes([low, high]))).map_err(|_| NO)?,
            registry: Arc::try_new(Registry::new()).map_err(|_| NO)?,
            counters: Counters::default(),
            quotas: Quotas::new(),
            loopback: Loopback::new(),
            pending: config.pending,
            clockwork: SpinLock::new(None),
            due: AtomicU64::new(u64::MAX),
            adapters: AtomicUsize::new(0),
        })
        .map_err(|_| NO)?;
        let (timed, deferred) = (Arc::clone(&core), Arc::clone(&core));
        let clockwork = Clockwork {
            timer: Timer::try_new(move || timed.on_timer()).ok_or(NO)?,
            dpc: Dpc::try_new(move || deferred.work()).ok_or(NO)?,
        };
        *core.clockwork.lock() = Some(clockwork);
        Ok(Self { core, enabled: AtomicBool::new(true) })
    }

    /// The limits to show NDIS, whatever is enabled.
    //= R-OPEN-5, R-PNP-1
    pub fn capabilities(&self) -> NDIS_NDK_CAPABILITIES {
        crate::info::capabilities(crate::info::NEWEST.get())
    }

    /// Whether an open would be granted now.
    //= R-OPEN-6
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Acquire) && self.core.host.is_present()
    }

    /// Grants or refuses opens from now on; adapters that are open stay so (R-PNP-3).
    //= R-PNP-3
    pub fn set_enabled(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Release);
    }

    /// NDK adapters open at this moment.
    pub fn open_adapters(&self) -> usize {
        self.core.adapters.load(Ordering::Acquire)
    }

    /// `OpenNDKAdapterHandler`. `PASSIVE_LEVEL`.
    //= R-OPEN-8, R-OPEN-9, R-OPEN-10, R-OPEN-11, R-OPEN-12, R-OPEN-16, R-OPEN-17, R-OPEN-23
    pub fn open(&self, asked: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NDIS_STATUS> {
        let version = adapter::negotiate(asked).ok_or(NDIS_STATUS_BAD_VERSION)?;
        self.core.adapters.fetch_add(1, Ordering::AcqRel);
        //= R-OPEN-30
        // Counted before looking: whoever disables and then sees no adapter will see none later.
        if !self.is_enabled() {
            self.core.adapters.fetch_sub(1, Ordering::AcqRel);
            return Err(NDIS_STATUS_ADAPTER_NOT_READY);
        }
        let created = Adapter::create(&self.core, version).map_err(|_| {
            self.core.adapters.fetch_sub(1, Ordering::AcqRel);
            NDIS_STATUS_RESOURCES
        })?;
        Ok(created.publish())
    }

    /// Closes an adapter opened here; returns when everything opened below it is closed and the last callback
    /// has returned. `PASSIVE_LEVEL`.
    //= R-OPEN-24, R-OPEN-25, R-OPEN-26, R-OPEN-40
    pub(crate) fn close_adapter(&self, adapter: &Ref<Adapter>) {
        if Arc::ptr_eq(adapter.core(), &self.core) {
            Adapter::close(adapter);
            self.core.adapters.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// A frame from the wire, as it lies in the receive buffer. IRQL == `DISPATCH_LEVEL`.
    pub fn receive(&self, frame: &[u8]) -> Verdict {
        self.core.receive(frame)
    }

    /// The batch of frames is over: answers go out, callbacks are made. IRQL == `DISPATCH_LEVEL`.
    pub fn batch_end(&self) {
        self.core.work();
    }

    /// The transmit queue has room again. IRQL <= `DISPATCH_LEVEL`.
    pub fn transmit_ready(&self) {
        self.core.after_call();
    }

    /// The device is gone, or is about to be: connections are aborted, requests end. IRQL <=
    /// `DISPATCH_LEVEL`.
    //= R-PNP-8, R-PNP-10
    pub fn remove(&self) {
        self.set_enabled(false);
        self.core.registry.connectors(Connector::abort);
        self.core.after_call();
    }

    /// Which addresses are the adapter's from now on; at first it has none. Peers are answered at these only;
    /// connections at others are aborted, once [`Provider::transmit_ready`] is called. May be called with the
    /// list of addresses locked, so that two changes are told in their order. IRQL <= `DISPATCH_LEVEL`.
    ///
    /// Fails without memory, or with more addresses than there is room for: those that have gone are none any
    /// more then, but some that are new are still strangers', until the list is told again.
    //= R-CONN-101
    pub fn set_addresses(&self, addresses: &[IpAddr]) -> Answer {
        self.core.engine.set_addresses(addresses).map_err(status::connection)
    }

    /// Shows every counter of the engine to `each`, by name: what went over the wire, was repeated, was
    /// dropped and why.
    pub fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
        self.core.engine.stats().each(each);
    }

    /// The counters and lists behind the OIDs.
    pub fn core(&self) -> &Core {
        &self.core
    }
}

impl Drop for Provider {
    /// No NDK adapter is open any more. Stops the clockwork and waits for it. `PASSIVE_LEVEL`.
    //= R-PNP-14
    fn drop(&mut self) {
        let clockwork = self.core.clockwork.lock().take();
        drop(clockwork);
    }
}

/// A transmit queue that counts what is put into it, and keeps what the adapter sends to itself.
struct Outgoing<'a> {
    queue: &'a mut dyn Transmit,
    loopback: &'a Loopback,
    link: Link,
    octets: usize,
}

impl Outgoing<'_> {
    /// Bytes of the longest frame: an IP packet, and more than enough for what is around it.
    fn longest(&self) -> usize {
        (self.link.mtu as usize).saturating_add(64)
    }
}

impl Transmit for Outgoing<'_> {
    fn slot(&mut self) -> Option<&mut [u8]> {
        if self.loopback.is_open() && !self.loopback.has_room(self.longest()) {
            return None;
        }
        self.queue.slot()
    }

    fn commit(&mut self, len: usize) {
        self.octets = self.octets.wrapping_add(len);
        if self.loopback.is_open()
            && let Some(frame) = self.queue.slot().and_then(|slot| slot.get(..len))
            && frame.starts_with(&self.link.mac)
        {
            // The slot is free again.
            return self.loopback.put(frame);
        }
        self.queue.commit(len);
    }
}

/// An engine that can hold what the limits promise.
fn engine_config(link: Link, seed: [u8; 32], config: &Config) -> roce::Config {
    let lowered = |limit: u32| u8::try_from(limit).unwrap_or(u8::MAX);
    roce::Config {
        max_qps: LIMITS.qps,
        max_regions: LIMITS.mrs.saturating_add(LIMITS.mws),
        max_message: LIMITS.transfer,
        max_reads: ReadLimits {
            inbound: lowered(LIMITS.inbound_reads),
            outbound: lowered(LIMITS.outbound_reads),
        },
        // Peers may ask for more than fits the frames of this link.
        max_mtu: PathMtu::largest_for(link.mtu as usize).unwrap_or(PathMtu::Bytes256),
        timing: config.timing,
        congestion: config.congestion,
        ..roce::Config::new(guid(link.mac), seed)
    }
}

/// The EUI-64 of a MAC address.
fn guid(mac: [u8; 6]) -> u64 {
    let [first, second, third, rest @ ..] = mac;
    let [fourth, fifth, sixth] = rest;
    u64::from_be_bytes([first ^ 2, second, third, 0xff, 0xfe, fourth, fifth, sixth])
}

/// The engine's clock.
pub fn now() -> Instant {
    Instant::from_nanos(nt::time::now())
}

impl Core {
    /// Everything that there is to do, on a stack of the provider's own. IRQL == `DISPATCH_LEVEL`: the engine has
    /// objects of its tables in hand meanwhile, for which closes wait.
    pub fn work(&self) {
        if self.loopback.has_frames() {
            self.loopback.take(|frame| {
                self.receive(frame);
            });
        }
        self.transmit();
        let delivered = events::deliver(self, BUDGET);
        if delivered != 0 {
            // Callbacks have posted, perhaps.
            self.transmit();
        }
        // Sending fails a request whose memory is not what it said, which is an event again.
        if delivered == BUDGET || self.engine.has_event() || self.loopback.has_frames() {
            self.kick();
        }
        self.rearm();
    }

    fn receive(&self, frame: &[u8]) -> Verdict {
        let verdict = self.engine.handle_frame(now(), frame);
        if verdict == Verdict::Consumed {
            self.counters.frames_in.add();
            self.counters.octets_in.add_many(frame.len());
        }
        verdict
    }

    /// After a call of a consumer: what it made ready goes out, what it made due is left to the DPC.
    pub fn after_call(&self) {
        self.transmit();
        if self.engine.has_event() || self.registry.has_deferred() || self.loopback.has_frames() {
            self.kick();
        }
        self.rearm();
    }

    /// After a call that makes nothing ready to send.
    pub fn after_receive(&self) {
        if self.engine.has_event() {
            self.kick();
        }
    }

    /// Lets the engine fill the transmit queue.
    fn transmit(&self) {
        if self.engine.wants_transmit() {
            let link = self.host.link();
            self.host.transmit(&mut |queue| {
                let mut outgoing = Outgoing { queue, loopback: &self.loopback, link, octets: 0 };
                let frames = self.engine.poll_transmit(now(), &mut outgoing, BUDGET);
                self.counters.frames_out.add_many(frames);
                self.counters.octets_out.add_many(outgoing.octets);
                frames
            });
        }
    }

    /// Has [`Core::work`] done soon, on a stack of the provider's own.
    pub fn kick(&self) {
        if let Some(clockwork) = &*self.clockwork.lock() {
            clockwork.dpc.queue();
        }
    }

    /// Sets the timer if the engine wants to be called earlier than it is due.
    fn rearm(&self) {
        let Some(wanted) = self.engine.poll_timeout().map(Instant::as_nanos) else { return };
        if self.due.load(Ordering::Acquire) <= wanted {
            return;
        }
        // Under the lock, so that the timer is set to what `due` says, whoever comes last.
        if let Some(clockwork) = &*self.clockwork.lock()
            && self.due.fetch_min(wanted, Ordering::AcqRel) > wanted
        {
            let after = Duration::from_nanos(wanted.saturating_sub(nt::time::now()));
            clockwork.timer.set(after);
        }
    }

    fn on_timer(&self) {
        self.due.store(u64::MAX, Ordering::Release);
        self.engine.handle_timeout(now());
        self.work();
    }

    /// Whether calls that may pend do.
    fn pends(&self) -> bool {
        self.pending == Pending::Pend
    }

    /// Answers a create call: inline, or through `request` when it shall pend. `parent` is held until the
    /// callback has returned.
    //= R-CREATE-1, R-CREATE-2, R-CREATE-4, R-CREATE-13, R-CREATE-18
    pub fn create<T: Body, P: Body>(
        &self,
        parent: &Ref<P>,
        request: CreateRequest,
        make: impl FnOnce() -> Answer<Created<T>> + Send + 'static,
    ) -> Result<Created<T>, NTSTATUS> {
        //= R-CREATE-16
        if !self.host.is_present() {
            return Err(ndk_abi::nt::STATUS_DEVICE_REMOVED);
        }
        if !(self.pends() && request.may_pend()) {
            return make();
        }
        let parent = parent.clone();
        let work = move || {
            request.complete(make());
            drop(parent);
        };
        let item = WorkItem::try_new(self.host.owner(), work);
        item.map_err(|_| STATUS_INSUFFICIENT_RESOURCES)?.queue();
        Err(STATUS_PENDING)
    }

    /// Answers a request on an object: inline, or through the callback when it shall pend.
    pub fn request<T: Body>(
        &self,
        object: &Ref<T>,
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: Context,
        work: impl FnOnce(&Ref<T>) -> Answer + Send + 'static,
    ) -> NTSTATUS {
        if completion.is_none() || !self.pends() {
            return status::of(work(object));
        }
        let request = Request::new(object.clone(), completion, context);
        let object = object.clone();
        let task = move || {
            let status = status::of(work(&object));
            request.complete(status);
        };
        match WorkItem::try_new(self.host.owner(), task) {
            Ok(item) => item.queue(),
            // No pool for a work item: the task is there all the same, and may answer on this stack.
            //= R-IRQL-5
            Err(task) => task(),
        }
        STATUS_PENDING
    }

    /// Keeps a hold of an object being closed for a while, when calls shall pend; the while begins when what
    /// is returned is called.
    pub fn linger<T: Body>(&self, hold: Ref<T>) -> impl FnOnce() + use<T> {
        let item =
            if self.pends() { WorkItem::try_new(self.host.owner(), move || drop(hold)).ok() } else { None };
        move || {
            if let Some(item) = item {
                item.queue();
            }
        }
    }
}
