// SPDX-License-Identifier: MIT OR Apache-2.0

//! The list of accepted survivors.

use std::{collections::BTreeSet, fs};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::shell;

/// The list, relative to the workspace.
pub const LIST: &str = "docs/mutants.toml";

/// Identifies mutants: those of the same line that read alike are one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Key {
    pub file: String,
    /// The change in words, without its place.
    pub mutant: String,
    /// The line of the change, without indentation.
    pub line: String,
}

impl Key {
    /// Returns the entry that would accept the survivor, without a reason.
    pub fn entry(&self) -> String {
        let text = |text: &str| toml::Value::from(text).to_string();
        format!(
            "[[survivor]]\nfile = {}\nmutant = {}\nline = {}\nreason = \"\"",
            text(&self.file),
            text(&self.mutant),
            text(&self.line)
        )
    }
}

/// One accepted survivor.
#[derive(Clone, Debug, Deserialize)]
struct Entry {
    #[serde(flatten)]
    key: Key,
    reason: String,
}

/// The accepted survivors.
#[derive(Clone, Debug, Deserialize)]
pub struct Accepted {
    #[serde(default, rename = "survivor")]
    entries: Vec<Entry>,
}

impl Accepted {
    /// Reads the list.
    ///
    /// # Errors
    /// An entry without a reason, or one that is listed twice.
    pub fn read() -> Result<Self> {
        let text =
            fs::read_to_string(shell::root().join(LIST)).with_context(|| format!("cannot read {LIST}"))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self> {
        let accepted: Self = toml::from_str(text).with_context(|| format!("{LIST} is malformed"))?;
        let mut seen = BTreeSet::new();
        for Entry { key, reason } in &accepted.entries {
            ensure!(!reason.trim().is_empty(), "{LIST}: {}: {} has no reason", key.file, key.mutant);
            ensure!(seen.insert(key), "{LIST}: {}: {} is listed twice", key.file, key.mutant);
        }
        Ok(accepted)
    }

    /// Returns the files that have entries.
    pub fn files(&self) -> Vec<String> {
        let files: BTreeSet<&String> = self.entries.iter().map(|entry| &entry.key.file).collect();
        files.into_iter().cloned().collect()
    }

    /// Returns the entries of one file.
    pub fn of(&self, file: &str) -> Self {
        Self { entries: self.entries.iter().filter(|entry| entry.key.file == file).cloned().collect() }
    }

    pub fn lists(&self, key: &Key) -> bool {
        self.entries.iter().any(|entry| entry.key == *key)
    }

    /// Returns the entries that are not among `keys`.
    pub fn missing(&self, keys: impl Iterator<Item = Key>) -> Vec<Key> {
        let keys: BTreeSet<Key> = keys.collect();
        self.entries.iter().map(|entry| entry.key.clone()).filter(|key| !keys.contains(key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(file: &str, mutant: &str) -> Key {
        Key { file: file.into(), mutant: mutant.into(), line: "a \"b\"".into() }
    }

    #[test]
    fn an_entry_without_a_reason_or_listed_twice_is_refused() {
        let entry = key("a.rs", "replace + with -").entry();
        assert!(Accepted::parse(&entry).unwrap_err().to_string().contains("no reason"));
        let entry = entry.replace("reason = \"\"", "reason = \"equal\"");
        let accepted = Accepted::parse(&entry).unwrap();
        assert!(accepted.lists(&key("a.rs", "replace + with -")));
        assert!(Accepted::parse(&format!("{entry}\n{entry}")).unwrap_err().to_string().contains("twice"));
    }

    #[test]
    fn entries_that_no_longer_survive_are_found() {
        let entries: String = ["a.rs", "b.rs"]
            .map(|file| key(file, "replace f with ()").entry().replace("\"\"", "\"equal\"") + "\n")
            .concat();
        let accepted = Accepted::parse(&entries).unwrap();
        assert_eq!(accepted.files(), ["a.rs", "b.rs"]);
        let survivor = key("b.rs", "replace f with ()");
        assert!(accepted.of("b.rs").missing([survivor.clone()].into_iter()).is_empty());
        assert_eq!(accepted.missing([survivor].into_iter()), [key("a.rs", "replace f with ()")]);
    }

    #[test]
    fn every_entry_of_the_list_names_a_line_that_exists() {
        for key in Accepted::read().unwrap().missing(std::iter::empty()) {
            let text = fs::read_to_string(shell::root().join(&key.file)).unwrap_or_default();
            assert!(text.lines().any(|line| line.trim() == key.line), "{}: {}", key.file, key.line);
        }
    }
}
