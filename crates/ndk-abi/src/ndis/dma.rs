// SPDX-License-Identifier: MIT OR Apache-2.0

//! DMA and device registers: scatter/gather, shared memory, bus data.

use core::ffi::c_void;

use super::{
    NDIS_HANDLE, NDIS_OBJECT_HEADER, NDIS_PHYSICAL_ADDRESS, NDIS_RECEIVE_QUEUE_ID, NDIS_STATUS, NET_BUFFER,
};
use crate::nt::{BOOLEAN, CM_RESOURCE_LIST, DEVICE_OBJECT, LARGE_INTEGER, MDL, SCATTER_GATHER_LIST};

/// The use of shared memory.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NDIS_SHARED_MEMORY_USAGE(pub i32);

impl NDIS_SHARED_MEMORY_USAGE {
    pub const NdisSharedMemoryUsageUndefined: Self = Self(0);
    pub const NdisSharedMemoryUsageXmit: Self = Self(1);
    pub const NdisSharedMemoryUsageXmitHeader: Self = Self(2);
    pub const NdisSharedMemoryUsageXmitData: Self = Self(3);
    pub const NdisSharedMemoryUsageReceive: Self = Self(4);
    pub const NdisSharedMemoryUsageReceiveLookahead: Self = Self(5);
    pub const NdisSharedMemoryUsageReceivePostLookahead: Self = Self(6);
    pub const NdisSharedMemoryUsageReceiveHeader: Self = Self(7);
    pub const NdisSharedMemoryUsageReceiveData: Self = Self(8);
    pub const NdisSharedMemoryUsageOther: Self = Self(9);
    pub const NdisSharedMemoryUsageMax: Self = Self(10);
}

/// How an adapter does DMA.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_SG_DMA_DESCRIPTION {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: u32,
    pub MaximumPhysicalMapping: u32,
    pub ProcessSGListHandler: Option<MINIPORT_PROCESS_SG_LIST>,
    pub SharedMemAllocateCompleteHandler: Option<MINIPORT_ALLOCATE_SHARED_MEM_COMPLETE>,
    pub ScatterGatherListSize: u32,
    pub PdoOverride: *mut DEVICE_OBJECT,
}

/// Which bytes of a chain a scatter/gather list is wanted for.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_SCATTER_GATHER_LIST_PARAMETERS {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: u32,
    pub QueueId: NDIS_RECEIVE_QUEUE_ID,
    pub SharedMemoryUsage: NDIS_SHARED_MEMORY_USAGE,
    pub Mdl: *mut MDL,
    pub CurrentVa: *mut c_void,
    pub Length: u32,
    pub ProcessSGListHandler: Option<MINIPORT_PROCESS_SG_LIST>,
    pub Context: *mut c_void,
    pub ScatterGatherListBuffer: *mut SCATTER_GATHER_LIST,
    pub ScatterGatherListBufferSize: u32,
    pub ScatterGatherListBufferSizeNeeded: u32,
}

/// PCI properties of the device and its interrupt.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_PCI_DEVICE_CUSTOM_PROPERTIES {
    pub Header: NDIS_OBJECT_HEADER,
    pub DeviceType: u32,
    pub CurrentSpeedAndMode: u32,
    pub CurrentPayloadSize: u32,
    pub MaxPayloadSize: u32,
    pub MaxReadRequestSize: u32,
    pub CurrentLinkSpeed: u32,
    pub CurrentLinkWidth: u32,
    pub MaxLinkSpeed: u32,
    pub MaxLinkWidth: u32,
    pub PciExpressVersion: u32,
    pub InterruptType: u32,
    pub MaxInterruptMessages: u32,
}

/// Hands over the scatter/gather list of a `NET_BUFFER`.
///
/// IRQL: `== DISPATCH_LEVEL`.
pub type MINIPORT_PROCESS_SG_LIST = unsafe extern "efiapi" fn(
    pDO: *mut DEVICE_OBJECT,
    Reserved: *mut c_void,
    pSGL: *mut SCATTER_GATHER_LIST,
    Context: *mut c_void,
);

/// Hands over shared memory that was asked for asynchronously.
///
/// IRQL: `== PASSIVE_LEVEL`.
pub type MINIPORT_ALLOCATE_SHARED_MEM_COMPLETE = unsafe extern "efiapi" fn(
    MiniportAdapterContext: NDIS_HANDLE,
    VirtualAddress: *mut c_void,
    PhysicalAddress: *mut LARGE_INTEGER,
    Length: u32,
    Context: *mut c_void,
);

pub const NDIS_SG_DMA_DESCRIPTION_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_SG_DMA_DESCRIPTION_REVISION_1: u16 = 0x24;
pub const NDIS_SG_DMA_DESCRIPTION_REVISION_2: u8 = 2;
pub const NDIS_SHARED_MEMORY_PARAMETERS_REVISION_1: u8 = 1;
pub const NDIS_SHARED_MEMORY_PARAMETERS_REVISION_2: u8 = 2;
pub const NDIS_SHARED_MEMORY_PROVIDER_CHARACTERISTICS_REVISION_1: u8 = 1;

pub const NDIS_SG_DMA_64_BIT_ADDRESS: u32 = 1;
pub const NDIS_SG_DMA_V3_HAL_API: u32 = 2;
pub const NDIS_SG_DMA_HYBRID_DMA: u32 = 4;

pub const NDIS_SHARED_MEM_HANDLE_HAL_ALLOCATED: u32 = 0;
pub const NDIS_SHARED_MEM_PARAMETERS_CONTIGOUS: u32 = 1;
pub const NDIS_SHARED_MEM_PARAMETERS_CONTIGUOUS: u32 = 1;

pub const NDIS_SG_LIST_WRITE_TO_DEVICE: u32 = 1;
pub const NDIS_SHARED_MEMORY_PROVIDER_CHAR_SUPPORTS_PF_VPORTS: u32 = 1;

#[cfg_attr(all(windows, feature = "kernel"), link(name = "ndis"))]
unsafe extern "efiapi" {
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn NdisMRegisterScatterGatherDma(
        MiniportAdapterHandle: NDIS_HANDLE,
        DmaDescription: *mut NDIS_SG_DMA_DESCRIPTION,
        NdisMiniportDmaHandle: *mut *mut c_void,
    ) -> NDIS_STATUS;
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn NdisMDeregisterScatterGatherDma(NdisMiniportDmaHandle: NDIS_HANDLE);
    /// IRQL: `== DISPATCH_LEVEL`.
    pub fn NdisMAllocateNetBufferSGList(
        NdisMiniportDmaHandle: NDIS_HANDLE,
        NetBuffer: *mut NET_BUFFER,
        Context: *mut c_void,
        Flags: u32,
        ScatterGatherListBuffer: *mut c_void,
        ScatterGatherListBufferSize: u32,
    ) -> NDIS_STATUS;
    /// IRQL: `== DISPATCH_LEVEL`.
    pub fn NdisMFreeNetBufferSGList(
        NdisMiniportDmaHandle: NDIS_HANDLE,
        pSGL: *mut SCATTER_GATHER_LIST,
        NetBuffer: *mut NET_BUFFER,
    );
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn NdisMAllocateSharedMemory(
        MiniportAdapterHandle: NDIS_HANDLE,
        Length: u32,
        Cached: BOOLEAN,
        VirtualAddress: *mut *mut c_void,
        PhysicalAddress: *mut LARGE_INTEGER,
    );
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisMAllocateSharedMemoryAsyncEx(
        MiniportDmaHandle: NDIS_HANDLE,
        Length: u32,
        Cached: BOOLEAN,
        Context: *mut c_void,
    ) -> NDIS_STATUS;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisMFreeSharedMemory(
        MiniportAdapterHandle: NDIS_HANDLE,
        Length: u32,
        Cached: BOOLEAN,
        VirtualAddress: *mut c_void,
        PhysicalAddress: NDIS_PHYSICAL_ADDRESS,
    );
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn NdisMGetDmaAlignment(MiniportAdapterHandle: NDIS_HANDLE) -> u32;
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn NdisMMapIoSpace(
        VirtualAddress: *mut *mut c_void,
        MiniportAdapterHandle: NDIS_HANDLE,
        PhysicalAddress: NDIS_PHYSICAL_ADDRESS,
        Length: u32,
    ) -> NDIS_STATUS;
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn NdisMUnmapIoSpace(MiniportAdapterHandle: NDIS_HANDLE, VirtualAddress: *mut c_void, Length: u32);
    /// IRQL: `<= HIGH_LEVEL`.
    pub fn NdisMGetBusData(
        NdisMiniportHandle: NDIS_HANDLE,
        WhichSpace: u32,
        Offset: u32,
        Buffer: *mut c_void,
        Length: u32,
    ) -> u32;
    /// IRQL: `<= HIGH_LEVEL`.
    pub fn NdisMSetBusData(
        NdisMiniportHandle: NDIS_HANDLE,
        WhichSpace: u32,
        Offset: u32,
        Buffer: *mut c_void,
        Length: u32,
    ) -> u32;
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn NdisMGetDeviceProperty(
        MiniportAdapterHandle: NDIS_HANDLE,
        PhysicalDeviceObject: *mut *mut DEVICE_OBJECT,
        FunctionalDeviceObject: *mut *mut DEVICE_OBJECT,
        NextDeviceObject: *mut *mut DEVICE_OBJECT,
        AllocatedResources: *mut *mut CM_RESOURCE_LIST,
        AllocatedResourcesTranslated: *mut *mut CM_RESOURCE_LIST,
    );
}
