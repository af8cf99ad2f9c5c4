// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory of the device on the heap, for Miri, which has no mappings.
#![allow(unsafe_code, reason = "a device's view of a driver's memory")]

use std::alloc::{Layout, alloc_zeroed, dealloc};

use vm_memory::{GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

/// Frees the memory when dropped, after what was made of it.
pub struct Heap(*mut u8, Layout);

// SAFETY: plain memory without thread affinity.
unsafe impl Send for Heap {}
// SAFETY: shared use of this value does nothing.
unsafe impl Sync for Heap {}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: allocated in `memory` with this layout, freed once.
        unsafe { dealloc(self.0, self.1) };
    }
}

/// Returns `len` bytes of zeroed memory at an address of the device.
pub fn memory(at: GuestAddress, len: usize) -> (GuestMemoryMmap, Heap) {
    let layout = Layout::from_size_align(len, 4096).unwrap();
    // SAFETY: the layout is not empty.
    let address = unsafe { alloc_zeroed(layout) };
    // SAFETY: as many bytes were allocated there, and live as long as the second result.
    let region = unsafe { MmapRegion::build_raw(address, len, 0, 0) }.unwrap();
    let region = GuestRegionMmap::new(region, at).unwrap();
    (GuestMemoryMmap::from_regions(vec![region]).unwrap(), Heap(address, layout))
}
