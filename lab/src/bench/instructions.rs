// SPDX-License-Identifier: MIT OR Apache-2.0

//! Instruction counts of the engine's fast paths, by callgrind, with collection enabled in one function at a time.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::PathBuf};

use anyhow::{Context as _, Result};
use roce_wire::PathMtu;
use roce_wire::icrc::Crc;

use super::{callgrind, figure::SMALL, pair::Pair};
use crate::workspace;

/// The counted paths: name, and function in which collection is enabled.
pub const PATHS: [(&str, &str); 3] = [
    ("post to wire", "*::bench::pair::measured_post*"),
    ("SEND received", "*::bench::pair::measured_send*"),
    ("acknowledgement received", "*::bench::pair::measured_ack*"),
];

/// Number of runs of each path.
const RUNS: u64 = 1000;

/// Share by which a count may exceed its baseline.
pub const TOLERANCE: f64 = 0.03;

/// Instructions per operation, by name.
pub type Counts = BTreeMap<String, f64>;

/// What this program does under callgrind.
pub const WORK: &str = "engine";

/// Runs the counted paths.
pub fn work() -> Result<()> {
    let mut pair = Pair::connect(Crc::detect(), PathMtu::Bytes4096, 4096)?;
    for _ in 0..RUNS {
        pair.one_send(SMALL)?;
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

fn baseline_path() -> PathBuf {
    workspace::root().join("lab/baseline/instructions.toml")
}

/// Returns the baseline; empty if there is none.
pub fn baseline() -> Result<Counts> {
    let path = baseline_path();
    if !path.exists() {
        return Ok(Counts::new());
    }
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let table: toml::Table = text.parse().with_context(|| format!("cannot read {}", path.display()))?;
    let number = |value: &toml::Value| value.as_float().or(value.as_integer().map(|count| count as f64));
    Ok(table.iter().filter_map(|(name, value)| Some((name.clone(), number(value)?))).collect())
}

/// Writes the baseline for later runs.
pub fn keep(counts: &Counts) -> Result<()> {
    let path = baseline_path();
    let mut text = String::from(
        "# Instructions per operation, counted by callgrind: written by `cargo xtask bench --keep-baseline`.\n\
         # `cargo xtask bench` compares with these and fails when one is exceeded by more than 3 %.\n",
    );
    for (name, count) in counts {
        let _ = writeln!(text, "\"{name}\" = {count:.1}");
    }
    fs::create_dir_all(path.parent().context("no directory")?)?;
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
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
