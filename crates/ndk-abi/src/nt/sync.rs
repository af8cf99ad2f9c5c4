// SPDX-License-Identifier: MIT OR Apache-2.0

//! IRQL, spin locks, events, DPCs, timers, work items, threads.

use core::ffi::c_void;

use super::{
    ACCESS_MASK, BOOLEAN, CLIENT_ID, DEVICE_OBJECT, HANDLE, KIRQL, KPRIORITY, KPROCESSOR_MODE, KSPIN_LOCK,
    LARGE_INTEGER, LIST_ENTRY, NTSTATUS, OBJECT_ATTRIBUTES, OBJECT_TYPE, POOL_TYPE, PROCESSOR_NUMBER,
};

/// Whether a satisfied wait clears the event.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EVENT_TYPE(pub i32);

impl EVENT_TYPE {
    pub const NotificationEvent: Self = Self(0);
    pub const SynchronizationEvent: Self = Self(1);
}

/// Whether a satisfied wait clears the timer.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TIMER_TYPE(pub i32);

impl TIMER_TYPE {
    pub const NotificationTimer: Self = Self(0);
    pub const SynchronizationTimer: Self = Self(1);
}

/// Whether a wait is for all objects or for any.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WAIT_TYPE(pub i32);

impl WAIT_TYPE {
    pub const WaitAll: Self = Self(0);
    pub const WaitAny: Self = Self(1);
    pub const WaitNotification: Self = Self(2);
    pub const WaitDequeue: Self = Self(3);
}

/// Why a thread waits, for debuggers.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KWAIT_REASON(pub i32);

impl KWAIT_REASON {
    pub const Executive: Self = Self(0);
    pub const FreePage: Self = Self(1);
    pub const PageIn: Self = Self(2);
    pub const PoolAllocation: Self = Self(3);
    pub const DelayExecution: Self = Self(4);
    pub const Suspended: Self = Self(5);
    pub const UserRequest: Self = Self(6);
    pub const WrExecutive: Self = Self(7);
    pub const WrFreePage: Self = Self(8);
    pub const WrPageIn: Self = Self(9);
    pub const WrPoolAllocation: Self = Self(10);
    pub const WrDelayExecution: Self = Self(11);
    pub const WrSuspended: Self = Self(12);
    pub const WrUserRequest: Self = Self(13);
    pub const WrSpare0: Self = Self(14);
    pub const WrQueue: Self = Self(15);
    pub const WrLpcReceive: Self = Self(16);
    pub const WrLpcReply: Self = Self(17);
    pub const WrVirtualMemory: Self = Self(18);
    pub const WrPageOut: Self = Self(19);
    pub const WrRendezvous: Self = Self(20);
    pub const WrKeyedEvent: Self = Self(21);
    pub const WrTerminated: Self = Self(22);
    pub const WrProcessInSwap: Self = Self(23);
    pub const WrCpuRateControl: Self = Self(24);
    pub const WrCalloutStack: Self = Self(25);
    pub const WrKernel: Self = Self(26);
    pub const WrResource: Self = Self(27);
    pub const WrPushLock: Self = Self(28);
    pub const WrMutex: Self = Self(29);
    pub const WrQuantumEnd: Self = Self(30);
    pub const WrDispatchInt: Self = Self(31);
    pub const WrPreempted: Self = Self(32);
    pub const WrYieldExecution: Self = Self(33);
    pub const WrFastMutex: Self = Self(34);
    pub const WrGuardedMutex: Self = Self(35);
    pub const WrRundown: Self = Self(36);
    pub const WrAlertByThreadId: Self = Self(37);
    pub const WrDeferredPreempt: Self = Self(38);
    pub const WrPhysicalFault: Self = Self(39);
    pub const MaximumWaitReason: Self = Self(40);
}

/// Where a DPC goes in the queue.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KDPC_IMPORTANCE(pub i32);

impl KDPC_IMPORTANCE {
    pub const LowImportance: Self = Self(0);
    pub const MediumImportance: Self = Self(1);
    pub const HighImportance: Self = Self(2);
    pub const MediumHighImportance: Self = Self(3);
}

/// Limits of the DPC watchdog and what is left of them, in clock ticks.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct KDPC_WATCHDOG_INFORMATION {
    pub DpcTimeLimit: u32,
    pub DpcTimeCount: u32,
    pub DpcWatchdogLimit: u32,
    pub DpcWatchdogCount: u32,
    pub Reserved: u32,
}

/// Which system thread takes a work item.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WORK_QUEUE_TYPE(pub i32);

impl WORK_QUEUE_TYPE {
    pub const CriticalWorkQueue: Self = Self(0);
    pub const DelayedWorkQueue: Self = Self(1);
    pub const HyperCriticalWorkQueue: Self = Self(2);
    pub const NormalWorkQueue: Self = Self(3);
    pub const BackgroundWorkQueue: Self = Self(4);
    pub const RealTimeWorkQueue: Self = Self(5);
    pub const SuperCriticalWorkQueue: Self = Self(6);
    pub const MaximumWorkQueue: Self = Self(7);
    pub const CustomPriorityWorkQueue: Self = Self(32);
}

/// Head of every waitable object; its bit-fields differ between Windows builds.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DISPATCHER_HEADER {
    _opaque: [u64; 3],
}

/// An event object.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KEVENT {
    _opaque: [u64; 3],
}

/// A timer object.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KTIMER {
    _opaque: [u64; 8],
}

/// A deferred procedure call object.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KDPC {
    _opaque: [u64; 8],
}

/// A semaphore object.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KSEMAPHORE {
    _opaque: [u64; 4],
}

/// A mutex object.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KMUTANT {
    _opaque: [u64; 7],
}

/// A fast mutex.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FAST_MUTEX {
    _opaque: [u64; 7],
}

/// A waiter of a queued spin lock.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KSPIN_LOCK_QUEUE {
    pub Next: *mut KSPIN_LOCK_QUEUE,
    pub Lock: *mut KSPIN_LOCK,
}

/// State that the holder of an in-stack queued spin lock keeps.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KLOCK_QUEUE_HANDLE {
    pub LockQueue: KSPIN_LOCK_QUEUE,
    pub OldIrql: KIRQL,
}

/// Rundown protection.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EX_RUNDOWN_REF {
    pub Count: usize,
}

/// A work item without a device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WORK_QUEUE_ITEM {
    pub List: LIST_ENTRY,
    pub WorkerRoutine: Option<WORKER_THREAD_ROUTINE>,
    pub Parameter: *mut c_void,
}

/// A DPC runs.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type KDEFERRED_ROUTINE = unsafe extern "efiapi" fn(
    Dpc: *mut KDPC,
    DeferredContext: *mut c_void,
    SystemArgument1: *mut c_void,
    SystemArgument2: *mut c_void,
);

/// A timer of `ExAllocateTimer` has expired.
///
/// IRQL: `== DISPATCH_LEVEL`.
pub type EXT_CALLBACK = unsafe extern "efiapi" fn(Timer: *mut EX_TIMER, Context: *mut c_void);

/// A timer of `ExAllocateTimer` is gone.
///
/// IRQL: `== DISPATCH_LEVEL`.
pub type EXT_DELETE_CALLBACK = unsafe extern "efiapi" fn(Context: *mut c_void);

/// A system thread runs.
///
/// IRQL: `== PASSIVE_LEVEL`.
pub type KSTART_ROUTINE = unsafe extern "efiapi" fn(StartContext: *mut c_void);

/// A `WORK_QUEUE_ITEM` runs.
///
/// IRQL: `<= PASSIVE_LEVEL`.
pub type WORKER_THREAD_ROUTINE = unsafe extern "efiapi" fn(Parameter: *mut c_void);

/// An `IO_WORKITEM` runs.
///
/// IRQL: `== PASSIVE_LEVEL`.
pub type IO_WORKITEM_ROUTINE =
    unsafe extern "efiapi" fn(DeviceObject: *mut DEVICE_OBJECT, Context: *mut c_void);

/// An `IO_WORKITEM` that `IoQueueWorkItemEx` queued runs. `IoObject` is what it was allocated with.
///
/// IRQL: `== PASSIVE_LEVEL`.
pub type IO_WORKITEM_ROUTINE_EX =
    unsafe extern "efiapi" fn(IoObject: *mut c_void, Context: *mut c_void, IoWorkItem: *mut IO_WORKITEM);

/// Runs on every processor at once.
///
/// IRQL: `== IPI_LEVEL`.
pub type KIPI_BROADCAST_WORKER = unsafe extern "efiapi" fn(Argument: usize) -> usize;

pub const PASSIVE_LEVEL: KIRQL = 0;
pub const APC_LEVEL: KIRQL = 1;
pub const DISPATCH_LEVEL: KIRQL = 2;
pub const HIGH_LEVEL: KIRQL = 15;

/// `ExAllocateTimer`: expire with the resolution of the timer hardware, not of the clock tick.
pub const EX_TIMER_HIGH_RESOLUTION: u32 = 4;
/// `ExAllocateTimer`: do not wake an idle processor.
pub const EX_TIMER_NO_WAKE: u32 = 8;

pub const MAXIMUM_WAIT_OBJECTS: u32 = 0x40;
pub const THREAD_ALL_ACCESS: u32 = 0x1fffff;
pub const IO_NO_INCREMENT: u32 = 0;

#[cfg_attr(all(windows, feature = "kernel"), link(name = "ntoskrnl"))]
unsafe extern "efiapi" {
    /// IRQL: `<= HIGH_LEVEL`.
    pub fn KfRaiseIrql(NewIrql: KIRQL) -> KIRQL;
    /// IRQL: `<= HIGH_LEVEL`. C reads CR8 instead; the export is the same.
    pub fn KeGetCurrentIrql() -> KIRQL;
    /// IRQL: `<= HIGH_LEVEL`. A macro for this function on arm64.
    #[cfg_attr(target_arch = "aarch64", link_name = "KfLowerIrql")]
    pub fn KeLowerIrql(NewIrql: KIRQL);
    /// IRQL: `any`.
    pub fn KeInitializeSpinLock(SpinLock: *mut KSPIN_LOCK);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn KeAcquireSpinLockRaiseToDpc(SpinLock: *mut KSPIN_LOCK) -> KIRQL;
    /// IRQL: `== DISPATCH_LEVEL`.
    pub fn KeReleaseSpinLock(SpinLock: *mut KSPIN_LOCK, NewIrql: KIRQL);
    /// IRQL: `>= DISPATCH_LEVEL`.
    pub fn KeAcquireSpinLockAtDpcLevel(SpinLock: *mut KSPIN_LOCK);
    /// IRQL: `>= DISPATCH_LEVEL`.
    pub fn KeReleaseSpinLockFromDpcLevel(SpinLock: *mut KSPIN_LOCK);
    /// IRQL: `>= DISPATCH_LEVEL`.
    pub fn KeTryToAcquireSpinLockAtDpcLevel(SpinLock: *mut KSPIN_LOCK) -> BOOLEAN;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn KeAcquireInStackQueuedSpinLock(SpinLock: *mut KSPIN_LOCK, LockHandle: *mut KLOCK_QUEUE_HANDLE);
    /// IRQL: `== DISPATCH_LEVEL`.
    pub fn KeReleaseInStackQueuedSpinLock(LockHandle: *mut KLOCK_QUEUE_HANDLE);
    /// IRQL: `>= DISPATCH_LEVEL`.
    pub fn KeAcquireInStackQueuedSpinLockAtDpcLevel(
        SpinLock: *mut KSPIN_LOCK,
        LockHandle: *mut KLOCK_QUEUE_HANDLE,
    );
    /// IRQL: `== DISPATCH_LEVEL`.
    pub fn KeReleaseInStackQueuedSpinLockFromDpcLevel(LockHandle: *mut KLOCK_QUEUE_HANDLE);
    /// IRQL: `any`.
    pub fn KeInitializeEvent(Event: *mut KEVENT, Type: EVENT_TYPE, State: BOOLEAN);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn KePulseEvent(Event: *mut KEVENT, Increment: KPRIORITY, Wait: BOOLEAN) -> i32;
    /// IRQL: `<= DISPATCH_LEVEL (conditional)`.
    pub fn KeSetEvent(Event: *mut KEVENT, Increment: KPRIORITY, Wait: BOOLEAN) -> i32;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn KeClearEvent(Event: *mut KEVENT);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn KeResetEvent(Event: *mut KEVENT) -> i32;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn KeReadStateEvent(Event: *mut KEVENT) -> i32;
    /// IRQL: `<= APC_LEVEL (conditional)`.
    pub fn KeWaitForSingleObject(
        Object: *mut c_void,
        WaitReason: KWAIT_REASON,
        WaitMode: KPROCESSOR_MODE,
        Alertable: BOOLEAN,
        Timeout: *mut LARGE_INTEGER,
    ) -> NTSTATUS;
    /// IRQL: `<= APC_LEVEL (conditional)`.
    pub fn KeWaitForMultipleObjects(
        Count: u32,
        Object: *mut *mut c_void,
        WaitType: WAIT_TYPE,
        WaitReason: KWAIT_REASON,
        WaitMode: KPROCESSOR_MODE,
        Alertable: BOOLEAN,
        Timeout: *mut LARGE_INTEGER,
        WaitBlockArray: *mut c_void,
    ) -> NTSTATUS;
    /// IRQL: `>= PASSIVE_LEVEL`.
    pub fn KeDelayExecutionThread(
        WaitMode: KPROCESSOR_MODE,
        Alertable: BOOLEAN,
        Interval: *mut LARGE_INTEGER,
    ) -> NTSTATUS;
    /// IRQL: `any`.
    pub fn KeInitializeDpc(
        Dpc: *mut KDPC,
        DeferredRoutine: Option<KDEFERRED_ROUTINE>,
        DeferredContext: *mut c_void,
    );
    /// IRQL: `any`.
    pub fn KeInsertQueueDpc(
        Dpc: *mut KDPC,
        SystemArgument1: *mut c_void,
        SystemArgument2: *mut c_void,
    ) -> BOOLEAN;
    /// IRQL: `<= HIGH_LEVEL`.
    pub fn KeRemoveQueueDpc(Dpc: *mut KDPC) -> BOOLEAN;
    /// IRQL: `any`.
    pub fn KeSetImportanceDpc(Dpc: *mut KDPC, Importance: KDPC_IMPORTANCE);
    /// IRQL: `any`.
    pub fn KeSetTargetProcessorDpcEx(Dpc: *mut KDPC, ProcNumber: *mut PROCESSOR_NUMBER) -> NTSTATUS;
    /// IRQL: `<= APC_LEVEL`.
    pub fn KeFlushQueuedDpcs();
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn KeInitializeTimerEx(Timer: *mut KTIMER, Type: TIMER_TYPE);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn KeSetTimerEx(Timer: *mut KTIMER, DueTime: LARGE_INTEGER, Period: i32, Dpc: *mut KDPC) -> BOOLEAN;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn KeCancelTimer(_: *mut KTIMER) -> BOOLEAN;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn ExAllocateTimer(
        Callback: Option<EXT_CALLBACK>,
        CallbackContext: *mut c_void,
        Attributes: u32,
    ) -> *mut EX_TIMER;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn ExSetTimer(Timer: *mut EX_TIMER, DueTime: i64, Period: i64, Parameters: *mut c_void) -> BOOLEAN;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn ExCancelTimer(Timer: *mut EX_TIMER, Parameters: *mut c_void) -> BOOLEAN;
    pub fn ExDeleteTimer(
        Timer: *mut EX_TIMER,
        Cancel: BOOLEAN,
        Wait: BOOLEAN,
        Parameters: *mut c_void,
    ) -> BOOLEAN;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn IoAllocateWorkItem(DeviceObject: *mut DEVICE_OBJECT) -> *mut IO_WORKITEM;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn IoQueueWorkItem(
        IoWorkItem: *mut IO_WORKITEM,
        WorkerRoutine: Option<IO_WORKITEM_ROUTINE>,
        QueueType: WORK_QUEUE_TYPE,
        Context: *mut c_void,
    );
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn IoQueueWorkItemEx(
        IoWorkItem: *mut IO_WORKITEM,
        WorkerRoutine: Option<IO_WORKITEM_ROUTINE_EX>,
        QueueType: WORK_QUEUE_TYPE,
        Context: *mut c_void,
    );
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn IoFreeWorkItem(IoWorkItem: *mut IO_WORKITEM);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn ExQueueWorkItem(WorkItem: *mut WORK_QUEUE_ITEM, QueueType: WORK_QUEUE_TYPE);
    /// IRQL: `<= APC_LEVEL`.
    pub fn ExInitializeRundownProtection(RunRef: *mut EX_RUNDOWN_REF);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn ExAcquireRundownProtection(RunRef: *mut EX_RUNDOWN_REF) -> BOOLEAN;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn ExReleaseRundownProtection(RunRef: *mut EX_RUNDOWN_REF);
    /// IRQL: `<= APC_LEVEL`.
    pub fn ExWaitForRundownProtectionRelease(RunRef: *mut EX_RUNDOWN_REF);
    /// IRQL: `<= APC_LEVEL`.
    pub fn ExReInitializeRundownProtection(RunRef: *mut EX_RUNDOWN_REF);
    /// IRQL: `<= APC_LEVEL`.
    pub fn ExRundownCompleted(RunRef: *mut EX_RUNDOWN_REF);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn ExAcquireRundownProtectionEx(RunRef: *mut EX_RUNDOWN_REF, Count: u32) -> BOOLEAN;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn ExReleaseRundownProtectionEx(RunRef: *mut EX_RUNDOWN_REF, Count: u32);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn ExAllocateCacheAwareRundownProtection(PoolType: POOL_TYPE, PoolTag: u32) -> *mut c_void;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn ExFreeCacheAwareRundownProtection(RunRefCacheAware: *mut c_void);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn ExAcquireRundownProtectionCacheAware(RunRefCacheAware: *mut c_void) -> BOOLEAN;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn ExReleaseRundownProtectionCacheAware(RunRefCacheAware: *mut c_void);
    /// IRQL: `<= APC_LEVEL`.
    pub fn ExWaitForRundownProtectionReleaseCacheAware(RunRefCacheAware: *mut c_void);
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn PsCreateSystemThread(
        ThreadHandle: *mut *mut c_void,
        DesiredAccess: u32,
        ObjectAttributes: *mut OBJECT_ATTRIBUTES,
        ProcessHandle: HANDLE,
        ClientId: *mut CLIENT_ID,
        StartRoutine: Option<KSTART_ROUTINE>,
        StartContext: *mut c_void,
    ) -> NTSTATUS;
    /// IRQL: `<= PASSIVE_LEVEL`. `IoObject` is a device or driver object, referenced until `StartRoutine` has returned.
    pub fn IoCreateSystemThread(
        IoObject: *mut c_void,
        ThreadHandle: *mut *mut c_void,
        DesiredAccess: u32,
        ObjectAttributes: *mut OBJECT_ATTRIBUTES,
        ProcessHandle: HANDLE,
        ClientId: *mut CLIENT_ID,
        StartRoutine: Option<KSTART_ROUTINE>,
        StartContext: *mut c_void,
    ) -> NTSTATUS;
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn PsTerminateSystemThread(ExitStatus: NTSTATUS) -> NTSTATUS;
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn ObReferenceObjectByHandle(
        Handle: HANDLE,
        DesiredAccess: ACCESS_MASK,
        ObjectType: *mut OBJECT_TYPE,
        AccessMode: KPROCESSOR_MODE,
        Object: *mut *mut c_void,
        HandleInformation: *mut c_void,
    ) -> NTSTATUS;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn ObfDereferenceObject(Object: *mut c_void) -> isize;
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn ZwClose(Handle: HANDLE) -> NTSTATUS;
    /// IRQL: `<= APC_LEVEL`.
    pub fn KeEnterCriticalRegion();
    /// IRQL: `<= APC_LEVEL`.
    pub fn KeLeaveCriticalRegion();
    /// IRQL: `>= DISPATCH_LEVEL`.
    pub fn KeShouldYieldProcessor() -> u32;
    /// IRQL: `any`; fails below `DISPATCH_LEVEL`.
    pub fn KeQueryDpcWatchdogInformation(WatchdogInformation: *mut KDPC_WATCHDOG_INFORMATION) -> NTSTATUS;
}

/// Opaque; known by pointer only.
#[repr(C)]
pub struct EX_TIMER {
    _opaque: [u8; 0],
}

/// Opaque; known by pointer only.
#[repr(C)]
pub struct IO_WORKITEM {
    _opaque: [u8; 0],
}
