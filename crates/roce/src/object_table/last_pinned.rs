// SPDX-License-Identifier: MIT OR Apache-2.0

//! The object that was used last, pinned for the next use: packets in a row mostly use the same one.

use core::cell::Cell;
use core::mem::ManuallyDrop;
use core::ops::Deref;

use lock_api::RawMutex;

use super::{ObjectTable, Pinned, Slot};

/// The object of a table that was used last. It is pinned as long as this exists, so that [`ObjectTable::remove`] of it waits:
/// for a batch of packets. IRQL == `DISPATCH_LEVEL` meanwhile.
pub(crate) struct LastPinned<'a, T, R: RawMutex> {
    table: &'a ObjectTable<T, R>,
    code: Cell<u32>,
    /// The slot, in which one pin belongs to this value; null for none. A pointer instead of a reference, so that a shorter
    /// lifetime may be taken for `'a`: it is a slot of `table`.
    slot: Cell<*const Slot<T>>,
}

/// An object in use. Its pin belongs to the [`LastPinned`] again when this is dropped.
pub(crate) struct Used<'a, T, R: RawMutex> {
    last: &'a LastPinned<'a, T, R>,
    code: u32,
    pinned: ManuallyDrop<Pinned<'a, T>>,
}

impl<'a, T, R: RawMutex> LastPinned<'a, T, R> {
    #[inline]
    pub(crate) const fn new(table: &'a ObjectTable<T, R>) -> Self {
        Self { table, code: Cell::new(0), slot: Cell::new(core::ptr::null()) }
    }

    /// Returns the object of `code`, which is the last one from the end of this use on.
    #[inline]
    pub(crate) fn get(&self, code: u32) -> Option<Used<'_, T, R>> {
        let pinned = match self.take() {
            Some(last) if self.code.get() == code => last,
            last => {
                drop(last);
                self.table.get(code)?
            }
        };
        Some(Used { last: self, code, pinned: ManuallyDrop::new(pinned) })
    }

    /// Unpins the object.
    #[inline]
    pub(crate) fn release(&self) {
        let slot = self.slot.replace(core::ptr::null());
        // SAFETY: null, or taken from a pinned reference to an object of `table`, which has its slots as long as it exists.
        if let Some(slot) = unsafe { slot.as_ref() } {
            slot.unpin();
        }
    }

    /// Returns the pin.
    #[inline]
    fn take(&self) -> Option<Pinned<'_, T>> {
        let slot = self.slot.replace(core::ptr::null());
        if slot.is_null() {
            return None;
        }
        // SAFETY: it was taken from a pinned reference to an object of `table`, which has its slots as long as it exists.
        let slot = unsafe { &*slot };
        // SAFETY: one pin of the slot belonged to this value, so that no thread writes the cell.
        let value = unsafe { &*slot.value.get() }.as_ref()?;
        Some(Pinned { slot, value })
    }
}

impl<T, R: RawMutex> Deref for Used<'_, T, R> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.pinned
    }
}

impl<T, R: RawMutex> Drop for Used<'_, T, R> {
    #[inline]
    fn drop(&mut self) {
        // Of a use within this one.
        self.last.release();
        self.last.code.set(self.code);
        self.last.slot.set(self.pinned.slot);
    }
}

impl<T, R: RawMutex> Drop for LastPinned<'_, T, R> {
    #[inline]
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number_prefix::NumberPrefix;
    use crate::random::Random;
    use crate::testing::Lock;
    use fallible::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn table() -> ObjectTable<u32, Lock> {
        ObjectTable::try_new(4, NumberPrefix::NONE, core::hint::spin_loop, &mut Random::new([7; 32])).unwrap()
    }

    fn insert(table: &ObjectTable<u32, Lock>, value: u32) -> u32 {
        let vacant = table.reserve(|_| true).unwrap();
        let code = vacant.code();
        vacant.fill(Arc::try_new(value).unwrap());
        code
    }

    /// Removes an object on another thread; returns whether that waits for `last`.
    fn removal_waits(table: &ObjectTable<u32, Lock>, code: u32, last: LastPinned<'_, u32, Lock>) -> bool {
        let gone = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                table.remove(code).unwrap();
                gone.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(std::time::Duration::from_millis(50));
            let waits = !gone.load(Ordering::SeqCst);
            drop(last);
            waits
        })
    }

    #[test]
    fn the_removal_of_an_object_waits_while_it_is_the_last_one() {
        let table = table();
        let (code, other) = (insert(&table, 1), insert(&table, 2));
        let last = LastPinned::new(&table);
        assert_eq!(last.get(code).map(|value| *value), Some(1));
        assert_eq!(last.get(code).map(|value| *value), Some(1));
        assert!(removal_waits(&table, code, last));
        let last = LastPinned::new(&table);
        assert_eq!(last.get(other).map(|value| *value), Some(2));
        assert_eq!(last.get(code).map(|value| *value), None, "removed");
        // It was not the last one: this returns, however slow the machine is.
        assert!(table.remove(other).is_some());
        drop(last);
    }

    #[test]
    fn a_released_object_and_one_before_another_can_be_removed() {
        let table = table();
        let (code, other) = (insert(&table, 1), insert(&table, 2));
        let last = LastPinned::new(&table);
        assert_eq!(last.get(code).map(|value| *value), Some(1));
        assert_eq!(last.get(other).map(|value| *value), Some(2));
        assert!(table.remove(code).is_some());
        last.release();
        assert!(table.remove(other).is_some());
        assert_eq!(last.get(other).map(|value| *value), None);
        assert_eq!(last.get(code).map(|value| *value), None);
    }

    #[test]
    fn an_object_can_be_used_within_a_use_of_another_one() {
        let table = table();
        let (code, other) = (insert(&table, 1), insert(&table, 2));
        let last = LastPinned::new(&table);
        for _ in 0..2 {
            let sum = last.get(code).map(|value| *value + *last.get(other).unwrap());
            assert_eq!(sum, Some(3));
            assert_eq!(last.get(code).map(|value| *value + *last.get(code).unwrap()), Some(2));
        }
        drop(last);
        assert!(table.remove(code).is_some() && table.remove(other).is_some());
    }
}
