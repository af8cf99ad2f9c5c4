// SPDX-License-Identifier: MIT OR Apache-2.0

//! Lookaside lists. The inline functions of the headers take blocks from them and put blocks there.

use std::mem::offset_of;

use ndk_abi::nt::{STATUS_INVALID_PARAMETER_4, STATUS_INVALID_PARAMETER_5, STATUS_SUCCESS};

use super::{lists, system_routine::SYSTEM_ROUTINES};
use crate::{guest::Guest, image, imports, thread::current};

/// Depth of a new lookaside list.
const DEPTH: u16 = 4;
/// Pool types.
const PAGED: u32 = 1;
const NON_PAGED: u32 = 512;
/// Bits of a pool type: an allocation that fails raises an exception, or does not although it charges quota.
const RAISE: u32 = 16;
const QUOTA_FAIL: u32 = 8;
/// `EX_LOOKASIDE_LIST_EX_FLAGS_*`.
const RAISE_ON_FAIL: u32 = 1;
const FAIL_NO_RAISE: u32 = 2;

/// `GENERAL_LOOKASIDE`, as far as the inline functions of the headers use it.
#[repr(C, align(64))]
struct Lookaside {
    head: [u64; 2],
    depth: u16,
    maximum_depth: u16,
    total_allocates: u32,
    allocate_misses: u32,
    total_frees: u32,
    free_misses: u32,
    kind: u32,
    tag: u32,
    size: u32,
    allocate: usize,
    free: usize,
    rest: [u64; 8],
}

const _: () = assert!(offset_of!(Lookaside, allocate) == 48 && size_of::<Lookaside>() == 128);

/// Makes a list without blocks. Without functions of the driver its blocks are pool.
fn initialize(list: Guest<u8>, allocate: usize, free: usize, pool: u32, size: usize, tag: u32) {
    let me = current();
    let routines = me.host().state(&SYSTEM_ROUTINES);
    let or = |function: usize, name: &str| if function == 0 { routines.find(name) } else { function };
    list.fill(0, size_of::<Lookaside>());
    list.field::<u16>(offset_of!(Lookaside, depth)).write(DEPTH);
    list.field::<u16>(offset_of!(Lookaside, maximum_depth)).write(256);
    list.field::<u32>(offset_of!(Lookaside, kind)).write(pool);
    list.field::<u32>(offset_of!(Lookaside, tag)).write(tag);
    list.field::<u32>(offset_of!(Lookaside, size)).write(u32::try_from(size).unwrap_or(u32::MAX));
    list.field::<usize>(offset_of!(Lookaside, allocate)).write(or(allocate, "ExAllocatePoolWithTag"));
    list.field::<usize>(offset_of!(Lookaside, free)).write(or(free, "ExFreePool"));
}

/// Frees the blocks of a list.
fn empty(list: Guest<u8>) {
    const WHAT: &str = "the free routine of a lookaside list";
    let free = list.field::<usize>(offset_of!(Lookaside, free)).read();
    // SAFETY: the driver's function, or the kernel's own; those that do not get the list ignore it.
    let free: extern "efiapi" fn(usize, usize) = unsafe { image::function(WHAT, free) };
    loop {
        let block = lists::pop(list.cast());
        if block.is_null() {
            return;
        }
        image::call(WHAT, || free(block.address(), list.address()));
    }
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Initializes a list of blocks of nonpaged pool.
    [<= DISPATCH_LEVEL]
    fn ExInitializeNPagedLookasideList(
        list: Guest<u8>,
        allocate: usize,
        free: usize,
        flags: u32,
        size: usize,
        tag: u32,
        depth: u16,
    ) {
        let _ = (flags, depth);
        initialize(list, allocate, free, NON_PAGED, size, tag);
    }

    /// Frees the blocks that a list holds.
    [<= DISPATCH_LEVEL]
    fn ExDeleteNPagedLookasideList(list: Guest<u8>) {
        empty(list);
    }

    /// Initializes a list of blocks of paged pool.
    [<= APC_LEVEL]
    fn ExInitializePagedLookasideList(
        list: Guest<u8>,
        allocate: usize,
        free: usize,
        flags: u32,
        size: usize,
        tag: u32,
        depth: u16,
    ) {
        let _ = (flags, depth);
        initialize(list, allocate, free, PAGED, size, tag);
    }

    /// Frees the blocks that a list of paged pool holds.
    [<= APC_LEVEL]
    fn ExDeletePagedLookasideList(list: Guest<u8>) {
        empty(list);
    }

    /// Initializes a list of blocks of any pool, whose functions get the list.
    [<= DISPATCH_LEVEL]
    fn ExInitializeLookasideListEx(
        list: Guest<u8>,
        allocate: usize,
        free: usize,
        pool: u32,
        flags: u32,
        size: usize,
        tag: u32,
        depth: u16,
    ) -> i32 {
        let _ = depth;
        let bits = match flags {
            0 => 0,
            RAISE_ON_FAIL => RAISE,
            FAIL_NO_RAISE => QUOTA_FAIL,
            _ => return STATUS_INVALID_PARAMETER_5,
        };
        if !matches!(pool, 0 | PAGED | NON_PAGED) {
            return STATUS_INVALID_PARAMETER_4;
        }
        initialize(list, allocate, free, pool | bits, size, tag);
        STATUS_SUCCESS
    }

    /// Frees the blocks that a list holds, which stays in use.
    [<= DISPATCH_LEVEL]
    fn ExFlushLookasideListEx(list: Guest<u8>) {
        empty(list);
    }

    /// Frees the blocks that a list holds.
    [<= DISPATCH_LEVEL]
    fn ExDeleteLookasideListEx(list: Guest<u8>) {
        empty(list);
    }
}
