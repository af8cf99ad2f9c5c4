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
