// SPDX-License-Identifier: MIT OR Apache-2.0

//! [`MemoryCommands`]: commands for regions, windows and logical addresses.

use lock_api::RawMutex;

use super::Engine;
use crate::error::{CreateError, ReregisterError};
use crate::memory::Backing;
use crate::region::access_rights::{Access, Pd};
use crate::region::memory_region::{MemoryWindow, Region};
use crate::region::window::WindowType;
use crate::work::Sge;
use fallible::Arc;

impl<R: RawMutex> Engine<R> {
    /// Returns the commands for regions, windows and logical addresses.
    #[inline]
    #[must_use]
    pub fn memory(&self) -> MemoryCommands<'_, R> {
        MemoryCommands { engine: self }
    }
}

/// The commands of an engine for regions, windows and logical addresses, at the caller's IRQL, without blocking: [`Engine::memory`].
#[derive(Clone, Copy, Debug)]
pub struct MemoryCommands<'a, R: RawMutex> {
    engine: &'a Engine<R>,
}

#[allow(clippy::must_use_candidate, reason = "calls that do something, through a shared reference")]
impl<R: RawMutex> MemoryCommands<'_, R> {
    /// Registers memory: `length` bytes at the addresses from `base` on, as the consumer and its peers see them.
    ///
    /// # Errors
    /// [`CreateError::Invalid`] if the range wraps or the backing is shorter; [`CreateError::TooMany`];
    /// [`CreateError::OutOfMemory`].
    ///
    /// # Safety
    /// The contract of [`Backing::push`] holds until [`Self::deregister`] has returned.
    #[allow(unsafe_code, reason = "passes the contract of a backing on to the caller")]
    pub unsafe fn register(
        &self,
        pd: Pd,
        base: u64,
        length: u64,
        access: Access,
        backing: Backing,
    ) -> Result<Arc<Region>, CreateError> {
        self.engine.qps.shared.regions.register(pd, base, length, access, backing)
    }

    /// Registers other memory, rights or another protection domain for a region that [`Self::register`] has returned, and returns the region
    /// that takes its place, with the same keys. After the return the former memory is no longer read or written. Meanwhile requests that
    /// name the keys fail. Waits as [`Self::deregister`] does. IRQL <= `DISPATCH_LEVEL`.
    ///
    /// # Errors
    /// See [`ReregisterError`]; the region is as before.
    ///
    /// # Safety
    /// The contract of [`Backing::push`] holds until [`Self::deregister`] of the new region has returned.
    #[allow(unsafe_code, reason = "passes the contract of a backing on to the caller")]
    pub unsafe fn reregister(
        &self,
        region: &Region,
        pd: Pd,
        base: u64,
        length: u64,
        access: Access,
        backing: Backing,
    ) -> Result<Arc<Region>, ReregisterError> {
        self.engine.qps.shared.regions.reregister(region, pd, (base, length), access, backing)
    }

    /// Deregisters a region. After the return its memory is no longer read or written through it, and its key is
    /// invalid: requests that name it fail. Returns `false` if it was deregistered before. Spins until the packets
    /// being processed and the batches that use it are done: never with a [`Receiver`](crate::Receiver) on this thread.
    /// IRQL <= `DISPATCH_LEVEL`.
    pub fn deregister(&self, region: &Region) -> bool {
        self.engine.qps.shared.regions.deregister(region)
    }

    /// Allocates a region for fast registration ([`crate::SendOperation::FastRegister`]) of up to `pages`
    /// pages of 4096 bytes, at most 65,536; with rights for peers only if `remote`. It is free and grants no access
    /// yet. [`Self::deregister`] frees it in any state: registrations posted and not executed fail.
    ///
    /// # Errors
    /// [`CreateError::Invalid`], [`CreateError::TooMany`], [`CreateError::OutOfMemory`].
    pub fn allocate_region(&self, pd: Pd, pages: u32, remote: bool) -> Result<Arc<Region>, CreateError> {
        self.engine.qps.shared.regions.allocate(pd, pages, remote)
    }

    /// Creates a memory window, bound by [`crate::SendOperation::Bind`]. It counts as a region.
    ///
    /// # Errors
    /// [`CreateError::TooMany`], [`CreateError::OutOfMemory`].
    pub fn create_window(&self, pd: Pd, window_type: WindowType) -> Result<MemoryWindow, CreateError> {
        self.engine.qps.shared.regions.create_window(pd, window_type)
    }

    /// Destroys a window. After the return no memory is accessed through it, binds posted and not executed fail, and
    /// its region no longer counts it. Returns `false` if it was destroyed before. Spins until the packets being
    /// processed and the batches that use it are done: never with a [`Receiver`](crate::Receiver) on this thread.
    /// IRQL <= `DISPATCH_LEVEL`.
    pub fn destroy_window(&self, window: &MemoryWindow) -> bool {
        self.engine.qps.shared.regions.destroy_window(window)
    }

    /// Maps memory to contiguous logical addresses, for elements with [`crate::PRIVILEGED_KEY`]: it begins `offset`
    /// bytes after the returned base. The base is a multiple of 2^40, so that `offset` can preserve the memory's
    /// alignment in pages. `offset` plus the length must be less than 2^40.
    ///
    /// # Errors
    /// [`CreateError::Invalid`] if the range is too long; [`CreateError::TooMany`]; [`CreateError::OutOfMemory`].
    ///
    /// # Safety
    /// The contract of [`Backing::push`] holds until [`Self::unmap_logical`] has returned.
    #[allow(unsafe_code, reason = "passes the contract of a backing on to the caller")]
    pub unsafe fn map_logical(&self, offset: u64, backing: Backing) -> Result<u64, CreateError> {
        self.engine.qps.shared.regions.map_logical(offset, backing)
    }

    /// Unmaps logical addresses by the base that [`Self::map_logical`] returned. After the return the memory is no
    /// longer accessed through them. Returns `false` if there are none at `base`.
    pub fn unmap_logical(&self, base: u64) -> bool {
        self.engine.qps.shared.regions.unmap_logical(base)
    }

    /// Returns whether a scatter/gather element of a local request can become valid: `write` if the request writes to
    /// it. For checks of the consumer; requests are checked when they are executed.
    pub fn is_known_local(&self, pd: Pd, sge: &Sge, write: bool) -> bool {
        self.engine.qps.shared.regions.is_known_local(pd, sge, write)
    }
}
