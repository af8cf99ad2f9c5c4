// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask objects`: compares the pages in `docs/objects` with the code.
//!
//! | page | code |
//! | --- | --- |
//! | calls, one section each | the members of the dispatch tables in `crates/ndk-provider/src/dispatch` |
//! | statuses and level of a call | the calls that the tests of `ndk-provider` made, which they record |
//! | states | the snapshots of the state tables |
//! | callbacks | the types of callbacks in `crates/ndk-provider/src/base/object/callback.rs` |

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use crate::shell;

const PAGES: &str = "docs/objects";
const TABLES: &str = "crates/ndk-provider/src/dispatch";
const OBJECTS: &str = "crates/ndk-provider/src";
const CALLBACKS: &str = "crates/ndk-provider/src/base/object/callback.rs";
const STATUSES: &str = "crates/ndk-abi/src/nt/status.rs";

/// A call: the page that it belongs on, and its name.
type Call = (&'static str, String);

/// Statuses of a call, and whether it is called at `DISPATCH_LEVEL`.
#[derive(Default, PartialEq, Eq, Debug)]
struct Behavior {
    statuses: BTreeSet<String>,
    raised: bool,
}

/// The dispatch tables and their pages.
const OBJECT_PAGES: [(&str, &str); 10] = [
    ("NDK_ADAPTER_DISPATCH", "adapter"),
    ("NDK_CQ_DISPATCH", "cq"),
    ("NDK_PD_DISPATCH", "pd"),
    ("NDK_MR_DISPATCH", "mr"),
    ("NDK_MW_DISPATCH", "mw"),
    ("NDK_SRQ_DISPATCH", "srq"),
    ("NDK_QP_DISPATCH", "qp"),
    ("NDK_CONNECTOR_DISPATCH", "connector"),
    ("NDK_LISTENER_DISPATCH", "listener"),
    ("NDK_SHARED_ENDPOINT_DISPATCH", "shared-endpoint"),
];

/// Calls on the page of what they create, not on that of their table.
const CREATES: [(&str, &str); 10] = [
    ("NdkCreateCq", "cq"),
    ("NdkCreatePd", "pd"),
    ("NdkCreateMr", "mr"),
    ("NdkCreateMw", "mw"),
    ("NdkCreateSrq", "srq"),
    ("NdkCreateQp", "qp"),
    ("NdkCreateQpWithSrq", "qp"),
    ("NdkCreateConnector", "connector"),
    ("NdkCreateListener", "listener"),
    ("NdkCreateSharedEndpoint", "shared-endpoint"),
];

/// Compares pages and code. Needs the records of a complete run of the tests of `ndk-provider`.
///
/// # Errors
/// A difference, or files that cannot be read.
pub fn run() -> Result<()> {
    let pages = read_pages()?;
    let observed = observed()?;
    let mut faults = Vec::new();
    let described: BTreeMap<Call, Behavior> =
        pages.iter().flat_map(|(page, text)| calls(page, text)).collect();
    let members = members()?;
    differences("calls", &members, &described.keys().cloned().collect(), &mut faults);
    for (call, behavior) in &described {
        let found =
            observed.get(call).unwrap_or(const { &Behavior { statuses: BTreeSet::new(), raised: false } });
        compare(call, behavior, found, &mut faults);
    }
    let snapshots = snapshots(&shell::root().join(OBJECTS))?;
    let blocks: BTreeSet<String> = pages.iter().flat_map(|(_, text)| blocks(text)).collect();
    differences("state tables", &snapshots, &blocks, &mut faults);
    let used = callbacks(&fs::read_to_string(shell::root().join(CALLBACKS))?);
    let named: BTreeSet<String> = pages.iter().flat_map(|(_, text)| callbacks(text)).collect();
    differences("callbacks", &used, &named, &mut faults);
    for fault in &faults {
        println!("{fault}");
    }
    println!("{} pages, {} calls, {} state tables", pages.len(), described.len(), blocks.len());
    ensure!(
        faults.is_empty(),
        "{} differences between {PAGES} and the code; the tests of ndk-provider must have run completely",
        faults.len()
    );
    Ok(())
}

fn differences<T: Ord + std::fmt::Debug>(
    what: &str,
    code: &BTreeSet<T>,
    pages: &BTreeSet<T>,
    faults: &mut Vec<String>,
) {
    faults.extend(code.difference(pages).map(|missing| format!("{what}: no page has {missing:?}")));
    faults.extend(pages.difference(code).map(|extra| format!("{what}: the code has no {extra:?}")));
}

/// Compares what a page says of a call with what the tests saw.
fn compare((page, call): &Call, described: &Behavior, found: &Behavior, faults: &mut Vec<String>) {
    for status in found.statuses.difference(&described.statuses) {
        faults.push(format!("{PAGES}/{page}.md: {call} returned {status}, which the page does not list"));
    }
    for status in described.statuses.difference(&found.statuses) {
        faults.push(format!("{PAGES}/{page}.md: no test saw {call} return {status}"));
    }
    if described.raised != found.raised {
        faults.push(format!("{PAGES}/{page}.md: the tests call {call} at another IRQL"));
    }
}

fn read_pages() -> Result<Vec<(&'static str, String)>> {
    let read = |(_, page): (&str, &'static str)| {
        let path = format!("{PAGES}/{page}.md");
        let text =
            fs::read_to_string(shell::root().join(&path)).with_context(|| format!("cannot read {path}"))?;
        Ok((page, text))
    };
    OBJECT_PAGES.into_iter().chain([("", "README")]).map(read).collect()
}

/// The calls of a page: sections whose title is a function, with a line on the IRQL and a table of statuses.
fn calls(page: &'static str, text: &str) -> Vec<(Call, Behavior)> {
    let mut calls: Vec<(Call, Behavior)> = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("### ") {
            let name = title.trim_matches('`').to_owned();
            calls.push(((page, name), Behavior::default()));
        }
        let Some((_, behavior)) = calls.last_mut() else { continue };
        if line.starts_with("IRQL <= `DISPATCH_LEVEL`") {
            behavior.raised = true;
        }
        if let Some((status, _)) = line.strip_prefix("| `").and_then(|line| line.split_once('`')) {
            behavior.statuses.insert(status.to_owned());
        }
    }
    calls
}

/// The page of a table's member.
fn page_of(table: &str, member: &str) -> Option<&'static str> {
    let find = |list: &[(&str, &'static str)], name: &str| {
        list.iter().find(|(known, _)| *known == name).map(|(_, page)| *page)
    };
    find(&CREATES, member).or_else(|| find(&OBJECT_PAGES, table))
}

/// The members of all dispatch tables.
fn members() -> Result<BTreeSet<Call>> {
    let mut members = BTreeSet::new();
    for entry in fs::read_dir(shell::root().join(TABLES))? {
        let path = entry?.path();
        if path.is_dir() {
            // The same members, with the checks of the strict provider.
            continue;
        }
        let text = fs::read_to_string(path)?;
        let Some((_, rest)) = text.split_once("static TABLE: ") else { continue };
        let (table, rest) = rest.split_once(' ').context("a table has a type")?;
        let (body, _) = rest.split_once("};").context("a table ends")?;
        for line in body.lines().filter_map(|line| line.trim().strip_suffix("),")) {
            let Some((member, _)) = line.split_once(": Some(") else { continue };
            let page = page_of(table, member).with_context(|| format!("{table} has no page"))?;
            members.insert((page, member.to_owned()));
        }
    }
    Ok(members)
}

/// The calls that the tests recorded.
fn observed() -> Result<BTreeMap<Call, Behavior>> {
    let names = status_names(&fs::read_to_string(shell::root().join(STATUSES))?);
    let path = calls_file();
    let text = fs::read_to_string(&path).with_context(|| {
        format!("no calls are recorded in {}: run the tests of ndk-provider", path.display())
    })?;
    let mut observed = BTreeMap::<Call, Behavior>::new();
    for line in text.lines() {
        add(line, &names, &mut observed).with_context(|| format!("{}: {line}", path.display()))?;
    }
    Ok(observed)
}

/// The file that the tests write, in the folder that Cargo names to them as `CARGO_TARGET_TMPDIR`.
fn calls_file() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| shell::root().join("target"), PathBuf::from);
    shell::root().join(target).join("tmp/ndk-calls.txt")
}

/// Adds a record: table, member, status or `-`, whether at `DISPATCH_LEVEL`.
fn add(line: &str, names: &BTreeMap<u32, String>, to: &mut BTreeMap<Call, Behavior>) -> Result<()> {
    let mut words = line.split(' ');
    let mut word = || words.next().context("a record has four words");
    let (table, member, status, raised) = (word()?, word()?, word()?, word()? == "true");
    let table = table.rsplit("::").next().unwrap_or(table);
    let page = page_of(table, member).with_context(|| format!("{table} has no page"))?;
    let behavior = to.entry((page, member.to_owned())).or_default();
    behavior.raised |= raised;
    if status == "-" {
        return Ok(());
    }
    let status = u32::from_str_radix(status.trim_start_matches("0x"), 16)?;
    let name = names.get(&status).with_context(|| format!("{status:#x} has no name"))?;
    behavior.statuses.insert(name.clone());
    Ok(())
}

/// The names of statuses, by value.
fn status_names(text: &str) -> BTreeMap<u32, String> {
    let value = |line: &str| {
        let (name, rest) = line.trim().strip_prefix("pub const ")?.split_once(": NTSTATUS = ")?;
        let digits: String =
            rest.trim_start_matches("0x").chars().take_while(char::is_ascii_hexdigit).collect();
        let value = if rest.starts_with("0x") { u32::from_str_radix(&digits, 16) } else { digits.parse() };
        Some((value.ok()?, name.to_owned()))
    };
    text.lines().filter_map(value).collect()
}

/// The tables that the snapshots of a folder contain.
fn snapshots(folder: &Path) -> Result<BTreeSet<String>> {
    let mut tables = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            tables.extend(snapshots(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "snap") {
            let text = fs::read_to_string(&path)?;
            let table = text.splitn(3, "---\n").nth(2).with_context(|| format!("{}", path.display()))?;
            tables.insert(table.trim_end().to_owned());
        }
    }
    Ok(tables)
}

/// The code blocks of a page.
fn blocks(text: &str) -> Vec<String> {
    text.split("```")
        .skip(1)
        .step_by(2)
        .map(|block| block.trim_start_matches("text\n").trim_end().to_owned())
        .collect()
}

/// The types of event callbacks that a text names.
fn callbacks(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("NDK_FN_") && word.contains("CALLBACK")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Queue\n\n### `NdkArmCq`\n\nIRQL <= `DISPATCH_LEVEL`.\n\n| status | when |\n| --- | --- |\n\
                        | `STATUS_SUCCESS` | always |\n\n```text\nA -> B\n```\n";

    fn faults(described: &Behavior, found: &Behavior) -> usize {
        let mut faults = Vec::new();
        compare(&("cq", "NdkArmCq".into()), described, found, &mut faults);
        faults.len()
    }

    fn behavior(statuses: &[&str], raised: bool) -> Behavior {
        Behavior { statuses: statuses.iter().map(|&status| status.to_owned()).collect(), raised }
    }

    #[test]
    fn page_has_calls_with_their_statuses_and_level_and_state_tables() {
        let found = calls("cq", PAGE);
        assert_eq!(found, [(("cq", "NdkArmCq".to_owned()), behavior(&["STATUS_SUCCESS"], true))]);
        assert_eq!(blocks(PAGE), ["A -> B"]);
    }

    #[test]
    fn status_that_is_not_seen_or_not_described_is_a_difference() {
        let one = behavior(&["STATUS_SUCCESS"], true);
        assert_eq!(faults(&one, &one), 0);
        assert_eq!(faults(&one, &behavior(&["STATUS_SUCCESS", "STATUS_PENDING"], true)), 1);
        assert_eq!(faults(&one, &behavior(&[], true)), 1);
        assert_eq!(faults(&one, &behavior(&["STATUS_SUCCESS"], false)), 1);
    }

    #[test]
    fn member_that_is_missing_on_either_side_is_a_difference() {
        let (code, pages) = (BTreeSet::from([1, 2]), BTreeSet::from([2, 3]));
        let mut faults = Vec::new();
        differences("calls", &code, &pages, &mut faults);
        assert_eq!(faults, ["calls: no page has 1", "calls: the code has no 3"]);
    }

    #[test]
    fn record_is_read_with_the_name_of_its_status() {
        let names = status_names(
            "pub const STATUS_PENDING: NTSTATUS = 0x103;\npub const STATUS_SUCCESS: NTSTATUS = 0;\n",
        );
        let mut found = BTreeMap::new();
        add("ndk_abi::ndk::cq::NDK_CQ_DISPATCH NdkCloseCq 0x00000103 true", &names, &mut found).unwrap();
        add("ndk_abi::ndk::pd::NDK_PD_DISPATCH NdkCreateQp 0x00000000 false", &names, &mut found).unwrap();
        assert_eq!(found[&("cq", "NdkCloseCq".to_owned())], behavior(&["STATUS_PENDING"], true));
        assert_eq!(found[&("qp", "NdkCreateQp".to_owned())], behavior(&["STATUS_SUCCESS"], false));
        add("ndk_abi::ndk::qp::NDK_QP_DISPATCH NdkFlush - true", &names, &mut found).unwrap();
        assert_eq!(found[&("qp", "NdkFlush".to_owned())], behavior(&[], true));
        assert!(add("x NdkNone 0x1 false", &names, &mut found).is_err());
    }

    /// Every table and every state machine is found, so that a page cannot be complete by accident.
    #[test]
    fn code_is_found() {
        assert_eq!(members().unwrap().len(), 70);
        assert!(snapshots(&shell::root().join(OBJECTS)).unwrap().len() >= 5);
    }
}
