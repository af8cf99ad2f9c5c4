// SPDX-License-Identifier: MIT OR Apache-2.0

//! The violations, by name.

#![allow(clippy::cast_ptr_alignment, reason = "pool blocks are aligned for the structures in them")]

use core::{
    ffi::c_void,
    hint::black_box,
    mem::MaybeUninit,
    ptr::{null, null_mut},
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use ndk_abi::nt::{
    DISPATCH_LEVEL, EVENT_TYPE, EX_TIMER, EtwRegister, ExAllocateTimer, ExDeleteTimer, ExSetTimer, GUID,
    IoAllocateMdl, IoAllocateWorkItem, IoFreeMdl, IoFreeWorkItem, IoQueueWorkItem, KDEFERRED_ROUTINE, KDPC,
    KEVENT, KSPIN_LOCK, KTIMER, KWAIT_REASON, KeAcquireSpinLockAtDpcLevel, KeAcquireSpinLockRaiseToDpc,
    KeBugCheckEx, KeFlushQueuedDpcs, KeGetCurrentIrql, KeInitializeDpc, KeInitializeEvent,
    KeInitializeTimerEx, KeInsertQueueDpc, KeLowerIrql, KeReleaseSpinLock, KeReleaseSpinLockFromDpcLevel,
    KeSetEvent, KeSetTimerEx, KeWaitForSingleObject, KfRaiseIrql, LARGE_INTEGER, LOCK_OPERATION, MDL,
    MDL_MAPPED_TO_SYSTEM_VA, MDL_PAGES_LOCKED, MDL_SOURCE_IS_NONPAGED_POOL, MEMORY_CACHING_TYPE,
    MmAllocateContiguousMemorySpecifyCache, MmBuildMdlForNonPagedPool, MmFreeContiguousMemory,
    MmMapLockedPagesSpecifyCache, MmProbeAndLockPages, MmUnmapLockedPages, TIMER_TYPE, WORK_QUEUE_TYPE,
};

use crate::{
    memory::{TAG, allocate, free, free_with_tag, read, stay, write},
    processor,
};

/// All violations by name; "good" commits none.
pub const ALL: &[(&str, fn())] = &[
    ("good", good),
    ("double free", double_free),
    ("overrun", overrun),
    ("underrun", underrun),
    ("use after free", use_after_free),
    ("wrong tag", wrong_tag),
    ("pool leak", pool_leak),
    ("many leaks", many_leaks),
    ("write to a freed block through a mapping", write_to_a_freed_block),
    ("timer leak", timer_leak),
    ("work item leak", work_item_leak),
    ("passive function at dispatch", passive_function_at_dispatch),
    ("wait at dispatch", wait_at_dispatch),
    ("lower to higher", lower_to_higher),
    ("dpc leaves irql raised", dpc_leaves_irql_raised),
    ("lock twice", lock_twice),
    ("release unheld", release_unheld),
    ("lower with lock held", lower_with_lock_held),
    ("lock order", lock_order),
    ("return with lock held", return_with_lock_held),
    ("null read", null_read),
    ("wild call", wild_call),
    ("null call", null_call),
    ("null event", null_event),
    ("null mdl", null_mdl),
    ("null dpc routine", null_dpc_routine),
    ("unlisted call", unlisted_call),
    ("unlisted dpc routine", unlisted_dpc_routine),
    ("division by zero", division_by_zero),
    ("illegal instruction", illegal_instruction),
    ("write to constant", write_to_constant),
    ("endless recursion", endless_recursion),
    ("deep stack", deep_stack),
    ("deep leaf", deep_leaf),
    ("stack in an mdl", stack_in_an_mdl),
    ("free armed timer", free_armed_timer),
    ("unload with armed timer", unload_with_armed_timer),
    ("uninitialized event", uninitialized_event),
    ("free mapped mdl", free_mapped_mdl),
    ("lock an mdl of nonpaged pool", lock_an_mdl_of_nonpaged_pool),
    ("use after unmap", use_after_unmap),
    ("free contiguous memory with a timer", free_contiguous_memory_with_a_timer),
    ("bug check", bug_check),
    ("failed assertion", processor::failed_assertion),
    ("read cr8", processor::read_irql_from_cr8),
    ("write cr8", processor::write_irql_to_cr8),
    ("poll shared time", processor::poll_shared_time),
    ("write shared time", processor::write_shared_time),
];

/// The driver's unload routine releases nothing.
pub fn unload() {}

fn raise() -> u8 {
    // SAFETY: the level is not below the current one, which is PASSIVE_LEVEL or DISPATCH_LEVEL here.
    unsafe { KfRaiseIrql(DISPATCH_LEVEL) }
}

fn lower(level: u8) {
    // SAFETY: in some violations it is not allowed, which the verifier reports.
    unsafe { KeLowerIrql(level) };
    stay();
}

/// Allocates an initialized lock (zero).
fn new_lock() -> *mut KSPIN_LOCK {
    allocate(size_of::<KSPIN_LOCK>()).cast()
}

fn acquire(lock: *mut KSPIN_LOCK) -> u8 {
    // SAFETY: callers pass a live lock, which is initialized because it is zero, or released.
    unsafe { KeAcquireSpinLockRaiseToDpc(lock) }
}

fn release(lock: *mut KSPIN_LOCK, level: u8) {
    // SAFETY: in some violations it is not held, which the verifier reports.
    unsafe { KeReleaseSpinLock(lock, level) };
    stay();
}

/// Uses correctly what the violations misuse.
fn good() {
    let block = allocate(100);
    write(block);
    write(block.wrapping_add(99));
    free_with_tag(block, TAG);
    let lock = new_lock();
    let level = acquire(lock);
    release(lock, level);
    free(lock.cast());
    good_dpc();
    good_timer();
    good_work_item();
    good_mdl();
    // SAFETY: `KeGetCurrentIrql` takes nothing and is callable at any IRQL.
    assert_eq(unsafe { KeGetCurrentIrql() }.into(), 0);
}

/// Bug checks with the two values if they differ.
fn assert_eq(left: usize, right: usize) {
    if left != right {
        // SAFETY: `KeBugCheckEx` is callable at any IRQL; it does not return.
        unsafe { KeBugCheckEx(0xdead, left, right, 0, 0) };
    }
}

static CALLS: AtomicUsize = AtomicUsize::new(0);
static EVENT: AtomicUsize = AtomicUsize::new(0);

fn new_event() -> *mut KEVENT {
    let event = allocate(size_of::<KEVENT>()).cast();
    // SAFETY: memory of an event's size.
    unsafe { KeInitializeEvent(event, EVENT_TYPE::SynchronizationEvent, 0) };
    EVENT.store(event.expose_provenance(), SeqCst);
    event
}

/// Waits for an event for at most a second.
fn wait(event: *mut KEVENT) -> i32 {
    let mut timeout = LARGE_INTEGER { QuadPart: -10_000_000 };
    // SAFETY: an initialized event and a timeout of our own.
    unsafe { KeWaitForSingleObject(event.cast(), KWAIT_REASON::Executive, 0, 0, &raw mut timeout) }
}

fn set_event() {
    let event = core::ptr::with_exposed_provenance_mut(EVENT.load(SeqCst));
    // SAFETY: the event of the running violation.
    unsafe { KeSetEvent(event, 0, 0) };
}

unsafe extern "efiapi" fn count_at_dispatch(
    _: *mut KDPC,
    context: *mut c_void,
    _: *mut c_void,
    _: *mut c_void,
) {
    // SAFETY: `KeGetCurrentIrql` takes nothing and is callable at any IRQL.
    assert_eq(unsafe { KeGetCurrentIrql() }.into(), DISPATCH_LEVEL.into());
    CALLS.fetch_add(context.addr(), SeqCst);
}

fn good_dpc() {
    let dpc = allocate(size_of::<KDPC>()).cast::<KDPC>();
    CALLS.store(0, SeqCst);
    // SAFETY: memory of a DPC's size.
    unsafe { KeInitializeDpc(dpc, Some(count_at_dispatch), core::ptr::without_provenance_mut(7)) };
    // SAFETY: the DPC object was initialized with `KeInitializeDpc` and stays in memory until the DPC has run.
    unsafe { KeInsertQueueDpc(dpc, null_mut(), null_mut()) };
    // SAFETY: violations run at PASSIVE_LEVEL, as `KeFlushQueuedDpcs` demands.
    unsafe { KeFlushQueuedDpcs() };
    stay();
    assert_eq(CALLS.load(SeqCst), 7);
    free(dpc.cast());
}

unsafe extern "efiapi" fn timer_fired(_: *mut EX_TIMER, _: *mut c_void) {
    set_event();
}

fn new_timer() -> *mut EX_TIMER {
    // SAFETY: violations run at PASSIVE_LEVEL, below the limit of DISPATCH_LEVEL; the callback is a function of this
    // image.
    unsafe { ExAllocateTimer(Some(timer_fired), null_mut(), 0) }
}

fn good_timer() {
    let event = new_event();
    let timer = new_timer();
    // SAFETY: a live timer, due in 1 ms.
    unsafe { ExSetTimer(timer, -10_000, 0, null_mut()) };
    assert_eq(wait(event).cast_unsigned() as usize, 0);
    // SAFETY: a live timer, at PASSIVE_LEVEL.
    unsafe { ExDeleteTimer(timer, 1, 1, null_mut()) };
    free(event.cast());
}

unsafe extern "efiapi" fn work(_: *mut ndk_abi::nt::DEVICE_OBJECT, _: *mut c_void) {
    set_event();
}

fn good_work_item() {
    let event = new_event();
    // SAFETY: at PASSIVE_LEVEL; no device object is needed here.
    let item = unsafe { IoAllocateWorkItem(null_mut()) };
    // SAFETY: the work item was allocated for the device of this driver and is neither freed nor queued.
    unsafe { IoQueueWorkItem(item, Some(work), WORK_QUEUE_TYPE::DelayedWorkQueue, null_mut()) };
    assert_eq(wait(event).cast_unsigned() as usize, 0);
    // SAFETY: a live work item that has run.
    unsafe { IoFreeWorkItem(item) };
    free(event.cast());
}

/// Allocates an MDL for a block of pool and marks its pages as locked, so that they can be mapped again.
fn new_mdl(block: *mut u8, length: u32) -> *mut MDL {
    // SAFETY: an MDL is allocated without an IRP; the pages that it describes are not accessed by the call.
    let mdl = unsafe { IoAllocateMdl(block.cast(), length, 0, 0, null_mut()) };
    // SAFETY: a fresh MDL for a block of nonpaged pool.
    unsafe { MmBuildMdlForNonPagedPool(mdl) };
    set_flags(mdl, |flags| flags & !MDL_SOURCE_IS_NONPAGED_POOL | MDL_PAGES_LOCKED);
    mdl
}

fn set_flags(mdl: *mut MDL, change: impl Fn(i16) -> i16) {
    // SAFETY: a live MDL of our own.
    let mdl = unsafe { &mut *mdl };
    mdl.MdlFlags = change(mdl.MdlFlags);
}

fn map(mdl: *mut MDL) -> *mut u8 {
    // SAFETY: a live MDL with its pages locked.
    unsafe { MmMapLockedPagesSpecifyCache(mdl, 0, MEMORY_CACHING_TYPE::MmCached, null_mut(), 0, 16) }.cast()
}

fn unmap(mapping: *mut u8, mdl: *mut MDL) {
    // SAFETY: the mapping that `map` returned for this MDL.
    unsafe { MmUnmapLockedPages(mapping.cast(), mdl) };
}

fn free_mdl(mdl: *mut MDL) {
    // SAFETY: callers pass an MDL of `IoAllocateMdl` that was not freed; each frees it once.
    unsafe { IoFreeMdl(mdl) };
    stay();
}

fn good_mdl() {
    let block = allocate(10_000);
    let mdl = new_mdl(block, 10_000);
    let mapping = map(mdl);
    write(mapping.wrapping_add(9_999));
    assert_eq(read(block.wrapping_add(9_999)).into(), 1);
    unmap(mapping, mdl);
    set_flags(mdl, |flags| flags & !(MDL_PAGES_LOCKED | MDL_MAPPED_TO_SYSTEM_VA));
    free_mdl(mdl);
    free(block);
}

fn double_free() {
    let block = allocate(24);
    free(block);
    free(block);
}

fn overrun() {
    let block = allocate(48);
    write(block.wrapping_add(48));
}

fn underrun() {
    let block = allocate(48);
    write(block.wrapping_sub(1));
    free(block);
}

fn use_after_free() {
    let block = allocate(48);
    free(block);
    black_box(read(block));
}

fn wrong_tag() {
    free_with_tag(allocate(48), u32::from_le_bytes(*b"rdts"));
}

fn pool_leak() {
    black_box(allocate(123));
}

/// More than are reported one by one.
fn many_leaks() {
    for _ in 0..20 {
        black_box(allocate(50));
    }
}

fn write_to_a_freed_block() {
    let block = allocate(4096);
    let mdl = new_mdl(block, 4096);
    let mapping = map(mdl);
    free(block);
    write(mapping);
    unmap(mapping, mdl);
    set_flags(mdl, |flags| flags & !(MDL_PAGES_LOCKED | MDL_MAPPED_TO_SYSTEM_VA));
    free_mdl(mdl);
}

fn timer_leak() {
    black_box(new_timer());
}

fn work_item_leak() {
    // SAFETY: at PASSIVE_LEVEL; no device object is needed here.
    black_box(unsafe { IoAllocateWorkItem(null_mut()) });
}

fn passive_function_at_dispatch() {
    raise();
    let provider = GUID { Data1: 1, Data2: 2, Data3: 3, Data4: [4; 8] };
    let mut handle = 0;
    // SAFETY: pointers to our own variables; the IRQL is the violation.
    black_box(unsafe { EtwRegister(&raw const provider, None, null_mut(), &raw mut handle) });
}

fn wait_at_dispatch() {
    let event = new_event();
    raise();
    wait(event);
}

fn lower_to_higher() {
    lower(DISPATCH_LEVEL);
}

unsafe extern "efiapi" fn raise_and_return(_: *mut KDPC, _: *mut c_void, _: *mut c_void, _: *mut c_void) {
    // SAFETY: the level is not below the current one, which is PASSIVE_LEVEL or DISPATCH_LEVEL here.
    unsafe { KfRaiseIrql(DISPATCH_LEVEL + 3) };
    stay();
}

fn dpc_leaves_irql_raised() {
    let dpc = allocate(size_of::<KDPC>()).cast::<KDPC>();
    // SAFETY: memory of a DPC's size.
    unsafe { KeInitializeDpc(dpc, Some(raise_and_return), null_mut()) };
    // SAFETY: the DPC object was initialized with `KeInitializeDpc` and stays in memory until the DPC has run.
    unsafe { KeInsertQueueDpc(dpc, null_mut(), null_mut()) };
    // SAFETY: violations run at PASSIVE_LEVEL, as `KeFlushQueuedDpcs` demands.
    unsafe { KeFlushQueuedDpcs() };
    stay();
}

fn lock_twice() {
    let lock = new_lock();
    acquire(lock);
    // SAFETY: at DISPATCH_LEVEL; that it is held already is the violation.
    unsafe { KeAcquireSpinLockAtDpcLevel(lock) };
    stay();
}

fn release_unheld() {
    let lock = new_lock();
    let level = raise();
    release(lock, level);
}

fn lower_with_lock_held() {
    let level = acquire(new_lock());
    lower(level);
}

fn return_with_lock_held() {
    let dpc = allocate(size_of::<KDPC>()).cast::<KDPC>();
    let lock = new_lock();
    // SAFETY: memory of a DPC's size.
    unsafe { KeInitializeDpc(dpc, Some(lock_and_return), lock.cast()) };
    // SAFETY: the DPC object was initialized with `KeInitializeDpc` and stays in memory until the DPC has run.
    unsafe { KeInsertQueueDpc(dpc, null_mut(), null_mut()) };
    // SAFETY: violations run at PASSIVE_LEVEL, as `KeFlushQueuedDpcs` demands.
    unsafe { KeFlushQueuedDpcs() };
    stay();
}

unsafe extern "efiapi" fn lock_and_return(_: *mut KDPC, lock: *mut c_void, _: *mut c_void, _: *mut c_void) {
    // SAFETY: at DISPATCH_LEVEL, an initialized lock.
    unsafe { KeAcquireSpinLockAtDpcLevel(lock.cast()) };
    stay();
}

fn lock_order() {
    let (first, second) = (new_lock(), new_lock());
    for (outer, inner) in [(first, second), (second, first)] {
        let level = acquire(outer);
        // SAFETY: at DISPATCH_LEVEL, an initialized lock.
        unsafe { KeAcquireSpinLockAtDpcLevel(inner) };
        // SAFETY: this thread acquired the lock above and is at DISPATCH_LEVEL, because it holds the outer one.
        unsafe { KeReleaseSpinLockFromDpcLevel(inner) };
        release(outer, level);
    }
}

fn null_read() {
    black_box(read(black_box(null())));
}

fn wild_call() {
    let address = black_box(allocate(16));
    // SAFETY: that it is not executable is the violation.
    let function: extern "efiapi" fn() = unsafe { core::mem::transmute(address) };
    function();
    stay();
}

fn division_by_zero() {
    // SAFETY: that it faults is the violation.
    unsafe {
        core::arch::asm!("xor ecx, ecx", "xor edx, edx", "mov eax, 1", "div ecx", out("eax") _, out("ecx") _, out("edx") _);
    }
}

fn illegal_instruction() {
    // SAFETY: that it faults is the violation.
    unsafe { core::arch::asm!("ud2") };
}

static CONSTANT: u8 = 1;

fn write_to_constant() {
    write(black_box(&raw const CONSTANT).cast_mut());
}

#[inline(never)]
fn recurse(depth: u32) -> u32 {
    let page = black_box([0_u8; 512]);
    if depth == u32::MAX { page[0].into() } else { recurse(black_box(depth + 1)) + u32::from(page[1]) }
}

fn endless_recursion() {
    black_box(recurse(0));
}

/// Uses more than a kernel stack, but less than the simulated thread's stack.
fn deep_stack() {
    let mut big = MaybeUninit::<[u8; 26 << 10]>::uninit();
    black_box(&raw mut big);
    // SAFETY: `KeGetCurrentIrql` takes nothing and is callable at any IRQL.
    black_box(unsafe { KeGetCurrentIrql() });
}

fn null_call() {
    // SAFETY: address 0 has no code, which is the violation.
    unsafe { core::arch::asm!("call {}", in(reg) 0_usize, clobber_abi("efiapi")) };
    stay();
}

fn null_event() {
    // SAFETY: not an event, which is the violation.
    unsafe { KeSetEvent(null_mut(), 0, 0) };
    stay();
}

fn null_mdl() {
    free_mdl(null_mut());
}

/// Returns an address behind the beginning of a function, which none of the image's calls leads to.
fn inside_a_function() -> *const u8 {
    black_box((stay as fn() as *const u8).wrapping_add(1))
}

fn unlisted_call() {
    // SAFETY: that it is no function is the violation.
    let function: extern "efiapi" fn() = unsafe { core::mem::transmute(inside_a_function()) };
    function();
    stay();
}

fn unlisted_dpc_routine() {
    let dpc = allocate(size_of::<KDPC>()).cast::<KDPC>();
    // SAFETY: that it is no function is the violation.
    let routine: KDEFERRED_ROUTINE = unsafe { core::mem::transmute(inside_a_function()) };
    // SAFETY: memory of a DPC's size.
    unsafe { KeInitializeDpc(dpc, Some(routine), null_mut()) };
    // SAFETY: the DPC object was initialized with `KeInitializeDpc` and stays in memory until the DPC has run.
    unsafe { KeInsertQueueDpc(dpc, null_mut(), null_mut()) };
    // SAFETY: violations run at PASSIVE_LEVEL, as `KeFlushQueuedDpcs` demands.
    unsafe { KeFlushQueuedDpcs() };
}

fn null_dpc_routine() {
    let dpc = allocate(size_of::<KDPC>()).cast::<KDPC>();
    // SAFETY: memory of a DPC's size; there is no routine, which is the violation.
    unsafe { KeInitializeDpc(dpc, None, null_mut()) };
    // SAFETY: the DPC object was initialized with `KeInitializeDpc` and stays in memory until the DPC has run.
    unsafe { KeInsertQueueDpc(dpc, null_mut(), null_mut()) };
    // SAFETY: violations run at PASSIVE_LEVEL, as `KeFlushQueuedDpcs` demands.
    unsafe { KeFlushQueuedDpcs() };
}

/// Exceeds a kernel stack and returns without having called an import.
fn deep_leaf() {
    let mut big = MaybeUninit::<[u8; 26 << 10]>::uninit();
    black_box(&raw mut big);
    stay();
}

/// Describes a variable on the stack with an MDL: its pages are those of the stack, writes through a mapping of them
/// appear in the variable.
fn stack_in_an_mdl() {
    let mut variable = [0_u8; 64];
    let address = black_box(&raw mut variable).cast::<u8>();
    let mdl = new_mdl(address, 64);
    let mapping = map(mdl);
    write(mapping.wrapping_add(63));
    assert_eq(read(address.wrapping_add(63)).into(), 1);
    unmap(mapping, mdl);
    set_flags(mdl, |flags| flags & !(MDL_PAGES_LOCKED | MDL_MAPPED_TO_SYSTEM_VA));
    free_mdl(mdl);
}

fn free_contiguous_memory_with_a_timer() {
    let (none, all) = (LARGE_INTEGER { QuadPart: 0 }, LARGE_INTEGER { QuadPart: i64::MAX });
    // SAFETY: violations run at PASSIVE_LEVEL, below the limit of DISPATCH_LEVEL; the range of addresses is not
    // empty.
    let memory = unsafe {
        MmAllocateContiguousMemorySpecifyCache(4096, none, all, none, MEMORY_CACHING_TYPE::MmCached)
    };
    arm(memory.cast());
    // SAFETY: memory of the call above; the timer in it is the violation.
    unsafe { MmFreeContiguousMemory(memory) };
    stay();
}

fn armed_timer() -> *mut KTIMER {
    let timer = allocate(size_of::<KTIMER>()).cast::<KTIMER>();
    arm(timer);
    timer
}

fn arm(timer: *mut KTIMER) {
    // SAFETY: memory of a timer's size.
    unsafe { KeInitializeTimerEx(timer, TIMER_TYPE::NotificationTimer) };
    // SAFETY: initialized, due in an hour.
    unsafe { KeSetTimerEx(timer, LARGE_INTEGER { QuadPart: -36_000_000_000 }, 0, null_mut()) };
}

fn free_armed_timer() {
    free(armed_timer().cast());
}

fn unload_with_armed_timer() {
    black_box(armed_timer());
}

fn uninitialized_event() {
    let event = allocate(size_of::<KEVENT>()).cast::<u32>();
    // SAFETY: the block was allocated above with room for an event, and has no other user.
    unsafe { event.write(0x1234_5678) };
    // SAFETY: that it is not initialized is the violation.
    unsafe { KeSetEvent(event.cast(), 0, 0) };
    stay();
}

fn lock_an_mdl_of_nonpaged_pool() {
    // SAFETY: an MDL is allocated without an IRP; the pages that it describes are not accessed by the call.
    let mdl = unsafe { IoAllocateMdl(allocate(100).cast(), 100, 0, 0, null_mut()) };
    // SAFETY: a fresh MDL for a block of nonpaged pool.
    unsafe { MmBuildMdlForNonPagedPool(mdl) };
    // SAFETY: a live MDL; locking it is the violation.
    unsafe { MmProbeAndLockPages(mdl, 0, LOCK_OPERATION::IoReadAccess) };
    stay();
}

fn free_mapped_mdl() {
    let mdl = new_mdl(allocate(4096), 4096);
    map(mdl);
    free_mdl(mdl);
}

fn use_after_unmap() {
    let mdl = new_mdl(allocate(4096), 4096);
    let mapping = map(mdl);
    unmap(mapping, mdl);
    write(mapping);
}

fn bug_check() {
    // SAFETY: `KeBugCheckEx` is callable at any IRQL; it does not return.
    unsafe { KeBugCheckEx(0x1234, 1, 2, 3, 4) };
    stay();
}
