// SPDX-License-Identifier: MIT OR Apache-2.0

//! The receive queues: frames from the wire to the driver. (virtio §10)

use std::sync::atomic::Ordering::Relaxed;

use virtio_device::{Chain, DeviceQueue};

use super::{
    coalescing::{self, Unit},
    device::{Arriving, BUDGET, Device, Outcome},
    features::Features,
    interrupts::Interrupts,
    offload::{Header, header_len},
    options::receive_index,
    quirks::LargeQuirk,
};
use crate::{
    dma::DmaSpace,
    link::wire::{Frame, Port},
    registers::Misuse,
};

const ETHERNET_HEADER: usize = 14;

/// Next delivery.
enum Next {
    Frame(Frame),
    /// Segments, as one frame.
    Unit(Unit),
    /// A frame for which there were too few buffers.
    Refused(Header, Frame),
}

/// Outcome of the delivery of a frame.
enum Placed {
    /// It is in buffers, or dropped.
    Done,
    /// There are too few buffers. The driver will notify the device of more.
    NoRoom,
}

/// The receive queues of a device.
pub(super) struct ReceiveQueues<'a> {
    pub(super) device: &'a Device,
}

impl ReceiveQueues<'_> {
    /// Drops all arrived frames: no driver is running, or has no buffers.
    pub(super) fn discard(&self) {
        let Some(port) = self.device.port() else { return };
        while port.receive(self.device.bus.now()).is_some() {
            self.device.counters.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Takes the frames on the wire that pass the filters to the pairs they belong to. Returns the pairs that have frames.
    pub(super) fn steer(&self) -> Vec<usize> {
        let Some(port) = self.device.port() else { return Vec::new() };
        while let Some(frame) = self.wanted_frame(port) {
            if self.device.steering.lock().add(frame).is_err() {
                self.device.counters.dropped.fetch_add(1, Relaxed);
            }
        }
        self.device.steering.lock().waiting()
    }

    /// Delivers frames to the receive queue of a pair: those on the wire too, or only those that wait for others.
    pub(super) fn receive(&self, pair: usize, is_wire_read: bool) -> Result<Outcome, Misuse> {
        let Some(port) = self.device.port() else { return Ok(Outcome::default()) };
        if self.device.steering.lock().is_held() {
            return Ok(Outcome::default());
        }
        let port = is_wire_read.then_some(port);
        let accepted = self.device.common.lock().accepted();
        let mut arriving = std::mem::take(&mut *self.device.arriving[pair].lock());
        let waited = arriving.deadline();
        let (mut done, mut more) = (0, false);
        loop {
            if done == BUDGET {
                more = true;
                break;
            }
            // A buffer first: a frame taken off the wire cannot be put back.
            let Some(chain) = self.next_buffer(pair, accepted)? else {
                if self.device.options.quirks.drops_without_buffer && is_wire_read {
                    self.discard();
                }
                self.hold(pair, !arriving.is_empty());
                break;
            };
            let next = match arriving.refused.take() {
                Some((header, frame)) => Some(Next::Refused(header, frame)),
                None => self.next(pair, port, &mut arriving),
            };
            let Some(next) = next else {
                let mut queue = self.device.queues[receive_index(pair)].lock();
                if queue.holds(&chain) {
                    queue.unpop(&chain);
                }
                break;
            };
            let (header, frame) = match next {
                Next::Frame(mut frame) => (self.receive_header(&mut frame, accepted), frame),
                Next::Unit(unit) if !self.has_room(pair, &chain, &unit, accepted)? => {
                    // Its segments go into the buffers that there are.
                    let mut queue = self.device.queues[receive_index(pair)].lock();
                    if queue.holds(&chain) {
                        queue.unpop(&chain);
                    }
                    for segment in unit.into_segments().into_iter().rev() {
                        arriving.frames.push_front(segment);
                    }
                    arriving.singles = arriving.frames.len();
                    continue;
                }
                Next::Unit(unit) => unit.finish(self.device.options.quirks.large),
                Next::Refused(header, frame) => (header, frame),
            };
            match self.place(pair, &chain, header, &frame, accepted)? {
                Placed::Done => done += 1,
                Placed::NoRoom => {
                    arriving.refused = Some((header, frame));
                    self.hold(pair, true);
                    break;
                }
            }
        }
        let later = arriving.deadline().filter(|_| arriving.deadline() != waited);
        *self.device.arriving[pair].lock() = arriving;
        let mut queue = self.device.queues[receive_index(pair)].lock();
        let (interrupt, interrupt_at) =
            Interrupts { device: self.device }.after(receive_index(pair), &mut queue, done)?;
        Ok(Outcome { interrupt, more, later, interrupt_at })
    }

    /// Notes that a pair has too few buffers: for a frame that was taken off the wire, if `has_taken`, or else for one that waits for the
    /// pair.
    fn hold(&self, pair: usize, has_taken: bool) {
        let mut steering = self.device.steering.lock();
        let is_held = steering.scaling().is_some() && (has_taken || steering.waiting().contains(&pair));
        if self.device.options.quirks.holds_for_another_queue && is_held {
            steering.hold(pair);
        }
    }

    /// Returns what is delivered next: segments that follow each other as one, once no other can follow or they have waited for
    /// long enough.
    fn next(&self, pair: usize, port: Option<&Port>, arriving: &mut Arriving) -> Option<Next> {
        if arriving.singles > 0 {
            arriving.singles -= 1;
            return arriving.frames.pop_front().map(Next::Frame);
        }
        let is_forced = self.device.options.quirks.large == Some(LargeQuirk::Always);
        let versions =
            if is_forced { [true; 2] } else { coalescing::versions(*self.device.guest_offloads.lock()) };
        let unit = loop {
            let next = arriving.frames.pop_front().or_else(|| self.next_frame_of(pair, port?));
            let Some(frame) = next else {
                let is_due = |(_, until): &mut (Unit, u64)| *until <= self.device.bus.now();
                break arriving.unit.take_if(is_due)?.0;
            };
            let (unit, until) = match arriving.unit.take() {
                None => match Unit::new(frame, versions) {
                    Ok(unit) => (unit, self.device.bus.now() + coalescing::HOLD),
                    Err(frame) => return Some(Next::Frame(frame)),
                },
                Some((mut unit, until)) => {
                    if let Err(frame) = unit.add(frame) {
                        arriving.frames.push_front(frame);
                        break unit;
                    }
                    (unit, until)
                }
            };
            if unit.is_closed {
                break unit;
            }
            arriving.unit = Some((unit, until));
        };
        Some(match unit.into_single() {
            Ok(frame) => Next::Frame(frame),
            Err(unit) => Next::Unit(unit),
        })
    }

    /// Whether the buffers from `first` on hold a frame of several segments.
    fn has_room(&self, pair: usize, first: &Chain, unit: &Unit, accepted: Features) -> Result<bool, Misuse> {
        let needed = (header_len(accepted) + unit.len()) as u64;
        let mut queue = self.device.queues[receive_index(pair)].lock();
        let (mut others, mut room) = (Vec::new(), first.writable_len());
        while queue.holds(first) && room < needed {
            let Some(chain) = pop_writable(&mut queue, self.device, accepted)? else { break };
            room += chain.writable_len();
            others.push(chain);
        }
        for chain in others.iter().rev() {
            queue.unpop(chain);
        }
        Ok(room >= needed)
    }

    /// Returns the next frame that belongs to a pair: the first one, whatever it is, if no other is in use.
    fn next_frame_of(&self, pair: usize, port: &Port) -> Option<Frame> {
        let mut steering = self.device.steering.lock();
        if steering.pairs() > 1 {
            return steering.take(pair);
        }
        drop(steering);
        if pair == 0 { self.wanted_frame(port) } else { None }
    }

    /// Returns the next frame that passes the filters.
    fn wanted_frame(&self, port: &Port) -> Option<Frame> {
        if let Some(frame) = self.repeated_frame() {
            return Some(frame);
        }
        loop {
            let frame = port.receive(self.device.bus.now())?;
            if self.device.filter.lock().accepts(&frame) {
                if self.device.options.quirks.repeats.is_some() {
                    self.device.repeated.lock().0.get_or_insert_with(|| frame.clone());
                }
                return Some(frame);
            }
            self.device.counters.filtered.fetch_add(1, Relaxed);
        }
    }

    /// Returns the header of a received frame, whose checksum is left to the driver with a quirk.
    fn receive_header(&self, frame: &mut Frame, accepted: Features) -> Header {
        if !accepted.contains(Features::GUEST_CSUM) {
            return Header::default();
        }
        match self.device.options.quirks.partial_checksums {
            None => Header::verified(frame),
            Some(place) => {
                let Some(header) = Header::partial(frame) else { return Header::default() };
                let (csum_start, csum_offset) = place.unwrap_or((header.csum_start, header.csum_offset));
                Header { csum_start, csum_offset, ..header }
            }
        }
    }

    /// Returns `hash_value` and `hash_report` of a received frame.
    fn hash_report(&self, frame: &[u8], accepted: Features) -> (u32, u16) {
        if !accepted.contains(Features::HASH_REPORT) {
            return (0, 0);
        }
        let report = || self.device.steering.lock().hashing().map_or((0, 0), |hashing| hashing.report(frame));
        self.device.options.quirks.hash_report.unwrap_or_else(report)
    }

    /// Returns the frame of [`Quirks::repeats`](super::Quirks::repeats) once more.
    fn repeated_frame(&self) -> Option<Frame> {
        let limit = self.device.options.quirks.repeats?;
        let mut repeated = self.device.repeated.lock();
        let (frame, count) = &mut *repeated;
        let frame = frame.clone().filter(|_| *count < limit)?;
        *count += 1;
        Some(frame)
    }

    /// Returns the next buffer. Enables notifications when there is none.
    fn next_buffer(&self, pair: usize, accepted: Features) -> Result<Option<Chain>, Misuse> {
        let mut queue = self.device.queues[receive_index(pair)].lock();
        if !queue.is_enabled() {
            return Ok(None);
        }
        loop {
            if let Some(chain) = pop_writable(&mut queue, self.device, accepted)? {
                // There are buffers: to hear of more of them is of no use.
                queue.disable_notifications(&self.device.memory)?;
                return Ok(Some(chain));
            }
            if !queue.enable_notifications(&self.device.memory)? {
                return Ok(None);
            }
        }
    }

    /// Writes a frame into `first` and, with MRG_RXBUF, as many further buffers as needed. A frame that waits for more of them is dropped
    /// if all buffers of the queue are too few.
    fn place(
        &self,
        pair: usize,
        first: &Chain,
        header: Header,
        frame: &[u8],
        accepted: Features,
    ) -> Result<Placed, Misuse> {
        let mut queue = self.device.queues[receive_index(pair)].lock();
        if !queue.holds(first) {
            self.device.counters.dropped.fetch_add(1, Relaxed);
            return Ok(Placed::Done);
        }
        let header_len = header_len(accepted);
        let needed = (header_len + frame.len()) as u64;
        let is_merged = accepted.contains(Features::MRG_RXBUF);
        let (mut others, mut room) = (Vec::new(), first.writable_len());
        while room < needed && is_merged {
            if let Some(chain) = pop_writable(&mut queue, self.device, accepted)? {
                room += chain.writable_len();
                others.push(chain);
            } else if !queue.enable_notifications(&self.device.memory)? {
                break;
            }
        }
        if room < needed {
            let waits = is_merged && others.len() + 1 < queue.size().into();
            for chain in others.iter().rev().chain([first]) {
                queue.unpop(chain);
            }
            if waits {
                return Ok(Placed::NoRoom);
            }
            self.device.counters.dropped.fetch_add(1, Relaxed);
            return Ok(Placed::Done);
        }
        let number = self.device.counters.received_frames.load(Relaxed) + 1;
        let lie = self.device.options.quirks.num_buffers.filter(|(every, _)| number.is_multiple_of(*every));
        let next = if others.is_empty() {
            self.device.lies[receive_index(pair)].lock().num_buffers.take()
        } else {
            None
        };
        let num_buffers = next.or(lie.map(|(_, buffers)| buffers)).unwrap_or_else(|| 1 + others.len() as u16);
        let header = Header { num_buffers, ..header }.bytes(self.hash_report(frame, accepted));
        let mut rest = Rest { parts: [&header[..header_len], frame] };
        let mut fill = |chain: &Chain| {
            let parts = chain.writable.iter();
            parts
                .map(|&(address, len)| rest.write(&self.device.memory, address, len))
                .sum::<Result<u32, Misuse>>()
        };
        let written = fill(first)?;
        self.device.counters.pairs[pair][1].fetch_add(1, Relaxed);
        self.device.counters.received_frames.fetch_add(1, Relaxed);
        self.device.counters.received_bytes.fetch_add(frame.len() as u64, Relaxed);
        if others.is_empty() {
            queue.push(
                &self.device.memory,
                first.head,
                written,
                self.device.used_quirk(receive_index(pair)),
            )?;
            return Ok(Placed::Done);
        }
        let mut used = vec![(first.head, written)];
        for chain in &others {
            used.push((chain.head, fill(chain)?));
        }
        queue.push_all(&self.device.memory, &used)?;
        Ok(Placed::Done)
    }
}

/// The part of header and frame that is not written yet.
struct Rest<'a> {
    parts: [&'a [u8]; 2],
}

impl Rest<'_> {
    /// Writes at most `len` bytes at `address`; returns the number of bytes written.
    fn write(&mut self, memory: &DmaSpace, address: u64, len: u32) -> Result<u32, Misuse> {
        let [header, frame] = self.parts;
        let (header, header_later) = header.split_at(header.len().min(len as usize));
        let (frame, frame_later) = frame.split_at(frame.len().min(len as usize - header.len()));
        memory.write_parts(address, [header, frame])?;
        self.parts = [header_later, frame_later];
        Ok((header.len() + frame.len()) as u32)
    }
}

fn pop_writable(
    queue: &mut DeviceQueue,
    device: &Device,
    accepted: Features,
) -> Result<Option<Chain>, Misuse> {
    let Some(chain) = queue.pop(&device.memory, accepted.contains(Features::INDIRECT_DESC))? else {
        return Ok(None);
    };
    if !chain.readable.is_empty() || chain.writable.is_empty() {
        return Err(Misuse::ring("the receive queue has a device-readable buffer (virtio 5.1.6.3)"));
    }
    let alone = !accepted.contains(Features::MRG_RXBUF);
    let needed = (header_len(accepted) + ETHERNET_HEADER) as u64 + u64::from(device.options.mtu);
    if alone && accepted.contains(Features::MTU) && chain.writable_len() < needed {
        let text = format!("a receive buffer has {} bytes; the MTU needs {needed}", chain.writable_len());
        return Err(Misuse::ring(text));
    }
    for &(address, len) in &chain.writable {
        device.memory.check(address, len.into(), "a receive buffer")?;
    }
    Ok(Some(chain))
}
