//! The device in use: its control registers and both queues, each behind its own lock, and what owns their memory.
//!
//! Senders of both kinds meet here: NDIS's NET_BUFFER_LISTs and the provider's pump. Lock order: transmit queue,
//! then whatever the pump takes. Nothing that calls back, of NDIS or of a consumer, is called with a lock held.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

use ndk_abi::ndis::{NDIS_HANDLE, NET_BUFFER_LIST};
use nt::SpinLock;
use virtio_net::{
    Control, Error, NetConfig, Polled, ReceiveCounters, ReceiveQueue, TransmitCounters, TransmitQueue,
    Vectors,
};

use super::dma::{DmaRegistration, SharedMemory};
use super::interrupt;
use super::registers::{BarAccess, MappedBars};
use super::resources::set_bus_master;
use crate::nbl::WaitingSends;

/// Frames that one call of a sender may put into the queue: the rest waits for the transmit interrupt, so that
/// nobody stays at `DISPATCH_LEVEL` for as long as a fast device makes room.
pub const TRANSMIT_BUDGET: usize = 1024;
/// How often one pump serves those who came while it was at it, before it leaves them to the DPC.
const PUMP_PASSES: usize = 8;

/// The transmit queue with the NET_BUFFER_LISTs that found no slot.
pub struct Transmitter {
    pub queue: TransmitQueue<SharedMemory, BarAccess>,
    pub waiting: WaitingSends,
    /// The registered interrupt, for its DPC; null while there is none.
    interrupt: NDIS_HANDLE,
}

/// A running device.
pub struct Port {
    handle: NDIS_HANDLE,
    pub vectors: Vectors,
    control: SpinLock<Control<SharedMemory, BarAccess>>,
    receive: SpinLock<ReceiveQueue<SharedMemory, BarAccess>>,
    transmit: SpinLock<Transmitter>,
    /// Somebody asked the holder of the transmit lock to pump once more.
    pump_again: AtomicBool,
    /// Somebody waits for transmit slots.
    starved: AtomicBool,
    present: AtomicBool,
    link_up: AtomicBool,
    /// In Mbit/s; 0 if the device does not say.
    speed: AtomicU32,
    // Dropped last, in this order: the registration after all shared memory, the mappings after all access.
    _dma: DmaRegistration,
    _bars: MappedBars,
}

// SAFETY: the handle is one that NDIS takes on any thread; everything else is `Sync` by itself.
unsafe impl Sync for Port {}
// SAFETY: as above.
unsafe impl Send for Port {}

/// What a [`Port`] is made of.
pub struct Parts {
    pub control: Control<SharedMemory, BarAccess>,
    pub nic: virtio_net::Nic<SharedMemory, BarAccess>,
    pub dma: DmaRegistration,
    pub bars: MappedBars,
}

impl Port {
    pub fn new(handle: NDIS_HANDLE, parts: Parts, config: &NetConfig) -> Self {
        let virtio_net::Nic { receive, transmit, vectors } = parts.nic;
        Self {
            handle,
            vectors,
            control: SpinLock::new(parts.control),
            receive: SpinLock::new(receive),
            transmit: SpinLock::new(Transmitter {
                queue: transmit,
                waiting: WaitingSends::new(),
                interrupt: null_mut(),
            }),
            pump_again: AtomicBool::new(false),
            starved: AtomicBool::new(false),
            present: AtomicBool::new(true),
            link_up: AtomicBool::new(config.link_up),
            speed: AtomicU32::new(config.speed.unwrap_or(0)),
            _dma: parts.dma,
            _bars: parts.bars,
        }
    }

    /// The interrupt whose DPC is queued when a sender must go on later; null before it is deregistered.
    pub fn set_interrupt(&self, interrupt: NDIS_HANDLE) {
        self.transmitter(|transmitter| transmitter.interrupt = interrupt);
    }

    /// Lets the device run; interrupts come from here on. `PASSIVE_LEVEL`.
    pub fn start(&self) -> Result<(), Error> {
        let mut control = self.control.lock();
        let mut receive = self.receive.lock();
        receive.start(&mut control)
    }

    /// Takes at most `budget` frames from the device. While this runs the device sends no receive interrupts, so that
    /// a second processor waits here only for the end of [`request_receive_interrupt`](Self::request_receive_interrupt)
    /// or for a spurious interrupt's sake. IRQL <= `DISPATCH_LEVEL`.
    pub fn poll(&self, budget: u32, sink: impl FnMut(&[u8])) -> Result<Polled, Error> {
        let mut receive = self.receive.lock();
        receive.suppress_interrupts();
        receive.poll(budget, sink)
    }

    /// Asks for a receive interrupt; `true` if frames are there already: poll instead of waiting.
    pub fn request_receive_interrupt(&self) -> bool {
        self.receive.lock().request_interrupt()
    }

    /// Runs `send` with the transmit queue, then notifies the device. IRQL <= `DISPATCH_LEVEL`.
    pub fn with_transmitter<T>(&self, send: impl FnOnce(&mut Transmitter) -> T) -> T {
        self.transmitter(|transmitter| {
            let result = send(transmitter);
            transmitter.queue.kick();
            self.go_on_later(transmitter, false);
            result
        })
    }

    /// Lets `pump` fill slots until it has nothing more or no slot is free; see `ndk_provider::environment::Environment::transmit`.
    pub fn pump(&self, pump: &mut dyn FnMut(&mut dyn roce::Transmit) -> usize) {
        if !self.is_present() {
            return;
        }
        self.pump_again.store(true, Ordering::SeqCst);
        for pass in 1..=PUMP_PASSES {
            // Whoever holds the lock looks at the flag after releasing it, so that one of the two pumps: the barrier
            // here stands between the flag and the lock, the one of `asked_again` between the lock and the flag.
            fence(Ordering::SeqCst);
            let Some(mut transmitter) = self.transmit.try_lock() else { return };
            self.pump_again.store(false, Ordering::SeqCst);
            let mut slots = Slots { queue: &mut transmitter.queue, left: TRANSMIT_BUDGET, exhausted: false };
            while !slots.exhausted && pump(&mut slots) > 0 {}
            let exhausted = slots.exhausted;
            transmitter.queue.kick();
            self.go_on_later(&mut transmitter, exhausted || pass == PUMP_PASSES);
            drop(transmitter);
            if !self.asked_again() {
                return;
            }
        }
    }

    /// Whether somebody found the transmit lock taken and left the pumping to its holder, who has released it.
    fn asked_again(&self) -> bool {
        fence(Ordering::SeqCst);
        self.pump_again.load(Ordering::SeqCst)
    }

    /// Runs `use_it` with the transmit lock held. A pump that came meanwhile is left to the transmit message's DPC.
    fn transmitter<T>(&self, use_it: impl FnOnce(&mut Transmitter) -> T) -> T {
        let result = use_it(&mut self.transmit.lock());
        if self.asked_again() {
            let mut transmitter = self.transmit.lock();
            self.pump_again.store(false, Ordering::SeqCst);
            self.go_on_later(&mut transmitter, true);
        }
        result
    }

    /// Whether somebody waited for slots; nobody does afterwards.
    pub fn take_starved(&self) -> bool {
        self.starved.swap(false, Ordering::AcqRel)
    }

    /// What a configuration interrupt says: the error if the device must be given up, else whether the link changed.
    /// IRQL <= `DISPATCH_LEVEL`.
    pub fn configuration_changed(&self) -> Result<bool, Error> {
        let control = self.control.lock();
        control.check()?;
        let config = control.net_config();
        self.speed.store(config.speed.unwrap_or(0), Ordering::Relaxed);
        Ok(self.link_up.swap(config.link_up, Ordering::AcqRel) != config.link_up)
    }

    /// Whether the link is up.
    pub fn link_up(&self) -> bool {
        self.link_up.load(Ordering::Acquire)
    }

    /// Mbit/s; 0 if the device does not say.
    pub fn speed(&self) -> u32 {
        self.speed.load(Ordering::Relaxed)
    }

    /// Whether the device is still there and works.
    pub fn is_present(&self) -> bool {
        self.present.load(Ordering::Acquire)
    }

    /// The device is gone or broken; returns whether that is news.
    pub fn set_absent(&self) -> bool {
        self.present.swap(false, Ordering::AcqRel)
    }

    /// Starts a reset without waiting: no interrupt and no access to memory follows for long. IRQL <=
    /// `DISPATCH_LEVEL`.
    pub fn shut_down(&self) {
        self.control.lock().reset_without_waiting();
    }

    pub fn receive_counters(&self) -> ReceiveCounters {
        self.receive.lock().counters()
    }

    /// Why the transmit queue does not work any more: the device broke its ring.
    pub fn transmit_fault(&self) -> Option<Error> {
        self.transmitter(|transmitter| transmitter.queue.fault())
    }

    pub fn transmit_counters(&self) -> TransmitCounters {
        self.transmitter(|transmitter| transmitter.queue.counters())
    }

    /// Takes the NET_BUFFER_LISTs that `cancelled` selects out of the waiting ones.
    pub fn take_waiting(&self, cancelled: impl FnMut(&NET_BUFFER_LIST) -> bool) -> *mut NET_BUFFER_LIST {
        self.transmitter(|transmitter| transmitter.waiting.take(cancelled))
    }

    /// If somebody waits for slots, sees to it that the transmit message's DPC runs when some are free. `waits`: the
    /// caller does, besides those who did before.
    fn go_on_later(&self, transmitter: &mut Transmitter, waits: bool) {
        if waits || !transmitter.waiting.is_empty() {
            self.starved.store(true, Ordering::Release);
        }
        // Also for who waited before: reaping has withdrawn the request for an interrupt.
        if !self.starved.load(Ordering::Acquire) || transmitter.interrupt.is_null() {
            return;
        }
        // No interrupt may come when slots are free already, and none comes from a broken ring: the DPC goes on, or
        // gives the device up.
        if transmitter.queue.request_interrupt() || transmitter.queue.fault().is_some() {
            // SAFETY: registered as long as it is here (`set_interrupt`).
            unsafe { interrupt::queue_dpc(transmitter.interrupt, self.vectors.transmit.into()) };
        }
    }
}

impl Drop for Port {
    /// The device stops using memory before the queues' memory goes. `PASSIVE_LEVEL`, interrupts are deregistered.
    fn drop(&mut self) {
        if self.control.get_mut().reset() == Err(Error::ResetTimeout) {
            // It does not listen: keep it from memory another way.
            set_bus_master(self.handle, false);
        }
    }
}

/// The transmit queue as the engine sees it, with a budget.
struct Slots<'a> {
    queue: &'a mut TransmitQueue<SharedMemory, BarAccess>,
    left: usize,
    /// No slot was free, or the budget is spent.
    exhausted: bool,
}

impl roce::Transmit for Slots<'_> {
    fn slot(&mut self) -> Option<&mut [u8]> {
        let slot = if self.left == 0 { None } else { self.queue.slot() };
        self.exhausted = slot.is_none();
        slot
    }

    fn commit(&mut self, len: usize) {
        self.left = self.left.saturating_sub(1);
        self.queue.commit(len);
    }
}
