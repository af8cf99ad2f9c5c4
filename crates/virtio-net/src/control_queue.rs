// SPDX-License-Identifier: MIT OR Apache-2.0

//! The control queue: executes one command at a time, and waits for its answer, as long as the device needs. (virtio §12)
#![allow(unsafe_code, reason = "memory that the device reads and writes")]

use core::time::Duration;

use crate::error::Error;
use crate::features::Features;
use crate::hal::{Dma, Hal, Registers};
use crate::hash::{HASH_KEY_LEN, HashTypes};
use crate::pair_queue::PairQueue;
use crate::queue::Queue;
use crate::ring::{Direction, Table};
use crate::transport::{Control, RssLimits};
use crate::wait::Wait;

/// Longest command with its data, in bytes.
const COMMAND_LEN: usize = 512;
/// The parts of a command: its bytes, then the answer. Without an indirect table they are a chain of the buffers with these numbers.
const COMMAND: u16 = 0;
const ANSWER: u16 = 1;
const PARTS: usize = 2;
/// Size of the ring, or the device's queue size if that is smaller. It must hold one command.
const SIZE: u16 = 8;
/// Value of the answer before the device writes it. The specification defines no such answer.
const NO_ANSWER: u8 = 0xFF;
const ANSWER_OK: u8 = 0;
/// Number of VLAN IDs that frames can have, from 0; ID 4095 is reserved. (IEEE 802.1Q §9.6)
const VLAN_IDS: u16 = 4095;
/// Longest time in nanoseconds for the commands that change the VLANs, up to 4095. Other users wait for the control queue meanwhile.
const VLANS_LIMIT: u64 = 1_000_000_000;

/// Offloads of received frames. After a reset, the negotiated ones are in force.
const GUEST_OFFLOADS: Features = Features::GUEST_CSUM.union(Features::COALESCING);

/// Largest size of the driver's round-robin table, and its key, for a device with RSS but without MQ. (WDK: Verifying the RSS Hash
/// Calculation)
const DEFAULT_ENTRIES: usize = 128;
const DEFAULT_KEY: [u8; HASH_KEY_LEN] = [
    0x6D, 0x5A, 0x56, 0xDA, 0x25, 0x5B, 0x0E, 0xC2, 0x41, 0x67, 0x25, 0x3D, 0x43, 0xA3, 0x8F, 0xB0, 0xD0,
    0xCA, 0x2B, 0xCB, 0xAE, 0x7B, 0x30, 0xB4, 0x77, 0xCB, 0x2D, 0xA3, 0x80, 0x30, 0xF2, 0x0C, 0x6A, 0x42,
    0xB7, 0x3B, 0xBE, 0xAC, 0x01, 0xFA,
];

/// Classes and commands.
mod command {
    pub(super) const PROMISCUOUS: [u8; 2] = [0, 0];
    pub(super) const ALL_MULTICAST: [u8; 2] = [0, 1];
    pub(super) const SET_MAC_TABLE: [u8; 2] = [1, 0];
    pub(super) const SET_MAC: [u8; 2] = [1, 1];
    pub(super) const ADD_VLAN: [u8; 2] = [2, 0];
    pub(super) const DELETE_VLAN: [u8; 2] = [2, 1];
    pub(super) const ACKNOWLEDGE_ANNOUNCEMENT: [u8; 2] = [3, 0];
    pub(super) const SET_PAIRS: [u8; 2] = [4, 0];
    pub(super) const SET_STEERING: [u8; 2] = [4, 1];
    pub(super) const SET_HASHING: [u8; 2] = [4, 2];
    pub(super) const SET_GUEST_OFFLOADS: [u8; 2] = [5, 0];
    pub(super) const COALESCE_RECEIVE_INTERRUPTS: [u8; 2] = [6, 1];
    pub(super) const COALESCE_INTERRUPTS_OF: [u8; 2] = [6, 2];
}

/// Selects the frames that the device delivers. It always delivers broadcasts and frames to the station's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveMode<'a> {
    /// Every frame.
    pub promiscuous: bool,
    /// Every multicast frame.
    pub all_multicast: bool,
    /// The address in use, if it is not the device's permanent one.
    pub station: Option<[u8; 6]>,
    /// Multicast addresses, at most 64.
    pub multicast: &'a [[u8; 6]],
    /// The VLAN whose frames are delivered, 0 for frames without a VLAN; `None` for all VLANs. Untagged frames are
    /// always delivered.
    pub vlan: Option<u16>,
}

/// The hashes of received frames that the device computes.
#[derive(Debug, Clone, Copy)]
pub struct Hashing<'a> {
    /// A subset of the types in the device's [`RssLimits`](crate::RssLimits).
    pub types: HashTypes,
    pub key: &'a [u8; HASH_KEY_LEN],
}

/// The queue pairs to which the device steers frames by their hashes.
#[derive(Debug, Clone, Copy)]
pub struct Steering<'a> {
    /// The indirection table: a pair for each value of the hash's low bits, little-endian. Its length is a power of
    /// two, within the device's [`RssLimits`](crate::RssLimits). All pairs were programmed.
    pub table: &'a [[u8; 2]],
    /// The pair for frames without a hash.
    pub unclassified: u16,
    /// Number of transmit queues in use.
    pub pairs: u16,
}

/// When the device interrupts for used buffers; all zero, as after a reset, for each at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InterruptCoalescing {
    /// Number of buffers since the last interrupt.
    pub max_packets: u32,
    /// Time since the first of these, in microseconds.
    pub max_usecs: u32,
}

impl InterruptCoalescing {
    fn bytes(self) -> [u8; 8] {
        (u64::from(self.max_usecs) << 32 | u64::from(self.max_packets)).to_le_bytes()
    }
}

/// The VLANs whose frames a device with a VLAN filter delivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vlans {
    /// No VLAN, as after a reset.
    None,
    One(u16),
    All,
}

impl Vlans {
    const fn contains(self, id: u16) -> bool {
        match self {
            Self::None => false,
            Self::One(one) => one == id,
            Self::All => true,
        }
    }
}

/// Sends commands to the device. One user at a time, at PASSIVE_LEVEL.
#[derive(Debug)]
pub struct ControlQueue<H: Hal, R> {
    hal: H,
    queue: Queue<H, R>,
    /// [`COMMAND_LEN`] bytes of the command, and the answer.
    memory: Dma<H>,
    /// The indirect table of buffer [`COMMAND`], if the device has INDIRECT_DESC.
    table: Option<Table<H, PARTS>>,
    features: Features,
    /// The device filters. After a reset it delivers every frame.
    filtering: bool,
    /// The VLAN filter that the device has.
    vlans: Vlans,
    /// Receive offloads that are switched on in the device.
    guest_offloads: Features,
    /// Pairs for whose receive queues the device coalesces interrupts: a bit for each.
    coalesced: u32,
}

impl<H: Hal, R: Registers> ControlQueue<H, R> {
    /// Allocates queue `index` with at most `size` descriptors for a device with these features. Not inlined: together with the caller's,
    /// its stack frame is too large for a kernel stack.
    #[inline(never)]
    pub(crate) fn new(hal: &H, index: u16, size: u16, features: Features) -> Result<Self, Error> {
        let has_table = features.contains(Features::INDIRECT_DESC);
        // A table is no longer than the queue, either. (virtio §5, §6)
        if usize::from(size) < PARTS {
            return Err(Error::BadQueueSize(size));
        }
        let queue = Queue::new(hal, index, size.min(SIZE), features)?;
        let table = if has_table { Some(queue.ring.table(hal)?) } else { None };
        let memory = Dma::new(hal, COMMAND_LEN.saturating_add(1))?;
        let mut this = Self {
            hal: hal.clone(),
            queue,
            memory,
            table,
            features,
            filtering: false,
            vlans: Vlans::None,
            guest_offloads: features & GUEST_OFFLOADS,
            coalesced: 0,
        };
        this.describe();
        Ok(this)
    }

    fn describe(&mut self) {
        let Self { queue: Queue { ring, .. }, memory, table, .. } = self;
        let [command, answer] = [0, COMMAND_LEN].map(|offset| memory.device_address(offset));
        if let Some(table) = table {
            table.describe(COMMAND, command, 0, false);
            table.describe(ANSWER, answer, 1, true);
            ring.describe_table(COMMAND, table);
        } else {
            ring.describe(COMMAND, command, 0, Direction::ToDevice);
            ring.describe(ANSWER, answer, 1, Direction::FromDevice);
            ring.link(COMMAND);
        }
        ring.suppress_interrupts();
    }

    /// Sets the length of the next command.
    fn set_command_len(&mut self, len: u32) {
        match &self.table {
            Some(table) => table.describe(COMMAND, self.memory.device_address(0), len, false),
            None => self.queue.ring.set_len(COMMAND, len),
        }
    }

    /// Programs the queue into the device. The queue has no vector, because its user polls.
    pub(crate) fn enable(&mut self, control: &mut Control<H, R>) -> Result<(), Error> {
        self.queue.enable(control)
    }

    /// Programs the queue again into a device that was reset and renegotiated. Unanswered commands are dropped. IRQL <= DISPATCH_LEVEL.
    ///
    /// # Errors
    /// [`Error::Changed`] if the device's queue is smaller; [`Error::NoQueue`], [`Error::BadQueueSize`],
    /// [`Error::NotifyOutOfRange`], [`Error::OutOfOrder`]. The queue is stopped then.
    pub fn reprogram(&mut self, control: &mut Control<H, R>) -> Result<(), Error> {
        self.stop();
        if control.control_queue() != self.queue.index() {
            return Err(Error::Changed);
        }
        self.queue.clear(control, None)?;
        self.describe();
        self.filtering = false;
        self.vlans = Vlans::None;
        self.guest_offloads = self.features & GUEST_OFFLOADS;
        self.coalesced = 0;
        self.enable(control)
    }

    /// Disconnects the queue from the device: commands fail from now on. IRQL <= DISPATCH_LEVEL.
    pub fn stop(&mut self) {
        self.queue.stop();
    }

    /// Sets which frames the device delivers. Returns whether the device filters as requested: `false` if it has no filters, or refuses a
    /// command and so delivers every frame. Afterwards the device delivers all frames that `mode` selects, and perhaps others. `alive`
    /// returns whether to go on: it is called before each command, and during the wait for its answer, with the time since the command.
    ///
    /// # Errors
    /// [`Error::BrokenRing`]; [`Error::CommandRefused`] if the device filters and cannot be made to
    /// deliver every frame; [`Error::OutOfOrder`] if the queue was stopped, or `alive` returned `false`.
    //= virtio §12
    pub fn set_receive_mode(
        &mut self,
        mode: &ReceiveMode<'_>,
        mut alive: impl FnMut(Duration) -> bool,
    ) -> Result<bool, Error> {
        // A device may have this without filters.
        let is_station_set = self.set_station(mode.station, &mut alive)?;
        if !self.features.contains(Features::CTRL_RX) {
            return Ok(false);
        }
        if mode.promiscuous {
            // Includes frames of every VLAN: the device's VLAN filter does not apply.
            return self.receive_everything(&mut alive).map(|()| true);
        }
        // Wider filters first: no wanted frame is dropped in between.
        let filters = is_station_set
            && self.set_vlans(mode.vlan, &mut alive)?
            && self.set_mac_table(mode, &mut alive)?
            && self.execute(command::ALL_MULTICAST, &[&[u8::from(mode.all_multicast)]], &mut alive)?
            && self.execute(command::PROMISCUOUS, &[&[0]], &mut alive)?;
        if filters {
            self.filtering = true;
        } else {
            self.receive_everything(&mut alive)?;
        }
        Ok(filters)
    }

    /// Sets the number of queue pairs in use: 1 to the number of pairs of [`Nic`](crate::Nic). They were programmed. Returns `false` if the
    /// device refuses; it then uses as many pairs as before (one after a reset). From then on the device steers automatically. A device
    /// with RSS and without MQ, whose limits are `limits`, steers by a round-robin table over all pairs. `alive` as in
    /// [`set_receive_mode`](Self::set_receive_mode).
    ///
    /// # Errors
    /// [`Error::BrokenRing`]; [`Error::OutOfOrder`] if the queue was stopped, or `alive` returned
    /// `false`.
    //= virtio §12
    pub fn set_pairs(
        &mut self,
        pairs: u16,
        limits: Option<RssLimits>,
        mut alive: impl FnMut(Duration) -> bool,
    ) -> Result<bool, Error> {
        if self.features.contains(Features::MQ) {
            return self.execute(command::SET_PAIRS, &[&pairs.to_le_bytes()], &mut alive);
        }
        let limits = limits.filter(|limits| usize::from(limits.key_len) >= HASH_KEY_LEN);
        let entries =
            limits.and_then(|limits| usize::from(limits.entries).min(DEFAULT_ENTRIES).checked_ilog2());
        let (Some(limits), Some(bits)) = (limits, entries) else { return Ok(pairs == 1) };
        let mut table = [[0; 2]; DEFAULT_ENTRIES];
        for (entry, pair) in table.iter_mut().zip((0..pairs).cycle()) {
            *entry = pair.to_le_bytes();
        }
        let table = table.get(..1_usize.wrapping_shl(bits)).unwrap_or_default();
        let hashing = Hashing { types: limits.types, key: &DEFAULT_KEY };
        self.set_steering(&hashing, &Steering { table, unclassified: 0, pairs }, alive)
    }

    /// Has the device steer received frames by their hashes, instead of automatically, until [`set_pairs`](Self::set_pairs). Also enables
    /// the pairs. Returns `false` if the device cannot do that, or refuses; it then steers as before. `alive` as above.
    ///
    /// # Errors
    /// As [`set_pairs`](Self::set_pairs).
    //= virtio §13
    pub fn set_steering(
        &mut self,
        hashing: &Hashing<'_>,
        steering: &Steering<'_>,
        mut alive: impl FnMut(Duration) -> bool,
    ) -> Result<bool, Error> {
        let mask = u16::try_from(steering.table.len().wrapping_sub(1));
        let Some(mask) = mask.ok().filter(|_| self.features.contains(Features::RSS)) else {
            return Ok(false);
        };
        let data: [&[u8]; 7] = [
            &hashing.types.bits().to_le_bytes(),
            &mask.to_le_bytes(),
            &steering.unclassified.to_le_bytes(),
            steering.table.as_flattened(),
            &steering.pairs.to_le_bytes(),
            &[HASH_KEY_LEN as u8],
            hashing.key,
        ];
        self.execute(command::SET_STEERING, &data, &mut alive)
    }

    /// Has the device report hashes, without steering by them; `None` stops that. Returns `false` if the device cannot do that, or refuses.
    /// `alive` as above.
    ///
    /// # Errors
    /// As [`set_pairs`](Self::set_pairs).
    //= virtio §13
    pub fn set_hashing(
        &mut self,
        hashing: Option<&Hashing<'_>>,
        mut alive: impl FnMut(Duration) -> bool,
    ) -> Result<bool, Error> {
        if !self.features.contains(Features::HASH_REPORT) {
            return Ok(false);
        }
        let types = hashing.map_or(HashTypes::empty(), |hashing| hashing.types);
        let key = hashing.map_or(&[][..], |hashing| hashing.key);
        let reserved = [0; 8];
        let data: [&[u8]; 4] = [&types.bits().to_le_bytes(), &reserved, &[key.len() as u8], key];
        self.execute(command::SET_HASHING, &data, &mut alive)
    }

    /// Sets whether the device coalesces TCP segments that it receives from now on, for IPv4 and for IPv6, if it supports that. Returns
    /// `false` if the device refuses; it then coalesces as before. `alive` as above.
    ///
    /// # Errors
    /// As [`set_pairs`](Self::set_pairs).
    //= virtio §12
    pub fn set_coalescing(
        &mut self,
        [v4, v6]: [bool; 2],
        mut alive: impl FnMut(Duration) -> bool,
    ) -> Result<bool, Error> {
        let mut wanted = self.features & GUEST_OFFLOADS;
        for (feature, is_wanted) in [(Features::GUEST_TSO4, v4), (Features::GUEST_TSO6, v6)] {
            if !is_wanted {
                wanted.remove(feature);
            }
        }
        if wanted == self.guest_offloads {
            return Ok(true);
        }
        let accepted =
            self.execute(command::SET_GUEST_OFFLOADS, &[&wanted.bits().to_le_bytes()], &mut alive)?;
        if accepted {
            self.guest_offloads = wanted;
        }
        Ok(accepted)
    }

    /// Has the device interrupt as `coalescing` says for the receive queues of the first pairs for which `pairs` is `true`, and at once for
    /// the others; the same for all if the device cannot do it for each, as for one of them. Sends commands for what changes. Returns
    /// `false` if the device cannot do that, or refuses; it then interrupts as before. `alive` as above.
    ///
    /// # Errors
    /// As [`set_pairs`](Self::set_pairs).
    //= virtio §12
    pub fn coalesce_receive_interrupts(
        &mut self,
        coalescing: InterruptCoalescing,
        pairs: impl Iterator<Item = bool>,
        mut alive: impl FnMut(Duration) -> bool,
    ) -> Result<bool, Error> {
        let parameters = |is_wanted| if is_wanted { coalescing } else { InterruptCoalescing::default() };
        if self.features.contains(Features::VQ_NOTF_COAL) {
            for (pair, is_wanted) in (0..u32::BITS as u16).zip(pairs) {
                let bit = 1_u32.wrapping_shl(pair.into());
                if is_wanted == (self.coalesced & bit != 0) {
                    continue;
                }
                let queue = PairQueue::Receive(pair).index().to_le_bytes();
                let data: [&[u8]; 3] = [&queue, &[0; 2], &parameters(is_wanted).bytes()];
                if !self.execute(command::COALESCE_INTERRUPTS_OF, &data, &mut alive)? {
                    return Ok(false);
                }
                self.coalesced ^= bit;
            }
            return Ok(true);
        }
        if !self.features.contains(Features::NOTF_COAL) {
            return Ok(false);
        }
        let is_wanted = pairs.fold(false, |any, pair| any | pair);
        let wanted = if is_wanted { u32::MAX } else { 0 };
        if wanted == self.coalesced {
            return Ok(true);
        }
        let data: [&[u8]; 1] = [&parameters(is_wanted).bytes()];
        let accepted = self.execute(command::COALESCE_RECEIVE_INTERRUPTS, &data, &mut alive)?;
        if accepted {
            self.coalesced = wanted;
        }
        Ok(accepted)
    }

    /// Notes that the receive queue of a pair was reset by itself: a device with parameters for each queue no longer coalesces its interrupts.
    //= virtio §12
    pub fn receive_queue_was_reset(&mut self, pair: u16) {
        if self.features.contains(Features::VQ_NOTF_COAL) {
            self.coalesced &= !1_u32.checked_shl(pair.into()).unwrap_or(0);
        }
    }

    /// Acknowledges the device's request to announce addresses, after they were announced. Returns `false` if the device refuses. `alive`
    /// as above.
    ///
    /// # Errors
    /// As [`set_pairs`](Self::set_pairs).
    //= virtio §12
    pub fn acknowledge_announcement(
        &mut self,
        mut alive: impl FnMut(Duration) -> bool,
    ) -> Result<bool, Error> {
        self.execute(command::ACKNOWLEDGE_ANNOUNCEMENT, &[], &mut alive)
    }

    fn receive_everything(&mut self, alive: &mut dyn FnMut(Duration) -> bool) -> Result<(), Error> {
        if self.execute(command::PROMISCUOUS, &[&[1]], alive)? {
            self.filtering = false;
        }
        if self.filtering { Err(Error::CommandRefused) } else { Ok(()) }
    }

    /// Sets the station's address if the device has a command for it. The address is in the unicast table in any case.
    fn set_station(
        &mut self,
        station: Option<[u8; 6]>,
        alive: &mut dyn FnMut(Duration) -> bool,
    ) -> Result<bool, Error> {
        match station {
            Some(address) if self.features.contains(Features::CTRL_MAC_ADDR) => {
                self.execute(command::SET_MAC, &[&address], alive)
            }
            _ => Ok(true),
        }
    }

    /// Sets the VLANs whose frames are delivered, by a command for each ID that changes. Returns `false` if the device refuses one, or if all
    /// of them take longer than [`VLANS_LIMIT`].
    fn set_vlans(
        &mut self,
        only: Option<u16>,
        alive: &mut dyn FnMut(Duration) -> bool,
    ) -> Result<bool, Error> {
        let wanted = only.map_or(Vlans::All, Vlans::One);
        if !self.features.contains(Features::CTRL_VLAN) || wanted == self.vlans {
            return Ok(true);
        }
        let before = self.vlans;
        let deadline = self.hal.now().saturating_add(VLANS_LIMIT);
        for (command, from, to) in
            [(command::ADD_VLAN, before, wanted), (command::DELETE_VLAN, wanted, before)]
        {
            for id in (0..VLAN_IDS).filter(|&id| to.contains(id) && !from.contains(id)) {
                if self.hal.now() > deadline || !self.execute(command, &[&id.to_le_bytes()], alive)? {
                    // It lets an unknown set of them pass: whatever is wanted next is added again.
                    self.vlans = Vlans::None;
                    return Ok(false);
                }
            }
        }
        self.vlans = wanted;
        Ok(true)
    }

    fn set_mac_table(
        &mut self,
        mode: &ReceiveMode<'_>,
        alive: &mut dyn FnMut(Duration) -> bool,
    ) -> Result<bool, Error> {
        let unicast = mode.station.as_slice();
        let count = |addresses: &[[u8; 6]]| u32::try_from(addresses.len()).unwrap_or(0).to_le_bytes();
        let data: [&[u8]; 4] =
            [&count(unicast), unicast.as_flattened(), &count(mode.multicast), mode.multicast.as_flattened()];
        self.execute(command::SET_MAC_TABLE, &data, alive)
    }

    /// Executes a command. Returns whether the device accepted it.
    fn execute(
        &mut self,
        command: [u8; 2],
        data: &[&[u8]],
        alive: &mut dyn FnMut(Duration) -> bool,
    ) -> Result<bool, Error> {
        if !self.queue.is_enabled() {
            return Err(Error::OutOfOrder);
        }
        if self.queue.ring.outstanding() != 0 {
            // The wait for the answer to an earlier command was given up.
            return Err(Error::OutOfOrder);
        }
        if !alive(Duration::ZERO) {
            return Err(Error::OutOfOrder);
        }
        // SAFETY: no command is outstanding (checked above), so the device neither reads nor writes the memory of commands.
        let memory = unsafe { self.memory.bytes_mut(0, COMMAND_LEN.saturating_add(1)) };
        let mut len = 0_usize;
        for part in core::iter::once(&command[..]).chain(data.iter().copied()) {
            let end = len.saturating_add(part.len());
            let to = memory.get_mut(..COMMAND_LEN).and_then(|bytes| bytes.get_mut(len..end));
            for (to, from) in to.ok_or(Error::CommandRefused)?.iter_mut().zip(part) {
                *to = *from;
            }
            len = end;
        }
        if let Some(answer) = memory.last_mut() {
            *answer = NO_ANSWER;
        }
        self.set_command_len(u32::try_from(len).map_err(|_| Error::CommandRefused)?);
        self.queue.ring.offer(COMMAND);
        self.queue.publish();
        self.wait(alive)?;
        let mut answer = [NO_ANSWER];
        self.memory.read(COMMAND_LEN, &mut answer);
        Ok(answer == [ANSWER_OK])
    }

    /// Waits for the answer to the command.
    fn wait(&mut self, alive: &mut dyn FnMut(Duration) -> bool) -> Result<(), Error> {
        let mut wait = Wait::without_limit(&self.hal);
        loop {
            if self.queue.ring.take_used()?.is_some() {
                return Ok(());
            }
            if !alive(wait.elapsed()) || !wait.go_on() {
                return Err(Error::OutOfOrder);
            }
        }
    }
}
