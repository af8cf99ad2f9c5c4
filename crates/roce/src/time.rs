// SPDX-License-Identifier: MIT OR Apache-2.0

//! Points in time, given to the engine by its driver.

use core::fmt;
use core::time::Duration;

/// A point in time, in nanoseconds since an epoch that the driver of the engine chooses, such as boot.
///
/// The engine has no clock. Times given to one engine should be monotonic; if clocks of two processors differ
/// slightly, a timer is late by the difference.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// Returns the time `nanos` nanoseconds after the epoch.
    #[must_use]
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the epoch.
    #[inline]
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the duration from `earlier` to `self`; zero if `earlier` is later.
    #[inline]
    #[must_use]
    pub const fn duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the nanoseconds from `earlier` to `self`; zero if `earlier` is later.
    #[inline]
    pub(crate) const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the time `nanos` nanoseconds after `self`. Saturates as [`Instant::after`] does.
    #[inline]
    pub(crate) const fn after_nanos(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }

    /// Returns the time `duration` after `self`. Saturates at the largest value (584 years).
    #[must_use]
    #[inline]
    pub const fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }

    /// Returns the time `duration` before `self`. Saturates at the epoch.
    #[inline]
    pub(crate) const fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }
}

/// Returns a duration in nanoseconds, at most `u64::MAX`.
#[inline]
pub(crate) const fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos() as u64)
}

impl core::ops::Add<Duration> for Instant {
    type Output = Self;

    /// Saturates, see [`Instant::after`].
    #[inline]
    fn add(self, duration: Duration) -> Self {
        self.after(duration)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let last = Instant::from_nanos(u64::MAX);
        assert_eq!(last + Duration::from_secs(1), last);
        assert_eq!(Instant::default() + Duration::MAX, last);
        assert_eq!(Instant::from_nanos(5).duration_since(Instant::from_nanos(7)), Duration::ZERO);
        assert_eq!(Instant::from_nanos(7).duration_since(Instant::from_nanos(5)), Duration::from_nanos(2));
    }
}
