// SPDX-License-Identifier: MIT OR Apache-2.0

//! Executable memory for code that is generated.

use std::{io, ptr};

use crate::memory::PAGE_SIZE;

/// Generated code. It is unmapped on drop.
pub struct Code {
    base: usize,
    size: usize,
}

impl Code {
    /// Maps a copy of `code`, which must not depend on its own address.
    pub fn new(code: &[u8]) -> io::Result<Self> {
        let size = code.len().next_multiple_of(PAGE_SIZE).max(PAGE_SIZE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new private mapping at an address of the system's choice.
        let base = unsafe { libc::mmap(ptr::null_mut(), size, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let this = Self { base: base.expose_provenance(), size };
        // SAFETY: the new mapping has room for it.
        unsafe { ptr::copy_nonoverlapping(code.as_ptr(), base.cast(), code.len()) };
        // SAFETY: our own pages, which are not written again.
        if unsafe { libc::mprotect(base, size, libc::PROT_READ | libc::PROT_EXEC) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(this)
    }

    pub fn base(&self) -> usize {
        self.base
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; the image that called into it is gone.
        unsafe { libc::munmap(ptr::with_exposed_provenance_mut(self.base), self.size) };
    }
}
