// SPDX-License-Identifier: MIT OR Apache-2.0

//! The items of the table that the crate omits.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use abi_table::{Source, Table};

/// Entries of the table that the crate does not declare: read the difference before accepting it.
#[test]
fn left_out_of_the_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = Table::read(&root.join("abi-x64.toml")).expect("the table parses");
    let source = Source::read_tree(&root.join("src")).expect("the sources parse");
    let declared: BTreeSet<&str> = (source.records.keys().map(|name| abi_table::c_name(name)))
        .chain(source.enums.keys().map(String::as_str))
        .chain(source.aliases.keys().map(String::as_str))
        .chain(source.consts.keys().map(String::as_str))
        .chain(source.imports.keys().map(String::as_str))
        .collect();
    let exports = table.imports.values().flatten().filter(|(_, function)| function.kind == "export");
    let kinds: [(&str, Vec<&String>); 6] = [
        ("structs and unions", table.records.keys().collect()),
        ("enums", table.enums.keys().collect()),
        ("function types", table.fn_types.keys().collect()),
        ("imports", exports.map(|(name, _)| name).collect()),
        ("GUIDs", table.guids.keys().collect()),
        ("constants", table.consts.keys().collect()),
    ];
    let mut report = String::new();
    for (kind, names) in kinds {
        let missing: Vec<_> = names.iter().filter(|name| !declared.contains(name.as_str())).collect();
        let _ = writeln!(report, "{kind}: {} of {} left out", missing.len(), names.len());
        for name in missing {
            let _ = writeln!(report, "    {name}");
        }
    }
    insta::assert_snapshot!(report);
}
