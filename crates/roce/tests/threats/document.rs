// SPDX-License-Identifier: MIT OR Apache-2.0

//! The threat model names tests; they exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What the document has between backquotes that looks like `file.rs::test`.
fn named(text: &str) -> BTreeSet<(String, String)> {
    let quoted = text.split('`').skip(1).step_by(2);
    let tests = quoted.filter_map(|words| words.split_once(".rs::"));
    tests.map(|(file, test)| (format!("{file}.rs"), test.to_owned())).collect()
}

#[test]
fn every_test_that_the_threat_model_names_is_there() {
    let document = std::fs::read_to_string(root().join("docs/threat-model.md")).unwrap();
    let tests = named(&document);
    assert!(tests.len() >= 30, "only {} tests are named", tests.len());
    let missing: Vec<_> = tests
        .iter()
        .filter(|(file, test)| {
            let source = std::fs::read_to_string(root().join(file)).unwrap_or_default();
            // An attribute stands before a test, and before properties that proptest checks.
            let found = source.split("#[test]").skip(1).any(|rest| {
                let function = rest.split_once("fn ").map_or("", |(_, function)| function);
                function.starts_with(&format!("{test}(")) || function.starts_with(&format!("{test} ("))
            });
            !found
        })
        .collect();
    assert!(missing.is_empty(), "named, but not there: {missing:#?}");
}

#[test]
fn every_threat_says_what_holds_it_or_that_it_is_accepted() {
    let document = std::fs::read_to_string(root().join("docs/threat-model.md")).unwrap();
    let rows: Vec<_> = document.lines().filter(|line| line.starts_with("| T")).collect();
    assert!(rows.len() >= 20, "{} threats", rows.len());
    let mut numbers = BTreeSet::new();
    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [number, threat, held, tests] = cells[..] else { panic!("not four cells: {row}") };
        assert!(numbers.insert(number), "{number} twice");
        assert!(!threat.is_empty() && !held.is_empty(), "{number} says nothing");
        assert!(
            tests.contains(".rs::") || tests.contains("accepted"),
            "{number} is neither held nor accepted"
        );
    }
}
