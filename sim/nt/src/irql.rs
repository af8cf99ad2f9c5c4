// SPDX-License-Identifier: MIT OR Apache-2.0

//! Interrupt request levels of x64.

use std::fmt;

/// An interrupt request level, 0 to 15.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Irql(pub u8);

impl Irql {
    pub const PASSIVE_LEVEL: Self = Self(0);
    pub const APC_LEVEL: Self = Self(1);
    pub const DISPATCH_LEVEL: Self = Self(2);
    /// The level at which every simulated device interrupts. Windows assigns levels 3 to 11.
    pub const DEVICE_LEVEL: Self = Self(5);
    /// The highest device level: the upper bound that the documentation calls DIRQL.
    pub const MAX_DEVICE_LEVEL: Self = Self(11);
    pub const IPI_LEVEL: Self = Self(14);
    pub const HIGH_LEVEL: Self = Self(15);
}

impl fmt::Debug for Irql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Irql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::PASSIVE_LEVEL => f.write_str("PASSIVE_LEVEL"),
            Self::APC_LEVEL => f.write_str("APC_LEVEL"),
            Self::DISPATCH_LEVEL => f.write_str("DISPATCH_LEVEL"),
            Self::IPI_LEVEL => f.write_str("IPI_LEVEL"),
            Self::HIGH_LEVEL => f.write_str("HIGH_LEVEL"),
            Self(level) => write!(f, "IRQL {level}"),
        }
    }
}

/// The levels at which a function may be called: an inclusive range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    pub lowest: Irql,
    pub highest: Irql,
}

impl Limit {
    /// No limit.
    pub const ANY: Self = Self { lowest: Irql::PASSIVE_LEVEL, highest: Irql::HIGH_LEVEL };

    #[must_use]
    pub const fn at_most(highest: Irql) -> Self {
        Self { lowest: Irql::PASSIVE_LEVEL, highest }
    }

    #[must_use]
    pub const fn at_least(lowest: Irql) -> Self {
        Self { lowest, highest: Irql::HIGH_LEVEL }
    }

    #[must_use]
    pub const fn exactly(level: Irql) -> Self {
        Self { lowest: level, highest: level }
    }

    #[must_use]
    pub const fn below(level: Irql) -> Self {
        Self { lowest: Irql::PASSIVE_LEVEL, highest: Irql(level.0 - 1) }
    }

    #[must_use]
    pub const fn allows(self, level: Irql) -> bool {
        self.lowest.0 <= level.0 && level.0 <= self.highest.0
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ANY => f.write_str("any"),
            Self { lowest, highest } if lowest == highest => write!(f, "== {lowest}"),
            Self { lowest: Irql::PASSIVE_LEVEL, highest } => write!(f, "<= {highest}"),
            Self { lowest, highest: Irql::HIGH_LEVEL } => write!(f, ">= {lowest}"),
            Self { lowest, highest } => write!(f, "{lowest} to {highest}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_limits_are_named() {
        let text = [0, 1, 2, 5, 14, 15].map(|level| format!("{:?}", Irql(level)));
        assert_eq!(
            text,
            ["PASSIVE_LEVEL", "APC_LEVEL", "DISPATCH_LEVEL", "IRQL 5", "IPI_LEVEL", "HIGH_LEVEL"]
        );
        let between = Limit { lowest: Irql::APC_LEVEL, highest: Irql::DISPATCH_LEVEL };
        let limits = [
            Limit::ANY,
            Limit::exactly(Irql::APC_LEVEL),
            Limit::at_most(Irql::APC_LEVEL),
            Limit::at_least(Irql::DISPATCH_LEVEL),
            between,
        ];
        assert_eq!(
            limits.map(|limit| limit.to_string()),
            ["any", "== APC_LEVEL", "<= APC_LEVEL", ">= DISPATCH_LEVEL", "APC_LEVEL to DISPATCH_LEVEL"]
        );
    }
}
