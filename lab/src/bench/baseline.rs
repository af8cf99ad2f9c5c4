// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counts of an earlier run, which later runs are compared with: files in `lab/baseline`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::PathBuf,
};

use anyhow::{Context as _, Result};

use super::figure::Figure;
use crate::workspace;

/// Share by which a count may exceed its baseline.
pub const TOLERANCE: f64 = 0.03;

/// Largest error of a count in a file.
const ROUNDED: f64 = 0.05;

/// File of the counts of the driver's image in virtual time.
const IMAGE: &str = "image.toml";

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
    let limit = baseline.get(name).map(|count| count * (1.0 + TOLERANCE) + ROUNDED);
    Figure { limit, ..figure }
}

/// Gives the figures that are [counted](Figure::is_counted) their limits. One without a limit has no baseline yet.
pub fn limit_counted(figures: &mut [Figure]) -> Result<()> {
    let baseline = read(IMAGE)?;
    for figure in figures.iter_mut().filter(|figure| figure.is_counted) {
        let name = figure.name.clone();
        *figure = limited(&baseline, &name, std::mem::take(figure));
    }
    Ok(())
}

/// Returns the names that only the figures that are [counted](Figure::is_counted) have, or only their baseline.
pub fn unmatched(figures: &[Figure]) -> Result<Vec<String>> {
    Ok(differences(&read(IMAGE)?, figures))
}

fn differences(baseline: &Counts, figures: &[Figure]) -> Vec<String> {
    let counted: BTreeSet<&String> =
        figures.iter().filter(|figure| figure.is_counted).map(|figure| &figure.name).collect();
    counted.symmetric_difference(&baseline.keys().collect()).map(ToString::to_string).collect()
}

/// Writes the figures that are [counted](Figure::is_counted) as the baseline for later runs.
pub fn keep_counted(figures: &[Figure]) -> Result<()> {
    let counted = figures.iter().filter(|figure| figure.is_counted);
    let counts = counted.map(|figure| (figure.name.clone(), figure.value)).collect();
    keep(IMAGE, "What the driver's image does, in virtual time", "cargo xtask bench --counts", &counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure::Unit;

    #[test]
    fn counts_and_their_baseline_have_the_same_names() {
        let of = |names: &[&str]| -> Vec<Figure> {
            names.iter().map(|name| Figure::counted(*name, 1.0, Unit::PerPacket)).collect()
        };
        let kept = Counts::from([("a".to_owned(), 1.0), ("b".to_owned(), 1.0)]);
        assert_eq!(differences(&kept, &of(&["a", "b"])), [""; 0]);
        assert_eq!(differences(&kept, &of(&["b", "c"])), ["a", "c"]);
        let mut figures = of(&["a", "b"]);
        figures.push(Figure::new("d", 1.0, Unit::PerPacket));
        assert_eq!(differences(&kept, &figures), [""; 0]);
    }

    #[test]
    fn count_is_limited_by_its_baseline_as_it_is_kept() {
        let limited = |kept: f64, value: f64| {
            let baseline = Counts::from([("a".to_owned(), kept)]);
            limited(&baseline, "a", Figure::counted("a", value, Unit::PerPacket)).misses()
        };
        assert!(!limited(0.0, 0.04) && limited(0.0, 0.06));
        assert!(!limited(100.0, 103.0) && limited(100.0, 104.0));
    }
}
