// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pool functions.

use ndk_abi::nt::{
    POOL_FLAG_CACHE_ALIGNED, POOL_FLAG_NON_PAGED, POOL_FLAG_NON_PAGED_EXECUTE, POOL_FLAG_PAGED,
    POOL_FLAG_RAISE_ON_FAILURE, POOL_FLAG_UNINITIALIZED, POOL_TYPE,
};

use super::{
    dpc::DPCS, resource::RESOURCES, spin_lock::LOCK_ORDER, timer::TIMERS, waits::WAITS, work::QUEUED_ITEMS,
};
use crate::{
    Irql,
    guest::Guest,
    image::stack,
    imports,
    memory::pool::{Request, Tag},
    thread::{Thread, current},
    verifier::{BugCheck, Tolerance, broken, report::finding, rules, undocumented_call, violation},
};

/// Allocates for the image; returns null when memory is exhausted or a failure is injected.
pub(super) fn allocate(me: &Thread, request: Request) -> Guest<u8> {
    let host = me.host();
    if request.tag.0 == 0 || request.size == 0 {
        violation(
            BugCheck::BAD_POOL_CALLER,
            format!(
                "an allocation of {} bytes with tag {:?}: neither may be zero",
                request.size, request.tag
            ),
        );
    }
    if host.low_resources.fails() {
        return Guest::null();
    }
    let memory = &host.memory;
    memory.pool.allocate(&memory.physical, &memory.space, request).unwrap_or(Guest::null())
}

/// Frees a block of the image after checking that it contains no object in use.
pub(super) fn free(me: &Thread, block: Guest<u8>, tag: Option<Tag>) {
    let host = me.host();
    let memory = &host.memory;
    if let Some(size) = memory.pool.size_of(block.address()) {
        check_contents(me, block.address()..block.address() + size);
    }
    if me.irql() > Irql::APC_LEVEL && memory.paged.explain(block.address()).is_some() {
        broken(
            rules::PAGED_FREED,
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            format!("paged pool was freed at {}; allowed: <= APC_LEVEL", me.irql()),
        );
    }
    let stack = stack::capture_up_to(1);
    let tolerated =
        stack.innermost().and_then(|caller| host.images().find(caller)).map(|image| image.tolerates());
    let tolerated = tolerated.unwrap_or_default();
    let mut tag = tag;
    if tolerated.contains(Tolerance::PoolTags)
        && let Err(misuse) = memory.pool.check_tag(block.address(), tag)
    {
        finding(misuse.code, misuse.text, stack::capture(), true);
        tag = None;
    }
    let freed = if tolerated.contains(Tolerance::UseAfterFree) {
        memory.pool.check_tag(block.address(), tag).and_then(|()| memory.pool.hold(block))
    } else {
        memory.pool.free(&memory.physical, &memory.space, block, tag)
    };
    if let Err(misuse) = freed {
        violation(misuse.code, misuse.text);
    }
}

/// Checks that memory to be freed contains no object in use: no timer that is set, no queued DPC or work item, no held
/// spin lock. For all memory of the image: pool, contiguous and shared memory.
pub fn check_contents(me: &Thread, range: std::ops::Range<usize>) {
    if !me.verifies() {
        return;
    }
    let host = me.host();
    if host.state(&QUEUED_ITEMS).find(&range).is_some() {
        violation(BugCheck::WORKER_INVALID, "freed memory contains a work item that is queued");
    }
    if host.state(&TIMERS).find(&range).is_some() {
        violation(
            BugCheck::TIMER_OR_DPC_INVALID,
            "freed memory contains a timer that is set; call KeCancelTimer first",
        );
    }
    if host.state(&WAITS).find(&range).is_some() {
        undocumented_call(
            Tolerance::AwaitedObject,
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            "freed memory contains an event or timer that a thread waits for",
        );
    }
    if host.state(&RESOURCES).find(&range).is_some() {
        broken(
            rules::RESOURCE_LIFE,
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            "freed memory contains a resource; call ExDeleteResourceLite first",
        );
    }
    if host.state(&DPCS).find(&range).is_some() {
        violation(
            BugCheck::TIMER_OR_DPC_INVALID,
            "freed memory contains a DPC that is queued; call KeRemoveQueueDpc or KeFlushQueuedDpcs first",
        );
    }
    if me.locks.borrow().iter().any(|held| range.contains(&held.address)) {
        broken(
            rules::LOCK_FREED,
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            "freed memory contains a spin lock that is held",
        );
    }
    host.state(&LOCK_ORDER).forget(range);
}

fn check_paged(me: &Thread) {
    if me.irql() > Irql::APC_LEVEL {
        violation(
            BugCheck::IRQL_NOT_LESS_OR_EQUAL,
            format!("paged pool was allocated at {}; allowed: <= APC_LEVEL", me.irql()),
        );
    }
}

fn executable() -> ! {
    broken(
        rules::EXECUTABLE_POOL,
        BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "executable pool was allocated; use nonexecutable pool (POOL_FLAG_NON_PAGED)",
    )
}

/// Allocates pool of a `POOL_TYPE`.
fn allocate_of_type(kind: POOL_TYPE, size: usize, tag: u32) -> Guest<u8> {
    const PAGED: i32 = 1;
    const CACHE_ALIGNED: i32 = 4;
    const NO_EXECUTE: i32 = 512;
    let me = current();
    if kind.0 & PAGED != 0 {
        check_paged(&me);
    } else if kind.0 & NO_EXECUTE == 0 {
        executable();
    }
    let cache_aligned = kind.0 & CACHE_ALIGNED != 0;
    let block = allocate(&me, Request { size, tag: Tag(tag), zeroed: false, cache_aligned });
    if kind.0 & PAGED != 0 {
        me.host().memory.pool.make_pageable(block);
    }
    block
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Allocates pool, zeroed unless `POOL_FLAG_UNINITIALIZED` is set.
    [<= DISPATCH_LEVEL]
    fn ExAllocatePool2(flags: u64, size: usize, tag: u32) -> Guest<u8> {
        let me = current();
        if flags & POOL_FLAG_NON_PAGED_EXECUTE != 0 {
            executable();
        }
        if flags & POOL_FLAG_PAGED != 0 {
            check_paged(&me);
        } else if flags & POOL_FLAG_NON_PAGED == 0 {
            return Guest::null();
        }
        let block = allocate(&me, Request {
            size,
            tag: Tag(tag),
            zeroed: flags & POOL_FLAG_UNINITIALIZED == 0,
            cache_aligned: flags & POOL_FLAG_CACHE_ALIGNED != 0,
        });
        if flags & POOL_FLAG_PAGED != 0 {
            me.host().memory.pool.make_pageable(block);
        }
        if block.is_null() && flags & POOL_FLAG_RAISE_ON_FAILURE != 0 {
            broken(rules::RAISED, BugCheck::KMODE_EXCEPTION_NOT_HANDLED, "a pool allocation with POOL_FLAG_RAISE_ON_FAILURE failed; exceptions are not simulated");
        }
        block
    }

    /// Allocates pool, not zeroed.
    [<= DISPATCH_LEVEL]
    fn ExAllocatePoolWithTag(kind: POOL_TYPE, size: usize, tag: u32) -> Guest<u8> {
        allocate_of_type(kind, size, tag)
    }

    /// Allocates as [`ExAllocatePoolWithTag`] does; the priority counts when memory is short, which it never is.
    [<= DISPATCH_LEVEL]
    fn ExAllocatePoolWithTagPriority(kind: POOL_TYPE, size: usize, tag: u32, priority: i32) -> Guest<u8> {
        let _ = priority;
        allocate_of_type(kind, size, tag)
    }

    /// Frees pool.
    [<= DISPATCH_LEVEL]
    fn ExFreePool(block: Guest<u8>) {
        free(&current(), block, None);
    }

    /// Frees pool; the tag must be the block's unless it is 0.
    [<= DISPATCH_LEVEL]
    fn ExFreePoolWithTag(block: Guest<u8>, tag: u32) {
        free(&current(), block, (tag != 0).then_some(Tag(tag)));
    }
}
