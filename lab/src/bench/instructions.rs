// SPDX-License-Identifier: MIT OR Apache-2.0

//! Instruction counts of the engine's fast paths, by callgrind, with collection enabled in one function at a time.

use anyhow::Result;
use roce_wire::PathMtu;
use roce_wire::icrc::Crc;

use super::{
    baseline::{self, Counts},
    callgrind,
    figure::SMALL,
    two_hosts::TwoHosts,
};

/// The counted paths: name, and function in which collection is enabled.
pub const PATHS: [(&str, &str); 3] = [
    ("post to wire", "*::bench::two_hosts::measured_post*"),
    ("SEND received", "*::bench::two_hosts::measured_send*"),
    ("acknowledgement received", "*::bench::two_hosts::measured_ack*"),
];

/// Number of runs of each path.
pub const RUNS: u64 = 1000;

const BASELINE: &str = "instructions.toml";

/// Name of the workload that this program runs under callgrind.
pub const WORK: &str = "engine";

/// Runs the counted paths.
pub fn work() -> Result<()> {
    let mut hosts = TwoHosts::connect(Crc::detect(), PathMtu::Bytes4096, 4096)?;
    for _ in 0..RUNS {
        hosts.one_send(SMALL)?;
    }
    Ok(())
}

/// Counts the instructions of all paths.
pub fn count() -> Result<Counts> {
    let mut counts = Counts::new();
    for (name, function) in PATHS {
        let profile = callgrind::run(&[&format!("--toggle-collect={function}")], WORK)?;
        counts.insert(name.into(), profile.total()? as f64 / RUNS as f64);
    }
    Ok(counts)
}

/// Returns the baseline; empty if there is none.
pub fn baseline() -> Result<Counts> {
    baseline::read(BASELINE)
}

/// Writes the baseline for later runs.
pub fn keep(counts: &Counts) -> Result<()> {
    baseline::keep(BASELINE, "Instructions per operation, counted by callgrind", "cargo xtask bench", counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn baseline_lists_each_path() {
        let names: Vec<String> = baseline().unwrap().into_keys().collect();
        let mut expected = PATHS.map(|(name, _)| name.to_owned());
        expected.sort();
        assert_eq!(names, expected);
    }
}
