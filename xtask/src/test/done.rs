// SPDX-License-Identifier: MIT OR Apache-2.0

//! Result of a step, and its line in the summary.

use std::time::Duration;

use super::{count::Count, steps::Step};

/// Result of a step.
pub struct Done {
    pub step: &'static Step,
    pub count: Count,
    pub took: Duration,
    /// Why the step failed before it could count.
    pub error: Option<String>,
}

impl Done {
    /// Returns the line of the summary.
    pub fn line(&self) -> String {
        let Self { step, count, took, error } = self;
        let skipped = if count.skipped == 0 { String::new() } else { format!(", {} skipped", count.skipped) };
        let error = error.as_ref().map_or(String::new(), |error| format!(": {error}"));
        let (mark, took) = (count.mark(), seconds(*took));
        format!("{mark} {:<28} {:>4} passed {took:>8}{skipped}{error}", step.name, count.passed)
    }
}

/// Writes a duration as seconds.
pub fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::steps::STEPS;

    #[test]
    fn line_of_a_step_has_its_count_and_the_reason_of_its_failure() {
        let step = &STEPS[0];
        let took = Duration::from_millis(1500);
        let line = Done { step, count: Count::WHOLE, took, error: None }.line();
        assert_eq!(line, "ok   formatting                      1 passed    1.5 s");
        let line = Done { step, count: Count::FAILED, took, error: Some("no cargo".into()) }.line();
        assert_eq!(line, "FAIL formatting                      0 passed    1.5 s: no cargo");
    }
}
