// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pageable memory, used at levels where it may be and where it may not be.

use core::{
    ffi::c_void,
    hint::black_box,
    ptr::null_mut,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use ndk_abi::nt::{
    DISPATCH_LEVEL, ExAllocatePool2, IoAllocateMdl, KeLowerIrql, KfRaiseIrql, MmBuildMdlForNonPagedPool,
    POOL_FLAG_PAGED, RtlInitUnicodeString, UNICODE_STRING,
};

use crate::memory::{TAG, free, read, stay, write};

/// The violations of this module by name; the first one commits none.
pub const ALL: &[(&str, fn())] = &[
    ("pageable memory at passive level", correct),
    ("paged pool at dispatch", pool_at_dispatch),
    ("paged pool in an import at dispatch", pool_in_an_import),
    ("paged pool freed at dispatch", pool_freed_at_dispatch),
    ("paged pool as nonpaged in an mdl", pool_in_an_mdl),
    ("pageable data at dispatch", data_at_dispatch),
    ("pageable code at dispatch", code_at_dispatch),
];

#[unsafe(link_section = "PAGEDATA")]
static PAGEABLE: AtomicU32 = AtomicU32::new(7);

/// Counts in pageable code.
#[unsafe(link_section = "PAGE")]
#[inline(never)]
fn pageable_code(count: u32) -> u32 {
    black_box(count) + 1
}

fn raise() -> u8 {
    // SAFETY: the level is not below the current one, which is PASSIVE_LEVEL or DISPATCH_LEVEL here.
    unsafe { KfRaiseIrql(DISPATCH_LEVEL) }
}

fn lower(level: u8) {
    // SAFETY: callers pass the level that `raise` returned, which is not above the current one.
    unsafe { KeLowerIrql(level) };
}

fn allocate() -> *mut u8 {
    // SAFETY: violations run at PASSIVE_LEVEL, where paged pool can be allocated; the tag is not zero.
    unsafe { ExAllocatePool2(POOL_FLAG_PAGED, 100, TAG) }.cast()
}

fn correct() {
    let block = allocate();
    for count in 0..3 {
        write(block.wrapping_add(99));
        PAGEABLE.store(pageable_code(count), Relaxed);
        let level = raise();
        lower(level);
        black_box(read(block.wrapping_add(99)));
        black_box(PAGEABLE.load(Relaxed));
    }
    free(block);
}

fn pool_at_dispatch() {
    let block = allocate();
    write(block);
    raise();
    black_box(read(block));
}

fn pool_in_an_import() {
    let block = allocate();
    write(block);
    raise();
    let mut string = UNICODE_STRING { Length: 0, MaximumLength: 0, Buffer: null_mut() };
    // SAFETY: a terminated string, whose memory is the violation.
    unsafe { RtlInitUnicodeString(&raw mut string, block.cast::<c_void>().cast()) };
    stay();
}

fn pool_freed_at_dispatch() {
    let block = allocate();
    raise();
    free(block);
}

fn pool_in_an_mdl() {
    let block = allocate();
    // SAFETY: an MDL is allocated without an IRP; the pages that it describes are not accessed by the call.
    let mdl = unsafe { IoAllocateMdl(block.cast(), 100, 0, 0, null_mut()) };
    // SAFETY: a fresh MDL; the memory it describes is the violation.
    unsafe { MmBuildMdlForNonPagedPool(mdl) };
    stay();
}

fn data_at_dispatch() {
    PAGEABLE.store(1, Relaxed);
    raise();
    PAGEABLE.store(2, Relaxed);
    stay();
}

fn code_at_dispatch() {
    black_box(pageable_code(1));
    raise();
    black_box(pageable_code(2));
}
