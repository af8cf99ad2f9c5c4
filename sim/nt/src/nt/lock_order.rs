// SPDX-License-Identifier: MIT OR Apache-2.0

//! The order in which spin locks are acquired.

use std::{collections::BTreeSet, ops::Range};

use parking_lot::Mutex;

/// The lock order of a host: the locks that were acquired while each lock was held.
#[derive(Default)]
pub struct Order(Mutex<Pairs>);

/// Pairs of locks, in both directions, so that those of freed memory are found without reading all others.
#[derive(Default)]
struct Pairs {
    /// The outer lock, and one acquired while it was held.
    inside: BTreeSet<(usize, usize)>,
    /// The same pairs, the inner lock first.
    outside: BTreeSet<(usize, usize)>,
}

impl Order {
    /// Records that `inner` is acquired while `outer` is held; returns `false` when the opposite was recorded before,
    /// directly or through other locks.
    pub(super) fn note(&self, outer: usize, inner: usize) -> bool {
        let mut pairs = self.0.lock();
        if pairs.inside.contains(&(outer, inner)) {
            return true;
        }
        let mut seen = BTreeSet::new();
        let mut next = vec![inner];
        while let Some(lock) = next.pop() {
            if lock == outer {
                return false;
            }
            if seen.insert(lock) {
                next.extend(pairs.inside.range((lock, 0)..=(lock, usize::MAX)).map(|&(_, inner)| inner));
            }
        }
        pairs.inside.insert((outer, inner));
        pairs.outside.insert((inner, outer));
        true
    }

    /// Removes the locks in memory that is freed.
    pub fn forget(&self, memory: Range<usize>) {
        let mut pairs = self.0.lock();
        let Pairs { inside, outside } = &mut *pairs;
        forget(&memory, inside, outside);
        forget(&memory, outside, inside);
    }
}

/// Removes the pairs whose first lock is in `memory` from `pairs`, and from `reversed`, which has them the other way round.
fn forget(
    memory: &Range<usize>,
    pairs: &mut BTreeSet<(usize, usize)>,
    reversed: &mut BTreeSet<(usize, usize)>,
) {
    let gone: Vec<_> = pairs.range((memory.start, 0)..(memory.end, 0)).copied().collect();
    for (first, second) in gone {
        pairs.remove(&(first, second));
        reversed.remove(&(second, first));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_a_lock_ends_with_its_memory() {
        let order = Order::default();
        assert!(order.note(1, 20) && order.note(20, 3) && order.note(5, 6));
        assert!(!order.note(3, 1) && !order.note(20, 1));
        order.forget(30..40);
        assert!(!order.note(20, 1) && !order.note(3, 20));
        order.forget(20..21);
        assert!(order.note(20, 1) && order.note(3, 20));
        assert!(!order.note(6, 5), "of other locks");
    }

    #[test]
    fn no_half_of_a_pair_is_left_of_freed_memory() {
        let order = Order::default();
        assert!(order.note(10, 20) && order.note(20, 30) && order.note(30, 40));
        order.forget(20..31);
        let pairs = order.0.lock();
        assert!(pairs.inside.is_empty() && pairs.outside.is_empty());
    }
}
