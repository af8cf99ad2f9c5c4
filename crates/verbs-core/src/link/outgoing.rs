// SPDX-License-Identifier: MIT OR Apache-2.0

//! The transmit queue.

use core::net::{IpAddr, SocketAddr};
use std::collections::HashMap;
use std::sync::Arc;

use roce::{Instant, Transmit};
use roce_wire::UDP_PORT;

use super::capture::Capture;
use super::faults::{self, FaultInjector};
use super::frame::{FRAME, FrameBuffer, port_of};
use super::headers;
use super::memory::Outbound;
use super::neighbors::Neighbors;
use super::next_hops::NextHops;
use super::routing::{self, Target};
use crate::environment::Faults;
use crate::error::Error;
use crate::sys::{self, BATCH, EventFd, Netlink, PacketSocket, UdpSocket};

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
    /// To other processes at this address.
    memory: Option<Outbound>,
    sent: Sent,
}

/// Frames by the way that they left.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    pub datagrams: u64,
    pub ethernet: u64,
    pub memory: u64,
}

/// How a frame leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// In a datagram from this port.
    Datagram(u16),
    /// As it is, by the interface.
    Ethernet,
    /// Through memory, to the process in this slot.
    Memory(u8),
}

/// Sockets by UDP source port, of which each pair of queue pairs has one.
#[derive(Debug)]
struct Sockets {
    open: HashMap<u16, UdpSocket>,
    /// The descriptor of the first one if the program has used all others by then.
    spare: Option<EventFd>,
}

impl Sockets {
    /// Sockets that are open at the same time: descriptors belong to the program.
    const MOST: usize = 256;

    fn new() -> Self {
        Self { open: HashMap::new(), spare: EventFd::flag().ok() }
    }

    /// Returns the socket of an address; `None` if it cannot be bound now, because another user or a socket of another kind has the port.
    fn get(&mut self, source: SocketAddr) -> Option<&UdpSocket> {
        if !self.open.contains_key(&source.port()) {
            let socket = match UdpSocket::bind(source, true) {
                Err(Error::System(libc::EMFILE | libc::ENFILE)) if self.close_one() => {
                    UdpSocket::bind(source, true)
                }
                bound => bound,
            };
            if self.open.len() == Self::MOST {
                self.open.clear();
            }
            self.open.insert(source.port(), socket.ok()?);
        }
        self.open.get(&source.port())
    }

    /// Closes a descriptor. Returns whether there was one.
    fn close_one(&mut self) -> bool {
        match self.open.keys().next().copied() {
            Some(port) => self.open.remove(&port).is_some(),
            None => self.spare.take().is_some(),
        }
    }
}

/// A datagram of the batch.
#[derive(Clone, Copy)]
struct Datagram<'a> {
    way: Way,
    /// Of the process that it is for, if that is another one at the same address.
    slot: Option<u8>,
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
        memory: Option<Outbound>,
    ) -> Self {
        let buffers = vec![[0; FRAME]; BATCH];
        Self {
            address,
            slot,
            faults: FaultInjector::new(faults),
            capture,
            buffers,
            lengths: Vec::with_capacity(BATCH),
            sockets: Sockets::new(),
            next_hops,
            memory,
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

    /// Returns how many frames had faults.
    pub fn fault_counts(&self) -> faults::Counts {
        self.faults.counts()
    }

    /// Transmits the batch: through memory to other processes at this address, by `frames` what has a next hop on its interface, all else as
    /// datagrams, by `main` those of the RoCEv2 port. What the kernel does not take, or has no room, is lost, as on a network: the transport
    /// repairs that.
    pub fn flush(
        &mut self,
        now: Instant,
        main: &UdpSocket,
        frames: Option<&PacketSocket>,
        neighbors: &Neighbors,
    ) {
        let Self { address, slot, faults, capture, buffers, lengths, sockets, next_hops, memory, sent } =
            self;
        let mut datagrams = Vec::with_capacity(lengths.len());
        for (buffer, &len) in buffers.iter_mut().zip(&*lengths) {
            let frame = &mut buffer[..len];
            let is_frame = next_hops.as_mut().is_some_and(|next_hops| next_hops.complete(now, frame));
            let Some(mut datagram) = datagram(*address, *slot, frame) else { continue };
            if is_frame {
                datagram.way = Way::Ethernet;
            } else if let Some(memory) = memory
                && let Some(other) = datagram.slot
                && memory.is_ready(now, other)
            {
                datagram.way = Way::Memory(other);
            }
            datagrams.push(datagram);
        }
        if faults.is_active() {
            datagrams = faults.apply(datagrams);
        }
        if let Some(capture) = capture {
            capture.record(datagrams.iter().map(|datagram| datagram.frame));
        }
        for group in datagrams.chunk_by(|a, b| a.way == b.way) {
            let Some(first) = group.first() else { continue };
            let counter = match (first.way, frames, &mut *memory) {
                (Way::Memory(slot), _, Some(memory)) => {
                    pass_all(group, |rest| memory.push(slot, rest.iter().map(|datagram| datagram.frame)));
                    &mut sent.memory
                }
                (Way::Ethernet, Some(socket), _) => {
                    pass_all(group, |rest| socket.send(rest.iter().map(|datagram| datagram.frame)));
                    &mut sent.ethernet
                }
                (Way::Datagram(UDP_PORT), ..) => {
                    send(main, group);
                    &mut sent.datagrams
                }
                (Way::Datagram(port), ..) => {
                    match sockets.get(SocketAddr::new(*address, port)) {
                        Some(socket) => send(socket, group),
                        // A process of another user has the port: it may be the one at the other end, whose frames have the same.
                        None => pass_all(group, |rest| {
                            let is_passed = rest.first().is_some_and(|datagram| {
                                datagram.slot.is_some_and(|slot| neighbors.pass(slot, datagram.frame))
                            });
                            usize::from(is_passed)
                        }),
                    }
                    &mut sent.datagrams
                }
                (Way::Memory(_) | Way::Ethernet, ..) => continue,
            };
            *counter += group.len() as u64;
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
        _ if parts.destination != local => None,
        Some(Target::Slot(slot)) => Some(slot),
        // Found when it is received.
        _ => Some(own_slot),
    };
    Some(Datagram {
        way: Way::Datagram(parts.source_port),
        slot: slot.filter(|&slot| slot != own_slot),
        destination: SocketAddr::new(parts.destination, port_of(slot.unwrap_or(0))),
        frame,
        bytes: parts.datagram,
    })
}

fn send(socket: &UdpSocket, datagrams: &[Datagram<'_>]) {
    pass_all(datagrams, |rest| {
        sys::send(socket, rest.iter().map(|datagram| (datagram.destination, datagram.bytes)))
    });
}

/// Calls `pass` with what is left until the kernel has taken all. It returns how many the kernel has taken.
fn pass_all(datagrams: &[Datagram<'_>], mut pass: impl FnMut(&[Datagram<'_>]) -> usize) {
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
    use super::super::frame::SLOT_BITS;
    use super::*;

    #[test]
    fn a_source_port_is_tried_again_and_few_are_open() {
        let address = [127, 9, 9, 3].into();
        let mut sockets = Sockets::new();
        let taken = std::net::UdpSocket::bind((address, 50_000)).unwrap();
        let source = SocketAddr::new(address, 50_000);
        assert!(sockets.get(source).is_none());
        drop(taken);
        assert!(sockets.get(source).is_some());
        for port in 50_000..50_400 {
            assert!(sockets.get(SocketAddr::new(address, port)).is_some());
            assert!(sockets.open.len() <= Sockets::MOST);
        }
    }

    #[test]
    fn a_frame_from_a_port_of_another_user_is_passed_to_its_process() {
        let address = [127, 9, 9, 6].into();
        let [own, other] = [0, 1].map(|slot| Neighbors::open(address, slot).unwrap());
        let main = UdpSocket::bind(SocketAddr::new(address, port_of(0)), false).unwrap();
        let mut outgoing = Outgoing::new(address, 0, Faults::default(), None, None, None);
        let port = 50_500;
        let _taken = std::net::UdpSocket::bind((address, port)).unwrap();
        // A BTH to a queue pair of slot 1.
        let (prefix, bth) =
            (headers::prefix_len(true), [0, 0, 0, 0, 0, 1 << (8 - SLOT_BITS), 0, 0, 0, 0, 0, 0]);
        let len = prefix + bth.len();
        let frame = outgoing.slot().unwrap();
        headers::rebuild(frame, bth.len(), SocketAddr::new(address, port), address, 0);
        frame[prefix..len].copy_from_slice(&bth);
        outgoing.commit(len);
        outgoing.flush(Instant::from_nanos(1), &main, None, &own);
        assert_eq!(other.take(&mut [0; FRAME]), Some(len));
    }
}
