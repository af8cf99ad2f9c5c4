// SPDX-License-Identifier: MIT OR Apache-2.0

//! Hosts that report the mistakes of their consumers, and what they reported.

use super::*;
use ndk_provider::{Config, Mistake, MistakeReport, StrictSettings};
use nt::Owner;
use std::sync::Mutex;

/// All reports, with the number of the host.
static REPORTS: Mutex<Vec<(usize, MistakeReport)>> = Mutex::new(Vec::new());

fn note(owner: Owner, report: &MistakeReport) {
    assert!(nt::irql::current() <= nt::irql::DISPATCH_LEVEL);
    REPORTS.lock().unwrap().push((owner.handle().addr(), *report));
}

/// Returns `config` with reports of mistakes.
pub fn reporting(config: Config) -> Config {
    Config { strict: StrictSettings { report: Some(note), ..config.strict }, ..config }
}

/// Returns two hosts that report mistakes.
pub fn checked_pair() -> (Node, Node) {
    pair_with(reporting(Config::default()))
}

impl Node {
    /// Removes and returns what the host has reported so far.
    pub fn reports(&self) -> Vec<MistakeReport> {
        let mut reports = REPORTS.lock().unwrap();
        let own = reports.extract_if(.., |(number, _)| *number == self.host.number);
        own.map(|(_, report)| report).collect()
    }

    /// Removes what the host has reported so far and returns the mistakes.
    pub fn mistakes(&self) -> Vec<Mistake> {
        self.reports().iter().map(|report| report.mistake).collect()
    }
}
