// SPDX-License-Identifier: MIT OR Apache-2.0

//! Overflows of completion queues, whose queue pairs are put in error afterwards, without the queue's lock.

use core::sync::atomic::{AtomicU32, Ordering};

/// Overflows that were reported. Bit 0: the queue pairs of one may not be in error yet. The rest counts them, so that the end
/// of a scan of the queue pairs leaves the bit set if there was another one meanwhile.
#[derive(Debug, Default)]
pub(crate) struct CqFaults(AtomicU32);

impl CqFaults {
    /// Reports that a completion queue has overflowed. Before its consumer can be notified.
    #[cold]
    pub(crate) fn report(&self) {
        // A scan sees the fault if it sees the count.
        self.0.fetch_add(2, Ordering::AcqRel);
        self.0.fetch_or(1, Ordering::AcqRel);
    }

    /// Returns whether the queue pairs of an overflowed completion queue may not be in error yet.
    #[inline]
    pub(crate) fn are_pending(&self) -> bool {
        self.0.load(Ordering::Acquire) & 1 != 0
    }

    /// Calls `put_in_error`, which scans the queue pairs, if some may not be in error yet.
    pub(crate) fn handle(&self, put_in_error: impl FnOnce()) {
        let faults = self.0.load(Ordering::Acquire);
        if faults & 1 == 0 {
            return;
        }
        put_in_error();
        // After the scan: until then another processor scans, too, before it disconnects. If that one has finished, or there
        // was another overflow, the number is another one.
        let _ = self.0.compare_exchange(faults, faults & !1, Ordering::AcqRel, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_pending_until_the_scan_has_ended() {
        let faults = CqFaults::default();
        faults.handle(|| panic!("there is none"));
        faults.report();
        let mut scans = 0;
        faults.handle(|| {
            assert!(faults.are_pending(), "another processor has to scan, too");
            scans += 1;
        });
        assert!(!faults.are_pending());
        faults.handle(|| scans += 1);
        assert_eq!(scans, 1);
    }

    #[test]
    fn a_fault_during_a_scan_causes_another_one() {
        let faults = CqFaults::default();
        faults.report();
        faults.handle(|| faults.report());
        assert!(faults.are_pending());
        faults.handle(|| {});
        assert!(!faults.are_pending());
    }
}
