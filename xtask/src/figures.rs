// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checks that figures of the documents that `lab/baseline` also holds are equal to these: the baselines are their one source.

use std::{collections::BTreeMap, fs};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::shell;

/// The baselines, and the documents with a row for each of their figures.
const PAGES: [(&str, &str); 3] = [
    ("lab/baseline/image.toml", "docs/performance.md"),
    ("lab/baseline/instructions.toml", "docs/performance.md"),
    ("lab/baseline/miniport.toml", "docs/miniport.md"),
];

/// Counts of zero, which the page states in a sentence.
const IN_A_SENTENCE: &str = "notifications per 1000 frames received";

/// Compares the documents with the baselines.
///
/// # Errors
/// A figure that a document lacks, or that differs from the baseline.
pub fn check() -> Result<()> {
    let mut faults = Vec::new();
    for (baseline, page) in PAGES {
        let read = |path: &str| {
            fs::read_to_string(shell::root().join(path)).with_context(|| format!("cannot read {path}"))
        };
        let figures: BTreeMap<String, Row> =
            toml::from_str(&read(baseline)?).with_context(|| format!("cannot read {baseline}"))?;
        faults.extend(
            missing(&figures, &read(page)?).into_iter().map(|row| format!("{page} has no row {row}")),
        );
    }
    for fault in &faults {
        println!("{fault}, which lab/baseline lists");
    }
    ensure!(faults.is_empty(), "{} figures of documents differ from lab/baseline", faults.len());
    Ok(())
}

/// A row of a baseline.
#[derive(Deserialize)]
#[serde(untagged)]
enum Row {
    Exact(f64),
    OfOrders { mean: f64, deviation: f64 },
}

impl Row {
    /// Returns the cells of the figure as the documents write them.
    fn cells(&self) -> Vec<String> {
        match self {
            Self::Exact(figure) => vec![shown(*figure)],
            Self::OfOrders { mean, deviation } => vec![shown(*mean), format!("{deviation:.1}")],
        }
    }
}

/// Rows that a page lacks: name and figure.
fn missing(figures: &BTreeMap<String, Row>, page: &str) -> Vec<String> {
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    let mut missing = Vec::new();
    for (name, figure) in figures {
        let (name, cells) = (row_name(name), figure.cells());
        let has_all = |row: &Vec<&str>| cells.iter().all(|cell| row.contains(&cell.as_str()));
        let is_row = |row: &Vec<&str>| row.first() == Some(&name.as_str()) && has_all(row);
        if !name.ends_with(IN_A_SENTENCE) && !rows.iter().any(is_row) {
            missing.push(format!("\"{name}\" with {}", cells.join(" and ")));
        }
    }
    missing
}

/// The first cell of the row of a figure. Those of the miniport baseline name the driver and the load in other words:
/// "viordma, frames received, one at a time: interrupts per 1000 frames" is "one at a time: interrupts per 1000 frames received".
fn row_name(name: &str) -> String {
    let short = || {
        let rest = name.strip_prefix("viordma, ")?;
        let (load, counted) = rest.strip_prefix("frames ")?.split_once(": ")?;
        let (direction, load) = load.split_once(", ")?;
        let load = if load.starts_with("chains") { "chains" } else { load };
        Some(format!("{load}: {counted} {direction}"))
    };
    short().unwrap_or_else(|| name.to_owned())
}

/// A figure as the documents write it: without decimals, thousands with a comma.
fn shown(figure: f64) -> String {
    let digits = format!("{figure:.0}");
    match digits.len().checked_sub(3) {
        Some(at @ 1..) => format!("{},{}", &digits[..at], &digits[at..]),
        _ => digits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_that_differs_from_the_baseline_is_missing() {
        let figures = BTreeMap::from([
            ("post to wire".to_owned(), Row::Exact(1112.4)),
            ("sends".to_owned(), Row::OfOrders { mean: 51.7, deviation: 6.6 }),
            ("writes".to_owned(), Row::OfOrders { mean: 51.7, deviation: 6.6 }),
            (
                "viordma, frames received, chains of 16, 64 at a time: interrupts per 1000 frames".to_owned(),
                Row::Exact(32.0),
            ),
            (
                "viordma, frames transmitted, chains of 16, 64 at a time: instructions of the image per frame"
                    .to_owned(),
                Row::Exact(526.2),
            ),
        ]);
        let page = "| post to wire | the call | 1,112 | 800 |\n| sends | 52 | 6.6 |\n| writes | 52 | 6.7 |\n| chains: interrupts per 1000 frames received | 523 | 32 |\n\
                    | chains: instructions of the image per frame transmitted | 1,751 | 527 |\n";
        let expected = [
            "\"chains: instructions of the image per frame transmitted\" with 526",
            "\"writes\" with 52 and 6.6",
        ];
        assert_eq!(missing(&figures, page), expected);
    }

    #[test]
    fn figures_have_commas_between_thousands() {
        assert_eq!([32.0, 597.0, 1112.4].map(shown), ["32", "597", "1,112"]);
    }
}
