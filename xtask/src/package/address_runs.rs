// SPDX-License-Identifier: MIT OR Apache-2.0

//! Runs of `Install-Viordma.ps1` and `Uninstall-Viordma.ps1` that end anywhere, as a model: each state that it can reach is visited. What
//! `Move-AdapterAddress.ps1` decides is read from its table; that the scripts take the steps of the model, `scripts.rs` tests.

use std::{
    collections::{BTreeSet, VecDeque},
    fs,
};

use super::contents::FOLDER;
use crate::shell;

/// The addresses that a connection has by hand, a bit for each.
type Configuration = u8;

/// Configurations that an administrator sets. None is DHCP.
const SET_BY_HAND: [Configuration; 4] = [0b000, 0b001, 0b011, 0b100];

/// The entry of the device in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    configuration: Configuration,
    is_pending: bool,
    /// Whether the adapter has the connection that was saved.
    is_same: bool,
}

/// A system with one adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct System {
    configuration: Configuration,
    entry: Option<Entry>,
    /// The configuration that the administrator expects after a complete run.
    wanted: Configuration,
}

/// The rows of `$decisions`: pattern and decision.
type Decisions = Vec<(String, String)>;

/// Reads the table of the script.
fn decisions() -> Decisions {
    let script = fs::read_to_string(shell::root().join(FOLDER).join("Move-AdapterAddress.ps1")).unwrap();
    let (_, table) = script.split_once("$decisions = @(\n").expect("it has a table");
    let rows = table.split_once("\n)").expect("the table ends").0.lines();
    let row = |line: &str| {
        let row = line.trim().trim_end_matches(',').strip_prefix("@('")?.strip_suffix("')")?;
        row.split_once("', '").map(|(pattern, decision)| (pattern.to_owned(), decision.to_owned()))
    };
    rows.map(|line| row(line).unwrap_or_else(|| panic!("no row: {line}"))).collect()
}

/// Whether a text is like a pattern, which may end with `*`.
fn is_like(text: &str, pattern: &str) -> bool {
    pattern.strip_suffix('*').map_or(text == pattern, |beginning| text.starts_with(beginning))
}

impl System {
    /// The states of a run: after each of its steps, it may be interrupted. `keeps` says whether the connection survives the change of driver.
    fn run(mut self, decisions: &Decisions, keeps: bool) -> Vec<Self> {
        let mut states = vec![self];
        if self.decision(decisions) == "save" {
            self.entry = Some(Entry { configuration: self.configuration, is_pending: true, is_same: true });
            states.push(self);
        }
        if !keeps {
            self.configuration = 0;
            if let Some(entry) = &mut self.entry {
                entry.is_same = false;
            }
            states.push(self);
        }
        let Some(entry) = self.entry.filter(|entry| entry.is_pending) else { return states };
        for address in (0..8).map(|bit| 1 << bit) {
            let changed = self.configuration & !address | entry.configuration & address;
            if changed != self.configuration {
                self.configuration = changed;
                states.push(self);
            }
        }
        self.entry = Some(Entry { is_pending: false, ..entry });
        states.push(self);
        states
    }

    fn decision(self, decisions: &Decisions) -> &str {
        let words = self.entry.map_or("none other new".to_owned(), |entry| {
            let state = if entry.is_pending { "pending" } else { "restored" };
            let connection = if entry.is_same { "same" } else { "other" };
            let is_known = self.configuration & !entry.configuration == 0;
            format!("{state} {connection} {}", if is_known { "known" } else { "new" })
        });
        let row = decisions.iter().find(|(pattern, _)| is_like(&words, pattern));
        &row.unwrap_or_else(|| panic!("no row for {words}")).1
    }

    /// The administrator sets a configuration. On a connection that an interrupted run has left without its own, one that adds nothing to
    /// what is saved looks like a part of that, which then counts.
    fn set(mut self, configuration: Configuration) -> Self {
        self.configuration = configuration;
        let interrupted = self.entry.filter(|entry| entry.is_pending && !entry.is_same);
        let saved = interrupted.filter(|entry| configuration & !entry.configuration == 0);
        self.wanted = saved.map_or(configuration, |entry| entry.configuration);
        self
    }
}

/// Visits all states, and returns their number, or a complete run that leaves another configuration than the one expected.
fn explore(decisions: &Decisions) -> Result<usize, String> {
    let first = SET_BY_HAND.map(|configuration| System { configuration, entry: None, wanted: configuration });
    let mut visited = BTreeSet::from(first);
    let mut pending = VecDeque::from(first);
    while let Some(system) = pending.pop_front() {
        let mut next: Vec<System> = SET_BY_HAND.map(|configuration| system.set(configuration)).to_vec();
        for keeps in [false, true] {
            let states = system.run(decisions, keeps);
            let last = states.last().copied().unwrap_or(system);
            if last.configuration != last.wanted || last.entry.is_none_or(|entry| entry.is_pending) {
                return Err(format!("{system:?} becomes {last:?}"));
            }
            next.extend(states);
        }
        pending.extend(next.into_iter().filter(|state| visited.insert(*state)));
    }
    Ok(visited.len())
}

#[test]
fn a_complete_run_keeps_the_configuration_however_runs_before_have_ended() {
    let count = explore(&decisions()).unwrap();
    assert!(count > 50, "{count} states");
}

#[test]
fn each_row_of_the_decisions_is_needed_as_it_is() {
    let decisions = decisions();
    assert_eq!(decisions.len(), 5);
    for index in 0..decisions.len() {
        let mut changed = decisions.clone();
        let row = &mut changed[index].1;
        *row = if row == "save" { "keep" } else { "save" }.to_owned();
        assert!(explore(&changed).is_err(), "{:?}", changed[index]);
    }
}
