// SPDX-License-Identifier: MIT OR Apache-2.0

//! The transmit queues: frames from the driver to the wire. (virtio §11)

use std::sync::atomic::Ordering::Relaxed;

use virtio_device::Chain;

use super::{
    device::{BUDGET, Device, Outcome},
    features::Features,
    interrupts::Interrupts,
    offload::{self, Header, MAX_HEADER_LEN, header_len},
    options::transmit_index,
};
use crate::{checksum, link::wire::Frame, registers::Misuse};

/// Minimum length of a frame: an Ethernet header.
const MIN_FRAME: usize = 14;

/// The transmit queues of a device.
pub(super) struct TransmitQueues<'a> {
    pub(super) device: &'a Device,
}

impl TransmitQueues<'_> {
    /// Sends the frames of the transmit queue of a pair.
    pub(super) fn transmit(&self, pair: usize) -> Result<Outcome, Misuse> {
        if let Some(end) = self.device.pauses.of_sending(self.device.bus.now()) {
            return Ok(Outcome { later: Some(end), ..Outcome::default() });
        }
        let accepted = self.device.common.lock().accepted();
        let (mut sent, mut bytes, mut done) = (0_u64, 0_u64, 0);
        // One frame at a time, because the wire may become full after each.
        let more = loop {
            if done == BUDGET {
                break true;
            }
            if self.device.hung[pair].load(Relaxed) {
                break false;
            }
            if self.device.port().is_some_and(|port| !port.is_writable()) {
                // `writable` schedules the rest.
                break false;
            }
            let Some(frame) = self.next_frame(pair, accepted)? else {
                let mut queue = self.device.queues[transmit_index(pair)].lock();
                if queue.is_enabled() && queue.enable_notifications(&self.device.memory)? {
                    continue;
                }
                break false;
            };
            done += 1;
            sent += 1;
            bytes += frame.len() as u64;
            self.device.steering.lock().learn(&frame, pair);
            if let Some(port) = self.device.port() {
                port.transmit(self.device.bus.now(), frame);
            }
        };
        self.device.counters.pairs[pair][0].fetch_add(sent, Relaxed);
        let total = self.device.counters.sent_frames.fetch_add(sent, Relaxed) + sent;
        self.device.counters.sent_bytes.fetch_add(bytes, Relaxed);
        self.fail_after(total);
        let mut queue = self.device.queues[transmit_index(pair)].lock();
        let (interrupt, interrupt_at) =
            Interrupts { device: self.device }.after(transmit_index(pair), &mut queue, done)?;
        Ok(Outcome { interrupt, more, later: None, interrupt_at })
    }

    /// Takes one frame out of the ring and returns its buffer to the driver, or the next segment of the frame before.
    fn next_frame(&self, pair: usize, accepted: Features) -> Result<Option<Frame>, Misuse> {
        if let Some(segment) = self.device.segments[pair].lock().pop_front() {
            return Ok(Some(segment));
        }
        let mut queue = self.device.queues[transmit_index(pair)].lock();
        if !queue.is_enabled() {
            return Ok(None);
        }
        queue.disable_notifications(&self.device.memory)?;
        let Some(chain) = queue.pop(&self.device.memory, accepted.contains(Features::INDIRECT_DESC))? else {
            return Ok(None);
        };
        if pair >= self.device.steering.lock().transmit_pairs() {
            return Err(Misuse::ring(format!(
                "a frame is sent by pair {pair}, which is not in use (virtio 5.1.6.5.5)"
            )));
        }
        let (header, frame) = self.read_frame(&chain, header_len(accepted))?;
        let frames = offload::carry_out(&header, frame, accepted)?;
        if accepted.contains(Features::MTU) {
            frames.iter().try_for_each(|frame| self.check_length(frame))?;
        }
        let mut frames = frames.into_iter();
        let first = frames.next();
        self.device.segments[pair].lock().extend(frames);
        queue.push(&self.device.memory, chain.head, 0, self.device.used_quirk(transmit_index(pair)))?;
        Ok(first)
    }

    /// Checks that a frame is not longer than the MTU allows. A tag is a part of the Ethernet header. (virtio 5.1.4.2)
    fn check_length(&self, frame: &[u8]) -> Result<(), Misuse> {
        let header = checksum::ethertype(frame).map_or(MIN_FRAME, |(_, len)| len);
        let mtu = usize::from(self.device.options.quirks.mtu.unwrap_or(self.device.options.mtu));
        if frame.len() > header + mtu {
            return Err(Misuse::ring(format!("a frame of {} bytes is sent; the MTU is {mtu}", frame.len())));
        }
        Ok(())
    }

    /// Reads a frame behind a header of `header_len` bytes, of which the hash has no meaning.
    fn read_frame(&self, chain: &Chain, header_len: usize) -> Result<(Header, Frame), Misuse> {
        if !chain.writable.is_empty() {
            return Err(Misuse::ring("the transmit queue has a device-writable buffer (virtio 5.1.6.2)"));
        }
        let mut header = [0; MAX_HEADER_LEN];
        let mut wanted = header_len as u32;
        let total: usize = chain.readable.iter().map(|&(_, len)| len as usize).sum();
        if total < header_len + MIN_FRAME {
            return Err(Misuse::ring(format!(
                "a transmit buffer of {total} bytes is shorter than the virtio-net and Ethernet headers"
            )));
        }
        let mut frame = Frame::with_capacity(total - header_len);
        for &(address, len) in &chain.readable {
            let of_header = wanted.min(len);
            if of_header > 0 {
                let start = header_len - wanted as usize;
                self.device.memory.fill(&mut header[start..start + of_header as usize], address)?;
                wanted -= of_header;
            }
            if len > of_header {
                self.device.memory.read(address + u64::from(of_header), len - of_header, &mut frame)?;
            }
        }
        Ok((Header::parse(&header), frame))
    }

    /// Injects the failures of [`Quirks`](super::quirks::Quirks) that depend on the number of frames sent.
    fn fail_after(&self, sent: u64) {
        let due = |limit: Option<u64>| limit.is_some_and(|limit| sent >= limit);
        if due(self.device.options.quirks.removed_after) {
            self.device.remove();
        } else if due(self.device.options.quirks.needs_reset_after) && self.device.is_running() {
            self.device.need_reset();
        }
    }
}
