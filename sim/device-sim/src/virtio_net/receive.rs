// SPDX-License-Identifier: MIT OR Apache-2.0

//! The receive queues: frames from the wire to the driver. (virtio §10)

use std::sync::atomic::Ordering::Relaxed;

use super::{
    device::{BUDGET, Device, Outcome},
    features::Features,
    offload::{Header, header_len},
    options::receive_index,
    queue::{Chain, DeviceQueue},
};
use crate::{
    dma::DmaSpace,
    link::wire::{Frame, Port},
    registers::Misuse,
};

const ETHERNET_HEADER: usize = 14;

impl Device {
    /// Drops all arrived frames: no driver is running.
    pub(super) fn discard(&self) {
        let Some(port) = self.port() else { return };
        while port.receive(self.bus.now()).is_some() {
            self.counters.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Takes the frames on the wire that pass the filters to the pairs they belong to. Returns the pairs that have frames.
    pub(super) fn steer(&self) -> Vec<usize> {
        let Some(port) = self.port() else { return Vec::new() };
        while let Some(frame) = self.wanted_frame(port) {
            if self.steering.lock().add(frame).is_err() {
                self.counters.dropped.fetch_add(1, Relaxed);
            }
        }
        self.steering.lock().waiting()
    }

    /// Delivers frames to the receive queue of a pair.
    pub(super) fn receive(&self, pair: usize) -> Result<Outcome, Misuse> {
        let Some(port) = self.port() else { return Ok(Outcome { interrupt: false, more: false }) };
        let accepted = self.common.lock().accepted();
        let (mut done, mut more) = (0, false);
        loop {
            if done == BUDGET {
                more = true;
                break;
            }
            // A buffer first: a frame taken off the wire cannot be put back.
            let Some(chain) = self.next_buffer(pair, accepted)? else { break };
            let Some(mut frame) = self.next_frame_of(pair, port) else {
                let mut queue = self.queues[receive_index(pair)].lock();
                if queue.holds(&chain) {
                    queue.unpop(&chain);
                }
                break;
            };
            let header = self.receive_header(&mut frame, accepted);
            self.place(pair, &chain, header, &frame, accepted)?;
            done += 1;
        }
        let mut queue = self.queues[receive_index(pair)].lock();
        let interrupt = done > 0 && queue.is_enabled() && queue.needs_interrupt(&self.memory)?;
        Ok(Outcome { interrupt, more })
    }

    /// Returns the next frame that belongs to a pair: the first one, whatever it is, if no other is in use.
    fn next_frame_of(&self, pair: usize, port: &Port) -> Option<Frame> {
        let mut steering = self.steering.lock();
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
            let frame = port.receive(self.bus.now())?;
            if self.filter.lock().accepts(&frame) {
                if self.options.quirks.repeats.is_some() {
                    self.repeated.lock().0.get_or_insert_with(|| frame.clone());
                }
                return Some(frame);
            }
            self.counters.filtered.fetch_add(1, Relaxed);
        }
    }

    /// Returns the header of a received frame, whose checksum is left to the driver with a quirk.
    fn receive_header(&self, frame: &mut Frame, accepted: Features) -> Header {
        if !accepted.contains(Features::GUEST_CSUM) {
            return Header::default();
        }
        match self.options.quirks.partial_checksums {
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
        let report = || self.steering.lock().hashing().map_or((0, 0), |hashing| hashing.report(frame));
        self.options.quirks.hash_report.unwrap_or_else(report)
    }

    /// Returns the frame of [`Quirks::repeats`](super::Quirks::repeats) once more.
    fn repeated_frame(&self) -> Option<Frame> {
        let limit = self.options.quirks.repeats?;
        let mut repeated = self.repeated.lock();
        let (frame, count) = &mut *repeated;
        let frame = frame.clone().filter(|_| *count < limit)?;
        *count += 1;
        Some(frame)
    }

    /// Returns the next buffer. Enables notifications when there is none.
    fn next_buffer(&self, pair: usize, accepted: Features) -> Result<Option<Chain>, Misuse> {
        let mut queue = self.queues[receive_index(pair)].lock();
        if !queue.is_enabled() {
            return Ok(None);
        }
        loop {
            if let Some(chain) = pop_writable(&mut queue, self, accepted)? {
                // There are buffers: to hear of more of them is of no use.
                queue.disable_notifications(&self.memory)?;
                return Ok(Some(chain));
            }
            if !queue.enable_notifications(&self.memory)? {
                return Ok(None);
            }
        }
    }

    /// Writes a frame into `first` and, with MRG_RXBUF, as many further buffers as needed.
    fn place(
        &self,
        pair: usize,
        first: &Chain,
        header: Header,
        frame: &[u8],
        accepted: Features,
    ) -> Result<(), Misuse> {
        let mut queue = self.queues[receive_index(pair)].lock();
        if !queue.holds(first) {
            self.counters.dropped.fetch_add(1, Relaxed);
            return Ok(());
        }
        let header_len = header_len(accepted);
        let needed = (header_len + frame.len()) as u64;
        let (mut others, mut room) = (Vec::new(), first.writable_len());
        while room < needed && accepted.contains(Features::MRG_RXBUF) {
            let Some(chain) = pop_writable(&mut queue, self, accepted)? else { break };
            room += chain.writable_len();
            others.push(chain);
        }
        if room < needed {
            for chain in others.iter().rev().chain([first]) {
                queue.unpop(chain);
            }
            self.counters.dropped.fetch_add(1, Relaxed);
            return Ok(());
        }
        let number = self.counters.received_frames.load(Relaxed) + 1;
        let lie = self.options.quirks.num_buffers.filter(|(every, _)| number.is_multiple_of(*every));
        let num_buffers = lie.map_or(1 + others.len() as u16, |(_, buffers)| buffers);
        let header = Header { num_buffers, ..header }.bytes(self.hash_report(frame, accepted));
        let mut rest = Rest { parts: [&header[..header_len], frame] };
        let mut fill = |chain: &Chain| {
            let parts = chain.writable.iter();
            parts.map(|&(address, len)| rest.write(&self.memory, address, len)).sum::<Result<u32, Misuse>>()
        };
        let written = fill(first)?;
        self.counters.pairs[pair][1].fetch_add(1, Relaxed);
        self.counters.received_frames.fetch_add(1, Relaxed);
        self.counters.received_bytes.fetch_add(frame.len() as u64, Relaxed);
        if others.is_empty() {
            return queue.push(&self.memory, first.head, written, self.options.quirks.used);
        }
        let mut used = vec![(first.head, written)];
        for chain in &others {
            used.push((chain.head, fill(chain)?));
        }
        queue.push_all(&self.memory, &used)
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
