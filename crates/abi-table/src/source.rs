// SPDX-License-Identifier: MIT OR Apache-2.0

//! The crate's declarations, parsed from its sources.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use syn::{Attribute, Expr, ForeignItem, ImplItem, Item, Lit, Meta, Type};

/// Every ABI declaration of the crate. Functions with bodies are not ABI and are left out.
#[derive(Default)]
pub struct Source {
    pub records: BTreeMap<String, Record>,
    pub enums: BTreeMap<String, Vec<String>>,
    pub aliases: BTreeMap<String, Alias>,
    pub consts: BTreeMap<String, String>,
    pub imports: BTreeMap<String, Import>,
    /// Top-level module of each type, constant and import.
    modules: BTreeMap<String, String>,
}

/// A `repr(C)` struct or union.
pub struct Record {
    pub fields: Vec<(String, String)>,
    /// Members are hidden: only size and alignment are declared (`_opaque: [u64; n]`), or nothing
    /// at all (`_opaque: [u8; 0]`), when the type is known by pointer only.
    pub opaque: Option<Opaque>,
}

#[derive(PartialEq)]
pub enum Opaque {
    Sized,
    Unsized,
}

pub struct Alias {
    pub function: bool,
    pub irql: Option<String>,
}

pub struct Import {
    pub library: String,
    pub irql: Option<String>,
}

impl Source {
    /// Reads `lib.rs` and one directory per public module.
    pub fn read_tree(src: &Path) -> Result<Self, String> {
        let mut source = Self::default();
        let mut directories = vec![src.to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory).map_err(|error| error.to_string())? {
                let path = entry.map_err(|error| error.to_string())?.path();
                if path.is_dir() {
                    directories.push(path);
                    continue;
                }
                let inside = path.strip_prefix(src).map_err(|error| error.to_string())?;
                let module = inside.parent().and_then(Path::to_str).unwrap_or_default();
                let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
                source.add(module, &text).map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
        Ok(source)
    }

    /// Adds the declarations of one file of the public module `module` (empty: the crate root).
    pub fn add(&mut self, module: &str, text: &str) -> Result<(), String> {
        for item in syn::parse_file(text).map_err(|error| error.to_string())?.items {
            self.add_item(module, item)?;
        }
        Ok(())
    }

    #[must_use]
    pub fn declares_type(&self, name: &str) -> bool {
        self.records.contains_key(name) || self.enums.contains_key(name)
    }

    /// Path of a declaration from the crate root.
    pub fn path(&self, name: &str) -> String {
        match self.modules.get(name).map_or("", String::as_str) {
            "" => name.to_owned(),
            module => format!("{module}::{name}"),
        }
    }

    fn add_item(&mut self, module: &str, item: Item) -> Result<(), String> {
        let name = match item {
            Item::Struct(item) => {
                let name = item.ident.to_string();
                let repr = repr(&item.attrs);
                if repr.contains("transparent") {
                    self.enums.entry(name.clone()).or_default();
                } else if repr.contains('C') {
                    self.records.insert(name.clone(), record(item.fields.iter()));
                } else {
                    return Err(format!("{name}: neither repr(C) nor repr(transparent)"));
                }
                name
            }
            Item::Union(item) => {
                let name = item.ident.to_string();
                if !repr(&item.attrs).contains('C') {
                    return Err(format!("{name}: not repr(C)"));
                }
                self.records.insert(name.clone(), record(item.fields.named.iter()));
                name
            }
            Item::Impl(item) if item.trait_.is_none() => {
                let Type::Path(target) = &*item.self_ty else { return Ok(()) };
                let target = target.path.require_ident().map_err(|error| error.to_string())?.to_string();
                let values = item.items.iter().filter_map(|item| match item {
                    ImplItem::Const(item) => Some(item.ident.to_string()),
                    _ => None,
                });
                self.enums.entry(target).or_default().extend(values);
                return Ok(());
            }
            Item::Type(item) => {
                let alias = Alias { function: matches!(*item.ty, Type::FnPtr(_)), irql: irql(&item.attrs) };
                self.aliases.insert(item.ident.to_string(), alias);
                item.ident.to_string()
            }
            Item::Const(item) if item.ident != "_" => {
                let Type::Path(ty) = &*item.ty else { return Ok(()) };
                let ty = ty.path.require_ident().map_err(|error| error.to_string())?.to_string();
                self.consts.insert(item.ident.to_string(), ty);
                item.ident.to_string()
            }
            Item::ForeignMod(block) => {
                let library = library(&block.attrs).unwrap_or_default();
                for item in block.items {
                    let ForeignItem::Fn(item) = item else { continue };
                    let name = item.sig.ident.to_string();
                    self.modules.insert(name.clone(), module.to_owned());
                    let import = Import { library: library.clone(), irql: irql(&item.attrs) };
                    self.imports.insert(name, import);
                }
                return Ok(());
            }
            _ => return Ok(()),
        };
        match self.modules.insert(name.clone(), module.to_owned()) {
            Some(other) => Err(format!("{name}: declared in {other} already")),
            None => Ok(()),
        }
    }
}

fn record<'a>(fields: impl Iterator<Item = &'a syn::Field>) -> Record {
    let mut record = Record { fields: Vec::new(), opaque: None };
    for field in fields {
        let name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
        if name == "_opaque" {
            let empty =
                matches!(&field.ty, Type::Array(array) if literal(&array.len).as_deref() == Some("0"));
            record.opaque = Some(if empty { Opaque::Unsized } else { Opaque::Sized });
        } else if !name.starts_with('_') || name.starts_with("__") {
            let ty = match &field.ty {
                Type::Path(path) => path.path.get_ident().map(ToString::to_string).unwrap_or_default(),
                _ => String::new(),
            };
            record.fields.push((name, ty));
        }
    }
    record
}

fn repr(attributes: &[Attribute]) -> String {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("repr"))
        .filter_map(|attribute| Some(attribute.meta.require_list().ok()?.tokens.to_string()))
        .collect()
}

/// The name in `#[cfg_attr(all(windows, feature = "kernel"), link(name = ...))]`.
fn library(attributes: &[Attribute]) -> Option<String> {
    let tokens = attributes
        .iter()
        .find(|attribute| attribute.path().is_ident("cfg_attr"))?
        .meta
        .require_list()
        .ok()?
        .tokens
        .to_string();
    let (_, link) = tokens.split_once("link")?;
    Some(link.split('"').nth(1)?.to_owned())
}

/// The level in a doc line ``IRQL: `<= DISPATCH_LEVEL`.``
fn irql(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| {
        let Meta::NameValue(doc) = &attribute.meta else { return None };
        let line = literal(&doc.value)?;
        let (level, _) = line.trim().strip_prefix("IRQL: `")?.split_once('`')?;
        Some(level.to_owned())
    })
}

fn literal(expression: &Expr) -> Option<String> {
    let Expr::Lit(literal) = expression else { return None };
    match &literal.lit {
        Lit::Str(text) => Some(text.value()),
        Lit::Int(number) => Some(number.base10_digits().to_owned()),
        _ => None,
    }
}
