// SPDX-License-Identifier: MIT OR Apache-2.0

//! DMA memory from NDIS: the [`Hal`] of the virtio driver.

use core::ptr::{NonNull, null_mut};

use ndk_abi::ndis::{
    NDIS_HANDLE, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_SG_DMA_DESCRIPTION, NDIS_PHYSICAL_ADDRESS,
    NDIS_SG_DMA_64_BIT_ADDRESS, NDIS_SG_DMA_DESCRIPTION, NDIS_SG_DMA_DESCRIPTION_REVISION_1,
    NDIS_SIZEOF_SG_DMA_DESCRIPTION_REVISION_1, NDIS_STATUS_SUCCESS, NdisMAllocateSharedMemory,
    NdisMDeregisterScatterGatherDma, NdisMFreeSharedMemory, NdisMRegisterScatterGatherDma,
};
use ndk_abi::nt::{BOOLEAN, DEVICE_OBJECT, MmGetPhysicalAddress, SCATTER_GATHER_LIST};
use virtio_net::{DMA_ALIGNMENT, DmaBlock, Hal};

use super::pci_resources::set_bus_master;
use super::sleep::sleep;
use crate::events::{Failure, Request};

/// Shared memory is mapped cached: DMA is coherent on every platform that Windows Server supports.
const CACHED: BOOLEAN = 1;

/// The adapter's registration as a bus master, which NDIS requires for shared memory.
#[derive(Debug)]
pub struct DmaRegistration(NDIS_HANDLE);

// SAFETY: a handle that NDIS takes on any thread.
unsafe impl Send for DmaRegistration {}
// SAFETY: the only operation is deregistering, by the owner.
unsafe impl Sync for DmaRegistration {}

impl DmaRegistration {
    /// Registers for 64-bit DMA of frames of up to `max_frame` bytes. `PASSIVE_LEVEL`.
    pub fn new(handle: NDIS_HANDLE, max_frame: u32) -> Result<Self, Failure> {
        let mut description = NDIS_SG_DMA_DESCRIPTION {
            Header: NDIS_OBJECT_HEADER {
                Type: NDIS_OBJECT_TYPE_SG_DMA_DESCRIPTION,
                Revision: NDIS_SG_DMA_DESCRIPTION_REVISION_1,
                Size: NDIS_SIZEOF_SG_DMA_DESCRIPTION_REVISION_1,
            },
            Flags: NDIS_SG_DMA_64_BIT_ADDRESS,
            MaximumPhysicalMapping: max_frame,
            ProcessSGListHandler: Some(process_sg_list),
            SharedMemAllocateCompleteHandler: None,
            ScatterGatherListSize: 0,
            PdoOverride: null_mut(),
        };
        let mut registration = null_mut();
        // SAFETY: the description is complete; both pointers are good for the call.
        let status =
            unsafe { NdisMRegisterScatterGatherDma(handle, &raw mut description, &raw mut registration) };
        if status == NDIS_STATUS_SUCCESS {
            Ok(Self(registration))
        } else {
            Err(Failure::Ndis(Request::RegisterDma, status))
        }
    }
}

impl Drop for DmaRegistration {
    fn drop(&mut self) {
        // SAFETY: registered in `new`, deregistered once, after all shared memory was freed.
        unsafe { NdisMDeregisterScatterGatherDma(self.0) };
    }
}

/// NDIS requires a handler; this driver copies frames and never requests a scatter/gather list.
unsafe extern "efiapi" fn process_sg_list(
    _device: *mut DEVICE_OBJECT,
    _reserved: *mut core::ffi::c_void,
    _list: *mut SCATTER_GATHER_LIST,
    _context: *mut core::ffi::c_void,
) {
}

/// Shared memory and delays for one adapter, which stays registered for DMA while this handle is used.
#[derive(Clone, Copy, Debug)]
pub struct SharedMemory {
    handle: NDIS_HANDLE,
}

// SAFETY: a handle that NDIS takes on any thread.
unsafe impl Send for SharedMemory {}
// SAFETY: shared use passes the handle to functions of NDIS that are callable on any thread.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    pub const fn new(handle: NDIS_HANDLE) -> Self {
        Self { handle }
    }

    fn free(self, address: NonNull<u8>, device_address: u64, len: u32) {
        let device_address = NDIS_PHYSICAL_ADDRESS { QuadPart: device_address.cast_signed() };
        // SAFETY: allocated by `allocate` with this length and these addresses.
        unsafe { NdisMFreeSharedMemory(self.handle, len, CACHED, address.as_ptr().cast(), device_address) };
    }
}

// SAFETY: NDIS allocates contiguous memory and returns its device address; alignment is checked and the memory cleared
// here.
unsafe impl Hal for SharedMemory {
    fn allocate(&self, len: usize) -> Option<DmaBlock> {
        let length = u32::try_from(len).ok()?;
        let mut address = null_mut();
        let mut device_address = NDIS_PHYSICAL_ADDRESS { QuadPart: 0 };
        // SAFETY: both results live through the call; PASSIVE_LEVEL by the trait's contract.
        unsafe {
            NdisMAllocateSharedMemory(self.handle, length, CACHED, &raw mut address, &raw mut device_address);
        }
        let address = NonNull::new(address.cast::<u8>())?;
        let device_address = device_address.QuadPart.cast_unsigned();
        let aligned = |address: u64| address.is_multiple_of(DMA_ALIGNMENT as u64);
        if !aligned(address.addr().get() as u64) || !aligned(device_address) {
            self.free(address, device_address, length);
            return None;
        }
        // SAFETY: NDIS has allocated `len` bytes at the address, and nothing else uses them yet.
        unsafe { address.write_bytes(0, len) };
        Some(DmaBlock { address, device_address, len })
    }

    unsafe fn release(&self, block: DmaBlock) {
        // `allocate` took the length as a `u32`.
        self.free(block.address, block.device_address, block.len as u32);
    }

    fn is_remapped(&self, block: &DmaBlock) -> bool {
        // SAFETY: the block is memory that NDIS has mapped and that is not freed while it is borrowed.
        let physical_address = unsafe { MmGetPhysicalAddress(block.address.as_ptr().cast()) };
        physical_address.QuadPart.cast_unsigned() != block.device_address
    }

    fn allow_dma(&self, is_allowed: bool) {
        set_bus_master(self.handle, is_allowed);
    }

    fn delay(&self, microseconds: u32) {
        sleep(microseconds);
    }

    fn stall(&self, microseconds: u32) {
        nt::time::stall(microseconds);
    }

    fn now(&self) -> u64 {
        nt::time::now()
    }
}
