// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counts of an earlier run, which later runs are compared with: files in `lab/baseline`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::PathBuf,
};

use anyhow::{Context as _, Result};

use super::figure::{Figure, Sample};
use crate::workspace;

/// Share by which a count that does not depend on the order of events may exceed its baseline.
pub const TOLERANCE: f64 = 0.03;

/// Largest error of a count in a file.
const ROUNDED: f64 = 0.05;

/// Standard errors of the difference of two means by which a count may exceed its baseline.
const ERRORS: f64 = 4.5;

/// File of the counts of the driver's image in virtual time.
const IMAGE: &str = "image.toml";

const HEAD: &str = "\
# What the driver's image does, in virtual time: written by `cargo xtask bench --counts --keep-baseline`.
# `cargo xtask bench --counts` compares with these. A number is the count of every order of events. Of other counts, the mean
# over some orders must not exceed the mean that is kept here by more than 4.5 standard errors.
";

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

/// Gives the figures with a [sample](Figure::sample) their limits. One without a limit has no baseline yet.
pub fn limit_counted(figures: &mut [Figure]) -> Result<()> {
    let baseline = read_image()?;
    for figure in figures {
        let limit = figure.sample.zip(baseline.get(&figure.name)).map(|(sample, kept)| kept.limit(sample));
        figure.limit = limit.or(figure.limit);
    }
    Ok(())
}

/// Returns the names that only the figures with a [sample](Figure::sample) have, or only their baseline.
pub fn unmatched(figures: &[Figure]) -> Result<Vec<String>> {
    Ok(differences(&read_image()?, figures))
}

fn differences(baseline: &BTreeMap<String, Kept>, figures: &[Figure]) -> Vec<String> {
    let counted: BTreeSet<&String> =
        figures.iter().filter(|figure| figure.sample.is_some()).map(|figure| &figure.name).collect();
    counted.symmetric_difference(&baseline.keys().collect()).map(ToString::to_string).collect()
}

/// Writes the figures with a [sample](Figure::sample) as the baseline for later runs.
pub fn keep_counted(figures: &[Figure]) -> Result<()> {
    let path = path(IMAGE);
    let counted: BTreeMap<&String, Kept> = figures
        .iter()
        .filter_map(|figure| Some((&figure.name, Kept { mean: figure.value, sample: figure.sample? })))
        .collect();
    let mut text = String::from(HEAD);
    for (name, Kept { mean, sample: Sample { orders, deviation } }) in counted {
        let _ = if deviation < ROUNDED {
            writeln!(text, "\"{name}\" = {mean:.1}")
        } else {
            writeln!(
                text,
                "\"{name}\" = {{ mean = {mean:.1}, deviation = {deviation:.1}, orders = {orders} }}"
            )
        };
    }
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns the baseline of the driver's image.
fn read_image() -> Result<BTreeMap<String, Kept>> {
    let path = path(IMAGE);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let table: toml::Table = text.parse().with_context(|| format!("cannot read {}", path.display()))?;
    let row = |(name, value): (&String, &toml::Value)| {
        let kept = Kept::read(value).with_context(|| format!("{}: {name}", path.display()))?;
        Ok((name.clone(), kept))
    };
    table.iter().map(row).collect()
}

/// A row of the baseline of the driver's image.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Kept {
    mean: f64,
    sample: Sample,
}

impl Kept {
    /// Reads a number, which is the count of every order, or a table with `mean`, `deviation` and `orders`.
    fn read(value: &toml::Value) -> Option<Self> {
        if let Some(mean) = number(value) {
            return Some(Self { mean, sample: Sample { orders: 1, deviation: 0.0 } });
        }
        let field = |name: &str| value.get(name).and_then(number);
        let orders = value.get("orders")?.as_integer()?.try_into().ok()?;
        Some(Self { mean: field("mean")?, sample: Sample { orders, deviation: field("deviation")? } })
    }

    /// Returns the largest mean of another sample that can be one of the same distribution. That of a count without spread is the count.
    fn limit(&self, other: Sample) -> f64 {
        let freedom = |sample: Sample| sample.orders.saturating_sub(1) as f64;
        let squares = |sample: Sample| freedom(sample) * sample.deviation.powi(2);
        let freedom = (freedom(self.sample) + freedom(other)).max(1.0);
        let variance = (squares(self.sample) + squares(other)) / freedom;
        let variance = if self.sample.deviation == 0.0 { 0.0 } else { variance };
        let of_difference = variance * (1.0 / self.sample.orders as f64 + 1.0 / other.orders as f64);
        self.mean + ERRORS * of_difference.sqrt() + ROUNDED
    }
}

fn number(value: &toml::Value) -> Option<f64> {
    value.as_float().or(value.as_integer().map(|count| count as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure::Unit;

    fn kept(mean: f64, deviation: f64) -> Kept {
        Kept { mean, sample: Sample { orders: 8, deviation } }
    }

    #[test]
    fn counts_and_their_baseline_have_the_same_names() {
        let of = |names: &[&str]| -> Vec<Figure> {
            names.iter().map(|name| Figure::counted(*name, 1.0, Unit::PerPacket)).collect()
        };
        let baseline = BTreeMap::from([("a".to_owned(), kept(1.0, 0.0)), ("b".to_owned(), kept(1.0, 0.0))]);
        assert_eq!(differences(&baseline, &of(&["a", "b"])), [""; 0]);
        assert_eq!(differences(&baseline, &of(&["b", "c"])), ["a", "c"]);
        let mut figures = of(&["a", "b"]);
        figures.push(Figure::new("d", 1.0, Unit::PerPacket));
        assert_eq!(differences(&baseline, &figures), [""; 0]);
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

    #[test]
    fn mean_of_some_orders_is_limited_by_the_spread_between_orders() {
        let same = Sample { orders: 8, deviation: 2.0 };
        // The standard error of the difference of the means is 1.
        assert!((kept(50.0, 2.0).limit(same) - (50.0 + ERRORS + ROUNDED)).abs() < 1e-9);
        let one = Sample { orders: 1, deviation: 0.0 };
        assert!((kept(50.0, 2.0).limit(one) - (50.0 + ERRORS * 4.5_f64.sqrt() + ROUNDED)).abs() < 1e-9);
        let wider = Sample { deviation: 4.0, ..same };
        assert!((kept(50.0, 2.0).limit(wider) - (50.0 + ERRORS * 2.5_f64.sqrt() + ROUNDED)).abs() < 1e-9);
        // Without spread, any other count is a change of the driver.
        assert!((kept(50.0, 0.0).limit(wider) - (50.0 + ROUNDED)).abs() < 1e-9);
    }

    #[test]
    fn rows_with_and_without_spread_are_read() {
        let row = |text: &str| Kept::read(&text.parse::<toml::Table>().unwrap()["a"]);
        assert_eq!(
            row("a = 37.6"),
            Some(Kept { sample: Sample { orders: 1, deviation: 0.0 }, ..kept(37.6, 0.0) })
        );
        assert_eq!(row("a = { mean = 51.7, deviation = 6.6, orders = 8 }"), Some(kept(51.7, 6.6)));
        assert_eq!(row("a = { mean = 51.7, orders = 8 }"), None);
        assert_eq!(row("a = \"51.7\""), None);
    }
}
