// SPDX-License-Identifier: MIT OR Apache-2.0

//! Objects by the contexts in which the engine names them, and queue pair numbers of completions.

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::limits;

/// Objects of one type. They are kept alive by their owners only.
#[derive(Debug)]
pub struct Registry<T: ?Sized>(Mutex<Entries<T>>);

#[derive(Debug)]
struct Entries<T: ?Sized> {
    objects: HashMap<u64, Weak<T>>,
    next: u64,
}

impl<T: ?Sized> Registry<T> {
    /// Returns a context that no object had before.
    pub fn context(&self) -> u64 {
        let mut entries = self.0.lock();
        entries.next += 1;
        entries.next
    }

    /// Adds an object under its context.
    pub fn add(&self, context: u64, object: &Arc<T>) {
        self.0.lock().objects.insert(context, Arc::downgrade(object));
    }

    /// Returns the object of a context, unless it is gone.
    pub fn get(&self, context: u64) -> Option<Arc<T>> {
        self.0.lock().objects.get(&context)?.upgrade()
    }

    /// Removes the object of a context.
    pub fn remove(&self, context: u64) {
        self.0.lock().objects.remove(&context);
    }
}

impl<T: ?Sized> Default for Registry<T> {
    fn default() -> Self {
        Self(Mutex::new(Entries { objects: HashMap::new(), next: 0 }))
    }
}

/// The numbers of queue pairs by their contexts, without a lock: each completion needs one.
///
/// A context is a slot and a generation. Slots are reused oldest first, each time in another generation, so that a completion of a
/// destroyed queue pair is recognized.
#[derive(Debug)]
pub struct QpNumbers {
    /// Generation in the upper half, queue pair number in the lower one.
    slots: Box<[AtomicU64]>,
    free: Mutex<VecDeque<u32>>,
}

impl QpNumbers {
    const NONE: u64 = 0xFFFF_FFFF;

    pub fn new() -> Self {
        let slots = (0..limits::QUEUE_PAIRS).map(|_| AtomicU64::new(Self::NONE)).collect();
        Self { slots, free: Mutex::new((0..limits::QUEUE_PAIRS).collect()) }
    }

    /// Reserves a slot. Returns its context; `None` if all are in use.
    pub fn reserve(&self) -> Option<u64> {
        let slot = self.free.lock().pop_front()?;
        let generation = (self.slots[slot as usize].load(Ordering::Relaxed) >> 32) + 1;
        self.slots[slot as usize].store(generation << 32 | Self::NONE, Ordering::Release);
        Some(generation << 32 | u64::from(slot))
    }

    /// Sets the number of the queue pair that has this context.
    pub fn set(&self, context: u64, qpn: u32) {
        if let Some(slot) = self.slots.get(context as u32 as usize) {
            slot.store(context >> 32 << 32 | u64::from(qpn), Ordering::Release);
        }
    }

    /// Returns the number of the queue pair that has this context, unless it was destroyed.
    pub fn get(&self, context: u64) -> Option<u32> {
        let value = self.slots.get(context as u32 as usize)?.load(Ordering::Acquire);
        (value >> 32 == context >> 32 && value as u32 != u32::MAX).then_some(value as u32)
    }

    /// Frees the slot of a context.
    pub fn release(&self, context: u64) {
        self.set(context, u32::MAX);
        self.free.lock().push_back(context as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_names_one_queue_pair_only() {
        let numbers = QpNumbers::new();
        let first = numbers.reserve().unwrap();
        assert_eq!(numbers.get(first), None);
        numbers.set(first, 0x1234);
        assert_eq!(numbers.get(first), Some(0x1234));
        numbers.release(first);
        assert_eq!(numbers.get(first), None);
        let all: Vec<_> = core::iter::from_fn(|| numbers.reserve()).collect();
        assert_eq!(all.len(), limits::QUEUE_PAIRS as usize);
        assert!(!all.contains(&first));
        let again = *all.last().unwrap();
        assert_eq!((again as u32, numbers.get(first)), (first as u32, None));
    }

    #[test]
    fn a_registry_does_not_keep_objects() {
        let registry = Registry::default();
        let (a, b) = (registry.context(), registry.context());
        assert_ne!(a, b);
        let object = Arc::new(5);
        registry.add(a, &object);
        assert_eq!((registry.get(a).as_deref(), registry.get(b)), (Some(&5), None));
        drop(object);
        assert_eq!(registry.get(a), None);
    }
}
