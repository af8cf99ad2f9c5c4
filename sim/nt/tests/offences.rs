// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checks of arguments and states: each is reported to a driver that commits the offence, which here is a thread that
//! calls the imports. Offences that need code or memory of an image are in the test driver, see `verifier.rs`.

use std::{ffi::c_void, hint::black_box, time::Duration};

use crate::kernel::{MILLISECOND, clocks, event, host, object, options, raise, relative, violation_of};
use ndk_abi::nt::{
    DEVICE_OBJECT, DISPATCH_LEVEL, EVENT_TYPE, KDPC, KSPIN_LOCK, KSTART_ROUTINE, KWAIT_REASON, LARGE_INTEGER,
    MDL, POOL_FLAG_NON_PAGED, POOL_FLAG_NON_PAGED_EXECUTE, POOL_FLAG_PAGED, POOL_FLAG_RAISE_ON_FAILURE,
    POOL_TYPE, WAIT_TYPE, WORK_QUEUE_ITEM,
};
use nt_sim::{
    BugCheck, ClockKind, Irql, Sim,
    guest::Guest,
    nt::{
        crt, dispatcher, dpc,
        io::{cancel, device},
        irql, mdl, mutex, pool, runtime, spin_lock, system_threads, timer, work,
    },
};

const TAG: u32 = u32::from_le_bytes(*b"tset");
const VIOLATION: BugCheck = BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION;

/// A bug check, text of the report, and the offence.
type Offence = (BugCheck, &'static str, fn());

#[track_caller]
fn assert_reported(offences: &[Offence]) {
    for &(code, text, offence) in offences {
        let clock = ClockKind::Deterministic { seed: 1 };
        let report = violation_of(Sim::builder().clock(clock), options(), offence);
        assert_eq!(report.code, code, "{report}");
        assert!(report.text.contains(text), "expected '{text}': {report}");
    }
}

fn allocate(size: usize) -> Guest<u8> {
    pool::ExAllocatePool2(POOL_FLAG_NON_PAGED, size, TAG)
}

fn dispatch() {
    raise(Irql::DISPATCH_LEVEL);
}

#[test]
fn wrong_requests_for_pool_are_reported() {
    assert_reported(&[
        (BugCheck::BAD_POOL_CALLER, "an allocation of 0 bytes", || _ = allocate(0)),
        (BugCheck::BAD_POOL_CALLER, "neither may be zero", || {
            _ = pool::ExAllocatePool2(POOL_FLAG_NON_PAGED, 8, 0);
        }),
        (VIOLATION, "executable pool was allocated; use nonexecutable pool (POOL_FLAG_NON_PAGED)", || {
            _ = pool::ExAllocatePool2(POOL_FLAG_NON_PAGED_EXECUTE, 8, TAG);
        }),
        (VIOLATION, "executable pool was allocated", || {
            _ = pool::ExAllocatePoolWithTag(POOL_TYPE(0), 8, TAG);
        }),
        (BugCheck::IRQL_NOT_LESS_OR_EQUAL, "paged pool was allocated at DISPATCH_LEVEL", || {
            dispatch();
            _ = pool::ExAllocatePool2(POOL_FLAG_PAGED, 8, TAG);
        }),
        (BugCheck::IRQL_NOT_LESS_OR_EQUAL, "paged pool was allocated at DISPATCH_LEVEL", || {
            dispatch();
            _ = pool::ExAllocatePoolWithTag(POOL_TYPE(1), 8, TAG);
        }),
        (
            BugCheck::KMODE_EXCEPTION_NOT_HANDLED,
            "a pool allocation with POOL_FLAG_RAISE_ON_FAILURE failed; exceptions are not simulated",
            || {
                host().low_resources.fail_nth(0);
                _ = pool::ExAllocatePool2(POOL_FLAG_NON_PAGED | POOL_FLAG_RAISE_ON_FAILURE, 8, TAG);
            },
        ),
    ]);
}

#[test]
fn freeing_memory_with_an_object_in_use_is_reported() {
    assert_reported(&[
        (
            BugCheck::TIMER_OR_DPC_INVALID,
            "freed memory contains a DPC that is queued; call KeRemoveQueueDpc or KeFlushQueuedDpcs first",
            || {
                let block = allocate(size_of::<KDPC>());
                dispatch();
                dpc::KeInitializeDpc(block.cast(), 1, 0);
                dpc::KeInsertQueueDpc(block.cast(), 0, 0);
                pool::ExFreePoolWithTag(block, TAG);
            },
        ),
        (VIOLATION, "contains a spin lock that is held", || {
            let block = allocate(size_of::<KSPIN_LOCK>());
            spin_lock::KeInitializeSpinLock(block.cast());
            let _ = spin_lock::KeAcquireSpinLockRaiseToDpc(block.cast());
            pool::ExFreePoolWithTag(block, TAG);
        }),
    ]);
}

#[test]
fn misuse_of_levels_is_reported() {
    assert_reported(&[
        (
            BugCheck::IRQL_NOT_GREATER_OR_EQUAL,
            "KeRaiseIrql to PASSIVE_LEVEL at DISPATCH_LEVEL: the new level must not be below the current one",
            || {
                dispatch();
                irql::KfRaiseIrql(0);
            },
        ),
        (
            BugCheck::IRQL_NOT_LESS_OR_EQUAL,
            "KeLowerIrql to DISPATCH_LEVEL at PASSIVE_LEVEL: the new level must not be above the current one",
            || {
                irql::KeLowerIrql(DISPATCH_LEVEL);
            },
        ),
        (
            BugCheck::IRQL_GT_ZERO_AT_SYSTEM_SERVICE,
            "ended at DISPATCH_LEVEL; it must end at PASSIVE_LEVEL",
            dispatch,
        ),
        (
            BugCheck::IRQL_NOT_LESS_OR_EQUAL,
            "KeSetEvent with Wait = TRUE was called at DISPATCH_LEVEL",
            || {
                let event = event(EVENT_TYPE::NotificationEvent, false);
                dispatch();
                dispatcher::KeSetEvent(event, 0, 1);
            },
        ),
        (BugCheck::ATTEMPTED_SWITCH_FROM_DPC, "waiting for an event at DISPATCH_LEVEL", || {
            let event = nt_sim::event::Event::new(host().world());
            dispatch();
            let _ = event.wait(MILLISECOND);
        }),
    ]);
}

unsafe extern "efiapi" fn nothing(_: *mut c_void) {}

fn queue_item(routine: Option<unsafe extern "efiapi" fn(*mut c_void)>) -> Guest<WORK_QUEUE_ITEM> {
    let item: Guest<WORK_QUEUE_ITEM> = object();
    let mut value = WORK_QUEUE_ITEM::zeroed();
    value.WorkerRoutine = routine;
    item.write(value);
    item
}

#[test]
fn misuse_of_work_items_is_reported() {
    assert_reported(&[
        (VIOLATION, "IoQueueWorkItem of a work item that is queued already", || {
            let item = work::IoAllocateWorkItem(1);
            work::IoQueueWorkItem(item, 1, 0, 0);
            work::IoQueueWorkItem(item, 1, 0, 0);
        }),
        (VIOLATION, "IoQueueWorkItemEx of a work item that was not allocated or is freed", || {
            let item = work::IoAllocateWorkItem(1);
            work::IoFreeWorkItem(item);
            work::IoQueueWorkItemEx(item, 1, 0, 0);
        }),
        (VIOLATION, "IoFreeWorkItem of a work item that is queued", || {
            let item = work::IoAllocateWorkItem(1);
            work::IoQueueWorkItem(item, 1, 0, 0);
            work::IoFreeWorkItem(item);
        }),
        (VIOLATION, "IoFreeWorkItem of a work item that was not allocated or is freed", || {
            let item = work::IoAllocateWorkItem(1);
            work::IoFreeWorkItem(item);
            work::IoFreeWorkItem(item);
        }),
        (BugCheck::WORKER_INVALID, "ExQueueWorkItem of a work item that is queued already", || {
            let item = queue_item(Some(nothing));
            work::ExQueueWorkItem(item, 1);
            work::ExQueueWorkItem(item, 1);
        }),
        (VIOLATION, "ExQueueWorkItem of a work item whose WorkerRoutine is null", || {
            work::ExQueueWorkItem(queue_item(None), 1);
        }),
        (VIOLATION, "a queued work item's WorkerRoutine became null", || {
            let item = queue_item(Some(nothing));
            work::ExQueueWorkItem(item, 1);
            item.write(WORK_QUEUE_ITEM::zeroed());
            crate::kernel::sleep(MILLISECOND);
        }),
    ]);
}

/// Waits for `count` events that are signaled, with wait blocks at `blocks`.
fn wait_for(count: usize, blocks: usize) {
    let events: Vec<usize> =
        (0..count).map(|_| event(EVENT_TYPE::NotificationEvent, true).address()).collect();
    let events = Guest::new(events.leak().as_mut_ptr());
    let count = u32::try_from(count).unwrap();
    let (all, reason) = (WAIT_TYPE::WaitAll, KWAIT_REASON::Executive);
    dispatcher::KeWaitForMultipleObjects(count, events, all, reason, 0, 0, Guest::null(), blocks);
}

#[test]
fn misuse_of_timers_dpcs_mutexes_and_devices_is_reported() {
    assert_reported(&[
        (BugCheck::TIMER_OR_DPC_INVALID, "on a timer that was not allocated or is deleted", || {
            let timer = timer::ExAllocateTimer(0, 0, 0);
            timer::ExDeleteTimer(timer, 1, 1, Guest::null());
            timer::ExSetTimer(timer, relative(MILLISECOND), 0, 0);
        }),
        (
            BugCheck::IRQL_NOT_LESS_OR_EQUAL,
            "or without Cancel; it needs Cancel = TRUE and IRQL <= APC_LEVEL",
            || {
                timer::ExDeleteTimer(timer::ExAllocateTimer(0, 0, 0), 0, 1, Guest::null());
            },
        ),
        (BugCheck::IRQL_NOT_LESS_OR_EQUAL, "ExDeleteTimer with Wait = TRUE", || {
            dispatch();
            timer::ExDeleteTimer(timer::ExAllocateTimer(0, 0, 0), 1, 1, Guest::null());
        }),
        (
            VIOLATION,
            "KeWaitForMultipleObjects for 4 objects: more than 3 need a WaitBlockArray, more than 64 are not allowed",
            || wait_for(4, 0),
        ),
        (VIOLATION, "KeWaitForMultipleObjects for 65 objects", || wait_for(65, 0x1000)),
        (
            BugCheck::DRIVER_VERIFIER_IOMANAGER_VIOLATION,
            "IoCancelIrp of 0x1000, which is not an IRP that a driver was given",
            || _ = cancel::IoCancelIrp(Guest::from_address(0x1000)),
        ),
        (
            BugCheck::TIMER_OR_DPC_INVALID,
            "KeInsertQueueDpc of a DPC object that was not initialized with KeInitializeDpc",
            || {
                let dpc: Guest<KDPC> = object();
                dpc.write(KDPC::zeroed());
                dpc::KeInsertQueueDpc(dpc, 0, 0);
            },
        ),
        (VIOLATION, "which is no device or is deleted already", || {
            device::IoDeleteDevice(object::<DEVICE_OBJECT>());
        }),
        (VIOLATION, "a fast mutex was released by a thread that does not hold it", || {
            let mutex = allocate(0x38);
            mutex.cast::<i32>().write(1);
            raise(Irql::APC_LEVEL);
            mutex::ExReleaseFastMutex(mutex);
        }),
    ]);
}

#[test]
fn misuse_of_spin_locks_is_reported() {
    assert_reported(&[
        (BugCheck::SPIN_LOCK_NOT_OWNED, "was acquired; call KeInitializeSpinLock first", || {
            let lock: Guest<KSPIN_LOCK> = object();
            lock.cast::<usize>().write(usize::MAX);
            let _ = spin_lock::KeAcquireSpinLockRaiseToDpc(lock);
        }),
        (BugCheck::SPIN_LOCK_NOT_OWNED, "a spin lock was released that is not held", || {
            let lock: Guest<KSPIN_LOCK> = object();
            spin_lock::KeInitializeSpinLock(lock);
            dispatch();
            spin_lock::KeReleaseSpinLock(lock, 0);
        }),
        (BugCheck::SPIN_LOCK_NOT_OWNED, "a spin lock was released that thread", || {
            let lock: Guest<KSPIN_LOCK> = object();
            spin_lock::KeInitializeSpinLock(lock);
            lock.cast::<usize>().write(7);
            dispatch();
            spin_lock::KeReleaseSpinLock(lock, 0);
        }),
        (BugCheck::DPC_WATCHDOG_VIOLATION, "was not released by thread 6 within the time limit", || {
            let lock: Guest<KSPIN_LOCK> = object();
            lock.cast::<usize>().write(7);
            let _ = spin_lock::KeAcquireSpinLockRaiseToDpc(lock);
        }),
    ]);
}

/// An MDL of a page of nonpaged pool.
fn describe(length: usize) -> (Guest<MDL>, Guest<u8>) {
    let block = allocate(length);
    let mdl = mdl::IoAllocateMdl(block.address(), u32::try_from(length).unwrap(), 0, 0, Guest::null());
    (mdl, block)
}

fn locked() -> Guest<MDL> {
    let (mdl, _) = describe(100);
    mdl::MmProbeAndLockPages(mdl, 0, 0);
    mdl
}

fn map(mdl: Guest<MDL>) -> usize {
    mdl::MmMapLockedPagesSpecifyCache(mdl, 0, 1, 0, 0, 16)
}

#[test]
fn misuse_of_mdls_is_reported() {
    assert_reported(&[
        (BugCheck::PAGE_FAULT_IN_NONPAGED_AREA, "of a mapping that was removed", || {
            let mdl = locked();
            let address = map(mdl);
            assert_ne!(address % 4096, 0);
            mdl::MmUnmapLockedPages(address, mdl);
            let _ = black_box(Guest::<u8>::from_address(address).read());
        }),
        (
            BugCheck::DRIVER_LEFT_LOCKED_PAGES,
            "IoFreeMdl of an MDL whose pages are still locked; call MmUnlockPages first",
            || mdl::IoFreeMdl(locked()),
        ),
        (VIOLATION, "IoFreeMdl of an MDL that is still mapped; call MmUnmapLockedPages first", || {
            let mdl = locked();
            map(mdl);
            mdl::IoFreeMdl(mdl);
        }),
        (VIOLATION, "MmProbeAndLockPages of user memory: this simulation has none", || {
            mdl::MmProbeAndLockPages(describe(8).0, 1, 0);
        }),
        (VIOLATION, "MmProbeAndLockPages of an MDL whose pages are locked already", || {
            mdl::MmProbeAndLockPages(locked(), 0, 0);
        }),
        (VIOLATION, "MmProbeAndLockPages of memory that is not mapped", || {
            let (mdl, block) = describe(8);
            pool::ExFreePoolWithTag(block, TAG);
            mdl::MmProbeAndLockPages(mdl, 0, 0);
        }),
        (VIOLATION, "MmBuildMdlForNonPagedPool of memory that is not nonpaged pool", || {
            let (mdl, block) = describe(8);
            pool::ExFreePoolWithTag(block, TAG);
            mdl::MmBuildMdlForNonPagedPool(mdl);
        }),
        (VIOLATION, "MmUnlockPages of an MDL whose pages are not locked", || {
            mdl::MmUnlockPages(describe(8).0);
        }),
        (VIOLATION, "MmMapLockedPagesSpecifyCache of an MDL whose pages are not locked", || {
            map(describe(8).0);
        }),
        (VIOLATION, "MmMapLockedPagesSpecifyCache of an MDL that is mapped already", || {
            let mdl = locked();
            map(mdl);
            map(mdl);
        }),
        (VIOLATION, "MmMapLockedPagesSpecifyCache into user memory: this simulation has none", || {
            mdl::MmMapLockedPagesSpecifyCache(locked(), 1, 1, 0, 0, 16);
        }),
        (VIOLATION, "MmMapLockedPagesSpecifyCache failed, and BugCheckOnFailure is TRUE", || {
            let mdl = locked();
            host().low_resources.fail_nth(0);
            mdl::MmMapLockedPagesSpecifyCache(mdl, 0, 1, 0, 1, 16);
        }),
        (VIOLATION, "at which this MDL is not mapped", || {
            let mdl = locked();
            map(mdl);
            mdl::MmUnmapLockedPages(0x1000, mdl);
        }),
        (VIOLATION, "for a range that is not inside the source MDL", || {
            let (source, block) = describe(100);
            mdl::MmBuildMdlForNonPagedPool(source);
            let target = mdl::IoAllocateMdl(block.address(), 101, 0, 0, Guest::null());
            mdl::IoBuildPartialMdl(source, target, block.address(), 101);
        }),
        (VIOLATION, "that MmAllocatePagesForMdlEx did not allocate", || {
            mdl::MmFreePagesFromMdl(describe(8).0);
        }),
        (VIOLATION, "was freed as contiguous memory, but not allocated as such", || {
            mdl::MmFreeContiguousMemory(allocate(8).address());
        }),
    ]);
}

#[test]
fn thread_for_an_object_that_keeps_no_driver_loaded_is_reported() {
    assert_reported(&[(VIOLATION, "for an object that is neither a device nor a driver", || {
        let block = allocate(size_of::<DEVICE_OBJECT>());
        let routine = nothing as KSTART_ROUTINE as usize;
        let _ = system_threads::IoCreateSystemThread(block.cast(), object(), 0, 0, 0, 0, routine, 0);
    })]);
}

#[test]
fn correct_use_of_the_same_functions_is_not_reported() {
    for sim in clocks() {
        crate::kernel::on_a_thread(sim, || {
            let mdl = locked();
            let address = map(mdl);
            mdl::MmUnmapLockedPages(address, mdl);
            mdl::MmUnlockPages(mdl);
            mdl::IoFreeMdl(mdl);
            let none = LARGE_INTEGER { QuadPart: 0 };
            let all = LARGE_INTEGER { QuadPart: i64::MAX };
            let memory = mdl::MmAllocateContiguousMemorySpecifyCache(8, none, all, none, 1);
            mdl::MmFreeContiguousMemory(memory);
            let item = work::IoAllocateWorkItem(1);
            work::IoFreeWorkItem(item);
            let (source, block) = describe(100);
            mdl::MmBuildMdlForNonPagedPool(source);
            let target = mdl::IoAllocateMdl(block.address(), 100, 0, 0, Guest::null());
            mdl::IoBuildPartialMdl(source, target, block.address(), 100);
            mdl::IoFreeMdl(target);
            mdl::IoFreeMdl(source);
            pool::ExFreePoolWithTag(block, TAG);
            crate::kernel::sleep(Duration::from_millis(1));
        });
    }
}

#[test]
fn bug_checks_of_drivers_and_pure_virtual_calls_are_reported() {
    fn call_pure() {
        let import = crt::IMPORTS.iter().find(|import| import.name == "_purecall");
        let address = (import.expect("C++ drivers import it").address)();
        // SAFETY: the address is that of an exported `extern "efiapi"` function without parameters and result.
        let function: extern "efiapi" fn() = unsafe { std::mem::transmute(address) };
        function();
    }
    assert_reported(&[
        (BugCheck(0x1234), "the image called KeBugCheck", || runtime::KeBugCheck(0x1234)),
        (BugCheck::KMODE_EXCEPTION_NOT_HANDLED, "a pure virtual function was called", call_pure),
    ]);
}

/// A handler of an image's `__try` calls it. The image would search for a handler with it, which is not simulated.
#[test]
fn call_of_the_handler_of_structured_exceptions_is_reported() {
    fn call() {
        type Handler = extern "efiapi" fn(usize, usize, usize, usize) -> i32;
        let import = crt::IMPORTS.iter().find(|import| import.name == "__C_specific_handler");
        let address = (import.expect("it is imported by compilers").address)();
        // SAFETY: the function takes four pointers and uses none.
        let handler: Handler = unsafe { std::mem::transmute(address) };
        handler(0, 0, 0, 0);
    }
    assert_reported(&[(
        BugCheck::KMODE_EXCEPTION_NOT_HANDLED,
        "structured exception handling is not simulated",
        call,
    )]);
}

nt_sim::imports! { PANICKING: "ntoskrnl.exe" =>
    /// Fails on its argument.
    [any]
    fn Fail(argument: usize) {
        assert_eq!(argument, 0, "the argument is not zero");
    }
}

#[test]
fn import_that_fails_is_a_bug_check() {
    assert_eq!(PANICKING.len(), 1);
    let text = "the simulated Fail failed on what it was passed";
    assert_reported(&[(BugCheck::KMODE_EXCEPTION_NOT_HANDLED, text, || Fail(1))]);
}
