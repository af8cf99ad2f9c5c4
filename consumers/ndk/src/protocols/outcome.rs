// SPDX-License-Identifier: MIT OR Apache-2.0

//! The result of a run of a protocol.

use alloc::string::String;
use alloc::vec::Vec;

use crate::stats::RequestStats;
use crate::{Error, Status};

/// The result of one side of a successful run.
#[derive(Clone, Default, Debug)]
pub struct Outcome {
    pub connections: u32,
    /// Steps of the program, over all connections.
    pub rounds: u64,
    /// Bytes of data, without control messages.
    pub bytes: u64,
    /// Observations for a report, one sentence each.
    pub notes: Vec<String>,
    pub stats: RequestStats,
}

impl Outcome {
    /// Combines the outcomes of all connections; returns the first error if there is one.
    pub fn of_all(connections: u32, outcomes: Vec<Result<Self, Error>>) -> Result<Self, Error> {
        let mut all = Self::default();
        for outcome in outcomes {
            let outcome = outcome?;
            all.connections += outcome.connections;
            all.rounds += outcome.rounds;
            all.bytes += outcome.bytes;
            all.notes.extend(outcome.notes);
            all.stats.merge(&outcome.stats);
        }
        if all.connections == connections { Ok(all) } else { Err(Error::NoConnection) }
    }
}

/// Returns the error of a failed NDKPI call, for `map_err`.
pub fn call(name: &'static str) -> impl FnOnce(Status) -> Error {
    move |status| Error::Call(name, status)
}
