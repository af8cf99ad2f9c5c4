// SPDX-License-Identifier: MIT OR Apache-2.0

//! Why connections ended: counts and a trace.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;

use smb_direct::{Reason, ReasonCounts};

/// Ends of connections that the trace holds.
const TRACE: usize = 64;
/// Bits of an entry of the trace: the reason's index plus 1, then the side, then the time in microseconds.
const REASON_BITS: u32 = 7;
const SIDE_BIT: u64 = 1 << REASON_BITS;
const TIME_SHIFT: u32 = REASON_BITS + 1;
const _: () = assert!(Reason::ALL.len() < SIDE_BIT as usize);

/// Why the connections of an endpoint ended: counts by reason, and the last 64 ends. All methods are for any thread, at any IRQL.
#[derive(Debug)]
pub struct Endings {
    counts: ReasonCounts,
    /// 0: no entry yet.
    trace: [AtomicU64; TRACE],
    next: AtomicUsize,
}

/// The end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ending {
    /// Time by the clock of the system, in whole microseconds.
    pub at: Duration,
    pub side: Side,
    pub reason: Reason,
}

/// A side of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The one that connected.
    Active,
    /// The one that accepted.
    Passive,
}

impl Endings {
    /// Returns counts of zero and an empty trace.
    #[must_use]
    pub const fn new() -> Self {
        let trace = [const { AtomicU64::new(0) }; TRACE];
        Self { counts: ReasonCounts::new(), trace, next: AtomicUsize::new(0) }
    }

    /// Counts and traces the end of a connection.
    pub fn record(&self, ending: Ending) {
        let Ending { at, side, reason } = ending;
        self.counts.count(reason);
        let side = if side == Side::Active { SIDE_BIT } else { 0 };
        // Enough for half a million years.
        let time = (at.as_micros() as u64) << TIME_SHIFT;
        let at = self.next.fetch_add(1, Ordering::Relaxed) % TRACE;
        if let Some(entry) = self.trace.get(at) {
            entry.store(time | side | (reason as u64 + 1), Ordering::Relaxed);
        }
    }

    /// Returns the number of connections that ended for `reason`.
    #[must_use]
    pub fn count(&self, reason: Reason) -> u64 {
        self.counts.get(reason)
    }

    /// Returns the last ends, the oldest first. Those of connections that end meanwhile may be missing.
    pub fn trace(&self) -> impl Iterator<Item = Ending> {
        let next = self.next.load(Ordering::Relaxed);
        (0..TRACE).filter_map(move |back| {
            let entry = self.trace.get(next.wrapping_add(back) % TRACE)?.load(Ordering::Relaxed);
            let reason = (entry & (SIDE_BIT - 1)).checked_sub(1)? as usize;
            Some(Ending {
                at: Duration::from_micros(entry >> TIME_SHIFT),
                side: if entry & SIDE_BIT == 0 { Side::Passive } else { Side::Active },
                reason: *Reason::ALL.get(reason)?,
            })
        })
    }
}

impl Default for Endings {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn trace_has_the_last_ends_in_order() {
        let endings = Endings::new();
        assert_eq!(endings.trace().count(), 0);
        let ending = |at: usize| Ending {
            at: Duration::from_micros(at as u64),
            side: if at.is_multiple_of(3) { Side::Active } else { Side::Passive },
            reason: Reason::ALL[at % Reason::ALL.len()],
        };
        for count in [1, 2, TRACE, TRACE + 1, 3 * TRACE + 7] {
            let endings = Endings::new();
            (0..count).for_each(|at| endings.record(ending(at)));
            let wanted: Vec<Ending> = (count.saturating_sub(TRACE)..count).map(ending).collect();
            assert_eq!(endings.trace().collect::<Vec<_>>(), wanted);
            assert_eq!(endings.count(Reason::ALL[0]), count.div_ceil(Reason::ALL.len()) as u64);
        }
    }
}
