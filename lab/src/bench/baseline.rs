// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counts of an earlier run, which later runs are compared with: files in `lab/baseline`.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::PathBuf};

use anyhow::{Context as _, Result};

use super::figure::Figure;
use crate::workspace;

/// Share by which a count may exceed its baseline.
pub const TOLERANCE: f64 = 0.03;

/// Counts by name.
pub type Counts = BTreeMap<String, f64>;

fn path(file: &str) -> PathBuf {
    workspace::root().join("lab/baseline").join(file)
}

/// Returns the baseline in a file; empty if there is none.
pub fn read(file: &str) -> Result<Counts> {
    let path = path(file);
    if !path.exists() {
        return Ok(Counts::new());
    }
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let table: toml::Table = text.parse().with_context(|| format!("cannot read {}", path.display()))?;
    let number = |value: &toml::Value| value.as_float().or(value.as_integer().map(|count| count as f64));
    Ok(table.iter().filter_map(|(name, value)| Some((name.clone(), number(value)?))).collect())
}

/// Writes the baseline for later runs. `what` says what is counted, and `check` which command compares with it.
pub fn keep(file: &str, what: &str, check: &str, counts: &Counts) -> Result<()> {
    let path = path(file);
    let mut text = format!(
        "# {what}: written by `{check} --keep-baseline`.\n\
         # `{check}` compares with these and fails when one is exceeded by more than 3 %.\n"
    );
    for (name, count) in counts {
        let _ = writeln!(text, "\"{name}\" = {count:.1}");
    }
    fs::create_dir_all(path.parent().context("no directory")?)?;
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Gives a figure its limit, if the baseline has its name.
pub fn limited(baseline: &Counts, name: &str, figure: Figure) -> Figure {
    let limit = baseline.get(name).map(|count| count * (1.0 + TOLERANCE));
    Figure { limit, ..figure }
}
