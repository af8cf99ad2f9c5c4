// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that two processes share, which the kernel frees when both have ended.

use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::error::Error;

/// Its size never changes: neither process can take pages from under the other.
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// A mapping of shared memory. The other process may change its content at any time.
#[derive(Debug)]
pub struct SharedMemory {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is unmapped when the value is dropped.
unsafe impl Send for SharedMemory {}
// SAFETY: shared references give atomic values, and copies of bytes that are never referenced.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Creates memory of `len` bytes, all zero, and a descriptor to pass to the other process.
    ///
    /// # Errors
    /// [`Error::System`], [`Error::OutOfMemory`]: the system has no such memory.
    pub fn create(len: usize) -> Result<(Self, OwnedFd), Error> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name ends with a zero byte.
        let fd = unsafe { libc::memfd_create(c"viordma".as_ptr(), flags) };
        if fd < 0 {
            return Err(Error::last());
        }
        // SAFETY: the call has returned a new descriptor that nothing else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let size = libc::off_t::try_from(len).map_err(|_| Error::Invalid)?;
        // All pages are there from now on: an access later cannot fail.
        // SAFETY: the call takes no pointer.
        if unsafe { libc::fallocate(fd.as_raw_fd(), 0, 0, size) } < 0 {
            return Err(Error::last());
        }
        // SAFETY: the call takes no pointer.
        if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } < 0 {
            return Err(Error::last());
        }
        Ok((Self::map(&fd, len)?, fd))
    }

    /// Maps memory that another process has created with this size.
    ///
    /// # Errors
    /// [`Error::Invalid`] if its size differs, or can change; [`Error::System`].
    pub fn open(fd: &OwnedFd, len: usize) -> Result<Self, Error> {
        // SAFETY: the call takes no pointer.
        let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
        // SAFETY: all-zero bytes are a valid `stat`: it consists of integers.
        let mut stat: libc::stat = unsafe { core::mem::zeroed() };
        // SAFETY: `stat` is a variable of this function that the call may write.
        let known = unsafe { libc::fstat(fd.as_raw_fd(), &raw mut stat) } == 0;
        if !known || seals < 0 || seals & SEALS != SEALS || usize::try_from(stat.st_size) != Ok(len) {
            return Err(Error::Invalid);
        }
        Self::map(fd, len)
    }

    fn map(fd: &OwnedFd, len: usize) -> Result<Self, Error> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let anywhere = core::ptr::null_mut();
        // SAFETY: a new mapping, where no other is.
        let base = unsafe { libc::mmap(anywhere, len, access, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(Error::last());
        }
        let base = NonNull::new(base.cast()).ok_or(Error::OutOfMemory)?;
        Ok(Self { base, len })
    }

    /// Returns the number at an offset, which is a multiple of 8.
    pub fn number(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.len);
        // SAFETY: within the mapping, as asserted.
        let number = unsafe { self.base.add(at) };
        // SAFETY: aligned, as the mapping begins with a page; it lives as long as `self`, and both processes access it atomically.
        unsafe { number.cast::<AtomicU64>().as_ref() }
    }

    /// Copies bytes to an offset.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at <= self.len && bytes.len() <= self.len - at);
        // SAFETY: within the mapping, as asserted.
        let to = unsafe { self.base.add(at) };
        // SAFETY: both are valid for the length, and `bytes` is memory of this process alone. If the other process reads or writes there at the
        // same time, against the protocol, one of them sees a mixture: bytes without a meaning to this program.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
    }

    /// Copies bytes from an offset.
    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        assert!(at <= self.len && bytes.len() <= self.len - at);
        // SAFETY: within the mapping, as asserted.
        let from = unsafe { self.base.add(at) };
        // SAFETY: as for `write`: the copy is checked as a frame from a network is.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), bytes.as_mut_ptr(), bytes.len()) };
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping of this value, to which nothing refers any longer.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_whose_size_can_change_is_refused() {
        let (memory, fd) = SharedMemory::create(8192).unwrap();
        memory.write(4096, b"text");
        let other = SharedMemory::open(&fd, 8192).unwrap();
        let mut bytes = [0; 4];
        other.read(4096, &mut bytes);
        assert_eq!(&bytes, b"text");
        assert_eq!(SharedMemory::open(&fd, 4096).err(), Some(Error::Invalid));
        let file = std::fs::File::from(fd);
        assert!(file.set_len(0).is_err(), "sealed");
        // SAFETY: the name ends with a zero byte.
        let plain = unsafe { libc::memfd_create(c"plain".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: the call has returned a new descriptor that nothing else owns.
        let plain = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(plain) });
        plain.set_len(8192).unwrap();
        assert_eq!(SharedMemory::open(&plain.into(), 8192).err(), Some(Error::Invalid));
    }
}
