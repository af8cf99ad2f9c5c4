// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pool and contiguous memory as the kernel's functions return and free them.

use crate::kernel::{MILLISECOND, clocks, host, lower, on_a_thread, options, raise, relative, violation_of};
use ndk_abi::nt::{KTIMER, LARGE_INTEGER, POOL_FLAG_NON_PAGED, POOL_FLAG_PAGED, POOL_TYPE, TIMER_TYPE};
use nt_sim::{
    BugCheck, Irql,
    guest::Guest,
    nt::{mdl, pool, timer},
};

const TAG: u32 = u32::from_le_bytes(*b"tset");
const PAGE: usize = 4096;
/// As physical addresses.
const PAGE_BYTES: i64 = 4096;

fn number(value: i64) -> LARGE_INTEGER {
    LARGE_INTEGER { QuadPart: value }
}

fn contiguous(size: usize, low: i64, boundary: i64) -> usize {
    let (low, high) = (number(low), number(i64::MAX));
    mdl::MmAllocateContiguousMemorySpecifyCache(size, low, high, number(boundary), 1)
}

/// Returns the physical address of the first page.
fn physical(address: usize) -> u64 {
    host().memory.pfn(address).expect("memory of the host").address()
}

fn set_timer(address: usize) {
    let timer = Guest::<KTIMER>::from_address(address);
    timer::KeInitializeTimerEx(timer, TIMER_TYPE::NotificationTimer);
    timer::KeSetTimer(timer, relative(100 * MILLISECOND), Guest::null());
}

#[test]
fn paged_pool_is_allocated_and_freed_up_to_apc_level() {
    on_a_thread(clocks()[1].clone(), || {
        let old = raise(Irql::APC_LEVEL);
        let block = pool::ExAllocatePool2(POOL_FLAG_PAGED, 100, TAG);
        block.write(1);
        pool::ExFreePoolWithTag(block, TAG);
        lower(old);
    });
}

#[test]
fn the_pool_type_selects_pageable_and_aligned_memory() {
    const PAGED: i32 = 1;
    const CACHE_ALIGNED: i32 = 4;
    const NO_EXECUTE: i32 = 512;
    on_a_thread(clocks()[1].clone(), || {
        for (kind, is_paged, is_aligned) in [
            (NO_EXECUTE, false, false),
            (NO_EXECUTE | CACHE_ALIGNED, false, true),
            (PAGED, true, false),
            (PAGED | CACHE_ALIGNED, true, true),
        ] {
            let block = pool::ExAllocatePoolWithTag(POOL_TYPE(kind), 32, TAG);
            let explained = host().memory.paged.explain(block.address());
            // Special pool puts 32 bytes at the end of a page, unless they are aligned.
            assert_eq!(
                (explained.is_some(), block.address().is_multiple_of(64)),
                (is_paged, is_aligned),
                "{kind}"
            );
            pool::ExFreePoolWithTag(block, TAG);
        }
    });
}

#[test]
fn memory_is_freed_beside_memory_with_a_timer_that_is_set() {
    on_a_thread(clocks()[1].clone(), || {
        let allocate = |_| pool::ExAllocatePool2(POOL_FLAG_NON_PAGED, size_of::<KTIMER>(), TAG);
        let mut blocks = [0, 1, 2].map(allocate);
        blocks.sort_by_key(|block| block.address());
        set_timer(blocks[1].address());
        pool::ExFreePoolWithTag(blocks[0], TAG);
        pool::ExFreePoolWithTag(blocks[2], TAG);
        timer::KeCancelTimer(blocks[1].cast());
        pool::ExFreePoolWithTag(blocks[1], TAG);

        let mut ranges = [0, 1, 2].map(|_| contiguous(2 * PAGE, 0, 0));
        ranges.sort_unstable();
        set_timer(ranges[1]);
        mdl::MmFreeContiguousMemory(ranges[0]);
        mdl::MmFreeContiguousMemory(ranges[2]);
        timer::KeCancelTimer(Guest::from_address(ranges[1]));
        mdl::MmFreeContiguousMemory(ranges[1]);
    });
}

#[test]
fn freeing_contiguous_memory_with_a_timer_in_its_last_page_is_reported() {
    let report = violation_of(clocks()[1].clone(), options(), || {
        let address = contiguous(2 * PAGE, 0, 0);
        set_timer(address + PAGE + 64);
        mdl::MmFreeContiguousMemory(address);
    });
    assert_eq!(report.code, BugCheck::TIMER_OR_DPC_INVALID, "{report}");
}

#[test]
fn contiguous_memory_is_above_the_lowest_address_and_crosses_no_boundary() {
    on_a_thread(clocks()[1].clone(), || {
        let address = contiguous(PAGE, 0, 0);
        let next = i64::try_from(physical(address)).unwrap() + PAGE_BYTES;
        // The next page comes next. If it is too low, it is freed again.
        assert_eq!(contiguous(PAGE, next + 1, 0), 0);
        let next = next + PAGE_BYTES;
        let allowed = contiguous(PAGE, next, 0);
        assert_eq!(physical(allowed), next.cast_unsigned());
        for _ in 0..8 {
            let address = contiguous(3 * PAGE, 0, 4 * PAGE_BYTES);
            let first = physical(address) / (4 * PAGE as u64);
            assert_eq!(first, physical(address + 2 * PAGE) / (4 * PAGE as u64));
            mdl::MmFreeContiguousMemory(address);
            let _ = pool::ExAllocatePool2(POOL_FLAG_NON_PAGED, 5 * PAGE, TAG);
        }
    });
}
