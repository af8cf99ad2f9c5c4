//! A modern virtio-net device, device side: registers, rings, frames. (virtio)
//!
//! [`Nic`] is one PCI function with one pair of queues and a control queue, plugged into a machine
//! ([`Bus`]) and, by [`Nic::connect`], into a [wire](crate::wire). It trusts nothing its driver does and
//! reports what no driver may do as [`Misuse`]; after that it stops, as a device with NEEDS_RESET does.
//!
//! # How it runs
//!
//! Register accesses come from the driver's threads. A notification only notes the queue and asks
//! the [`Bus`] for an event; rings are worked on by that event, on the machine's hardware thread, as
//! many buffers as there are up to a budget. No lock is held while the bus or the wire is called.

mod common;
mod control;
mod queue;
mod quirks;
mod receive;
mod transmit;

use std::sync::{
    Arc, OnceLock, Weak,
    atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
};

use parking_lot::Mutex;

use self::{common::Common, control::Filter, queue::DeviceQueue};
use super::{
    Bus, DmaSpace, Misuse, Registers, Width,
    pci::{self, ConfigSpace, Message},
};
use crate::wire::{Endpoint, Port};

pub use common::{Features, Status};
pub use quirks::{Quirks, UsedQuirk};

/// Queue indices: one pair, then the control queue.
pub const RECEIVE: usize = 0;
pub const TRANSMIT: usize = 1;
pub const CONTROL: usize = 2;
/// Number of queues.
pub const QUEUES: usize = 3;

/// Buffers worked on per event; what is left gets another event.
const BUDGET: usize = 256;

/// Bytes of the header before every frame with VERSION_1. (virtio §9)
const HEADER_LEN: usize = 12;

/// How a NIC is made.
#[derive(Clone, Debug)]
pub struct NicOptions {
    pub mac: [u8; 6],
    /// Largest IP packet, for the field `mtu`.
    pub mtu: u16,
    pub features: Features,
    /// MSI-X vectors.
    pub vectors: u16,
    /// Largest sizes of the receive, transmit and control queue.
    pub queue_sizes: [u16; QUEUES],
    pub quirks: Quirks,
}

impl NicOptions {
    /// A well-behaved NIC with the features QEMU offers on a socket backend, as far as this one has
    /// them, and QEMU's sizes.
    #[must_use]
    pub fn new(mac: [u8; 6]) -> Self {
        Self {
            mac,
            mtu: 1500,
            features: Features::DEFAULT,
            vectors: 4,
            queue_sizes: [1024, 1024, 64],
            quirks: Quirks::default(),
        }
    }
}

/// Counters of a NIC.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct NicCounters {
    pub sent_frames: u64,
    pub sent_bytes: u64,
    pub received_frames: u64,
    pub received_bytes: u64,
    /// Frames for a driver that was not there, or that no buffer could hold.
    pub dropped: u64,
    /// Frames that the filters refused.
    pub filtered: u64,
    /// Notifications the driver wrote.
    pub notifications: u64,
    /// Messages sent.
    pub interrupts: u64,
}

#[derive(Default)]
struct Counters {
    sent_frames: AtomicU64,
    sent_bytes: AtomicU64,
    received_frames: AtomicU64,
    received_bytes: AtomicU64,
    dropped: AtomicU64,
    filtered: AtomicU64,
    notifications: AtomicU64,
    interrupts: AtomicU64,
}

/// A virtio-net device.
pub struct Nic {
    this: Weak<Self>,
    bus: Arc<dyn Bus>,
    memory: Arc<DmaSpace>,
    options: NicOptions,
    port: OnceLock<Port>,
    config: Mutex<ConfigSpace>,
    common: Mutex<Common>,
    queues: [Mutex<DeviceQueue>; QUEUES],
    /// An event for the queue is under way.
    scheduled: [AtomicBool; QUEUES],
    /// DRIVER_OK, and no misuse, removal or need of a reset since.
    running: AtomicBool,
    removed: AtomicBool,
    filter: Mutex<Filter>,
    counters: Counters,
}

impl Nic {
    /// A NIC plugged into `bus`, reaching memory through `memory`.
    #[must_use]
    pub fn new(bus: Arc<dyn Bus>, memory: Arc<DmaSpace>, options: NicOptions) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            bus,
            memory,
            port: OnceLock::new(),
            config: Mutex::new(ConfigSpace::virtio_net(options.vectors, options.quirks.capabilities)),
            common: Mutex::new(Common::new(&options)),
            queues: options.queue_sizes.map(|size| Mutex::new(DeviceQueue::new(size))),
            scheduled: Default::default(),
            running: AtomicBool::new(false),
            removed: AtomicBool::new(false),
            filter: Mutex::new(Filter::new(options.mac)),
            counters: Counters::default(),
            options,
        })
    }

    /// Plugs the cable in. Once.
    ///
    /// # Panics
    /// When it is plugged in already.
    pub fn connect(&self, port: Port) {
        let this: Weak<dyn Endpoint> = self.this.clone();
        port.attach(this);
        assert!(self.port.set(port).is_ok(), "the NIC has a cable");
    }

    #[must_use]
    pub fn port(&self) -> Option<&Port> {
        self.port.get()
    }

    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        self.filter.lock().mac()
    }

    #[must_use]
    pub fn options(&self) -> &NicOptions {
        &self.options
    }

    /// The memory this device reaches.
    #[must_use]
    pub fn memory(&self) -> &Arc<DmaSpace> {
        &self.memory
    }

    #[must_use]
    pub fn counters(&self) -> NicCounters {
        let counters = &self.counters;
        NicCounters {
            sent_frames: counters.sent_frames.load(Relaxed),
            sent_bytes: counters.sent_bytes.load(Relaxed),
            received_frames: counters.received_frames.load(Relaxed),
            received_bytes: counters.received_bytes.load(Relaxed),
            dropped: counters.dropped.load(Relaxed),
            filtered: counters.filtered.load(Relaxed),
            notifications: counters.notifications.load(Relaxed),
            interrupts: counters.interrupts.load(Relaxed),
        }
    }

    /// Accesses configuration space; a removed device reads all ones.
    pub fn with_config<T>(&self, access: impl FnOnce(&mut ConfigSpace) -> T) -> Option<T> {
        (!self.is_removed()).then(|| access(&mut self.config.lock()))
    }

    /// Takes the device out of its slot: every register reads all ones from now on, nothing is
    /// sent, received or interrupted.
    pub fn remove(&self) {
        self.removed.store(true, Relaxed);
        self.running.store(false, Relaxed);
    }

    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.removed.load(Relaxed)
    }

    /// Sets DEVICE_NEEDS_RESET, stops, and tells the driver. (virtio §16)
    pub fn need_reset(&self) {
        self.running.store(false, Relaxed);
        let vector = self.common.lock().need_reset();
        self.signal(vector);
    }

    /// Plugs the cable in or out as far as the driver can see.
    pub fn set_link(&self, up: bool) {
        let vector = self.common.lock().set_link(up);
        self.signal(vector);
    }

    /// Whether the driver has set DRIVER_OK and the device works.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.running.load(Relaxed)
    }

    /// Whether the device may still write to `address..address + len`: it is live, and the range holds a ring.
    #[must_use]
    pub fn uses(&self, address: u64, len: u64) -> bool {
        self.is_running() && self.queues.iter().any(|queue| queue.lock().overlaps(address, len))
    }

    /// Reports a misuse and stops the device.
    fn report(&self, misuse: Misuse) {
        self.need_reset();
        self.bus.misuse(misuse);
    }

    /// Signals an MSI-X vector.
    fn signal(&self, vector: Option<u16>) {
        let Some(vector) = vector else { return };
        if self.is_removed() {
            return;
        }
        let message = self.config.lock().msix.signal(vector);
        self.send(message);
    }

    fn send(&self, message: Option<Message>) {
        if let Some(message) = message {
            self.counters.interrupts.fetch_add(1, Relaxed);
            self.bus.message(message);
        }
    }

    /// Masks or unmasks a vector, as the system does; a pending message is delivered.
    pub fn mask_vector(&self, vector: u16, masked: bool) {
        let message = self.config.lock().msix.mask(vector, masked);
        self.send(message);
    }

    /// Works on a queue soon, once however often it is asked for meanwhile.
    fn schedule(&self, queue: usize, time: u64) {
        // Against the swap below: whoever finds the flag set knows that the event has not looked at the ring yet.
        if self.scheduled[queue].swap(true, SeqCst) {
            return;
        }
        let this = self.this.clone();
        self.bus.at(
            time,
            Box::new(move || {
                if let Some(nic) = this.upgrade() {
                    nic.scheduled[queue].swap(false, SeqCst);
                    nic.work(queue);
                }
            }),
        );
    }

    fn work(&self, queue: usize) {
        if !self.is_running() || !self.bus.is_alive() {
            return;
        }
        let done = match queue {
            RECEIVE => self.receive(),
            TRANSMIT => self.transmit(),
            _ => self.control(),
        };
        match done {
            Ok(outcome) => {
                if outcome.interrupt {
                    let vector = self.common.lock().queue_vector(queue);
                    self.signal(vector);
                }
                if outcome.more {
                    self.schedule(queue, self.bus.now());
                }
            }
            Err(misuse) => self.report(misuse),
        }
    }

    /// A write to the notification structure.
    fn notify(&self, offset: u64, width: Width, value: u64) -> Result<(), Misuse> {
        if width != Width::Word {
            return Err(Misuse::register("a notification is a 16-bit write"));
        }
        let queue = value as usize;
        let expected = u64::from(pci::NOTIFY_MULTIPLIER) * value;
        if queue >= QUEUES || offset != expected {
            return Err(Misuse::register(format!(
                "notification of queue {value} written at offset {offset:#x}"
            )));
        }
        self.common.lock().may_notify(queue)?;
        self.counters.notifications.fetch_add(1, Relaxed);
        self.schedule(queue, self.bus.now());
        Ok(())
    }

    fn common_write(&self, offset: u64, width: Width, value: u64) -> Result<(), Misuse> {
        use common::Effect;
        let bus_master = self.config.lock().command() & pci::COMMAND_BUS_MASTER != 0;
        let effect = self.common.lock().write(offset, width, value, bus_master, &self.memory)?;
        match effect {
            Effect::None => {}
            Effect::Reset => {
                self.running.store(false, Relaxed);
                for queue in &self.queues {
                    queue.lock().reset();
                }
                self.filter.lock().reset();
                // What waits on the wire must not keep the sender waiting.
                self.schedule_receive(self.bus.now());
            }
            Effect::Enable(queue, ring) => self.queues[queue].lock().enable(&ring),
            Effect::Start => {
                self.running.store(true, Relaxed);
                // Buffers may have been made available before.
                self.schedule(RECEIVE, self.bus.now());
            }
        }
        Ok(())
    }
}

impl Registers for Nic {
    fn read(&self, bar: u8, offset: u64, width: Width) -> Result<u64, Misuse> {
        if self.is_removed() {
            return Ok(width.all_ones());
        }
        match bar {
            pci::MSIX_BAR => self.config.lock().msix.read(offset, width),
            pci::VIRTIO_BAR => match offset {
                pci::COMMON..pci::ISR => self.common.lock().read(offset, width),
                pci::ISR..pci::DEVICE => Ok(0),
                pci::DEVICE..pci::NOTIFY => {
                    let mac = self.filter.lock().mac();
                    self.common.lock().read_device(offset - pci::DEVICE, width, mac)
                }
                _ => Err(Misuse::register("the notification structure cannot be read")),
            },
            _ => Ok(width.all_ones()),
        }
    }

    fn write(&self, bar: u8, offset: u64, width: Width, value: u64) -> Result<(), Misuse> {
        if self.is_removed() {
            return Ok(());
        }
        let written = match bar {
            pci::VIRTIO_BAR => match offset {
                pci::COMMON..pci::ISR => self.common_write(offset, width, value),
                pci::NOTIFY..pci::VIRTIO_BAR_LEN => self.notify(offset - pci::NOTIFY, width, value),
                _ => Err(Misuse::register(format!("a write to read-only register {offset:#x}"))),
            },
            // The system owns the MSI-X table.
            _ => Err(Misuse::register(format!("a write to BAR {bar}"))),
        };
        if written.is_err() {
            self.need_reset();
        }
        written
    }
}

impl Endpoint for Nic {
    fn wake_at(&self, time: u64) {
        self.schedule_receive(time);
    }

    fn writable(&self) {
        self.schedule(TRANSMIT, self.bus.now());
    }

    fn is_alive(&self) -> bool {
        self.bus.is_alive() && !self.is_removed()
    }
}

/// What became of a queue.
struct Outcome {
    /// The driver wants to hear of it.
    interrupt: bool,
    /// The budget ran out first.
    more: bool,
}
