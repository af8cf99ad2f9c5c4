// SPDX-License-Identifier: MIT OR Apache-2.0

//! Work on a list, several items at a time.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use anyhow::Result;

/// Calls `work` for each item with one of `workers`, each of which works on one item at a time. Items are begun in their order.
/// Returns the results in the order of the items.
///
/// # Errors
/// The first one of `work`. No item is begun after it.
pub fn each<W: Sync, T: Sync, R: Send>(
    workers: &[W],
    items: &[T],
    work: impl Fn(&W, &T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let is_failed = AtomicBool::new(false);
    let results = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for worker in workers {
            scope.spawn(|| {
                while !is_failed.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(number) else { return };
                    let result = work(worker, item);
                    is_failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    locked(&results).push((number, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Locks a mutex, also if a thread has panicked that had it.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use anyhow::ensure;

    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items_which_are_worked_on_at_the_same_time() {
        // The first two end together only.
        let both = Barrier::new(2);
        let doubled = each(&[(), ()], &[1, 2, 3], |(), item| {
            if *item < 3 {
                both.wait();
            }
            Ok(item * 2)
        });
        assert_eq!(doubled.unwrap(), [2, 4, 6]);
        assert_eq!(each(&[()], &[0; 0], |(), item| Ok(*item)).unwrap(), [0; 0]);
    }

    #[test]
    fn an_error_ends_the_work() {
        let begun = AtomicUsize::new(0);
        let outcome = each(&[()], &[1, 2, 3], |(), item| {
            begun.fetch_add(1, Ordering::Relaxed);
            ensure!(*item != 2, "two");
            Ok(())
        });
        assert_eq!(outcome.unwrap_err().to_string(), "two");
        assert_eq!(begun.into_inner(), 2);
    }
}
