// SPDX-License-Identifier: MIT OR Apache-2.0

//! Replacement of an object that keeps its code.

use core::sync::atomic::Ordering;

use lock_api::RawMutex;

use super::{LIVE, ObjectTable};
use fallible::Arc;

impl<T, R: RawMutex> ObjectTable<T, R> {
    /// Replaces the object of `code` by the one that `change` returns for it, once no thread uses it through the table; if `change`
    /// returns none, it stays. Meanwhile the code is not found. Waits as [`ObjectTable::remove`] does: the caller must not have the object
    /// pinned. Returns `None` if the object is not in the table, or no longer. IRQL <= `DISPATCH_LEVEL`.
    pub(crate) fn replace<E>(
        &self,
        code: u32,
        change: impl FnOnce(&T) -> Result<Arc<T>, E>,
    ) -> Option<Result<(), E>> {
        let (_, slot) = self.claim(code)?;
        // SAFETY: `claim` returned the slot, so this thread owns it: no other thread accesses the cell.
        let value = unsafe { &mut *slot.value.get() };
        let changed = value.as_deref().map(change);
        let (replaced, former) = match changed {
            Some(Ok(new)) => (Some(Ok(())), value.replace(new)),
            Some(Err(error)) => (Some(Err(error)), None),
            None => (None, None),
        };
        // Release: publishes the value.
        slot.state.fetch_or(LIVE, Ordering::AcqRel);
        // Not in the time in which the code is not found.
        drop(former);
        replaced
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number_prefix::NumberPrefix;
    use crate::random::Random;
    use crate::testing::Lock;
    use core::sync::atomic::AtomicBool;

    fn table_of(value: u32) -> (ObjectTable<u32, Lock>, u32) {
        let random = &mut Random::new([7; 32]);
        let table = ObjectTable::try_new(4, NumberPrefix::NONE, core::hint::spin_loop, random).unwrap();
        let vacant = table.reserve(|_| true).unwrap();
        let code = vacant.code();
        vacant.fill(Arc::try_new(value).unwrap());
        (table, code)
    }

    #[test]
    fn another_object_has_the_code_or_the_same_one_stays() {
        let (table, code) = table_of(5);
        assert_eq!(table.replace(code, |old| Arc::try_new(old + 1).map_err(drop)), Some(Ok(())));
        assert_eq!(table.get(code).map(|v| *v), Some(6));
        assert_eq!(table.replace(code, |old| Err(*old)), Some(Err(6)));
        assert_eq!(table.get(code).map(|v| *v), Some(6));
        assert_eq!(table.live(), 1);
        assert_eq!(table.remove(code).map(|v| *v), Some(6));
        assert_eq!(table.replace(code, |old| Err(*old)), None);
        assert_eq!(table.live(), 0);
    }

    #[test]
    fn replacement_waits_for_users_of_the_former_object() {
        let (table, code) = table_of(0);
        for round in 0..if cfg!(miri) { 20 } else { 1000 } {
            let gone = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    loop {
                        let Some(pinned) = table.get(code) else { continue };
                        if *pinned == round + 1 {
                            break;
                        }
                        assert!(!gone.load(Ordering::SeqCst), "used after replacement");
                    }
                });
                let changed = table.replace(code, |_| {
                    gone.store(true, Ordering::SeqCst);
                    Arc::try_new(round + 1).map_err(drop)
                });
                assert_eq!(changed, Some(Ok(())));
            });
        }
    }
}
