// SPDX-License-Identifier: MIT OR Apache-2.0

//! Logical address mappings: the pages of a buffer as the device addresses them.

use alloc::vec::Vec;
use core::ptr::{NonNull, null_mut};

use driver_support::status::{Result, no_memory};
use fallible::{Arc, vec};
use ndk_abi::ndk::{NDK_LOGICAL_ADDRESS, NDK_LOGICAL_ADDRESS_MAPPING, NDK_SGE, NDK_SGE_Anonymous};
use ndk_abi::nt::{MDL, STATUS_BUFFER_TOO_SMALL, STATUS_INTERNAL_ERROR, STATUS_INVALID_PARAMETER};
use nt::PAGE_SIZE;

use super::adapter::Adapter;
use super::object::entry;
use super::pending;

/// The mapping of a buffer. Dropping it releases it, IRQL <= `DISPATCH_LEVEL`: no request uses it then.
pub struct Lam {
    adapter: Arc<Adapter>,
    /// An `NDK_LOGICAL_ADDRESS_MAPPING` with all its pages.
    description: Vec<u64>,
    /// Offset of the buffer's first byte in its first page.
    offset: usize,
    length: usize,
}

impl Lam {
    /// Maps the first `length` bytes of the buffer that an MDL describes. `PASSIVE_LEVEL`.
    ///
    /// # Safety
    /// The MDL's pages stay locked as long as the mapping exists.
    pub unsafe fn new(adapter: &Arc<Adapter>, mdl: NonNull<MDL>, length: usize) -> Result<Self> {
        let build = entry(adapter.dispatch().NdkBuildLAM)?;
        let (mut size, mut offset) = (0_u32, 0_u32);
        let mut build = |into: *mut NDK_LOGICAL_ADDRESS_MAPPING, size: *mut u32| {
            let offset = &raw mut offset;
            pending::request(|completion, context| {
                // SAFETY: the adapter is open; this function's contract for the MDL; `into` has `*size` bytes.
                unsafe { build(adapter.raw(), mdl.as_ptr(), length, completion, context, into, size, offset) }
            })
        };
        match build(null_mut(), &raw mut size) {
            Err(STATUS_BUFFER_TOO_SMALL) => {}
            Ok(()) => return Err(STATUS_INTERNAL_ERROR),
            Err(status) => return Err(status),
        }
        let words = (size as usize).div_ceil(size_of::<u64>());
        let mut description = vec::filled(words, 0_u64).map_err(no_memory)?;
        build(description.as_mut_ptr().cast(), &raw mut size)?;
        let offset = offset as usize;
        Ok(Self { adapter: Arc::clone(adapter), description, offset, length })
    }

    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns the offset of the buffer's first byte in the first page.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the logical addresses of the pages.
    pub fn pages(&self) -> &[NDK_LOGICAL_ADDRESS] {
        let description = self.description.as_ptr().cast::<NDK_LOGICAL_ADDRESS_MAPPING>();
        // SAFETY: the provider has filled in the description, which has room for its header.
        let count = unsafe { (*description).AdapterPageCount } as usize;
        // SAFETY: a member of the description.
        let first = unsafe { (&raw const (*description).AdapterPageArray).cast() };
        // SAFETY: the provider has filled in `count` addresses.
        unsafe { core::slice::from_raw_parts(first, count) }
    }

    /// Describes up to `length` bytes at `offset` by entries under the privileged token, one for each run of pages that
    /// are adjacent for the device. Returns the number of entries and of bytes; fewer bytes if the entries do not
    /// suffice.
    #[allow(clippy::cast_possible_wrap, reason = "offsets and lengths within a buffer")]
    pub fn entries(
        &self,
        token: u32,
        offset: usize,
        length: usize,
        into: &mut [NDK_SGE],
    ) -> Result<(usize, usize)> {
        if offset.checked_add(length).is_none_or(|end| end > self.length) {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let (mut entries, mut done) = (0_usize, 0);
        let mut end_of_last = None;
        while done < length {
            let position = self.offset + offset + done;
            let page = self.pages().get(position / PAGE_SIZE).ok_or(STATUS_INVALID_PARAMETER)?;
            let within = position % PAGE_SIZE;
            let bytes = (PAGE_SIZE - within).min(length - done);
            let address = page.QuadPart + within as i64;
            let last = entries.checked_sub(1).and_then(|last| into.get_mut(last));
            match last {
                Some(last) if end_of_last == Some(address) => last.Length += bytes as u32,
                _ => {
                    let Some(entry) = into.get_mut(entries) else { break };
                    let logical = NDK_LOGICAL_ADDRESS { QuadPart: address };
                    *entry = NDK_SGE {
                        Anonymous: NDK_SGE_Anonymous { LogicalAddress: logical },
                        Length: bytes as u32,
                        MemoryRegionToken: token,
                    };
                    entries += 1;
                }
            }
            end_of_last = Some(address + bytes as i64);
            done += bytes;
        }
        Ok((entries, done))
    }
}

impl Drop for Lam {
    fn drop(&mut self) {
        let Ok(release) = entry(self.adapter.dispatch().NdkReleaseLAM) else { return };
        // SAFETY: built on this adapter; no request uses the addresses.
        unsafe { release(self.adapter.raw(), self.description.as_mut_ptr().cast()) };
    }
}
