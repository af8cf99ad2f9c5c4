// SPDX-License-Identifier: MIT OR Apache-2.0

//! The receive queue. Every buffer is outstanding except while its frame is copied. (virtio §10)
//!
//! A frame is copied before anything is read from it: a device that writes to a buffer it has returned cannot change what was
//! checked.

use alloc::vec::Vec;
use core::ops::ControlFlow;

use fallible::vec;

use crate::buffers::Buffers;
use crate::coalesced::MAX_COALESCED;
use crate::error::{Error, RingFault};
use crate::features::Features;
use crate::hal::{Hal, Registers};
use crate::hash::HashTypes;
use crate::offload::{CoalescedHeader, ReceiveHeader};
use crate::queue::Queue;
use crate::ring::Direction;
use crate::transport::{Control, NotifyRegister};

/// Length of an Ethernet header in bytes. Shorter frames are dropped.
const MIN_FRAME: usize = 14;
/// Longest frame part of one buffer if frames may continue in further buffers, in bytes. Every RoCE packet fits in one.
const MERGED_BUFFER: usize = 4596;

/// Returns the length of each receive buffer for frames of up to `max_frame` bytes, without the virtio header, in bytes.
/// `is_merged`: a frame may continue in further buffers (`MRG_RXBUF`).
#[must_use]
pub fn receive_buffer_len(max_frame: usize, is_merged: bool) -> usize {
    if is_merged { max_frame.min(MERGED_BUFFER) } else { max_frame }
}

/// Counters of a receive queue since its creation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReceiveCounters {
    /// Frames received.
    pub frames: u64,
    /// Their bytes, from the Ethernet header on.
    pub bytes: u64,
    /// Frames dropped because the device returned an invalid length, or because the checksum field that the driver must complete lies
    /// outside the frame.
    pub invalid: u64,
    /// Notifications sent for returned buffers.
    pub notifications: u64,
}

impl core::iter::Sum for ReceiveCounters {
    fn sum<I: Iterator<Item = Self>>(counters: I) -> Self {
        counters.fold(Self::default(), |sum, next| Self {
            frames: sum.frames.wrapping_add(next.frames),
            bytes: sum.bytes.wrapping_add(next.bytes),
            invalid: sum.invalid.wrapping_add(next.invalid),
            notifications: sum.notifications.wrapping_add(next.notifications),
        })
    }
}

/// Result of [`ReceiveQueue::poll`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Polled {
    /// Buffers taken from the ring. They exceed the budget only by those in which the last frame continues.
    pub taken: u32,
    /// The budget is used up, or the sink has ended the poll: the ring may contain more.
    pub more: bool,
    /// The device was notified that buffers are available again, because it asks for that: it may have had too few.
    pub is_notified: bool,
}

/// Information from the device about a received frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameInfo {
    /// The TCP or UDP checksum was verified.
    pub is_verified: bool,
    /// Set if the frame consists of several TCP segments; [`Coalesced`](crate::Coalesced) checks that.
    pub coalesced: Option<CoalescedHeader>,
    /// The frame's hash and its type, as reported by the device. Not verified.
    pub hash: Option<(HashTypes, u32)>,
}

/// Receives frames into its own buffers. One user at a time, at IRQL <= DISPATCH_LEVEL.
#[derive(Debug)]
pub struct ReceiveQueue<H: Hal, R> {
    queue: Queue<H, R>,
    buffers: Buffers<H>,
    /// The accepted features, which decide how the virtio-net header is interpreted.
    features: Features,
    /// Number of buffers in the ring that the device may have filled before its hash parameters changed; `None` if hashes are not passed
    /// on.
    old_hashes: Option<u16>,
    /// Length of the longest frame that does not consist of several segments.
    max_frame: usize,
    /// Private memory for the frame that is being processed.
    frame: Vec<u8>,
    counters: ReceiveCounters,
}

impl<H: Hal, R: Registers> ReceiveQueue<H, R> {
    /// Allocates queue `index` with `size` buffers for frames of up to `max_frame` bytes and describes them, without making them available.
    /// With MRG_RXBUF a frame may take several buffers.
    pub(crate) fn new(
        hal: &H,
        index: u16,
        size: u16,
        max_frame: usize,
        features: Features,
    ) -> Result<Self, Error> {
        let queue = Queue::new(hal, index, size, features)?;
        let buffer_len = receive_buffer_len(max_frame, features.contains(Features::MRG_RXBUF));
        let buffers = Buffers::new(hal, size, buffer_len, features.contains(Features::HASH_REPORT))?;
        let longest = if features.intersects(Features::COALESCING) { MAX_COALESCED } else { 0 };
        let frame = vec::filled(max_frame.max(longest), 0)?;
        let counters = ReceiveCounters::default();
        let old_hashes = None;
        let mut this = Self { queue, buffers, features, old_hashes, max_frame, frame, counters };
        this.describe()?;
        Ok(this)
    }

    /// Describes every buffer to the device.
    fn describe(&mut self) -> Result<(), Error> {
        let len = u32::try_from(self.buffers.len()).map_err(|_| Error::NoMemory)?;
        for id in 0..self.queue.ring.size() {
            let address = self.buffers.device_address(id).ok_or(Error::NoMemory)?;
            self.queue.ring.describe(id, address, len, Direction::FromDevice);
        }
        Ok(())
    }

    /// Disconnects the queue from the device: from now on the queue does not access the device, and receives no frame. IRQL <=
    /// DISPATCH_LEVEL.
    pub fn stop(&mut self) {
        self.queue.stop();
    }

    /// Programs the queue again into a device that was reset and renegotiated. `vector` is the queue's interrupt message. The queue keeps
    /// its memory, so this allocates none. Frames that it contained are dropped; the counters continue. IRQL <= DISPATCH_LEVEL.
    ///
    /// # Errors
    /// [`Error::Changed`] if the device's queue is smaller, or it refuses `vector`; [`Error::NoQueue`],
    /// [`Error::BadQueueSize`], [`Error::NotifyOutOfRange`], [`Error::OutOfOrder`]. The queue is stopped then.
    pub fn reprogram(&mut self, control: &mut Control<H, R>, vector: u16) -> Result<(), Error> {
        self.queue.clear(control, Some(vector))?;
        // Until the device is asked for hashes again, they are those of other parameters.
        self.old_hashes = None;
        self.describe()?;
        self.enable(control)
    }

    /// Programs the queue again after the running device has reset it alone, and makes every buffer available. The parameters of hashes stay in
    /// force. Otherwise as [`reprogram`](Self::reprogram).
    ///
    /// # Errors
    /// Those of [`reprogram`](Self::reprogram).
    //= virtio §16
    pub fn restart(&mut self, control: &mut Control<H, R>, vector: u16) -> Result<(), Error> {
        // No buffer is left that the device has filled before.
        let hashes = self.old_hashes.map(|_| 0);
        self.reprogram(control, vector)?;
        self.old_hashes = hashes;
        self.start();
        Ok(())
    }

    /// Programs the queue into the device.
    pub(crate) fn enable(&mut self, control: &mut Control<H, R>) -> Result<(), Error> {
        self.queue.enable(control)
    }

    /// Makes every buffer available to the [started](Control::start) device. Interrupts may occur from now on.
    pub fn start(&mut self) {
        // Requests an interrupt at the first frame. None has arrived, because the device had no buffers.
        let _ = self.queue.ring.request_interrupt(1);
        for id in 0..self.queue.ring.size() {
            self.queue.ring.offer(id);
        }
        self.publish();
    }

    /// Passes the received frames in at most `budget` buffers (and the rest of the last frame) to `sink`, with the device's information
    /// about them. `sink` gets a copy of the frame from its Ethernet header on, which is valid during the call; the device cannot access
    /// the copy, and `sink` may change it. `sink` ends the poll by [`ControlFlow::Break`]. Then makes the buffers available again with at
    /// most one notification.
    ///
    /// # Errors
    /// [`Error::BrokenRing`]: the used ring is inconsistent. Frames before the fault were passed to `sink`; every later call
    /// fails.
    /// A queue that was stopped has no frames.
    pub fn poll(
        &mut self,
        budget: u32,
        mut sink: impl FnMut(&mut [u8], FrameInfo) -> ControlFlow<()>,
    ) -> Result<Polled, Error> {
        let mut taken = 0;
        if !self.queue.is_enabled() {
            return Ok(Polled { taken, more: false, is_notified: false });
        }
        let outcome = loop {
            if taken >= budget {
                break Ok(true);
            }
            let used = match self.queue.ring.take_used() {
                Ok(Some(used)) => used,
                Ok(None) => {
                    self.old_hashes = self.old_hashes.map(|_| 0);
                    break Ok(false);
                }
                Err(error) => break Err(error),
            };
            taken = taken.wrapping_add(1);
            let mut len = self.frame_len(used.len);
            let frame = len.and_then(|len| self.frame.get_mut(..len)).unwrap_or_default();
            let header = ReceiveHeader::parse(self.buffers.read(used.id, frame));
            let hash = if self.features.contains(Features::HASH_REPORT) { self.hash(used.id) } else { None };
            self.queue.ring.offer(used.id);
            let count = header.buffers;
            if count != 1 && self.features.contains(Features::MRG_RXBUF) {
                len = match self.continuations(count, len) {
                    Ok(len) => len,
                    Err(error) => break Err(error),
                };
                taken = taken.saturating_add(u32::from(count)).saturating_sub(1);
            }
            let mut info = FrameInfo { hash, ..Default::default() };
            if self.features.contains(Features::GUEST_CSUM) {
                info.coalesced =
                    header.coalesced().filter(|_| self.features.intersects(Features::COALESCING));
                if info.coalesced.is_none() {
                    len = len.filter(|&len| len <= self.max_frame);
                    info.is_verified = header.is_verified();
                    if header.is_partial() {
                        let completed = self.complete(header, len);
                        info.is_verified = completed == Some(true);
                        len = len.filter(|_| completed.is_some());
                    }
                }
            }
            match len.and_then(|len| self.frame.get_mut(..len)).filter(|frame| frame.len() >= MIN_FRAME) {
                Some(frame) => {
                    self.counters.frames = self.counters.frames.wrapping_add(1);
                    self.counters.bytes = self.counters.bytes.wrapping_add(frame.len() as u64);
                    if sink(frame, info).is_break() {
                        break Ok(true);
                    }
                }
                None => self.counters.invalid = self.counters.invalid.wrapping_add(1),
            }
        };
        let is_notified = taken != 0 && self.publish();
        outcome.map(|more| Polled { taken, more, is_notified })
    }

    /// Returns the queue's notification register, while the queue is programmed into the device.
    pub fn notify_register(&self) -> Option<NotifyRegister> {
        self.queue.notify_register()
    }

    /// Suppresses interrupts while the caller polls.
    pub fn suppress_interrupts(&mut self) {
        self.queue.ring.suppress_interrupts();
    }

    /// Requests an interrupt at the next frame. Returns `true` if a frame has already arrived and the caller must poll
    /// again.
    #[must_use]
    pub fn request_interrupt(&mut self) -> bool {
        self.queue.is_enabled() && self.queue.ring.request_interrupt(1)
    }

    /// Sets whether the device's hashes are passed on, for frames that arrive from now on. Pass `true` when the device has accepted new
    /// hash parameters. Hashes of frames already in the ring are not passed on, because they may use other parameters.
    pub fn report_hashes(&mut self, are_reported: bool) {
        self.old_hashes = are_reported.then(|| self.queue.ring.size());
    }

    /// Returns the number of buffers.
    pub fn size(&self) -> u16 {
        self.queue.ring.size()
    }

    /// Returns the counters.
    pub fn counters(&self) -> ReceiveCounters {
        self.counters
    }

    /// Takes the other buffers of a frame that consists of `count` buffers. Its first `len` bytes have been copied. Returns the length of
    /// the whole frame; `None` if it is too long, or a length is invalid.
    ///
    /// # Errors
    /// [`Error::BrokenRing`]: the device has returned fewer buffers. It must return all buffers of a frame together.
    //= virtio §10
    #[cold]
    fn continuations(&mut self, count: u16, mut len: Option<usize>) -> Result<Option<usize>, Error> {
        if count == 0 {
            return Err(self.queue.ring.give_up(RingFault::BadBufferCount));
        }
        for _ in 1..count {
            let Some(used) = self.queue.ring.take_used()? else {
                return Err(self.queue.ring.give_up(RingFault::BadBufferCount));
            };
            len = len.and_then(|start| {
                let part = usize::try_from(used.len).ok().filter(|&part| part <= self.buffers.len())?;
                let end = start.checked_add(part)?;
                self.buffers.read_continuation(used.id, self.frame.get_mut(start..end)?);
                Some(end)
            });
            self.queue.ring.offer(used.id);
        }
        Ok(len)
    }

    /// Returns the hash of the frame in a buffer, if the device has reported one.
    //= virtio §9
    fn hash(&mut self, id: u16) -> Option<(HashTypes, u32)> {
        let old = self.old_hashes.as_mut()?;
        if *old != 0 {
            *old = old.saturating_sub(1);
            return None;
        }
        let [a, b, c, d, kind, kind_high, _, _] = self.buffers.read_hash(id);
        let kind = HashTypes::of_report(u16::from_le_bytes([kind, kind_high]))?;
        Some((kind, u32::from_le_bytes([a, b, c, d])))
    }

    /// Completes the checksum of a frame from a VM on the same host. Returns whether it is that of the TCP segment or UDP datagram, whose
    /// data came without an error then; `None` if the checksum field lies outside the frame.
    //= virtio §9
    #[cold]
    fn complete(&mut self, header: ReceiveHeader, len: Option<usize>) -> Option<bool> {
        header.complete(self.frame.get_mut(..len?)?)
    }

    /// Returns the length of the frame in a buffer into which the device wrote `used` bytes; `None` if `used` is
    /// invalid.
    //= virtio §10
    fn frame_len(&self, used: u32) -> Option<usize> {
        let used = usize::try_from(used).ok()?;
        let len = used.checked_sub(self.buffers.header_len())?;
        (used <= self.buffers.len()).then_some(len)
    }

    /// Returns whether the device was notified.
    fn publish(&mut self) -> bool {
        let is_notified = self.queue.publish();
        self.counters.notifications = self.counters.notifications.wrapping_add(is_notified.into());
        is_notified
    }
}
