// SPDX-License-Identifier: MIT OR Apache-2.0

//! NDIS's run-time services: memory, work items, timers, locks, processors.

use core::ffi::c_void;

use super::{NDIS_HANDLE, NDIS_OBJECT_HEADER, NDIS_STATUS};
use crate::nt::{
    BOOLEAN, EX_POOL_PRIORITY, KAFFINITY, KEVENT, KIRQL, KSPIN_LOCK, LARGE_INTEGER, NTSTATUS,
    PROCESSOR_NUMBER, UNICODE_STRING,
};

/// Partition of a hypervisor the system runs in.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NDIS_HYPERVISOR_PARTITION_TYPE(pub i32);

impl NDIS_HYPERVISOR_PARTITION_TYPE {
    pub const NdisHypervisorPartitionTypeUnknown: Self = Self(0);
    pub const NdisHypervisorPartitionTypeMsHvParent: Self = Self(1);
    pub const NdisHypervisorPartitionMsHvChild: Self = Self(2);
    pub const NdisHypervisorPartitionTypeMax: Self = Self(3);
}

/// Maker of the processors.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NDIS_PROCESSOR_VENDOR(pub i32);

impl NDIS_PROCESSOR_VENDOR {
    pub const NdisProcessorVendorUnknown: Self = Self(0);
    pub const NdisProcessorVendorGenuinIntel: Self = Self(1);
    pub const NdisProcessorVendorGenuineIntel: Self = Self(1);
    pub const NdisProcessorVendorAuthenticAMD: Self = Self(2);
}

/// How receive side scaling chooses processors.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NDIS_RSS_PROFILE(pub i32);

impl NDIS_RSS_PROFILE {
    pub const NdisRssProfileClosest: Self = Self(1);
    pub const NdisRssProfileClosestStatic: Self = Self(2);
    pub const NdisRssProfileNuma: Self = Self(3);
    pub const NdisRssProfileNumaStatic: Self = Self(4);
    pub const NdisRssProfileConservative: Self = Self(5);
    pub const NdisRssProfileMaximum: Self = Self(6);
}

/// Function and context of a timer object.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_TIMER_CHARACTERISTICS {
    pub Header: NDIS_OBJECT_HEADER,
    pub AllocationTag: u32,
    pub TimerFunction: Option<NDIS_TIMER_FUNCTION>,
    pub FunctionContext: *mut c_void,
}

/// A spin lock that remembers the IRQL.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_SPIN_LOCK {
    pub SpinLock: KSPIN_LOCK,
    pub OldIrql: KIRQL,
}

/// An event object.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_EVENT {
    pub Event: KEVENT,
}

/// State that the holder of a reader-writer lock keeps.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LOCK_STATE_EX {
    pub OldIrql: KIRQL,
    pub LockState: u8,
    pub Flags: u8,
}

/// A processor receive side scaling may use.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_RSS_PROCESSOR {
    pub ProcNum: PROCESSOR_NUMBER,
    pub PreferenceIndex: u16,
    pub Reserved: u16,
}

/// The processors receive side scaling may use.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_RSS_PROCESSOR_INFO {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: u32,
    pub RssBaseProcessor: PROCESSOR_NUMBER,
    pub MaxNumRssProcessors: u32,
    pub PreferredNumaNode: u16,
    pub RssProcessorArrayOffset: u32,
    pub RssProcessorCount: u32,
    pub RssProcessorEntrySize: u32,
    pub RssMaxProcessor: PROCESSOR_NUMBER,
    pub RssProfile: NDIS_RSS_PROFILE,
}

/// The hypervisor under the system.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_HYPERVISOR_INFO {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: u32,
    pub PartitionType: NDIS_HYPERVISOR_PARTITION_TYPE,
}

/// Topology of a processor.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_PROCESSOR_INFO_EX {
    pub ProcNum: PROCESSOR_NUMBER,
    pub SocketId: u32,
    pub CoreId: u32,
    pub HyperThreadId: u32,
    pub NodeId: u16,
    pub NodeDistance: u16,
}

/// Topology of the system.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_SYSTEM_PROCESSOR_INFO_EX {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: u32,
    pub ProcessorVendor: NDIS_PROCESSOR_VENDOR,
    pub NumSockets: u32,
    pub NumCores: u32,
    pub NumCoresPerSocket: u32,
    pub MaxHyperThreadingProcsPerCore: u32,
    pub ProcessorInfoOffset: u32,
    pub NumberOfProcessors: u32,
    pub ProcessorInfoEntrySize: u32,
}

/// A work item runs.
///
/// IRQL: `== PASSIVE_LEVEL`.
pub type NDIS_IO_WORKITEM_FUNCTION =
    unsafe extern "efiapi" fn(WorkItemContext: *mut c_void, NdisIoWorkItemHandle: NDIS_HANDLE);

/// A timer object has expired.
///
/// IRQL: `== DISPATCH_LEVEL`.
pub type NDIS_TIMER_FUNCTION = unsafe extern "efiapi" fn(
    SystemSpecific1: *mut c_void,
    FunctionContext: *mut c_void,
    SystemSpecific2: *mut c_void,
    SystemSpecific3: *mut c_void,
);

pub const NDIS_TIMER_CHARACTERISTICS_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_TIMER_CHARACTERISTICS_REVISION_1: u16 = 0x18;
pub const NDIS_RSS_PROCESSOR_INFO_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_RSS_PROCESSOR_INFO_REVISION_1: u16 = 0x20;
pub const NDIS_RSS_PROCESSOR_INFO_REVISION_2: u8 = 2;
pub const NDIS_SIZEOF_RSS_PROCESSOR_INFO_REVISION_2: u16 = 0x28;
pub const NDIS_SIZEOF_RSS_PROCESSOR_REVISION_1: u16 = 0x6;

#[cfg_attr(all(windows, feature = "kernel"), link(name = "ndis"))]
unsafe extern "efiapi" {
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisAllocateMemoryWithTagPriority(
        NdisHandle: NDIS_HANDLE,
        Length: u32,
        Tag: u32,
        Priority: EX_POOL_PRIORITY,
    ) -> *mut c_void;
    /// IRQL: `<= DISPATCH_LEVEL (conditional)`.
    pub fn NdisFreeMemory(VirtualAddress: *mut c_void, Length: u32, MemoryFlags: u32);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisAllocateIoWorkItem(NdisObjectHandle: NDIS_HANDLE) -> NDIS_HANDLE;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisQueueIoWorkItem(
        NdisIoWorkItemHandle: NDIS_HANDLE,
        Routine: Option<NDIS_IO_WORKITEM_FUNCTION>,
        WorkItemContext: *mut c_void,
    );
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisFreeIoWorkItem(NdisIoWorkItemHandle: NDIS_HANDLE);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisAllocateTimerObject(
        NdisHandle: NDIS_HANDLE,
        TimerCharacteristics: *mut NDIS_TIMER_CHARACTERISTICS,
        pTimerObject: *mut *mut c_void,
    ) -> NDIS_STATUS;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisSetTimerObject(
        TimerObject: NDIS_HANDLE,
        DueTime: LARGE_INTEGER,
        MillisecondsPeriod: i32,
        FunctionContext: *mut c_void,
    ) -> BOOLEAN;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisCancelTimerObject(TimerObject: NDIS_HANDLE) -> BOOLEAN;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisFreeTimerObject(TimerObject: NDIS_HANDLE);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisAllocateRWLock(NdisHandle: NDIS_HANDLE) -> *mut NDIS_RW_LOCK_EX;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisFreeRWLock(Lock: *mut NDIS_RW_LOCK_EX);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisAcquireRWLockRead(Lock: *mut NDIS_RW_LOCK_EX, LockState: *mut LOCK_STATE_EX, Flags: u8);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisAcquireRWLockWrite(Lock: *mut NDIS_RW_LOCK_EX, LockState: *mut LOCK_STATE_EX, Flags: u8);
    /// IRQL: `== DISPATCH_LEVEL`.
    pub fn NdisReleaseRWLock(Lock: *mut NDIS_RW_LOCK_EX, LockState: *mut LOCK_STATE_EX);
    /// IRQL: `<= APC_LEVEL`.
    pub fn NdisMSleep(MicrosecondsToSleep: u32);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisInitializeEvent(Event: *mut NDIS_EVENT);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisSetEvent(Event: *mut NDIS_EVENT);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisResetEvent(Event: *mut NDIS_EVENT);
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn NdisWaitEvent(Event: *mut NDIS_EVENT, MsToWait: u32) -> BOOLEAN;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisGetRssProcessorInformation(
        NdisHandle: NDIS_HANDLE,
        RssProcessorInfo: *mut NDIS_RSS_PROCESSOR_INFO,
        Size: *mut usize,
    ) -> NDIS_STATUS;
    /// IRQL: `any`.
    pub fn NdisSystemActiveProcessorCount(ActiveProcessors: *mut KAFFINITY) -> u32;
    /// IRQL: `>= DISPATCH_LEVEL`.
    pub fn NdisCurrentGroupAndProcessor() -> PROCESSOR_NUMBER;
    /// IRQL: `<= HIGH_LEVEL`.
    pub fn NdisProcessorIndexToNumber(ProcIndex: u32, ProcNum: *mut PROCESSOR_NUMBER) -> NTSTATUS;
    /// IRQL: `<= HIGH_LEVEL`.
    pub fn NdisProcessorNumberToIndex(ProcNum: PROCESSOR_NUMBER) -> u32;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisGetHypervisorInfo(HypervisorInfo: *mut NDIS_HYPERVISOR_INFO) -> NDIS_STATUS;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisGetProcessorInformationEx(
        NdisHandle: NDIS_HANDLE,
        SystemProcessorInfo: *mut NDIS_SYSTEM_PROCESSOR_INFO_EX,
        Size: *mut usize,
    ) -> NDIS_STATUS;
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn NdisGetRoutineAddress(NdisRoutineName: *mut UNICODE_STRING) -> *mut c_void;
}

/// Opaque; known by pointer only.
#[repr(C)]
pub struct NDIS_RW_LOCK_EX {
    _opaque: [u8; 0],
}
