// SPDX-License-Identifier: MIT OR Apache-2.0

//! The transmit queue as the engine sees it: counts octets and diverts frames to the adapter's own MAC address.

use super::environment::Link;
use super::loopback::Loopback;
use roce::Transmit;

/// The environment's transmit queue for one run of the pump.
pub struct Outgoing<'a> {
    queue: &'a mut dyn Transmit,
    loopback: &'a Loopback,
    link: Link,
    octets: usize,
}

impl<'a> Outgoing<'a> {
    pub fn new(queue: &'a mut dyn Transmit, loopback: &'a Loopback, link: Link) -> Self {
        Self { queue, loopback, link, octets: 0 }
    }

    /// Returns the number of octets committed so far.
    pub fn octets(&self) -> usize {
        self.octets
    }

    /// Returns an upper bound of a frame's length in bytes: an IP packet and more than its link headers need.
    fn max_frame(&self) -> usize {
        (self.link.mtu as usize).saturating_add(64)
    }
}

impl Transmit for Outgoing<'_> {
    fn slot(&mut self) -> Option<&mut [u8]> {
        if self.loopback.is_open() && !self.loopback.has_room(self.max_frame()) {
            return None;
        }
        self.queue.slot()
    }

    fn commit(&mut self, len: usize) {
        self.octets = self.octets.wrapping_add(len);
        if self.loopback.is_open()
            && let Some(frame) = self.queue.slot().and_then(|slot| slot.get(..len))
            && frame.starts_with(&self.link.mac)
        {
            // Not committed: the slot stays free.
            return self.loopback.push(frame);
        }
        self.queue.commit(len);
    }
}
