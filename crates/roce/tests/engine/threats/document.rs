// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checks the list of threats in `docs/threat-model.md`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns file and name of each test that the document names as `` `file.rs::test` ``.
fn named(text: &str) -> BTreeSet<(String, String)> {
    let quoted = text.split('`').skip(1).step_by(2);
    let tests = quoted.filter_map(|words| words.split_once(".rs::"));
    tests.map(|(file, test)| (format!("{file}.rs"), test.to_owned())).collect()
}

#[test]
fn every_test_named_in_the_threat_model_exists() {
    let document = std::fs::read_to_string(root().join("docs/threat-model.md")).unwrap();
    let tests = named(&document);
    assert!(tests.len() >= 30, "only {} tests are named", tests.len());
    let missing: Vec<_> = tests
        .iter()
        .filter(|(file, test)| {
            let source = std::fs::read_to_string(root().join(file)).unwrap_or_default();
            // Plain tests and proptest properties both have the attribute.
            let found = source.split("#[test]").skip(1).any(|rest| {
                let function = rest.split_once("fn ").map_or("", |(_, function)| function);
                function.starts_with(&format!("{test}(")) || function.starts_with(&format!("{test} ("))
            });
            !found
        })
        .collect();
    assert!(missing.is_empty(), "named tests that do not exist: {missing:#?}");
}

#[test]
fn every_threat_is_mitigated_or_accepted() {
    let document = std::fs::read_to_string(root().join("docs/threat-model.md")).unwrap();
    let threats: Vec<&str> = document.split("\n**T").skip(1).collect();
    assert!(threats.len() >= 37, "{} threats", threats.len());
    assert!(!document.contains("\n| T"), "a threat is in a table");
    let mut numbers = BTreeSet::new();
    for threat in threats {
        let (number, text) = threat.split_once("** ").expect("a number in bold type");
        assert!(numbers.insert(number), "T{number} is not unique");
        let entry = |name: &str| {
            let line = text.lines().take(5).find_map(|line| line.strip_prefix(name));
            line.filter(|line| !line.is_empty()).unwrap_or_else(|| panic!("T{number} has no line {name}"))
        };
        let (_, tests) = (entry("- Protection: "), entry("- Tests: "));
        assert!(
            tests.contains(".rs::") || tests.contains("accepted"),
            "T{number} is neither mitigated nor accepted"
        );
    }
}
