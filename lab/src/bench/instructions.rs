// SPDX-License-Identifier: MIT OR Apache-2.0

//! Instructions of the engine's shortest ways, counted by callgrind: the same on a busy machine as on an idle one.
//!
//! This program runs itself under valgrind, with collection switched on in one function at a time. Counts depend on
//! the compiler and on what the processor offers, and on nothing else.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::PathBuf, process::Command};

use anyhow::{Context as _, Result, ensure};
use roce_wire::PathMtu;
use roce_wire::icrc::Crc;

use super::{figure::SMALL, pair::Pair};
use crate::{process, workspace};

/// What is counted: a name, and the function that collection is switched on in.
pub const WAYS: [(&str, &str); 3] = [
    ("post to wire", "*::bench::pair::measured_post*"),
    ("SEND received", "*::bench::pair::measured_send*"),
    ("acknowledgement received", "*::bench::pair::measured_ack*"),
];

/// How often each way is gone.
const TIMES: u64 = 1000;

/// A count may exceed its baseline by so much, as a share, before it is called worse.
pub const TOLERANCE: f64 = 0.03;

/// Instructions per operation, by name.
pub type Counts = BTreeMap<String, f64>;

/// The work that is counted; this program calls itself with `--under-callgrind` for it.
pub fn work() -> Result<()> {
    let mut pair = Pair::connect(Crc::detect(), PathMtu::Bytes4096, 4096)?;
    for _ in 0..TIMES {
        pair.one_send(SMALL)?;
    }
    Ok(())
}

/// Counts all ways.
pub fn count() -> Result<Counts> {
    workspace::provide(&["valgrind"])?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let directory = workspace::root().join("target");
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let mut counts = Counts::new();
    for (name, function) in WAYS {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--tool=callgrind", "--quiet"]);
        let out = directory.join("callgrind.out");
        valgrind.arg(format!("--callgrind-out-file={}", out.display()));
        valgrind.arg(format!("--toggle-collect={function}"));
        valgrind.arg(&program).args(["bench", "--under-callgrind"]);
        process::output(&mut valgrind)?;
        let text = fs::read_to_string(&out).with_context(|| format!("cannot read {}", out.display()))?;
        let total = total(&text).with_context(|| format!("{} has no sum", out.display()))?;
        ensure!(total > 0, "callgrind did not see {function}");
        counts.insert(name.into(), total as f64 / TIMES as f64);
    }
    Ok(counts)
}

/// The sum that callgrind writes at the end of a profile.
fn total(profile: &str) -> Option<u64> {
    let line =
        profile.lines().find_map(|line| line.strip_prefix("summary:").or(line.strip_prefix("totals:")))?;
    line.split_whitespace().next()?.parse().ok()
}

fn baseline_path() -> PathBuf {
    workspace::root().join("lab/baseline/instructions.toml")
}

/// The counts that were kept, if they were.
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

/// Keeps counts for later runs.
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
    fn the_sum_of_a_profile_is_found() {
        let profile = "version: 1\nevents: Ir\nfn=(1) main\n12 7\nsummary: 1651180\n";
        assert_eq!(total(profile), Some(1_651_180));
        assert_eq!(total("events: Ir\ntotals: 5\n"), Some(5));
        assert_eq!(total("events: Ir\n"), None);
    }

    #[test]
    fn a_baseline_is_kept() {
        let names: Vec<String> = baseline().unwrap().into_keys().collect();
        let mut expected = WAYS.map(|(name, _)| name.to_owned());
        expected.sort();
        assert_eq!(names, expected);
    }
}
