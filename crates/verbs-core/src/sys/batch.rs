// SPDX-License-Identifier: MIT OR Apache-2.0

//! Batches of messages of any socket: `sendmmsg` and `recvmmsg`.

use core::mem::MaybeUninit;
use core::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::socket::RawAddress;

/// Most messages of a batch.
pub const BATCH: usize = 32;

/// Room for one control message.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct ControlBuffer([u8; 64]);

/// Sends messages, in order, up to [`BATCH`], to their addresses, or as the socket is bound. Returns how many the kernel has taken: less
/// if its buffer is full, or if a message cannot be sent.
pub fn send<'a>(socket: BorrowedFd<'_>, list: impl Iterator<Item = (Option<SocketAddr>, &'a [u8])>) -> usize {
    let mut addresses = [const { MaybeUninit::<RawAddress>::uninit() }; BATCH];
    let mut pieces = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH];
    let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];
    let mut count = 0;
    let places = addresses.iter_mut().zip(&mut pieces).zip(&mut messages);
    for (((address, piece), message), (to, bytes)) in places.zip(list) {
        let address = to.map(|to| address.write(to.into()));
        // The kernel only reads.
        let base = core::ptr::from_ref(bytes).cast::<libc::c_void>().cast_mut();
        let piece = piece.write(libc::iovec { iov_base: base, iov_len: bytes.len() });
        message.write(header(address, piece, None));
        count += 1;
    }
    // SAFETY: the first `count` messages are initialized. They point to addresses and pieces of the arrays above, which live and do not move,
    // and those to bytes that the caller lends; the kernel only reads them.
    let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr().cast(), count, 0) };
    usize::try_from(sent).unwrap_or(0)
}

/// A received message.
pub struct Received<'a> {
    pub len: usize,
    /// Of the sender, if it is one of IP.
    pub source: Option<SocketAddr>,
    header: &'a libc::msghdr,
}

/// A control message.
pub struct Control<'a> {
    pub level: i32,
    pub kind: i32,
    pub data: &'a [u8],
}

impl Received<'_> {
    /// Returns the control messages.
    pub fn controls(&self) -> impl Iterator<Item = Control<'_>> {
        // SAFETY: the kernel has filled the control buffer that the header describes.
        let mut next = unsafe { libc::CMSG_FIRSTHDR(self.header) };
        core::iter::from_fn(move || {
            let at = next;
            // SAFETY: null, or a control message within the buffer, which is aligned for it.
            let control = unsafe { at.as_ref() }?;
            // SAFETY: `at` is a control message of this header.
            next = unsafe { libc::CMSG_NXTHDR(self.header, at) };
            // SAFETY: the call computes a length.
            let length = control.cmsg_len - unsafe { libc::CMSG_LEN(0) } as usize;
            // SAFETY: the data follows the header of the message.
            let data = unsafe { libc::CMSG_DATA(at) };
            // SAFETY: the kernel has written a message of this length, within the buffer, which lives as long as `self`.
            let data = unsafe { core::slice::from_raw_parts(data, length) };
            Some(Control { level: control.cmsg_level, kind: control.cmsg_type, data })
        })
    }
}

/// Receives messages that have arrived into `buffers`, one each, up to [`BATCH`], without waiting. Returns their number, and calls `each`
/// with the number of the buffer.
pub fn receive<'a>(
    socket: BorrowedFd<'_>,
    buffers: impl Iterator<Item = &'a mut [u8]>,
    mut each: impl FnMut(usize, &Received<'_>),
) -> usize {
    let mut addresses = [const { RawAddress::empty() }; BATCH];
    let mut controls = [ControlBuffer([0; 64]); BATCH];
    let mut pieces = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH];
    let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];
    let mut count = 0;
    let places = addresses.iter_mut().zip(&mut controls).zip(&mut pieces).zip(&mut messages);
    for ((((address, control), piece), message), buffer) in places.zip(buffers) {
        let piece = piece.write(libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() });
        message.write(header(Some(address), piece, Some(control)));
        count += 1;
    }
    let first = messages.as_mut_ptr().cast();
    let (fd, no_time) = (socket.as_raw_fd(), core::ptr::null_mut());
    // SAFETY: the first `count` messages are initialized. They point to addresses, control buffers and pieces of the arrays above, which
    // live and do not move, and the pieces to buffers that the caller lends exclusively.
    let received = unsafe { libc::recvmmsg(fd, first, count, libc::MSG_DONTWAIT, no_time) };
    let received = usize::try_from(received).unwrap_or(0);
    for (at, (message, address)) in messages.iter().zip(&addresses).take(received).enumerate() {
        // SAFETY: less than `received`, which is at most `count`, are initialized.
        let message = unsafe { message.assume_init_ref() };
        let (len, source) = (message.msg_len as usize, address.get());
        each(at, &Received { len, source, header: &message.msg_hdr });
    }
    received
}

fn header(
    address: Option<&mut RawAddress>,
    piece: &mut libc::iovec,
    control: Option<&mut ControlBuffer>,
) -> libc::mmsghdr {
    // SAFETY: all-zero bytes are a valid header without buffers: null pointers and zero lengths.
    let mut message: libc::mmsghdr = unsafe { core::mem::zeroed() };
    if let Some(address) = address {
        message.msg_hdr.msg_namelen = address.len;
        message.msg_hdr.msg_name = address.as_mut_ptr();
    }
    message.msg_hdr.msg_iov = piece;
    message.msg_hdr.msg_iovlen = 1;
    if let Some(control) = control {
        message.msg_hdr.msg_controllen = control.0.len();
        message.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
    }
    message
}
