// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that a driver and its device share. (WDK: `NdisMAllocateSharedMemory`, `NdisAllocateSharedMemory`)

use std::{mem::offset_of, sync::Arc};

use ndk_abi::{
    ndis::{
        NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT, NDIS_PHYSICAL_ADDRESS, NDIS_STATUS,
        NDIS_STATUS_INVALID_PARAMETER, NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS,
    },
    nt::LARGE_INTEGER,
};
use nt_sim::{
    Tolerance, current,
    guest::Guest,
    imports,
    memory::{PAGE_SIZE, Pfn, Protection},
    nt::pool,
};

use crate::{
    adapter::{Adapter, adapter, adapters},
    dma::{is_registered, logical_address},
    driver::Driver,
    handle::{self, HANDLES},
    owner,
    rules::{self, broken, require},
};

const SHARED: &str = "NdisMAllocateSharedMemory";
const FROM_PROVIDER: &str = "NdisAllocateSharedMemory";
/// Pattern of freed shared memory.
const POISON: u8 = 0xdd;

/// NDIS_SHARED_MEMORY_PARAMETERS, as of revision 1.
#[repr(C)]
#[derive(Clone, Copy)]
struct Parameters {
    header: NDIS_OBJECT_HEADER,
    flags: u8,
    queue: u32,
    handle: usize,
    node: u32,
    usage: u32,
    length: u32,
    address: usize,
    list_length: u32,
    list: usize,
}

/// SCATTER_GATHER_LIST with one element.
#[repr(C)]
struct OneElement {
    count: u32,
    reserved: usize,
    address: u64,
    length: u32,
    reserved_of_element: usize,
}

/// The offsets for x64.
const PARAMETERS_LEN: u16 = 0x40;
const _: () = assert!(size_of::<Parameters>() == 0x40 && offset_of!(Parameters, list) == 0x38);
const _: () = assert!(size_of::<OneElement>() == 0x28);

/// A block of `NdisAllocateSharedMemory`.
struct Block {
    adapter: Arc<Adapter>,
    length: usize,
    address: usize,
    logical: u64,
}

/// Allocates shared memory, followed by a page without access. Returns virtual and logical address.
fn allocate(adapter: &Adapter, function: &'static str, len: usize) -> Option<(usize, u64)> {
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
    owner::hold(&host, adapter.handle, function, address);
    Some((address, logical))
}

/// Frees memory of `function` by the function that belongs to it.
fn free(adapter: &Adapter, function: &'static str, len: usize, address: usize, logical: u64) {
    let freeing = function.replace("Allocate", "Free");
    let host = current().host().clone();
    require(logical_address(adapter, &host, address) == Some(logical), rules::FREED_AS_ALLOCATED, || {
        format!("{freeing} of {address:#x}: its logical address is not {logical:#x}")
    });
    require(adapter.nic.memory().is_mapped(logical, len as u64), rules::FREED_AS_ALLOCATED, || {
        format!("{freeing} of {len} bytes at {address:#x}: more than were allocated there")
    });
    if adapter.nic.uses(logical, len as u64) {
        adapter.driver.undocumented(
            &host,
            Tolerance::SharedMemoryInUse,
            &format!(
                "{freeing} of {address:#x}, which holds a ring of the running device; reset the device first"
            ),
        );
    }
    pool::check_contents(&current(), address..address + len);
    if !owner::release(&host, function, address) {
        broken(rules::FREED_AS_ALLOCATED, format!("{freeing} of {address:#x}, which was not allocated"));
    }
    adapter.nic.memory().unmap(logical);
    let pages = len.div_ceil(PAGE_SIZE);
    let Some(first) = host.memory.pfn(address) else { return };
    Guest::<u8>::from_address(address).fill(POISON, pages * PAGE_SIZE);
    host.memory.unmap(address, pages);
    host.memory.physical.free(first, pages);
}

/// Returns the adapter of a handle of an adapter, or the first one of a handle of a driver.
fn adapter_of(handle: usize) -> Option<Arc<Adapter>> {
    let host = current().host().clone();
    if host.state(&HANDLES).get::<Driver>(handle).is_some() {
        return adapters(&host).into_iter().find(|adapter| adapter.driver.handle == handle);
    }
    Some(adapter(handle))
}

fn allocate_block(owner: usize, given: Guest<Parameters>) -> Result<usize, NDIS_STATUS> {
    let mut parameters = given.read();
    let header = parameters.header;
    require(header.Type == NDIS_OBJECT_TYPE_DEFAULT && header.Size >= PARAMETERS_LEN, rules::HEADER, || {
        format!("{FROM_PROVIDER} with parameters of type {:#x} and {} bytes", header.Type, header.Size)
    });
    let adapter = adapter_of(owner).ok_or(NDIS_STATUS_INVALID_PARAMETER)?;
    let host = current().host().clone();
    require(is_registered(&host, adapter.handle), rules::DMA_FIRST, || {
        format!("{FROM_PROVIDER} before NdisMRegisterScatterGatherDma")
    });
    let has_list = parameters.list != 0;
    let is_short = has_list && (parameters.list_length as usize) < size_of::<OneElement>();
    if parameters.length == 0 || is_short {
        return Err(NDIS_STATUS_INVALID_PARAMETER);
    }
    let length = parameters.length as usize;
    let fails = host.low_resources.fails();
    let memory = if fails { None } else { allocate(&adapter, FROM_PROVIDER, length) };
    let (address, logical) = memory.ok_or(NDIS_STATUS_RESOURCES)?;
    if has_list {
        Guest::<OneElement>::from_address(parameters.list).write(OneElement {
            count: 1,
            reserved: 0,
            address: logical,
            length: parameters.length,
            reserved_of_element: 0,
        });
    }
    let block = host.state(&HANDLES).insert(Arc::new(Block { adapter, length, address, logical }));
    parameters.handle = block;
    parameters.address = address;
    given.write(parameters);
    Ok(block)
}

imports! { IMPORTS: "ndis.sys" =>
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
            if failing { None } else { allocate(&adapter, SHARED, length as usize) }.unwrap_or((0, 0));
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
        free(&adapter(handle), SHARED, length as usize, address, logical.QuadPart.cast_unsigned());
    }

    /// Allocates memory that image and device share, as parameters say. It is contiguous here, whether they ask for that or not.
    [== PASSIVE_LEVEL]
    fn NdisAllocateSharedMemory(handle: usize, parameters: Guest<u8>, allocation: Guest<usize>) -> NDIS_STATUS {
        match allocate_block(handle, parameters.cast()) {
            Ok(block) => {
                allocation.write(block);
                NDIS_STATUS_SUCCESS
            }
            Err(status) => {
                allocation.write(0);
                status
            }
        }
    }

    /// Frees memory of `NdisAllocateSharedMemory`.
    [== PASSIVE_LEVEL]
    fn NdisFreeSharedMemory(handle: usize, allocation: usize) {
        let block = handle::take::<Block>("handle of NdisAllocateSharedMemory", allocation);
        let _ = adapter_of(handle);
        free(&block.adapter, FROM_PROVIDER, block.length, block.address, block.logical);
    }
}
