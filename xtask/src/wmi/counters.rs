// SPDX-License-Identifier: MIT OR Apache-2.0

//! The counters of the driver: those that the engine's source declares, then the driver's own.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use viordma_inf::counters::OF_DRIVER;

use crate::{book::links::plain, shell};

/// The file that declares the engine's counters.
const SOURCE: &str = "crates/roce/src/stats.rs";

/// A counter: its name, and what is counted.
pub type Counter = (String, String);

/// Returns all counters, in the order in which the driver reports them.
///
/// # Errors
/// The source cannot be read, or declares none.
pub fn all() -> Result<Vec<Counter>> {
    let source =
        fs::read_to_string(shell::root().join(SOURCE)).with_context(|| format!("cannot read {SOURCE}"))?;
    let mut counters = declared(&source);
    ensure!(!counters.is_empty(), "{SOURCE} declares no counters");
    counters.extend(OF_DRIVER.map(|counter| (counter.name.to_owned(), counter.text.to_owned())));
    Ok(counters)
}

/// Returns the counters that a source declares in `counters!`.
pub fn declared(source: &str) -> Vec<Counter> {
    let declared = source.split("\ncounters! {\n").nth(1).and_then(|rest| rest.split("\n}").next());
    let (mut counters, mut text) = (Vec::new(), Vec::new());
    for line in declared.unwrap_or_default().lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("/// ") {
            text.push(comment);
        } else {
            // Links between items of the code lead nowhere else.
            let comment = plain(&text.join(" ")).replace("[`", "`").replace("`]", "`");
            counters.push((line.trim_end_matches(',').to_owned(), comment));
            text.clear();
        }
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_their_comments() {
        let source = "macro\ncounters! {\n    /// Frames\n    /// [`received`](crate::x).\n    rx_frames,\n    /// [`Sent`].\n    tx_frames,\n}\nfn f() {}\n";
        let expected = [("rx_frames", "Frames `received`."), ("tx_frames", "`Sent`.")];
        assert_eq!(declared(source), expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
    }
}
