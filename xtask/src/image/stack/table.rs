// SPDX-License-Identifier: MIT OR Apache-2.0

//! The table of entry points, of calls whose targets instructions do not determine, and of bounds of recursions.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use viordma_inf::Edition;

use crate::shell;

/// The table of all images, from the repository's root.
const TABLE: &str = "xtask/src/image/stack/table.toml";

/// The rows of the strict edition beyond it.
const STRICT: &str = "xtask/src/image/stack/strict.toml";

/// A whole file. Names of functions are those of the debug information, with `*` for any text.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    #[serde(default)]
    pub entry: Vec<Entry>,
    #[serde(default)]
    pub call: Vec<Call>,
    #[serde(default)]
    pub recursion: Vec<Recursion>,
}

/// The tables of one image.
pub struct Tables {
    /// The file of the last one.
    pub file: &'static str,
    /// That of all images.
    pub common: Table,
    /// The calls and recursions that this image has beyond it.
    pub own: Option<Table>,
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

/// Indirect calls of some functions. Those of a function are judged by the first row with its name, and by each such row of the image's own table.
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
    /// The text is no such table, or a row has no reason.
    pub fn parse(text: &str) -> Result<Self> {
        let table: Self = toml::from_str(text)?;
        let reasons = table.call.iter().map(|call| &call.reason);
        let mut reasons = reasons.chain(table.recursion.iter().map(|recursion| &recursion.reason));
        ensure!(reasons.all(|reason| !reason.is_empty()), "a row has no reason");
        Ok(table)
    }

    /// Reads the file `name` of the repository.
    fn load(name: &str) -> Result<Self> {
        let text = fs::read_to_string(shell::root().join(name));
        text.map_err(Into::into).and_then(|text| Self::parse(&text)).context(name.to_owned())
    }
}

impl Tables {
    /// Reads the tables of an edition.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn load(edition: Edition) -> Result<Self> {
        let common = Table::load(TABLE)?;
        match edition {
            Edition::Standard => Ok(Self { file: TABLE, common, own: None }),
            Edition::Strict => Ok(Self { file: STRICT, common, own: Some(Table::load(STRICT)?) }),
        }
    }

    /// Returns the rows of the indirect calls of a function.
    pub fn calls<'tables>(&'tables self, caller: &str) -> impl Iterator<Item = &'tables Call> {
        let fits = |row: &&Call| fits_any(&row.from, caller);
        let own = self.own.iter().flat_map(|table| &table.call);
        self.common.call.iter().find(fits).into_iter().chain(own.filter(fits))
    }

    /// Returns the bounds of recursions.
    pub fn recursions(&self) -> impl Iterator<Item = &Recursion> {
        self.all().flat_map(|table| &table.recursion)
    }

    /// Returns the functions of other functions' rows: those that may be called, and entry points.
    pub fn named(&self) -> impl Iterator<Item = &String> {
        let entries = self.common.entry.iter().flat_map(|entry| &entry.functions);
        entries.chain(self.all().flat_map(|table| &table.call).flat_map(|call| &call.to))
    }

    /// Returns the last table, whose names functions of this image must have: a table of several images need not fit each.
    pub fn last(&self) -> &Table {
        self.own.as_ref().unwrap_or(&self.common)
    }

    fn all(&self) -> impl Iterator<Item = &Table> {
        [&self.common].into_iter().chain(&self.own)
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
