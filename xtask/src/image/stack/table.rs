// SPDX-License-Identifier: MIT OR Apache-2.0

//! The table of entry points, of calls whose targets instructions do not determine, and of bounds of recursions.

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

/// The table, from the repository's root.
pub const TABLE: &str = "xtask/src/image/stack/table.toml";

/// The whole table. Names of functions are those of the debug information, with `*` for any text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    pub entry: Vec<Entry>,
    pub call: Vec<Call>,
    #[serde(default)]
    pub recursion: Vec<Recursion>,
}

/// Functions that Windows or an NDK consumer calls.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Printed.
    pub name: String,
    pub functions: Vec<String>,
    /// Bytes of stack that none of them may exceed.
    pub limit: u32,
}

/// Indirect calls of some functions. Those of a function are judged by the first row with its name.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    pub from: Vec<String>,
    /// Functions whose address is taken. None: the call leaves the driver.
    pub to: Vec<String>,
    pub reason: String,
}

/// Functions that call each other.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recursion {
    pub functions: Vec<String>,
    /// How often each of them is on the stack at most.
    pub times: u32,
    pub reason: String,
}

impl Table {
    /// Reads a table.
    ///
    /// # Errors
    /// The text is no such table.
    pub fn parse(text: &str) -> Result<Self> {
        let table: Self = toml::from_str(text).context(TABLE)?;
        let reasons = table.call.iter().map(|call| &call.reason);
        let mut reasons = reasons.chain(table.recursion.iter().map(|recursion| &recursion.reason));
        ensure!(reasons.all(|reason| !reason.is_empty()), "{TABLE}: a row has no reason");
        Ok(table)
    }
}

/// Whether a name fits one of the patterns.
pub fn fits_any(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| fits(pattern, name))
}

/// Whether a name fits a pattern.
pub fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_whole_names() {
        assert!(fits("a::b", "a::b") && !fits("a::b", "a::bc") && !fits("a::b", "xa::b"));
        assert!(fits("a::*", "a::b") && fits("*::b", "a::b") && fits("*", ""));
        assert!(fits("a<*>::b", "a<c<d> >::b") && !fits("a<*>::b", "a<c>::bc"));
        assert!(fits("a*b*c", "abbc") && !fits("a*b*c", "ac") && !fits("ab*bc", "abc"));
    }

    #[test]
    fn a_row_without_a_reason_is_refused() {
        let row = |reason: &str| format!("entry = []\n[[call]]\nfrom = []\nto = []\nreason = \"{reason}\"\n");
        assert!(Table::parse(&row("why")).is_ok());
        assert!(Table::parse(&row("")).is_err());
    }
}
