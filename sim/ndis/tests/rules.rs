// SPDX-License-Identifier: MIT OR Apache-2.0

//! Each report of a violation of NDIS's rules says where the rule is stated, by one table for reports and page.

use std::{collections::BTreeSet, fs, path::Path};

use crate::common::{
    lists,
    scripted::{Script, in_initialize, verdict, verdict_while_running},
};
use ndis_sim::{network_rules, rules::RULES};
use ndk_abi::ndis::NDIS_STATUS_FAILURE;
use nt_sim::Tolerance;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Returns the rows of the table below a heading of the page.
fn rows(heading: &str) -> Vec<String> {
    let page = fs::read_to_string(root().join("docs/verifier.md")).expect("the page");
    let (_, rest) = page.split_once(heading).expect("the part of the page");
    let part = rest.split("\n#").next().unwrap_or_default();
    part.lines().filter(|line| line.starts_with("| ")).skip(2).map(ToOwned::to_owned).collect()
}

#[test]
fn reports_end_with_the_pages_of_the_rule() {
    let failed = Script { pause: Some(|_| NDIS_STATUS_FAILURE), ..Script::default() };
    let fails = verdict_while_running(failed, |_| {});
    assert!(fails.contains("MiniportPause failed: 0xc0000001 (source: WDK, MINIPORT_PAUSE)\n"), "{fails}");
    let zero = verdict(in_initialize(|handle| {
        let _ = lists::pool_with(handle, |parameters| parameters.PoolTag = 0);
    }));
    let expected = "PoolTag is 0 (source: WDK, NET_BUFFER_LIST_POOL_PARAMETERS)\n";
    assert!(zero.contains(expected), "{zero}");
}

/// The tables have the same rows, in the same order.
#[test]
fn page_of_the_verifier_has_the_rules_of_the_tables() {
    let expected = RULES.iter().map(|rule| format!("| {} | {} |", rule.statement, rule.pages));
    assert_eq!(rows("### Pages that state NDIS's rules"), expected.collect::<Vec<_>>());
    let expected = network_rules::RULES.iter().map(|rule| format!("| {} | {} |", rule.statement, rule.pages));
    let heading = "## Pages that state the rules of Winsock Kernel and the IP helper";
    assert_eq!(rows(heading), expected.collect::<Vec<_>>());
}

/// The first four are of the kernel: `docs/consumer.md` has them.
#[test]
fn page_of_the_verifier_has_what_no_documentation_forbids() {
    let named = rows("### Rules that no documentation has").into_iter().flat_map(|row| {
        let cell = row.split('|').nth(2).unwrap_or_default();
        cell.split('`').skip(1).step_by(2).map(ToOwned::to_owned).collect::<Vec<_>>()
    });
    let named: BTreeSet<_> = named.collect();
    assert_eq!(named, Tolerance::ALL[4..].iter().map(|fault| fault.name().to_owned()).collect());
}

/// A rule without a check is none.
#[test]
fn each_rule_is_that_of_a_check() {
    let folder = root().join("sim/ndis/src");
    let files = fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("a file").path());
    let code: String = files
        .filter(|path| path.is_file())
        .map(|path| fs::read_to_string(path).expect("a source file"))
        .collect();
    let table = fs::read_to_string(root().join("sim/ndis/src/rules.rs")).expect("the table");
    let names =
        table.lines().filter_map(|line| line.strip_prefix("    ")?.split_once(": \"").map(|(name, _)| name));
    let names: Vec<_> = names.collect();
    assert_eq!(names.len(), RULES.len());
    for name in names {
        let mention = format!("rules::{name}");
        let mut uses = code.match_indices(&mention);
        let goes_on = |next: char| next == '_' || next.is_ascii_uppercase();
        let is_whole = |(at, _): (usize, &str)| !code[at + mention.len()..].starts_with(goes_on);
        assert!(uses.any(is_whole), "no check names {name}");
    }
}
