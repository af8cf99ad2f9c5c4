// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory descriptor lists: building, locking and mapping them.

use std::{
    collections::HashMap,
    mem::offset_of,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use ndk_abi::nt::{
    IRP, LARGE_INTEGER, MDL, MDL_MAPPED_TO_SYSTEM_VA, MDL_PAGES_LOCKED, MDL_PARTIAL,
    MDL_SOURCE_IS_NONPAGED_POOL, MM_ALLOCATE_FULLY_REQUIRED, MM_DONT_ZERO_ALLOCATION, MdlMappingNoWrite,
};

use parking_lot::Mutex;

use super::pool;
use crate::{
    Host,
    guest::Guest,
    imports,
    memory::{
        PAGE_SIZE, Pfn, Protection,
        pool::{FRESH, Request, Tag},
    },
    services::Slot,
    thread::{Thread, current},
    verifier::{BugCheck, Rule, broken, rules, violation},
};

const TAG: Tag = Tag(u32::from_le_bytes(*b"Mdl "));
const MAPPING: &str = "MmMapLockedPagesSpecifyCache";

/// An MDL as the image passes it.
#[derive(Clone, Copy)]
pub struct GuestMdl(pub Guest<MDL>);

macro_rules! members {
    ($($get:ident $set:ident $member:ident: $type:ty;)*) => {
        $(
            #[must_use]
            pub fn $get(self) -> $type {
                self.0.field::<$type>(offset_of!(MDL, $member)).read()
            }

            pub fn $set(self, value: $type) {
                self.0.field::<$type>(offset_of!(MDL, $member)).write(value);
            }
        )*
    };
}

impl GuestMdl {
    members! {
        next set_next Next: usize;
        size set_size Size: i16;
        flags set_flags MdlFlags: i16;
        mapped set_mapped MappedSystemVa: usize;
        start set_start StartVa: usize;
        byte_count set_byte_count ByteCount: u32;
        byte_offset set_byte_offset ByteOffset: u32;
    }

    /// Returns the size of an MDL for a range in bytes: the header and a page frame number per page.
    #[must_use]
    pub fn size_for(address: usize, length: usize) -> usize {
        size_of::<MDL>() + (address % PAGE_SIZE + length).div_ceil(PAGE_SIZE) * size_of::<Pfn>()
    }

    /// Writes the header for a range, as `MmInitializeMdl` does.
    pub fn initialize(self, address: usize, length: u32) {
        let offset = address % PAGE_SIZE;
        let size = Self::size_for(address, length as usize);
        self.set_next(0);
        self.set_size(i16::try_from(size).unwrap_or(i16::MAX));
        self.set_flags(0);
        self.set_mapped(0);
        self.set_start(address - offset);
        self.set_byte_offset(u32::try_from(offset).unwrap_or(0));
        self.set_byte_count(length);
    }

    /// Returns the number of pages that the MDL spans.
    #[must_use]
    pub fn page_count(self) -> usize {
        (self.byte_offset() as usize + self.byte_count() as usize).div_ceil(PAGE_SIZE)
    }

    /// Returns a pointer to an element of the array of page frame numbers after the header.
    #[must_use]
    pub fn page(self, index: usize) -> Guest<Pfn> {
        self.0.add(1).cast::<Pfn>().add(index)
    }

    #[must_use]
    pub fn pages(self) -> Vec<Pfn> {
        (0..self.page_count()).map(|index| self.page(index).read()).collect()
    }

    fn has(self, flag: i16) -> bool {
        self.flags() & flag != 0
    }

    /// Fills in the pages of the range; returns `false` when some of it is not memory of the host.
    #[must_use]
    pub fn fill(self, host: &Host) -> bool {
        for index in 0..self.page_count() {
            let Some(pfn) = host.memory.pfn(self.start() + index * PAGE_SIZE) else { return false };
            self.page(index).write(pfn);
        }
        true
    }
}

fn misuse(rule: &Rule, text: impl Into<String>) -> ! {
    broken(rule, BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, text)
}

/// Allocates pages for an MDL: fewer than `count` when memory is short, unless all are required.
fn allocate_pages(host: &Host, count: usize, limit: u64, flags: u32) -> Option<Vec<Pfn>> {
    let is_all_or_none = flags & MM_ALLOCATE_FULLY_REQUIRED != 0;
    let mut wanted = if host.low_resources.fails() { count / 2 } else { count };
    if is_all_or_none && wanted < count {
        return None;
    }
    let pages = loop {
        if wanted == 0 {
            return None;
        }
        match host.memory.allocate_scattered(wanted, limit) {
            Some(pages) => break pages,
            None if is_all_or_none => return None,
            None => wanted /= 2,
        }
    };
    if flags & MM_DONT_ZERO_ALLOCATION != 0 {
        for page in &pages {
            host.memory.physical.direct(page.address()).fill(FRESH, PAGE_SIZE);
        }
    }
    Some(pages)
}

fn map(me: &Thread, mdl: GuestMdl, priority: u32) -> usize {
    let host = me.host();
    if !mdl.has(MDL_PAGES_LOCKED) && !mdl.has(MDL_PARTIAL) {
        misuse(rules::MDL_MAPPED, "MmMapLockedPagesSpecifyCache of an MDL whose pages are not locked");
    }
    if mdl.has(MDL_MAPPED_TO_SYSTEM_VA) || mdl.has(MDL_SOURCE_IS_NONPAGED_POOL) {
        misuse(rules::MDL_MAPPED, "MmMapLockedPagesSpecifyCache of an MDL that is mapped already");
    }
    if host.low_resources.fails() {
        return 0;
    }
    let protection =
        if priority & MdlMappingNoWrite == 0 { Protection::ReadWrite } else { Protection::ReadOnly };
    let Some(start) = host.memory.map(&mdl.pages(), protection) else { return 0 };
    let address = start + mdl.byte_offset() as usize;
    mdl.set_mapped(address);
    mdl.set_flags(mdl.flags() | MDL_MAPPED_TO_SYSTEM_VA);
    host.objects.add(MAPPING, address);
    host.state(&MAPPINGS).fetch_add(1, Relaxed);
    address
}

fn unmap(me: &Thread, mdl: GuestMdl) {
    let address = mdl.mapped();
    me.host().memory.unmap(address - address % PAGE_SIZE, mdl.page_count());
    mdl.set_flags(mdl.flags() & !MDL_MAPPED_TO_SYSTEM_VA);
    mdl.set_mapped(0);
}

pub(super) static CONTIGUOUS: Slot<Contiguous> = Slot::new();

/// Number of mappings that images have made with `MmMapLockedPages*`.
pub(super) static MAPPINGS: Slot<AtomicU64> = Slot::new();

impl Host {
    /// Returns the number of mappings of MDLs that images have made. On Windows, the end of each flushes the translation buffers
    /// of all processors.
    #[must_use]
    pub fn mappings(&self) -> u64 {
        self.state(&MAPPINGS).load(Relaxed)
    }
}

/// Contiguous memory: first page and number of pages, by address.
pub(super) type Contiguous = Mutex<HashMap<usize, (Pfn, usize)>>;

/// Memory from `MmAllocateContiguousMemory*`.
const CONTIGUOUS_MEMORY: &str = "MmAllocateContiguousMemory";

fn allocate_contiguous(size: usize, low: i64, high: i64, boundary: i64) -> usize {
    let me = current();
    let host = me.host();
    if host.low_resources.fails() {
        return 0;
    }
    let pages = size.div_ceil(PAGE_SIZE).max(1);
    let limit = high.cast_unsigned().saturating_add(1);
    // A range aligned to its own size, rounded up to a power of two, does not cross a boundary.
    let align = if boundary == 0 { 1 } else { pages.next_power_of_two() as u64 };
    let Some(first) = host.memory.physical.allocate(pages, align, limit) else { return 0 };
    if (first.address()) < low.cast_unsigned() {
        host.memory.physical.free(first, pages);
        return 0;
    }
    let frames: Vec<_> = (0..pages as u64).map(|index| Pfn(first.0 + index)).collect();
    let Some(address) = host.memory.map(&frames, Protection::ReadWrite) else {
        host.memory.physical.free(first, pages);
        return 0;
    };
    host.state(&CONTIGUOUS).lock().insert(address, (first, pages));
    host.objects.add(CONTIGUOUS_MEMORY, address);
    address
}

fn free_contiguous(address: usize) {
    let me = current();
    let host = me.host();
    let known = host.state(&CONTIGUOUS).lock().remove(&address);
    let Some((first, pages)) = known else {
        misuse(
            rules::PAGES_FREED,
            format!("{address:#x} was freed as contiguous memory, but not allocated as such"),
        );
    };
    pool::check_contents(&me, address..address + pages * PAGE_SIZE);
    let _ = host.objects.remove(CONTIGUOUS_MEMORY, address);
    host.memory.unmap(address, pages);
    host.memory.physical.free(first, pages);
}

/// Makes an MDL the first one of an IRP, or the last one of the chain that the IRP has.
fn attach_to_irp(mdl: Guest<MDL>, irp: Guest<IRP>, is_secondary: bool) {
    let mut place: Guest<usize> = irp.field(offset_of!(IRP, MdlAddress));
    while is_secondary && place.read() != 0 {
        place = Guest::<MDL>::from_address(place.read()).field(offset_of!(MDL, Next));
    }
    place.write(mdl.address());
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Returns the size of an MDL for a range in bytes.
    [any]
    fn MmSizeOfMdl(address: usize, length: usize) -> usize {
        GuestMdl::size_for(address, length)
    }

    /// Allocates an MDL for a range; returns null when resources run low.
    [<= DISPATCH_LEVEL]
    fn IoAllocateMdl(address: usize, length: u32, secondary: u8, quota: u8, irp: Guest<IRP>) -> Guest<MDL> {
        let _ = quota;
        let me = current();
        let size = GuestMdl::size_for(address, length as usize);
        let request = Request { size, tag: TAG, zeroed: false, cache_aligned: false };
        let mdl = pool::allocate(&me, request).cast();
        if !mdl.is_null() {
            GuestMdl(mdl).initialize(address, length);
            if !irp.is_null() {
                attach_to_irp(mdl, irp, secondary != 0);
            }
        }
        mdl
    }

    /// Frees an MDL.
    [<= DISPATCH_LEVEL]
    fn IoFreeMdl(mdl: Guest<MDL>) {
        let mdl = GuestMdl(mdl);
        if mdl.has(MDL_MAPPED_TO_SYSTEM_VA) && !mdl.has(MDL_PARTIAL) {
            misuse(rules::MDL_FREED, "IoFreeMdl of an MDL that is still mapped; call MmUnmapLockedPages first");
        }
        if mdl.has(MDL_PAGES_LOCKED) && !mdl.has(MDL_PARTIAL) {
            violation(BugCheck::DRIVER_LEFT_LOCKED_PAGES, "IoFreeMdl of an MDL whose pages are still locked; call MmUnlockPages first");
        }
        pool::free(&current(), mdl.0.cast(), Some(TAG));
    }

    /// Initializes an MDL that describes part of the memory of another one.
    [<= DISPATCH_LEVEL]
    fn IoBuildPartialMdl(source: Guest<MDL>, target: Guest<MDL>, address: usize, length: u32) {
        let (source, target) = (GuestMdl(source), GuestMdl(target));
        let begin = source.start() + source.byte_offset() as usize;
        let end = begin + source.byte_count() as usize;
        let length = if length == 0 { u32::try_from(end.saturating_sub(address)).unwrap_or(0) } else { length };
        if address < begin || address + length as usize > end {
            misuse(rules::MDL_PARTIAL, "IoBuildPartialMdl for a range that is not inside the source MDL");
        }
        let next = target.next();
        target.initialize(address, length);
        target.set_next(next);
        let first = (target.start() - source.start()) / PAGE_SIZE;
        for index in 0..target.page_count() {
            target.page(index).write(source.page(first + index).read());
        }
        let mut flags = MDL_PARTIAL;
        if source.has(MDL_SOURCE_IS_NONPAGED_POOL) || source.has(MDL_MAPPED_TO_SYSTEM_VA) {
            let base = if source.has(MDL_MAPPED_TO_SYSTEM_VA) { source.mapped() } else { begin };
            target.set_mapped(base + (address - begin));
            flags |= source.flags() & (MDL_SOURCE_IS_NONPAGED_POOL | MDL_MAPPED_TO_SYSTEM_VA);
        }
        target.set_flags(flags);
    }

    /// Fills in the pages of a range of nonpaged memory.
    [<= DISPATCH_LEVEL]
    fn MmBuildMdlForNonPagedPool(mdl: Guest<MDL>) {
        let mdl = GuestMdl(mdl);
        let me = current();
        if let Some(name) = me.host().memory.paged.explain(mdl.start() + mdl.byte_offset() as usize) {
            misuse(rules::MDL_NONPAGED, format!("MmBuildMdlForNonPagedPool of pageable memory ({name}); call MmProbeAndLockPages"));
        }
        if !mdl.fill(me.host()) {
            misuse(rules::MDL_NONPAGED, "MmBuildMdlForNonPagedPool of memory that is not nonpaged pool");
        }
        mdl.set_mapped(mdl.start() + mdl.byte_offset() as usize);
        mdl.set_flags(mdl.flags() | MDL_SOURCE_IS_NONPAGED_POOL);
    }

    /// Locks the pages of a range; kernel memory is always resident here.
    [<= DISPATCH_LEVEL]
    fn MmProbeAndLockPages(mdl: Guest<MDL>, mode: i8, operation: i32) {
        let _ = operation;
        let mdl = GuestMdl(mdl);
        if mode != 0 {
            misuse(rules::HOST_MEMORY, "MmProbeAndLockPages of user memory: this simulation has none");
        }
        if mdl.has(MDL_SOURCE_IS_NONPAGED_POOL) {
            misuse(rules::MDL_LOCKED, "MmProbeAndLockPages of an MDL that MmBuildMdlForNonPagedPool built");
        }
        if mdl.has(MDL_PAGES_LOCKED) {
            misuse(rules::MDL_LOCKED, "MmProbeAndLockPages of an MDL whose pages are locked already");
        }
        if !mdl.fill(current().host()) {
            misuse(rules::MDL_LOCKED, "MmProbeAndLockPages of memory that is not mapped");
        }
        mdl.set_flags(mdl.flags() | MDL_PAGES_LOCKED);
    }

    /// Unlocks the pages of an MDL, and unmaps it.
    [<= DISPATCH_LEVEL]
    fn MmUnlockPages(mdl: Guest<MDL>) {
        let mdl = GuestMdl(mdl);
        if !mdl.has(MDL_PAGES_LOCKED) {
            misuse(rules::MDL_LOCKED, "MmUnlockPages of an MDL whose pages are not locked");
        }
        let me = current();
        if mdl.has(MDL_MAPPED_TO_SYSTEM_VA) {
            let _ = me.host().objects.remove(MAPPING, mdl.mapped());
            unmap(&me, mdl);
        }
        mdl.set_flags(mdl.flags() & !MDL_PAGES_LOCKED);
    }

    /// Maps the pages of an MDL; returns null when resources run low. The lower limit in the ABI table is for user
    /// mode.
    [<= DISPATCH_LEVEL]
    fn MmMapLockedPagesSpecifyCache(
        mdl: Guest<MDL>,
        mode: i8,
        cache: i32,
        requested: usize,
        bug_check: u32,
        priority: u32,
    ) -> usize {
        let _ = (cache, requested);
        if mode != 0 {
            misuse(rules::HOST_MEMORY, "MmMapLockedPagesSpecifyCache into user memory: this simulation has none");
        }
        let address = map(&current(), GuestMdl(mdl), priority);
        if address == 0 && bug_check != 0 {
            misuse(rules::MDL_MAPPED, "MmMapLockedPagesSpecifyCache failed, and BugCheckOnFailure is TRUE");
        }
        address
    }

    /// Unmaps what [`MmMapLockedPagesSpecifyCache`] mapped.
    [<= DISPATCH_LEVEL]
    fn MmUnmapLockedPages(address: usize, mdl: Guest<MDL>) {
        let me = current();
        let mdl = GuestMdl(mdl);
        if !me.host().objects.remove(MAPPING, address) || mdl.mapped() != address {
            misuse(rules::MDL_MAPPED, format!("MmUnmapLockedPages of {address:#x}, at which this MDL is not mapped"));
        }
        unmap(&me, mdl);
    }

    /// Allocates noncontiguous pages and an MDL that describes them; returns null, or an MDL of fewer pages, when resources run low.
    [<= DISPATCH_LEVEL]
    fn MmAllocatePagesForMdlEx(
        low: i64,
        high: i64,
        skip: i64,
        size: usize,
        cache: i32,
        flags: u32,
    ) -> Guest<MDL> {
        let _ = (low, skip, cache);
        let me = current();
        let host = me.host();
        let mdl_size = GuestMdl::size_for(0, size);
        let request = Request { size: mdl_size, tag: TAG, zeroed: false, cache_aligned: false };
        let mdl = GuestMdl(pool::allocate(&me, request).cast());
        if mdl.0.is_null() {
            return Guest::null();
        }
        mdl.initialize(0, u32::try_from(size).unwrap_or(u32::MAX));
        let limit = high.cast_unsigned().saturating_add(1);
        let Some(pages) = allocate_pages(host, mdl.page_count(), limit, flags) else {
            pool::free(&me, mdl.0.cast(), Some(TAG));
            return Guest::null();
        };
        if pages.len() < mdl.page_count() {
            mdl.set_byte_count(u32::try_from(pages.len() * PAGE_SIZE).unwrap_or(u32::MAX));
        }
        for (index, page) in pages.iter().enumerate() {
            mdl.page(index).write(*page);
        }
        mdl.set_flags(MDL_PAGES_LOCKED);
        host.objects.add("MmAllocatePagesForMdlEx", mdl.0.address());
        mdl.0
    }

    /// Frees the pages of [`MmAllocatePagesForMdlEx`]; the MDL itself is freed with `ExFreePool`.
    [<= DISPATCH_LEVEL]
    fn MmFreePagesFromMdl(mdl: Guest<MDL>) {
        let me = current();
        let host = me.host();
        let mdl = GuestMdl(mdl);
        if !host.objects.remove("MmAllocatePagesForMdlEx", mdl.0.address()) {
            misuse(rules::PAGES_FREED, "MmFreePagesFromMdl of an MDL that MmAllocatePagesForMdlEx did not allocate");
        }
        if mdl.has(MDL_MAPPED_TO_SYSTEM_VA) {
            let _ = host.objects.remove(MAPPING, mdl.mapped());
            unmap(&me, mdl);
        }
        for page in mdl.pages() {
            host.memory.physical.free(page, 1);
        }
        mdl.set_flags(mdl.flags() & !MDL_PAGES_LOCKED);
    }

    /// Allocates physically contiguous memory; returns null when resources run low.
    [<= DISPATCH_LEVEL]
    fn MmAllocateContiguousMemorySpecifyCache(
        size: usize,
        lowest: LARGE_INTEGER,
        highest: LARGE_INTEGER,
        boundary: LARGE_INTEGER,
        cache: i32,
    ) -> usize {
        let _ = cache;
        allocate_contiguous(size, lowest.QuadPart, highest.QuadPart, boundary.QuadPart)
    }

    /// Allocates as [`MmAllocateContiguousMemorySpecifyCache`] does, near a NUMA node; there is one.
    [<= DISPATCH_LEVEL]
    fn MmAllocateContiguousMemorySpecifyCacheNode(
        size: usize,
        lowest: LARGE_INTEGER,
        highest: LARGE_INTEGER,
        boundary: LARGE_INTEGER,
        cache: i32,
        node: u32,
    ) -> usize {
        let _ = (cache, node);
        allocate_contiguous(size, lowest.QuadPart, highest.QuadPart, boundary.QuadPart)
    }

    /// Frees contiguous memory.
    [<= DISPATCH_LEVEL]
    fn MmFreeContiguousMemory(address: usize) {
        free_contiguous(address);
    }

    /// Frees contiguous memory.
    [<= DISPATCH_LEVEL]
    fn MmFreeContiguousMemorySpecifyCache(address: usize, size: usize, cache: i32) {
        let _ = (size, cache);
        free_contiguous(address);
    }

    /// Returns the physical address of an address.
    [any]
    fn MmGetPhysicalAddress(address: usize) -> LARGE_INTEGER {
        let physical = current().host().memory.physical_address(address).unwrap_or(0);
        LARGE_INTEGER { QuadPart: physical.cast_signed() }
    }

    /// Returns whether an address is mapped.
    [<= DISPATCH_LEVEL]
    fn MmIsAddressValid(address: usize) -> u8 {
        let me = current();
        let host = me.host();
        let mapped = host.memory.pfn(address).is_some() || host.images().find(address).is_some();
        mapped.into()
    }
}
