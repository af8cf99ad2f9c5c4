// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;
use crate::Arc;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Values of which a largest chunk has few, for Miri.
type Value = [usize; 2048];

fn value(slab: &mut Slab<Value>, first: usize) -> Arc<Value> {
    let reserved = slab.reserve().unwrap();
    let mut value = reserved.store(|| [0; 2048]);
    Arc::get_mut(&mut value).unwrap()[0] = first;
    value
}

fn line_of(value: &Arc<Value>) -> usize {
    // The counts before the value are in its slot.
    (Arc::as_ptr(value).addr() - 2 * size_of::<usize>()) / LINE
}

#[test]
fn values_are_apart_begin_with_a_line_and_keep_what_was_stored() {
    let mut slab = Slab::new();
    let count = if cfg!(miri) { 7 } else { 40 };
    let values: Vec<_> = (0..count).map(|first| value(&mut slab, first)).collect();
    assert!(values.iter().enumerate().all(|(first, value)| value[0] == first));
    for value in &values {
        assert_eq!((Arc::as_ptr(value).addr() - 2 * size_of::<usize>()) % LINE, 0);
    }
    let lines: HashSet<_> = values.iter().map(line_of).collect();
    let far = |&line: &usize| !(1..Slab::<Value>::STRIDE / LINE).any(|next| lines.contains(&(line + next)));
    assert_eq!((lines.len(), lines.iter().filter(|line| far(line)).count()), (count, count));
}

#[test]
fn a_new_chunk_has_half_as_many_slots_as_all_before_and_at_most_a_large_page() {
    let mut slab = Slab::new();
    slab.use_large_pages(|_, _| {});
    let mut slots = Vec::new();
    let _values: Vec<_> = (0..400)
        .map(|first| {
            let value = value(&mut slab, first);
            slots.push(slab.slots);
            value
        })
        .collect();
    slots.dedup();
    assert_eq!(slots[..8], [1, 2, 3, 4, 6, 9, 13, 19]);
    let most = Slab::<Value>::MOST;
    assert!(slots.windows(2).all(|pair| pair[1] - pair[0] == (pair[0] / 2).clamp(1, most)));
    assert!(
        slots[slots.len() - 1] - slots[slots.len() - 2] == most && most * size_of::<Value>() < LARGE_PAGE
    );
}

#[test]
fn a_chunk_without_large_pages_has_64_slots_at_most() {
    let mut slab = Slab::new();
    let mut slots = vec![0];
    let _values: Vec<_> = (0..2000)
        .map(|value| {
            let value = slab.reserve().unwrap().store(|| value);
            slots.push(slab.slots);
            value
        })
        .collect();
    assert_eq!(slots.windows(2).map(|pair| pair[1] - pair[0]).max(), Some(64));
}

#[test]
fn a_slot_is_used_again_after_its_value_was_dropped() {
    let mut slab = Slab::new();
    let values: Vec<_> = (0..9).map(|first| value(&mut slab, first)).collect();
    let slots = slab.slots;
    assert_eq!(slots, 9);
    let line = line_of(&values[5]);
    let kept = values[5].clone();
    drop(values);
    let others: Vec<_> = (0..8).map(|first| value(&mut slab, first)).collect();
    assert!(
        others.iter().all(|other| line_of(other) != line) && slab.slots == slots,
        "used while there is a reference"
    );
    drop(kept);
    assert_eq!((line_of(&value(&mut slab, 1)), slab.slots), (line, slots));
}

#[test]
fn a_reservation_that_is_not_used_is_free_again() {
    let mut slab = Slab::<Value>::new();
    drop(slab.reserve().unwrap());
    let _value = value(&mut slab, 1);
    assert_eq!(slab.slots, 1);
}

#[test]
fn empty_chunks_are_freed_and_others_stay() {
    let mut slab = Slab::new();
    let mut values: Vec<_> = (0..13).map(|first| value(&mut slab, first)).collect();
    slab.trim();
    assert_eq!(slab.slots, 13);
    // The last chunk has four.
    values.truncate(9);
    slab.trim();
    assert_eq!(slab.slots, 9);
    values.truncate(8);
    slab.trim();
    assert_eq!((slab.slots, values[7][0]), (9, 7));
    values.clear();
    slab.trim();
    assert!(slab.slots == 0 && slab.available.first().is_none() && slab.full.first().is_none());
    assert_eq!(value(&mut slab, 3)[0], 3);
}

#[test]
fn values_outlive_the_slab() {
    let mut slab = Slab::new();
    let values: Vec<_> = (0..9).map(|first| value(&mut slab, first)).collect();
    drop(slab);
    assert!(values.iter().enumerate().all(|(first, value)| value[0] == first));
}

#[test]
fn large_pages_are_requested_for_chunks_of_their_size_only() {
    static REQUESTED: AtomicUsize = AtomicUsize::new(0);
    fn request(memory: NonNull<u8>, size: usize) {
        assert_eq!((memory.as_ptr().addr() % LARGE_PAGE, size), (0, LARGE_PAGE));
        REQUESTED.fetch_add(1, Ordering::Relaxed);
    }
    let mut slab = Slab::new();
    slab.use_large_pages(request);
    let (most, mut values, mut before) = (Slab::<Value>::MOST, Vec::new(), 0);
    while REQUESTED.load(Ordering::Relaxed) == 0 {
        before = slab.slots;
        values.push(value(&mut slab, 7));
    }
    assert!(before >= 2 * most && before == values.len() - 1);
    assert_eq!(slab.slots, before + most);
    while values.len() < slab.slots {
        values.push(value(&mut slab, 7));
    }
    assert_eq!(
        (slab.slots, REQUESTED.load(Ordering::Relaxed)),
        (before + most, 1),
        "each slot is in the page"
    );
    assert!(values.iter().all(|value| value[0] == 7));
}

#[test]
fn values_may_be_dropped_on_any_thread_while_others_are_stored() {
    let mut slab = Slab::new();
    thread::scope(|scope| {
        for first in 0..if cfg!(miri) { 8 } else { 400 } {
            let value = value(&mut slab, first);
            scope.spawn(move || assert_eq!(value[0], first));
        }
    });
    slab.trim();
    assert_eq!(slab.slots, 0);
}

/// Returns the number of chunks of a list.
fn length(list: &mut ChunkList) -> usize {
    let mut kept = ChunkList::EMPTY;
    let length = core::iter::from_fn(|| list.pop()).map(|chunk| kept.push(chunk)).count();
    *list = kept;
    length
}

/// However many chunks there are, a reservation looks at a few of those that are full, each in turn.
#[test]
fn a_slot_that_was_freed_is_found_after_a_turn() {
    let mut slab = Slab::new();
    let mut values = Vec::new();
    let least = if cfg!(miri) { 130 } else { 1000 };
    while values.len() < least || slab.available.first().unwrap().has_free() {
        values.push(slab.reserve().unwrap().store(|| 0));
    }
    let slots = slab.slots;
    assert_eq!(slots, values.len());
    // One slot of each chunk.
    let (mut before, mut chunks) = (0, 0);
    while before < slots {
        drop(values.remove(before - chunks));
        before += (before / 2).clamp(1, MOST_WITHOUT);
        chunks += 1;
    }
    assert_eq!(length(&mut slab.available) + length(&mut slab.full), chunks);
    values.push(slab.reserve().unwrap().store(|| 0));
    assert!(length(&mut slab.available) <= LOOKED_AT + 1, "{chunks} chunks");
    while values.len() < slots {
        values.push(slab.reserve().unwrap().store(|| 0));
    }
    assert_eq!(slab.slots, slots, "each is used again");
}

/// In the driver, a use of a value after it was dropped reaches no memory.
#[test]
fn a_free_slot_has_no_address_of_memory() {
    let mut slab = Slab::new();
    let value = slab.reserve().unwrap().store(|| [1_u64; 5]);
    let place = Arc::as_ptr(&value);
    drop(value);
    // SAFETY: the slot is in a chunk of the slab, has no value and is used by no other thread.
    assert_eq!(unsafe { place.read() }, [0xDDDD_DDDD_DDDD_DDDD; 5]);
}

#[test]
fn formats_as_a_slab_and_a_slot() {
    let mut slab = Slab::<u8>::new();
    let reserved = slab.reserve().unwrap();
    assert_eq!(format!("{slab:?}"), "Slab { slots: 1, .. }");
    assert_eq!(format!("{reserved:?}"), format!("Reserved {{ slot: {:?}, .. }}", reserved.slot));
}
