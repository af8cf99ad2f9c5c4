// SPDX-License-Identifier: MIT OR Apache-2.0

//! Protection domains and registered memory.

use alloc::sync::Arc;
use core::ffi::c_void;

use ndk_abi::ndk::{
    NDK_MR, NDK_MR_FLAG_ALLOW_LOCAL_WRITE, NDK_MR_FLAG_ALLOW_REMOTE_READ, NDK_MR_FLAG_ALLOW_REMOTE_WRITE,
    NDK_PD, NDK_SGE, NDK_SGE_Anonymous,
};

use crate::object::{Object, entry};
use crate::os::{Buffer, Os};
use crate::{Adapter, Status, pending};

/// A protection domain.
pub struct Pd<O: Os> {
    object: Object<O, NDK_PD>,
    adapter: Arc<Adapter<O>>,
}

/// Access rights of a region, besides local reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// For sends and writes.
    LocalRead,
    /// For receives, and as destination of reads.
    LocalWrite,
    /// The peer may read.
    RemoteRead,
    /// The peer may write.
    RemoteWrite,
    /// The peer may write and read.
    RemoteReadWrite,
}

/// Registered memory. Dropping it deregisters it, then frees it.
pub struct Memory<O: Os> {
    region: Region<O>,
    // Declared after the region: memory outlives its registration.
    buffer: O::Buffer,
    local_token: u32,
    remote_token: u32,
    _pd: Arc<Pd<O>>,
}

/// A registered memory region, deregistered before it is closed.
struct Region<O: Os> {
    object: Object<O, NDK_MR>,
}

/// Memory of a peer, as the peer announced it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteMemory {
    /// Virtual address of the first byte at the peer.
    pub address: u64,
    pub token: u32,
    /// Length in bytes.
    pub length: u64,
}

impl<O: Os> Pd<O> {
    /// Creates a protection domain (`NdkCreatePd`).
    ///
    /// # Errors
    /// The status of the provider.
    pub fn new(adapter: &Arc<Adapter<O>>) -> Result<Arc<Self>, Status> {
        let os = adapter.os();
        let create = entry(adapter.object().dispatch().NdkCreatePd)?;
        let raw = pending::create(os, |completion, request, into| {
            // SAFETY: the adapter is open; the context lives until the callback.
            unsafe { create(adapter.raw(), completion, request, into) }
        })?;
        // SAFETY: created above; only this value closes it.
        let object = unsafe { Object::new(os, raw) };
        Ok(Arc::new(Self { object, adapter: Arc::clone(adapter) }))
    }

    /// Returns the adapter.
    #[must_use]
    pub fn adapter(&self) -> &Arc<Adapter<O>> {
        &self.adapter
    }

    pub(crate) fn object(&self) -> &Object<O, NDK_PD> {
        &self.object
    }

    pub(crate) fn os(&self) -> &Arc<O> {
        self.object.os()
    }
}

impl Access {
    fn flags(self) -> u32 {
        match self {
            Self::LocalRead => 0,
            Self::LocalWrite => NDK_MR_FLAG_ALLOW_LOCAL_WRITE,
            Self::RemoteRead => NDK_MR_FLAG_ALLOW_REMOTE_READ,
            Self::RemoteWrite => NDK_MR_FLAG_ALLOW_REMOTE_WRITE,
            Self::RemoteReadWrite => NDK_MR_FLAG_ALLOW_REMOTE_READ | NDK_MR_FLAG_ALLOW_REMOTE_WRITE,
        }
    }
}

impl<O: Os> Memory<O> {
    /// Allocates `length` bytes, at least 1, zeroed, and registers them (`NdkRegisterMr`).
    ///
    /// # Errors
    /// `STATUS_INSUFFICIENT_RESOURCES` without memory; otherwise the status of the provider.
    pub fn new(pd: &Arc<Pd<O>>, length: usize, access: Access) -> Result<Self, Status> {
        let os = pd.os();
        let buffer = os.allocate(length).ok_or(Status::INSUFFICIENT_RESOURCES)?;
        let create = entry(pd.object.dispatch().NdkCreateMr)?;
        let raw = pending::create(os, |completion, request, into| {
            // SAFETY: the protection domain is open; the context lives until the callback.
            unsafe { create(pd.object.raw(), 0, completion, request, into) }
        })?;
        // SAFETY: created above; only this value closes it.
        let object: Object<O, NDK_MR> = unsafe { Object::new(os, raw) };
        let table = object.dispatch();
        let (register, local, remote) = (
            entry(table.NdkRegisterMr)?,
            entry(table.NdkGetLocalTokenFromMr)?,
            entry(table.NdkGetRemoteTokenFromMr)?,
        );
        pending::request(os, |completion, request| {
            // SAFETY: the region is open; the MDL describes `length` locked bytes and outlives the registration.
            unsafe {
                register(object.raw(), buffer.mdl().as_ptr(), length, access.flags(), completion, request)
            }
        })?;
        let region = Region { object };
        // SAFETY: the region was registered above, so that it has tokens, and `region` keeps it open.
        let local_token = os.call(|| unsafe { local(region.object.raw()) });
        // SAFETY: the region was registered above, so that it has tokens, and `region` keeps it open.
        let remote_token = os.call(|| unsafe { remote(region.object.raw()) });
        Ok(Self { region, buffer, local_token, remote_token, _pd: Arc::clone(pd) })
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the address and the remote token of the first `length` bytes, for a peer.
    #[must_use]
    pub fn remote(&self, length: usize) -> RemoteMemory {
        assert!(length <= self.len(), "the range exceeds the memory");
        RemoteMemory {
            address: self.buffer.address().as_ptr() as u64,
            token: self.remote_token,
            length: length as u64,
        }
    }

    /// Returns the SGE of `length` bytes at `offset`.
    #[must_use]
    pub fn sge(&self, offset: usize, length: usize) -> NDK_SGE {
        NDK_SGE {
            Anonymous: NDK_SGE_Anonymous { VirtualAddress: self.at(offset, length).cast::<c_void>() },
            Length: u32::try_from(length).expect("the SGE is smaller than 4 GiB"),
            MemoryRegionToken: self.local_token,
        }
    }

    /// Copies `from` to `offset`.
    pub fn store(&self, offset: usize, from: &[u8]) {
        let to = self.at(offset, from.len());
        // SAFETY: `at` checked the range; a raw copy, because the provider may access the memory at any time.
        unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
    }

    /// Copies from `offset` to `into`.
    pub fn load(&self, offset: usize, into: &mut [u8]) {
        let from = self.at(offset, into.len());
        // SAFETY: `at` checked the range; a raw copy, because the provider may access the memory at any time.
        unsafe { from.copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
    }

    pub(crate) fn region(&self) -> *mut NDK_MR {
        self.region.object.raw()
    }

    pub(crate) fn at(&self, offset: usize, length: usize) -> *mut u8 {
        let end = offset.checked_add(length).expect("the range does not overflow");
        assert!(end <= self.len(), "the range exceeds the memory");
        // SAFETY: `offset` is inside the buffer, or one past it.
        unsafe { self.buffer.address().as_ptr().add(offset) }
    }
}

impl<O: Os> Drop for Region<O> {
    fn drop(&mut self) {
        let Ok(deregister) = entry(self.object.dispatch().NdkDeregisterMr) else { return };
        let done = pending::request(self.object.os(), |completion, request| {
            // SAFETY: the region is registered, and the context lives until the callback.
            unsafe { deregister(self.object.raw(), completion, request) }
        });
        debug_assert_eq!(done, Ok(()), "deregister failed");
    }
}
