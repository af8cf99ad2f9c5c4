// SPDX-License-Identifier: MIT OR Apache-2.0

//! Descriptors that are passed to another process through a Unix socket.

use core::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::error::Error;

/// Room for a control message with one descriptor.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Passes a descriptor.
///
/// # Errors
/// [`Error::WouldBlock`], [`Error::System`].
pub fn pass_descriptor(socket: &UnixStream, fd: BorrowedFd<'_>) -> Result<(), Error> {
    let number = fd.as_raw_fd();
    with_message(|message, control| {
        // SAFETY: the call computes a length.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<i32>() as u32) } as usize;
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: the message has a control buffer.
        let first = unsafe { libc::CMSG_FIRSTHDR(message) };
        // SAFETY: null, or the begin of the buffer, which has room for a header and is aligned for it; all its bits are valid integers.
        let Some(header) = (unsafe { first.as_mut() }) else { return Err(Error::Invalid) };
        header.cmsg_level = libc::SOL_SOCKET;
        header.cmsg_type = libc::SCM_RIGHTS;
        // SAFETY: the call computes a length.
        header.cmsg_len = unsafe { libc::CMSG_LEN(size_of::<i32>() as u32) } as usize;
        // SAFETY: `header` is the first one of the buffer, behind which its data follows.
        let data = unsafe { libc::CMSG_DATA(first) };
        // SAFETY: the buffer has room for a descriptor there.
        unsafe { data.cast::<i32>().write_unaligned(number) };
        // SAFETY: the message points to one byte and to the control buffer, which live until after the call.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), message, libc::MSG_NOSIGNAL) };
        if sent < 0 { Err(Error::last()) } else { Ok(()) }
    })
}

/// Takes a descriptor that the other process has passed. `None`: none has come yet.
///
/// # Errors
/// [`Error::System`] with ECONNRESET if the other end is closed; [`Error::Invalid`] if it has sent something else.
pub fn take_descriptor(socket: &UnixStream) -> Result<Option<OwnedFd>, Error> {
    with_message(|message, control| {
        // Room for one: the kernel opens no other, which would stay open.
        // SAFETY: the call computes a length.
        message.msg_controllen = unsafe { libc::CMSG_LEN(size_of::<i32>() as u32) } as usize;
        message.msg_control = control.0.as_mut_ptr().cast();
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: the message points to one byte and to the control buffer, which are writable.
        let received = unsafe { libc::recvmsg(socket.as_raw_fd(), message, flags) };
        match received {
            0 => return Err(Error::System(libc::ECONNRESET)),
            1 => {}
            _ => match Error::last() {
                Error::WouldBlock => return Ok(None),
                error => return Err(error),
            },
        }
        // SAFETY: the kernel has filled the control buffer that the message describes.
        let first = unsafe { libc::CMSG_FIRSTHDR(message) };
        // SAFETY: null, or a control message within the buffer, which is aligned for it.
        let Some(header) = (unsafe { first.as_ref() }) else { return Err(Error::Invalid) };
        if (header.cmsg_level, header.cmsg_type) != (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            return Err(Error::Invalid);
        }
        // SAFETY: the data follows the header: at least one descriptor.
        let data = unsafe { libc::CMSG_DATA(first) };
        // SAFETY: a descriptor, at any alignment.
        let number = unsafe { data.cast::<i32>().read_unaligned() };
        // SAFETY: the kernel has made this descriptor for this process, and nothing else owns it.
        Ok(Some(unsafe { OwnedFd::from_raw_fd(number) }))
    })
}

/// Calls `use_message` with a message of one byte, and a buffer for control messages.
fn with_message<T>(use_message: impl FnOnce(&mut libc::msghdr, &mut Control) -> T) -> T {
    let (mut byte, mut control) = (0u8, Control([0; 64]));
    let mut piece = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: all-zero bytes are a valid header without buffers: null pointers and zero lengths.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    use_message(&mut message, &mut control)
}

/// Returns whether the process at the other end has the same user as this one.
pub fn is_of_same_user(socket: &UnixStream) -> bool {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let to = (&raw mut peer).cast();
    // SAFETY: `peer` is writable for `len` bytes, and `len` is writable.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, to, &raw mut len)
    };
    // SAFETY: the call takes no pointer.
    result == 0 && peer.uid == unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::AsFd as _;

    use super::*;

    /// Sends a byte with two descriptors.
    fn pass_two(socket: &UnixStream, fds: [BorrowedFd<'_>; 2]) {
        let numbers = fds.map(|fd| fd.as_raw_fd());
        let size = size_of_val(&numbers) as u32;
        with_message(|message, control| {
            // SAFETY: the call computes a length.
            message.msg_controllen = unsafe { libc::CMSG_SPACE(size) } as usize;
            message.msg_control = control.0.as_mut_ptr().cast();
            // SAFETY: the message has a control buffer.
            let first = unsafe { libc::CMSG_FIRSTHDR(message) };
            // SAFETY: the call computes a length.
            let cmsg_len = unsafe { libc::CMSG_LEN(size) } as usize;
            let header =
                libc::cmsghdr { cmsg_len, cmsg_level: libc::SOL_SOCKET, cmsg_type: libc::SCM_RIGHTS };
            // SAFETY: the begin of the buffer, which has room for a header and is aligned for it.
            unsafe { first.write(header) };
            // SAFETY: `first` is the header of the buffer, behind which its data follows.
            let data = unsafe { libc::CMSG_DATA(first) };
            // SAFETY: the buffer has room for two descriptors there.
            unsafe { data.cast::<[i32; 2]>().write_unaligned(numbers) };
            // SAFETY: the message points to one byte and to the control buffer, which live until after the call.
            assert_eq!(unsafe { libc::sendmsg(socket.as_raw_fd(), message, 0) }, 1);
        });
    }

    #[test]
    fn a_descriptor_beyond_the_first_is_not_opened() {
        let [(near, far), (ours, theirs)] = [(); 2].map(|()| UnixStream::pair().unwrap());
        pass_two(&near, [theirs.as_fd(), theirs.as_fd()]);
        drop(theirs);
        let taken = take_descriptor(&far).unwrap().unwrap();
        drop(taken);
        // No other descriptor of the end is open.
        ours.set_nonblocking(true).unwrap();
        assert_eq!((&ours).read(&mut [0]).unwrap(), 0);
    }
}
