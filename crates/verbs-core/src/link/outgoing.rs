// SPDX-License-Identifier: MIT OR Apache-2.0

//! The transmit queue.

use core::net::{IpAddr, SocketAddr};
use std::collections::HashMap;
use std::sync::Arc;

use roce::Transmit;
use roce_wire::UDP_PORT;

use super::capture::Capture;
use super::faults::FaultInjector;
use super::frame::{FRAME, FrameBuffer, port_of};
use super::headers;
use super::routing::{self, Target};
use crate::environment::Faults;
use crate::sys::{self, BATCH, UdpSocket};

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
    /// By UDP source port; `None` if it cannot be bound.
    sockets: HashMap<u16, Option<UdpSocket>>,
}

/// A datagram of the batch.
#[derive(Clone, Copy)]
struct Datagram<'a> {
    source_port: u16,
    destination: SocketAddr,
    /// The whole frame.
    frame: &'a [u8],
    bytes: &'a [u8],
}

impl Outgoing {
    pub fn new(address: IpAddr, slot: u8, faults: Faults, capture: Option<Arc<Capture>>) -> Self {
        let buffers = vec![[0; FRAME]; BATCH];
        Self {
            address,
            slot,
            faults: FaultInjector::new(faults),
            capture,
            buffers,
            lengths: Vec::with_capacity(BATCH),
            sockets: HashMap::new(),
        }
    }

    /// Returns the number of frames that fit.
    pub fn room(&self) -> usize {
        BATCH - self.lengths.len()
    }

    /// Transmits the batch. What the kernel does not take is lost, as on a network: the transport repairs that.
    pub fn flush(&mut self, main: &UdpSocket) {
        let Self { address, slot, faults, capture, buffers, lengths, sockets } = self;
        let mut datagrams = Vec::with_capacity(lengths.len());
        for (buffer, &len) in buffers.iter().zip(&*lengths) {
            datagrams.extend(datagram(*address, *slot, &buffer[..len]));
        }
        if faults.is_active() {
            datagrams = faults.apply(datagrams);
        }
        if let Some(capture) = capture {
            capture.record(datagrams.iter().map(|datagram| datagram.frame));
        }
        for group in datagrams.chunk_by(|a, b| a.source_port == b.source_port) {
            let Some(first) = group.first() else { continue };
            if first.source_port == UDP_PORT {
                send(main, group);
            } else {
                let source = SocketAddr::new(*address, first.source_port);
                let socket =
                    sockets.entry(first.source_port).or_insert_with(|| UdpSocket::bind(source, true).ok());
                if let Some(socket) = socket {
                    send(socket, group);
                }
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
    Some(Datagram { source_port: parts.source_port, destination, frame, bytes: parts.datagram })
}

fn send(socket: &UdpSocket, datagrams: &[Datagram<'_>]) {
    let mut rest = datagrams;
    let mut tries = 0;
    while !rest.is_empty() {
        let sent = sys::send(socket, rest.iter().map(|datagram| (datagram.destination, datagram.bytes)));
        if sent > 0 {
            tries = 0;
            rest = &rest[sent..];
        } else if tries < TRIES {
            tries += 1;
            sys::yield_processor();
        } else {
            // Full for long, or this datagram cannot be sent.
            rest = &rest[1..];
        }
    }
}
