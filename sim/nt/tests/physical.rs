// SPDX-License-Identifier: MIT OR Apache-2.0

//! Physical memory as drivers meet it on a 64-bit machine.
//!
//! Most pages of a guest with a few GiB are above the physical address 4 GiB, since a PC's devices are below it. Pool and
//! the pages of an MDL are contiguous in virtual memory only (WDK, "Allocating System-Space Memory",
//! `MmAllocatePagesForMdlEx`); `MmAllocateContiguousMemory` is for physically contiguous memory, with an upper limit.

use ndk_abi::nt::{
    LARGE_INTEGER, MDL, MM_ALLOCATE_FULLY_REQUIRED, MM_DONT_ZERO_ALLOCATION, POOL_FLAG_NON_PAGED,
};
use nt_sim::{
    ClockKind, Sim,
    guest::Guest,
    host::HostOptions,
    memory::{PAGE_SIZE, Pfn},
    nt::{
        mdl::{self, GuestMdl},
        pool,
    },
};

const FOUR_GIB: u64 = 4 << 30;

fn on_a_thread<T: Send + 'static>(seed: u64, body: impl FnOnce() -> T + Send + 'static) -> T {
    let mut sim = Sim::builder().clock(ClockKind::Deterministic { seed }).build();
    let host = sim.add_host(HostOptions { memory: 64 << 20, ..HostOptions::new("host") });
    let result = host.spawn("thread", body).join().unwrap();
    assert!(sim.verdict().is_clean(), "{}", sim.verdict());
    result
}

fn physical(address: usize) -> u64 {
    mdl::MmGetPhysicalAddress(address).QuadPart.cast_unsigned()
}

/// Allocates a block of pool and returns the physical address of each of its pages.
fn pages_of_pool(pages: usize) -> Vec<u64> {
    let block = pool::ExAllocatePool2(POOL_FLAG_NON_PAGED, pages * PAGE_SIZE, 1);
    let addresses = (0..pages).map(|page| physical(block.address() + page * PAGE_SIZE)).collect();
    pool::ExFreePool(block);
    addresses
}

fn has_a_gap_between_all(pages: &[u64]) -> bool {
    pages.windows(2).all(|pair| pair[0] + PAGE_SIZE as u64 != pair[1])
}

#[test]
fn pages_are_above_four_gib_unless_a_limit_is_given() {
    on_a_thread(1, || {
        assert!(pages_of_pool(2).iter().all(|&page| page >= FOUR_GIB));
        let anywhere = LARGE_INTEGER { QuadPart: i64::MAX };
        let below = LARGE_INTEGER { QuadPart: (FOUR_GIB - 1).cast_signed() };
        let none = LARGE_INTEGER { QuadPart: 0 };
        for (limit, is_above) in [(anywhere, true), (below, false)] {
            let address = mdl::MmAllocateContiguousMemorySpecifyCache(3 * PAGE_SIZE, none, limit, none, 1);
            let first = physical(address);
            assert_eq!(first >= FOUR_GIB, is_above, "{first:#x}");
            for page in 1..3 {
                assert_eq!(physical(address + page * PAGE_SIZE), first + (page * PAGE_SIZE) as u64);
            }
            mdl::MmFreeContiguousMemory(address);
        }
    });
}

#[test]
fn block_of_pool_is_not_physically_contiguous() {
    on_a_thread(1, || {
        for pages in 2..17 {
            let addresses = pages_of_pool(pages);
            assert!(has_a_gap_between_all(&addresses), "{addresses:#x?}");
        }
    });
}

#[test]
fn pages_of_an_mdl_are_not_physically_contiguous() {
    on_a_thread(1, || {
        let list = mdl::MmAllocatePagesForMdlEx(0, i64::MAX, 0, 8 * PAGE_SIZE, 1, 0);
        let pages: Vec<_> = GuestMdl(list).pages().into_iter().map(Pfn::address).collect();
        assert!(has_a_gap_between_all(&pages), "{pages:#x?}");
        mdl::MmFreePagesFromMdl(list);
        pool::ExFreePool(list.cast());
    });
}

/// Allocates pages as a driver does; returns the MDL and the bytes that it describes, 0 without one.
fn pages_for_mdl(pages: usize, flags: u32) -> (Guest<MDL>, usize) {
    let list = mdl::MmAllocatePagesForMdlEx(0, i64::MAX, 0, pages * PAGE_SIZE, 1, flags);
    (list, if list.is_null() { 0 } else { GuestMdl(list).byte_count() as usize })
}

fn free_pages_of(list: Guest<MDL>) {
    mdl::MmFreePagesFromMdl(list);
    pool::ExFreePool(list.cast());
}

/// WDK, `MmAllocatePagesForMdlEx`: "might return ... fewer physical pages than requested", unless `MM_ALLOCATE_FULLY_REQUIRED`.
#[test]
fn pages_of_an_mdl_may_be_fewer_than_requested() {
    on_a_thread(1, || {
        let host = nt_sim::current().host().clone();
        let free = usize::try_from(host.memory.physical.available()).unwrap();
        // The second allocation of the call is that of the pages.
        host.low_resources.fail_nth(1);
        let (list, bytes) = pages_for_mdl(8, 0);
        assert_eq!(bytes, 4 * PAGE_SIZE);
        free_pages_of(list);
        host.low_resources.fail_nth(1);
        assert_eq!(pages_for_mdl(8, MM_ALLOCATE_FULLY_REQUIRED).1, 0);
        host.low_resources.fail_nth(1);
        assert_eq!(pages_for_mdl(1, 0).1, 0, "an MDL has a page");
        // More than the machine has.
        assert_eq!(pages_for_mdl(2 * free, MM_ALLOCATE_FULLY_REQUIRED).1, 0);
        let (list, bytes) = pages_for_mdl(2 * free, 0);
        assert!(bytes > 0 && bytes < free * PAGE_SIZE, "{bytes} bytes of {free} pages");
        let left = host.memory.physical.available();
        mdl::MmFreePagesFromMdl(list);
        assert_eq!(host.memory.physical.available() - left, (bytes / PAGE_SIZE) as u64, "all are freed");
        pool::ExFreePool(list.cast());
        let (list, bytes) = pages_for_mdl(8, MM_ALLOCATE_FULLY_REQUIRED);
        assert_eq!(bytes, 8 * PAGE_SIZE);
        free_pages_of(list);
    });
}

#[test]
fn pages_of_an_mdl_are_zero_unless_the_driver_does_not_need_it() {
    on_a_thread(1, || {
        let host = nt_sim::current().host().clone();
        for (flags, expected) in [(0, 0), (MM_DONT_ZERO_ALLOCATION, 0xcd)] {
            let (list, _) = pages_for_mdl(2, flags);
            for page in GuestMdl(list).pages() {
                assert_eq!(host.memory.physical.direct(page.address()).read(), expected);
            }
            free_pages_of(list);
        }
    });
}

#[test]
fn pages_follow_from_the_seed() {
    let pages = |seed| on_a_thread(seed, || pages_of_pool(16));
    assert_eq!(pages(1), pages(1));
    assert_ne!(pages(1), pages(2));
}

#[test]
fn physical_address_leads_to_the_memory() {
    on_a_thread(1, || {
        let host = nt_sim::current().host().clone();
        let block = pool::ExAllocatePool2(POOL_FLAG_NON_PAGED, 3 * PAGE_SIZE, 1);
        let last = block.add(3 * PAGE_SIZE - 1);
        last.write(7);
        assert_eq!(host.memory.physical.direct(physical(last.address())).read(), 7);
        assert_eq!(host.memory.physical.offset(FOUR_GIB - 1), None);
        pool::ExFreePool(block);
    });
}
