// SPDX-License-Identifier: MIT OR Apache-2.0

//! Time as the engine knows it: what its driver tells it.

use core::fmt;
use core::time::Duration;

/// A moment, in nanoseconds since an epoch that the driver of the engine chooses (boot, say).
///
/// The engine has no clock. Moments given to one engine must not run backwards; when they do by a
/// little, because two processors read the clock, nothing worse happens than a timer that is late by
/// as much.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// `nanos` nanoseconds after the epoch.
    #[must_use]
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the epoch.
    #[inline]
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this moment; zero when `earlier` is later.
    #[inline]
    #[must_use]
    pub const fn duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The moment `duration` after this one, at most the last there is (584 years).
    #[must_use]
    #[inline]
    pub const fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

/// A duration in nanoseconds, at most `u64::MAX`.
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
    fn moments_saturate_at_both_ends() {
        let last = Instant::from_nanos(u64::MAX);
        assert_eq!(last + Duration::from_secs(1), last);
        assert_eq!(Instant::default() + Duration::MAX, last);
        assert_eq!(Instant::from_nanos(5).duration_since(Instant::from_nanos(7)), Duration::ZERO);
        assert_eq!(Instant::from_nanos(7).duration_since(Instant::from_nanos(5)), Duration::from_nanos(2));
    }
}
