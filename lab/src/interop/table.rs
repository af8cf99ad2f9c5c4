// SPDX-License-Identifier: MIT OR Apache-2.0

//! Results of test cases, and how they are printed.

use std::{fmt, path::PathBuf, time::Duration};

use super::cases::Case;

/// The result of one case.
#[derive(Debug)]
pub struct Row {
    pub title: String,
    /// The implementation on the host: "image" or "engine".
    pub host: &'static str,
    pub elapsed: Duration,
    /// Notes of a case that passed, or the error.
    pub result: Result<Vec<String>, String>,
    /// The capture file, if there is one.
    pub capture: Option<PathBuf>,
}

impl Row {
    /// Returns the result of `case`, without a capture.
    #[must_use]
    pub fn new(case: &Case, elapsed: Duration, result: Result<Vec<String>, String>) -> Self {
        Self { title: case.title(), host: case.host(), elapsed, result, capture: None }
    }

    /// Returns true if the case passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.result.is_ok()
    }
}

impl fmt::Display for Row {
    /// Writes one line; a failure adds the lines of its error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { title, host, elapsed, .. } = self;
        let mark = if self.passed() { "ok  " } else { "FAIL" };
        write!(f, "{mark} {title:<72} {host:<6} {:>5.1} s", elapsed.as_secs_f64())?;
        match &self.result {
            Ok(notes) if notes.is_empty() => Ok(()),
            Ok(notes) => write!(f, "  {}", notes.join("; ")),
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

/// Returns a table of all rows, the numbers of passed, failed and skipped cases, and details of the failures.
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
    let failed: Vec<&Row> = rows.iter().filter(|row| !row.passed()).collect();
    let passed = rows.len() - failed.len();
    let _ = writeln!(text, "\n{passed} passed, {} failed, {skipped} skipped", failed.len());
    for row in failed {
        let _ = writeln!(text, "\n{row}");
    }
    text
}
