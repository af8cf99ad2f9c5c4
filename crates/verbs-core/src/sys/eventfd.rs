// SPDX-License-Identifier: MIT OR Apache-2.0

//! Event file descriptors.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

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
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
