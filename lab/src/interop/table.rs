// SPDX-License-Identifier: MIT OR Apache-2.0

//! What came of the cases.

use std::{fmt, path::PathBuf, time::Duration};

use super::cases::Case;

/// One case, tried.
#[derive(Debug)]
pub struct Row {
    pub title: String,
    /// Who was at the host's end: "image" or "engine".
    pub host: &'static str,
    pub took: Duration,
    /// What was seen, or what went wrong.
    pub result: Result<Vec<String>, String>,
    /// Kept, if it is.
    pub capture: Option<PathBuf>,
}

impl Row {
    #[must_use]
    pub fn new(case: &Case, took: Duration, result: Result<Vec<String>, String>) -> Self {
        Self { title: case.title(), host: case.host(), took, result, capture: None }
    }

    #[must_use]
    pub fn passed(&self) -> bool {
        self.result.is_ok()
    }
}

impl fmt::Display for Row {
    /// One line; of a failure, more.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { title, host, took, .. } = self;
        let mark = if self.passed() { "ok  " } else { "FAIL" };
        write!(f, "{mark} {title:<72} {host:<6} {:>5.1} s", took.as_secs_f64())?;
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

/// All rows in short, and how many passed.
#[must_use]
pub fn summary(rows: &[Row]) -> String {
    use fmt::Write as _;

    let mut text =
        format!("{:<4} {:<72} {:<6} {:>7}\n", "", "case: client to server, address, RoCE MTU", "by", "time");
    for row in rows {
        let mark = if row.passed() { "ok" } else { "FAIL" };
        let took = row.took.as_secs_f64();
        // Writing to a string does not fail.
        let _ = writeln!(text, "{mark:<4} {:<72} {:<6} {took:>5.1} s", row.title, row.host);
    }
    let failed: Vec<&Row> = rows.iter().filter(|row| !row.passed()).collect();
    let passed = rows.len() - failed.len();
    let _ = writeln!(text, "\n{passed} passed, {} failed", failed.len());
    for row in failed {
        let _ = writeln!(text, "\n{row}");
    }
    text
}
