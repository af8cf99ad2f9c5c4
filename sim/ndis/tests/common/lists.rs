// SPDX-License-Identifier: MIT OR Apache-2.0

//! Lists of net buffers that a test's miniport allocates.

use ndis_sim::nbl;
use ndk_abi::{
    ndis::{
        NDIS_OBJECT_TYPE_DEFAULT, NDIS_SIZEOF_NET_BUFFER_LIST_POOL_PARAMETERS_REVISION_1,
        NDIS_SIZEOF_NET_BUFFER_POOL_PARAMETERS_REVISION_1, NET_BUFFER, NET_BUFFER_LIST,
        NET_BUFFER_LIST_POOL_PARAMETERS, NET_BUFFER_POOL_PARAMETERS,
    },
    nt::{MDL, POOL_FLAG_NON_PAGED},
};
use nt_sim::{guest::Guest, nt::pool};

use super::scripted::{header, kept};

const TAG: u32 = u32::from_le_bytes(*b"tset");
/// Bytes of a NET_BUFFER_LIST of NDIS, without its NET_BUFFERs.
pub const LIST_LEN: usize = 0x180;

/// Returns a pool whose parameters `edit` has changed.
pub fn pool_with(handle: usize, edit: fn(&mut NET_BUFFER_LIST_POOL_PARAMETERS)) -> usize {
    let mut parameters = NET_BUFFER_LIST_POOL_PARAMETERS::zeroed();
    parameters.Header =
        header(NDIS_OBJECT_TYPE_DEFAULT, 1, NDIS_SIZEOF_NET_BUFFER_LIST_POOL_PARAMETERS_REVISION_1);
    parameters.fAllocateNetBuffer = 1;
    parameters.PoolTag = TAG;
    edit(&mut parameters);
    nbl::NdisAllocateNetBufferListPool(handle, kept(parameters))
}

pub fn list_pool(handle: usize) -> usize {
    pool_with(handle, |_| {})
}

/// Returns a pool of NET_BUFFERs.
pub fn buffer_pool(handle: usize, tag: u32) -> usize {
    let mut parameters = NET_BUFFER_POOL_PARAMETERS::zeroed();
    parameters.Header =
        header(NDIS_OBJECT_TYPE_DEFAULT, 1, NDIS_SIZEOF_NET_BUFFER_POOL_PARAMETERS_REVISION_1);
    parameters.PoolTag = tag;
    nbl::NdisAllocateNetBufferPool(handle, kept(parameters))
}

pub fn mdl(handle: usize, length: u32) -> Guest<MDL> {
    let data = pool::ExAllocatePool2(POOL_FLAG_NON_PAGED, length as usize, TAG);
    nbl::NdisAllocateMdl(handle, data.address(), length)
}

/// A list of a pool of its own, with one frame of 60 bytes.
pub fn list(handle: usize) -> Guest<NET_BUFFER_LIST> {
    list_of(handle, &[0; 60])
}

/// A list of a pool of its own, with this frame.
pub fn list_of(handle: usize, frame: &[u8]) -> Guest<NET_BUFFER_LIST> {
    let data = pool::ExAllocatePool2(POOL_FLAG_NON_PAGED, frame.len(), TAG);
    data.cast::<u8>().write_bytes(frame);
    let mdl = nbl::NdisAllocateMdl(handle, data.address(), frame.len() as u32);
    let list = nbl::NdisAllocateNetBufferAndNetBufferList(list_pool(handle), 0, 0, mdl, 0, frame.len());
    list.field::<usize>(std::mem::offset_of!(NET_BUFFER_LIST, SourceHandle)).write(handle);
    list
}

/// Frees a list of [`list_of`], its pool and its data.
pub fn free(list: Guest<NET_BUFFER_LIST>) {
    let pool = list.field::<usize>(std::mem::offset_of!(NET_BUFFER_LIST, NdisPoolHandle)).read();
    let first = list.field::<*mut NET_BUFFER>(std::mem::offset_of!(NET_BUFFER_LIST, FirstNetBuffer)).read();
    let buffer = Guest::new(first);
    let data = nbl::NdisGetDataBuffer(buffer, 1, Guest::null(), 1, 0);
    nbl::NdisFreeMdl(Guest::new(buffer.read().MdlChain));
    nbl::NdisFreeNetBufferList(list);
    nbl::NdisFreeNetBufferListPool(pool);
    pool::ExFreePoolWithTag(data, TAG);
}
