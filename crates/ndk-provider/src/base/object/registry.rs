// SPDX-License-Identifier: MIT OR Apache-2.0

//! Maps the engine's context numbers to objects.
//!
//! The engine knows an object by a 64-bit number. An event of the engine may be in flight on one processor
//! while another closes the object, so the number is not a pointer but a slot index and the slot's generation.
//! A look-up takes a reference, or finds that the object is closed.
//!
//! The registry also lists the objects whose callbacks became due during a consumer's call. The DPC makes those
//! callbacks ([`Registry::defer`], [`Registry::take_deferred`]).

use super::{Object, ObjectType, Ref};
use crate::base::status::NtResult;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use fallible::Arc;
use ndk_abi::ndk::NDK_OBJECT_TYPE;
use ndk_abi::nt::STATUS_INSUFFICIENT_RESOURCES;
use nt::SpinLock;

/// A registered object, with its type erased.
#[derive(Clone, Copy)]
struct Entry {
    kind: NDK_OBJECT_TYPE,
    /// Points to an `Object<T>` whose `T::TYPE` is `kind`.
    object: NonNull<c_void>,
}

// SAFETY: the address of an `Object`, which is `Send + Sync`; accessed only under the table's rules.
unsafe impl Send for Entry {}

/// The numbers in use.
pub struct Registry {
    table: SpinLock<Table>,
    /// Length of [`Table::deferred`], readable without the lock.
    deferred: AtomicUsize,
}

struct Table {
    slots: Vec<Slot>,
    /// Index of the first free slot.
    free: Option<u32>,
    /// Indices of slots whose objects have callbacks due; at most the number of slots.
    deferred: Vec<u32>,
}

struct Slot {
    /// Never 0, so that no number is 0: the engine uses 0 for connections without a context.
    generation: u32,
    entry: Option<Entry>,
    /// The next free slot, while this one is free.
    next_free: Option<u32>,
    /// Whether the slot is in [`Table::deferred`].
    deferred: bool,
}

/// A number reserved for one object, until this is dropped. A part of the object, so that it is dropped before the object is freed.
pub struct Ticket {
    registry: Arc<Registry>,
    number: u64,
}

/// Object types that the engine knows by number.
pub trait Registered: ObjectType {
    /// Returns the object's own ticket.
    fn ticket(&self) -> &Ticket;
}

impl Entry {
    fn new<T: Registered>(object: &Ref<T>) -> Self {
        Self { kind: T::TYPE, object: object.as_ptr().cast() }
    }

    /// Takes a reference to the object if it is of type `T` and still referenced.
    ///
    /// # Safety
    /// The entry is in the table, whose lock is held: an object leaves the table before it is freed.
    unsafe fn reference<T: Registered>(self) -> Option<Ref<T>> {
        let object: NonNull<Object<T>> = self.object.cast();
        // SAFETY: the type was checked; the object is not freed, by the caller's promise.
        if self.kind == T::TYPE { unsafe { Ref::try_reference(object) } } else { None }
    }
}

impl Registry {
    pub const fn new() -> Self {
        let table = Table { slots: Vec::new(), free: None, deferred: Vec::new() };
        Self { table: SpinLock::new(table), deferred: AtomicUsize::new(0) }
    }

    /// Reserves a number for an object about to be created.
    pub fn ticket(registry: &Arc<Self>) -> NtResult<Ticket> {
        let mut table = registry.table.lock();
        let index = table.allocate().ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
        let generation = table.slots.get(index as usize).map_or(0, |slot| slot.generation);
        drop(table);
        let number = u64::from(generation) << 32 | u64::from(index);
        Ok(Ticket { registry: Arc::clone(registry), number })
    }

    /// Returns a reference to the object with this number if it is of type `T` and still referenced.
    pub fn find<T: Registered>(&self, number: u64) -> Option<Ref<T>> {
        let table = self.table.lock();
        let slot = table.slots.get(number as u32 as usize)?;
        if u64::from(slot.generation) != number >> 32 {
            return None;
        }
        // SAFETY: the lock of the table is held, so the entry is not removed, and its object is not freed, meanwhile.
        unsafe { slot.entry?.reference() }
    }

    /// Records that the object has callbacks due. Each number is listed at most once.
    pub fn defer(&self, ticket: &Ticket) {
        let mut table = self.table.lock();
        let index = ticket.number as u32;
        if let Some(slot) = table.slots.get_mut(index as usize)
            && !core::mem::replace(&mut slot.deferred, true)
        {
            // Cannot fail: capacity was reserved with the slot.
            let _ = fallible::vec::push(&mut table.deferred, index);
            self.deferred.store(table.deferred.len(), Ordering::Release);
        }
    }

    /// Removes the next object with callbacks due from the list and returns it. Only objects of type `T` are ever deferred.
    pub fn take_deferred<T: Registered>(&self) -> Option<Ref<T>> {
        if !self.has_deferred() {
            return None;
        }
        let mut table = self.table.lock();
        loop {
            let index = table.deferred.pop()?;
            self.deferred.store(table.deferred.len(), Ordering::Release);
            let slot = table.slots.get_mut(index as usize)?;
            slot.deferred = false;
            // SAFETY: the lock of the table is held, so the entry is not removed, and its object is not freed, meanwhile.
            if let Some(object) = slot.entry.and_then(|entry| unsafe { entry.reference() }) {
                return Some(object);
            }
        }
    }

    /// Returns whether any object has callbacks due.
    pub fn has_deferred(&self) -> bool {
        self.deferred.load(Ordering::Acquire) != 0
    }

    /// Calls `each` with every object of type `T`, referenced and without the lock.
    pub fn for_each<T: Registered>(&self, each: impl FnMut(&T)) {
        self.for_each_in(0..usize::MAX, each);
    }

    /// Calls `each` as [`for_each`](Self::for_each) does, for objects in these slots only. Returns whether there are slots behind them.
    pub fn for_each_in<T: Registered>(&self, slots: Range<usize>, mut each: impl FnMut(&T)) -> bool {
        for index in slots {
            let found: Option<Ref<T>> = {
                let table = self.table.lock();
                let Some(slot) = table.slots.get(index) else { return false };
                // SAFETY: the lock of the table is held, so the entry is not removed, and its object is not freed, meanwhile.
                slot.entry.and_then(|entry| unsafe { entry.reference() })
            };
            if let Some(object) = found {
                each(&object);
            }
        }
        true
    }
}

impl Table {
    fn allocate(&mut self) -> Option<u32> {
        if let Some(index) = self.free {
            let slot = self.slots.get_mut(index as usize)?;
            self.free = slot.next_free.take();
            return Some(index);
        }
        let index = u32::try_from(self.slots.len()).ok()?;
        fallible::vec::reserve(&mut self.deferred, self.slots.len().checked_add(1)?).ok()?;
        let slot = Slot { generation: 1, entry: None, next_free: None, deferred: false };
        fallible::vec::push(&mut self.slots, slot).ok()?;
        Some(index)
    }
}

impl Ticket {
    /// Returns the number, which the engine is given as context.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Enters `object` under the number of its own ticket.
    pub fn enter<T: Registered>(object: &Ref<T>) {
        let ticket = object.ticket();
        let mut table = ticket.registry.table.lock();
        if let Some(slot) = table.slots.get_mut(ticket.number as u32 as usize) {
            slot.entry = Some(Entry::new(object));
        }
    }
}

impl Drop for Ticket {
    /// Removes the object from the registry. A look-up before that finds it without references.
    fn drop(&mut self) {
        let mut table = self.registry.table.lock();
        let index = self.number as u32;
        let free = table.free;
        if let Some(slot) = table.slots.get_mut(index as usize) {
            slot.entry = None;
            slot.generation = slot.generation.wrapping_add(1).max(1);
            slot.next_free = free;
            table.free = Some(index);
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::{Created, DispatchTable};
    use super::*;
    use core::sync::atomic::AtomicUsize;
    use ndk_abi::ndk::{NDK_PD, NDK_VERSION};

    /// An object that counts how often it is aborted.
    pub struct Thing {
        ticket: Ticket,
        pub aborted: AtomicUsize,
    }

    impl ObjectType for Thing {
        type Public = NDK_PD;
        const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypePd;
    }

    impl DispatchTable for Thing {
        type Table = ();
        const TABLE: &'static () = &();
    }

    impl Registered for Thing {
        fn ticket(&self) -> &Ticket {
            &self.ticket
        }
    }

    pub fn registry() -> Arc<Registry> {
        Arc::try_new(Registry::new()).ok().unwrap()
    }

    /// Returns an object of the registry.
    pub fn thing(registry: &Arc<Registry>) -> Created<Thing> {
        let ticket = Registry::ticket(registry).ok().unwrap();
        let thing = Thing { ticket, aborted: AtomicUsize::new(0) };
        let created = Created::try_new(NDK_VERSION { Major: 2, Minor: 1 }, thing).ok().unwrap();
        Ticket::enter(&created.reference());
        created
    }

    #[test]
    fn objects_with_callbacks_due_are_taken_once_and_the_list_says_whether_it_has_any() {
        let registry = registry();
        let things = [(); 3].map(|()| thing(&registry));
        // In a consumer's call, which may be made at `DISPATCH_LEVEL`: no memory is allocated.
        assert!(registry.table.lock().deferred.capacity() >= things.len());
        for thing in things.iter().chain(&things) {
            registry.defer(thing.reference().ticket());
        }
        for left in [true, true, false] {
            assert!(registry.has_deferred());
            assert!(registry.take_deferred::<Thing>().is_some());
            assert_eq!(registry.has_deferred(), left);
        }
        assert!(registry.take_deferred::<Thing>().is_none());
    }

    /// The memory of an object is freed with its last reference, whatever the registry is asked afterwards.
    #[test]
    fn object_that_is_gone_is_not_in_the_registry() {
        let registry = registry();
        let (first, second) = (thing(&registry), thing(&registry));
        let number = first.reference().ticket().number();
        registry.defer(first.reference().ticket());
        drop(first);
        assert!(registry.table.lock().slots[0].entry.is_none());
        assert!(registry.find::<Thing>(number).is_none());
        assert!(registry.take_deferred::<Thing>().is_none());
        let mut found = 0;
        registry.for_each(|_: &Thing| found += 1);
        assert_eq!(found, 1);
        drop(second);
    }

    /// An event of a connection without a context has context 0 and must not reach the first object.
    #[test]
    fn no_object_has_the_context_of_an_unclaimed_connection() {
        let registry = registry();
        let first = Registry::ticket(&registry).ok().unwrap();
        assert_ne!(first.number(), 0);
        drop(first);
        registry.table.lock().slots[0].generation = u32::MAX;
        drop(Registry::ticket(&registry).ok().unwrap());
        assert_ne!(Registry::ticket(&registry).ok().unwrap().number(), 0);
    }

    /// A late event of the previous user of a slot must not reach the next one.
    #[test]
    fn number_of_a_reused_slot_differs_from_the_previous_one() {
        let registry = registry();
        let first = Registry::ticket(&registry).ok().unwrap().number();
        let second = Registry::ticket(&registry).ok().unwrap().number();
        assert_eq!(first as u32, second as u32, "the slot is not reused");
        assert_ne!(first, second);
    }

    /// The table does not grow with the objects that there have been.
    #[test]
    fn slots_of_all_objects_that_are_gone_are_reused() {
        let registry = registry();
        let three = || [(); 3].map(|()| Registry::ticket(&registry).ok().unwrap());
        for _ in 0..3 {
            drop(three());
        }
        let tickets = three();
        assert_eq!(registry.table.lock().slots.len(), tickets.len());
    }
}
