// SPDX-License-Identifier: MIT OR Apache-2.0

//! Interlocked lists, and lookaside lists.

use std::mem::offset_of;

use ndk_abi::nt::{KSPIN_LOCK, LIST_ENTRY, SLIST_ENTRY, SLIST_HEADER};

use super::{dispatcher::DISPATCHER, system_routine::SYSTEM_ROUTINES};
use crate::{guest::Guest, image, imports, thread::current};

/// Depth of a new lookaside list.
const DEPTH: u16 = 4;
const NON_PAGED: u32 = 512;

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

/// Accesses a list under the lock that stands for its spin lock or its interlocked instructions.
fn locked<T>(access: impl FnOnce() -> T) -> T {
    current().host().state(&DISPATCHER).locked(access)
}

fn forward(entry: Guest<LIST_ENTRY>) -> Guest<Guest<LIST_ENTRY>> {
    entry.field(0)
}

fn back(entry: Guest<LIST_ENTRY>) -> Guest<Guest<LIST_ENTRY>> {
    entry.field(8)
}

/// Links an entry between two neighbors.
fn link(entry: Guest<LIST_ENTRY>, before: Guest<LIST_ENTRY>, after: Guest<LIST_ENTRY>) {
    forward(entry).write(after);
    back(entry).write(before);
    forward(before).write(entry);
    back(after).write(entry);
}

/// `SLIST_HEADER`: depth and sequence number in the first word, the first entry in the second.
fn depth(head: Guest<SLIST_HEADER>) -> Guest<u16> {
    head.field(0)
}

fn first(head: Guest<SLIST_HEADER>) -> Guest<Guest<SLIST_ENTRY>> {
    head.field(8)
}

fn pop(head: Guest<SLIST_HEADER>) -> Guest<SLIST_ENTRY> {
    locked(|| {
        let entry = first(head).read();
        if !entry.is_null() {
            first(head).write(entry.field::<Guest<SLIST_ENTRY>>(0).read());
            depth(head).write(depth(head).read().wrapping_sub(1));
        }
        entry
    })
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Inserts an entry at the head; returns the former first one, or null.
    [any]
    fn ExInterlockedInsertHeadList(
        head: Guest<LIST_ENTRY>,
        entry: Guest<LIST_ENTRY>,
        lock: Guest<KSPIN_LOCK>,
    ) -> Guest<LIST_ENTRY> {
        let _ = lock;
        locked(|| {
            let old = forward(head).read();
            link(entry, head, old);
            if old == head { Guest::null() } else { old }
        })
    }

    /// Inserts an entry at the tail; returns the former last one, or null.
    [any]
    fn ExInterlockedInsertTailList(
        head: Guest<LIST_ENTRY>,
        entry: Guest<LIST_ENTRY>,
        lock: Guest<KSPIN_LOCK>,
    ) -> Guest<LIST_ENTRY> {
        let _ = lock;
        locked(|| {
            let old = back(head).read();
            link(entry, old, head);
            if old == head { Guest::null() } else { old }
        })
    }

    /// Removes the first entry; returns null when there is none.
    [any]
    fn ExInterlockedRemoveHeadList(head: Guest<LIST_ENTRY>, lock: Guest<KSPIN_LOCK>) -> Guest<LIST_ENTRY> {
        let _ = lock;
        locked(|| {
            let entry = forward(head).read();
            if entry == head {
                return Guest::null();
            }
            let after = forward(entry).read();
            forward(head).write(after);
            back(after).write(head);
            entry
        })
    }

    /// Initializes a singly linked list.
    [any]
    fn InitializeSListHead(head: Guest<SLIST_HEADER>) {
        head.write(SLIST_HEADER::zeroed());
    }

    /// Inserts an entry at the head of a singly linked list; returns the former first one, or null.
    [any]
    fn ExpInterlockedPushEntrySList(head: Guest<SLIST_HEADER>, entry: Guest<SLIST_ENTRY>) -> Guest<SLIST_ENTRY> {
        locked(|| {
            let old = first(head).read();
            entry.field::<Guest<SLIST_ENTRY>>(0).write(old);
            first(head).write(entry);
            depth(head).write(depth(head).read().wrapping_add(1));
            old
        })
    }

    /// Removes the first entry of a singly linked list; returns null when there is none.
    [any]
    fn ExpInterlockedPopEntrySList(head: Guest<SLIST_HEADER>) -> Guest<SLIST_ENTRY> {
        pop(head)
    }

    /// Returns the number of entries of a singly linked list.
    [<= DISPATCH_LEVEL]
    fn ExQueryDepthSList(head: Guest<SLIST_HEADER>) -> u16 {
        depth(head).read()
    }

    /// Initializes a lookaside list. Without functions of the driver its blocks are pool.
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
        let me = current();
        let routines = me.host().state(&SYSTEM_ROUTINES);
        let or = |function: usize, name: &str| if function == 0 { routines.find(name) } else { function };
        list.cast::<[u64; 16]>().write([0; 16]);
        list.field::<u16>(offset_of!(Lookaside, depth)).write(DEPTH);
        list.field::<u16>(offset_of!(Lookaside, maximum_depth)).write(256);
        list.field::<u32>(offset_of!(Lookaside, kind)).write(NON_PAGED);
        list.field::<u32>(offset_of!(Lookaside, tag)).write(tag);
        list.field::<u32>(offset_of!(Lookaside, size)).write(u32::try_from(size).unwrap_or(u32::MAX));
        list.field::<usize>(offset_of!(Lookaside, allocate)).write(or(allocate, "ExAllocatePoolWithTag"));
        list.field::<usize>(offset_of!(Lookaside, free)).write(or(free, "ExFreePool"));
    }

    /// Frees the blocks that a lookaside list holds.
    [<= DISPATCH_LEVEL]
    fn ExDeleteNPagedLookasideList(list: Guest<u8>) {
        let free = list.field::<usize>(offset_of!(Lookaside, free)).read();
        // SAFETY: the driver's function, or the kernel's own.
        let free: extern "efiapi" fn(usize) = unsafe { image::function("the free routine of a lookaside list", free) };
        loop {
            let block = pop(list.cast());
            if block.is_null() {
                return;
            }
            image::call("the free routine of a lookaside list", || free(block.address()));
        }
    }
}
