// SPDX-License-Identifier: MIT OR Apache-2.0

//! The transmit queue.

use core::net::{IpAddr, SocketAddr};
use std::collections::HashMap;
use std::sync::Arc;

use roce::{Instant, Transmit};
use roce_wire::UDP_PORT;

use super::capture::Capture;
use super::faults::FaultInjector;
use super::frame::{FRAME, FrameBuffer, port_of};
use super::headers;
use super::next_hops::NextHops;
use super::routing::{self, Target};
use crate::environment::Faults;
use crate::sys::{self, BATCH, Netlink, PacketSocket, UdpSocket};

/// Tries to pass a datagram to a kernel whose buffer is full.
const TRIES: u32 = 64;

/// A batch of frames to transmit.
#[derive(Debug)]
pub struct Outgoing {
    address: IpAddr,
    slot: u8,
    faults: FaultInjector,
    capture: Option<Arc<Capture>>,
    buffers: Vec<FrameBuffer>,
    /// Of the frames in the first buffers.
    lengths: Vec<usize>,
    sockets: Sockets,
    /// On a link of Ethernet frames.
    next_hops: Option<NextHops<Netlink>>,
    sent: Sent,
}

/// Frames by the way that they left.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    pub datagrams: u64,
    pub ethernet: u64,
}

/// Sockets by UDP source port, of which each pair of queue pairs has one.
#[derive(Debug, Default)]
struct Sockets(HashMap<u16, UdpSocket>);

impl Sockets {
    /// Sockets that are open at the same time: descriptors belong to the program.
    const MOST: usize = 256;

    /// Returns the socket of an address; `None` if it cannot be bound now, because another user or a socket of another kind has the port.
    fn get(&mut self, source: SocketAddr) -> Option<&UdpSocket> {
        let Self(sockets) = self;
        if !sockets.contains_key(&source.port()) {
            let socket = UdpSocket::bind(source, true).ok()?;
            if sockets.len() == Self::MOST {
                sockets.clear();
            }
            sockets.insert(source.port(), socket);
        }
        sockets.get(&source.port())
    }
}

/// A datagram of the batch.
#[derive(Clone, Copy)]
struct Datagram<'a> {
    /// The frame leaves as it is.
    is_frame: bool,
    source_port: u16,
    destination: SocketAddr,
    /// The whole frame.
    frame: &'a [u8],
    bytes: &'a [u8],
}

impl Outgoing {
    pub fn new(
        address: IpAddr,
        slot: u8,
        faults: Faults,
        capture: Option<Arc<Capture>>,
        next_hops: Option<NextHops<Netlink>>,
    ) -> Self {
        let buffers = vec![[0; FRAME]; BATCH];
        Self {
            address,
            slot,
            faults: FaultInjector::new(faults),
            capture,
            buffers,
            lengths: Vec::with_capacity(BATCH),
            sockets: Sockets::default(),
            next_hops,
            sent: Sent::default(),
        }
    }

    /// Returns the number of frames that fit.
    pub fn room(&self) -> usize {
        BATCH - self.lengths.len()
    }

    /// Returns how many frames have left.
    pub fn sent(&self) -> Sent {
        self.sent
    }

    /// Transmits the batch: by `frames` what has a next hop on its interface, all else as datagrams, by `main` those of the RoCEv2 port.
    /// What the kernel does not take is lost, as on a network: the transport repairs that.
    pub fn flush(&mut self, now: Instant, main: &UdpSocket, frames: Option<&PacketSocket>) {
        let Self { address, slot, faults, capture, buffers, lengths, sockets, next_hops, sent } = self;
        let mut datagrams = Vec::with_capacity(lengths.len());
        for (buffer, &len) in buffers.iter_mut().zip(&*lengths) {
            let frame = &mut buffer[..len];
            let is_frame = next_hops.as_mut().is_some_and(|next_hops| next_hops.complete(now, frame));
            datagrams.extend(datagram(*address, *slot, frame).map(|parts| Datagram { is_frame, ..parts }));
        }
        if faults.is_active() {
            datagrams = faults.apply(datagrams);
        }
        if let Some(capture) = capture {
            capture.record(datagrams.iter().map(|datagram| datagram.frame));
        }
        let way = |datagram: &Datagram<'_>| (!datagram.is_frame).then_some(datagram.source_port);
        for group in datagrams.chunk_by(|a, b| way(a) == way(b)) {
            let is_frame = group.first().is_some_and(|first| first.is_frame);
            *(if is_frame { &mut sent.ethernet } else { &mut sent.datagrams }) += group.len() as u64;
            match (group.first().and_then(way), frames) {
                (None, Some(socket)) => {
                    send_all(group, |rest| socket.send(rest.iter().map(|datagram| datagram.frame)));
                }
                (Some(UDP_PORT), _) => send(main, group),
                (Some(port), _) => {
                    if let Some(socket) = sockets.get(SocketAddr::new(*address, port)) {
                        send(socket, group);
                    }
                }
                (None, None) => {}
            }
        }
        lengths.clear();
    }
}

impl Transmit for Outgoing {
    fn slot(&mut self) -> Option<&mut [u8]> {
        self.buffers.get_mut(self.lengths.len()).map(<[u8; FRAME]>::as_mut_slice)
    }

    fn commit(&mut self, len: usize) {
        self.lengths.push(len);
    }
}

/// Returns the datagram of a frame: to the port of a slot if it is for a process at the same address.
fn datagram(local: IpAddr, own_slot: u8, frame: &[u8]) -> Option<Datagram<'_>> {
    let parts = headers::Outgoing::of(frame)?;
    let slot = match routing::of(parts.datagram) {
        _ if parts.destination != local => 0,
        Some(Target::Slot(slot)) => slot,
        // Found when it is received.
        _ => own_slot,
    };
    let destination = SocketAddr::new(parts.destination, port_of(slot));
    Some(Datagram {
        is_frame: false,
        source_port: parts.source_port,
        destination,
        frame,
        bytes: parts.datagram,
    })
}

fn send(socket: &UdpSocket, datagrams: &[Datagram<'_>]) {
    send_all(datagrams, |rest| {
        sys::send(socket, rest.iter().map(|datagram| (datagram.destination, datagram.bytes)))
    });
}

/// Calls `pass` with what is left until the kernel has taken all. It returns how many the kernel has taken.
fn send_all(datagrams: &[Datagram<'_>], pass: impl Fn(&[Datagram<'_>]) -> usize) {
    let mut rest = datagrams;
    let mut tries = 0;
    while !rest.is_empty() {
        let taken = pass(rest);
        if taken > 0 {
            tries = 0;
            rest = &rest[taken..];
        } else if tries < TRIES {
            tries += 1;
            sys::yield_processor();
        } else {
            // Full for long, or this one cannot be sent.
            rest = &rest[1..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_port_is_tried_again_and_few_are_open() {
        let address = [127, 9, 9, 3].into();
        let mut sockets = Sockets::default();
        let taken = std::net::UdpSocket::bind((address, 50_000)).unwrap();
        let source = SocketAddr::new(address, 50_000);
        assert!(sockets.get(source).is_none());
        drop(taken);
        assert!(sockets.get(source).is_some());
        for port in 50_000..50_400 {
            assert!(sockets.get(SocketAddr::new(address, port)).is_some());
            assert!(sockets.0.len() <= Sockets::MOST);
        }
    }
}
