// SPDX-License-Identifier: MIT OR Apache-2.0

//! Event file descriptors.

use core::time::Duration;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::host::wait_readable;
use crate::error::Error;

/// An eventfd.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// Creates a counter: a read takes one, and blocks at zero unless the application makes the descriptor nonblocking.
    pub fn semaphore() -> Result<Self, Error> {
        Self::new(libc::EFD_SEMAPHORE | libc::EFD_CLOEXEC)
    }

    /// Creates a flag: a read takes all, and never blocks.
    pub fn flag() -> Result<Self, Error> {
        Self::new(libc::EFD_NONBLOCK | libc::EFD_CLOEXEC)
    }

    fn new(flags: i32) -> Result<Self, Error> {
        // SAFETY: the call takes no pointer.
        let fd = unsafe { libc::eventfd(0, flags) };
        if fd < 0 {
            return Err(Error::last());
        }
        // SAFETY: the call has returned a new descriptor that nothing else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Adds one.
    pub fn add(&self) {
        let one = 1u64;
        // SAFETY: `one` is readable for its eight bytes. The write fails only at a count of 2^64 - 2.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
    }

    /// Takes one, or all of a flag. Blocks as the descriptor does.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], [`Error::Interrupted`].
    pub fn take(&self) -> Result<(), Error> {
        let mut count = 0u64;
        // SAFETY: `count` is writable for its eight bytes.
        let read = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
        if read < 0 { Err(Error::last()) } else { Ok(()) }
    }

    /// Takes one, or all of a flag, if there is any: does not wait, even if the descriptor blocks. Returns whether there was one.
    pub fn try_take(&self) -> bool {
        let mut count = 0u64;
        let piece = libc::iovec { iov_base: (&raw mut count).cast(), iov_len: size_of::<u64>() };
        // SAFETY: `piece` is one piece of memory, `count`, which is writable for its eight bytes. An eventfd has no position.
        let read = unsafe { libc::preadv2(self.0.as_raw_fd(), &raw const piece, 1, -1, libc::RWF_NOWAIT) };
        if read < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EOPNOTSUPP) {
            // A kernel before 5.8: here another thread may be faster.
            let mut interest = [(self.0.as_fd(), false)];
            wait_readable(&mut interest, Some(Duration::ZERO));
            return interest[0].1 && self.take().is_ok();
        }
        read > 0
    }
}

impl From<OwnedFd> for EventFd {
    /// Wraps one that another process has passed.
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
