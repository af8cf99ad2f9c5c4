// SPDX-License-Identifier: MIT OR Apache-2.0

//! The count of references to a value.
#![allow(unsafe_code, reason = "owns memory through raw pointers")]

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::word::Word;

/// A count of references. The thread that releases the last one may destroy the value: all uses by others happen before.
#[derive(Debug)]
pub struct RefCount<W = AtomicUsize>(W);

impl<W: Word> RefCount<W> {
    /// Returns a count of one reference.
    #[inline]
    #[must_use]
    pub fn one() -> Self {
        Self(W::new(1))
    }

    /// Counts a reference that is made of another one. The count cannot overflow: 2^64 references do not fit into memory.
    #[inline]
    pub fn acquire(&self) {
        // No ordering is needed to make a reference from another one.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a reference, unless the last one was released.
    #[inline]
    #[must_use]
    pub fn try_acquire(&self) -> bool {
        let mut count = self.0.load(Ordering::Relaxed);
        while count != 0 {
            let next = count.wrapping_add(1);
            match self.0.compare_exchange_weak(count, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(found) => count = found,
            }
        }
        false
    }

    /// Releases a reference. Returns `true` if it was the last one.
    #[inline]
    #[must_use]
    pub fn release(&self) -> bool {
        if self.0.fetch_sub(1, Ordering::Release) != 1 {
            return false;
        }
        // Other threads' uses, released by their decrements, happen before what follows.
        W::fence(Ordering::Acquire);
        true
    }

    /// Returns `true` if there is one reference, the caller's. Uses by the others happen before what follows.
    #[inline]
    #[must_use]
    pub fn is_one(&self) -> bool {
        self.0.load(Ordering::Acquire) == 1
    }

    /// Returns the number of references at some moment during the call.
    #[must_use]
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_reference_is_made_after_the_last_release() {
        let count = <RefCount>::one();
        assert!(count.try_acquire() && !count.is_one());
        assert_eq!((count.get(), count.release(), count.release()), (2, false, true));
        assert!(!count.try_acquire());
    }
}

#[cfg(test)]
mod models {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize as Counter;
    use loom::thread;

    ::models::loom_word!(LoomWord: crate::word::Word);

    /// A value whose last user destroys it.
    struct Counted {
        count: RefCount<LoomWord>,
        value: UnsafeCell<usize>,
        destroyed: Counter,
    }

    // SAFETY: loom checks accesses to the cell.
    unsafe impl Sync for Counted {}

    impl Counted {
        fn new() -> Arc<Self> {
            let value = UnsafeCell::new(7);
            Arc::new(Self { count: RefCount::one(), value, destroyed: Counter::new(0) })
        }

        fn read(&self) {
            // SAFETY: loom reports a concurrent write.
            self.value.with(|value| assert_eq!(unsafe { *value }, 7, "used after it was destroyed"));
        }

        fn release(&self) {
            if self.count.release() {
                // SAFETY: loom reports a concurrent access.
                self.value.with_mut(|value| unsafe { *value = 0 });
                self.destroyed.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    #[test]
    fn model_last_release_follows_all_uses() {
        loom::model(|| {
            let shared = Counted::new();
            let threads = [(); 2].map(|()| {
                shared.count.acquire();
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.read();
                    shared.release();
                })
            });
            shared.read();
            shared.release();
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(shared.destroyed.load(Ordering::SeqCst), 1);
        });
    }

    #[test]
    fn model_sole_owner_writes_after_all_uses() {
        loom::model(|| {
            let shared = Counted::new();
            shared.count.acquire();
            let other = {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.read();
                    shared.release();
                })
            };
            if shared.count.is_one() {
                // SAFETY: loom reports a concurrent access.
                shared.value.with_mut(|value| unsafe { *value = 7 });
            }
            other.join().unwrap();
            shared.release();
        });
    }

    /// A look-up in a table, which the last release clears before the value is destroyed.
    #[test]
    fn model_look_up_finds_no_value_that_is_being_destroyed() {
        loom::model(|| {
            let (shared, table) = (Counted::new(), Arc::new(loom::sync::Mutex::new(true)));
            let leave = |shared: &Counted, table: &loom::sync::Mutex<bool>| {
                if shared.count.release() {
                    *table.lock().unwrap() = false;
                    // SAFETY: loom reports a concurrent access.
                    shared.value.with_mut(|value| unsafe { *value = 0 });
                    shared.destroyed.fetch_add(1, Ordering::SeqCst);
                }
            };
            let finders = [(); 2].map(|()| {
                let (shared, table) = (shared.clone(), table.clone());
                thread::spawn(move || {
                    let entry = table.lock().unwrap();
                    let found = *entry && shared.count.try_acquire();
                    drop(entry);
                    if found {
                        shared.read();
                        leave(&shared, &table);
                    }
                })
            });
            leave(&shared, &table);
            for finder in finders {
                finder.join().unwrap();
            }
            assert_eq!(shared.destroyed.load(Ordering::SeqCst), 1);
        });
    }
}
