// SPDX-License-Identifier: MIT OR Apache-2.0

//! Compares the sources with the table and writes the compile-time assertions.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::ctype::{Types, c_name};
use crate::source::{Opaque, Record, Source};
use crate::table::{self, Table, declared};

/// Assertions for everything `source` declares, or what is wrong with it at first sight.
pub fn generate(table: &Table, source: &Source) -> Result<String, Vec<String>> {
    let mut checks =
        Checks { types: Types { table, source }, text: PRELUDE.to_owned(), problems: Vec::new() };
    for (name, record) in &source.records {
        checks.record(name, record);
    }
    for (name, values) in &source.enums {
        checks.enumeration(name, values);
    }
    for name in source.aliases.keys() {
        checks.alias(name);
    }
    for (name, ty) in &source.consts {
        checks.constant(name, ty);
    }
    for name in source.imports.keys() {
        checks.import(name);
    }
    if checks.problems.is_empty() { Ok(checks.text) } else { Err(checks.problems) }
}

const PRELUDE: &str = "\
const fn same<T: Same<U>, U>() {}
trait Same<T> {}
impl<T> Same<T> for T {}

/// Whether a constant of `bytes` bytes is the C value `table`, whatever sign either writes it with.
const fn equal(declared: i128, bytes: usize, table: i128) -> bool {
    let modulus = 1_i128 << (8 * bytes);
    -modulus / 2 <= table && table < modulus && (declared - table) % modulus == 0
}
";

struct Checks<'a> {
    types: Types<'a>,
    text: String,
    problems: Vec<String>,
}

/// A member of a record of the crate, resolved to a field of the table.
struct Member<'a> {
    /// Rust path from the record, e.g. `u.Generic.Start`.
    path: String,
    field: &'a table::Field,
}

impl<'a> Checks<'a> {
    fn record(&mut self, name: &str, record: &Record) {
        let path = format!("crate::{}", self.types.source.path(name));
        let Some(facts) = self.types.table.records.get(c_name(name)) else {
            // A record without a name in C is checked as part of the one that holds it.
            if record.opaque == Some(Opaque::Unsized) {
                self.opaque(name);
            } else if self.owner(name).is_none() {
                self.problem(name, "not in the table, and no member of a struct that is");
            } else {
                self.zeroed(&path);
            }
            return;
        };
        if !declared(facts.since_ndis.as_deref()) {
            self.problem(name, "belongs to a later level");
        }
        if record.opaque == Some(Opaque::Unsized) {
            return;
        }
        self.assert(
            &format!("core::mem::size_of::<{path}>() == {}", facts.size()),
            &format!("{name}: the table's size is {}", facts.size()),
        );
        self.assert(
            &format!("core::mem::align_of::<{path}>() == {}", facts.align),
            &format!("{name}: the table's alignment is {}", facts.align),
        );
        self.zeroed(&path);
        if record.opaque.is_none() {
            let mut members = Vec::new();
            self.members(name, name, record, facts, ("", ""), &mut members);
            self.coverage(name, facts, &members);
            for member in &members {
                self.member(name, &path, member);
            }
        }
    }

    /// Resolves the fields of `record`, which lies at `rust`/`c` inside the record `root`.
    fn members(
        &mut self,
        root: &str,
        name: &str,
        record: &Record,
        facts: &'a table::Record,
        (rust, c): (&str, &str),
        members: &mut Vec<Member<'a>>,
    ) {
        for (field_name, ty) in &record.fields {
            let rust = join(rust, field_name);
            if field_name == "Anonymous" {
                match self.types.source.records.get(ty) {
                    Some(inner) => self.members(root, ty, inner, facts, (&rust, c), members),
                    None => self.problem(name, &format!("{field_name} is not a record of the crate")),
                }
                continue;
            }
            let c = join(c, field_name);
            let Some(field) = facts.fields().find(|field| field.name == c) else {
                self.problem(root, &format!("the table has no member {c}"));
                continue;
            };
            if field.is_unnamed() {
                match self.types.source.records.get(ty) {
                    Some(inner) => self.members(root, ty, inner, facts, (&rust, &c), members),
                    None => self.problem(root, &format!("{c} is not a record of the crate")),
                }
            }
            members.push(Member { path: rust, field });
        }
    }

    fn member(&mut self, name: &str, path: &str, member: &Member) {
        let Member { path: place, field } = member;
        self.assert(
            &format!("core::mem::offset_of!({path}, {place}) == {}", field.offset),
            &format!("{name}: the table has {} at offset {}", field.name, field.offset),
        );
        if field.is_unnamed() || field.bits.is_some() {
            return;
        }
        match self.types.value(&field.ctype) {
            Ok(ty) => {
                let _ = writeln!(
                    self.text,
                    "// {name}.{}: {}\n\
                     // SAFETY: never called; computes the address of a member.\n\
                     const _: fn(*mut {path}) -> *mut {ty} = |p| unsafe {{ &raw mut (*p).{place} }};",
                    field.name, field.ctype,
                );
            }
            Err(problem) => self.problem(name, &format!("{}: {problem}", field.name)),
        }
    }

    /// Every byte the table names must belong to a declared member: none may be forgotten.
    fn coverage(&mut self, name: &str, facts: &table::Record, members: &[Member]) {
        let covered: BTreeSet<u64> = members
            .iter()
            .filter(|member| !member.field.is_unnamed())
            .flat_map(|member| member.field.offset..member.field.offset + member.field.size)
            .collect();
        // Alternatives of a union may be left out: inside one, and where the table shows another view
        // of the same bytes as a record the crate does not declare.
        let unions = || members.iter().filter(|member| member.field.ctype == "union");
        let missing: Vec<_> = facts
            .fields()
            .filter(|field| !field.is_unnamed() && !self.is_undeclared_view(field))
            .filter(|field| !unions().any(|union| field.name.starts_with(&format!("{}.", union.field.name))))
            .filter(|field| !(field.offset..field.offset + field.size).all(|byte| covered.contains(&byte)))
            .map(|field| field.name.as_str())
            .collect();
        if !missing.is_empty() && facts.kind != "union" {
            self.problem(name, &format!("lacks {}", missing.join(", ")));
        }
    }

    fn is_undeclared_view(&self, field: &table::Field) -> bool {
        self.types.table.records.contains_key(&field.ctype)
            && !self.types.source.declares_type(crate::ctype::rust_name(&field.ctype))
    }

    fn enumeration(&mut self, name: &str, values: &[String]) {
        let path = format!("crate::{}", self.types.source.path(name));
        let Some(facts) = self.types.table.enums.get(name) else {
            if !self.types.source.records.contains_key(name) {
                self.problem(name, "not an enum of the table");
            }
            return;
        };
        self.assert(
            &format!("core::mem::size_of::<{path}>() == {}", facts.size),
            &format!("{name}: the table's size is {}", facts.size),
        );
        let known: Vec<_> = facts
            .values
            .iter()
            .chain(&facts.later_values)
            .filter(|value| declared(value.since.as_deref()))
            .collect();
        for value in values {
            if !known.iter().any(|known| known.name == *value) {
                self.problem(name, &format!("the table has no value {value}"));
            }
        }
        for known in known {
            if values.contains(&known.name) {
                self.assert(
                    &format!("{path}::{}.0 as i64 == {}", known.name, known.value),
                    &format!("{name}: the table has {} = {}", known.name, known.value),
                );
            } else {
                self.problem(name, &format!("lacks {}", known.name));
            }
        }
    }

    fn alias(&mut self, name: &str) {
        let path = format!("crate::{}", self.types.source.path(name));
        let alias = &self.types.source.aliases[name];
        if !alias.function {
            match self.types.value(name) {
                Ok(ty) => self.same(&path, &ty),
                Err(problem) => self.problem(name, &problem),
            }
            return;
        }
        let Some(facts) = self.types.table.fn_types.get(name) else {
            self.problem(name, "not a function type of the table");
            return;
        };
        self.irql(name, alias.irql.as_deref(), facts.irql());
        match self.types.function(facts) {
            Ok(ty) => self.same(&path, &ty),
            Err(problem) => self.problem(name, &problem),
        }
    }

    fn constant(&mut self, name: &str, ty: &str) {
        let table = self.types.table;
        let path = format!("crate::{}", self.types.source.path(name));
        if let Some(guid) = table.guids.get(name) {
            let value = guid.value.replace('-', "");
            return self.assert(
                &format!("{path}.to_u128() == 0x{value}"),
                &format!("{name}: the table has {}", guid.value),
            );
        }
        let value = match table.consts.get(name) {
            Some(fact) if declared(fact.since.as_deref()) => fact.value,
            Some(_) => return self.problem(name, "belongs to a later level"),
            None => return self.problem(name, &format!("the table has no such constant ({ty})")),
        };
        self.assert(
            &format!("equal({path} as i128, core::mem::size_of_val(&{path}), {value})"),
            &format!("{name}: the table has {value}"),
        );
    }

    fn import(&mut self, name: &str) {
        let import = &self.types.source.imports[name];
        let Some((module, facts)) = self.types.table.import(name) else {
            return self.problem(name, "the table has no such import");
        };
        if facts.kind != "export" && facts.export_evidence.is_empty() {
            self.problem(name, &format!("{}, not exported", facts.kind));
        }
        if module.split('.').next() != Some(import.library.as_str()) {
            self.problem(name, &format!("exported by {module}, declared in {}", import.library));
        }
        self.irql(name, import.irql.as_deref(), facts.irql());
        match self.types.function(facts) {
            Ok(ty) => {
                let path = self.types.source.path(name);
                let _ = writeln!(self.text, "const _: {ty} = crate::{path};");
            }
            Err(problem) => self.problem(name, &problem),
        }
    }

    fn opaque(&mut self, name: &str) {
        let known = [name.to_owned(), format!("_{name}")]
            .iter()
            .any(|name| self.types.table.typedefs.contains_key(name) || self.pointed_to(name));
        if !known {
            self.problem(name, "the table knows no such type");
        }
    }

    fn pointed_to(&self, name: &str) -> bool {
        let pointer = format!("{name}*");
        self.types.table.typedefs.values().any(|typedef| typedef.ctype.as_deref() == Some(&pointer))
    }

    /// The record that has `name` as the type of a member without a type name in C.
    fn owner(&self, name: &str) -> Option<&String> {
        self.types
            .source
            .records
            .iter()
            .find(|(_, record)| record.fields.iter().any(|(_, ty)| ty == name))
            .map(|(owner, _)| owner)
    }

    fn irql(&mut self, name: &str, stated: Option<&str>, table: Option<&str>) {
        if stated != table {
            self.problem(name, &format!("IRQL in its docs is {stated:?}, in the table {table:?}"));
        }
    }

    fn same(&mut self, declared: &str, table: &str) {
        let _ = writeln!(self.text, "const _: () = same::<{declared}, {table}>();");
    }

    fn assert(&mut self, condition: &str, message: &str) {
        let _ = writeln!(self.text, "const _: () = assert!({condition}, \"{message}\");");
    }

    fn zeroed(&mut self, path: &str) {
        let _ = writeln!(
            self.text,
            "impl {path} {{\n\
             \x20   /// All bytes zero: numbers 0, pointers null, handlers absent.\n\
             \x20   #[must_use]\n\
             \x20   pub const fn zeroed() -> Self {{\n\
             \x20       // SAFETY: integers, raw pointers and optional function pointers all may be zero.\n\
             \x20       unsafe {{ core::mem::zeroed() }}\n\
             \x20   }}\n\
             }}\n\
             impl Default for {path} {{\n\
             \x20   fn default() -> Self {{\n\
             \x20       Self::zeroed()\n\
             \x20   }}\n\
             }}"
        );
    }

    fn problem(&mut self, name: &str, problem: &str) {
        self.problems.push(format!("{name}: {problem}"));
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
