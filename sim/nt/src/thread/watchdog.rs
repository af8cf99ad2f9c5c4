// SPDX-License-Identifier: MIT OR Apache-2.0

//! The DPC watchdog of one thread: the ends of the times allowed for one DPC, and at `DISPATCH_LEVEL` and above.

use std::{cell::Cell, time::Duration};

use crate::host::WatchdogLimits;

/// When the watchdog bites, in the time of the clock; `NEVER` for never.
#[derive(Debug)]
pub(super) struct Watchdog {
    /// The earlier of the two below.
    earliest: Cell<u64>,
    /// End of the time allowed for the running DPC.
    routine: Cell<u64>,
    /// End of the time allowed at `DISPATCH_LEVEL` and above.
    level: Cell<u64>,
}

const NEVER: u64 = u64::MAX;

/// Time that the watchdog leaves to the running code, each `None` when it is not limited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remaining {
    pub routine: Option<Duration>,
    pub level: Option<Duration>,
}

fn end(now: u64, allowed: Duration) -> u64 {
    now.saturating_add(u64::try_from(allowed.as_nanos()).unwrap_or(NEVER))
}

impl Default for Watchdog {
    fn default() -> Self {
        Self { earliest: Cell::new(NEVER), routine: Cell::new(NEVER), level: Cell::new(NEVER) }
    }
}

impl Watchdog {
    /// Begins the time at `DISPATCH_LEVEL` and above, unless it has begun.
    #[inline]
    pub fn begin_level(&self, limits: &WatchdogLimits, now: u64) {
        if self.level.get() == NEVER {
            self.level.set(end(now, limits.cumulative));
            self.earliest.set(self.level.get());
        }
    }

    /// Begins the time of one DPC or interrupt service routine.
    #[inline]
    pub fn begin_routine(&self, limits: &WatchdogLimits, now: u64) {
        self.routine.set(end(now, limits.routine));
        self.earliest.set(self.routine.get().min(self.level.get()));
    }

    /// Ends the time of one DPC or interrupt service routine.
    #[inline]
    pub fn end_routine(&self) {
        self.routine.set(NEVER);
        self.earliest.set(self.level.get());
    }

    /// Ends the time at `DISPATCH_LEVEL`.
    #[inline]
    pub fn end_level(&self) {
        self.level.set(NEVER);
        self.end_routine();
    }

    /// Returns whether a time allowed is over.
    #[inline]
    pub fn is_over(&self, now: u64) -> bool {
        now > self.earliest.get()
    }

    pub fn remaining(&self, now: u64) -> Remaining {
        let left = |end: u64| (end != NEVER).then(|| Duration::from_nanos(end.saturating_sub(now)));
        Remaining { routine: left(self.routine.get()), level: left(self.level.get()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: WatchdogLimits =
        WatchdogLimits { routine: Duration::from_nanos(10), cumulative: Duration::from_nanos(100) };

    #[test]
    fn each_time_ends_by_itself() {
        let watchdog = Watchdog::default();
        assert!(!watchdog.is_over(NEVER));
        watchdog.begin_level(&LIMITS, 0);
        watchdog.begin_routine(&LIMITS, 50);
        assert_eq!((watchdog.is_over(60), watchdog.is_over(61)), (false, true));
        let left = |nanos| Some(Duration::from_nanos(nanos));
        assert_eq!(watchdog.remaining(55), Remaining { routine: left(5), level: left(45) });
        watchdog.end_routine();
        assert_eq!((watchdog.is_over(100), watchdog.is_over(101)), (false, true));
        // It began before.
        watchdog.begin_level(&LIMITS, 70);
        assert!(watchdog.is_over(101));
        watchdog.end_level();
        assert!(!watchdog.is_over(101));
        assert_eq!(watchdog.remaining(101), Remaining { routine: None, level: None });
    }
}
