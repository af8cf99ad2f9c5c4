// SPDX-License-Identifier: MIT OR Apache-2.0

//! Implementation in the driver: the kernel's own functions.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::AtomicUsize;
use core::time::Duration;
use ndk_abi::cng::{BCRYPT_USE_SYSTEM_PREFERRED_RNG, BCryptGenRandom};
use ndk_abi::ndis::{NDIS_HANDLE, NdisAllocateIoWorkItem, NdisFreeIoWorkItem, NdisQueueIoWorkItem};
use ndk_abi::nt::{
    EVENT_TYPE, ExAllocateTimer, ExDeleteTimer, ExSetTimer, GROUP_AFFINITY, IoCreateSystemThread, KDPC,
    KDPC_IMPORTANCE, KDPC_WATCHDOG_INFORMATION, KEVENT, KWAIT_REASON, KeAcquireSpinLockRaiseToDpc,
    KeClearEvent, KeFlushQueuedDpcs, KeGetCurrentIrql, KeGetCurrentProcessorNumberEx,
    KeGetProcessorIndexFromNumber, KeGetProcessorNumberFromIndex, KeInitializeDpc, KeInitializeEvent,
    KeInsertQueueDpc, KeLowerIrql, KeQueryActiveProcessorCountEx, KeQueryDpcWatchdogInformation,
    KeQueryInterruptTimePrecise, KeReleaseSpinLock, KeRemoveQueueDpc, KeRevertToUserGroupAffinityThread,
    KeSetEvent, KeSetImportanceDpc, KeSetSystemGroupAffinityThread, KeSetTargetProcessorDpcEx,
    KeShouldYieldProcessor, KeStallExecutionProcessor, KeTryToAcquireSpinLockAtDpcLevel,
    KeWaitForSingleObject, KfRaiseIrql, MDL, MEMORY_CACHING_TYPE, MmMapLockedPagesSpecifyCache,
    MmUnmapLockedPages, OBJ_KERNEL_HANDLE, OBJECT_ATTRIBUTES, PROCESSOR_NUMBER, THREAD_ALL_ACCESS, ZwClose,
};

use fallible::AliasableBox;

use crate::callback::Callback;
use crate::level::DISPATCH_LEVEL;

pub fn irql() -> u8 {
    // SAFETY: callable at any IRQL, touches nothing.
    unsafe { KeGetCurrentIrql() }
}

pub fn raise_to_dispatch() -> u8 {
    // SAFETY: the caller is at or below DISPATCH_LEVEL.
    unsafe { KfRaiseIrql(DISPATCH_LEVEL) }
}

pub fn lower(previous: u8) {
    // SAFETY: the IRQL before `raise_to_dispatch`; locks acquired since are released.
    unsafe { KeLowerIrql(previous) };
}

/// IRQL >= `DISPATCH_LEVEL`.
pub fn should_yield() -> bool {
    // SAFETY: the caller is at DISPATCH_LEVEL or above.
    unsafe { KeShouldYieldProcessor() != 0 }
}

/// IRQL >= `DISPATCH_LEVEL`.
pub fn ticks_at_dispatch() -> u32 {
    let mut watchdog = KDPC_WATCHDOG_INFORMATION {
        DpcTimeLimit: 0,
        DpcTimeCount: 0,
        DpcWatchdogLimit: 0,
        DpcWatchdogCount: 0,
        Reserved: 0,
    };
    // SAFETY: the result is our own variable.
    let status = unsafe { KeQueryDpcWatchdogInformation(&raw mut watchdog) };
    if status != STATUS_SUCCESS {
        return 0;
    }
    // The count is what remains of the limit, which is 0 if there is none.
    watchdog.DpcWatchdogLimit.saturating_sub(watchdog.DpcWatchdogCount)
}

const ALL_PROCESSOR_GROUPS: u16 = 0xffff;
const INVALID_PROCESSOR_INDEX: u32 = u32::MAX;

pub fn processor_count() -> u32 {
    // SAFETY: the function has no preconditions: it is callable at any IRQL, and takes a number.
    unsafe { KeQueryActiveProcessorCountEx(ALL_PROCESSOR_GROUPS) }
}

pub fn current_processor() -> u32 {
    // SAFETY: callable at any IRQL; the number is optional.
    unsafe { KeGetCurrentProcessorNumberEx(null_mut()) }
}

pub fn processor_index(group: u16, number: u8) -> Option<u32> {
    let mut number = PROCESSOR_NUMBER { Group: group, Number: number, Reserved: 0 };
    // SAFETY: callable at any IRQL; the number is our own variable.
    let index = unsafe { KeGetProcessorIndexFromNumber(&raw mut number) };
    Some(index).filter(|&index| index != INVALID_PROCESSOR_INDEX)
}

/// Returns group and number of an active processor.
pub fn processor_number(index: u32) -> Option<PROCESSOR_NUMBER> {
    let mut number = PROCESSOR_NUMBER { Group: 0, Number: 0, Reserved: 0 };
    // SAFETY: callable at any IRQL; the number is our own variable.
    let status = unsafe { KeGetProcessorNumberFromIndex(index, &raw mut number) };
    (status == STATUS_SUCCESS).then_some(number)
}

/// Previous affinity of a thread; `None` if it was not changed.
pub type Affinity = Option<GROUP_AFFINITY>;

/// `PASSIVE_LEVEL`.
pub fn bind_thread(index: u32) -> Affinity {
    let number = processor_number(index)?;
    let mut affinity = GROUP_AFFINITY {
        Mask: 1usize.checked_shl(number.Number.into())?,
        Group: number.Group,
        Reserved: [0; 3],
    };
    let mut previous = GROUP_AFFINITY { Mask: 0, Group: 0, Reserved: [0; 3] };
    // SAFETY: at PASSIVE_LEVEL; both are our own variables, and the processor is an active one.
    unsafe { KeSetSystemGroupAffinityThread(&raw mut affinity, &raw mut previous) };
    Some(previous)
}

/// `PASSIVE_LEVEL`, on the thread that `bind_thread` was called on.
pub fn unbind_thread(previous: &mut Affinity) {
    if let Some(previous) = previous {
        // SAFETY: at PASSIVE_LEVEL; the value that `KeSetSystemGroupAffinityThread` returned to this thread.
        unsafe { KeRevertToUserGroupAffinityThread(previous) };
    }
}

pub fn acquire_spin_lock(lock: &AtomicUsize) -> u8 {
    // SAFETY: a zeroed word is an initialized KSPIN_LOCK; it is resident like everything in pool or image.
    unsafe { KeAcquireSpinLockRaiseToDpc(lock.as_ptr().cast()) }
}

pub fn try_acquire_spin_lock(lock: &AtomicUsize) -> Option<u8> {
    // SAFETY: raising to DISPATCH_LEVEL is allowed at or below it, where spin locks are used.
    let previous = unsafe { KfRaiseIrql(DISPATCH_LEVEL) };
    // SAFETY: at DISPATCH_LEVEL; a zeroed word is an initialized KSPIN_LOCK.
    if unsafe { KeTryToAcquireSpinLockAtDpcLevel(lock.as_ptr().cast()) } != 0 {
        return Some(previous);
    }
    // SAFETY: the IRQL before `KfRaiseIrql`; no lock was acquired since.
    unsafe { KeLowerIrql(previous) };
    None
}

/// # Safety
/// The caller holds the lock, and acquiring it returned `previous`.
pub unsafe fn release_spin_lock(lock: &AtomicUsize, previous: u8) {
    // SAFETY: by this function's contract the caller holds the lock, and `previous` is the IRQL at which it was acquired.
    unsafe { KeReleaseSpinLock(lock.as_ptr().cast(), previous) };
}

/// 100 ns units since boot.
pub fn interrupt_time() -> u64 {
    let mut counter = 0;
    // SAFETY: callable at any IRQL; the counter is written to our own variable.
    unsafe { KeQueryInterruptTimePrecise(&raw mut counter) }
}

pub fn stall(microseconds: u32) {
    // SAFETY: the function has no preconditions: it is callable at any IRQL, and takes a number.
    unsafe { KeStallExecutionProcessor(microseconds) };
}

/// `PASSIVE_LEVEL`.
pub fn fill_random(bytes: &mut [u8; 32]) -> bool {
    let (buffer, len) = (bytes.as_mut_ptr(), bytes.len() as u32);
    // SAFETY: at PASSIVE_LEVEL; the system-preferred generator needs no handle; `len` bytes of `bytes` are written.
    let status = unsafe { BCryptGenRandom(null_mut(), buffer, len, BCRYPT_USE_SYSTEM_PREFERRED_RNG) };
    status == STATUS_SUCCESS
}

/// On the heap: a KEVENT contains the head of its list of waiters and must not move.
pub struct Event(AliasableBox<UnsafeCell<MaybeUninit<KEVENT>>>);

// SAFETY: only the kernel's functions access a KEVENT, under the dispatcher lock.
unsafe impl Send for Event {}
// SAFETY: shared use passes the address to the kernel's functions, which synchronize themselves by the dispatcher lock.
unsafe impl Sync for Event {}

const KERNEL_MODE: i8 = 0;
const STATUS_SUCCESS: i32 = 0;

impl Event {
    pub fn try_new() -> Option<Self> {
        let event = Self(AliasableBox::try_new(UnsafeCell::new(MaybeUninit::zeroed())).ok()?);
        // SAFETY: the memory is a KEVENT's, does not move, and outlives every use through `self`.
        unsafe { KeInitializeEvent(event.as_ptr(), EVENT_TYPE::NotificationEvent, 0) };
        Some(event)
    }

    fn as_ptr(&self) -> *mut KEVENT {
        self.0.get().cast()
    }

    pub fn set(&self) {
        // SAFETY: initialized; `Wait` is FALSE, so callable up to DISPATCH_LEVEL.
        unsafe { KeSetEvent(self.as_ptr(), 0, 0) };
    }

    pub fn clear(&self) {
        // SAFETY: `try_new` has initialized the KEVENT, which does not move; callable up to DISPATCH_LEVEL.
        unsafe { KeClearEvent(self.as_ptr()) };
    }

    pub fn wait(&self, limit: Option<Duration>) -> bool {
        let mut timeout = limit.map(|limit| {
            let units = limit.as_nanos().div_ceil(100).min(i64::MAX as u128) as i64;
            ndk_abi::nt::LARGE_INTEGER { QuadPart: -units }
        });
        let timeout = timeout.as_mut().map_or(null_mut(), |timeout| &raw mut *timeout);
        // SAFETY: initialized, and kept alive by `self`; the caller is at PASSIVE_LEVEL.
        let status = unsafe {
            KeWaitForSingleObject(self.as_ptr().cast(), KWAIT_REASON::Executive, KERNEL_MODE, 0, timeout)
        };
        status == STATUS_SUCCESS
    }
}

/// The timer expires at its due time and not at the next clock tick.
const EX_TIMER_HIGH_RESOLUTION: u32 = 4;

/// The callback is freed after `drop` has deleted the kernel's timer.
pub struct Timer {
    timer: *mut ndk_abi::nt::EX_TIMER,
    _callback: Callback,
}

// SAFETY: the kernel's timer may be set and deleted from any thread.
unsafe impl Send for Timer {}
// SAFETY: as above; `ExSetTimer` takes the kernel's own lock.
unsafe impl Sync for Timer {}

impl Timer {
    pub fn try_new(callback: Callback) -> Option<Self> {
        // SAFETY: the callback lives until `drop` has deleted the timer and waited for its routine.
        let timer = unsafe { ExAllocateTimer(Some(fire), callback.context(), EX_TIMER_HIGH_RESOLUTION) };
        // Constructed only on success, since dropping a `Timer` deletes the kernel's timer.
        (!timer.is_null()).then(|| Self { timer, _callback: callback })
    }

    /// Due in `units` of 100 ns.
    pub fn set(&self, units: i64) {
        // SAFETY: the timer is live; a negative due time is relative, a period of 0 means once.
        unsafe { ExSetTimer(self.timer, -units, 0, null_mut()) };
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: the timer is live and not used again; cancelling and waiting is allowed at PASSIVE_LEVEL.
        unsafe { ExDeleteTimer(self.timer, 1, 1, null_mut()) };
    }
}

unsafe extern "efiapi" fn fire(_timer: *mut ndk_abi::nt::EX_TIMER, context: *mut c_void) {
    // SAFETY: the context of a callback that outlives the kernel's timer.
    unsafe { Callback::call(context) };
}

/// The callback is freed after `drop` has waited for the routine.
pub struct Dpc {
    /// On the heap: a queued KDPC is linked into the processor's queue and must not move.
    dpc: AliasableBox<UnsafeCell<MaybeUninit<KDPC>>>,
    _callback: Callback,
}

// SAFETY: a KDPC is queued and removed from any thread.
unsafe impl Send for Dpc {}
// SAFETY: as above; its functions take the queue's lock.
unsafe impl Sync for Dpc {}

impl Dpc {
    /// For the active processor with this index, or for the one that queues it. One for a processor that went away meanwhile
    /// runs on the one that queues it.
    pub fn try_new(callback: Callback, processor: Option<u32>) -> Option<Self> {
        let dpc = AliasableBox::try_new(UnsafeCell::new(MaybeUninit::zeroed())).ok()?;
        // SAFETY: the memory is a KDPC's and does not move; the callback lives until `drop` has waited for
        // the routine.
        unsafe { KeInitializeDpc(dpc.get().cast(), Some(defer), callback.context()) };
        if let Some(mut number) = processor.and_then(processor_number) {
            // SAFETY: initialised, and not queued; the number is our own variable.
            unsafe { KeSetTargetProcessorDpcEx(dpc.get().cast(), &raw mut number) };
            // Otherwise a busy processor would begin it at its next clock tick only.
            // SAFETY: initialized above, and not queued before this function returns.
            unsafe { KeSetImportanceDpc(dpc.get().cast(), KDPC_IMPORTANCE::MediumHighImportance) };
        }
        Some(Self { dpc, _callback: callback })
    }

    pub fn queue(&self) {
        // SAFETY: initialised; the arguments are not used.
        unsafe { KeInsertQueueDpc(self.dpc.get().cast(), null_mut(), null_mut()) };
    }
}

impl Drop for Dpc {
    fn drop(&mut self) {
        // SAFETY: initialised; after this it is in no queue.
        unsafe { KeRemoveQueueDpc(self.dpc.get().cast()) };
        // Returns when routines already taken from a queue have returned.
        flush_dpcs();
    }
}

/// `PASSIVE_LEVEL`.
pub fn flush_dpcs() {
    // SAFETY: callers run at PASSIVE_LEVEL, which is all that the function requires.
    unsafe { KeFlushQueuedDpcs() };
}

unsafe extern "efiapi" fn defer(
    _dpc: *mut KDPC,
    context: *mut c_void,
    _first: *mut c_void,
    _second: *mut c_void,
) {
    // SAFETY: the context of a callback that outlives the KDPC.
    unsafe { Callback::call(context) };
}

/// Routine of a work item; takes the context and the work item.
pub type Routine = unsafe extern "efiapi" fn(*mut c_void, *mut c_void);

pub struct WorkItem(NDIS_HANDLE);

// SAFETY: an opaque handle that NDIS takes on any thread.
unsafe impl Send for WorkItem {}

#[derive(Clone, Copy)]
pub struct RawWorkItem(NDIS_HANDLE);

impl WorkItem {
    pub fn try_new(owner: *mut c_void) -> Option<Self> {
        // SAFETY: the owner outlives its work items (contract of `Owner::new`).
        let handle = unsafe { NdisAllocateIoWorkItem(owner) };
        (!handle.is_null()).then(|| Self(handle))
    }

    pub fn raw(&self) -> RawWorkItem {
        RawWorkItem(self.0)
    }
}

impl Drop for WorkItem {
    fn drop(&mut self) {
        // SAFETY: allocated by `try_new`, and either never queued or already running its routine.
        unsafe { NdisFreeIoWorkItem(self.0) };
    }
}

impl RawWorkItem {
    /// # Safety
    /// The work item is live and not queued; `routine` may be called once with `context`, on any thread.
    pub unsafe fn queue(self, routine: Routine, context: *mut c_void) {
        // SAFETY: the caller's contract; NDIS keeps the driver loaded until the routine has returned.
        unsafe { NdisQueueIoWorkItem(self.0, Some(routine), context) };
    }
}

/// Routine of a thread; takes the context.
pub type ThreadRoutine = unsafe extern "efiapi" fn(*mut c_void);

/// Returns whether the thread was started. `PASSIVE_LEVEL`.
///
/// # Safety
/// `driver` is the image's driver object; `routine` may be called once with `context`, on any thread.
pub unsafe fn start_thread(driver: *mut c_void, routine: ThreadRoutine, context: *mut c_void) -> bool {
    let mut attributes = OBJECT_ATTRIBUTES {
        Length: size_of::<OBJECT_ATTRIBUTES>() as u32,
        RootDirectory: null_mut(),
        ObjectName: null_mut(),
        Attributes: OBJ_KERNEL_HANDLE,
        SecurityDescriptor: null_mut(),
        SecurityQualityOfService: null_mut(),
    };
    let mut handle = null_mut();
    // SAFETY: the caller's contract; handle and attributes live through the call; PASSIVE_LEVEL.
    let status = unsafe {
        IoCreateSystemThread(
            driver,
            &raw mut handle,
            THREAD_ALL_ACCESS,
            &raw mut attributes,
            null_mut(),
            null_mut(),
            Some(routine),
            context,
        )
    };
    if status != STATUS_SUCCESS {
        return false;
    }
    // SAFETY: the handle that was just made, closed once. The thread goes on without it.
    unsafe { ZwClose(handle) };
    true
}

/// # Safety
/// `mdl` is complete and describes resident pages.
pub unsafe fn map(mdl: NonNull<MDL>) -> Option<NonNull<u8>> {
    // SAFETY: the caller's contract; kernel mode and no bug check on failure, so a failure returns NULL.
    let base = unsafe {
        MmMapLockedPagesSpecifyCache(
            mdl.as_ptr(),
            KERNEL_MODE,
            MEMORY_CACHING_TYPE::MmCached,
            null_mut(),
            0,
            PRIORITY,
        )
    };
    NonNull::new(base.cast())
}

/// # Safety
/// `mdl` was mapped at `base` and is not mapped again.
pub unsafe fn unmap(base: NonNull<u8>, mdl: NonNull<MDL>) {
    // SAFETY: by this function's contract the pages of the MDL are mapped at `base`, and this ends the only use of the mapping.
    unsafe { MmUnmapLockedPages(base.as_ptr().cast(), mdl.as_ptr()) };
}

/// `NormalPagePriority | MdlMappingNoExecute`.
const PRIORITY: u32 = 16 | 0x4000_0000;
