// SPDX-License-Identifier: MIT OR Apache-2.0

//! The common and the device configuration structure: feature negotiation, status, queue registers.
//! (virtio §2, §3, §14, §15)

use std::time::Duration;

use trapped_access::Width;
use virtio_device::RingAddresses;

use super::{
    features::{Features, Status},
    options::{NicOptions, Role},
    quirks::Quirks,
    scaling::RssLimits,
};
use crate::{dma::DmaSpace, registers::Misuse};

/// How the device interrupts: by a message if MSI-X is enabled, otherwise by its line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signal {
    /// `None` for no message.
    pub vector: Option<u16>,
    /// The cause in the interrupt status.
    pub cause: u8,
}

impl Signal {
    fn new(vector: u16, cause: u8) -> Self {
        Self { vector: (vector != NO_VECTOR).then_some(vector), cause }
    }
}

/// Causes in the interrupt status. (virtio 1.2, 4.1.4.5)
const OF_QUEUE: u8 = 1;
const OF_CONFIG: u8 = 2;

/// No vector.
const NO_VECTOR: u16 = 0xffff;
/// Link status bit of the device configuration.
const LINK_UP: u16 = 1;
/// Likewise: the driver is asked to announce its addresses.
const ANNOUNCE: u16 = 2;
/// Link speed in Mbit/s that is reported unless [`Quirks::speed`] says another, and full duplex.
const SPEED: u32 = 10_000;
const FULL_DUPLEX: u8 = 1;

/// Effect of a register write outside the registers.
pub enum Effect {
    None,
    Reset,
    Enable(usize, RingAddresses),
    /// A queue of the running device was reset.
    ResetQueue(usize),
    Start,
}

struct QueueRegisters {
    max_size: u16,
    size: u16,
    vector: u16,
    enabled: bool,
    descriptors: u64,
    driver: u64,
    device: u64,
    /// When the reset of the queue ends, while one lasts.
    resetting: Option<u64>,
}

impl QueueRegisters {
    const fn new(max_size: u16) -> Self {
        Self {
            max_size,
            size: max_size,
            vector: NO_VECTOR,
            enabled: false,
            descriptors: 0,
            driver: 0,
            device: 0,
            resetting: None,
        }
    }

    /// Ends a reset that has taken its time.
    fn end_reset(&mut self, now: u64) {
        self.resetting = self.resetting.filter(|&end| now < end);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The registers' state.
pub struct Common {
    quirks: Quirks,
    offered: Features,
    /// Features that are offered no more after the next reset.
    withdrawn: Features,
    accepted: Features,
    /// Features that a driver has to accept: ACCESS_PLATFORM if the system remaps the device's DMA.
    required: Features,
    vectors: u16,
    mtu: u16,
    status: Status,
    device_feature_select: u32,
    driver_feature_select: u32,
    generation: u8,
    config_vector: u16,
    queue_select: u16,
    /// Queue pairs of the configuration.
    pairs: u16,
    queue_sizes: [u16; 3],
    queues: Vec<QueueRegisters>,
    link_up: bool,
    announce: bool,
    /// When the reset ends, while one lasts.
    resetting: Option<u64>,
    /// The status register reads all ones.
    status_hidden: bool,
}

impl Common {
    pub fn new(options: &NicOptions) -> Self {
        let mut common = Self {
            quirks: options.quirks,
            offered: options.quirks.offered(options.features),
            withdrawn: Features::default(),
            accepted: Features::default(),
            required: options.features.and(Features::ACCESS_PLATFORM),
            vectors: options.vectors,
            mtu: options.quirks.mtu.unwrap_or(options.mtu),
            status: if options.quirks.left_by_firmware {
                Status(Status::ACKNOWLEDGE.0 | Status::DRIVER.0)
            } else {
                Status::default()
            },
            device_feature_select: 0,
            driver_feature_select: 0,
            generation: 0,
            config_vector: NO_VECTOR,
            queue_select: 0,
            pairs: options.pairs,
            queue_sizes: options.queue_sizes,
            queues: Vec::new(),
            link_up: true,
            announce: false,
            resetting: None,
            status_hidden: false,
        };
        common.renew_queues();
        common
    }

    /// Gives every queue the registers that it has after a reset, by its [`Role`], which depends on the accepted features.
    fn renew_queues(&mut self) {
        let [receive, transmit, control] = self.queue_sizes;
        let size = |index| match self.role(index) {
            Some(Role::Receive(_)) => receive,
            Some(Role::Transmit(_)) => transmit,
            Some(Role::Control) => control,
            None => 0,
        };
        self.queues =
            (0..=2 * usize::from(self.pairs)).map(|index| QueueRegisters::new(size(index))).collect();
    }

    /// Returns the purpose of a queue.
    pub fn role(&self, index: usize) -> Option<Role> {
        Role::of(
            index,
            if self.accepted.intersects(Features::MQ | Features::RSS) { self.pairs.into() } else { 1 },
        )
    }

    /// Returns whether both queues of each of the first `pairs` pairs are enabled.
    pub fn has_enabled(&self, pairs: usize) -> bool {
        self.queues.iter().take(2 * pairs).all(|queue| queue.enabled)
    }

    /// Returns whether all queues that the accepted features imply are enabled.
    pub fn has_enabled_all(&self) -> bool {
        let has_commands = self.accepted.contains(Features::CTRL_VQ);
        (0..self.queues.len()).all(|index| match self.role(index) {
            Some(Role::Control) => !has_commands || self.queues[index].enabled,
            Some(_) => self.queues[index].enabled,
            None => true,
        })
    }

    /// Whether the driver has set DRIVER_OK since the last reset, also one that has not ended.
    pub fn is_started(&self) -> bool {
        self.status.has(Status::DRIVER_OK) && self.resetting.is_none()
    }

    pub fn set_reset_time(&mut self, time: Duration) {
        self.quirks.reset_time = time;
    }

    /// Resets of queues that last end with the time that `time` leaves them.
    pub fn set_queue_reset_time(&mut self, now: u64, time: Duration) {
        self.quirks.queue_reset_time = time;
        let latest = now.saturating_add(nanos(time));
        for queue in &mut self.queues {
            queue.resetting = queue.resetting.map(|end| end.min(latest));
        }
    }

    /// Returns the limits of receive side scaling.
    pub fn rss_limits(&self) -> RssLimits {
        self.quirks.rss_limits.unwrap_or_default()
    }

    /// Changes what the device configuration states, as another host's device does after a migration.
    pub fn migrate(&mut self, mtu: u16, limits: RssLimits) {
        self.mtu = mtu;
        self.quirks.rss_limits = Some(limits);
        self.generation = self.generation.wrapping_add(1);
    }

    pub fn stop_resetting(&mut self) {
        self.quirks.never_resets = true;
    }

    pub fn hide_status(&mut self) {
        self.status_hidden = true;
    }

    /// Ends what [`stop_resetting`](Self::stop_resetting), [`hide_status`](Self::hide_status),
    /// [`set_config_unsteady`](Self::set_config_unsteady) and [`withdraw`](Self::withdraw) began.
    pub fn repair(&mut self, options: &NicOptions) {
        self.quirks = options.quirks;
        self.status_hidden = false;
        self.withdrawn = Features::default();
        self.offered = options.quirks.offered(options.features);
        self.link_up = true;
    }

    pub fn set_config_unsteady(&mut self, unsteady: bool) {
        self.quirks.unsteady_config = unsteady;
    }

    /// Offers these features no more, nor those that need one of them, after the next reset.
    pub fn withdraw(&mut self, features: Features) {
        self.withdrawn = features;
    }

    pub fn reset(&mut self) {
        if self.withdrawn != Features::default() {
            self.offered = self.offered.without(self.withdrawn).consistent();
        }
        self.resetting = None;
        self.accepted = Features::default();
        self.status = Status::default();
        self.device_feature_select = 0;
        self.driver_feature_select = 0;
        self.config_vector = NO_VECTOR;
        self.queue_select = 0;
        self.renew_queues();
    }

    /// Sets DEVICE_NEEDS_RESET; returns the signal.
    pub fn need_reset(&mut self) -> Option<Signal> {
        if !self.status.has(Status::DRIVER_OK) {
            return None;
        }
        self.status.0 |= Status::NEEDS_RESET.0;
        Some(self.of_config())
    }

    /// Changes the link state; returns the signal.
    pub fn set_link(&mut self, up: bool) -> Option<Signal> {
        if self.link_up == up {
            return None;
        }
        self.link_up = up;
        self.generation = self.generation.wrapping_add(1);
        self.status.has(Status::DRIVER_OK).then(|| self.of_config())
    }

    /// Changes the link speed; returns the signal.
    pub fn set_speed(&mut self, megabits: u32) -> Option<Signal> {
        self.quirks.speed = Some(megabits);
        self.generation = self.generation.wrapping_add(1);
        self.status.has(Status::DRIVER_OK).then(|| self.of_config())
    }

    /// Asks the driver to announce its addresses; returns the signal.
    pub fn announce(&mut self) -> Option<Signal> {
        self.announce = true;
        self.generation = self.generation.wrapping_add(1);
        self.status.has(Status::DRIVER_OK).then(|| self.of_config())
    }

    /// Returns whether the driver is asked to announce its addresses.
    pub fn is_announcement_asked(&self) -> bool {
        self.announce
    }

    /// The driver has announced its addresses; `None` if it has not accepted the feature.
    pub fn acknowledge_announcement(&mut self) -> Option<()> {
        self.accepted.contains(Features::GUEST_ANNOUNCE).then(|| self.announce = false)
    }

    pub fn accepted(&self) -> Features {
        self.accepted
    }

    fn of_config(&self) -> Signal {
        Signal::new(self.config_vector, OF_CONFIG)
    }

    /// Returns how a queue interrupts.
    pub fn of_queue(&self, queue: usize) -> Signal {
        Signal::new(self.queues[queue].vector, OF_QUEUE)
    }

    /// Checks that `queue` may be notified now.
    pub fn may_notify(&self, queue: usize) -> Result<(), Misuse> {
        if !self.status.has(Status::DRIVER_OK) {
            return Err(Misuse::register(format!("queue {queue} was notified before DRIVER_OK")));
        }
        if !self.queues[queue].enabled {
            return Err(Misuse::register(format!("queue {queue} was notified, but is not enabled")));
        }
        Ok(())
    }

    /// Reads a register at time `now`.
    pub fn read(&mut self, now: u64, offset: u64, width: Width) -> Result<u64, Misuse> {
        use Width::{Byte, Dword, Word};
        match (offset, self.resetting) {
            (0x14, Some(end)) if end <= now => self.reset(),
            (0x15, _) if self.quirks.unsteady_config => self.generation = self.generation.wrapping_add(1),
            _ => {}
        }
        if let Some(queue) = self.queues.get_mut(usize::from(self.queue_select)) {
            queue.end_reset(now);
        }
        let queue = self.queues.get(usize::from(self.queue_select));
        let of_queue = |field: fn(&QueueRegisters) -> u64| queue.map_or(0, field);
        let half = |value: u64, at: u64| if offset == at { value & 0xffff_ffff } else { value >> 32 };
        let (natural, value) = match offset {
            0x00 => (Dword, self.device_feature_select.into()),
            0x04 => (Dword, self.offered.half(self.device_feature_select).into()),
            0x08 => (Dword, self.driver_feature_select.into()),
            0x0c => (Dword, self.accepted.half(self.driver_feature_select).into()),
            0x10 => (Word, self.config_vector.into()),
            0x12 => (Word, self.queues.len() as u64),
            0x14 => (Byte, if self.status_hidden { Byte.all_ones() } else { self.status.0.into() }),
            0x15 => (Byte, self.generation.into()),
            0x16 => (Word, self.queue_select.into()),
            0x18 => (Word, of_queue(|queue| queue.size.into())),
            0x1a => (Word, of_queue(|queue| queue.vector.into())),
            0x1c => (Word, of_queue(|queue| queue.enabled.into())),
            0x1e => (Word, queue.map_or(0, |_| self.queue_select.into())),
            0x20 | 0x24 => (Dword, half(of_queue(|queue| queue.descriptors), 0x20)),
            0x28 | 0x2c => (Dword, half(of_queue(|queue| queue.driver), 0x28)),
            0x30 | 0x34 => (Dword, half(of_queue(|queue| queue.device), 0x30)),
            0x3a if self.accepted.contains(Features::RING_RESET) => {
                (Word, of_queue(|queue| queue.resetting.is_some().into()))
            }
            _ => {
                return Err(Misuse::register(format!(
                    "a read of common configuration at {offset:#x}, where no field starts"
                )));
            }
        };
        natural_width("common configuration", offset, natural, width)?;
        Ok(value)
    }

    /// Writes a register at time `now`.
    pub fn write(
        &mut self,
        now: u64,
        offset: u64,
        width: Width,
        value: u64,
        bus_master: bool,
        memory: &DmaSpace,
    ) -> Result<Effect, Misuse> {
        use Width::{Byte, Dword, Word};
        let natural = match offset {
            0x00 | 0x08 | 0x0c | 0x20..=0x34 if offset.is_multiple_of(4) => Dword,
            0x10 | 0x16 | 0x18 | 0x1a | 0x1c => Word,
            0x3a if self.accepted.contains(Features::RING_RESET) => Word,
            0x14 => Byte,
            _ => {
                return Err(Misuse::register(format!(
                    "a write to common configuration at {offset:#x}, which is not writable"
                )));
            }
        };
        natural_width("common configuration", offset, natural, width)?;
        match offset {
            0x00 => self.device_feature_select = value as u32,
            0x08 => self.driver_feature_select = value as u32,
            0x0c => self.accept(value as u32)?,
            0x10 => self.config_vector = self.grant_vector(value as u16),
            0x14 => return self.write_status(Status(value as u8), now, bus_master),
            0x16 => self.queue_select = value as u16,
            0x3a => return self.reset_queue(now, value),
            _ => return self.write_queue(now, offset, value, memory),
        }
        Ok(Effect::None)
    }

    fn accept(&mut self, half: u32) -> Result<(), Misuse> {
        if !self.status.has(Status::DRIVER) || self.status.has(Status::FEATURES_OK) {
            return Err(Misuse::register(
                "driver_feature was written outside of feature negotiation (virtio 3.1.1)",
            ));
        }
        let shift = match self.driver_feature_select {
            0 => 0,
            1 => 32,
            _ if half == 0 => return Ok(()),
            select => {
                return Err(Misuse::register(format!(
                    "driver_feature was written with driver_feature_select {select}"
                )));
            }
        };
        self.accepted = Features(self.accepted.0 & !(0xffff_ffff << shift) | u64::from(half) << shift);
        let extra = self.accepted.without(self.offered);
        if extra != Features::default() {
            return Err(Misuse::register(format!(
                "the driver accepted features {:#x}, which were not offered",
                extra.0
            )));
        }
        Ok(())
    }

    fn grant_vector(&self, vector: u16) -> u16 {
        let refused = self.quirks.refuses_vectors_from.is_some_and(|first| vector >= first);
        if refused || vector >= self.vectors { NO_VECTOR } else { vector }
    }

    fn write_status(&mut self, new: Status, now: u64, bus_master: bool) -> Result<Effect, Misuse> {
        if new == Status::default() {
            let stuck = self.quirks.never_resets
                || self.quirks.never_resets_once_negotiated && self.status.has(Status::FEATURES_OK)
                || self.quirks.never_resets_once_started && self.status.has(Status::DRIVER_OK)
                || self.status_hidden;
            if !stuck {
                if self.quirks.reset_time.is_zero() || self.status == Status::default() {
                    self.reset();
                } else {
                    self.resetting = Some(now.saturating_add(nanos(self.quirks.reset_time)));
                }
                return Ok(Effect::Reset);
            }
            if self.status == Status::default() {
                self.status = Status::FAILED;
            }
            // It goes on with the queues that it has.
            return Ok(Effect::None);
        }
        let old = self.status;
        if old.0 & !new.0 & !Status::NEEDS_RESET.0 != 0 {
            return Err(Misuse::register(format!(
                "device_status was changed to {:#x} from {:#x}: a bit must not be cleared without a reset",
                new.0, old.0
            )));
        }
        let added = Status(new.0 & !old.0);
        let order = [
            (Status::DRIVER, Status::ACKNOWLEDGE),
            (Status::FEATURES_OK, Status::DRIVER),
            (Status::DRIVER_OK, Status::FEATURES_OK),
        ];
        for (bit, before) in order {
            if added.has(bit) && !new.has(before) {
                return Err(Misuse::register(format!(
                    "device_status {:#x} after {:#x} skips a step of device initialization (virtio 3.1.1)",
                    new.0, old.0
                )));
            }
        }
        if added.has(Status::FEATURES_OK) && added.has(Status::DRIVER_OK) {
            return Err(Misuse::register(
                "DRIVER_OK was set before FEATURES_OK was read back (virtio 3.1.1)",
            ));
        }
        if added.has(Status::DRIVER_OK) && self.quirks.link_down_before_start {
            // No vector is signalled before DRIVER_OK.
            let _ = self.set_link(false);
        }
        self.status = Status(new.0 | old.0 & Status::NEEDS_RESET.0);
        if added.has(Status::FEATURES_OK) && !self.works_with(self.accepted)? {
            self.status.0 &= !Status::FEATURES_OK.0;
        }
        if added.has(Status::FEATURES_OK) {
            self.renew_queues();
        }
        if added.has(Status::DRIVER_OK) {
            if !bus_master {
                return Err(Misuse::register(
                    "DRIVER_OK was set without bus mastering in the PCI command register",
                ));
            }
            if !self.accepted.contains(self.required) {
                return Err(Misuse::dma(
                    "DRIVER_OK was set without ACCESS_PLATFORM: the device takes the addresses of its rings for physical ones",
                ));
            }
            return Ok(Effect::Start);
        }
        Ok(Effect::None)
    }

    /// Returns whether the device works with the accepted features.
    fn works_with(&self, accepted: Features) -> Result<bool, Misuse> {
        for &(feature, needs) in Features::NEEDS {
            if accepted.contains(feature) && !accepted.contains(needs) {
                return Err(Misuse::register(format!(
                    "feature {:#x} accepted without {:#x}",
                    feature.0, needs.0
                )));
            }
        }
        // As QEMU's device: one behind an IOMMU does not work with physical addresses.
        let required = Features::VERSION_1 | self.required.and(self.offered);
        Ok(accepted.contains(required) && !self.quirks.rejects_features)
    }

    /// Gives a queue the registers that it has after a reset, which takes its time.
    fn reset_queue(&mut self, now: u64, value: u64) -> Result<Effect, Misuse> {
        let index = usize::from(self.queue_select);
        let running = self.status.has(Status::DRIVER_OK);
        let Some(queue) = self.queues.get_mut(index).filter(|queue| running && queue.enabled && value == 1)
        else {
            return Err(Misuse::register(format!(
                "{value} was written to queue_reset of queue {index}, which is not in use (virtio 4.1.4.3)"
            )));
        };
        let time = self.quirks.queue_reset_time;
        let resetting = (!time.is_zero()).then(|| now.saturating_add(nanos(time)));
        *queue = QueueRegisters { resetting, ..QueueRegisters::new(queue.max_size) };
        Ok(Effect::ResetQueue(index))
    }

    fn write_queue(
        &mut self,
        now: u64,
        offset: u64,
        value: u64,
        memory: &DmaSpace,
    ) -> Result<Effect, Misuse> {
        let index = usize::from(self.queue_select);
        let granted = self.grant_vector(value as u16);
        let takes_vector = self.quirks.lenient && offset == 0x1a;
        if !self.status.has(Status::FEATURES_OK) && !takes_vector {
            return Err(Misuse::register(format!("queue register {offset:#x} written before FEATURES_OK")));
        }
        let event_idx = self.accepted.contains(Features::EVENT_IDX);
        let packed = self.accepted.contains(Features::RING_PACKED);
        let Some(queue) = self.queues.get_mut(index).filter(|queue| queue.max_size > 0) else {
            return Err(Misuse::register(format!(
                "a register of queue {index}, which does not exist, written"
            )));
        };
        queue.end_reset(now);
        if queue.resetting.is_some() {
            return Err(Misuse::register(format!(
                "register {offset:#x} of queue {index} written, whose reset has not ended (virtio 2.6.1)"
            )));
        }
        if queue.enabled && !takes_vector {
            return Err(Misuse::register(format!("register {offset:#x} of enabled queue {index} written")));
        }
        let put = |address: &mut u64, at: u64| {
            let shift = if offset == at { 0 } else { 32 };
            *address = *address & !(0xffff_ffff << shift) | value << shift;
        };
        match offset {
            0x18 => {
                let size = value as u16;
                let allowed = size.is_power_of_two() || packed && size > 0;
                if !allowed || size > queue.max_size {
                    return Err(Misuse::register(format!(
                        "size {size} for queue {index} of {}",
                        queue.max_size
                    )));
                }
                queue.size = size;
            }
            0x1a => queue.vector = granted,
            0x1c if value != 1 => {
                return Err(Misuse::register(format!(
                    "{value} was written to queue_enable; only 1 is allowed"
                )));
            }
            0x1c => {
                let ring = RingAddresses {
                    size: queue.size,
                    descriptors: queue.descriptors,
                    driver: queue.driver,
                    device: queue.device,
                    event_idx,
                    packed,
                };
                ring.check(index, memory)?;
                queue.enabled = true;
                return Ok(Effect::Enable(index, ring));
            }
            0x20 | 0x24 => put(&mut queue.descriptors, 0x20),
            0x28 | 0x2c => put(&mut queue.driver, 0x28),
            _ => put(&mut queue.device, 0x30),
        }
        Ok(Effect::None)
    }

    /// Reads the device configuration. (virtio §14)
    pub fn read_device(&self, offset: u64, width: Width, mac: [u8; 6]) -> Result<u64, Misuse> {
        // One of the features is needed.
        let gate = |features: Features, natural: Width, value: u64| {
            natural_width("device configuration", offset, natural, width)?;
            if self.status.has(Status::FEATURES_OK) && !self.accepted.intersects(features) {
                let text = format!("device configuration {offset:#x} read without feature {:#x}", features.0);
                return Err(Misuse::register(text));
            }
            Ok(if self.offered.intersects(features) { value } else { width.all_ones() })
        };
        let limits = self.rss_limits();
        match offset {
            0..6 => gate(Features::MAC, Width::Byte, mac[offset as usize].into()),
            6 => {
                let announce = self.announce && self.accepted.contains(Features::GUEST_ANNOUNCE);
                let bit = |is_set: bool, bit: u16| u64::from(if is_set { bit } else { 0 });
                gate(Features::STATUS, Width::Word, bit(self.link_up, LINK_UP) | bit(announce, ANNOUNCE))
            }
            8 => gate(
                Features::MQ | Features::RSS,
                Width::Word,
                self.quirks.reported_pairs.unwrap_or(self.pairs).into(),
            ),
            10 => gate(Features::MTU, Width::Word, self.mtu.into()),
            12 => gate(Features::SPEED_DUPLEX, Width::Dword, self.quirks.speed.unwrap_or(SPEED).into()),
            16 => gate(Features::SPEED_DUPLEX, Width::Byte, self.quirks.duplex.unwrap_or(FULL_DUPLEX).into()),
            17 => gate(Features::RSS | Features::HASH_REPORT, Width::Byte, limits.key_len.into()),
            18 => gate(Features::RSS, Width::Word, limits.entries.into()),
            20 => gate(Features::RSS | Features::HASH_REPORT, Width::Dword, limits.types.into()),
            _ => Err(Misuse::register(format!("a read of device configuration {offset:#x}"))),
        }
    }
}

fn natural_width(what: &str, offset: u64, natural: Width, width: Width) -> Result<(), Misuse> {
    if natural == width {
        return Ok(());
    }
    let (bits, natural) = (8 * width.bytes(), 8 * natural.bytes());
    Err(Misuse::register(format!("{bits}-bit access to {what} {offset:#x}, which has {natural} bits")))
}
