// SPDX-License-Identifier: MIT OR Apache-2.0

//! The report of a run: `target/verbs/report.json` and `report.md`.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use serde::Serialize;

use super::case::{Case, Faults};

/// A line of the report: a case in a place.
#[derive(Serialize)]
pub struct Line {
    pub case: &'static str,
    pub server: &'static str,
    pub client: &'static str,
    pub proves: &'static str,
    pub place: &'static str,
    pub faults: &'static str,
    /// Why it failed.
    pub fault: Option<String>,
    pub note: String,
    /// Parts of it that fail for a known reason.
    pub known: Vec<String>,
    /// Attempts before, which failed by the loss of the last ACK alone.
    pub repeated: Vec<String>,
    pub seconds: f64,
    /// Frames of the captures, all of which were decoded.
    pub frames: u64,
    /// Packets that were transmitted again.
    pub retransmissions: u64,
}

impl Line {
    /// Returns the line of a case before it runs.
    pub fn new(case: &Case, place: &'static str, faults: Faults) -> Self {
        Self {
            case: case.name,
            server: case.server,
            client: case.client,
            proves: case.proves,
            place,
            faults: faults.name(),
            fault: None,
            note: String::new(),
            known: Vec::new(),
            repeated: Vec::new(),
            seconds: 0.0,
            frames: 0,
            retransmissions: 0,
        }
    }

    /// Returns the name by which `--only` selects it.
    pub fn name(case: &Case, place: &str, faults: Faults) -> String {
        format!("{} ({place}, {})", case.name, faults.name())
    }
}

/// The results of a run.
#[derive(Default, Serialize)]
pub struct Report {
    pub libraries: String,
    pub lines: Vec<Line>,
    /// Cases that did not run, with reasons.
    pub skipped: Vec<String>,
}

impl Report {
    /// Writes both files into a folder, and returns their paths.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn write(&self, folder: &Path) -> Result<[PathBuf; 2]> {
        let [json, markdown] = ["report.json", "report.md"].map(|name| folder.join(name));
        fs::write(&json, serde_json::to_string_pretty(self)? + "\n")?;
        fs::write(&markdown, self.markdown())?;
        Ok([json, markdown])
    }

    /// Returns a table with a row for each case, and a list of what failed.
    pub fn markdown(&self) -> String {
        let mut text = format!("# Programs on the libraries\n\n{}: {}\n\n", self.libraries, self.summary());
        text += "| case | client | what it shows | passed | failed |\n| --- | --- | --- | --- | --- |\n";
        let mut rows = BTreeMap::<&str, Vec<&Line>>::new();
        let mut order = Vec::new();
        for line in &self.lines {
            let row = rows.entry(line.case).or_default();
            if row.is_empty() {
                order.push(line.case);
            }
            row.push(line);
        }
        for case in order {
            let lines = &rows[case];
            let list = |passed: bool| {
                let of = lines.iter().filter(|line| line.fault.is_none() == passed);
                of.map(|line| format!("{} {}", line.place, line.faults)).collect::<Vec<_>>().join(", ")
            };
            let first = lines[0];
            let note = if first.note.is_empty() { String::new() } else { format!(" ({})", first.note) };
            let _ = writeln!(
                text,
                "| {case} | `{}` | {}{note} | {} | {} |",
                first.client,
                first.proves,
                list(true),
                list(false)
            );
        }
        for line in &self.lines {
            let name = format!("{} ({}, {})", line.case, line.place, line.faults);
            let fault = line.fault.iter().map(|fault| format!("\n- {name}: {fault}"));
            let known = line.known.iter().map(|known| format!("\n- known: {name}: {known}"));
            let repeated = line.repeated.iter().map(|attempt| format!("\n- repeated: {name}: {attempt}"));
            text.extend(fault.chain(known).chain(repeated));
        }
        for skipped in &self.skipped {
            let _ = write!(text, "\n- skipped: {skipped}");
        }
        text.trim_end().to_owned() + "\n"
    }

    /// Returns the line that counts.
    pub fn summary(&self) -> String {
        let [passed, failed, skipped] = self.counts();
        let known = self.lines.iter().map(|line| line.known.len()).sum::<usize>();
        let repeated = self.lines.iter().map(|line| line.repeated.len()).sum::<usize>();
        let mut text = format!("{passed} passed, {failed} failed, {skipped} skipped");
        if known > 0 {
            let _ = write!(text, ", {known} known failures in them");
        }
        if repeated > 0 {
            let _ = write!(text, ", {repeated} attempts repeated");
        }
        text
    }

    /// Returns how many cases passed, failed and were skipped.
    pub fn counts(&self) -> [usize; 3] {
        let failed = self.lines.iter().filter(|line| line.fault.is_some()).count();
        [self.lines.len() - failed, failed, self.skipped.len()]
    }

    pub fn has_failed(&self) -> bool {
        self.lines.iter().any(|line| line.fault.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::cases::CASES, *};

    #[test]
    fn known_failures_and_repeated_attempts_are_counted_and_listed() {
        let line = || Line::new(&CASES[0], "IPv4", Faults::Loss);
        let lines = vec![
            Line { known: vec!["a test: a reason".to_owned()], ..line() },
            Line { fault: Some("a fault".to_owned()), repeated: vec!["seed 1".to_owned()], ..line() },
        ];
        let report = Report { lines, skipped: vec!["another".to_owned()], ..Report::default() };
        assert_eq!(
            report.summary(),
            "1 passed, 1 failed, 1 skipped, 1 known failures in them, 1 attempts repeated"
        );
        let name = "ibv_devices (IPv4, 1 % loss)";
        for expected in [
            format!("\n- {name}: a fault\n"),
            format!("\n- known: {name}: a test: a reason\n"),
            format!("\n- repeated: {name}: seed 1\n"),
            "\n- skipped: another\n".to_owned(),
        ] {
            assert!(report.markdown().contains(&expected), "{}", report.markdown());
        }
        assert!(report.has_failed());
    }
}
