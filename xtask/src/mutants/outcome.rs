// SPDX-License-Identifier: MIT OR Apache-2.0

//! The outcomes of a mutant.

/// Outcome of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A test failed.
    Caught,
    /// A test did not end. Counts as caught.
    TimedOut,
    /// It does not compile.
    NotBuilt,
    /// No test executes it. Counts as survived.
    NotReached,
    /// All tests that execute it passed.
    Survived,
}

impl Outcome {
    pub const ALL: [Self; 5] =
        [Self::Caught, Self::TimedOut, Self::NotBuilt, Self::NotReached, Self::Survived];

    pub fn name(self) -> &'static str {
        match self {
            Self::Caught => "caught",
            Self::TimedOut => "timed out",
            Self::NotBuilt => "not built",
            Self::NotReached => "NOT REACHED",
            Self::Survived => "SURVIVED",
        }
    }

    /// Whether no test notices the mutant.
    pub fn survived(self) -> bool {
        matches!(self, Self::NotReached | Self::Survived)
    }
}
