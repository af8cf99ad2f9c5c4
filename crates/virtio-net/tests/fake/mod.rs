// SPDX-License-Identifier: MIT OR Apache-2.0

//! A model of a virtio-net device: its registers, on the rings of `virtio-device`, whose split rings are those of rust-vmm: an
//! independent implementation. `Quirks` make the device misbehave.
#![allow(unsafe_code, reason = "a device's view of a driver's memory")]

mod commands;
mod driver;
#[cfg(miri)]
mod heap;
mod queue;

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use virtio_net::pci::CONFIG_LEN;
use virtio_net::{Control, HEADER_LEN, Nic};
use virtio_net::{DmaBlock, Error, Features, Hal, Layout, Options, Registers};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

pub use self::commands::Answer;
pub use self::driver::Driver;
use self::queue::QueueRegisters;

/// Above 4 GiB, so that both halves of an address matter.
const MEMORY_START: u64 = 5 << 30;
const MEMORY: usize = if cfg!(miri) { 8 } else { 64 } << 20;
const BAR: u8 = 4;
const COMMON: u64 = 0x0000;
const ISR: u64 = 0x1000;
const DEVICE: u64 = 0x2000;
const NOTIFY: u64 = 0x3000;
const BAR_LEN: u64 = 0x4000;
const MULTIPLIER: u64 = 4;

/// Nanoseconds between two ticks of the clock.
pub const TICK: u64 = 15_625_000;

pub const MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
/// The MAC address in the configuration of a generation: no byte is that of another generation.
pub fn mac_of(generation: u8) -> [u8; 6] {
    MAC.map(|byte| byte ^ generation)
}

pub const RECEIVE: usize = 0;
pub const TRANSMIT: usize = 1;
/// Without MQ.
pub const CONTROL: usize = 2;

/// Runs `test` with a device of each ring format.
pub fn over_formats(test: impl Fn(Quirks)) {
    for format in [Features::empty(), Features::RING_PACKED] {
        let quirks = Quirks::default();
        test(Quirks { offered: quirks.offered | format, ..quirks });
    }
}

/// When the reset of a queue ends.
#[derive(Clone, Copy, Debug)]
pub enum QueueReset {
    After(Duration),
    Never,
    /// The queue stays enabled.
    Enabled,
}

/// Deviations from the default device.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "independent of each other")]
pub struct Quirks {
    pub offered: Features,
    pub rejects_features: bool,
    /// The platform remaps the device's addresses.
    pub is_remapped: bool,
    pub never_resets: bool,
    pub reset: QueueReset,
    pub removed: bool,
    pub vectors: u16,
    /// As `vectors`, for changes of the configuration.
    pub config_vectors: u16,
    /// Takes another vector than the driver writes: with these bits changed.
    pub changed_vector: u16,
    /// As `changed_vector`, for changes of the configuration.
    pub changed_config_vector: u16,
    /// Queue pairs, which only a driver with MQ or RSS can use.
    pub pairs: u16,
    /// The number of pairs that its configuration states; `None` for `pairs`.
    pub stated_pairs: Option<u16>,
    /// Sizes of the receive and the transmit queues.
    pub queue_sizes: [u16; 2],
    /// Size of the control queue.
    pub control_size: u16,
    /// Answer to the commands of the control queue.
    pub answer: Answer,
    /// Time from a command to its answer.
    pub answer_time: Duration,
    pub notify_off: u16,
    /// Number of allocations that succeed.
    pub allocations: usize,
    /// Bytes that the driver may have at a time.
    pub memory: usize,
    /// Changes of the configuration from now on, each while the driver reads the MAC address.
    pub config_changes: u32,
    /// The registers of speed, duplex, status and MTU.
    pub speed: u32,
    pub duplex: u8,
    pub net_status: u16,
    pub mtu: u16,
    /// Key length, entries and types of hashes that the device is capable of.
    pub rss_limits: (u8, u16, u32),
}

impl Default for Quirks {
    fn default() -> Self {
        Self {
            offered: Features::VERSION_1
                | Features::EVENT_IDX
                | Features::MAC
                | Features::STATUS
                | Features::MTU,
            rejects_features: false,
            is_remapped: false,
            never_resets: false,
            reset: QueueReset::After(Duration::ZERO),
            removed: false,
            vectors: 3,
            config_vectors: 3,
            changed_vector: 0,
            changed_config_vector: 0,
            pairs: 1,
            stated_pairs: None,
            queue_sizes: if cfg!(miri) { [16, 16] } else { [256, 256] },
            control_size: 64,
            answer: Answer::Ok,
            answer_time: Duration::ZERO,
            notify_off: 1,
            allocations: usize::MAX,
            memory: usize::MAX,
            config_changes: 0,
            speed: u32::MAX,
            duplex: 1,
            net_status: 1,
            mtu: 1500,
            rss_limits: (40, 128, 0x1FF),
        }
    }
}

struct Device {
    quirks: Quirks,
    /// A reset has not ended, because the device never resets.
    is_resetting: bool,
    config_generation: u8,
    register_reads: u64,
    status: u8,
    feature_select: u32,
    driver_feature_select: u32,
    accepted: u64,
    queue_select: u16,
    config_vector: u16,
    queue_vectors: Vec<u16>,
    /// The queue that is being reset, and when that ends.
    queue_reset: Option<(usize, u64)>,
    /// The queues that were reset.
    queue_resets: Vec<usize>,
    queues: Vec<QueueRegisters>,
    /// The commands of the control queue.
    commands: Vec<Vec<u8>>,
    pub notified: Vec<u32>,
    pub early_notifications: u32,
    next_address: u64,
    blocks: BTreeMap<u64, usize>,
    /// The buffer of the frame that was delivered last, and its length.
    delivered: Option<(GuestAddress, usize)>,
    freed_while_live: bool,
    /// In nanoseconds.
    time: u64,
    /// When commands that have arrived are answered.
    answer_at: Option<u64>,
    has_dma: bool,
}

impl Device {
    /// The driver resets the selected queue.
    fn reset_queue(&mut self) {
        let queue = usize::from(self.queue_select);
        assert_ne!(self.status & 4, 0, "the device runs");
        assert_ne!(self.accepted & Features::RING_RESET.bits(), 0);
        self.queues[queue].reset();
        self.queue_vectors[queue] = 0xFFFF;
        self.queue_resets.push(queue);
        let end = match self.quirks.reset {
            QueueReset::After(time) => self.time + time.as_nanos() as u64,
            QueueReset::Never => u64::MAX,
            QueueReset::Enabled => self.time,
        };
        self.queue_reset = Some((queue, end));
    }
}

impl Quirks {
    /// Size of a queue; 0 if there is none.
    fn queue_size(&self, index: usize, has_pairs: bool) -> u16 {
        let control = if has_pairs { 2 * usize::from(self.pairs) } else { CONTROL };
        match index {
            _ if index > control => 0,
            _ if index == control => self.control_size,
            _ => self.queue_sizes[index % 2],
        }
    }
}

impl Device {
    /// Ends a reset that the driver has begun, unless the device never resets.
    fn finish_reset(&mut self) {
        if self.is_resetting && !self.quirks.never_resets {
            self.is_resetting = false;
            self.status = 0;
            self.accepted = 0;
            self.queues.iter_mut().for_each(QueueRegisters::reset);
            self.queue_reset = None;
            self.queue_vectors.fill(0xFFFF);
        }
    }

    fn has_pairs(&self) -> bool {
        Features::from_bits_retain(self.accepted).intersects(Features::MQ | Features::RSS)
    }

    /// The index of the control queue.
    fn control(&self) -> usize {
        if self.has_pairs() { 2 * usize::from(self.quirks.pairs) } else { CONTROL }
    }
}

#[derive(Clone)]
pub struct Fake {
    device: Arc<Mutex<Device>>,
    pub memory: Arc<GuestMemoryMmap>,
    #[cfg(miri)]
    _heap: Arc<heap::Heap>,
}

impl Fake {
    /// Length in bytes of a memory BAR.
    pub fn bar_len(bar: u8) -> Option<u64> {
        (bar == BAR).then_some(BAR_LEN)
    }

    pub fn new(quirks: Quirks) -> Self {
        let count = 2 * usize::from(quirks.pairs) + 1;
        // Of two kinds, then the control queue; which is which depends on the features.
        let largest = quirks.queue_sizes[0].max(quirks.queue_sizes[1]).max(quirks.control_size);
        let size = |index: usize| if quirks.pairs > 1 { largest } else { quirks.queue_size(index, false) };
        let queues = (0..count).map(|index| QueueRegisters::new(size(index))).collect();
        let device = Device {
            quirks,
            is_resetting: false,
            config_generation: 0,
            register_reads: 0,
            status: 0x7,
            feature_select: 0,
            driver_feature_select: 0,
            accepted: 0,
            queue_select: 0,
            config_vector: 0xFFFF,
            queue_vectors: vec![0xFFFF; count],
            queue_reset: None,
            queue_resets: Vec::new(),
            queues,
            commands: Vec::new(),
            notified: vec![0; count],
            early_notifications: 0,
            next_address: MEMORY_START + 0x1000,
            blocks: BTreeMap::new(),
            delivered: None,
            freed_while_live: false,
            time: 0,
            answer_at: None,
            has_dma: false,
        };
        #[cfg(not(miri))]
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(MEMORY_START), MEMORY)]).unwrap();
        #[cfg(miri)]
        let (memory, heap) = heap::memory(GuestAddress(MEMORY_START), MEMORY);
        Self {
            device: Arc::new(Mutex::new(device)),
            memory: Arc::new(memory),
            #[cfg(miri)]
            _heap: Arc::new(heap),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Device> {
        self.device.lock().unwrap()
    }

    /// Brings the device up as a driver does, with one pair.
    pub fn bring_up(&self, max_frame: usize) -> Result<Driver, Error> {
        self.bring_up_with(max_frame, 1, 3)
    }

    /// Brings the device up with at most so many queue pairs and interrupt messages.
    pub fn bring_up_with(&self, max_frame: usize, pairs: u16, messages: u32) -> Result<Driver, Error> {
        let layout = Layout::find(&config_space(), Self::bar_len)?;
        let mut control = Control::new(self.clone(), self.clone(), layout);
        control.negotiate()?;
        let options = Options {
            transmit_frame: max_frame,
            receive_frame: max_frame,
            pairs,
            receive_size: 256,
            transmit_size: 256,
            messages,
        };
        let mut nic = Nic::new(self, &mut control, &options)?;
        nic.start(&mut control)?;
        Ok(Driver { nic: Some(nic), control })
    }

    /// Takes the frames that the driver sent, in order, without the virtio headers.
    pub fn transmitted(&self) -> Vec<Vec<u8>> {
        self.transmit(usize::MAX)
    }

    /// Takes at most `limit` of these frames.
    pub fn transmit(&self, limit: usize) -> Vec<Vec<u8>> {
        let plain = |(header, frame)| {
            assert_eq!(header, [0; HEADER_LEN], "a header without offloads is zero");
            frame
        };
        self.transmit_with_headers(limit).into_iter().map(plain).collect()
    }

    /// Takes at most `limit` of these frames, with the virtio headers.
    pub fn transmit_with_headers(&self, limit: usize) -> Vec<([u8; HEADER_LEN], Vec<u8>)> {
        self.transmit_of(TRANSMIT, limit)
    }

    /// Takes the frames that the driver sent by transmit queue `index`.
    pub fn transmit_of(&self, index: usize, limit: usize) -> Vec<([u8; HEADER_LEN], Vec<u8>)> {
        let mut frames = Vec::new();
        let mut device = self.lock();
        let queue = &mut device.queues[index];
        loop {
            queue.disable_notifications(&self.memory);
            while let Some(buffer) = queue.pop(&self.memory) {
                assert!(!buffer.writable, "the device only reads transmit buffers");
                let mut frame = vec![0; buffer.len as usize];
                self.memory.read_slice(&mut frame, buffer.address).unwrap();
                assert!(frame.len() >= HEADER_LEN + 60, "a runt of {} bytes", frame.len());
                let rest = frame.split_off(HEADER_LEN);
                frames.push((frame.try_into().unwrap(), rest));
                queue.push(&self.memory, buffer.id, 0);
                if frames.len() == limit {
                    return frames;
                }
            }
            if !queue.enable_notifications(&self.memory) {
                return frames;
            }
        }
    }

    /// Receives a frame into the next available buffer. Returns `false` if there is none.
    pub fn deliver(&self, frame: &[u8]) -> bool {
        self.deliver_to(RECEIVE, frame)
    }

    /// Receives a frame into the next available buffer of receive queue `index`.
    pub fn deliver_to(&self, index: usize, frame: &[u8]) -> bool {
        let mut device = self.lock();
        let queue = &mut device.queues[index];
        let Some(buffer) = queue.pop(&self.memory) else {
            queue.enable_notifications(&self.memory);
            return false;
        };
        assert!(buffer.writable, "the device only writes receive buffers");
        let mut bytes = vec![0; HEADER_LEN];
        bytes.extend_from_slice(frame);
        assert!(bytes.len() <= buffer.len as usize, "test frames fit");
        self.memory.write_slice(&bytes, buffer.address).unwrap();
        queue.push(&self.memory, buffer.id, bytes.len() as u32);
        device.delivered = Some((buffer.address, bytes.len()));
        true
    }

    /// Receives a frame into buffers of `parts` bytes each, with this `num_buffers` in the header.
    pub fn deliver_in(&self, frame: &[u8], parts: &[usize], num_buffers: u16) {
        let mut header = [0; HEADER_LEN];
        header[10..].copy_from_slice(&num_buffers.to_le_bytes());
        self.deliver_with(header, frame, parts);
    }

    /// Receives a frame behind `header` into buffers of `parts` bytes each.
    pub fn deliver_with<const LEN: usize>(&self, header: [u8; LEN], frame: &[u8], parts: &[usize]) {
        let mut device = self.lock();
        let queue = &mut device.queues[RECEIVE];
        let bytes = [&header[..], frame].concat();
        let mut rest = &bytes[..];
        for &len in parts {
            let buffer = queue.pop(&self.memory).expect("a buffer is available");
            let (part, later) = rest.split_at(len.min(rest.len()));
            self.memory.write_slice(part, buffer.address).unwrap();
            queue.push(&self.memory, buffer.id, len as u32);
            rest = later;
        }
    }

    /// Overwrites the buffer of the frame that was delivered last, which no longer is the device's.
    pub fn overwrite_delivered(&self, byte: u8) {
        let (address, len) = self.lock().delivered.expect("a frame was delivered");
        self.memory.write_slice(&vec![byte; len], address).unwrap();
    }

    /// Whether the driver requested an interrupt for the completions since the last call.
    pub fn wants_interrupt(&self, queue: usize) -> bool {
        self.lock().queues[queue].needs_interrupt(&self.memory)
    }

    /// Whether the driver set the flag that suppresses the interrupts of a queue without event indices.
    pub fn has_no_interrupt_flag(&self, queue: usize) -> bool {
        self.lock().queues[queue].has_interrupts_disabled(&self.memory)
    }

    pub fn notified(&self, queue: usize) -> u32 {
        self.lock().notified[queue]
    }

    /// Writes a used element and moves the used index by `steps`, as a hostile device may. In a packed ring, each of `steps`
    /// descriptors is used with `id`.
    pub fn forge_used(&self, queue: usize, id: u32, len: u32, steps: u16) {
        self.lock().queues[queue].forge(&self.memory, id, len, steps);
    }

    pub fn change(&self, change: impl FnOnce(&mut Quirks)) {
        let mut device = self.lock();
        change(&mut device.quirks);
        device.finish_reset();
    }

    pub fn raise_needs_reset(&self) {
        self.lock().status |= 0x40;
    }

    pub fn status(&self) -> u8 {
        self.lock().status
    }

    /// The sizes of packed queues that the driver programmed.
    pub fn sizes(&self) -> [u16; 2] {
        let device = self.lock();
        [RECEIVE, TRANSMIT].map(|queue| device.queues[queue].size())
    }

    /// The vector of configuration changes, then those of the queues that the driver set.
    pub fn vectors(&self) -> Vec<u16> {
        let device = self.lock();
        let of_queues = device.queue_vectors.iter().copied().filter(|&vector| vector != 0xFFFF);
        [device.config_vector].into_iter().chain(of_queues).collect()
    }

    pub fn accepted(&self) -> Features {
        Features::from_bits_retain(self.lock().accepted)
    }

    /// Whether the device may access memory.
    pub fn has_dma(&self) -> bool {
        self.lock().has_dma
    }

    /// Number of allocated blocks of DMA memory.
    pub fn blocks(&self) -> usize {
        self.lock().blocks.len()
    }

    /// Bytes of these blocks.
    pub fn bytes(&self) -> usize {
        self.lock().blocks.values().sum()
    }

    /// Asserts that the driver sent no notification before DRIVER_OK, freed no memory of a running device, and leaked none.
    pub fn assert_well_treated(&self) {
        let device = self.lock();
        assert_eq!(device.early_notifications, 0, "notified before DRIVER_OK");
        assert!(!device.freed_while_live, "freed memory that the device was using");
        assert!(device.blocks.is_empty(), "leaked {} blocks", device.blocks.len());
    }
}

// SAFETY: blocks are disjoint ranges of the guest mapping, zeroed, page aligned, never reused.
unsafe impl Hal for Fake {
    fn allocate(&self, len: usize) -> Option<DmaBlock> {
        let mut device = self.lock();
        if len > device.quirks.memory.saturating_sub(device.blocks.values().sum()) {
            return None;
        }
        device.quirks.allocations = device.quirks.allocations.checked_sub(1)?;
        let address = device.next_address;
        device.next_address = (address + len as u64).next_multiple_of(4096);
        assert!(device.next_address < MEMORY_START + MEMORY as u64, "the test needs more memory");
        device.blocks.insert(address, len);
        let host = self.memory.get_host_address(GuestAddress(address)).unwrap();
        Some(DmaBlock { address: NonNull::new(host).unwrap(), device_address: address, len })
    }

    unsafe fn release(&self, block: DmaBlock) {
        let mut device = self.lock();
        assert_eq!(device.blocks.remove(&block.device_address), Some(block.len), "not a live block");
        let is_used = device.status & 4 != 0 || device.queues.iter().any(QueueRegisters::is_enabled);
        device.freed_while_live |= is_used && device.has_dma;
        self.memory.write_slice(&vec![0xDD; block.len], GuestAddress(block.device_address)).unwrap();
    }

    fn is_remapped(&self, _: &DmaBlock) -> bool {
        self.lock().quirks.is_remapped
    }

    fn allow_dma(&self, is_allowed: bool) {
        let mut device = self.lock();
        assert!(!is_allowed || device.status == 0, "allowed before the end of the reset");
        device.has_dma = is_allowed;
    }

    /// As on Windows: until the next tick of the clock.
    fn delay(&self, microseconds: u32) {
        self.pass(|now| (now + u64::from(microseconds) * 1000).next_multiple_of(TICK));
    }

    fn stall(&self, microseconds: u32) {
        assert!(microseconds <= 50);
        self.pass(|now| now + u64::from(microseconds) * 1000);
    }

    fn now(&self) -> u64 {
        self.lock().time
    }
}

impl Registers for Fake {
    fn read8(&self, bar: u8, offset: u64) -> u8 {
        assert_eq!(bar, BAR);
        let mut device = self.read_register();
        if device.quirks.removed {
            return 0xFF;
        }
        match offset {
            o if o == COMMON + 0x14 => device.status,
            o if o == COMMON + 0x15 => device.config_generation,
            o if (DEVICE..DEVICE + 6).contains(&o) => {
                if o == DEVICE + 3 && device.quirks.config_changes != 0 {
                    device.quirks.config_changes -= 1;
                    device.config_generation = device.config_generation.wrapping_add(1);
                }
                mac_of(device.config_generation)[(o - DEVICE) as usize]
            }
            o if o == DEVICE + 16 => device.quirks.duplex,
            o if o == DEVICE + 17 => device.quirks.rss_limits.0,
            o => panic!("8-bit read of {o:#x}"),
        }
    }

    fn read16(&self, bar: u8, offset: u64) -> u16 {
        assert_eq!(bar, BAR);
        let device = self.read_register();
        if device.quirks.removed {
            return 0xFFFF;
        }
        let queue = usize::from(device.queue_select);
        match offset {
            o if o == COMMON + 0x10 => device.config_vector,
            o if o == COMMON + 0x18 => device.quirks.queue_size(queue, device.has_pairs()),
            o if o == COMMON + 0x1A => device.queue_vectors[queue],
            // QUEUE_RESET.
            o if o == COMMON + 0x3A => {
                u16::from(device.queue_reset.is_some_and(|(of, end)| of == queue && device.time < end))
            }
            o if o == COMMON + 0x1C => {
                let was_reset = device.queue_reset.is_some_and(|(of, _)| of == queue);
                let stays = was_reset && matches!(device.quirks.reset, QueueReset::Enabled);
                u16::from(device.queues[queue].is_enabled() || stays)
            }
            o if o == COMMON + 0x1E => device.quirks.notify_off * queue as u16,
            o if o == DEVICE + 6 => device.quirks.net_status,
            o if o == DEVICE + 8 => device.quirks.stated_pairs.unwrap_or(device.quirks.pairs),
            o if o == DEVICE + 10 => device.quirks.mtu,
            o if o == DEVICE + 18 => device.quirks.rss_limits.1,
            o => panic!("16-bit read of {o:#x}"),
        }
    }

    fn read32(&self, bar: u8, offset: u64) -> u32 {
        assert_eq!(bar, BAR);
        let device = self.read_register();
        if device.quirks.removed {
            return u32::MAX;
        }
        match offset {
            o if o == COMMON + 4 => (device.quirks.offered.bits() >> (32 * device.feature_select)) as u32,
            o if o == DEVICE + 12 => device.quirks.speed,
            o if o == DEVICE + 20 => device.quirks.rss_limits.2,
            o => panic!("32-bit read of {o:#x}"),
        }
    }

    fn write8(&self, _bar: u8, offset: u64, value: u8) {
        assert_eq!(offset, COMMON + 0x14, "the only 8-bit register the driver writes");
        let mut device = self.lock();
        if value == 0 {
            device.is_resetting = true;
            device.finish_reset();
            return;
        }
        assert_eq!(device.status & !value, 0, "the driver clears no status bit");
        device.status = value;
        if device.quirks.rejects_features {
            device.status &= !8;
        }
    }

    fn write16(&self, _bar: u8, offset: u64, value: u16) {
        let mut device = self.lock();
        let vector = if value < device.quirks.vectors { value } else { 0xFFFF };
        let queue = usize::from(device.queue_select);
        match offset {
            o if o == COMMON + 0x10 => {
                let vector = if value < device.quirks.config_vectors { vector } else { 0xFFFF };
                device.config_vector = vector ^ device.quirks.changed_config_vector;
            }
            o if o == COMMON + 0x16 => device.queue_select = value,
            o if o == COMMON + 0x18 => device.queues[queue].set_size(value),
            o if o == COMMON + 0x1A => device.queue_vectors[queue] = vector ^ device.quirks.changed_vector,
            o if o == COMMON + 0x1C => {
                assert_eq!(value, 1);
                assert!(device.has_dma, "enabled before the device may access the queue");
                let is_being_reset =
                    device.queue_reset.is_some_and(|(of, end)| of == queue && device.time < end);
                assert!(!is_being_reset, "enabled before the end of its reset");
                let event_idx = device.accepted & Features::EVENT_IDX.bits() != 0;
                let indirect = device.accepted & Features::INDIRECT_DESC.bits() != 0;
                device.queues[queue].enable(&self.memory, event_idx, indirect);
            }
            o if o == COMMON + 0x3A => device.reset_queue(),
            o if o >= NOTIFY => {
                assert_eq!(u64::from(value), (o - NOTIFY) / MULTIPLIER, "each queue has its own address");
                if device.status & 4 == 0 {
                    device.early_notifications += 1;
                }
                device.notified[usize::from(value)] += 1;
                if usize::from(value) == device.control() {
                    device.command_arrived(&self.memory);
                }
            }
            o => panic!("16-bit write of {o:#x}"),
        }
    }

    fn write32(&self, _bar: u8, offset: u64, value: u32) {
        let mut device = self.lock();
        let queue = usize::from(device.queue_select);
        if offset == COMMON + 0xC {
            device.accepted |= u64::from(value) << (32 * device.driver_feature_select);
            let is_packed = Features::from_bits_retain(device.accepted).contains(Features::RING_PACKED);
            device.queues.iter_mut().for_each(|queue| queue.set_packed(is_packed));
            return;
        }
        let last = device.queues.len() - 1;
        let queue = &mut device.queues[queue.min(last)];
        match offset {
            o if o == COMMON => device.feature_select = value,
            o if o == COMMON + 8 => device.driver_feature_select = value,

            o if (COMMON + 0x20..COMMON + 0x38).contains(&o) => {
                let register = (o - COMMON - 0x20) as u32 / 4;
                queue.set_address((register / 2) as usize, register % 2, value);
            }
            o => panic!("32-bit write of {o:#x}"),
        }
    }
}

/// Configuration space as QEMU has it: MSI-X, then the four structures in BAR 4.
pub fn config_space() -> [u8; CONFIG_LEN] {
    let mut config = [0; CONFIG_LEN];
    config[..4].copy_from_slice(&[0xF4, 0x1A, 0x41, 0x10]);
    config[6] = 0x10;
    config[0x34] = 0x98;
    config[0x98..0x9C].copy_from_slice(&[0x11, 0x40, 2, 0]);
    let mut at = 0x40;
    for (cfg_type, offset, len, next) in
        [(1, COMMON, 0x1000, 0x50), (3, ISR, 0x1000, 0x60), (4, DEVICE, 0x1000, 0x70), (2, NOTIFY, 0x1000, 0)]
    {
        let size = if cfg_type == 2 { 20 } else { 16 };
        write_capability(&mut config, at, next, size, cfg_type, offset as u32, len);
        at += 0x10;
    }
    config[0x80..0x84].copy_from_slice(&(MULTIPLIER as u32).to_le_bytes());
    config
}

pub fn write_capability(
    config: &mut [u8; CONFIG_LEN],
    at: usize,
    next: u8,
    size: u8,
    cfg_type: u8,
    offset: u32,
    len: u32,
) {
    config[at..at + 5].copy_from_slice(&[9, next, size, cfg_type, BAR]);
    config[at + 8..at + 12].copy_from_slice(&offset.to_le_bytes());
    config[at + 12..at + 16].copy_from_slice(&len.to_le_bytes());
}
