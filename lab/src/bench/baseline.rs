// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counts of an earlier run, which later runs are compared with: files in `lab/baseline`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::PathBuf,
};

use anyhow::{Context as _, Result};
use serde::{Deserialize, de::DeserializeOwned};

use super::figure::{Figure, Sample};
use crate::workspace;

/// Share by which a count that is no mean over orders of events may exceed its baseline.
const TOLERANCE: f64 = 0.03;

/// Largest error of a count in a file.
const ROUNDED: f64 = 0.05;

/// Standard errors of the difference of two means by which a count may exceed its baseline.
const ERRORS: f64 = 4.5;

/// File of the counts of the driver's image in virtual time.
const IMAGE: &str = "image.toml";

/// Counts by name.
pub type Counts = BTreeMap<String, f64>;

fn path(file: &str) -> PathBuf {
    workspace::root().join("lab/baseline").join(file)
}

/// Returns the rows of the baseline in a file.
pub fn read<T: DeserializeOwned>(file: &str) -> Result<BTreeMap<String, T>> {
    let path = path(file);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("cannot read {}", path.display()))
}

/// Writes the baseline for later runs. `what` says what is counted, and `check` which command compares with it.
pub fn keep(file: &str, what: &str, check: &str, counts: &Counts) -> Result<()> {
    let failure = format!("one is exceeded by more than {} %", 100.0 * TOLERANCE);
    let rows = counts.iter().map(|(name, count)| (name, format!("{count:.1}")));
    write(file, &text(what, check, &failure, rows))
}

/// Returns the text of a baseline: `check` fails when what `failure` says happens.
fn text<'a>(
    what: &str,
    check: &str,
    failure: &str,
    rows: impl Iterator<Item = (&'a String, String)>,
) -> String {
    let mut text = format!(
        "# {what}: written by `{check} --keep-baseline`.\n\
         # `{check}` compares with these and fails when {failure}.\n"
    );
    for (name, row) in rows {
        let _ = writeln!(text, "\"{name}\" = {row}");
    }
    text
}

fn write(file: &str, text: &str) -> Result<()> {
    let path = path(file);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Gives a figure its limit, if the baseline has its name.
pub fn limited(baseline: &Counts, name: &str, figure: Figure) -> Figure {
    let limit = baseline.get(name).map(|count| count * (1.0 + TOLERANCE) + ROUNDED);
    Figure { limit, ..figure }
}

/// Gives the figures with a [sample](Figure::sample) their limits. One without a limit has no baseline yet.
pub fn limit_counted(figures: &mut [Figure]) -> Result<()> {
    let baseline = read::<Kept>(IMAGE)?;
    for figure in figures {
        let limit = figure.sample.zip(baseline.get(&figure.name)).map(|(sample, kept)| kept.limit(sample));
        figure.limit = limit.or(figure.limit);
    }
    Ok(())
}

/// Returns the names that only the figures with a [sample](Figure::sample) have, or only their baseline.
pub fn unmatched(figures: &[Figure]) -> Result<Vec<String>> {
    Ok(differences(&read(IMAGE)?, figures))
}

fn differences(baseline: &BTreeMap<String, Kept>, figures: &[Figure]) -> Vec<String> {
    let counted: BTreeSet<&String> =
        figures.iter().filter(|figure| figure.sample.is_some()).map(|figure| &figure.name).collect();
    counted.symmetric_difference(&baseline.keys().collect()).map(ToString::to_string).collect()
}

/// Writes the figures with a [sample](Figure::sample) as the baseline for later runs.
pub fn keep_counted(figures: &[Figure]) -> Result<()> {
    write(IMAGE, &text_of_counted(figures))
}

fn text_of_counted(figures: &[Figure]) -> String {
    let counted: BTreeMap<&String, Kept> = figures
        .iter()
        .filter_map(|figure| Some((&figure.name, Kept { mean: figure.value, sample: figure.sample? })))
        .collect();
    let rows = counted.into_iter().map(|(name, Kept { mean, sample: Sample { orders, deviation } })| {
        (name, format!("{{ mean = {mean:.1}, deviation = {deviation:.1}, orders = {orders} }}"))
    });
    let failure = format!("a mean exceeds one by more than {ERRORS} standard errors of their difference");
    text("What the driver's image does, in virtual time", "cargo xtask bench --counts", &failure, rows)
}

/// A row of the baseline of the driver's image.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
struct Kept {
    mean: f64,
    #[serde(flatten)]
    sample: Sample,
}

impl Kept {
    /// Returns the largest mean that another sample of the same distribution may have. A deviation of 0 is one of at most [`ROUNDED`],
    /// whatever the other's is.
    fn limit(&self, other: Sample) -> f64 {
        let freedom = |sample: Sample| sample.orders.saturating_sub(1) as f64;
        let squares = |sample: Sample| freedom(sample) * sample.deviation.powi(2);
        let freedom = (freedom(self.sample) + freedom(other)).max(1.0);
        let pooled = (squares(self.sample) + squares(other)) / freedom;
        let variance = if self.sample.deviation == 0.0 { ROUNDED.powi(2) } else { pooled };
        let of_difference = variance * (1.0 / self.sample.orders as f64 + 1.0 / other.orders as f64);
        self.mean + ERRORS * of_difference.sqrt() + ROUNDED
    }
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
        // The spread of the other sample is a change of the driver, too.
        assert!((kept(50.0, 0.0).limit(wider) - (50.0 + (ERRORS / 2.0 + 1.0) * ROUNDED)).abs() < 1e-9);
    }

    #[test]
    fn baseline_is_read_as_it_was_written() {
        let of = |name: &str, value: f64, sample: Sample| Figure {
            sample: Some(sample),
            ..Figure::new(name, value, Unit::PerPacket)
        };
        let figures = [
            of("b", 51.74, Sample { orders: 8, deviation: 6.61 }),
            of("a", 37.6, Sample { orders: 8, deviation: 0.04 }),
            Figure::new("c", 1.0, Unit::PerPacket),
        ];
        let rows: BTreeMap<String, Kept> = toml::from_str(&text_of_counted(&figures)).unwrap();
        assert_eq!(rows, BTreeMap::from([("a".into(), kept(37.6, 0.0)), ("b".into(), kept(51.7, 6.6))]));
    }
}
