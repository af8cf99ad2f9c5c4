// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pool, MDLs, mappings, contiguous memory.

use core::ffi::c_void;

use super::{BOOLEAN, EPROCESS, IRP, KPROCESSOR_MODE, PHYSICAL_ADDRESS, POOL_FLAGS};

/// A pool, in the form before `POOL_FLAGS`.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct POOL_TYPE(pub i32);

impl POOL_TYPE {
    pub const NonPagedPool: Self = Self(0);
    pub const NonPagedPoolExecute: Self = Self(0);
    pub const PagedPool: Self = Self(1);
    pub const NonPagedPoolMustSucceed: Self = Self(2);
    pub const DontUseThisType: Self = Self(3);
    pub const NonPagedPoolCacheAligned: Self = Self(4);
    pub const PagedPoolCacheAligned: Self = Self(5);
    pub const NonPagedPoolCacheAlignedMustS: Self = Self(6);
    pub const MaxPoolType: Self = Self(7);
    pub const NonPagedPoolBase: Self = Self(0);
    pub const NonPagedPoolBaseMustSucceed: Self = Self(2);
    pub const NonPagedPoolBaseCacheAligned: Self = Self(4);
    pub const NonPagedPoolBaseCacheAlignedMustS: Self = Self(6);
    pub const NonPagedPoolSession: Self = Self(32);
    pub const PagedPoolSession: Self = Self(33);
    pub const NonPagedPoolMustSucceedSession: Self = Self(34);
    pub const DontUseThisTypeSession: Self = Self(35);
    pub const NonPagedPoolCacheAlignedSession: Self = Self(36);
    pub const PagedPoolCacheAlignedSession: Self = Self(37);
    pub const NonPagedPoolCacheAlignedMustSSession: Self = Self(38);
    pub const NonPagedPoolNx: Self = Self(512);
    pub const NonPagedPoolNxCacheAligned: Self = Self(516);
    pub const NonPagedPoolSessionNx: Self = Self(544);
}

/// How hard an allocation is tried when memory is short.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EX_POOL_PRIORITY(pub i32);

impl EX_POOL_PRIORITY {
    pub const LowPoolPriority: Self = Self(0);
    pub const LowPoolPrioritySpecialPoolOverrun: Self = Self(8);
    pub const LowPoolPrioritySpecialPoolUnderrun: Self = Self(9);
    pub const NormalPoolPriority: Self = Self(16);
    pub const NormalPoolPrioritySpecialPoolOverrun: Self = Self(24);
    pub const NormalPoolPrioritySpecialPoolUnderrun: Self = Self(25);
    pub const HighPoolPriority: Self = Self(32);
    pub const HighPoolPrioritySpecialPoolOverrun: Self = Self(40);
    pub const HighPoolPrioritySpecialPoolUnderrun: Self = Self(41);
}

/// How a mapping is cached.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MEMORY_CACHING_TYPE(pub i32);

impl MEMORY_CACHING_TYPE {
    pub const MmNonCached: Self = Self(0);
    pub const MmCached: Self = Self(1);
    pub const MmWriteCombined: Self = Self(2);
    pub const MmHardwareCoherentCached: Self = Self(3);
    pub const MmNonCachedUnordered: Self = Self(4);
    pub const MmUSWCCached: Self = Self(5);
    pub const MmMaximumCacheType: Self = Self(6);
    pub const MmNotMapped: Self = Self(-1);
}

/// The access for which pages are locked.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LOCK_OPERATION(pub i32);

impl LOCK_OPERATION {
    pub const IoReadAccess: Self = Self(0);
    pub const IoWriteAccess: Self = Self(1);
    pub const IoModifyAccess: Self = Self(2);
}

/// How hard `MmMapLockedPagesSpecifyCache` tries when system page-table entries are scarce.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MM_PAGE_PRIORITY(pub i32);

impl MM_PAGE_PRIORITY {
    pub const LowPagePriority: Self = Self(0);
    pub const NormalPagePriority: Self = Self(16);
    pub const HighPagePriority: Self = Self(32);
}

/// Describes memory page by page: the frame numbers follow the header. `ByteCount` in bytes; `StartVa` is
/// page aligned.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MDL {
    pub Next: *mut MDL,
    pub Size: i16,
    pub MdlFlags: i16,
    pub Process: *mut EPROCESS,
    pub MappedSystemVa: *mut c_void,
    pub StartVa: *mut c_void,
    pub ByteCount: u32,
    pub ByteOffset: u32,
}

pub const MDL_MAPPED_TO_SYSTEM_VA: i16 = 0x1;
pub const MDL_PAGES_LOCKED: i16 = 0x2;
pub const MDL_SOURCE_IS_NONPAGED_POOL: i16 = 0x4;
pub const MDL_ALLOCATED_FIXED_SIZE: i16 = 0x8;
pub const MDL_PARTIAL: i16 = 0x10;
pub const MDL_PARTIAL_HAS_BEEN_MAPPED: i16 = 0x20;
pub const MDL_IO_PAGE_READ: i16 = 0x40;
pub const MDL_WRITE_OPERATION: i16 = 0x80;
pub const MDL_LOCKED_PAGE_TABLES: i16 = 0x100;
pub const MDL_PARENT_MAPPED_SYSTEM_VA: i16 = 0x100;
pub const MDL_FREE_EXTRA_PTES: i16 = 0x200;
pub const MDL_DESCRIBES_AWE: i16 = 0x400;
pub const MDL_IO_SPACE: i16 = 0x800;
pub const MDL_NETWORK_HEADER: i16 = 0x1000;
pub const MDL_MAPPING_CAN_FAIL: i16 = 0x2000;
pub const MDL_ALLOCATED_MUST_SUCCEED: i16 = 0x4000;
pub const MDL_PAGE_CONTENTS_INVARIANT: i16 = 0x4000;
pub const MDL_INTERNAL: i16 = 0x8000_u16 as i16;

pub const POOL_FLAG_REQUIRED_START: POOL_FLAGS = 0x1;
pub const POOL_FLAG_USE_QUOTA: POOL_FLAGS = 0x1;
pub const POOL_FLAG_UNINITIALIZED: POOL_FLAGS = 0x2;
pub const POOL_FLAG_SESSION: POOL_FLAGS = 0x4;
pub const POOL_FLAG_CACHE_ALIGNED: POOL_FLAGS = 0x8;
pub const POOL_FLAG_RESERVED1: POOL_FLAGS = 0x10;
pub const POOL_FLAG_RAISE_ON_FAILURE: POOL_FLAGS = 0x20;
pub const POOL_FLAG_NON_PAGED: POOL_FLAGS = 0x40;
pub const POOL_FLAG_NON_PAGED_EXECUTE: POOL_FLAGS = 0x80;
pub const POOL_FLAG_PAGED: POOL_FLAGS = 0x100;

pub const PAGE_SHIFT: u32 = 0xc;
pub const PAGE_SIZE: u32 = 0x1000;

pub const MM_DONT_ZERO_ALLOCATION: u32 = 1;
pub const MM_ALLOCATE_FROM_LOCAL_NODE_ONLY: u32 = 2;
pub const MM_ALLOCATE_FULLY_REQUIRED: u32 = 4;
pub const MM_ALLOCATE_NO_WAIT: u32 = 8;
pub const MM_ALLOCATE_PREFER_CONTIGUOUS: u32 = 0x10;
pub const MM_ALLOCATE_REQUIRE_CONTIGUOUS_CHUNKS: u32 = 0x20;
pub const MM_ALLOCATE_FAST_LARGE_PAGES: u32 = 0x40;
pub const MM_ALLOCATE_TRIM_IF_NECESSARY: u32 = 0x80;
pub const MM_ALLOCATE_AND_HOT_REMOVE: u32 = 0x100;
pub const MM_ANY_NODE_OK: u32 = 0x80000000;

/// Priority flag of `MmMapLockedPagesSpecifyCache`: map without execute right.
pub const MdlMappingNoExecute: u32 = 0x40000000;
/// Priority flag of `MmMapLockedPagesSpecifyCache`: map read only.
pub const MdlMappingNoWrite: u32 = 0x80000000;

#[cfg_attr(all(windows, feature = "kernel"), link(name = "ntoskrnl"))]
unsafe extern "efiapi" {
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn ExAllocatePool2(Flags: POOL_FLAGS, NumberOfBytes: usize, Tag: u32) -> *mut c_void;
    /// IRQL: `<= APC_LEVEL (conditional)`.
    pub fn ExAllocatePoolWithTag(PoolType: POOL_TYPE, NumberOfBytes: usize, Tag: u32) -> *mut c_void;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn ExAllocatePoolWithTagPriority(
        PoolType: POOL_TYPE,
        NumberOfBytes: usize,
        Tag: u32,
        Priority: EX_POOL_PRIORITY,
    ) -> *mut c_void;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn ExFreePool(P: *mut c_void);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn ExFreePoolWithTag(P: *mut c_void, Tag: u32);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn IoAllocateMdl(
        VirtualAddress: *mut c_void,
        Length: u32,
        SecondaryBuffer: BOOLEAN,
        ChargeQuota: BOOLEAN,
        Irp: *mut IRP,
    ) -> *mut MDL;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn IoFreeMdl(Mdl: *mut MDL);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn IoBuildPartialMdl(
        SourceMdl: *mut MDL,
        TargetMdl: *mut MDL,
        VirtualAddress: *mut c_void,
        Length: u32,
    );
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn MmBuildMdlForNonPagedPool(MemoryDescriptorList: *mut MDL);
    /// IRQL: `<= DISPATCH_LEVEL (conditional)`.
    pub fn MmMapLockedPagesSpecifyCache(
        MemoryDescriptorList: *mut MDL,
        AccessMode: KPROCESSOR_MODE,
        CacheType: MEMORY_CACHING_TYPE,
        RequestedAddress: *mut c_void,
        BugCheckOnFailure: u32,
        Priority: u32,
    ) -> *mut c_void;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn MmUnmapLockedPages(BaseAddress: *mut c_void, MemoryDescriptorList: *mut MDL);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn MmProbeAndLockPages(
        MemoryDescriptorList: *mut MDL,
        AccessMode: KPROCESSOR_MODE,
        Operation: LOCK_OPERATION,
    );
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn MmUnlockPages(MemoryDescriptorList: *mut MDL);
    /// IRQL: `any`.
    pub fn MmSizeOfMdl(Base: *mut c_void, Length: usize) -> usize;
    /// IRQL: `any`.
    pub fn MmGetPhysicalAddress(BaseAddress: *mut c_void) -> PHYSICAL_ADDRESS;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn MmAllocateContiguousMemorySpecifyCache(
        NumberOfBytes: usize,
        LowestAcceptableAddress: PHYSICAL_ADDRESS,
        HighestAcceptableAddress: PHYSICAL_ADDRESS,
        BoundaryAddressMultiple: PHYSICAL_ADDRESS,
        CacheType: MEMORY_CACHING_TYPE,
    ) -> *mut c_void;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn MmFreeContiguousMemory(BaseAddress: *mut c_void);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn MmAllocatePagesForMdlEx(
        LowAddress: PHYSICAL_ADDRESS,
        HighAddress: PHYSICAL_ADDRESS,
        SkipBytes: PHYSICAL_ADDRESS,
        TotalBytes: usize,
        CacheType: MEMORY_CACHING_TYPE,
        Flags: u32,
    ) -> *mut MDL;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn MmFreePagesFromMdl(MemoryDescriptorList: *mut MDL);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn MmMapIoSpaceEx(
        PhysicalAddress: PHYSICAL_ADDRESS,
        NumberOfBytes: usize,
        Protect: u32,
    ) -> *mut c_void;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn MmUnmapIoSpace(BaseAddress: *mut c_void, NumberOfBytes: usize);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn MmIsAddressValid(VirtualAddress: *mut c_void) -> BOOLEAN;
}
