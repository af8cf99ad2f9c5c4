// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask verbs --test`: runs unmodified programs of Debian with the libraries.
//!
//! | file | what is there |
//! | --- | --- |
//! | `cases.rs` | the table of cases |
//! | `place.rs` | network namespaces in which the programs run |
//! | `process.rs` | programs that are started, awaited and ended |
//! | `run.rs` | a case in a place, and what its result is |
//! | `tests_of_python.rs` | results of rdma-core's own tests |
//! | `captures.rs`, `icrc.py` | captures, decoded by tshark, with ICRCs computed independently |
//! | `report.rs` | the report |

mod captures;
mod cases;
mod place;
mod process;
mod report;
mod run;
mod tests_of_python;

use std::{collections::BTreeMap, path::Path};

use anyhow::{Result, bail};

use self::{
    cases::{CASES, Case, Faults},
    place::{Kind, Place},
    report::{Line, Report},
    run::Site,
};
use crate::{
    packages,
    shell::{self, Exit},
};

/// Which cases run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection<'a> {
    All,
    /// Those of `cargo xtask test`, on one address without losses.
    Short,
    /// Those whose name with place and faults contains a text.
    Only(&'a str),
}

impl Selection<'_> {
    fn contains(self, case: &Case, kind: Kind, faults: Faults) -> bool {
        match self {
            Self::All => true,
            Self::Short => case.short && kind == Kind::One && faults == Faults::None,
            Self::Only(text) => Line::name(case, kind.name(), faults).contains(text),
        }
    }
}

/// Prints the names of the cases.
pub fn list() {
    for (case, kind, faults) in selected(Selection::All) {
        println!("{}: {}", Line::name(case, kind.name(), faults), case.proves);
    }
}

/// Runs the cases of a selection with the libraries in `target/verbs/lib` and the programs in `target/verbs/programs`, and writes the
/// report. What cannot run here is skipped by name.
///
/// # Errors
/// No case is selected, or a program cannot be started. Cases that fail are in the report.
pub fn run(selection: Selection<'_>, libraries: String) -> Result<Report> {
    let runs = selected(selection);
    if runs.is_empty() {
        bail!(Exit::usage("no case has this name: `cargo xtask verbs --list` lists them"));
    }
    let folder = shell::root().join("target/verbs");
    let has_tshark = packages::require(&packages::CAPTURE).is_ok();
    let obstacle = place::obstacle();
    let mut report = Report { libraries, ..Report::default() };
    let mut places = BTreeMap::new();
    for (case, kind, faults) in runs {
        let name = Line::name(case, kind.name(), faults);
        let place = match &obstacle {
            Some(reason) if kind != Kind::One || case.needs_node => {
                println!("skipped: {name}: {reason}");
                report.skipped.push(format!("{name}: {reason}"));
                continue;
            }
            Some(_) => None,
            None => match places.entry((kind, case.needs_node)) {
                std::collections::btree_map::Entry::Occupied(entry) => Some(&*entry.into_mut()),
                std::collections::btree_map::Entry::Vacant(entry) => {
                    Some(&*entry.insert(Place::make(kind, case.needs_node, &folder)?))
                }
            },
        };
        let site = place.map_or(Site::Host, Site::Place);
        let outcome = attempts(case, &site, faults)?;
        let (fault, frames) = match outcome.fault.clone() {
            None if case.is_captured && faults == Faults::None && has_tshark => {
                decoded(&outcome.captures, &folder)
            }
            fault => (fault, 0),
        };
        if fault.is_none() {
            captures::remove(&outcome.captures)?;
        }
        print_line(&name, fault.as_deref(), &outcome);
        report.lines.push(Line {
            passed: fault.is_none(),
            fault,
            note: outcome.note,
            seconds: outcome.took.as_secs_f64(),
            frames,
            retransmissions: outcome.retransmissions,
            ..Line::new(case, kind.name(), faults)
        });
    }
    report.write(&folder)?;
    println!("{}", report.summary());
    Ok(report)
}

/// Runs a case until it passes, as often as it may, and returns the last outcome.
fn attempts(case: &Case, site: &Site<'_>, faults: Faults) -> Result<run::Outcome> {
    let mut failures = Vec::new();
    loop {
        let number = u32::try_from(failures.len()).unwrap_or(u32::MAX) + 1;
        let mut outcome = run::run(case, site, faults, number)?;
        if !failures.is_empty() {
            let before = format!("attempt {number}, before: {}", failures.join(", "));
            let separator = if outcome.note.is_empty() { "" } else { ", " };
            outcome.note = format!("{}{separator}{before}", outcome.note);
        }
        match &outcome.fault {
            Some(fault) if number < faults.attempts() => failures.push(fault.clone()),
            _ => return Ok(outcome),
        }
    }
}

fn decoded(files: &[std::path::PathBuf], folder: &Path) -> (Option<String>, u64) {
    match captures::check(files, folder) {
        Ok(frames) => (None, frames),
        Err(error) => (Some(format!("{error:#}")), 0),
    }
}

fn print_line(name: &str, fault: Option<&str>, outcome: &run::Outcome) {
    let seconds = outcome.took.as_secs_f64();
    let note = if outcome.note.is_empty() { String::new() } else { format!(" ({})", outcome.note) };
    match fault {
        None => println!("ok   {name} {seconds:.1} s{note}"),
        Some(fault) => {
            println!("FAIL {name} {seconds:.1} s{note}: {fault}");
            // The ends of what the programs printed: the rest is in their logs.
            let lines: Vec<&str> = outcome.text.lines().collect();
            for line in &lines[lines.len().saturating_sub(12)..] {
                println!("     | {line}");
            }
        }
    }
}

fn selected(selection: Selection<'_>) -> Vec<(&'static Case, Kind, Faults)> {
    let runs = CASES
        .iter()
        .flat_map(|case| case.runs.list().into_iter().map(move |(kind, faults)| (case, kind, faults)));
    runs.filter(|&(case, kind, faults)| selection.contains(case, kind, faults)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_form_runs_on_one_address() {
        let short = selected(Selection::Short);
        assert!((8..20).contains(&short.len()));
        assert!(short.iter().all(|(_, kind, faults)| (*kind, *faults) == (Kind::One, Faults::None)));
        let names = selected(Selection::Only("rping-q (IPv6, 1 % loss)"));
        assert_eq!(names.len(), 1);
        assert!(selected(Selection::Only("typo")).is_empty());
    }
}
