// SPDX-License-Identifier: MIT OR Apache-2.0

//! The transmit queue as the engine sees it: counts octets and diverts frames to the adapter's own MAC address.

use super::loopback::Loopback;
use crate::base::environment::Link;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    /// A queue with one slot at a time.
    struct Queue {
        slot: Vec<u8>,
        committed: Vec<usize>,
    }

    impl Transmit for Queue {
        fn slot(&mut self) -> Option<&mut [u8]> {
            Some(&mut self.slot)
        }

        fn commit(&mut self, len: usize) {
            self.committed.push(len);
        }
    }

    const LINK: Link = Link { mac: [2, 0, 0, 0, 0, 7], mtu: 4096, scope: 0 };

    #[test]
    fn frame_to_the_own_address_is_looped_back_and_every_other_one_is_sent() {
        let (loopback, mut queue) = (Loopback::new(), Queue { slot: vec![0; 64], committed: Vec::new() });
        assert_eq!(loopback.open(), Ok(()));
        let mut outgoing = Outgoing::new(&mut queue, &loopback, LINK);
        outgoing.slot().unwrap()[..6].copy_from_slice(&LINK.mac);
        outgoing.commit(60);
        assert!(loopback.has_frames());
        outgoing.slot().unwrap()[5] = 8;
        outgoing.commit(61);
        assert_eq!(outgoing.octets(), 121);
        assert_eq!(queue.committed, [61]);
    }

    /// The next frame may be one to the own address, which would be dropped.
    #[test]
    fn there_is_no_slot_while_the_longest_frame_of_the_link_cannot_be_looped_back() {
        let (loopback, mut queue) = (Loopback::new(), Queue { slot: vec![0; 64], committed: Vec::new() });
        assert_eq!(loopback.open(), Ok(()));
        while loopback.has_room(LINK.mtu as usize + 64) {
            loopback.push(&[0; 4150]);
        }
        assert!(loopback.has_room(100), "a short frame still finds room");
        assert!(Outgoing::new(&mut queue, &loopback, LINK).slot().is_none());
        loopback.take(|_| ());
        assert!(Outgoing::new(&mut queue, &loopback, LINK).slot().is_some());
    }
}
