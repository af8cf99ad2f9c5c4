// SPDX-License-Identifier: MIT OR Apache-2.0

//! Kernel services, called as a driver calls them, on a thread of a host.
//!
//! What Windows does is known from the documentation of each function, unless a test says otherwise.

use std::{
    ffi::c_void,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use crate::on_host::{correct, counted, memory, violates};
use ndk_abi::nt::{
    EX_RUNDOWN_REF, LIST_ENTRY, POOL_TYPE, SLIST_ENTRY, SLIST_HEADER, STATUS_INVALID_PARAMETER_4,
    STATUS_INVALID_PARAMETER_5, STATUS_SUCCESS,
};
use nt_sim::{
    BugCheck,
    guest::Guest,
    nt::{io::allocated, lists, lookaside, mdl, mutex, pool, rundown, system_routine, system_threads, work},
};

#[test]
fn work_runs_on_worker_threads() {
    correct(|host| {
        let (done, seen) = (host.event(), std::sync::Arc::new(AtomicUsize::new(0)));
        let (of_work, result) = (done.clone(), seen.clone());
        assert!(!work::on_worker());
        host.queue_work(move || {
            result.store(usize::from(work::on_worker()), SeqCst);
            of_work.set();
        });
        assert!(done.wait(std::time::Duration::from_secs(10)));
        assert_eq!(seen.load(SeqCst), 1);
    });
}

static RUNS: AtomicUsize = AtomicUsize::new(0);

extern "efiapi" fn frees_itself(object: *mut c_void, context: *mut c_void, item: *mut c_void) {
    assert_eq!((object.addr(), context.addr()), (0x10, 0x20));
    work::IoFreeWorkItem(item.addr());
    RUNS.fetch_add(1, SeqCst);
}

#[test]
fn an_extended_work_item_gets_itself_and_may_free_itself() {
    correct(|host| {
        let before = RUNS.load(SeqCst);
        let item = work::IoAllocateWorkItem(0x10);
        work::IoQueueWorkItemEx(item, frees_itself as *const () as usize, 1, 0x20);
        while RUNS.load(SeqCst) == before {
            nt_sim::nt::time::sleep(1_000_000);
        }
        assert!(host.objects.list().is_empty());
    });
}

#[test]
fn work_items_that_block_do_not_block_others() {
    correct(|host| {
        let (gate, passed) = (host.event(), host.event());
        for _ in 0..7 {
            let gate = gate.clone();
            host.queue_work(move || {
                while !gate.is_set() {
                    gate.wait_any();
                }
            });
        }
        let set = passed.clone();
        host.queue_work(move || set.set());
        assert!(passed.wait(std::time::Duration::from_secs(5)));
        gate.set();
    });
}

#[test]
fn rundown_protection_is_acquired_several_times_at_once_or_not_at_all() {
    correct(|host| {
        let reference = memory::<EX_RUNDOWN_REF>(host);
        rundown::ExInitializeRundownProtection(reference);
        assert_eq!(rundown::ExAcquireRundownProtectionEx(reference, 3), 1);
        assert_eq!(rundown::ExAcquireRundownProtection(reference), 1);
        rundown::ExReleaseRundownProtectionEx(reference, 4);
        rundown::ExWaitForRundownProtectionRelease(reference);
        assert_eq!(rundown::ExAcquireRundownProtectionEx(reference, 1), 0);
        rundown::ExReInitializeRundownProtection(reference);
        assert_eq!(rundown::ExAcquireRundownProtectionEx(reference, 1), 1);
        rundown::ExReleaseRundownProtection(reference);
        rundown::ExRundownCompleted(reference);
        assert_eq!(rundown::ExAcquireRundownProtection(reference), 0);
    });
}

#[test]
fn the_cache_aware_form_of_rundown_protection_works_alike() {
    correct(|host| {
        let reference = rundown::ExAllocateCacheAwareRundownProtection(512, 0x3030_3030);
        assert_eq!(rundown::ExAcquireRundownProtectionCacheAware(reference), 1);
        let waiter = reference;
        let done = host.spawn("waiter", move || rundown::ExWaitForRundownProtectionReleaseCacheAware(waiter));
        nt_sim::nt::time::sleep(10_000_000);
        assert!(!done.is_finished());
        rundown::ExReleaseRundownProtectionCacheAware(reference);
        done.join().unwrap();
        assert_eq!(rundown::ExAcquireRundownProtectionCacheAware(reference), 0);
        rundown::ExFreeCacheAwareRundownProtection(reference);
    });
}

#[test]
fn releasing_more_protection_than_was_acquired_is_reported() {
    let code = BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION;
    violates(code, "ExReleaseRundownProtectionEx without a matching acquisition", |host| {
        let reference = memory::<EX_RUNDOWN_REF>(host);
        rundown::ExAcquireRundownProtectionEx(reference, 2);
        rundown::ExReleaseRundownProtectionEx(reference, 3);
    });
}

#[test]
fn kernel_functions_are_found_by_name() {
    correct(|host| {
        let find = |name| system_routine::MmGetSystemRoutineAddress(counted(host, name, 0));
        assert_ne!(find("IoCreateDeviceSecure"), 0);
        assert_ne!(find("KeQueryPerformanceCounter"), 0);
        assert_eq!(find("WmiNoSuchRoutine"), 0);
        assert_eq!(find("NdisAllocateMdl"), 0, "another module's");
        assert_eq!(find("IoCreateDeviceSecure"), find("IoCreateDeviceSecure"));
    });
}

/// An initialized fast mutex, as the headers' inline function makes it.
fn new_mutex(host: &nt_sim::Host) -> Guest<u8> {
    let mutex = memory::<u8>(host);
    mutex.cast::<i32>().write(1);
    mutex
}

#[test]
fn a_fast_mutex_has_one_owner_at_apc_level() {
    correct(|host| {
        let mutex = new_mutex(host);
        mutex::ExAcquireFastMutex(mutex);
        assert_eq!(nt_sim::current().irql(), nt_sim::Irql::APC_LEVEL);
        let other = host.spawn("other", move || {
            mutex::ExAcquireFastMutex(mutex);
            mutex::ExReleaseFastMutex(mutex);
        });
        nt_sim::nt::time::sleep(5_000_000);
        assert!(!other.is_finished());
        mutex::ExReleaseFastMutex(mutex);
        assert_eq!(nt_sim::current().irql(), nt_sim::Irql::PASSIVE_LEVEL);
        other.join().unwrap();
    });
}

#[test]
fn acquiring_a_fast_mutex_twice_is_reported() {
    violates(
        BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "a fast mutex was acquired by the thread that holds it already: deadlock",
        |host| {
            let mutex = new_mutex(host);
            mutex::ExAcquireFastMutex(mutex);
            mutex::ExAcquireFastMutex(mutex);
        },
    );
}

#[test]
fn interlocked_lists_return_the_former_neighbor() {
    correct(|host| {
        let (head, first, second) = (memory::<LIST_ENTRY>(host), memory(host), memory(host));
        head.write(LIST_ENTRY { Flink: head.as_ptr(), Blink: head.as_ptr() });
        let lock = memory(host);
        assert!(lists::ExInterlockedInsertTailList(head, first, lock).is_null());
        assert!(lists::ExInterlockedInsertHeadList(head, second, lock) == first);
        assert!(lists::ExInterlockedRemoveHeadList(head, lock) == second);
        assert!(lists::ExInterlockedRemoveHeadList(head, lock) == first);
        assert!(lists::ExInterlockedRemoveHeadList(head, lock).is_null());
    });
}

#[test]
fn a_lookaside_list_frees_the_blocks_it_holds() {
    correct(|host| {
        let list = memory::<u8>(host);
        lookaside::ExInitializeNPagedLookasideList(list, 0, 0, 0, 64, 0x6465_6566, 0);
        let head: Guest<SLIST_HEADER> = list.cast();
        for _ in 0..2 {
            let block: Guest<SLIST_ENTRY> =
                pool::ExAllocatePoolWithTag(POOL_TYPE(512), 64, 0x6465_6566).cast();
            lists::ExpInterlockedPushEntrySList(head, block);
        }
        assert_eq!(lists::ExQueryDepthSList(head), 2);
        lookaside::ExDeleteNPagedLookasideList(list);
        assert!(host.memory.pool.blocks().is_empty());
    });
}

/// WDK, `ExInitializeLookasideListEx`: the functions of the list, as the inline functions of the headers call them.
#[test]
fn a_lookaside_list_has_blocks_of_any_pool() {
    extern "efiapi" fn allocate(pool: u32, size: usize, tag: u32, list: Guest<u32>) -> Guest<u8> {
        assert_eq!((pool, size, tag), (512 + 16, 64, 0x6465_6566));
        list.add(64).write(list.add(64).read() + 1);
        pool::ExAllocatePoolWithTag(POOL_TYPE(512), size, tag)
    }
    extern "efiapi" fn free(block: Guest<u8>, list: Guest<u32>) {
        list.add(65).write(list.add(65).read() + 1);
        pool::ExFreePool(block);
    }
    correct(|host| {
        let list = memory::<u8>(host);
        let functions = [allocate as *const () as usize, free as *const () as usize];
        let initialize = |pool, flags| {
            lookaside::ExInitializeLookasideListEx(
                list,
                functions[0],
                functions[1],
                pool,
                flags,
                64,
                0x6465_6566,
                0,
            )
        };
        assert_eq!(initialize(512, 4), STATUS_INVALID_PARAMETER_5);
        assert_eq!(initialize(99, 0), STATUS_INVALID_PARAMETER_4);
        assert_eq!(initialize(512, 1), STATUS_SUCCESS);
        let [kind, tag, size] = [36, 40, 44].map(|offset| list.field::<u32>(offset).read());
        let stored = [48, 56].map(|offset| list.field::<usize>(offset).read());
        assert_eq!(stored, functions);
        for _ in 0..2 {
            let block = allocate(kind, size as usize, tag, list.cast());
            lists::ExpInterlockedPushEntrySList(list.cast(), block.cast());
        }
        lookaside::ExFlushLookasideListEx(list);
        lookaside::ExDeleteLookasideListEx(list);
        assert_eq!([64, 65].map(|index| list.cast::<u32>().add(index).read()), [2, 2]);
        lookaside::ExInitializePagedLookasideList(list, 0, 0, 0, 64, 0x6465_6566, 0);
        assert_eq!(list.field::<u32>(36).read(), 1);
        let block = pool::ExAllocatePoolWithTag(POOL_TYPE(1), 64, 0x6465_6566);
        lists::ExpInterlockedPushEntrySList(list.cast(), block.cast());
        lookaside::ExDeletePagedLookasideList(list);
        assert!(host.memory.pool.blocks().is_empty());
    });
}

#[test]
fn a_rundown_reference_counts_its_owners() {
    correct(|host| {
        let reference = memory::<EX_RUNDOWN_REF>(host);
        rundown::ExInitializeRundownProtection(reference);
        rundown::ExAcquireRundownProtectionEx(reference, 3);
        rundown::ExReleaseRundownProtection(reference);
        assert_eq!(reference.cast::<usize>().read(), 4);
    });
}

static THREADS: AtomicUsize = AtomicUsize::new(0);

unsafe extern "efiapi" fn counts(context: *mut c_void) {
    THREADS.fetch_add(context.addr(), SeqCst);
}

#[test]
fn handles_of_the_kernel_ascend_and_belong_to_what_made_them() {
    correct(|host| {
        let (driver, handle) = (memory::<i16>(host), memory::<usize>(host));
        driver.write(4);
        let before = THREADS.load(SeqCst);
        let handles = [(); 3].map(|()| {
            let status = system_threads::IoCreateSystemThread(
                driver,
                handle,
                0,
                0,
                0,
                0,
                counts as *const () as usize,
                5,
            );
            assert_eq!(status, 0);
            handle.read()
        });
        assert_eq!(handles, [0, 4, 8].map(|offset| 0xffff_ffff_8000_0004 + offset));
        assert!(host.objects.list().iter().all(|object| object.kind == "IoCreateSystemThread"));
        while THREADS.load(SeqCst) < before + 15 {
            nt_sim::nt::time::sleep(1_000_000);
        }
        for handle in handles {
            nt_sim::nt::handles::ZwClose(handle);
        }
        assert!(host.objects.list().is_empty());
    });
}

/// WDK, `IoAllocateMdl`: the first MDL of an IRP, or the last one of its chain.
#[test]
fn an_mdl_is_added_to_its_irp() {
    correct(|_| {
        let irp = allocated::IoAllocateIrp(1, 0);
        let [a, b, c] = [0, 1, 1].map(|secondary| mdl::IoAllocateMdl(0x1000, 1, secondary, 0, irp));
        assert_eq!(irp.read().MdlAddress, a.as_ptr());
        assert_eq!([a.read().Next, b.read().Next, c.read().Next], [b, c, Guest::null()].map(Guest::as_ptr));
        let d = mdl::IoAllocateMdl(0x1000, 1, 0, 0, irp);
        assert_eq!((irp.read().MdlAddress, d.read().Next), (d.as_ptr(), std::ptr::null_mut()));
        for list in [a, b, c, d] {
            mdl::IoFreeMdl(list);
        }
        allocated::IoFreeIrp(irp);
    });
}

#[test]
fn an_mdl_has_room_for_each_page_that_its_range_touches() {
    correct(|host| {
        let header = size_of::<ndk_abi::nt::MDL>();
        for (address, length, pages) in
            [(0, 0, 0), (0, 1, 1), (0xfff, 1, 1), (0xfff, 2, 2), (0x1800, 0x1801, 3), (0x10_0000, 0x2000, 2)]
        {
            assert_eq!(mdl::MmSizeOfMdl(address, length), header + 8 * pages);
        }
        let buffer = memory::<u8>(host).address() + 100;
        let list = mdl::IoAllocateMdl(buffer, 200, 0, 0, Guest::null());
        mdl::MmProbeAndLockPages(list, 0, 0);
        let before = host.mappings();
        let mapping = mdl::MmMapLockedPagesSpecifyCache(list, 0, 1, 0, 0, 16);
        assert_eq!((mapping % 4096, host.mappings() - before), (100, 1));
        Guest::<u32>::from_address(mapping).write(0x1234_5678);
        assert_eq!(Guest::<u32>::from_address(buffer).read(), 0x1234_5678);
        assert!(host.memory.pfn(mapping).is_some());
        mdl::MmUnmapLockedPages(mapping, list);
        assert!(host.memory.pfn(mapping).is_none());
        mdl::MmUnlockPages(list);
        mdl::IoFreeMdl(list);
    });
}

#[test]
fn each_thread_that_waits_for_a_fast_mutex_gets_it() {
    correct(|host| {
        let mutex = new_mutex(host);
        mutex::ExAcquireFastMutex(mutex);
        let threads = [(); 4].map(|()| {
            host.spawn("waits", move || {
                mutex::ExAcquireFastMutex(mutex);
                nt_sim::nt::time::sleep(2_000_000);
                mutex::ExReleaseFastMutex(mutex);
            })
        });
        nt_sim::nt::time::sleep(5_000_000);
        mutex::ExReleaseFastMutex(mutex);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}
