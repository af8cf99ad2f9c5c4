// SPDX-License-Identifier: MIT OR Apache-2.0

//! Bring-up of a device (reset, status, features, vectors, queues) and the network device's configuration. (virtio §3, §14, §15)
//!
//! [`Control`] is the only user of these registers, those of the common structure by way of [`CommonConfig`] and [`SelectedQueue`]. Runs at
//! PASSIVE_LEVEL except where a method says otherwise.

use core::time::Duration;

use bitflags::bitflags;

use crate::common_config::{CommonConfig, SelectedQueue};
use crate::error::{Error, Structure};
use crate::features::Features;
use crate::hal::{Hal, Registers};
use crate::hash::HashTypes;
use crate::pair_queue::PairQueue;
use crate::pci::{Layout, Region};
use crate::register_map::device;
use crate::ring::QueueAddresses;
use crate::state::{Event, State};
use crate::vectors::Vectors;
use crate::wait::Wait;

/// Longest time that one call waits for a reset.
pub const RESET_LIMIT: Duration = Duration::from_secs(1);
/// How long a further call waits for the end of a queue's reset, or up to two clock ticks of the system. A second is enough for 32 queues.
const FURTHER: Duration = Duration::from_millis(20);
/// Largest size of a queue. (virtio §5, §6)
const MAX_QUEUE_SIZE: u16 = 1 << 15;
/// A device with a smaller MTU is used as if it reported none, in bytes: each IPv4 host accepts datagrams of this length. (RFC 791)
const LEAST_MTU: u16 = 576;
/// Limit on repetitions of a configuration read while the device keeps changing it.
const CONFIG_READS: usize = 8;

bitflags! {
    /// `device_status`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Status: u8 {
        const ACKNOWLEDGE = 1;
        const DRIVER = 2;
        const DRIVER_OK = 4;
        const FEATURES_OK = 8;
        const DEVICE_NEEDS_RESET = 0x40;
        const FAILED = 0x80;
        const _ = !0;
    }
}

/// The network device's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetConfig {
    /// Permanent MAC address, if the device has one.
    pub mac: Option<[u8; 6]>,
    /// MTU in bytes (largest IP packet), if the device reports it.
    pub mtu: Option<u16>,
    /// Whether the link is up; `true` for a device without the STATUS feature.
    pub link_up: bool,
    /// Link speed in Mbit/s, if the device reports it.
    pub speed: Option<u32>,
    pub duplex: Duplex,
    /// `None` without RSS and HASH_REPORT.
    pub rss: Option<RssLimits>,
}

/// Duplex mode of the link. A device that does not report it is one of a virtual link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Duplex {
    Half,
    Full,
    Unknown,
}

impl Duplex {
    /// Returns the mode of a value of the field `duplex`.
    #[must_use]
    pub const fn of(value: u8) -> Self {
        match value {
            0 => Self::Half,
            1 => Self::Full,
            _ => Self::Unknown,
        }
    }
}

/// How far the reset of a queue is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueReset {
    /// The device no longer uses the queue.
    Ended,
    /// The device has not completed it. `is_new`: it has begun with this call.
    Lasts { is_new: bool },
}

/// State of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkState {
    pub is_up: bool,
    /// In Mbit/s, if the device reports it.
    pub speed: Option<u32>,
    pub duplex: Duplex,
}

/// Limits of the device's receive side scaling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RssLimits {
    /// Longest key, in bytes.
    pub key_len: u8,
    /// Entries of the largest table; 0 if the device reports hashes, but does not steer by them.
    pub entries: u16,
    /// Hash types, without those that this driver does not support.
    pub types: HashTypes,
}

/// Features for which the configuration states RSS limits.
const SCALING: Features = Features::RSS.union(Features::HASH_REPORT);

/// Features with either of which a device may have several queue pairs.
const PAIRS: Features = Features::MQ.union(Features::RSS);

/// Largest number of pairs whose control queue has an index of 16 bits. (virtio §4)
const MAX_PAIRS: u16 = 0x7FFF;

/// Returns the smallest length in bytes of the configuration of a device with these features. The speed may be missing, because there is a
/// default for it. (virtio §14)
fn config_len(features: Features) -> u64 {
    let ends = [(Features::STATUS, device::STATUS), (PAIRS, device::MAX_PAIRS), (Features::MTU, device::MTU)];
    let used = ends.into_iter().filter(|&(feature, _)| features.intersects(feature));
    used.map(|(_, field)| field.wrapping_add(2)).max().unwrap_or(0)
}

/// The place of the notification register of one queue.
#[derive(Debug, Clone, Copy)]
pub struct NotifyRegister {
    offset: u64,
    queue: u16,
    bar: u8,
}

impl NotifyRegister {
    /// Notifies the device, whose registers these are, of new buffers in the queue. Any IRQL.
    pub fn write(self, registers: &impl Registers) {
        registers.write16(self.bar, self.offset, self.queue);
    }
}

/// The notification register of one queue.
#[derive(Debug, Clone)]
pub(crate) struct Doorbell<R> {
    registers: R,
    pub(crate) place: NotifyRegister,
}

impl<R: Registers> Doorbell<R> {
    /// Notifies the device of new buffers in the queue. Any IRQL.
    pub(crate) fn ring(&self) {
        self.place.write(&self.registers);
    }
}

/// A device's registers and the state of its bring-up.
///
/// The device may access memory from [`negotiate`](Control::negotiate), after its reset has ended, until a reset that does not end or
/// the end of this value.
///
/// Dropping it between ACKNOWLEDGE and reset also starts a reset without waiting for its end. The owner of queues that the
/// device uses calls [`reset`](Control::reset), which waits, first, and drops the queues after this.
#[derive(Debug)]
pub struct Control<H: Hal, R: Registers> {
    hal: H,
    registers: R,
    layout: Layout,
    state: State,
    /// The queues whose resets have not ended, by index from bit 0 on.
    resetting: u64,
    features: Features,
    /// Not accepted even if the device offers them.
    refused: Features,
}

impl<H: Hal, R: Registers> Drop for Control<H, R> {
    //= virtio §3
    fn drop(&mut self) {
        if matches!(self.state, State::Acknowledged | State::Driver | State::Negotiated | State::Live) {
            self.reset_without_waiting();
        }
        // The reset may not have ended, and memory of queues is freed next.
        self.hal.allow_dma(false);
    }
}

impl<H: Hal, R: Registers> Control<H, R> {
    /// Creates the control of a device just found, without accessing the device.
    pub fn new(hal: H, registers: R, layout: Layout) -> Self {
        let features = Features::empty();
        Self { hal, registers, layout, state: State::Found, resetting: 0, features, refused: features }
    }

    /// Starts a reset without waiting for its end, for shutdown. Any IRQL.
    pub fn reset_without_waiting(&self) {
        self.common().write_status(0);
    }

    /// Sets features that the driver does not use. They are not accepted from the next negotiation on.
    pub fn refuse(&mut self, features: Features) {
        self.refused = features;
    }

    /// Steps 1 to 4 of bring-up: reset, ACKNOWLEDGE, DRIVER, features, FEATURES_OK. After the reset, the device may access memory.
    ///
    /// # Errors
    /// [`Error::Removed`], [`Error::ResetTimeout`], [`Error::NoVersion1`], [`Error::FeaturesRejected`];
    /// [`Error::MissingStructure`] if the device's configuration is too short for its features. FAILED is set then.
    pub fn negotiate(&mut self) -> Result<Features, Error> {
        self.negotiate_with(Features::negotiate)
    }

    /// Negotiates with a device that was in use before: it must offer at least what was accepted then, which
    /// is accepted again.
    ///
    /// # Errors
    /// [`Error::Changed`], and those of [`negotiate`](Self::negotiate).
    //= virtio §16
    pub fn renegotiate(&mut self) -> Result<(), Error> {
        let before = self.features;
        let as_before =
            |offered: Features| if offered.contains(before) { Ok(before) } else { Err(Error::Changed) };
        self.negotiate_with(as_before).map(drop)
    }

    /// `choose` is given the features that the device offers and the driver has a use for, and returns those to accept.
    fn negotiate_with(
        &mut self,
        choose: impl FnOnce(Features) -> Result<Features, Error>,
    ) -> Result<Features, Error> {
        self.reset()?;
        self.hal.allow_dma(true);
        self.step(Event::Acknowledge, Status::ACKNOWLEDGE)?;
        self.step(Event::Drive, Status::DRIVER)?;
        let mut refused = self.refused;
        if !self.common().has_queue_reset() {
            refused |= Features::RING_RESET;
        }
        if u64::from(self.layout.device.len) < device::HASH_TYPES.wrapping_add(4) {
            refused |= SCALING;
        }
        let offered = self.common().offered_features().difference(refused);
        let offered =
            if self.has_unusable_mtu(offered) { offered.difference(Features::MTU) } else { offered };
        let accepted = choose(offered).inspect_err(|_| self.fail())?;
        if u64::from(self.layout.device.len) < config_len(accepted) {
            self.fail();
            return Err(Error::MissingStructure(Structure::Device));
        }
        self.common().write_features(accepted);
        self.step(Event::Accept, Status::FEATURES_OK)?;
        let status = self.status()?;
        if !status.contains(Status::FEATURES_OK) {
            self.fail();
            return Err(Error::FeaturesRejected);
        }
        self.features = accepted;
        Ok(accepted)
    }

    /// Returns the accepted features.
    pub fn features(&self) -> Features {
        self.features
    }

    /// Returns the state of bring-up.
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the locations of the device's structures.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Reads `device_status`. Any IRQL.
    ///
    /// # Errors
    /// [`Error::Removed`] if the register reads all ones.
    pub fn status(&self) -> Result<Status, Error> {
        self.common().status().map(Status::from_bits_retain).ok_or(Error::Removed)
    }

    /// Checks `device_status` after a configuration interrupt: fails if the device no longer works. Any IRQL.
    ///
    /// # Errors
    /// [`Error::Removed`] or [`Error::NeedsReset`].
    //= virtio §16
    pub fn check(&self) -> Result<(), Error> {
        if self.status()?.contains(Status::DEVICE_NEEDS_RESET) {
            return Err(Error::NeedsReset);
        }
        Ok(())
    }

    /// Reads the network configuration until two reads of the generation agree; fields without their feature are `None`.
    ///
    /// # Errors
    /// [`Error::UnsteadyConfig`] if they did not agree in [`CONFIG_READS`] reads.
    //= virtio §14
    pub fn net_config(&self) -> Result<NetConfig, Error> {
        self.read_steady(|| self.read_net_config())
    }

    /// Reads the state of the link, which may change while the device runs.
    ///
    /// # Errors
    /// As [`Control::net_config`].
    //= virtio §14
    pub fn link(&self) -> Result<LinkState, Error> {
        self.read_steady(|| LinkState { is_up: self.link_up(), speed: self.speed(), duplex: self.duplex() })
    }

    /// Reads a part of the configuration until two reads of the generation agree.
    fn read_steady<T>(&self, read: impl Fn() -> T) -> Result<T, Error> {
        for _ in 0..CONFIG_READS {
            let before = self.common().generation();
            let reading = read();
            if self.common().generation() == before {
                return Ok(reading);
            }
        }
        Err(Error::UnsteadyConfig)
    }

    /// Returns whether the device asks the driver to announce its addresses. It asks until [`acknowledge_announcement`]. Any IRQL.
    ///
    /// [`acknowledge_announcement`]: crate::ControlQueue::acknowledge_announcement
    pub fn asks_for_announcement(&self) -> bool {
        let Region { bar, offset, .. } = self.layout.device;
        self.features.contains(Features::GUEST_ANNOUNCE)
            && self.registers.read16(bar, offset.wrapping_add(device::STATUS)) & device::ANNOUNCE != 0
    }

    /// Returns the number of queue pairs that the device has: 1 without MQ and RSS, or if it reports a number that no device can have.
    pub fn max_pairs(&self) -> u16 {
        let Region { bar, offset, .. } = self.layout.device;
        if !self.features.intersects(PAIRS) {
            return 1;
        }
        let pairs = self.registers.read16(bar, offset.wrapping_add(device::MAX_PAIRS));
        if (1..=MAX_PAIRS).contains(&pairs) { pairs } else { 1 }
    }

    /// Returns the index of the control queue: it follows the queues of all the device's pairs.
    //= virtio §4
    pub(crate) fn control_queue(&self) -> u16 {
        PairQueue::Receive(self.max_pairs()).index()
    }

    /// Assigns vectors to at most `pairs` queue pairs: the first assignment for at most `messages` messages that the device
    /// accepts; no vectors without messages.
    ///
    /// # Errors
    /// [`Error::VectorRefused`] if the device accepts none.
    //= virtio §15
    pub(crate) fn assign_vectors(&mut self, messages: u32, pairs: u16) -> Result<Vectors, Error> {
        let mut plan = Some(Vectors::plan(messages, pairs));
        while let Some(vectors) = plan {
            if self.assign(vectors) {
                return Ok(vectors);
            }
            plan = vectors.fewer();
        }
        Err(Error::VectorRefused)
    }

    fn assign(&mut self, vectors: Vectors) -> bool {
        self.common().set_config_vector(vectors.of_config())
            && (0..vectors.pairs).all(|pair| {
                let [receive, transmit] = vectors.of_pair(pair);
                self.select(PairQueue::Receive(pair).index()).set_vector(receive)
                    && self.select(PairQueue::Transmit(pair).index()).set_vector(transmit)
            })
    }

    /// Assigns the vector of configuration changes again after a reset.
    ///
    /// # Errors
    /// [`Error::Changed`] if the device refuses it.
    pub fn reassign_config_vector(&mut self, vector: u16) -> Result<(), Error> {
        if self.common().set_config_vector(vector) { Ok(()) } else { Err(Error::Changed) }
    }

    /// Checks that queue `index` still supports `size` buffers, and assigns its vector, if it has one.
    ///
    /// # Errors
    /// [`Error::Changed`] if the device's queue is smaller, or the device refuses the vector; [`Error::NoQueue`],
    /// [`Error::BadQueueSize`].
    pub(crate) fn check_queue(&mut self, index: u16, size: u16, vector: Option<u16>) -> Result<(), Error> {
        let fits = self.queue_size(index)? >= size;
        let is_assigned = vector.is_none_or(|vector| self.select(index).set_vector(vector));
        if fits && is_assigned { Ok(()) } else { Err(Error::Changed) }
    }

    /// Reads the largest size of queue `index`: at most 32768; a power of two unless rings are packed.
    ///
    /// # Errors
    /// [`Error::NoQueue`] or [`Error::BadQueueSize`].
    pub(crate) fn queue_size(&mut self, index: u16) -> Result<u16, Error> {
        match self.select(index).size() {
            0 => Err(Error::NoQueue(index)),
            size if size.is_power_of_two() => Ok(size),
            size if size < MAX_QUEUE_SIZE && self.features.contains(Features::RING_PACKED) => Ok(size),
            size => Err(Error::BadQueueSize(size)),
        }
    }

    /// Programs and enables queue `index`.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] before features are negotiated, or after the start without RING_RESET; [`Error::NotifyOutOfRange`].
    pub(crate) fn enable_queue(
        &mut self,
        index: u16,
        size: u16,
        addresses: &QueueAddresses,
    ) -> Result<Doorbell<R>, Error> {
        let allows = match self.state {
            State::Negotiated => true,
            State::Live => self.features.contains(Features::RING_RESET),
            _ => false,
        };
        if !allows {
            return Err(Error::OutOfOrder);
        }
        // Without the feature the device takes every address for a physical one.
        if addresses.are_remapped && !self.features.contains(Features::ACCESS_PLATFORM) {
            return Err(Error::BypassesIommu);
        }
        let notify_offset = self.select(index).notify_offset();
        let doorbell = self.doorbell(index, notify_offset)?;
        self.select(index).enable(size, addresses);
        Ok(doorbell)
    }

    /// Resets a queue while the device runs, and waits at most a second for the end of the reset. Afterwards the
    /// device uses none of the queue's memory, and the queue can be programmed again. The queue must be stopped already. After
    /// [`QueueReset::Lasts`], a further call waits on, for 20 ms.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] without RING_RESET, or if the device does not run; [`Error::Removed`].
    //= virtio §16
    pub fn reset_queue(&mut self, queue: PairQueue) -> Result<QueueReset, Error> {
        if self.state != State::Live || !self.features.contains(Features::RING_RESET) {
            return Err(Error::OutOfOrder);
        }
        let bit = 1_u64.checked_shl(queue.index().into()).ok_or(Error::NoQueue(queue.index()))?;
        let is_new = self.resetting & bit == 0;
        if is_new {
            self.resetting |= bit;
            self.select(queue.index()).reset();
        }
        let hal = self.hal.clone();
        let mut wait = Wait::new(&hal, if is_new { RESET_LIMIT } else { FURTHER });
        while self.select(queue.index()).is_resetting() {
            self.status()?;
            if !wait.go_on() {
                return Ok(QueueReset::Lasts { is_new });
            }
        }
        self.resetting &= !bit;
        Ok(QueueReset::Ended)
    }

    /// Sets DRIVER_OK: from now on the device uses the queues, and may interrupt. [`ReceiveQueue::start`] of each receive queue
    /// follows.
    ///
    /// [`ReceiveQueue::start`]: crate::ReceiveQueue::start
    ///
    /// # Errors
    /// [`Error::OutOfOrder`], [`Error::Removed`].
    pub fn start(&mut self) -> Result<(), Error> {
        self.resetting = 0;
        self.step(Event::Start, Status::DRIVER_OK)
    }

    /// Resets the device and waits for the end of the reset, at most a second and one delay of the [`Hal`]. Afterwards the device uses
    /// no memory: on an error because it may not. After [`Error::ResetTimeout`], a further call waits on.
    ///
    /// # Errors
    /// [`Error::Removed`], [`Error::ResetTimeout`].
    //= virtio §16
    pub fn reset(&mut self) -> Result<(), Error> {
        self.try_reset().inspect_err(|_| self.hal.allow_dma(false))
    }

    fn try_reset(&mut self) -> Result<(), Error> {
        if self.state == State::Removed {
            return Err(Error::Removed);
        }
        if self.state != State::Unresponsive {
            self.reset_without_waiting();
        }
        let mut wait = Wait::new(&self.hal, RESET_LIMIT);
        loop {
            match self.status() {
                Ok(status) if status.is_empty() => {
                    self.state = self.state.on(Event::Reset)?;
                    return Ok(());
                }
                Ok(_) if wait.go_on() => {}
                Ok(_) => {
                    self.state = self.state.on(Event::ResetTimeout)?;
                    return Err(Error::ResetTimeout);
                }
                Err(error) => {
                    self.state = self.state.on(Event::Remove)?;
                    return Err(error);
                }
            }
        }
    }

    /// Whether the device needs no further reset: it was reset, or does not respond to a reset.
    pub fn is_finished(&self) -> bool {
        matches!(self.state, State::Reset | State::Unresponsive)
    }

    /// Sets FAILED.
    pub fn fail(&mut self) {
        if let Ok(next) = self.state.on(Event::Fail) {
            self.state = next;
            if let Ok(status) = self.status() {
                self.common().write_status((status | Status::FAILED).bits());
            }
        }
    }

    /// Sets `bits` in the device's status in addition to those already set, and applies `event` to the state.
    fn step(&mut self, event: Event, bits: Status) -> Result<(), Error> {
        let next = self.state.on(event)?;
        let status = self.status().inspect_err(|_| self.state = State::Removed)?;
        self.common().write_status((status | bits).bits());
        self.state = next;
        Ok(())
    }

    /// Whether the device reports an MTU below [`LEAST_MTU`], which a driver that accepts the feature must not exceed.
    //= virtio §10
    fn has_unusable_mtu(&self, offered: Features) -> bool {
        let Region { bar, offset, len } = self.layout.device;
        offered.contains(Features::MTU)
            && u64::from(len) >= config_len(Features::MTU)
            && self.registers.read16(bar, offset.wrapping_add(device::MTU)) < LEAST_MTU
    }

    fn read_net_config(&self) -> NetConfig {
        let Region { bar, offset, .. } = self.layout.device;
        let at = |field: u64| offset.wrapping_add(field);
        NetConfig {
            mac: self.features.contains(Features::MAC).then(|| {
                let mut mac = [0; 6];
                for (byte, field) in mac.iter_mut().zip(device::MAC..) {
                    *byte = self.registers.read8(bar, at(field));
                }
                mac
            }),
            mtu: self.features.contains(Features::MTU).then(|| self.registers.read16(bar, at(device::MTU))),
            link_up: self.link_up(),
            speed: self.speed(),
            duplex: self.duplex(),
            rss: self.features.intersects(SCALING).then(|| RssLimits {
                key_len: self.registers.read8(bar, at(device::RSS_KEY_LEN)),
                entries: if self.features.contains(Features::RSS) {
                    self.registers.read16(bar, at(device::RSS_ENTRIES))
                } else {
                    0
                },
                types: HashTypes::from_bits_truncate(self.registers.read32(bar, at(device::HASH_TYPES))),
            }),
        }
    }

    fn link_up(&self) -> bool {
        let Region { bar, offset, .. } = self.layout.device;
        !self.features.contains(Features::STATUS)
            || self.registers.read16(bar, offset.wrapping_add(device::STATUS)) & device::LINK_UP != 0
    }

    fn speed(&self) -> Option<u32> {
        let Region { bar, offset, len } = self.layout.device;
        if !self.features.contains(Features::SPEED_DUPLEX) || u64::from(len) < device::SPEED.wrapping_add(4) {
            return None;
        }
        let mbits = self.registers.read32(bar, offset.wrapping_add(device::SPEED));
        (1..=device::MAX_SPEED).contains(&mbits).then_some(mbits)
    }

    fn duplex(&self) -> Duplex {
        let Region { bar, offset, len } = self.layout.device;
        if !self.features.contains(Features::SPEED_DUPLEX) || u64::from(len) <= device::DUPLEX {
            return Duplex::Full;
        }
        Duplex::of(self.registers.read8(bar, offset.wrapping_add(device::DUPLEX)))
    }

    fn common(&self) -> CommonConfig<'_, R> {
        CommonConfig::new(&self.registers, self.layout.common)
    }

    fn select(&mut self, queue: u16) -> SelectedQueue<'_, R> {
        SelectedQueue::new(&mut self.registers, self.layout.common, queue)
    }

    fn doorbell(&self, queue: u16, notify_off: u16) -> Result<Doorbell<R>, Error> {
        let Region { bar, offset, len } = self.layout.notify;
        let inside = u64::from(notify_off)
            .checked_mul(u64::from(self.layout.notify_multiplier))
            .filter(|inside| inside.checked_add(2).is_some_and(|end| end <= u64::from(len)))
            .ok_or(Error::NotifyOutOfRange(queue))?;
        let offset = offset.checked_add(inside).ok_or(Error::MissingStructure(Structure::Notify))?;
        Ok(Doorbell { registers: self.registers.clone(), place: NotifyRegister { offset, queue, bar } })
    }
}
