// SPDX-License-Identifier: MIT OR Apache-2.0

//! Batches of datagrams: `sendmmsg` and `recvmmsg`.

use core::mem::MaybeUninit;
use core::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use super::socket::{RawAddress, UdpSocket};

/// Most datagrams of a batch.
pub const BATCH: usize = 32;

/// Room for one control message with the traffic class.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 64]);

/// Sends datagrams, in order, up to [`BATCH`]. Returns how many the kernel has taken: less if its buffer is full, or if a datagram
/// cannot be sent.
pub fn send<'a>(socket: &UdpSocket, datagrams: impl Iterator<Item = (SocketAddr, &'a [u8])>) -> usize {
    let mut addresses = [const { MaybeUninit::<RawAddress>::uninit() }; BATCH];
    let mut pieces = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH];
    let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];
    let mut count = 0;
    let places = addresses.iter_mut().zip(&mut pieces).zip(&mut messages);
    for (((address, piece), message), (to, bytes)) in places.zip(datagrams) {
        let address = address.write(to.into());
        // The kernel only reads.
        let base = core::ptr::from_ref(bytes).cast::<libc::c_void>().cast_mut();
        let piece = piece.write(libc::iovec { iov_base: base, iov_len: bytes.len() });
        message.write(header(address, piece, None));
        count += 1;
    }
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the first `count` messages are initialized. They point to addresses and pieces of the arrays above, which live and do not move,
    // and those to bytes that the caller lends; the kernel only reads them.
    let sent = unsafe { libc::sendmmsg(fd, messages.as_mut_ptr().cast(), count, 0) };
    usize::try_from(sent).unwrap_or(0)
}

/// A received datagram.
#[derive(Clone, Copy)]
pub struct ReceivedDatagram {
    pub source: SocketAddr,
    pub len: usize,
    /// DSCP and ECN of its IP header.
    pub traffic_class: u8,
}

/// Receives datagrams that have arrived into `buffers`, one each, up to [`BATCH`], without waiting. Returns their number, and calls `each`
/// with the number of the buffer.
pub fn receive<'a>(
    socket: &UdpSocket,
    buffers: impl Iterator<Item = &'a mut [u8]>,
    mut each: impl FnMut(usize, ReceivedDatagram),
) -> usize {
    let mut addresses = [const { RawAddress::empty() }; BATCH];
    let mut controls = [Control([0; 64]); BATCH];
    let mut pieces = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH];
    let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];
    let mut count = 0;
    let places = addresses.iter_mut().zip(&mut controls).zip(&mut pieces).zip(&mut messages);
    for ((((address, control), piece), message), buffer) in places.zip(buffers) {
        let piece = piece.write(libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() });
        message.write(header(address, piece, Some(control)));
        count += 1;
    }
    let fd = socket.as_fd().as_raw_fd();
    let first = messages.as_mut_ptr().cast();
    // SAFETY: the first `count` messages are initialized. They point to addresses, control buffers and pieces of the arrays above, which
    // live and do not move, and the pieces to buffers that the caller lends exclusively.
    let received = unsafe { libc::recvmmsg(fd, first, count, libc::MSG_DONTWAIT, core::ptr::null_mut()) };
    let received = usize::try_from(received).unwrap_or(0);
    for (at, (message, address)) in messages.iter().zip(&addresses).take(received).enumerate() {
        // SAFETY: less than `received`, which is at most `count`, are initialized.
        let message = unsafe { message.assume_init_ref() };
        if let Some(source) = address.get() {
            let traffic_class = traffic_class(&message.msg_hdr);
            each(at, ReceivedDatagram { source, len: message.msg_len as usize, traffic_class });
        }
    }
    received
}

fn header(address: &mut RawAddress, piece: &mut libc::iovec, control: Option<&mut Control>) -> libc::mmsghdr {
    // SAFETY: all-zero bytes are a valid header without buffers: null pointers and zero lengths.
    let mut message: libc::mmsghdr = unsafe { core::mem::zeroed() };
    message.msg_hdr.msg_namelen = address.len;
    message.msg_hdr.msg_name = address.as_mut_ptr();
    message.msg_hdr.msg_iov = piece;
    message.msg_hdr.msg_iovlen = 1;
    if let Some(control) = control {
        message.msg_hdr.msg_controllen = control.0.len();
        message.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
    }
    message
}

/// Returns the traffic class in the control messages of a received datagram.
fn traffic_class(message: &libc::msghdr) -> u8 {
    // SAFETY: the kernel has filled the control buffer that the header describes.
    let first = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: null, or a control message within the buffer, which is aligned for it.
    let Some(control) = (unsafe { first.as_ref() }) else { return 0 };
    // SAFETY: the data follows the header, within the buffer.
    let data = unsafe { libc::CMSG_DATA(first) };
    match (control.cmsg_level, control.cmsg_type) {
        // SAFETY: a byte of data, which this message has.
        (libc::IPPROTO_IP, libc::IP_TOS) => unsafe { data.read() },
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            // SAFETY: an `int` of data, which this message has, at any alignment.
            let class = unsafe { data.cast::<i32>().read_unaligned() };
            u8::try_from(class).unwrap_or(0)
        }
        _ => 0,
    }
}
