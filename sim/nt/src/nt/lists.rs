// SPDX-License-Identifier: MIT OR Apache-2.0

//! Interlocked lists.

use ndk_abi::nt::{KSPIN_LOCK, LIST_ENTRY, SLIST_ENTRY, SLIST_HEADER};

use super::dispatcher::DISPATCHER;
use crate::{guest::Guest, imports, thread::current};

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

/// Removes the first entry of a singly linked list; returns null when there is none.
pub(super) fn pop(head: Guest<SLIST_HEADER>) -> Guest<SLIST_ENTRY> {
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
}
