// SPDX-License-Identifier: MIT OR Apache-2.0

//! Result of a step, and its line in the summary.

use std::time::Duration;

use anyhow::Result;

use super::{count::Count, part::Report, steps::Step};

/// Result of a step.
pub struct Done {
    pub step: &'static Step,
    pub count: Count,
    pub took: Duration,
    /// Processor time; zero if the step failed.
    pub processors: Duration,
    /// Why the step failed before it could count.
    pub error: Option<String>,
}

impl Done {
    pub fn new(step: &'static Step, took: Duration, result: Result<Report>) -> Self {
        let (report, error) = match result {
            Ok(report) => (report, None),
            Err(error) => {
                let report = Report { count: Count::FAILED, processors: Duration::ZERO };
                (report, Some(format!("{error:#}")))
            }
        };
        Self { step, count: report.count, took, processors: report.processors, error }
    }

    /// Returns the line of the summary.
    pub fn line(&self) -> String {
        let Self { step, count, took, processors, error } = self;
        let skipped = if count.skipped == 0 { String::new() } else { format!(", {} skipped", count.skipped) };
        let error = error.as_ref().map_or(String::new(), |error| format!(": {error}"));
        let (mark, took, processors) = (count.mark(), seconds(*took), seconds(*processors));
        format!(
            "{mark} {:<28} {:>4} passed {took:>8}, {processors:>8} of processors{skipped}{error}",
            step.name, count.passed
        )
    }
}

/// Writes a duration as seconds.
pub fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;
    use crate::test::steps::STEPS;

    #[test]
    fn line_of_a_step_has_its_count_and_the_reason_of_its_failure() {
        let step = &STEPS[0];
        let took = Duration::from_millis(1500);
        let report = Report { count: Count::WHOLE, processors: Duration::from_secs(2) };
        let line = Done::new(step, took, Ok(report)).line();
        assert_eq!(line, "ok   formatting                      1 passed    1.5 s,    2.0 s of processors");
        let line = Done::new(step, took, Err(anyhow!("no cargo"))).line();
        assert_eq!(
            line,
            "FAIL formatting                      0 passed    1.5 s,    0.0 s of processors: no cargo"
        );
    }
}
