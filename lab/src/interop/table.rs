// SPDX-License-Identifier: MIT OR Apache-2.0

//! Results of test cases, and how they are printed.

use std::{fmt, path::PathBuf, time::Duration};

use super::cases::Case;

/// Notes and remark of a case that passed.
#[derive(Debug, Default)]
pub struct Pass {
    /// Notes of the host.
    pub notes: Vec<String>,
    /// Set if the case did not pass as it should.
    pub remark: Option<Remark>,
}

impl From<Vec<String>> for Pass {
    fn from(notes: Vec<String>) -> Self {
        Self { notes, remark: None }
    }
}

/// A reason why a case that passed stands apart in the totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remark {
    /// The first attempt failed together with the guest, in this way.
    SecondAttempt(&'static str),
    /// The host did not receive the disconnect and ended with a timeout. Its completions were not counted.
    HostTimedOut,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SecondAttempt(failure) => {
                write!(f, "at the second attempt, because {failure} in the first one")
            }
            Self::HostTimedOut => f.write_str("the guest's disconnect was lost, and the host timed out"),
        }
    }
}

/// The result of one case.
#[derive(Debug)]
pub struct Row {
    pub title: String,
    /// The implementation on the host: "image" or "engine".
    pub host: &'static str,
    pub elapsed: Duration,
    /// Notes and remark of a case that passed, or the error.
    pub result: Result<Pass, String>,
    /// The capture file, if there is one.
    pub capture: Option<PathBuf>,
}

impl Row {
    /// Returns the result of `case`, without a capture.
    #[must_use]
    pub fn new(case: &Case, elapsed: Duration, result: Result<Pass, String>) -> Self {
        Self { title: case.title(), host: case.host(), elapsed, result, capture: None }
    }

    /// Returns true if the case passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.result.is_ok()
    }

    /// Returns the remark on a case that passed.
    #[must_use]
    pub fn remark(&self) -> Option<Remark> {
        self.result.as_ref().ok()?.remark
    }
}

impl fmt::Display for Row {
    /// Writes one line; a failure adds the lines of its error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { title, host, elapsed, .. } = self;
        let mark = if self.passed() { "ok  " } else { "FAIL" };
        write!(f, "{mark} {title:<72} {host:<6} {:>5.1} s", elapsed.as_secs_f64())?;
        match &self.result {
            Ok(Pass { notes, remark }) => {
                let remark = remark.iter().map(ToString::to_string);
                let notes: Vec<String> = remark.chain(notes.iter().cloned()).collect();
                if notes.is_empty() { Ok(()) } else { write!(f, "  {}", notes.join("; ")) }
            }
            Err(error) => {
                for line in error.lines() {
                    write!(f, "\n         {line}")?;
                }
                match &self.capture {
                    Some(capture) => write!(f, "\n         capture: {}", capture.display()),
                    None => Ok(()),
                }
            }
        }
    }
}

/// Returns a table of all rows, the numbers of passed, failed and skipped cases, and details of those that failed or passed with a
/// remark.
#[must_use]
pub fn summary(rows: &[Row], skipped: usize) -> String {
    use fmt::Write as _;

    let mut text =
        format!("{:<4} {:<72} {:<6} {:>7}\n", "", "case: client to server, address, RoCE MTU", "by", "time");
    for row in rows {
        let mark = if row.passed() { "ok" } else { "FAIL" };
        let elapsed = row.elapsed.as_secs_f64();
        // Writing to a string does not fail.
        let _ = writeln!(text, "{mark:<4} {:<72} {:<6} {elapsed:>5.1} s", row.title, row.host);
    }
    let failed = rows.iter().filter(|row| !row.passed()).count();
    let _ = writeln!(text, "\n{}, {failed} failed, {skipped} skipped", passed(rows));
    for row in rows.iter().filter(|row| !row.passed() || row.remark().is_some()) {
        let _ = writeln!(text, "\n{row}");
    }
    text
}

/// Returns the number of cases that passed, and how many of them with which remark.
fn passed(rows: &[Row]) -> String {
    let count = |is_counted: fn(Remark) -> bool| {
        rows.iter().filter_map(Row::remark).filter(|remark| is_counted(*remark)).count()
    };
    let remarks = [
        (count(|remark| matches!(remark, Remark::SecondAttempt(_))), "at the second attempt"),
        (count(|remark| remark == Remark::HostTimedOut), "whose host timed out"),
    ];
    let remarks: Vec<String> = remarks
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, remark)| format!("{count} {remark}"))
        .collect();
    let all = rows.iter().filter(|row| row.passed()).count();
    if remarks.is_empty() {
        format!("{all} passed")
    } else {
        format!("{all} passed ({})", remarks.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(result: Result<Pass, String>) -> Row {
        Row { title: "a case".into(), host: "image", elapsed: Duration::ZERO, result, capture: None }
    }

    fn with(remark: Remark) -> Row {
        row(Ok(Pass { remark: Some(remark), ..Pass::default() }))
    }

    #[test]
    fn a_case_that_passed_with_a_remark_stands_apart_in_the_totals_and_is_explained() {
        let again = Remark::SecondAttempt("the guest's kernel failed");
        let rows = [row(Ok(Pass::default())), with(again), with(Remark::HostTimedOut), row(Err("no".into()))];
        let text = summary(&rows, 2);
        let totals = "3 passed (1 at the second attempt, 1 whose host timed out), 1 failed, 2 skipped";
        assert!(text.lines().any(|line| line == totals), "{text}");
        assert!(text.contains("because the guest's kernel failed in the first one"), "{text}");
    }

    #[test]
    fn totals_without_a_remark_name_none() {
        let rows = [row(Ok(vec!["a note".to_owned()].into()))];
        assert!(summary(&rows, 0).ends_with("\n1 passed, 0 failed, 0 skipped\n"));
        assert!(rows[0].to_string().ends_with("a note"));
    }
}
