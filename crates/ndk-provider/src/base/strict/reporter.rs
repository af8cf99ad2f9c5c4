// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reports mistakes, a limited number of each in a period.

use super::mistake::{Mistake, MistakeReport};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use nt::Owner;
use nt::irql;

/// Writes a report to the system log. IRQL <= `DISPATCH_LEVEL`.
pub type Report = fn(Owner, &MistakeReport);

/// Reports of one mistake in one period; more are counted only.
const REPORTS: u32 = 16;
/// In nanoseconds.
const PERIOD: u64 = 10_000_000_000;

/// Reports the mistakes of the consumers of one provider.
pub struct Reporter {
    report: Report,
    owner: Owner,
    period: AtomicU64,
    counts: [AtomicU32; Mistake::ALL.len()],
    suppressed: AtomicU32,
    /// A report made above `DISPATCH_LEVEL`, where it cannot be written; 0 if there is none.
    pending: AtomicU64,
}

impl Reporter {
    pub const fn new(report: Report, owner: Owner) -> Self {
        Self {
            report,
            owner,
            period: AtomicU64::new(0),
            counts: [const { AtomicU32::new(0) }; Mistake::ALL.len()],
            suppressed: AtomicU32::new(0),
            pending: AtomicU64::new(0),
        }
    }

    /// Reports a mistake. Any IRQL; above `DISPATCH_LEVEL` the last report is written by [`Reporter::write_pending`].
    pub fn report(&self, report: &MistakeReport) {
        if irql::current() > irql::DISPATCH_LEVEL {
            self.pending.store(pack(report), Ordering::Release);
            return;
        }
        self.begin_period(nt::time::now());
        let count = Mistake::ALL.iter().zip(&self.counts).find(|(mistake, _)| **mistake == report.mistake);
        if count.is_none_or(|(_, count)| count.fetch_add(1, Ordering::Relaxed) < REPORTS) {
            (self.report)(self.owner, report);
        } else {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes a report that was made above `DISPATCH_LEVEL`. IRQL <= `DISPATCH_LEVEL`.
    pub fn write_pending(&self) {
        if self.pending.load(Ordering::Relaxed) != 0
            && let Some(report) = unpack(self.pending.swap(0, Ordering::AcqRel))
        {
            self.report(&report);
        }
    }

    /// Counts anew if a period has ended.
    fn begin_period(&self, now: u64) {
        let period = now / PERIOD;
        if self.period.swap(period, Ordering::Relaxed) == period {
            return;
        }
        self.counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        let detail = self.suppressed.swap(0, Ordering::Relaxed);
        if detail != 0 {
            let report = MistakeReport { mistake: Mistake::Suppressed, object_type: 0, object: 0, detail };
            (self.report)(self.owner, &report);
        }
    }
}

fn pack(report: &MistakeReport) -> u64 {
    let high = [report.mistake as u8, report.object_type, report.detail as u8, 0];
    u64::from(u32::from_be_bytes(high)) << 32 | u64::from(report.object)
}

fn unpack(packed: u64) -> Option<MistakeReport> {
    let [number, object_type, detail, _] = ((packed >> 32) as u32).to_be_bytes();
    let mistake = Mistake::from_number(number)?;
    Some(MistakeReport { mistake, object_type, object: packed as u32, detail: detail.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr::null_mut;
    use std::cell::RefCell;
    use std::vec::Vec;

    std::thread_local! {
        static REPORTED: RefCell<Vec<(Mistake, u32)>> = const { RefCell::new(Vec::new()) };
    }

    fn note(_owner: Owner, report: &MistakeReport) {
        REPORTED.with_borrow_mut(|reported| reported.push((report.mistake, report.detail)));
    }

    fn of(mistake: Mistake) -> MistakeReport {
        MistakeReport { mistake, object_type: 3, object: 0x89ab_cdef, detail: 7 }
    }

    #[test]
    fn reports_of_one_mistake_are_limited_in_each_period_and_those_of_others_are_not_lost() {
        let reporter = Reporter::new(note, Owner::new(null_mut()));
        for _ in 0..REPORTS + 5 {
            reporter.report(&of(Mistake::QueueFull));
        }
        reporter.report(&of(Mistake::TooLong));
        let written = REPORTED.take();
        assert_eq!(written.len() as u32, REPORTS + 1);
        assert_eq!(written.last(), Some(&(Mistake::TooLong, 7)));
        // The last report was in the period before this one.
        reporter.period.fetch_sub(1, Ordering::Relaxed);
        reporter.report(&of(Mistake::QueueFull));
        assert_eq!(REPORTED.take(), [(Mistake::Suppressed, 5), (Mistake::QueueFull, 7)]);
    }

    #[test]
    fn a_packed_report_is_the_same_report() {
        for mistake in Mistake::ALL {
            assert_eq!(unpack(pack(&of(*mistake))), Some(of(*mistake)));
        }
        assert_eq!(unpack(0), None);
    }
}
