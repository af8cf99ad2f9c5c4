// SPDX-License-Identifier: MIT OR Apache-2.0

//! Received datagrams.

use core::net::IpAddr;

use roce::{Instant, Receiver};

use super::frame::{FRAME, FrameBuffer};
use super::headers::{prefix_len, rebuild};
use crate::Lock;
use crate::sys::{self, BATCH, UdpSocket};

/// Buffers of received frames.
#[derive(Debug)]
pub struct Incoming {
    address: IpAddr,
    buffers: Vec<FrameBuffer>,
}

impl Incoming {
    pub fn new(address: IpAddr) -> Self {
        Self { address, buffers: vec![[0; FRAME]; BATCH] }
    }

    /// Receives datagrams that have arrived, and passes their frames on. Returns their number.
    pub fn receive<'a>(
        &mut self,
        socket: &UdpSocket,
        now: Instant,
        receiver: impl FnOnce() -> Receiver<'a, Lock>,
    ) -> usize {
        let Self { address, buffers } = self;
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
            receiver.handle_frame(now, &buffer[..prefix + datagram.len]);
        }
        count
    }
}
