// SPDX-License-Identifier: MIT OR Apache-2.0

//! DMA: registration, shared memory.

use std::{collections::BTreeMap, sync::Arc};

use ndk_abi::{
    ndis::{
        MINIPORT_PROCESS_SG_LIST, NDIS_MINIPORT_ATTRIBUTES_BUS_MASTER, NDIS_OBJECT_TYPE_SG_DMA_DESCRIPTION,
        NDIS_PHYSICAL_ADDRESS, NDIS_SG_DMA_64_BIT_ADDRESS, NDIS_SG_DMA_DESCRIPTION,
        NDIS_SIZEOF_SG_DMA_DESCRIPTION_REVISION_1, NDIS_STATUS, NDIS_STATUS_INVALID_PARAMETER,
        NDIS_STATUS_SUCCESS,
    },
    nt::LARGE_INTEGER,
};

use nt_sim::{
    Host, Tolerance, current,
    guest::Guest,
    imports,
    memory::{PAGE_SIZE, Pfn, Protection},
    nt::pool,
};

use parking_lot::Mutex;

use crate::{
    adapter::{Adapter, adapter},
    handle::{self, HANDLES},
    owner,
    rules::{self, broken, require},
};

const REGISTER: &str = "NdisMRegisterScatterGatherDma";
const SHARED: &str = "NdisMAllocateSharedMemory";
/// Pattern of freed shared memory.
const POISON: u8 = 0xdd;

/// A registration for DMA.
pub(crate) struct DmaRegistration {
    pub adapter: Arc<Adapter>,
    /// Is called with each scatter/gather list.
    pub process: MINIPORT_PROCESS_SG_LIST,
    /// The lists that the miniport holds, by address.
    pub lists: Mutex<BTreeMap<usize, SgList>>,
    /// The memory that the lists map for the device, by logical address: its length, and the number of lists.
    pub mapped: Mutex<BTreeMap<u64, (u64, u32)>>,
}

/// A scatter/gather list that the miniport holds.
pub(crate) struct SgList {
    /// Address of its NET_BUFFER.
    pub buffer: usize,
    /// Logical address and length of its elements.
    pub elements: Vec<(u64, u32)>,
    /// NDIS allocated it.
    pub is_owned: bool,
}

/// Returns the logical address, by which the device reaches it, of memory of the host.
pub(crate) fn logical_address(adapter: &Adapter, host: &Host, address: usize) -> Option<u64> {
    let offset = host.memory.physical.offset(host.memory.physical_address(address)?)?;
    Some(adapter.nic.memory().logical(offset))
}

/// Allocates shared memory, followed by a page without access. Returns virtual and logical address.
fn allocate(adapter: &Adapter, len: usize) -> Option<(usize, u64)> {
    let host = current().host().clone();
    let pages = len.div_ceil(PAGE_SIZE);
    let first = host.memory.physical.allocate(pages, 1, u64::MAX)?;
    let frames: Vec<_> = (first.0..first.0 + pages as u64).map(Pfn).collect();
    let Some(address) = host.memory.map(&frames, Protection::ReadWrite) else {
        host.memory.physical.free(first, pages);
        return None;
    };
    let logical = logical_address(adapter, &host, address)?;
    assert!(
        adapter.nic.memory().is_remapped() || logical == first.address(),
        "no memory above 4 GiB is left"
    );
    adapter.nic.memory().map(logical, len as u64);
    owner::hold(&host, adapter.handle, SHARED, address);
    Some((address, logical))
}

fn free(adapter: &Adapter, len: usize, address: usize, logical: u64) {
    let host = current().host().clone();
    require(logical_address(adapter, &host, address) == Some(logical), rules::FREED_AS_ALLOCATED, || {
        format!("NdisMFreeSharedMemory of {address:#x}: its logical address is not {logical:#x}")
    });
    require(adapter.nic.memory().is_mapped(logical, len as u64), rules::FREED_AS_ALLOCATED, || {
        format!("NdisMFreeSharedMemory of {len} bytes at {address:#x}: more than were allocated there")
    });
    if adapter.nic.uses(logical, len as u64) {
        adapter.driver.undocumented(&host, Tolerance::SharedMemoryInUse, &format!(
            "NdisMFreeSharedMemory of {address:#x}, which holds a ring of the running device; reset the device first"
        ));
    }
    pool::check_contents(&current(), address..address + len);
    if !owner::release(&host, SHARED, address) {
        broken(
            rules::FREED_AS_ALLOCATED,
            format!("NdisMFreeSharedMemory of {address:#x}, which was not allocated"),
        );
    }
    adapter.nic.memory().unmap(logical);
    let pages = len.div_ceil(PAGE_SIZE);
    let Some(first) = host.memory.pfn(address) else { return };
    Guest::<u8>::from_address(address).fill(POISON, pages * PAGE_SIZE);
    host.memory.unmap(address, pages);
    host.memory.physical.free(first, pages);
}

imports! { IMPORTS: "ndis.sys" =>
    /// Registers the adapter as a bus master.
    [== PASSIVE_LEVEL]
    fn NdisMRegisterScatterGatherDma(
        handle: usize,
        description: Guest<NDIS_SG_DMA_DESCRIPTION>,
        registration: Guest<usize>,
    ) -> NDIS_STATUS {
        let adapter = adapter(handle);
        if !adapter.attributes().has_flags(NDIS_MINIPORT_ATTRIBUTES_BUS_MASTER) {
            return NDIS_STATUS_INVALID_PARAMETER;
        }
        let header = description.read().Header;
        require(
            header.Type == NDIS_OBJECT_TYPE_SG_DMA_DESCRIPTION
                && header.Size >= NDIS_SIZEOF_SG_DMA_DESCRIPTION_REVISION_1, rules::HEADER,
            || format!("NdisMRegisterScatterGatherDma: the description has type {:#x} and {} bytes", header.Type, header.Size),
        );
        let mut described = description.read();
        let Some(process) = described.ProcessSGListHandler else {
            broken(rules::PARAMETER, "NdisMRegisterScatterGatherDma: ProcessSGListHandler is null")
        };
        if described.Flags & NDIS_SG_DMA_64_BIT_ADDRESS == 0 {
            adapter.driver.undocumented(current().host(), Tolerance::Dma32, "NdisMRegisterScatterGatherDma: NDIS_SG_DMA_64_BIT_ADDRESS is required for this device");
        }
        // One element per page of the largest mapping.
        described.ScatterGatherListSize = 16 + 24 * (described.MaximumPhysicalMapping.div_ceil(4096) + 1);
        description.write(described);
        let host = current().host().clone();
        let registered = host.state(&HANDLES).insert(Arc::new(DmaRegistration {
            adapter,
            process,
            lists: Mutex::default(),
            mapped: Mutex::default(),
        }));
        owner::hold(&host, handle, REGISTER, registered);
        registration.write(registered);
        NDIS_STATUS_SUCCESS
    }

    /// Ends the registration.
    [== PASSIVE_LEVEL]
    fn NdisMDeregisterScatterGatherDma(registration: usize) {
        let registered = handle::take::<DmaRegistration>("DMA handle", registration);
        if registered.adapter.nic.is_running() {
            registered.adapter.driver.undocumented(current().host(), Tolerance::DmaInUse, "NdisMDeregisterScatterGatherDma while the device runs");
        }
        let lists = registered.lists.lock().len();
        require(lists == 0, rules::SG_LIST, || {
            format!("NdisMDeregisterScatterGatherDma: {lists} scatter/gather lists are not freed")
        });
        let _ = owner::release(current().host(), REGISTER, registration);
    }

    /// Allocates memory that image and device share.
    [== PASSIVE_LEVEL]
    fn NdisMAllocateSharedMemory(
        handle: usize,
        length: u32,
        _cached: u8,
        address: Guest<usize>,
        logical: Guest<LARGE_INTEGER>,
    ) {
        let adapter = adapter(handle);
        if length == 0 {
            adapter.driver.undocumented(current().host(), Tolerance::EmptyMemory, "NdisMAllocateSharedMemory of 0 bytes");
        }
        let host = current().host().clone();
        let failing = length == 0 || host.low_resources.fails();
        let (virtual_address, logical_address) =
            if failing { None } else { allocate(&adapter, length as usize) }.unwrap_or((0, 0));
        address.write(virtual_address);
        logical.write(LARGE_INTEGER { QuadPart: logical_address.cast_signed() });
    }

    /// Frees shared memory.
    [<= DISPATCH_LEVEL]
    fn NdisMFreeSharedMemory(
        handle: usize,
        length: u32,
        _cached: u8,
        address: usize,
        logical: NDIS_PHYSICAL_ADDRESS,
    ) {
        free(&adapter(handle), length as usize, address, logical.QuadPart.cast_unsigned());
    }

    /// Returns the alignment of DMA buffers in bytes.
    [== PASSIVE_LEVEL]
    fn NdisMGetDmaAlignment(handle: usize) -> u32 {
        let _ = adapter(handle);
        1
    }
}
