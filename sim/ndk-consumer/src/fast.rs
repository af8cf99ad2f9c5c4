//! Memory that requests register: for a peer to use until it is invalidated.

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use std::sync::Arc;

use ndk_abi::ndk::{
    NDK_LOGICAL_ADDRESS, NDK_LOGICAL_ADDRESS_MAPPING, NDK_MR, NDK_OBJECT_HEADER,
    NDK_OP_FLAG_ALLOW_LOCAL_WRITE, NDK_OP_FLAG_ALLOW_REMOTE_READ, NDK_OP_FLAG_ALLOW_REMOTE_WRITE,
};

use crate::memory::{Access, Pd, RemoteMemory};
use crate::object::{Object, entry};
use crate::os::{Buffer, Os};
use crate::{Adapter, Status, pending};

/// Locked memory with logical addresses, and a region made ready for it. Grants nothing until
/// [`crate::Qp::fast_register`] is done.
pub struct FastMemory<O: Os> {
    region: Object<O, NDK_MR>,
    // Behind the region, and before the memory.
    mapping: Mapping<O>,
    buffer: O::Buffer,
    remote_token: u32,
    _pd: Arc<Pd<O>>,
}

/// Logical addresses of a buffer, as `NdkBuildLAM` describes them. Dropping it takes them back.
struct Mapping<O: Os> {
    adapter: Arc<Adapter<O>>,
    /// An `NDK_LOGICAL_ADDRESS_MAPPING` with all its pages.
    description: Box<[u64]>,
    /// Offset of the first byte in the first page.
    offset: u32,
}

impl<O: Os> FastMemory<O> {
    /// Allocates `length` bytes, not 0, zeroed, and makes a region ready for them that may be opened to
    /// peers.
    pub fn new(pd: &Arc<Pd<O>>, length: usize) -> Result<Self, Status> {
        let os = pd.os();
        let buffer = os.allocate(length).ok_or(Status::INSUFFICIENT_RESOURCES)?;
        let mapping = Mapping::new(pd.adapter(), &buffer)?;
        let create = entry(pd.object().dispatch().NdkCreateMr)?;
        let raw = pending::create(os, |completion, request, into| {
            // SAFETY: the protection domain is open; the context lives until the callback.
            unsafe { create(pd.object().raw(), 1, completion, request, into) }
        })?;
        // SAFETY: created just now, to be closed by us.
        let region: Object<O, NDK_MR> = unsafe { Object::new(os, raw) };
        let table = region.dispatch();
        let initialize = entry(table.NdkInitializeFastRegisterMr)?;
        let remote = entry(table.NdkGetRemoteTokenFromMr)?;
        pending::request(os, |completion, request| {
            // SAFETY: the region is open; the context lives until the callback.
            unsafe { initialize(region.raw(), mapping.pages(), 1, completion, request) }
        })?;
        // SAFETY: the region is initialized.
        let remote_token = os.call(|| unsafe { remote(region.raw()) });
        Ok(Self { region, mapping, buffer, remote_token, _pd: Arc::clone(pd) })
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What a peer has to know to use all of it while it is registered.
    pub fn remote(&self) -> RemoteMemory {
        let (address, length) = (self.base() as u64, self.len() as u64);
        RemoteMemory { address, token: self.remote_token, length }
    }

    /// Copies the first bytes into `into`.
    pub fn load(&self, into: &mut [u8]) {
        assert!(into.len() <= self.len(), "beyond the memory");
        // SAFETY: the length was checked; a raw copy, as the provider may use the memory at any time.
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

    /// The address that registrations give the first byte: that of the buffer.
    pub(crate) fn base(&self) -> *mut c_void {
        self.buffer.address().as_ptr().cast()
    }
}

/// The rights of a fast registration.
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
        let mut ask = |into: *mut NDK_LOGICAL_ADDRESS_MAPPING, size: *mut u32| {
            let offset = &raw mut offset;
            pending::request(adapter.os(), |completion, request| {
                // SAFETY: the adapter is open; the list describes locked bytes and lives on; `into` has
                // `*size` bytes.
                unsafe {
                    let (mdl, length) = (buffer.mdl().as_ptr(), buffer.len());
                    build(adapter.raw(), mdl, length, completion, request, into, size, offset)
                }
            })
        };
        match ask(ptr::null_mut(), &raw mut size) {
            Err(Status::BUFFER_TOO_SMALL) => {}
            Ok(()) => return Err(Status::INTERNAL_ERROR),
            Err(status) => return Err(status),
        }
        let mut description = vec![0_u64; (size as usize).div_ceil(8)].into_boxed_slice();
        ask(description.as_mut_ptr().cast(), &raw mut size)?;
        Ok(Self { adapter: Arc::clone(adapter), description, offset })
    }

    fn description(&self) -> NonNull<NDK_LOGICAL_ADDRESS_MAPPING> {
        NonNull::from(&*self.description).cast()
    }

    fn pages(&self) -> u32 {
        // SAFETY: the provider has filled the description in.
        unsafe { (*self.description().as_ptr()).AdapterPageCount }
    }

    fn addresses(&self) -> *const NDK_LOGICAL_ADDRESS {
        // SAFETY: inside the description.
        unsafe { (&raw const (*self.description().as_ptr()).AdapterPageArray).cast() }
    }
}

impl<O: Os> Drop for Mapping<O> {
    fn drop(&mut self) {
        let Ok(release) = entry(self.adapter.object().dispatch().NdkReleaseLAM) else { return };
        let description = self.description.as_mut_ptr().cast();
        // SAFETY: built by this adapter, and nothing uses the addresses any more.
        self.adapter.os().call(|| unsafe { release(self.adapter.raw(), description) });
    }
}
