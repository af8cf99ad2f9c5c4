// SPDX-License-Identifier: MIT OR Apache-2.0

//! The part of the table of ABI facts that the checks use.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

/// The NDIS level this crate declares. Members and values of later levels do not belong in it.
const NDIS_LEVEL: (u32, u32) = (6, 85);
/// The highest NDKPI version this crate declares.
const NDKPI_LEVEL: (u32, u32) = (2, 1);

#[derive(Deserialize)]
pub struct Table {
    #[serde(rename = "struct")]
    pub records: BTreeMap<String, Record>,
    #[serde(rename = "enum")]
    pub enums: BTreeMap<String, Enum>,
    #[serde(rename = "typedef")]
    pub typedefs: BTreeMap<String, Typedef>,
    #[serde(rename = "const")]
    pub consts: BTreeMap<String, Const>,
    #[serde(rename = "fn_type")]
    pub fn_types: BTreeMap<String, Function>,
    #[serde(rename = "import")]
    pub imports: BTreeMap<String, BTreeMap<String, Function>>,
    #[serde(rename = "guid")]
    pub guids: BTreeMap<String, Text>,
}

#[derive(Deserialize)]
pub struct Record {
    pub kind: String,
    pub size: u64,
    pub align: u64,
    pub fields: Vec<Field>,
    #[serde(default)]
    pub later_fields: Vec<Field>,
    pub later_size: Option<u64>,
    #[serde(default)]
    pub later_size_by_ndis: BTreeMap<String, u64>,
    pub since_ndis: Option<String>,
}

#[derive(Deserialize, Clone)]
pub struct Field {
    pub name: String,
    pub offset: u64,
    #[serde(rename = "type")]
    pub ctype: String,
    pub size: u64,
    pub bits: Option<u32>,
    pub since: Option<String>,
}

#[derive(Deserialize)]
pub struct Enum {
    pub size: u64,
    pub values: Vec<Enumerator>,
    #[serde(default)]
    pub later_values: Vec<Enumerator>,
}

#[derive(Deserialize)]
pub struct Enumerator {
    pub name: String,
    pub value: i64,
    pub since: Option<String>,
}

#[derive(Deserialize)]
pub struct Typedef {
    pub kind: String,
    pub canonical: Option<String>,
    pub target: Option<String>,
    #[serde(rename = "type")]
    pub ctype: Option<String>,
}

#[derive(Deserialize)]
pub struct Const {
    pub value: u64,
    pub since: Option<String>,
}

#[derive(Deserialize)]
pub struct Function {
    #[serde(default = "export")]
    pub kind: String,
    pub ret: String,
    pub params: Vec<Param>,
    #[serde(default)]
    pub variadic: bool,
    pub irql: Option<String>,
    #[serde(default)]
    pub irql_header: Vec<String>,
    /// Where an export of this name was seen; an inline function may have one all the same.
    #[serde(default)]
    pub export_evidence: Vec<String>,
}

#[derive(Deserialize)]
pub struct Param {
    #[serde(rename = "type")]
    pub ctype: String,
}

#[derive(Deserialize)]
pub struct Text {
    pub value: String,
}

/// `abi-extra.toml`: facts in the table's own format.
#[derive(Deserialize)]
struct Extra {
    #[serde(default, rename = "struct")]
    records: BTreeMap<String, ExtraFact<Record>>,
    #[serde(default, rename = "enum")]
    enums: BTreeMap<String, ExtraFact<Enum>>,
    #[serde(default, rename = "typedef")]
    typedefs: BTreeMap<String, ExtraFact<Typedef>>,
    #[serde(default, rename = "const")]
    consts: BTreeMap<String, ExtraFact<Const>>,
    #[serde(default, rename = "fn_type")]
    fn_types: BTreeMap<String, ExtraFact<Function>>,
    #[serde(default, rename = "import")]
    imports: BTreeMap<String, BTreeMap<String, ExtraFact<Function>>>,
    #[serde(default, rename = "guid")]
    guids: BTreeMap<String, ExtraFact<Text>>,
    #[serde(default, rename = "group")]
    groups: Vec<Group>,
}

/// Facts that have one reason and one source.
#[derive(Deserialize)]
struct Group {
    reason: String,
    source: String,
    #[serde(default, rename = "struct")]
    records: BTreeMap<String, Record>,
    #[serde(default, rename = "typedef")]
    typedefs: BTreeMap<String, Typedef>,
    #[serde(default, rename = "const")]
    consts: BTreeMap<String, u64>,
    #[serde(default, rename = "fn_type")]
    fn_types: BTreeMap<String, Function>,
    #[serde(default, rename = "import")]
    imports: BTreeMap<String, BTreeMap<String, Function>>,
}

/// A fact the table lacks, why the crate needs it, and where it was read.
#[derive(Deserialize)]
struct ExtraFact<T> {
    #[serde(flatten)]
    fact: T,
    reason: String,
    source: String,
}

fn export() -> String {
    "export".to_owned()
}

impl Table {
    /// Reads the table of a file.
    ///
    /// # Errors
    /// The file cannot be read, or is no table: the path and the reason.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Self::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Reads a table.
    ///
    /// # Errors
    /// `text` is no table: the reason.
    pub fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    /// Adds the facts of `path`; each must give a reason and a source, and none may shadow the table.
    ///
    /// # Errors
    /// The file cannot be read, or is no table; a fact lacks a reason or a source, or is in the table already.
    pub fn with_extra(mut self, path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let extra: Extra = toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        add(&mut self.records, extra.records)?;
        add(&mut self.enums, extra.enums)?;
        add(&mut self.typedefs, extra.typedefs)?;
        add(&mut self.consts, extra.consts)?;
        add(&mut self.fn_types, extra.fn_types)?;
        add(&mut self.guids, extra.guids)?;
        for (module, functions) in extra.imports {
            add(self.imports.entry(module).or_default(), functions)?;
        }
        for group in extra.groups {
            self.add_group(group)?;
        }
        Ok(self)
    }

    fn add_group(&mut self, group: Group) -> Result<(), String> {
        let (reason, source) = (&group.reason, &group.source);
        let consts = group.consts.into_iter().map(|(name, value)| (name, Const { value, since: None }));
        add(&mut self.records, sourced(group.records, reason, source))?;
        add(&mut self.typedefs, sourced(group.typedefs, reason, source))?;
        add(&mut self.consts, sourced(consts, reason, source))?;
        add(&mut self.fn_types, sourced(group.fn_types, reason, source))?;
        for (module, functions) in group.imports {
            add(self.imports.entry(module).or_default(), sourced(functions, reason, source))?;
        }
        Ok(())
    }

    /// The module that exports `name`, and its prototype.
    #[must_use]
    pub fn import(&self, name: &str) -> Option<(&str, &Function)> {
        self.imports.iter().find_map(|(module, functions)| Some((module.as_str(), functions.get(name)?)))
    }
}

/// Gives each fact of a group the group's reason and source.
fn sourced<T>(
    facts: impl IntoIterator<Item = (String, T)>,
    reason: &str,
    source: &str,
) -> BTreeMap<String, ExtraFact<T>> {
    let sourced = |fact| ExtraFact { fact, reason: reason.to_owned(), source: source.to_owned() };
    facts.into_iter().map(|(name, fact)| (name, sourced(fact))).collect()
}

fn add<T>(table: &mut BTreeMap<String, T>, extra: BTreeMap<String, ExtraFact<T>>) -> Result<(), String> {
    for (name, ExtraFact { fact, reason, source }) in extra {
        if reason.is_empty() || source.is_empty() {
            return Err(format!("{name}: needs a reason and a source"));
        }
        if table.insert(name.clone(), fact).is_some() {
            return Err(format!("{name}: in the table already, remove it from the extra facts"));
        }
    }
    Ok(())
}

impl Record {
    /// The fields present at the level this crate declares.
    pub fn fields(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().chain(self.later_fields.iter().filter(|field| declared(field.since.as_deref())))
    }

    /// Size in bytes at the level this crate declares.
    pub fn size(&self) -> u64 {
        let by_level = self.later_size_by_ndis.iter().filter_map(|(level, size)| {
            version(level).filter(|level| *level <= NDIS_LEVEL).map(|level| (level, *size))
        });
        if let Some((_, size)) = by_level.max() {
            return size;
        }
        match self.later_size {
            Some(size) if self.later_fields.iter().any(|field| declared(field.since.as_deref())) => size,
            _ => self.size,
        }
    }
}

impl Field {
    /// A member whose type has no name; its own members follow it in the table, dotted.
    pub fn is_unnamed(&self) -> bool {
        matches!(self.ctype.as_str(), "struct" | "union")
    }
}

impl Function {
    /// The level a caller must be at; header annotations count before documentation.
    pub fn irql(&self) -> Option<&str> {
        self.irql_header.first().map(String::as_str).or(self.irql.as_deref())
    }
}

/// Whether something first seen at `since` belongs to the level this crate declares.
pub fn declared(since: Option<&str>) -> bool {
    let Some(since) = since else { return true };
    if let Some(level) = since.strip_prefix("NDKPI ") {
        return version(level).is_some_and(|level| level <= NDKPI_LEVEL);
    }
    if since.starts_with("Windows") {
        return true;
    }
    version(since.strip_prefix("NDIS ").unwrap_or(since)).is_some_and(|level| level <= NDIS_LEVEL)
}

fn version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
