// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that requests register for a peer (fast registration).

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use core::ffi::c_void;
use core::ptr::{self, NonNull};

use ndk_abi::ndk::{
    NDK_LOGICAL_ADDRESS, NDK_LOGICAL_ADDRESS_MAPPING, NDK_MR, NDK_OBJECT_HEADER,
    NDK_OP_FLAG_ALLOW_LOCAL_WRITE, NDK_OP_FLAG_ALLOW_REMOTE_READ, NDK_OP_FLAG_ALLOW_REMOTE_WRITE,
};

use crate::memory::{Access, Pd, RemoteMemory};
use crate::object::{Object, entry};
use crate::os::{Buffer, Os};
use crate::{Adapter, Status, pending};

/// Locked memory with logical addresses, and a region initialized for fast registration. Peers have no access until
/// [`crate::Qp::fast_register`] completes.
pub struct FastMemory<O: Os> {
    region: Object<O, NDK_MR>,
    // Declared after the region and before the memory: closed in this order.
    mapping: Mapping<O>,
    buffer: O::Buffer,
    remote_token: u32,
    _pd: Arc<Pd<O>>,
}

/// The logical address mapping of a buffer (`NdkBuildLAM`). Dropping it releases the mapping.
struct Mapping<O: Os> {
    adapter: Arc<Adapter<O>>,
    /// An `NDK_LOGICAL_ADDRESS_MAPPING` with all its pages.
    description: Box<[u64]>,
    /// Offset of the first byte in the first page.
    offset: u32,
}

impl<O: Os> FastMemory<O> {
    /// Allocates `length` bytes, at least 1, zeroed, and initializes a region for their fast registration with remote access.
    ///
    /// # Errors
    /// `STATUS_INSUFFICIENT_RESOURCES` without memory; otherwise the status of the provider.
    pub fn new(pd: &Arc<Pd<O>>, length: usize) -> Result<Self, Status> {
        let os = pd.os();
        let buffer = os.allocate(length).ok_or(Status::INSUFFICIENT_RESOURCES)?;
        let mapping = Mapping::new(pd.adapter(), &buffer)?;
        let create = entry(pd.object().dispatch().NdkCreateMr)?;
        let raw = pending::create(os, |completion, request, into| {
            // SAFETY: the protection domain is open; the context lives until the callback.
            unsafe { create(pd.object().raw(), 1, completion, request, into) }
        })?;
        // SAFETY: created above; only this value closes it.
        let region: Object<O, NDK_MR> = unsafe { Object::new(os, raw) };
        let table = region.dispatch();
        let initialize = entry(table.NdkInitializeFastRegisterMr)?;
        let remote = entry(table.NdkGetRemoteTokenFromMr)?;
        pending::request(os, |completion, request| {
            // SAFETY: the region is open; the context lives until the callback.
            unsafe { initialize(region.raw(), mapping.pages(), 1, completion, request) }
        })?;
        // SAFETY: the region was created and initialized above, as reading its token demands.
        let remote_token = os.call(|| unsafe { remote(region.raw()) });
        Ok(Self { region, mapping, buffer, remote_token, _pd: Arc::clone(pd) })
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

    /// Returns the address and the remote token of the memory, for a peer.
    #[must_use]
    pub fn remote(&self) -> RemoteMemory {
        let (address, length) = (self.base() as u64, self.len() as u64);
        RemoteMemory { address, token: self.remote_token, length }
    }

    /// Copies `from` to the first bytes.
    pub fn store(&self, from: &[u8]) {
        assert!(from.len() <= self.len(), "the range exceeds the memory");
        // SAFETY: the length was checked; a raw copy, because the provider may access the memory at any time.
        unsafe { self.buffer.address().as_ptr().copy_from_nonoverlapping(from.as_ptr(), from.len()) };
    }

    /// Copies the first bytes into `into`.
    pub fn load(&self, into: &mut [u8]) {
        assert!(into.len() <= self.len(), "the range exceeds the memory");
        // SAFETY: the length was checked; a raw copy, because the provider may access the memory at any time.
        unsafe { self.buffer.address().as_ptr().copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
    }

    pub(crate) fn region(&self) -> *mut NDK_MR {
        self.region.raw()
    }

    pub(crate) fn header(&self) -> *mut NDK_OBJECT_HEADER {
        self.region.raw().cast()
    }

    pub(crate) fn page_count(&self) -> u32 {
        self.mapping.pages()
    }

    pub(crate) fn page_addresses(&self) -> *const NDK_LOGICAL_ADDRESS {
        self.mapping.addresses()
    }

    pub(crate) fn offset(&self) -> u32 {
        self.mapping.offset
    }

    /// Returns the virtual address of the first byte in registrations: that of the buffer.
    pub(crate) fn base(&self) -> *mut c_void {
        self.buffer.address().as_ptr().cast()
    }
}

/// Returns the `NDK_OP_FLAG_*` of access rights.
pub(crate) fn flags(access: Access) -> u32 {
    match access {
        Access::LocalRead => 0,
        Access::LocalWrite => NDK_OP_FLAG_ALLOW_LOCAL_WRITE,
        Access::RemoteRead => NDK_OP_FLAG_ALLOW_REMOTE_READ,
        Access::RemoteWrite => NDK_OP_FLAG_ALLOW_REMOTE_WRITE,
        Access::RemoteReadWrite => NDK_OP_FLAG_ALLOW_REMOTE_READ | NDK_OP_FLAG_ALLOW_REMOTE_WRITE,
    }
}

impl<O: Os> Mapping<O> {
    fn new(adapter: &Arc<Adapter<O>>, buffer: &O::Buffer) -> Result<Self, Status> {
        let build = entry(adapter.object().dispatch().NdkBuildLAM)?;
        let (mut size, mut offset) = (0_u32, 0_u32);
        let mut build_lam = |into: *mut NDK_LOGICAL_ADDRESS_MAPPING, size: *mut u32| {
            let offset = &raw mut offset;
            pending::request(adapter.os(), |completion, request| {
                // SAFETY: the adapter is open; the MDL describes locked bytes and outlives the mapping; `into` has
                // `*size` bytes.
                unsafe {
                    let (mdl, length) = (buffer.mdl().as_ptr(), buffer.len());
                    build(adapter.raw(), mdl, length, completion, request, into, size, offset)
                }
            })
        };
        match build_lam(ptr::null_mut(), &raw mut size) {
            Err(Status::BUFFER_TOO_SMALL) => {}
            Ok(()) => return Err(Status::INTERNAL_ERROR),
            Err(status) => return Err(status),
        }
        let mut description = vec![0_u64; (size as usize).div_ceil(8)].into_boxed_slice();
        build_lam(description.as_mut_ptr().cast(), &raw mut size)?;
        Ok(Self { adapter: Arc::clone(adapter), description, offset })
    }

    fn description(&self) -> NonNull<NDK_LOGICAL_ADDRESS_MAPPING> {
        NonNull::from(&*self.description).cast()
    }

    fn pages(&self) -> u32 {
        // SAFETY: the provider has initialized the description.
        unsafe { (*self.description().as_ptr()).AdapterPageCount }
    }

    fn addresses(&self) -> *const NDK_LOGICAL_ADDRESS {
        // SAFETY: `description` points to a live NDK_LOGICAL_ADDRESS_MAPPING; only the address of its last member is
        // taken.
        unsafe { (&raw const (*self.description().as_ptr()).AdapterPageArray).cast() }
    }
}

impl<O: Os> Drop for Mapping<O> {
    fn drop(&mut self) {
        let Ok(release) = entry(self.adapter.object().dispatch().NdkReleaseLAM) else { return };
        let description = self.description.as_mut_ptr().cast();
        // SAFETY: built by this adapter, and nothing uses the addresses.
        self.adapter.os().call(|| unsafe { release(self.adapter.raw(), description) });
    }
}
