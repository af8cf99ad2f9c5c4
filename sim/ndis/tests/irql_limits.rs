// SPDX-License-Identifier: MIT OR Apache-2.0

//! Every import enforces the IRQL that the ABI table documents for it.

use std::{collections::BTreeMap, fs, path::Path};

use ndis_sim::{NDIS, NETIO, WSK};
use nt_sim::{
    Irql,
    cng::CNG,
    host::Subsystem,
    import::{Import, Kind},
    irql::Limit,
    nt::NT,
};

/// Imports whose limit is not the table's, and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("KeWaitForSingleObject", "<= APC_LEVEL unless the timeout is zero: checked in its body"),
    ("KeWaitForMultipleObjects", "<= APC_LEVEL unless the timeout is zero: checked in its body"),
    ("KeSetEvent", "<= APC_LEVEL when Wait is set: checked in its body"),
    ("ExAllocatePoolWithTag", "<= APC_LEVEL for paged pool: checked in its body"),
    ("MmMapLockedPagesSpecifyCache", "<= APC_LEVEL for user mode, which is refused"),
    (
        "NdisMQueueDpc",
        "its page says DISPATCH_LEVEL, and that MiniportInterrupt, which runs at DIRQL, calls it",
    ),
    ("WskCaptureProviderNPI", "== PASSIVE_LEVEL unless the timeout is WSK_NO_WAIT: checked in its body"),
    ("ExDeleteTimer", "<= APC_LEVEL when it waits: checked in its body"),
];

/// The table's levels of an import: the header's annotations without those that are conditional, else
/// the documentation's level.
#[derive(Default)]
struct Documented {
    page: Option<String>,
    header: Vec<String>,
}

/// The `[import."module".Name]` parts of the table and of the facts beside it. Line by line: some numbers are wider
/// than TOML's.
fn documented() -> BTreeMap<(String, String), Documented> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/ndk-abi");
    let text = ["abi-x64.toml", "abi-extra.toml"]
        .map(|name| fs::read_to_string(folder.join(name)).expect("the ABI table is in the repository"))
        .concat();
    let mut table = BTreeMap::<_, Documented>::new();
    let mut current = None;
    for line in text.lines() {
        if line.starts_with('[') {
            current = line
                .strip_prefix("[import.\"")
                .or_else(|| line.strip_prefix("[group.import.\""))
                .and_then(|rest| rest.strip_suffix(']')?.split_once("\"."))
                .map(|(module, name)| (module.to_owned(), name.to_owned()));
        }
        let Some(key) = &current else { continue };
        let entry = table.entry(key.clone()).or_default();
        if let Some(value) = line.strip_prefix("irql = ") {
            entry.page = Some(value.trim_matches('"').to_owned());
        } else if let Some(value) = line.strip_prefix("irql_header = ") {
            let levels = value.trim_matches(['[', ']']).split(',');
            entry.header = levels.map(|level| level.trim().trim_matches('"').to_owned()).collect();
        }
    }
    table
}

fn level(name: &str) -> Irql {
    match name {
        "PASSIVE_LEVEL" => Irql::PASSIVE_LEVEL,
        "APC_LEVEL" => Irql::APC_LEVEL,
        "DISPATCH_LEVEL" => Irql::DISPATCH_LEVEL,
        "DIRQL" => Irql::MAX_DEVICE_LEVEL,
        "HIGH_LEVEL" => Irql::HIGH_LEVEL,
        other => panic!("the table names a level {other}"),
    }
}

fn limit(text: &str) -> Limit {
    if text == "any" {
        return Limit::ANY;
    }
    let (relation, name) = text.split_once(' ').expect("a relation and a level");
    match relation {
        "<=" => Limit::at_most(level(name)),
        "<" => Limit::below(level(name)),
        ">=" => Limit::at_least(level(name)),
        // "== on a PASSIVE_LEVEL entry is also the maximum"
        "==" => Limit::exactly(level(name)),
        other => panic!("the table has a relation {other}"),
    }
}

fn both(a: Limit, b: Limit) -> Limit {
    Limit { lowest: a.lowest.max(b.lowest), highest: a.highest.min(b.highest) }
}

impl Documented {
    fn limit(&self) -> Option<Limit> {
        if self.header.iter().any(|text| text.contains("(conditional)")) {
            return None;
        }
        if self.header.is_empty() {
            return self.page.as_deref().map(limit);
        }
        Some(self.header.iter().map(|text| limit(text)).fold(Limit::ANY, both))
    }
}

fn all_imports() -> impl Iterator<Item = &'static Import> {
    let subsystems: [&dyn Subsystem; 5] = [&NT, &NDIS, &NETIO, &WSK, &CNG];
    subsystems.into_iter().flat_map(Subsystem::imports).copied().flatten()
}

#[test]
fn every_import_enforces_the_documented_level() {
    let table = documented();
    let mut wrong = Vec::new();
    for import in all_imports() {
        let excepted = EXCEPTIONS.iter().any(|(name, _)| *name == import.name);
        let key = (import.module.to_owned(), import.name.to_owned());
        let Some(documented) = table.get(&key).and_then(Documented::limit) else { continue };
        if documented != import.limit && !excepted {
            wrong.push(format!(
                "{}!{}: {} here, {documented} in the table",
                import.module, import.name, import.limit
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_import_is_in_the_table() {
    // Compiler support has no header, so that the table lacks it.
    let support =
        ["memcpy", "memmove", "memset", "memcmp", "strlen", "__chkstk", "__C_specific_handler", "_purecall"];
    let table = documented();
    let functions = all_imports().filter(|import| import.kind == Kind::Function);
    for import in functions.filter(|import| !support.contains(&import.name)) {
        let key = (import.module.to_owned(), import.name.to_owned());
        assert!(table.contains_key(&key), "{}!{} is not in the table", import.module, import.name);
    }
}
