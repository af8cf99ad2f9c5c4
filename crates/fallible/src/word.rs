// SPDX-License-Identifier: MIT OR Apache-2.0

//! The atomic word of protocols that are model checked.

use core::sync::atomic::{self, AtomicUsize, Ordering};

/// An atomic word, with the fences that go with it. Models implement it by words that loom schedules, so that they run the
/// code that ships.
pub trait Word {
    /// Returns a word with this value.
    fn new(value: usize) -> Self;
    /// See [`AtomicUsize::load`].
    fn load(&self, order: Ordering) -> usize;
    /// See [`AtomicUsize::store`].
    fn store(&self, value: usize, order: Ordering);
    /// See [`AtomicUsize::fetch_add`].
    fn fetch_add(&self, value: usize, order: Ordering) -> usize;
    /// See [`AtomicUsize::fetch_sub`].
    fn fetch_sub(&self, value: usize, order: Ordering) -> usize;
    /// See [`AtomicUsize::fetch_or`].
    fn fetch_or(&self, value: usize, order: Ordering) -> usize;
    /// See [`AtomicUsize::compare_exchange_weak`].
    ///
    /// # Errors
    /// The value found, if it is not `current`, or spuriously.
    fn compare_exchange_weak(
        &self,
        current: usize,
        new: usize,
        success: Ordering,
        failure: Ordering,
    ) -> Result<usize, usize>;
    /// See [`atomic::fence`].
    fn fence(order: Ordering);

    /// Replaces the value by the one that `next` returns for it, and returns the one before. Acquires, and releases.
    #[inline]
    fn update(&self, next: impl Fn(usize) -> usize) -> usize {
        let mut value = self.load(Ordering::Relaxed);
        loop {
            match self.compare_exchange_weak(value, next(value), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(before) => return before,
                Err(found) => value = found,
            }
        }
    }
}

impl Word for AtomicUsize {
    #[inline]
    fn new(value: usize) -> Self {
        Self::new(value)
    }

    #[inline]
    fn load(&self, order: Ordering) -> usize {
        self.load(order)
    }

    #[inline]
    fn store(&self, value: usize, order: Ordering) {
        self.store(value, order);
    }

    #[inline]
    fn fetch_add(&self, value: usize, order: Ordering) -> usize {
        self.fetch_add(value, order)
    }

    #[inline]
    fn fetch_sub(&self, value: usize, order: Ordering) -> usize {
        self.fetch_sub(value, order)
    }

    #[inline]
    fn fetch_or(&self, value: usize, order: Ordering) -> usize {
        self.fetch_or(value, order)
    }

    #[inline]
    fn compare_exchange_weak(
        &self,
        current: usize,
        new: usize,
        success: Ordering,
        failure: Ordering,
    ) -> Result<usize, usize> {
        self.compare_exchange_weak(current, new, success, failure)
    }

    #[inline]
    fn fence(order: Ordering) {
        atomic::fence(order);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Through the trait, as the protocols use it.
    fn operations<W: Word>() {
        let (relaxed, word) = (Ordering::Relaxed, W::new(5));
        word.store(4, relaxed);
        assert_eq!((word.fetch_add(3, relaxed), word.fetch_sub(1, relaxed)), (4, 7));
        assert_eq!((word.fetch_or(9, relaxed), word.load(relaxed)), (6, 15));
        assert_eq!(word.compare_exchange_weak(14, 20, relaxed, relaxed), Err(15));
        let exchanged = loop {
            // It may fail spuriously.
            if let Ok(before) = word.compare_exchange_weak(15, 20, relaxed, relaxed) {
                break before;
            }
        };
        assert_eq!((exchanged, word.load(relaxed)), (15, 20));
        assert_eq!((word.update(|value| value + 1), word.load(relaxed)), (20, 21));
    }

    #[test]
    fn a_word_is_an_atomic_integer() {
        operations::<AtomicUsize>();
    }
}
