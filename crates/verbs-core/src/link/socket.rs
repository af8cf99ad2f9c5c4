// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sockets by which frames arrive.

use core::net::{IpAddr, SocketAddr};

use roce_wire::UDP_PORT;

use super::frame::port_of;
use crate::error::Error;
use crate::sys::{Filter, PacketSocket, UdpSocket};

/// Send buffer that is asked for: rings of NICs are of this order.
const SEND_BYTES: i32 = 8 << 20;

/// Receive buffer that is asked for, of which the kernel counts twice as much. Unreliable services have no window: what a peer sends while
/// this process is not scheduled is lost unless it fits.
const RECEIVE_BYTES: i32 = 64 << 20;

/// Binds the port of a slot, with large buffers. Datagrams that have arrived by the interface `except` are dropped.
///
/// # Errors
/// [`Error::AddressInUse`] if a process has it; [`Error::System`] if the address is not one of this host.
pub fn bind(address: IpAddr, slot: u8, except: Option<u32>) -> Result<UdpSocket, Error> {
    let socket = UdpSocket::bind(SocketAddr::new(address, port_of(slot)), false)?;
    if let Some(interface) = except {
        Filter::not_by(interface).attach(&socket)?;
    }
    socket.enlarge_buffers(RECEIVE_BYTES, SEND_BYTES);
    Ok(socket)
}

/// Opens a packet socket for frames to an address, with large buffers.
///
/// # Errors
/// Those of [`PacketSocket::open`].
pub fn open_packets(interface: u32, address: IpAddr) -> Result<PacketSocket, Error> {
    let socket = PacketSocket::open(interface, address, UDP_PORT)?;
    socket.enlarge_buffers(RECEIVE_BYTES, SEND_BYTES);
    Ok(socket)
}
