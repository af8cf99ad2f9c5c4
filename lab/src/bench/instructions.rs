// SPDX-License-Identifier: MIT OR Apache-2.0

//! Instruction counts of the engine's fast paths, by callgrind. They do not depend on the load of the machine.
//!
//! This program runs itself under valgrind, with collection enabled in one function at a time. Counts depend only on
//! the compiler and on the features of the processor.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::PathBuf, process::Command};

use anyhow::{Context as _, Result, ensure};
use roce_wire::PathMtu;
use roce_wire::icrc::Crc;

use super::{figure::SMALL, pair::Pair};
use crate::{process, workspace};

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

/// Runs the counted paths. This program runs itself with `--under-callgrind` to call it.
pub fn work() -> Result<()> {
    let mut pair = Pair::connect(Crc::detect(), PathMtu::Bytes4096, 4096)?;
    for _ in 0..RUNS {
        pair.one_send(SMALL)?;
    }
    Ok(())
}

/// Counts the instructions of all paths.
pub fn count() -> Result<Counts> {
    workspace::provide(&["valgrind"])?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let directory = workspace::root().join("target");
    fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let mut counts = Counts::new();
    for (name, function) in PATHS {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--tool=callgrind", "--quiet"]);
        let out = directory.join("callgrind.out");
        valgrind.arg(format!("--callgrind-out-file={}", out.display()));
        valgrind.arg(format!("--toggle-collect={function}"));
        valgrind.arg(&program).args(["bench", "--under-callgrind"]);
        process::output(&mut valgrind)?;
        let text = fs::read_to_string(&out).with_context(|| format!("cannot read {}", out.display()))?;
        let total = total(&text).with_context(|| format!("{} has no total", out.display()))?;
        ensure!(total > 0, "callgrind did not see {function}");
        counts.insert(name.into(), total as f64 / RUNS as f64);
    }
    Ok(counts)
}

/// Returns the total at the end of a callgrind profile.
fn total(profile: &str) -> Option<u64> {
    let line =
        profile.lines().find_map(|line| line.strip_prefix("summary:").or(line.strip_prefix("totals:")))?;
    line.split_whitespace().next()?.parse().ok()
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
    fn total_of_a_profile_is_parsed() {
        let profile = "version: 1\nevents: Ir\nfn=(1) main\n12 7\nsummary: 1651180\n";
        assert_eq!(total(profile), Some(1_651_180));
        assert_eq!(total("events: Ir\ntotals: 5\n"), Some(5));
        assert_eq!(total("events: Ir\n"), None);
    }

    #[test]
    fn baseline_lists_each_path() {
        let names: Vec<String> = baseline().unwrap().into_keys().collect();
        let mut expected = PATHS.map(|(name, _)| name.to_owned());
        expected.sort();
        assert_eq!(names, expected);
    }
}
