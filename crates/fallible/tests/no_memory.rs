// SPDX-License-Identifier: MIT OR Apache-2.0

//! Allocations that fail: each operation reports it, keeps what it has, and returns or drops the value that it was given.
#![allow(unsafe_code, reason = "implements an allocator")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    ptr,
    rc::Rc,
};

use fallible::{
    AliasableBox, AliasableBytes, AllocError, Arc, Fifo, Slab, Slot, try_box, try_box_or_return, vec,
};

/// The system's allocator, except while the calling thread is [`without_memory`].
struct Memory;

thread_local! {
    static IS_EXHAUSTED: Cell<bool> = const { Cell::new(false) };
    /// Bytes of the longest block that can be allocated.
    static LONGEST: Cell<usize> = const { Cell::new(usize::MAX) };
    /// Blocks that the thread has allocated and not freed.
    static BLOCKS: Cell<isize> = const { Cell::new(0) };
}

// SAFETY: the system's allocator, or null, which stands for a failure.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IS_EXHAUSTED.get() || layout.size() > LONGEST.get() {
            return ptr::null_mut();
        }
        BLOCKS.set(BLOCKS.get() + 1);
        // SAFETY: the caller promises a layout whose size is not zero.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        BLOCKS.set(BLOCKS.get() - 1);
        // SAFETY: the caller's promise; all memory is the system's.
        unsafe { System.dealloc(memory, layout) };
    }
}

#[global_allocator]
static MEMORY: Memory = Memory;

/// Runs `body` while every allocation of the thread fails.
fn without_memory<T>(body: impl FnOnce() -> T) -> T {
    IS_EXHAUSTED.set(true);
    let result = body();
    IS_EXHAUSTED.set(false);
    result
}

#[test]
fn boxes_return_or_drop_their_value() {
    let value = Rc::new(7);
    let returned = without_memory(|| try_box_or_return(value.clone())).unwrap_err();
    assert!(Rc::ptr_eq(&value, &returned));
    drop(returned);
    assert_eq!(without_memory(|| try_box(value.clone())).err(), Some(AllocError));
    assert_eq!(without_memory(|| AliasableBox::try_new(value.clone())).err(), Some(AllocError));
    assert_eq!(without_memory(|| Arc::try_new(value.clone())).err(), Some(AllocError));
    assert_eq!(Rc::strong_count(&value), 1);
    // A value without bytes needs no memory.
    assert!(without_memory(|| try_box(())).is_ok());
}

#[test]
fn no_value_is_made_without_memory_for_it() {
    let made = without_memory(|| Arc::try_new_with(|| -> u8 { panic!("called") }));
    assert_eq!(made.err(), Some(AllocError));
    assert!(without_memory(|| Slot::<u64>::try_new().is_err()));
    assert_eq!(without_memory(|| AliasableBytes::try_new(1)).err(), Some(AllocError));
}

#[test]
fn a_slab_without_memory_for_a_chunk_takes_memory_for_one_value() {
    let blocks = || BLOCKS.get();
    let mut slab = Slab::new();
    assert_eq!(without_memory(|| slab.reserve()).err(), Some(AllocError));
    let mut values: Vec<Arc<[u64; 256]>> = Vec::with_capacity(40);
    while values.len() < 20 {
        values.push(slab.reserve().unwrap().store(|| [7; 256]));
    }
    // In the free slots of the last chunk, and two more.
    LONGEST.set(4096);
    let before = blocks();
    while blocks() < before + 2 {
        // A failed assertion needs memory to report itself.
        let Ok(reserved) = slab.reserve() else { break };
        values.push(reserved.store(|| [7; 256]));
    }
    LONGEST.set(usize::MAX);
    assert_eq!(blocks(), before + 2, "chunks of one value");
    assert!(values.len() < 40 && values.iter().all(|value| **value == [7; 256]));
    assert!(without_memory(|| slab.reserve()).is_err(), "chunks of one value are full");
}

#[test]
fn memory_of_a_slab_is_freed_with_the_last_value_or_the_slab() {
    let before = BLOCKS.get();
    for values_first in [true, false] {
        let mut slab = Slab::new();
        let values = [1, 2, 3].map(|value: u64| slab.reserve().unwrap().store(|| value));
        assert_eq!(BLOCKS.get(), before + 3);
        if values_first {
            drop(values);
            assert_eq!(BLOCKS.get(), before + 3, "kept for others");
            let _value = slab.reserve().unwrap().store(|| 4);
            slab.trim();
            assert_eq!(BLOCKS.get(), before + 1, "empty chunks are freed");
            drop(slab);
        } else {
            drop(slab);
            assert_eq!(BLOCKS.get(), before + 3);
            drop(values);
        }
        assert_eq!(BLOCKS.get(), before);
    }
}

#[test]
fn memory_is_freed_when_its_owner_is_dropped() {
    let before = BLOCKS.get();
    let all = (
        try_box(1_u8),
        AliasableBox::try_new(1_u8),
        AliasableBytes::try_new(1),
        Arc::try_new(1_u8),
        Slot::<u64>::try_new(),
    );
    assert!(all.0.is_ok() && all.1.is_ok() && all.2.is_ok() && all.3.is_ok() && all.4.is_ok());
    assert_eq!(BLOCKS.get() - before, 5);
    drop(all);
    assert_eq!(BLOCKS.get(), before);
}

#[test]
fn full_vectors_stay_as_they_are() {
    let mut full = vec::with_capacity(2).unwrap();
    without_memory(|| {
        // There is room for these.
        assert_eq!(vec::extend(&mut full, &['a', 'b']), Ok(()));
        assert_eq!(vec::push_or_return(&mut full, 'c'), Err('c'));
        assert_eq!(vec::push(&mut full, 'c'), Err(AllocError));
        assert_eq!(vec::insert(&mut full, 0, 'c'), Err(AllocError));
        assert_eq!(vec::extend(&mut full, &['c']), Err(AllocError));
        assert_eq!(vec::grow_to(&mut full, 3, || 'c'), Err(AllocError));
        assert_eq!(vec::reserve(&mut full, 3), Err(AllocError));
        assert_eq!(vec::reserve_exact(&mut full, 3), Err(AllocError));
        assert_eq!((vec::reserve(&mut full, 2), vec::reserve_exact(&mut full, 2)), (Ok(()), Ok(())));
        assert_eq!(vec::filled(1, 'c'), Err(AllocError));
        assert_eq!(vec::with_capacity::<u8>(1), Err(AllocError));
    });
    assert_eq!((full.as_slice(), full.capacity()), (&['a', 'b'][..], 2));
    let member = Rc::new(());
    assert_eq!(without_memory(|| vec::push(&mut Vec::new(), member.clone())), Err(AllocError));
    assert_eq!(Rc::strong_count(&member), 1);
}

#[test]
fn members_of_a_queue_that_were_counted_need_no_memory() {
    let mut queue = Fifo::new();
    queue.reserve_for(2).unwrap();
    let counted = without_memory(|| {
        assert_eq!(queue.reserve_for(1000), Err(AllocError));
        (queue.push(1), queue.push(2), queue.len(), queue.is_empty())
    });
    assert_eq!(counted, (true, true, 2, false));
    queue.remove(|_| true);
    assert_eq!((queue.len(), queue.is_empty()), (0, true));
}

/// It is a bug of the caller, which builds with assertions report.
#[test]
#[cfg(not(debug_assertions))]
fn a_member_without_memory_is_dropped() {
    let (mut queue, member) = (Fifo::new(), Rc::new(()));
    queue.reserve_for(1).unwrap();
    while queue.push(member.clone()) {}
    let queued = queue.len();
    assert_eq!(Rc::strong_count(&member), queued + 1);
    assert!(!without_memory(|| queue.push(member.clone())));
    assert_eq!(queue.len(), queued);
}
