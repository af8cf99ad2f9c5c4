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
    /// Whether the line, the operator that is replaced and the function are in `text`.
    fn is_in(&self, text: &str) -> bool {
        let operator = self.mutant.strip_prefix("replace ").and_then(|rest| rest.split_once(" with "));
        let operator =
            operator.map(|(operator, _)| operator).filter(|operator| !operator.contains(['(', ' ', ':']));
        let is_symbol =
            |text: &&str| !text.starts_with(|first: char| first.is_alphanumeric() || first == '_');
        let operator = operator.filter(is_symbol).unwrap_or_default();
        text.lines().any(|line| line.trim() == self.line && line.contains(operator))
    }

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

    pub fn lists(&self, key: &Key) -> bool {
        self.entries.iter().any(|entry| entry.key == *key)
    }

    pub fn keys(&self) -> Vec<Key> {
        self.entries.iter().map(|entry| entry.key.clone()).collect()
    }

    /// Removes the entry of a mutant.
    pub fn remove(&mut self, key: &Key) {
        self.entries.retain(|entry| entry.key != *key);
    }

    /// Removes the entries of all files but those that `is_wanted` names.
    pub fn keep_files(&mut self, is_wanted: impl Fn(&str) -> bool) {
        self.entries.retain(|entry| is_wanted(&entry.key.file));
    }

    /// Returns the entries whose line is not in their file, or does not contain what the mutant replaces.
    pub fn of_missing_code(&self) -> Vec<Key> {
        let is_missing = |key: &Key| {
            let text = fs::read_to_string(shell::root().join(&key.file)).unwrap_or_default();
            !key.is_in(&text)
        };
        self.keys().into_iter().filter(is_missing).collect()
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
    fn entries_are_removed_by_mutant_and_by_file() {
        let entries: String = ["a.rs", "b.rs", "c.rs"]
            .map(|file| {
                key(file, "replace f with ()").entry().replace("reason = \"\"", "reason = \"equal\"") + "\n"
            })
            .concat();
        let mut accepted = Accepted::parse(&entries).unwrap();
        accepted.remove(&key("a.rs", "replace f with ()"));
        accepted.remove(&key("b.rs", "replace g with ()"));
        accepted.keep_files(|file| file == "b.rs");
        assert_eq!(accepted.keys(), [key("b.rs", "replace f with ()")]);
    }

    #[test]
    fn code_that_changed_is_missing() {
        let key = |mutant: &str| Key { file: "a.rs".into(), mutant: mutant.into(), line: "a + b".into() };
        assert!(key("replace + with - in f").is_in("fn f() {\n    a + b\n}"));
        assert!(key("replace f -> u8 with 0").is_in("    a + b"));
        assert!(!key("replace * with / in f").is_in("a + b"));
        assert!(!key("replace + with - in f").is_in("a + b + c"));
    }
}
