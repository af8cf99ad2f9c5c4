// SPDX-License-Identifier: MIT OR Apache-2.0

//! Imports that the image may have: the functions of `abi-x64.toml` and `abi-extra.toml`, and the C support routines
//! below.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use anyhow::{Context as _, Result};

use crate::shell;

const TABLE: &str = "crates/ndk-abi/abi-x64.toml";
const EXTRA: &str = "crates/ndk-abi/abi-extra.toml";

/// Routines that compilers emit calls to, and `strlen`, which `core::ffi::CStr` uses. `ntoskrnl.exe` exports them on x64.
/// No header declares them, so the table does not list them.
const SUPPORT: [(&str, &str); 7] = [
    ("__C_specific_handler", "named in the unwind data of functions that handle exceptions"),
    ("__chkstk", "called by functions whose frame is larger than a page"),
    ("memcmp", "comparison of slices"),
    ("memcpy", "copies of known or unknown length"),
    ("memmove", "copies that may overlap"),
    ("memset", "filling"),
    ("strlen", "length of C strings"),
];

/// Names that the driver may import, by module.
pub struct Imports(BTreeMap<String, BTreeSet<String>>);

impl Imports {
    pub fn load() -> Result<Self> {
        let path = shell::root().join(TABLE);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let table: toml::Table =
            import_part(&text).parse().with_context(|| format!("{TABLE} is not TOML"))?;
        let mut imports = BTreeMap::<String, BTreeSet<String>>::new();
        add_imports(&mut imports, &table).context(TABLE)?;
        let path = shell::root().join(EXTRA);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let extra: toml::Table = text.parse().with_context(|| format!("{EXTRA} is not TOML"))?;
        add_imports(&mut imports, &extra).context(EXTRA)?;
        let groups = extra.get("group").and_then(toml::Value::as_array).into_iter().flatten();
        for group in groups.filter_map(toml::Value::as_table) {
            add_imports(&mut imports, group).context(EXTRA)?;
        }
        let kernel = imports.entry("ntoskrnl.exe".into()).or_default();
        kernel.extend(SUPPORT.iter().map(|(name, _)| (*name).to_owned()));
        Ok(Self(imports))
    }

    pub fn modules(&self) -> impl Iterator<Item = (&str, &BTreeSet<String>)> {
        self.0.iter().map(|(module, names)| (module.as_str(), names))
    }

    pub fn contains(&self, module: &str, name: &str) -> bool {
        self.0.get(&module.to_ascii_lowercase()).is_some_and(|names| names.contains(name))
    }
}

/// Adds the functions of the tables `import.MODULE`.
fn add_imports(imports: &mut BTreeMap<String, BTreeSet<String>>, table: &toml::Table) -> Result<()> {
    for (module, functions) in table.get("import").and_then(toml::Value::as_table).into_iter().flatten() {
        let functions = functions.as_table().with_context(|| format!("import.{module} is no table"))?;
        let exported = functions.iter().filter(|(_, function)| is_exported(function));
        imports.entry(module.clone()).or_default().extend(exported.map(|(name, _)| name.clone()));
    }
    Ok(())
}

/// Whether a function can be linked. Some that C inlines are exported as well; the table says so.
fn is_exported(function: &toml::Value) -> bool {
    let text = |key| function.get(key).and_then(toml::Value::as_str).unwrap_or_default();
    matches!(text("kind"), "export" | "")
        || text("expansion").contains("an export of the same name also exists")
}

/// The `[import...]` tables of the text. Constants elsewhere in it are wider than the parser's integers.
fn import_part(text: &str) -> String {
    let mut inside = false;
    let lines = text.lines().filter(|line| {
        if line.starts_with('[') {
            inside = line.starts_with("[import.");
        }
        inside
    });
    lines.flat_map(|line| [line, "\n"]).collect()
}
