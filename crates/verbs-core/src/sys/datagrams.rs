// SPDX-License-Identifier: MIT OR Apache-2.0

//! Batches of datagrams.

use core::net::SocketAddr;
use std::os::fd::AsFd;

use super::batch::{self, Control};
use super::socket::UdpSocket;

/// Sends datagrams, in order, up to [`BATCH`](super::BATCH). Returns how many the kernel has taken: less if its buffer is full, or if a
/// datagram cannot be sent.
pub fn send<'a>(socket: &UdpSocket, datagrams: impl Iterator<Item = (SocketAddr, &'a [u8])>) -> usize {
    batch::send(socket.as_fd(), datagrams.map(|(to, bytes)| (Some(to), bytes)))
}

/// A received datagram.
#[derive(Clone, Copy)]
pub struct ReceivedDatagram {
    pub source: SocketAddr,
    pub len: usize,
    /// DSCP and ECN of its IP header.
    pub traffic_class: u8,
}

/// Receives datagrams that have arrived into `buffers`, one each, up to [`BATCH`](super::BATCH), without waiting. Returns their number, and
/// calls `each` with the number of the buffer.
pub fn receive<'a>(
    socket: &UdpSocket,
    buffers: impl Iterator<Item = &'a mut [u8]>,
    mut each: impl FnMut(usize, ReceivedDatagram),
) -> usize {
    batch::receive(socket.as_fd(), buffers, |at, message| {
        if let Some(source) = message.source {
            let traffic_class = message.controls().find_map(|control| traffic_class(&control)).unwrap_or(0);
            each(at, ReceivedDatagram { source, len: message.len, traffic_class });
        }
    })
}

/// Returns the traffic class in a control message, if it has one.
fn traffic_class(control: &Control<'_>) -> Option<u8> {
    match (control.level, control.kind) {
        (libc::IPPROTO_IP, libc::IP_TOS) => control.data.first().copied(),
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            u8::try_from(i32::from_ne_bytes(*control.data.first_chunk()?)).ok()
        }
        _ => None,
    }
}
