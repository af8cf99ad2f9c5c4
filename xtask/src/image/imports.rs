// SPDX-License-Identifier: MIT OR Apache-2.0

//! Imports that the image may have. For x64: the functions of `abi-x64.toml` and `abi-extra.toml`, and the C support routines
//! below. For arm64: those of `abi-arm64.toml`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use anyhow::{Context as _, Result, ensure};

use super::architecture::Architecture;
use crate::shell;

const ARM64: &str = "crates/ndk-abi/abi-arm64.toml";
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
    /// Reads the tables of an architecture.
    ///
    /// # Errors
    /// A table is missing or malformed.
    pub fn load(architecture: Architecture) -> Result<Self> {
        match architecture {
            Architecture::X64 => Self::of_x64(),
            Architecture::Arm64 => Self::of_arm64(&read(ARM64)?.parse().context(ARM64)?).context(ARM64),
        }
    }

    /// Returns the table that lists them, for messages.
    pub const fn table(architecture: Architecture) -> &'static str {
        match architecture {
            Architecture::X64 => TABLE,
            Architecture::Arm64 => ARM64,
        }
    }

    fn of_arm64(table: &toml::Table) -> Result<Self> {
        let mut imports = BTreeMap::<String, BTreeSet<String>>::new();
        for group in table.get("group").and_then(toml::Value::as_array).context("no group")? {
            let source = group.get("source").and_then(toml::Value::as_str).unwrap_or_default();
            ensure!(!source.is_empty(), "a group has no source");
            for (module, names) in group.get("import").and_then(toml::Value::as_table).context("no import")? {
                for name in names.as_array().context("names are no list")? {
                    let name = name.as_str().context("a name is no text")?.to_owned();
                    let is_new = imports.entry(module.clone()).or_default().insert(name.clone());
                    ensure!(is_new, "{module} {name} stands twice");
                }
            }
        }
        Ok(Self(imports))
    }

    fn of_x64() -> Result<Self> {
        let text = read(TABLE)?;
        let table: toml::Table =
            import_part(&text).parse().with_context(|| format!("{TABLE} is not TOML"))?;
        let mut imports = BTreeMap::<String, BTreeSet<String>>::new();
        add_imports(&mut imports, &table).context(TABLE)?;
        let extra: toml::Table = read(EXTRA)?.parse().with_context(|| format!("{EXTRA} is not TOML"))?;
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

fn read(file: &str) -> Result<String> {
    fs::read_to_string(shell::root().join(file)).with_context(|| format!("cannot read {file}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_of_arm64_have_a_source_and_stand_once() {
        let parse = |text: &str| Imports::of_arm64(&text.parse().unwrap());
        let group =
            |source: &str| format!("[[group]]\nsource = \"{source}\"\n[group.import]\n\"a.sys\" = [\"F\"]\n");
        assert!(parse(&group("seen")).unwrap().contains("A.sys", "F"));
        assert!(parse(&group("")).is_err());
        assert!(parse(&[group("one"), group("two")].concat()).is_err());
    }

    #[test]
    fn each_import_of_arm64_is_one_of_x64_but_for_the_lowering_of_the_irql() {
        let [x64, arm64] = [Architecture::X64, Architecture::Arm64].map(|of| Imports::load(of).unwrap());
        let names = arm64.modules().flat_map(|(module, names)| names.iter().map(move |name| (module, name)));
        let other: Vec<_> = names.filter(|(module, name)| !x64.contains(module, name)).collect();
        assert_eq!(other, [("ntoskrnl.exe", &"KfLowerIrql".to_owned())]);
    }
}
