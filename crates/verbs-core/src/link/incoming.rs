// SPDX-License-Identifier: MIT OR Apache-2.0

//! Received frames.

use core::net::IpAddr;
use std::sync::Arc;

use roce::{Instant, Receiver};

use super::capture::Capture;
use super::frame::{FRAME, FrameBuffer};
use super::headers::{self, prefix_len, rebuild};
use super::neighbors::Neighbors;
use super::postponed::Postponed;
use super::ring::Consumer;
use super::routing::{self, Target};
use crate::Lock;
use crate::sys::{self, BATCH, PacketSocket, UdpSocket};

/// Buffers of received frames.
#[derive(Debug)]
pub struct Incoming {
    address: IpAddr,
    slot: u8,
    capture: Option<Arc<Capture>>,
    buffers: Vec<FrameBuffer>,
    postponed: Postponed,
    turn: u32,
}

/// How often sockets are read beside rings, which cost no system call.
const TURNS: u32 = 4;

impl Incoming {
    pub fn new(address: IpAddr, slot: u8, capture: Option<Arc<Capture>>) -> Self {
        Self {
            address,
            slot,
            capture,
            buffers: vec![[0; FRAME]; BATCH],
            postponed: Postponed::default(),
            turn: 0,
        }
    }

    /// Receives datagrams that have arrived, and passes their frames on: to `receiver`, or to the process that they are for. Returns their
    /// number.
    pub fn receive<'a>(
        &mut self,
        socket: &UdpSocket,
        neighbors: &Neighbors,
        now: Instant,
        receiver: impl FnOnce() -> Receiver<'a, Lock>,
    ) -> usize {
        let Self { address, slot, capture, buffers, postponed, .. } = self;
        let prefix = prefix_len(address.is_ipv4());
        let mut arrived = [None; BATCH];
        let rooms = buffers.iter_mut().map(|buffer| &mut buffer[prefix..]);
        let count = sys::receive(socket, rooms, |at, datagram| arrived[at] = Some(datagram));
        if count == 0 {
            return 0;
        }
        let mut receiver = receiver();
        for (datagram, buffer) in arrived.into_iter().zip(&mut *buffers) {
            let Some(datagram) = datagram else { continue };
            rebuild(buffer, datagram.len, datagram.source, *address, datagram.traffic_class);
            let frame = &buffer[..prefix + datagram.len];
            if let Some(capture) = &capture {
                capture.record(core::iter::once(frame));
            }
            match routing::of(&frame[prefix..]) {
                Some(Target::Slot(other)) if other != *slot => {
                    neighbors.pass(other, frame);
                }
                // All others look whether it is theirs.
                Some(Target::Port(port)) if neighbors.is_elsewhere(port) => neighbors.pass_to_all(frame),
                Some(Target::Port(port)) if !neighbors.listens(port) && postponed.add(now, port, frame) => {}
                _ => {
                    receiver.handle_frame(now, frame);
                }
            }
        }
        count
    }

    /// Receives Ethernet frames that have arrived, which every process at the address gets, and passes to `receiver` those for this one; if
    /// it `refuses`, also requests on whose port no process listens. Returns their number.
    pub fn receive_frames<'a>(
        &mut self,
        socket: &PacketSocket,
        refuses: bool,
        neighbors: &Neighbors,
        now: Instant,
        receiver: impl FnOnce() -> Receiver<'a, Lock>,
    ) -> usize {
        let Self { slot, capture, buffers, postponed, .. } = self;
        let mut arrived = [None; BATCH];
        let rooms = buffers.iter_mut().map(<[u8; FRAME]>::as_mut_slice);
        let count = socket.receive(rooms, |at, frame| arrived[at] = Some(frame));
        if count == 0 {
            return 0;
        }
        let mut receiver = receiver();
        for (arrived, buffer) in arrived.into_iter().zip(&mut *buffers) {
            let Some(arrived) = arrived else { continue };
            let frame = &mut buffer[..arrived.len];
            if !arrived.has_checksum {
                headers::clear_checksum(frame);
            }
            let target = headers::Outgoing::of(frame).and_then(|parts| routing::of(parts.datagram));
            let is_own = match target {
                Some(Target::Slot(other)) => other == *slot,
                Some(Target::Port(port)) => neighbors.has(port) || refuses && !neighbors.is_elsewhere(port),
                None => false,
            };
            if !is_own {
                continue;
            }
            if let Some(capture) = &capture {
                capture.record(core::iter::once(&*frame));
            }
            match target {
                Some(Target::Port(port)) if !neighbors.listens(port) && postponed.add(now, port, frame) => {}
                _ => {
                    receiver.handle_frame(now, frame);
                }
            }
        }
        count
    }

    /// Counts a reception from rings. Returns whether sockets are to be read after it.
    pub fn is_turn_of_sockets(&mut self) -> bool {
        self.turn = self.turn.wrapping_add(1);
        self.turn.is_multiple_of(TURNS)
    }

    /// Takes frames that another process has written to a ring, for this one. Returns their number.
    pub fn receive_memory<'a>(
        &mut self,
        ring: &Consumer,
        now: Instant,
        receiver: impl FnOnce() -> Receiver<'a, Lock>,
    ) -> usize {
        let Some(buffer) = self.buffers.first_mut() else { return 0 };
        if !ring.has_frames() {
            return 0;
        }
        let mut receiver = receiver();
        let mut count = 0;
        while count < BATCH
            && let Some(length) = ring.pop(buffer)
        {
            count += 1;
            let frame = &buffer[..length];
            let target = headers::Outgoing::of(frame).and_then(|parts| routing::of(parts.datagram));
            if target == Some(Target::Slot(self.slot)) {
                if let Some(capture) = &self.capture {
                    capture.record(core::iter::once(frame));
                }
                receiver.handle_frame(now, frame);
            }
        }
        count
    }

    /// Takes a frame that another process has passed. Returns whether there was one.
    pub fn take_passed<'a>(
        &mut self,
        neighbors: &Neighbors,
        now: Instant,
        receiver: impl FnOnce() -> Receiver<'a, Lock>,
    ) -> bool {
        let Some(buffer) = self.buffers.first_mut() else { return false };
        let Some(len) = neighbors.take(buffer) else { return false };
        let frame = &buffer[..len];
        let postponed = &mut self.postponed;
        let target = headers::Outgoing::of(frame).and_then(|parts| routing::of(parts.datagram));
        let is_own = match target {
            Some(Target::Port(port)) if neighbors.has(port) => {
                neighbors.listens(port) || !postponed.add(now, port, frame)
            }
            Some(Target::Slot(slot)) => slot == self.slot,
            Some(Target::Port(_)) | None => false,
        };
        if is_own {
            receiver().handle_frame(now, frame);
        }
        true
    }

    /// Passes a request that has waited for its listener on. Without one, the engine refuses it. Returns whether there was one.
    pub fn take_postponed<'a>(
        &mut self,
        neighbors: &Neighbors,
        now: Instant,
        receiver: impl FnOnce() -> Receiver<'a, Lock>,
    ) -> bool {
        let Some((port, frame)) = self.postponed.take(now) else { return false };
        if neighbors.is_elsewhere(port) {
            neighbors.pass_to_all(&frame);
        } else {
            receiver().handle_frame(now, &frame);
        }
        true
    }

    /// Returns the requests that wait for their listener.
    pub fn postponed(&mut self) -> &mut Postponed {
        &mut self.postponed
    }
}
