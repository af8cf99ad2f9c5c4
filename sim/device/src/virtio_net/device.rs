// SPDX-License-Identifier: MIT OR Apache-2.0

//! The state of a virtio-net device that its queues, its registers and the machine share.
//!
//! No lock is held while the bus or the link is called.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use virtio_device::DeviceQueue;

use super::{
    coalescing::Unit,
    common::{Common, Signal},
    features::Features,
    filter::Filter,
    interrupt_coalescing::InterruptCoalescing,
    line::Line,
    offload::Header,
    options::{NicOptions, RECEIVE, Role, TRANSMIT},
    pauses::Pauses,
    quirks::UsedQuirk,
    steering::Steering,
};
use crate::{
    bus::Bus,
    dma::DmaSpace,
    link::wire::{Frame, Port},
    pci::{COMMAND_AT_START, ConfigSpace, Message},
    registers::Misuse,
};

/// Buffers processed per event; the rest is left to another event.
pub(super) const BUDGET: usize = 256;

/// Counters of a NIC.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct NicCounters {
    pub sent_frames: u64,
    pub sent_bytes: u64,
    pub received_frames: u64,
    pub received_bytes: u64,
    /// Frames received without a driver, or too long forevery buffer.
    pub dropped: u64,
    /// Frames that the receive filters refused.
    pub filtered: u64,
    /// Notifications the driver wrote.
    pub notifications: u64,
    /// Messages sent, or assertions of the line.
    pub interrupts: u64,
}

/// Frames of one queue pair.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct PairCounters {
    pub sent: u64,
    pub received: u64,
}

#[derive(Default)]
pub(super) struct Counters {
    pub pairs: Vec<[AtomicU64; 2]>,
    pub sent_frames: AtomicU64,
    pub sent_bytes: AtomicU64,
    pub received_frames: AtomicU64,
    pub received_bytes: AtomicU64,
    pub dropped: AtomicU64,
    pub filtered: AtomicU64,
    pub notifications: AtomicU64,
    pub interrupts: AtomicU64,
}

/// Defect of the next buffer that a queue returns.
#[derive(Default)]
pub(super) struct Lies {
    pub used: Option<UsedQuirk>,
    /// The number of buffers in the header of a received frame.
    pub num_buffers: Option<u16>,
}

/// Registers, rings, filters and counters of one NIC.
pub struct Device {
    pub(super) bus: Arc<dyn Bus>,
    pub(super) memory: Arc<DmaSpace>,
    pub(super) options: NicOptions,
    pub(super) port: OnceLock<Port>,
    pub(super) config: Mutex<ConfigSpace>,
    pub(super) common: Mutex<Common>,
    pub(super) queues: Vec<Mutex<DeviceQueue>>,
    /// DRIVER_OK, and no misuse, removal or need of a reset since.
    pub(super) running: AtomicBool,
    removed: AtomicBool,
    /// In D3: no register, no DMA, no interrupt.
    low_power: AtomicBool,
    /// The system is about to turn off: the device must not be started.
    pub(super) shut_down: AtomicBool,
    pub(super) filter: Mutex<Filter>,
    /// Commands of the control queue since the last reset.
    pub(super) commands: AtomicU32,
    /// How often the driver has sent each command of the control queue, class and command, in all.
    pub(super) sent_commands: Mutex<BTreeMap<[u8; 2], u32>>,
    /// The class of [`Quirks::refuses_class`](super::Quirks::refuses_class).
    pub(super) refused_class: Mutex<Option<u8>>,
    pub(super) line: Line,
    pub(super) counters: Counters,
    /// By pair: segments of the frame that was taken out of the transmit ring last, which are not sent yet.
    pub(super) segments: Vec<Mutex<VecDeque<Frame>>>,
    /// Offloads of received frames in force.
    pub(super) guest_offloads: Mutex<Features>,
    /// Interrupts that wait for others.
    pub(super) interrupt_coalescing: Mutex<InterruptCoalescing>,
    /// By pair: the received frames that are being coalesced.
    pub(super) arriving: Vec<Mutex<Arriving>>,
    /// By pair: the device takes no frames out of the transmit ring.
    pub(super) hung: Vec<AtomicBool>,
    /// Commands are not answered until a reset.
    pub(super) leaves_commands: AtomicBool,
    pub(super) fails_starts: AtomicBool,
    /// Commands since the last reset that were not answered.
    pub(super) left_commands: AtomicU32,
    /// By queue: what is wrong with the next buffer that is returned.
    pub(super) lies: Vec<Mutex<Lies>>,
    /// Since the last reset, [`corrupt`](super::misbehavior::Misbehavior::corrupt) has returned the id of a buffer that the driver may have made available again, or
    /// has used a descriptor of a packed ring that the driver may be writing.
    has_confused: AtomicBool,
    pub(super) steering: Mutex<Steering>,
    pub(super) pauses: Pauses,
    /// The frame of [`Quirks::repeats`](super::Quirks::repeats), and how often it was delivered.
    pub(super) repeated: Mutex<(Option<Frame>, u32)>,
}

impl Device {
    pub(super) fn new(bus: Arc<dyn Bus>, memory: Arc<DmaSpace>, options: NicOptions) -> Self {
        Self {
            pauses: Pauses::new(&options.quirks, bus.now()),
            bus,
            memory,
            port: OnceLock::new(),
            config: Mutex::new(ConfigSpace::with_identity(
                options.quirks.identity,
                options.quirks.bars,
                options.vectors,
                options.quirks.capabilities,
            )),
            common: Mutex::new(Common::new(&options)),
            queues: (0..options.queues()).map(|_| Mutex::new(DeviceQueue::new())).collect(),
            running: AtomicBool::new(false),
            removed: AtomicBool::new(false),
            low_power: AtomicBool::new(false),
            shut_down: AtomicBool::new(false),
            filter: Mutex::new(Filter::new(options.mac)),
            commands: AtomicU32::new(0),
            sent_commands: Mutex::default(),
            refused_class: Mutex::new(options.quirks.refuses_class),
            line: Line::default(),
            counters: Counters {
                pairs: (0..options.pairs).map(|_| Default::default()).collect(),
                ..Counters::default()
            },
            segments: (0..options.pairs).map(|_| Mutex::default()).collect(),
            guest_offloads: Mutex::default(),
            arriving: (0..options.pairs).map(|_| Mutex::default()).collect(),
            interrupt_coalescing: Mutex::new(InterruptCoalescing::new(options.queues())),
            leaves_commands: AtomicBool::new(false),
            fails_starts: AtomicBool::new(options.quirks.needs_reset_at_start),
            left_commands: AtomicU32::new(0),
            has_confused: AtomicBool::new(false),
            lies: (0..options.queues()).map(|_| Mutex::default()).collect(),
            hung: (0..options.pairs).map(|_| AtomicBool::new(false)).collect(),
            steering: Mutex::default(),
            repeated: Mutex::default(),
            options,
        }
    }

    /// Returns the end of the link the NIC is connected to.
    #[must_use]
    pub fn port(&self) -> Option<&Port> {
        self.port.get()
    }

    /// Returns the MAC address in use: the permanent one unless the driver set another.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        self.filter.lock().mac()
    }

    /// Returns the VLANs whose frames the driver has let pass the filters; `None` if it has not accepted that filter.
    #[must_use]
    pub fn vlans(&self) -> Option<Vec<u16>> {
        self.filter.lock().vlans()
    }

    #[must_use]
    pub fn options(&self) -> &NicOptions {
        &self.options
    }

    /// Returns the memory this device reaches.
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

    /// Returns the counters of each queue pair.
    #[must_use]
    pub fn pair_counters(&self) -> Vec<PairCounters> {
        let pairs = self.counters.pairs.iter().map(|pair| pair.each_ref().map(|count| count.load(Relaxed)));
        pairs.map(|[sent, received]| PairCounters { sent, received }).collect()
    }

    /// Accesses configuration space. Returns `None` when the device is removed.
    pub fn with_config<T>(&self, access: impl FnOnce(&mut ConfigSpace) -> T) -> Option<T> {
        (!self.is_removed()).then(|| access(&mut self.config.lock()))
    }

    /// Takes the device out of its slot: from now on every register reads all ones, and nothing is
    /// sent, received or interrupted.
    pub fn remove(&self) {
        self.removed.store(true, Relaxed);
        self.running.store(false, Relaxed);
    }

    /// Puts another device with the same options into the slot, as after power-on. No driver may use the one before.
    pub fn insert(&self) {
        self.config.lock().set_command(COMMAND_AT_START);
        self.lose_state();
        {
            let mut common = self.common.lock();
            common.reset();
            common.repair(&self.options);
        }
        self.pauses.end(&self.options.quirks);
        *self.refused_class.lock() = self.options.quirks.refuses_class;
        self.low_power.store(false, Relaxed);
        self.shut_down.store(false, Relaxed);
        self.removed.store(false, Relaxed);
    }

    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.removed.load(Relaxed)
    }

    /// Sets DEVICE_NEEDS_RESET, stops the device and notifies the driver. (virtio §16)
    pub fn need_reset(&self) {
        self.running.store(false, Relaxed);
        let signal = self.common.lock().need_reset();
        self.signal(signal);
    }

    /// Returns whether the device is in D3.
    #[must_use]
    pub fn is_in_low_power(&self) -> bool {
        self.low_power.load(Relaxed)
    }

    /// The driver was shut down: from now on it is a misuse to start the device.
    pub fn shut_down(&self) {
        self.shut_down.store(true, Relaxed);
    }

    /// Puts the device in D3. A driver must have stopped it: in D3 no register may be accessed.
    pub fn enter_low_power(&self) {
        let was_running = self.reaches_memory();
        self.low_power.store(true, Relaxed);
        self.running.store(false, Relaxed);
        if was_running && !self.is_removed() {
            self.bus.misuse(Misuse::register(
                "the device was put in D3 while it was running: its DMA and interrupts were not stopped",
            ));
        }
    }

    /// Puts the device in D0, without the state it had before D3 unless it keeps that. The bus restores configuration space, without bus
    /// mastering, which a driver enables itself.
    pub fn leave_low_power(&self) {
        self.config.lock().set_command(COMMAND_AT_START);
        if self.options.quirks.keeps_state_in_d3 {
            self.running.store(self.common.lock().is_started(), Relaxed);
        } else {
            self.lose_state();
            self.common.lock().reset();
        }
        self.low_power.store(false, Relaxed);
    }

    /// Forgets queues and filters.
    pub(super) fn lose_state(&self) {
        self.running.store(false, Relaxed);
        for queue in &self.queues {
            queue.lock().reset();
        }
        for segments in &self.segments {
            segments.lock().clear();
        }
        for arriving in &self.arriving {
            *arriving.lock() = Arriving::default();
        }
        for hung in &self.hung {
            hung.store(self.options.quirks.sends_nothing, Relaxed);
        }
        self.interrupt_coalescing.lock().reset();
        self.steering.lock().reset();
        self.filter.lock().reset(self.options.quirks.keeps_mac);
        self.commands.store(0, Relaxed);
        self.line.clear();
        self.leaves_commands.store(false, Relaxed);
        self.left_commands.store(0, Relaxed);
        self.has_confused.store(false, Relaxed);
        for lies in &self.lies {
            *lies.lock() = Lies::default();
        }
    }

    /// Forgets one queue, which the driver resets.
    pub(super) fn lose_queue(&self, index: usize) {
        self.queues[index].lock().reset();
        *self.lies[index].lock() = Lies::default();
        let role = self.common.lock().role(index);
        self.interrupt_coalescing.lock().reset_queue(index, role);
        if let Some(Role::Transmit(pair)) = role {
            self.segments[pair].lock().clear();
            self.hung[pair].store(false, Relaxed);
        }
    }

    /// Asks the driver to announce its addresses, as after a migration.
    pub fn announce(&self) {
        let signal = self.common.lock().announce();
        self.signal(signal);
    }

    /// Returns whether the driver has not yet acknowledged [`announce`](Self::announce).
    #[must_use]
    pub fn is_announcement_asked(&self) -> bool {
        self.common.lock().is_announcement_asked()
    }

    /// Ends what [`corrupt`](super::misbehavior::Misbehavior::corrupt), [`misstate_buffers`](super::misbehavior::Misbehavior::misstate_buffers), [`leave_commands`](super::misbehavior::Misbehavior::leave_commands),
    /// [`refuse_class`](super::misbehavior::Misbehavior::refuse_class), [`hang`](super::misbehavior::Misbehavior::hang) and pauses have begun. What the driver has read already stays.
    pub(super) fn end_misbehavior(&self) {
        self.pauses.end(&self.options.quirks);
        self.common.lock().set_reset_time(self.options.quirks.reset_time);
        self.common.lock().set_queue_reset_time(self.bus.now(), self.options.quirks.queue_reset_time);
        for hung in &self.hung {
            hung.store(self.options.quirks.sends_nothing, Relaxed);
        }
        for lies in &self.lies {
            *lies.lock() = Lies::default();
        }
        self.leaves_commands.store(false, Relaxed);
        self.fails_starts.store(false, Relaxed);
        *self.refused_class.lock() = self.options.quirks.refuses_class;
    }

    /// Returns what is wrong with the used ring's entry of a buffer that is being returned to a queue.
    pub(super) fn used_quirk(&self, index: usize) -> Option<(u32, UsedQuirk)> {
        self.options.quirks.used.or_else(|| {
            let mut lies = self.lies[index].lock();
            let lasts = lies.used == Some(UsedQuirk::IndexJump);
            let quirk = if lasts { lies.used } else { lies.used.take() };
            if matches!(quirk, Some(UsedQuirk::IdTwice | UsedQuirk::IndexJump)) {
                self.has_confused.store(true, Relaxed);
            }
            quirk.map(|quirk| (1, quirk))
        })
    }

    /// Sends the message of a vector without a reason, also in D3: other functions on a shared message do so.
    pub fn interrupt(&self, vector: u16) {
        let message = self.config.lock().msix.signal(vector);
        self.send(message);
    }

    /// Changes the link state that the driver sees.
    pub fn set_link(&self, up: bool) {
        let signal = self.common.lock().set_link(up);
        self.signal(signal);
    }

    /// Changes the link speed, in Mbit/s.
    pub fn set_speed(&self, megabits: u32) {
        let signal = self.common.lock().set_speed(megabits);
        self.signal(signal);
    }

    /// Returns whether the driver has set DRIVER_OK and the device works.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.running.load(Relaxed)
    }

    /// Returns the number of queue pairs in use: 1 until the driver sets another.
    #[must_use]
    pub fn active_pairs(&self) -> usize {
        self.steering.lock().pairs()
    }

    /// Returns the pair of each entry of the indirection table by which the device steers; `None` if it steers automatically.
    #[must_use]
    pub fn rss_table(&self) -> Option<Vec<u16>> {
        self.steering.lock().scaling().map(|scaling| scaling.table.clone())
    }

    /// Returns the features that the driver has accepted.
    #[must_use]
    pub fn accepted(&self) -> Features {
        self.common.lock().accepted()
    }

    /// Returns how often the driver has sent a command of the control queue, given by class and command, also before resets.
    #[must_use]
    pub fn sent_commands(&self, command: [u8; 2]) -> u32 {
        self.sent_commands.lock().get(&command).copied().unwrap_or(0)
    }

    /// Returns the types of the hashes that the device computes, as virtio numbers them.
    #[must_use]
    pub fn hash_types(&self) -> u32 {
        self.steering.lock().hashing().map_or(0, |hashing| hashing.types)
    }

    /// Returns the sizes of the first receive queue and of the first transmit queue that the driver chose; 0 before it has enabled them.
    #[must_use]
    pub fn queue_sizes(&self) -> [u16; 2] {
        [RECEIVE, TRANSMIT].map(|queue| self.queues[queue].lock().size())
    }

    /// Returns whether the device may use memory and send interrupts: it is live and a bus master.
    #[must_use]
    pub fn reaches_memory(&self) -> bool {
        self.is_running() && self.config.lock().is_bus_master()
    }

    /// Returns whether the device may still write to `address..address + len`: it [reaches memory](Self::reaches_memory), and the
    /// range holds a part of a ring.
    #[must_use]
    pub fn uses(&self, address: u64, len: u64) -> bool {
        self.reaches_memory() && self.queues.iter().any(|queue| queue.lock().overlaps(address, len))
    }

    /// Masks or unmasks a vector, as the system does; a pending message is delivered.
    pub fn mask_vector(&self, vector: u16, masked: bool) {
        let message = self.config.lock().msix.mask(vector, masked);
        self.send(message);
    }

    /// Reports a misuse and stops the device. If the device has returned the id of another buffer, the driver cannot know which
    /// buffers it has, and if it has used a descriptor too many, this one may be what the driver was writing: the device stops only.
    pub(super) fn report(&self, misuse: Misuse) {
        let is_own_fault = self.has_confused.load(Relaxed);
        self.need_reset();
        if !is_own_fault {
            self.bus.misuse(misuse);
        }
    }

    /// Interrupts the machine.
    pub(super) fn signal(&self, signal: Option<Signal>) {
        if self.is_removed() || self.is_in_low_power() {
            return;
        }
        let Some(Signal { vector, cause }) = signal else { return };
        let mut config = self.config.lock();
        if config.msix.is_enabled() {
            // A message is a write to memory.
            let vector = vector.filter(|_| config.is_bus_master());
            let message = vector.and_then(|vector| config.msix.signal(vector));
            drop(config);
            self.send(message);
            return;
        }
        let is_disabled = config.is_line_disabled();
        drop(config);
        if self.line.add(cause) && !is_disabled {
            self.counters.interrupts.fetch_add(1, Relaxed);
            self.bus.line();
        }
    }

    fn send(&self, message: Option<Message>) {
        if let Some(message) = message {
            self.counters.interrupts.fetch_add(1, Relaxed);
            self.bus.message(message);
        }
    }
}

/// Received frames of a pair that are not delivered yet.
#[derive(Default)]
pub(super) struct Arriving {
    /// Segments that wait for others, and until when.
    pub unit: Option<(Unit, u64)>,
    /// Frames that are next, of which the first `singles` are not coalesced.
    pub frames: VecDeque<Frame>,
    pub singles: usize,
    /// The frame before these, which waits for more buffers.
    pub refused: Option<(Header, Frame)>,
}

impl Arriving {
    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.unit.is_none() && self.frames.is_empty() && self.refused.is_none()
    }

    /// Returns until when segments wait for others.
    pub fn deadline(&self) -> Option<u64> {
        self.unit.as_ref().map(|(_, until)| *until)
    }
}

/// Outcome of processing a queue.
#[derive(Default)]
pub(super) struct Outcome {
    /// The driver asked for an interrupt.
    pub interrupt: bool,
    /// The budget ran out before the queue was empty.
    pub more: bool,
    /// Frames wait for others, or the queue for the end of a pause, until this time.
    pub later: Option<u64>,
    /// An interrupt waits for others until this time.
    pub interrupt_at: Option<u64>,
}
