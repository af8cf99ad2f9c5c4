// SPDX-License-Identifier: MIT OR Apache-2.0

//! Every check of the simulated kernel has a test that expects its report.
//!
//! A check is a call that reports a violation with a text; a test expects it if it has a string of that text.

use std::{fs, path::Path, path::PathBuf};

/// Functions that report a violation if they return at all.
const REPORTS: [&str; 5] = ["violation(", "broken(", "require(", "finding(", "misuse("];

const CHECKED: [&str; 2] = ["sim/nt/src", "sim/ndis/src"];
const TESTS: [&str; 4] = ["sim/nt/tests", "sim/ndis/tests", "sim/device/tests", "tests"];

/// Where the unit tests of a file begin.
const UNIT_TESTS: &str = "#[cfg(test)]\nmod tests";

/// The shortest text by which a test names a check.
const SHORTEST: usize = 8;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the text of the Rust files below a folder, but this one.
fn sources(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder of the repository");
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    paths
        .flat_map(|path| {
            if path.is_dir() {
                sources(&path)
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !path.ends_with("checks.rs")
            {
                vec![fs::read_to_string(&path).expect("a source file")]
            } else {
                Vec::new()
            }
        })
        .collect()
}

/// Returns the string literals of a text, without their line continuations.
fn literals(text: &str) -> Vec<String> {
    let mut literals = Vec::new();
    let mut rest = text;
    while let Some((_, literal)) = rest.split_once('"') {
        let mut end = 0;
        let bytes = literal.as_bytes();
        while end < bytes.len() && bytes[end] != b'"' {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        let end = end.min(bytes.len());
        let lines: Vec<&str> = literal[..end].split("\\\n").collect();
        let (first, more) = lines.split_first().expect("a split has a first part");
        literals.push(first.to_string() + &more.iter().map(|line| line.trim_start()).collect::<String>());
        rest = literal.get(end + 1..).unwrap_or_default();
    }
    literals
}

/// Returns the arguments of the call whose opening parenthesis precedes `text`.
fn arguments(text: &str) -> &str {
    let mut depth = 1;
    let end = text.find(|character| {
        depth += match character {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        depth == 0
    });
    &text[..end.unwrap_or(text.len())]
}

/// Returns the texts of a file's checks: the longest string of each call that reports. Calls without a string pass on the
/// text of another one.
fn checks(source: &str) -> Vec<String> {
    let source = source.split(UNIT_TESTS).next().unwrap_or_default();
    let mut checks = Vec::new();
    for report in REPORTS {
        for (at, _) in source.match_indices(report) {
            let before = &source[..at];
            let is_name = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
            if is_name || before.ends_with("fn ") {
                continue;
            }
            let texts = literals(arguments(&source[at + report.len()..]));
            checks.extend(texts.into_iter().filter(|text| text.len() >= SHORTEST).max_by_key(String::len));
        }
    }
    checks
}

/// Whether `expected` can be a part of the text with placeholders that `check` is.
fn is_part(expected: &str, check: &str) -> bool {
    check.split('{').enumerate().any(|(number, part)| {
        let fixed = if number == 0 { part } else { part.split_once('}').map_or(part, |(_, fixed)| fixed) };
        fixed.len() >= SHORTEST && expected.contains(fixed)
            || expected.len() >= SHORTEST && fixed.contains(expected)
            || overlap(expected, fixed) >= SHORTEST
            || overlap(fixed, expected) >= SHORTEST
    })
}

/// Returns the length of the longest end of `left` with which `right` begins.
fn overlap(left: &str, right: &str) -> usize {
    let ends = left.char_indices().map(|(at, _)| &left[at..]);
    ends.filter(|end| right.starts_with(end)).map(str::len).max().unwrap_or(0)
}

#[test]
fn every_check_is_expected_by_a_test() {
    let in_folders = |folders: &[&str]| -> Vec<String> {
        folders.iter().flat_map(|folder| sources(&root().join(folder))).collect()
    };
    let checked = in_folders(&CHECKED);
    let unit_tests = checked.iter().filter_map(|source| source.split_once(UNIT_TESTS));
    let expected: Vec<String> = in_folders(&TESTS)
        .iter()
        .map(String::as_str)
        .chain(unit_tests.map(|(_, tests)| tests))
        .flat_map(literals)
        .filter(|text| text.len() >= SHORTEST)
        .collect();
    let all: Vec<String> = checked.iter().flat_map(|source| checks(source)).collect();
    assert!(all.len() > 150, "{} checks are found", all.len());
    let is_expected = |check: &String| expected.iter().any(|text| is_part(text, check));
    let missing: Vec<&String> = all.iter().filter(|check| !is_expected(check)).collect();
    assert!(missing.is_empty(), "no test expects {missing:#?}");
}
