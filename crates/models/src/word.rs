// SPDX-License-Identifier: MIT OR Apache-2.0

//! An atomic word that loom schedules.

/// Declares a newtype of loom's atomic word that implements the trait `fallible::Word`. A macro, because unit tests of
/// `fallible` need it for their own instance of the trait.
#[macro_export]
macro_rules! loom_word {
    ($Name:ident: $Trait:path) => {
        struct $Name($crate::loom::sync::atomic::AtomicUsize);

        impl $Trait for $Name {
            fn new(value: usize) -> Self {
                Self($crate::loom::sync::atomic::AtomicUsize::new(value))
            }

            fn load(&self, order: core::sync::atomic::Ordering) -> usize {
                self.0.load(order)
            }

            fn store(&self, value: usize, order: core::sync::atomic::Ordering) {
                self.0.store(value, order);
            }

            fn fetch_add(&self, value: usize, order: core::sync::atomic::Ordering) -> usize {
                self.0.fetch_add(value, order)
            }

            fn fetch_sub(&self, value: usize, order: core::sync::atomic::Ordering) -> usize {
                self.0.fetch_sub(value, order)
            }

            fn fetch_or(&self, value: usize, order: core::sync::atomic::Ordering) -> usize {
                self.0.fetch_or(value, order)
            }

            fn compare_exchange_weak(
                &self,
                current: usize,
                new: usize,
                success: core::sync::atomic::Ordering,
                failure: core::sync::atomic::Ordering,
            ) -> Result<usize, usize> {
                self.0.compare_exchange_weak(current, new, success, failure)
            }

            fn fence(order: core::sync::atomic::Ordering) {
                $crate::loom::sync::atomic::fence(order);
            }
        }
    };
}
