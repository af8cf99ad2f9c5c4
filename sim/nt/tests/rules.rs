// SPDX-License-Identifier: MIT OR Apache-2.0

//! Each report of a violation of the kernel's rules says where the rule is stated, by one table for reports and page.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::on_host::{memory, violates};
use nt_sim::{
    BugCheck,
    guest::Guest,
    nt::{handles::ZwClose, mdl::IoAllocateMdl, mdl::MmUnlockPages, rundown::ExReleaseRundownProtection},
    verifier::rules::RULES,
};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Returns the files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("a file").path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn sources() -> Vec<(PathBuf, String)> {
    let files = files(&root().join("sim/nt/src"));
    files.into_iter().map(|path| (path.clone(), fs::read_to_string(path).expect("a source file"))).collect()
}

#[test]
fn report_ends_with_the_pages_of_the_rule_or_of_the_bug_check() {
    let rule = "whose pages are not locked (source: WDK, MmProbeAndLockPages, MmUnlockPages, bug check 0xC4 0x7C, 0xB0)";
    violates(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, rule, |host| {
        let buffer: Guest<u8> = memory(host);
        MmUnlockPages(IoAllocateMdl(buffer.address(), 16, 0, 0, Guest::null()));
    });
    violates(BugCheck::INVALID_KERNEL_HANDLE, "closed already (source: WDK, bug check 0x93)", |_| {
        ZwClose(0x1234);
    });
    violates(
        BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "without a matching acquisition (source: WDK, ExReleaseRundownProtection)",
        |host| ExReleaseRundownProtection(memory(host)),
    );
}

/// The tables have the same rows, in the same order.
#[test]
fn page_of_the_verifier_has_the_rules_of_the_table() {
    let page = fs::read_to_string(root().join("docs/verifier.md")).expect("the page");
    let (_, rest) = page.split_once("## Pages that state the kernel's rules").expect("the part of the page");
    let part = rest.split("\n## ").next().unwrap_or_default();
    let rows: Vec<_> = part.lines().filter(|line| line.starts_with("| ")).skip(2).collect();
    let expected: Vec<_> =
        RULES.iter().map(|rule| format!("| {} | {} |", rule.statement, rule.pages)).collect();
    assert_eq!(rows, expected);
}

/// A rule without a check is none. The codes of Driver Verifier are those of its many checks: each has a rule.
#[test]
fn each_rule_is_that_of_a_check_and_each_check_of_the_verifier_has_a_rule() {
    let sources = sources();
    let code: String = sources.iter().map(|(_, text)| text.as_str()).collect();
    let table = fs::read_to_string(root().join("sim/nt/src/verifier/rules.rs")).expect("the table");
    let names: Vec<_> = table
        .lines()
        .filter_map(|line| line.strip_prefix("    ")?.split_once(": \"").map(|(name, _)| name))
        .collect();
    assert_eq!(names.len(), RULES.len());
    for name in names {
        assert!(code.contains(&format!("rules::{name},")), "no check names {name}");
    }
    for (path, text) in &sources {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for unnamed in ["violation(BugCheck::DRIVER_VERIFIER_", "violation( BugCheck::DRIVER_VERIFIER_"] {
            let at = words.match_indices(unnamed).find(|(at, _)| !words[..*at].ends_with("undocumented_"));
            assert!(at.is_none(), "{} has a check without a rule", path.display());
        }
    }
}
