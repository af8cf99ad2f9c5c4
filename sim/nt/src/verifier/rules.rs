// SPDX-License-Identifier: MIT OR Apache-2.0

//! The kernel's rules for drivers, each with the pages that state it, and the reports of their violations.
//!
//! A check names its rule, so that none ends a driver without a source. A [`violation`] without a rule is what the processor or
//! the kernel does itself: its source is the page of its bug check. What no page states is a [`Tolerance`](super::Tolerance).

use super::{codes::BugCheck, report::violation};

/// A rule, and where it is stated.
#[derive(Debug)]
pub struct Rule {
    /// The rule, as the page of the verifier has it.
    pub statement: &'static str,
    /// The pages of the WDK that state it.
    pub pages: &'static str,
}

macro_rules! rules {
    ($($name:ident: $statement:literal, $pages:literal;)*) => {
        $(#[allow(missing_docs, reason = "its statement says it")]
        pub const $name: &Rule = &Rule { statement: $statement, pages: $pages };)*

        /// All rules, in the order of the page of the verifier.
        pub const RULES: &[&Rule] = &[$($name),*];
    };
}

rules! {
    LOCKS_RELEASED: "a spin lock is released before the IRQL is lowered below `DISPATCH_LEVEL`, and before a callback returns",
        "`KeReleaseSpinLock`, \"SpinLock rule (wdm)\"";
    LOCKS_AT_COMPLETION: "no spin lock is held when a request is completed", "`IoCompleteRequest`, \"SpinLocks and IRPs\"";
    LOCK_ORDER: "locks are acquired in one order", "\"Deadlock Detection\", bug check 0xC4 0x1001";
    INITIALIZED: "an object that threads wait for is initialized, and of the kind that a function takes",
        "the first parameter on the page of the function";
    WAIT_BLOCKS: "a wait for more than 3 objects has wait blocks, and none is for more than 64", "`KeWaitForMultipleObjects`";
    SEMAPHORE_COUNT: "the count of a semaphore is between 0 and its limit", "`KeInitializeSemaphore`, `KeReleaseSemaphore`";
    MUTEX_OWNER: "a mutex is released by the thread that holds it", "`KeReleaseMutex`";
    FAST_MUTEX: "a fast or guarded mutex is not acquired by its owner, and released by no other thread",
        "`ExAcquireFastMutex`, `KeAcquireGuardedMutex`, `ExReleaseFastMutex`";
    FAST_MUTEX_UNSAFE: "`ExAcquireFastMutexUnsafe` and its release are called in a critical region or at `APC_LEVEL`",
        "`ExAcquireFastMutexUnsafe`, bug check 0xC4 0x39, 0x3A";
    PUSH_LOCK: "a push lock is used in a critical region, not acquired by its owner, and released by no other thread",
        "`ExAcquirePushLockExclusive`, bug check 0xC4 0xEA, 0xEB";
    RESOURCE_REGION: "a resource is acquired and released in a critical region", "`ExAcquireResourceExclusiveLite`, bug check 0xC4 0x37, 0x38";
    RESOURCE_ACCESS: "a resource is not acquired exclusively by a thread that shares it, nor converted without exclusive access",
        "`ExAcquireResourceExclusiveLite`, `ExConvertExclusiveToSharedLite`";
    RESOURCE_LIFE: "a resource is initialized once, and deleted before its memory is freed and while no thread holds it",
        "`ExInitializeResourceLite`, `ExDeleteResourceLite`, bug check 0xC4 0xD0 to 0xD2";
    REGION_LEFT: "a critical or guarded region is left by a thread that is in one", "`KeLeaveCriticalRegion`, bug check 0xC4 0x3E";
    RUNDOWN: "rundown protection is released as often as it is acquired", "`ExReleaseRundownProtection`";
    LOCK_FREED: "no spin lock is held in memory that is freed", "\"Deadlock Detection\", bug check 0xC4 0x100B";
    PAGED_FREED: "paged pool is freed at `APC_LEVEL` or below", "`ExFreePoolWithTag`, bug check 0xC4 0x11";
    EXECUTABLE_POOL: "pool is not executable", "\"Code integrity checking\", bug check 0xC4 0x2000";
    RAISED: "an exception of the kernel is handled: handlers are not simulated", "`ExAllocatePool2`, \"Handling Exceptions\"";
    MDL_FREED: "an MDL is freed when it is not mapped", "`IoFreeMdl`, bug check 0xC4 0xB8";
    MDL_MAPPED: "an MDL with locked pages is mapped once, and unmapped where it was mapped",
        "`MmMapLockedPagesSpecifyCache`, `MmUnmapLockedPages`, bug check 0xC4 0xB2, 0xB3";
    MDL_LOCKED: "the pages of an MDL that are not nonpaged pool's are locked once, and unlocked",
        "`MmProbeAndLockPages`, `MmUnlockPages`, bug check 0xC4 0x7C, 0xB0";
    MDL_NONPAGED: "`MmBuildMdlForNonPagedPool` is called for nonpaged memory", "`MmBuildMdlForNonPagedPool`, bug check 0xC4 0x7F";
    MDL_PARTIAL: "a partial MDL describes a part of its source", "`IoBuildPartialMdl`";
    PAGES_FREED: "pages and contiguous memory are freed by the function that belongs to their allocation",
        "`MmFreePagesFromMdl`, `MmFreeContiguousMemory`";
    WORK_ITEM: "a work item is allocated, queued once at a time, and freed while it is not queued",
        "`IoQueueWorkItem`, `IoFreeWorkItem`, `ExInitializeWorkItem`";
    REFERENCES: "a reference to an object is released once", "`ObDereferenceObject`, bug check 0xC4 0x3F";
    THREAD: "the functions for threads get threads that a driver has started", "`PsTerminateSystemThread`, `KeSetPriorityThread`";
    PRIORITY: "the priority of a thread is between `LOW_PRIORITY` and `HIGH_PRIORITY`", "`KeSetPriorityThread`";
    THREAD_OWNER: "a thread of `IoCreateSystemThread` is for a device or a driver", "`IoCreateSystemThread`";
    DEVICE_LIFE: "a device is deleted once, and after it is detached", "`IoDeleteDevice`, bug check 0xC9 0x201";
    ATTACHED: "a device is attached once, to a device, and detached from one to which it is attached",
        "`IoAttachDeviceToDeviceStack`, `IoDetachDevice`, bug check 0xC9 0x202";
    UNLOAD: "a driver that is unloaded has a `DriverUnload` routine, which releases what the driver has allocated",
        "`DRIVER_UNLOAD`, bug check 0xC4 0x62";
    REQUEST_DISPATCHED: "a dispatch routine completes a request, passes it on or marks it pending, and returns the status that says so",
        "`DRIVER_DISPATCH`, \"IRP Status\", bug check 0xC9 0x224, 0x226, 0x23D, 0x23E";
    REQUEST_PASSED: "a request is sent with a stack location for its target, which is a device, without a cancel routine",
        "`IoCallDriver`, `IoSkipCurrentIrpStackLocation`, bug check 0xC9 0x03, 0x04, 0x203, 0x205 to 0x207";
    REQUEST_COMPLETED: "a request is completed by the driver that has it, with a final status, and without a cancel routine",
        "`IoCompleteRequest`, bug check 0xC9 0x06, 0x07, 0x209";
    COMPLETION_ROUTINE: "a completion routine marks a request pending if `PendingReturned` is set", "`IO_COMPLETION_ROUTINE`, bug check 0xC9 0x228";
    OWN_REQUEST: "an IRP of `IoAllocateIrp` is freed and reused by the driver that has it back", "`IoFreeIrp`, `IoReuseIrp`, bug check 0xC9 0x01, 0x20B";
    CANCELED: "a request that is canceled is completed soon after `IRP_MJ_CLEANUP`", "`IRP_MJ_CLEANUP`, bug check 0xC4 0x135";
    REQUEST: "the functions for requests get an IRP that a driver was given", "the first parameter on the page of the function";
    REMOVE_LOCK: "a remove lock is initialized once, and released with the tag of its acquisition",
        "`IoInitializeRemoveLock`, `IoReleaseRemoveLock`, bug check 0xC4 0xD5 to 0xD7";
    CANCEL_SAFE_QUEUE: "a cancel-safe queue is initialized, and `DriverContext[3]` of its IRPs is its own", "`IoCsqInitialize`, `IoCsqInsertIrp`";
    HOST_MEMORY: "memory of programs is described by programs: this kernel has none", "`MmProbeAndLockPages`, `MmMapLockedPagesSpecifyCache`";
    TRACE: "events of a trace are those of a registered provider, within the limits of ETW", "`EtwWrite`, `EtwUnregister`, bug check 0xC4 0xDC";
}

/// Reports a violation of a rule, and where the rule is stated.
///
/// Must not be called while a host-side mutex is held.
#[cold]
pub fn broken(rule: &Rule, code: BugCheck, text: impl Into<String>) -> ! {
    let (text, pages) = (text.into(), rule.pages.replace('`', ""));
    violation(code, format!("{text} (source: WDK, {pages})"))
}
