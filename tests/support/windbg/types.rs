// SPDX-License-Identifier: MIT OR Apache-2.0

//! The types and variables of an image, from its PDB.

use std::{collections::HashMap, fs::File, path::Path};

use pdb2::{FallibleIterator as _, SymbolData, TypeData, TypeFinder, TypeIndex, Variant};

/// A type, as a debugger's type object describes it.
#[derive(Clone)]
pub struct Type {
    pub name: String,
    pub kind: &'static str,
    pub size: u64,
    /// The type that a pointer refers to, or of which an array consists.
    pub base: Option<u32>,
    pub fields: Vec<Field>,
}

/// A field with its type and offset, or an enumerator with its value only.
#[derive(Clone)]
pub struct Field {
    pub name: String,
    pub of: Option<u32>,
    pub value: i64,
}

/// The types and variables of a PDB.
pub struct Types {
    all: HashMap<u32, Type>,
    /// Complete types; a type that is only declared has the same name.
    by_name: HashMap<String, u32>,
    /// Offset from the image's base, and type.
    variables: HashMap<String, (u32, u32)>,
}

impl Types {
    pub fn load(path: &Path) -> pdb2::Result<Self> {
        let mut pdb = pdb2::PDB::open(File::open(path)?)?;
        let information = pdb.type_information()?;
        let mut finder = information.finder();
        let mut indices = Vec::new();
        let mut iterator = information.iter();
        while let Some(item) = iterator.next()? {
            finder.update(&iterator);
            indices.push(item.index());
        }
        let mut all = HashMap::new();
        let mut by_name = HashMap::new();
        for index in indices {
            let Some((described, is_complete)) = describe(&finder, index)? else { continue };
            if is_complete {
                by_name.insert(described.name.clone(), index.0);
            }
            all.insert(index.0, described);
        }
        let addresses = pdb.address_map()?;
        let mut variables = HashMap::new();
        let globals = pdb.global_symbols()?;
        let mut symbols = globals.iter();
        while let Some(symbol) = symbols.next()? {
            if let Ok(SymbolData::Data(data)) = symbol.parse()
                && let Some(address) = data.offset.to_rva(&addresses)
            {
                variables.insert(data.name.to_string().into_owned(), (address.0, data.type_index.0));
            }
        }
        Ok(Self { all, by_name, variables })
    }

    /// Returns the offset of a variable from the image's base, and its type.
    pub fn variable(&self, name: &str) -> Option<(u32, u32)> {
        self.variables.get(name).copied()
    }

    pub fn named(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// Returns a type; the complete one for one that is only declared.
    pub fn get(&self, index: u32) -> Option<Type> {
        let index = TypeIndex(index);
        let found = match self.all.get(&index.0) {
            Some(found) => {
                self.named(&found.name).and_then(|complete| self.all.get(&complete)).unwrap_or(found)
            }
            None => return primitive(index),
        };
        if let ("modifier", Some(base)) = (found.kind, found.base) {
            return self.get(base);
        }
        let size = match (found.kind, found.base) {
            ("enum", Some(base)) => self.get(base)?.size,
            _ => found.size,
        };
        Some(Type { size, ..found.clone() })
    }
}

/// Describes a type, and says whether it is complete; `None` if a debugger does not show it.
fn describe(finder: &TypeFinder<'_>, index: TypeIndex) -> pdb2::Result<Option<(Type, bool)>> {
    let Ok(data) = finder.find(index)?.parse() else { return Ok(None) };
    let (name, kind, size, base, fields, is_complete) = match data {
        TypeData::Class(class) => {
            let fields = members(finder, class.fields)?;
            (class.name.to_string(), "udt", class.size, None, fields, !class.properties.forward_reference())
        }
        TypeData::Union(union) => {
            let fields =
                members(finder, Some(union.fields).filter(|_| !union.properties.forward_reference()))?;
            (union.name.to_string(), "udt", union.size, None, fields, !union.properties.forward_reference())
        }
        TypeData::Enumeration(list) => {
            let fields = members(finder, Some(list.fields))?;
            (
                list.name.to_string(),
                "enum",
                0,
                Some(list.underlying_type),
                fields,
                !list.properties.forward_reference(),
            )
        }
        TypeData::Pointer(pointer) => {
            let name = format!("pointer {index}");
            (name.into(), "pointer", 8, Some(pointer.underlying_type), Vec::new(), true)
        }
        TypeData::Modifier(modifier) => {
            let name = format!("modifier {index}");
            (name.into(), "modifier", 0, Some(modifier.underlying_type), Vec::new(), true)
        }
        TypeData::Array(array) => {
            let size = array.dimensions.last().copied().unwrap_or(0).into();
            (format!("array {index}").into(), "array", size, Some(array.element_type), Vec::new(), true)
        }
        _ => return Ok(None),
    };
    let base = base.map(|base| base.0);
    Ok(Some((Type { name: name.into_owned(), kind, size, base, fields }, is_complete)))
}

/// Returns the fields of a list of them.
fn members(finder: &TypeFinder<'_>, list: Option<TypeIndex>) -> pdb2::Result<Vec<Field>> {
    let mut fields = Vec::new();
    let mut next = list;
    while let Some(index) = next.take() {
        let TypeData::FieldList(list) = finder.find(index)?.parse()? else { break };
        for field in &list.fields {
            match field {
                TypeData::Member(member) => fields.push(Field {
                    name: member.name.to_string().into_owned(),
                    of: Some(member.field_type.0),
                    value: member.offset.try_into().unwrap_or(i64::MAX),
                }),
                TypeData::Enumerate(one) => {
                    fields.push(Field {
                        name: one.name.to_string().into_owned(),
                        of: None,
                        value: value(one.value),
                    });
                }
                _ => {}
            }
        }
        next = list.continuation;
    }
    Ok(fields)
}

fn value(variant: Variant) -> i64 {
    match variant {
        Variant::U8(value) => value.into(),
        Variant::U16(value) => value.into(),
        Variant::U32(value) => value.into(),
        Variant::U64(value) => value.cast_signed(),
        Variant::I8(value) => value.into(),
        Variant::I16(value) => value.into(),
        Variant::I32(value) => value.into(),
        Variant::I64(value) => value,
    }
}

/// Describes a type that a PDB does not define but numbers: the lowest byte names it, the next one says whether it is a pointer.
fn primitive(index: TypeIndex) -> Option<Type> {
    const POINTER: u32 = 0x0f00;
    let size = match index.0 & 0xff {
        _ if index.0 & POINTER != 0 => 8,
        0x03 => 0,
        0x10 | 0x20 | 0x30 | 0x68 | 0x69 | 0x70 | 0x7c => 1,
        0x11 | 0x21 | 0x72 | 0x73 => 2,
        0x12 | 0x22 | 0x74 | 0x75 | 0x7a | 0x7b | 0x40 => 4,
        0x13 | 0x23 | 0x76 | 0x77 | 0x41 => 8,
        0x14 | 0x24 | 0x78 | 0x79 => 16,
        _ => return None,
    };
    Some(Type { name: format!("primitive {index}"), kind: "intrinsic", size, base: None, fields: Vec::new() })
}
