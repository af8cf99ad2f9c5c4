// SPDX-License-Identifier: MIT OR Apache-2.0

//! C types of the table, spelled in Rust.
//!
//! Typedefs are expanded down to primitive types, pointers, records, enums and function pointers, so
//! that a check compares type identity and never trusts an alias of the crate. Two rules are choices:
//! pointer-wide integers are `usize`/`isize`, and a pointer to a record the crate does not declare is
//! a pointer to `c_void`.

use crate::source::Source;
use crate::table::{Function, Table};

/// Integers as wide as a pointer on every Windows, which the table can only show as 64-bit.
const POINTER_WIDE: &[(&str, &str)] = &[
    ("KAFFINITY", "usize"),
    ("KSPIN_LOCK", "usize"),
    ("LONG_PTR", "isize"),
    ("PFN_NUMBER", "usize"),
    ("PKAFFINITY", "*mut usize"),
    ("PKSPIN_LOCK", "*mut usize"),
    ("PPFN_NUMBER", "*mut usize"),
    ("PSIZE_T", "*mut usize"),
    ("SIZE_T", "usize"),
    ("ULONG_PTR", "usize"),
];

/// Tags of member types, too common to stand at the top level of a crate: table name, Rust name.
const RENAMED: &[(&str, &str)] = &[
    ("_METHOD", "NDIS_OID_REQUEST_METHOD"),
    ("_PCI_HEADER_TYPE_0", "PCI_HEADER_TYPE_0"),
    ("_QUERY", "NDIS_OID_REQUEST_QUERY"),
    ("_REQUEST_DATA", "NDIS_OID_REQUEST_DATA"),
    ("_SET", "NDIS_OID_REQUEST_SET"),
];

/// The Rust name of a record of the table.
pub fn rust_name(c_name: &str) -> &str {
    RENAMED.iter().find(|(c, _)| *c == c_name).map_or(c_name, |(_, rust)| rust)
}

/// The table's name of a record of the crate.
#[must_use]
pub fn c_name(rust_name: &str) -> &str {
    RENAMED.iter().find(|(_, rust)| *rust == rust_name).map_or(rust_name, |(c, _)| c)
}

pub struct Types<'a> {
    pub table: &'a Table,
    pub source: &'a Source,
}

impl Types<'_> {
    /// The Rust type of an object of type `ctype`.
    pub fn value(&self, ctype: &str) -> Result<String, String> {
        let ctype = ctype.trim().trim_start_matches("volatile ").trim_end_matches("volatile").trim_end();
        if let Some((_, rust)) = POINTER_WIDE.iter().find(|(name, _)| *name == ctype) {
            return Ok((*rust).to_owned());
        }
        if let Some(primitive) = primitive(ctype) {
            return Ok(primitive.to_owned());
        }
        if let Some((element, length)) = ctype.strip_suffix(']').and_then(|rest| rest.rsplit_once('[')) {
            let length = if length.is_empty() { "0" } else { length };
            return Ok(format!("[{}; {length}]", self.value(element)?));
        }
        if let Some(pointee) = ctype.strip_suffix('*') {
            return self.pointer(pointee.trim());
        }
        // `CONST` before a pointer typedef makes the pointer constant; what it points to is read only
        // all the same (newer symbols say so), and that is the useful half of the promise.
        if let Some(pointer) = ctype.strip_prefix("const ") {
            let pointer = self.value(pointer)?;
            return Ok(pointer.replacen("*mut ", "*const ", 1));
        }
        if let Some(function) = self.table.fn_types.get(ctype) {
            return Ok(format!("Option<{}>", self.function(function)?));
        }
        if self.table.records.contains_key(ctype) || self.table.enums.contains_key(ctype) {
            let name = rust_name(ctype);
            if !self.source.declares_type(name) {
                return Err(format!("uses {ctype} by value, which the crate does not declare"));
            }
            return Ok(format!("crate::{}", self.source.path(name)));
        }
        let typedef = self.table.typedefs.get(ctype).ok_or_else(|| format!("unknown C type {ctype}"))?;
        let expansion = match typedef.kind.as_str() {
            "scalar" => typedef.canonical.as_deref(),
            "alias" | "enum" | "fn_ptr" => typedef.target.as_deref(),
            // DECLARE_HANDLE: a pointer to a structure that no header describes.
            "pointer" if typedef.ctype.as_deref() == Some("opaque") => Some("void*"),
            "pointer" => typedef.ctype.as_deref(),
            _ => None,
        };
        self.value(
            expansion.ok_or_else(|| format!("uses {ctype} by value, which the table does not describe"))?,
        )
    }

    /// The Rust function pointer type of `function`.
    pub fn function(&self, function: &Function) -> Result<String, String> {
        let mut params =
            function.params.iter().map(|param| self.value(&param.ctype)).collect::<Result<Vec<_>, _>>()?;
        if function.variadic {
            params.push("...".to_owned());
        }
        let ret = match function.ret.as_str() {
            "void" => String::new(),
            ret => format!(" -> {}", self.value(ret)?),
        };
        Ok(format!("unsafe extern \"efiapi\" fn({}){ret}", params.join(", ")))
    }

    fn pointer(&self, pointee: &str) -> Result<String, String> {
        let (mutability, pointee) = match pointee.strip_prefix("const ").or(pointee.strip_suffix(" const")) {
            Some(pointee) if !pointee.ends_with('*') => ("const", pointee),
            _ => ("mut", pointee),
        };
        Ok(format!("*{mutability} {}", self.pointee(pointee)?))
    }

    fn pointee(&self, ctype: &str) -> Result<String, String> {
        if ctype == "void" {
            return Ok("core::ffi::c_void".to_owned());
        }
        let alias = self.table.typedefs.get(ctype);
        if let Some(target) =
            alias.filter(|alias| alias.kind == "alias").and_then(|alias| alias.target.as_deref())
        {
            return self.pointee(target);
        }
        let record = self.table.records.contains_key(ctype) || self.table.enums.contains_key(ctype);
        let unknown =
            alias.is_none_or(|alias| matches!(alias.kind.as_str(), "opaque" | "record_not_described"));
        if !record && (!unknown || primitive(ctype).is_some() || ctype.ends_with('*')) {
            return self.value(ctype);
        }
        let tag = ctype.strip_prefix('_').unwrap_or(ctype);
        Ok([rust_name(ctype), tag].into_iter().find(|name| self.source.declares_type(name)).map_or_else(
            || "core::ffi::c_void".to_owned(),
            |name| format!("crate::{}", self.source.path(name)),
        ))
    }
}

fn primitive(ctype: &str) -> Option<&'static str> {
    Some(match ctype {
        "char" => "i8",
        "unsigned char" => "u8",
        "short" => "i16",
        "unsigned short" => "u16",
        "int" | "long" => "i32",
        "unsigned int" | "unsigned long" => "u32",
        "long long" => "i64",
        "unsigned long long" => "u64",
        _ => return None,
    })
}
