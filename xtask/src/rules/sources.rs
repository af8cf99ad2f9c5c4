// SPDX-License-Identifier: MIT OR Apache-2.0

//! The places in the sources that cite rules: in code, or in tests.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::Result;

use super::citation::{self, Citation};
use crate::shell;

/// Files and folders with sources of this project.
const SOURCES: [&str; 10] =
    ["consumers", "crates", "drivers", "fuzz", "inf", "lab/src", "sim", "src", "tests", "xtask/src"];

/// The places that cite a rule.
#[derive(Default)]
pub struct Places {
    pub code: Vec<String>,
    pub tests: Vec<String>,
}

/// The sources as this command reads them.
#[derive(Default)]
pub struct Sources {
    /// By rule or section.
    pub cited: BTreeMap<String, Places>,
    /// Sentences about citations that are misplaced or malformed.
    pub faults: Vec<String>,
}

/// Reads all sources.
///
/// # Errors
/// A file that cannot be read.
pub fn read() -> Result<Sources> {
    let mut sources = Sources::default();
    for path in SOURCES {
        add(&shell::root().join(path), &mut sources)?;
    }
    Ok(sources)
}

/// Reads a file, or the files of a directory.
fn add(path: &Path, sources: &mut Sources) -> Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            add(&entry?.path(), sources)?;
        }
        return Ok(());
    }
    if path.extension().is_none_or(|extension| extension != "rs" && extension != "inx") {
        return Ok(());
    }
    let text = fs::read_to_string(path)?;
    let name = path.strip_prefix(shell::root()).unwrap_or(path).display().to_string();
    add_text(&name, &text, sources);
    Ok(())
}

fn add_text(name: &str, text: &str, sources: &mut Sources) {
    let only_tests = name.split('/').any(|part| part == "tests") || name.ends_with("tests.rs");
    // A module of unit tests is at the end of its file.
    let tests_from = text.lines().position(|line| line.trim() == "#[cfg(test)]").unwrap_or(usize::MAX);
    let (citations, faults) = citation::read(text);
    for Citation { rule, line } in citations {
        let places = sources.cited.entry(rule).or_default();
        let list = if only_tests || line > tests_from { &mut places.tests } else { &mut places.code };
        list.push(format!("{name}:{line}"));
    }
    sources.faults.extend(faults.into_iter().map(|(line, fault)| format!("{name}:{line}: {fault}")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_recognized_by_their_path_and_by_the_module_that_they_are_in() {
        let mut sources = Sources::default();
        let text = "@R-CQ-7\nfn f() {}\n#[cfg(test)]\nmod tests {\n@R-CQ-8\nfn g() {}\n}\n"
            .replace('@', "//\u{3d} ");
        for name in ["a/src/b.rs", "a/tests/b.rs", "a/src/tests.rs"] {
            add_text(name, &text, &mut sources);
        }
        assert_eq!(sources.cited["R-CQ-7"].code, ["a/src/b.rs:1"]);
        assert_eq!(sources.cited["R-CQ-7"].tests, ["a/tests/b.rs:1", "a/src/tests.rs:1"]);
        assert!(sources.cited["R-CQ-8"].code.is_empty());
    }
}
