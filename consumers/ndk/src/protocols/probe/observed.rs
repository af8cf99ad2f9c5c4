// SPDX-License-Identifier: MIT OR Apache-2.0

//! Observations during a run of the probe.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::plan::Scenario;
use crate::protocols::outcome::Outcome;
use crate::stats::RequestStats;
use crate::{Error, Status};

/// Observations of one side of one connection.
#[derive(Default)]
pub struct Observed {
    pub items: u64,
    pub bytes: u64,
    pub notes: Vec<String>,
}

impl Observed {
    /// Accepts a lost connection if the scenario waits for it.
    pub fn finish(mut self, scenario: Scenario, outcome: Result<(), Error>) -> Result<Self, Error> {
        match outcome {
            Err(error) if scenario == Scenario::Hold && error.is_connection_loss() => {
                self.notes.push(format!("after {} items: {error}", self.items));
                Ok(self)
            }
            outcome => outcome.map(|()| self),
        }
    }

    /// Counts an item of `length` bytes.
    pub fn item(&mut self, length: usize) {
        self.items += 1;
        self.bytes += length as u64;
    }

    /// Returns the outcome of this connection.
    pub fn into_outcome(self, stats: RequestStats) -> Outcome {
        Outcome { connections: 1, rounds: self.items, bytes: self.bytes, notes: self.notes, stats }
    }
}

/// Checks that a request failed with one of the `expected` statuses; returns a note.
pub fn failed_as<T>(
    outcome: Result<T, Error>,
    expected: &[Status],
    what: &'static str,
) -> Result<String, Error> {
    match outcome {
        Err(Error::Connection(status)) if expected.contains(&status) => Ok(format!("{what}: {status}")),
        Err(error) => Err(error),
        Ok(_) => Err(Error::Protocol("the peer accepted a request that it must reject")),
    }
}
