// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask verbs --test`: runs unmodified programs of Debian with the libraries.
//!
//! | file | what is there |
//! | --- | --- |
//! | `cases.rs` | the table of cases |
//! | `case.rs` | what a case is |
//! | `kind.rs` | where and over which link the two programs meet |
//! | `place.rs` | network namespaces in which the programs run |
//! | `rxe.rs` | a virtual machine with `rdma_rxe` as one side |
//! | `process.rs`, `program.rs` | programs that are started, awaited and ended |
//! | `run.rs` | a case in a place |
//! | `verdict.rs` | what the ends of its programs say |
//! | `tests_of_python.rs` | results of rdma-core's own tests |
//! | `scripts.rs`, `scripts/` | programs of Python that cases run |
//! | `captures.rs`, `icrc.py` | captures, decoded by tshark, with ICRCs computed independently |
//! | `report.rs` | the report |
//! | `bench.rs` | figures |

pub mod bench;
mod captures;
mod case;
mod cases;
mod kind;
mod place;
mod process;
mod program;
mod report;
mod run;
mod rxe;
mod scripts;
mod tests_of_python;
mod verdict;

use std::{
    collections::{BTreeMap, btree_map::Entry},
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};

use self::{
    case::{Case, Faults},
    cases::CASES,
    kind::Kind,
    place::Place,
    report::{Line, Report},
    run::Site,
    rxe::Opposite,
};
use crate::{
    packages,
    shell::{self, Exit},
};

/// Which cases run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection<'a> {
    All,
    /// Those of `cargo xtask test`, on one address without losses, and one with Ethernet frames.
    Short,
    /// Those whose name with place and faults contains a text.
    Only(&'a str),
}

/// The case of the short form that also runs with Ethernet frames.
const SHORT_WITH_FRAMES: &str = "rping";

impl Selection<'_> {
    fn contains(self, case: &Case, kind: Kind, faults: Faults) -> bool {
        match self {
            Self::All => true,
            Self::Short => {
                let frames = case.name == SHORT_WITH_FRAMES && kind == Kind::Frames4;
                faults == Faults::None && (frames || case.short && kind == Kind::One)
            }
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
    scripts::write(&folder)?;
    let has_tshark = packages::require(&packages::CAPTURE).is_ok();
    let mut places = Places { folder: folder.clone(), obstacle: place::obstacle(), ..Places::default() };
    let mut report = Report { libraries, ..Report::default() };
    for (case, kind, faults) in runs {
        let name = Line::name(case, kind.name(), faults);
        let site = match places.site(case, kind)? {
            Ok(site) => site,
            Err(reason) => {
                println!("skipped: {name}: {reason}");
                report.skipped.push(format!("{name}: {reason}"));
                continue;
            }
        };
        let (outcome, mut line) = attempts(case, &site, faults)?;
        if case.is_captured && faults == Faults::None && line.fault.is_none() {
            if has_tshark {
                (line.fault, line.frames) = decoded(&outcome.captures, &folder);
            } else {
                report.skipped.push(format!("{name}, its frames: there is no tshark that decodes them"));
            }
        }
        if line.fault.is_none() {
            captures::remove(&outcome.captures)?;
        }
        print_line(&name, &line, &outcome.text);
        report.lines.push(line);
    }
    report.write(&folder)?;
    println!("{}", report.summary());
    Ok(report)
}

/// The places that were made so far.
#[derive(Default)]
struct Places {
    folder: PathBuf,
    /// Why there are none.
    obstacle: Option<String>,
    made: BTreeMap<(Kind, bool), Place>,
    /// Opposite `rdma_rxe`, or why that is not possible.
    rxe: Option<Result<Opposite, String>>,
}

impl Places {
    /// Returns where a case runs, or why it cannot.
    fn site(&mut self, case: &Case, kind: Kind) -> Result<Result<Site<'_>, String>> {
        let Self { folder, obstacle, made, rxe } = self;
        if let Some(reason) = obstacle {
            let needs_place = kind != Kind::One || case.needs_node;
            return Ok(if needs_place { Err(reason.clone()) } else { Ok(Site::Host) });
        }
        if let Kind::Rxe(_) = kind {
            let rxe = rxe.get_or_insert_with(|| Opposite::make(folder).map_err(|error| format!("{error:#}")));
            return Ok(rxe.as_ref().map(|opposite| Site::Rxe(opposite, kind)).map_err(String::clone));
        }
        let place = match made.entry((kind, case.needs_node)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Place::make(kind, case.needs_node, folder)?),
        };
        Ok(Ok(Site::Place(place, kind)))
    }
}

/// How often a case runs at most, each time with another seed, if it failed for such a reason.
const ATTEMPTS: u32 = 4;

/// Runs a case, again if it fails by the loss of the last ACK alone, or by a failure of the program or the virtual machine. Returns the last
/// outcome with its line of the report.
fn attempts(case: &'static Case, site: &Site<'_>, faults: Faults) -> Result<(run::Outcome, Line)> {
    let mut line = Line::new(case, site.kind().name(), faults);
    let mut seed = 1;
    loop {
        let outcome = run::run(case, site, faults, seed);
        let is_failed = outcome.as_ref().map_or(true, |outcome| outcome.verdict.fault.is_some());
        if let (Site::Rxe(opposite, _), true) = (site, is_failed) {
            // The next one boots another virtual machine.
            let failure = opposite.abandon();
            if let Some(failure) = failure.filter(|_| seed < ATTEMPTS) {
                line.repeated.push(format!("attempt {seed}: {failure}"));
                seed += 1;
                continue;
            }
        }
        let mut outcome = match outcome {
            Err(error) if matches!(site, Site::Rxe(..)) => run::Outcome::failed(format!("{error:#}")),
            outcome => outcome?,
        };
        let verdict = std::mem::take(&mut outcome.verdict);
        match (&verdict.fault, outcome.reason_to_repeat) {
            (Some(fault), Some(reason)) if seed < ATTEMPTS => {
                line.repeated.push(format!("seed {seed}: {fault}, {reason}"));
                seed += 1;
            }
            _ => {
                (line.fault, line.note, line.known) = (verdict.fault, verdict.note, verdict.known);
                line.seconds = outcome.took.as_secs_f64();
                line.retransmissions = outcome.retransmissions;
                return Ok((outcome, line));
            }
        }
    }
}

fn decoded(files: &[std::path::PathBuf], folder: &Path) -> (Option<String>, u64) {
    match captures::check(files, folder) {
        Ok(frames) => (None, frames),
        Err(error) => (Some(format!("{error:#}")), 0),
    }
}

fn print_line(name: &str, line: &Line, text: &str) {
    let seconds = line.seconds;
    let words: Vec<&str> = [&line.note].into_iter().chain(&line.repeated).map(String::as_str).collect();
    let words: Vec<&str> = words.into_iter().filter(|words| !words.is_empty()).collect();
    let note = if words.is_empty() { String::new() } else { format!(" ({})", words.join("; ")) };
    match &line.fault {
        None => println!("ok   {name} {seconds:.1} s{note}"),
        Some(fault) => {
            println!("FAIL {name} {seconds:.1} s{note}: {fault}");
            // The ends of what the programs printed: the rest is in their logs.
            let lines: Vec<&str> = text.lines().collect();
            for line in &lines[lines.len().saturating_sub(12)..] {
                println!("     | {line}");
            }
        }
    }
    for known in &line.known {
        println!("     known: {known}");
    }
}

fn selected(selection: Selection<'_>) -> Vec<(&'static Case, Kind, Faults)> {
    let runs =
        CASES.iter().flat_map(|case| case.list().into_iter().map(move |(kind, faults)| (case, kind, faults)));
    let mut runs: Vec<_> =
        runs.filter(|&(case, kind, faults)| selection.contains(case, kind, faults)).collect();
    // At the end: a virtual machine takes time of the processor until it ends.
    runs.sort_by_key(|(_, kind, _)| matches!(kind, Kind::Rxe(_)));
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_form_runs_on_one_address_and_once_with_frames() {
        let short = selected(Selection::Short);
        assert!((8..20).contains(&short.len()));
        assert!(short.iter().all(|(_, _, faults)| *faults == Faults::None));
        let elsewhere: Vec<_> = short.iter().filter(|(_, kind, _)| *kind != Kind::One).collect();
        assert_eq!(elsewhere.len(), 1, "{elsewhere:?}");
        let names = selected(Selection::Only("rping-q (IPv6, 1 % loss)"));
        assert_eq!(names.len(), 1);
        assert!(selected(Selection::Only("typo")).is_empty());
    }
}
