// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive steering: automatic, until the driver sets an indirection table.
//!
//! Automatic: a flow returns on the pair by which it was last sent, another by its hash. (virtio 5.1.6.5.5) A flow is known by its addresses and ports in either direction. Frames other than IP belong to the first pair.

use std::collections::{HashMap, VecDeque};

use super::scaling::{Hashing, Scaling};
use crate::{checksum::ethertype, link::wire::Frame};

/// Frames that wait for buffers of one pair; more are dropped, as by the queue of a Linux tap device.
const MAX_WAITING: usize = 1000;
/// Flows that are remembered; when there are more, all are forgotten.
const MAX_FLOWS: usize = 4096;

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
/// Of an IPv4 packet: the flag "more fragments" and the offset.
const FRAGMENT: u16 = 0x3fff;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Address and port of one end.
type Side = ([u8; 16], u16);

/// The ends of a flow, the smaller first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Flow([Side; 2]);

/// The pairs in use, the frames that wait for their buffers, and the flows that they sent.
pub struct Steering {
    /// By pair.
    waiting: Vec<VecDeque<Frame>>,
    flows: HashMap<Flow, usize>,
    /// The table that the driver has set last, unless it returned to automatic steering since.
    scaling: Option<Scaling>,
    /// Hash types that are reported without a table.
    hashing: Option<Hashing>,
    /// The pair for which a frame waits as [`Quirks::holds_for_another_queue`](super::Quirks::holds_for_another_queue) says.
    held: Option<usize>,
}

impl Default for Steering {
    fn default() -> Self {
        Self {
            waiting: vec![VecDeque::new()],
            flows: HashMap::new(),
            scaling: None,
            hashing: None,
            held: None,
        }
    }
}

impl Steering {
    /// One pair is in use.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Returns the number of pairs in use.
    pub fn pairs(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of pairs that may send.
    pub fn transmit_pairs(&self) -> usize {
        self.scaling.as_ref().map_or(self.pairs(), |scaling| scaling.transmit_pairs.into())
    }

    /// Steers by a table from now on. Returns the number of frames that waited for a pair that is no longer in use, and are dropped.
    pub fn set_scaling(&mut self, scaling: Scaling) -> u64 {
        let dropped = self.use_pairs(scaling.pairs());
        self.scaling = Some(scaling);
        dropped
    }

    /// Reports hashes from now on, and steers automatically.
    pub fn set_hashing(&mut self, hashing: Hashing) {
        (self.scaling, self.hashing) = (None, Some(hashing));
    }

    pub fn scaling(&self) -> Option<&Scaling> {
        self.scaling.as_ref()
    }

    /// Returns which hashes the device computes.
    pub fn hashing(&self) -> Option<&Hashing> {
        self.scaling.as_ref().map(|scaling| &scaling.hashing).or(self.hashing.as_ref())
    }

    /// Sets the number of pairs in use, and steers automatically, without hashes. Returns as above.
    pub fn set_pairs(&mut self, pairs: usize) -> u64 {
        (self.scaling, self.hashing) = (None, None);
        self.use_pairs(pairs)
    }

    fn use_pairs(&mut self, pairs: usize) -> u64 {
        let dropped = self.waiting.iter().skip(pairs).map(|frames| frames.len() as u64).sum();
        self.waiting.resize_with(pairs, VecDeque::new);
        self.flows.retain(|_, pair| *pair < pairs);
        dropped
    }

    /// A frame was sent by `pair`: its flow returns there.
    pub fn learn(&mut self, frame: &[u8], pair: usize) {
        if self.pairs() == 1 {
            return;
        }
        let Some(flow) = Flow::of(frame) else { return };
        if self.flows.len() == MAX_FLOWS {
            self.flows.clear();
        }
        self.flows.insert(flow, pair);
    }

    /// Adds a frame to those that wait for the pair it belongs to.
    ///
    /// # Errors
    /// The frame, if too many wait.
    pub fn add(&mut self, frame: Frame) -> Result<(), Frame> {
        let pair = self.pair_of(&frame);
        let waiting = &mut self.waiting[pair];
        if waiting.len() == MAX_WAITING {
            return Err(frame);
        }
        waiting.push_back(frame);
        Ok(())
    }

    /// Takes the next frame that waits for a pair.
    pub fn take(&mut self, pair: usize) -> Option<Frame> {
        self.waiting.get_mut(pair)?.pop_front()
    }

    /// Returns the pairs that have waiting frames.
    pub fn waiting(&self) -> Vec<usize> {
        (0..self.pairs()).filter(|&pair| !self.waiting[pair].is_empty()).collect()
    }

    /// Receives nothing from now on: a frame for this pair waits until another one has buffers.
    pub fn hold(&mut self, pair: usize) {
        self.held.get_or_insert(pair);
    }

    /// Returns whether nothing is received.
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// A pair has buffers. Returns the pair for which a frame waited until another one does, if it is another one.
    pub fn release(&mut self, pair: usize) -> Option<usize> {
        self.held.take_if(|held| *held != pair)
    }

    fn pair_of(&self, frame: &[u8]) -> usize {
        if let Some(scaling) = &self.scaling {
            return scaling.pair_of(frame);
        }
        let Some(flow) = Flow::of(frame) else { return 0 };
        self.flows.get(&flow).copied().unwrap_or_else(|| flow.hash() as usize % self.pairs())
    }
}

impl Flow {
    /// Returns the flow of a frame; `None` if it is not IP. Fragments have no ports.
    fn of(frame: &[u8]) -> Option<Self> {
        let (ethertype, at) = ethertype(frame)?;
        let packet = frame.get(at..)?;
        let address = |bytes: &[u8]| {
            let mut address = [0; 16];
            address[..bytes.len()].copy_from_slice(bytes);
            address
        };
        let (from, to, ports) = match ethertype {
            [0x08, 0x00] if packet.len() >= IPV4_HEADER => {
                let len = 4 * usize::from(packet[0] & 0xf);
                let fragment = u16::from_be_bytes([packet[6], packet[7]]) & FRAGMENT;
                let ports = packet.get(len..).filter(|_| fragment == 0 && matches!(packet[9], TCP | UDP));
                (address(&packet[12..16]), address(&packet[16..20]), ports)
            }
            [0x86, 0xdd] if packet.len() >= IPV6_HEADER => {
                let ports = packet.get(IPV6_HEADER..).filter(|_| matches!(packet[6], TCP | UDP));
                (address(&packet[8..24]), address(&packet[24..40]), ports)
            }
            _ => return None,
        };
        let ports = ports.and_then(|bytes| bytes.first_chunk::<4>()).unwrap_or(&[0; 4]);
        let [a, b, c, d] = *ports;
        let mut sides = [(from, u16::from_be_bytes([a, b])), (to, u16::from_be_bytes([c, d]))];
        sides.sort_unstable();
        Some(Self(sides))
    }

    /// FNV-1a: the same in every run.
    fn hash(&self) -> u32 {
        let bytes =
            self.0.iter().flat_map(|(address, port)| address.iter().copied().chain(port.to_be_bytes()));
        let hash =
            bytes.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        hash ^ hash >> 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A UDP packet between hosts 1 and 2.
    fn udp([from, to]: [u8; 2], [source, destination]: [u16; 2]) -> Frame {
        let mut frame = vec![0; 14 + IPV4_HEADER + 8];
        frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
        frame[23] = UDP;
        (frame[29], frame[33]) = (from, to);
        frame[34..36].copy_from_slice(&source.to_be_bytes());
        frame[36..38].copy_from_slice(&destination.to_be_bytes());
        frame
    }

    fn with_pairs(pairs: usize) -> Steering {
        let mut steering = Steering::default();
        assert_eq!(steering.set_pairs(pairs), 0);
        steering
    }

    #[test]
    fn flow_returns_on_the_pair_that_sent_it_last() {
        let mut steering = with_pairs(4);
        for pair in [2, 0, 3, 1] {
            steering.learn(&udp([1, 2], [1000, 53]), pair);
            steering.add(udp([2, 1], [53, 1000])).unwrap();
            assert_eq!(steering.waiting(), [pair]);
            assert!(steering.take(pair).is_some());
        }
    }

    #[test]
    fn unknown_flows_are_spread_over_all_pairs_and_each_has_one() {
        let mut steering = with_pairs(4);
        for _ in 0..2 {
            for port in 0..64 {
                steering.add(udp([2, 1], [port, 4791])).unwrap();
            }
        }
        assert_eq!(steering.waiting(), [0, 1, 2, 3]);
        for pair in 0..4 {
            let mut frames: Vec<_> = std::iter::from_fn(|| steering.take(pair)).collect();
            let second = frames.split_off(frames.len() / 2);
            assert_eq!(frames, second, "a flow stays with its pair");
        }
    }

    #[test]
    fn fragments_and_frames_other_than_ip_do_not_depend_on_ports() {
        let fragment = |ports, flags: [u8; 2]| {
            let mut frame = udp([1, 2], ports);
            frame[20..22].copy_from_slice(&flags);
            Flow::of(&frame).unwrap()
        };
        assert_eq!(fragment([1, 2], [0x20, 0]), fragment([3, 4], [0x00, 9]));
        assert_ne!(fragment([1, 2], [0x40, 0]), fragment([3, 4], [0x40, 0]), "DF is no fragment");
        let icmp = |ports| {
            let mut frame = udp([1, 2], ports);
            frame[23] = 1;
            Flow::of(&frame)
        };
        assert_eq!(icmp([1, 2]), icmp([3, 4]));
        let ipv6 = |next: u8, port: u8| {
            let mut frame = vec![0; 14 + IPV6_HEADER + 8];
            (frame[12], frame[13], frame[20], frame[55]) = (0x86, 0xdd, next, port);
            Flow::of(&frame)
        };
        assert_eq!(ipv6(58, 1), ipv6(58, 2));
        assert_ne!(ipv6(UDP, 1), ipv6(UDP, 2));
        let mut steering = with_pairs(4);
        steering.add(vec![0; 60]).unwrap();
        steering.add(vec![0; 5]).unwrap();
        assert_eq!(steering.waiting(), [0]);
    }

    #[test]
    fn frame_that_is_held_is_released_by_another_pair_or_a_reset() {
        let mut steering = with_pairs(4);
        steering.hold(2);
        steering.hold(3);
        assert_eq!((steering.release(2), steering.is_held()), (None, true));
        assert_eq!((steering.release(0), steering.is_held()), (Some(2), false));
        assert_eq!(steering.release(0), None);
        steering.hold(1);
        steering.reset();
        assert!(!steering.is_held());
    }

    #[test]
    fn flows_beyond_the_limit_are_forgotten() {
        let mut steering = with_pairs(2);
        for port in 0..MAX_FLOWS as u16 {
            steering.learn(&udp([1, 2], [port, 53]), 1);
        }
        assert_eq!(steering.flows.len(), MAX_FLOWS);
        steering.learn(&udp([1, 2], [9999, 53]), 1);
        assert_eq!(steering.flows.len(), 1);
    }

    #[test]
    fn frames_of_pairs_no_longer_in_use_and_those_beyond_the_limit_are_dropped() {
        let mut steering = with_pairs(2);
        steering.learn(&udp([1, 2], [7, 8]), 1);
        for _ in 0..MAX_WAITING {
            steering.add(udp([2, 1], [8, 7])).unwrap();
        }
        assert!(steering.add(udp([2, 1], [8, 7])).is_err());
        assert_eq!(steering.set_pairs(1), MAX_WAITING as u64);
        steering.add(udp([2, 1], [8, 7])).unwrap();
        assert_eq!(steering.waiting(), [0]);
    }
}
