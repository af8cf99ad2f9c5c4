// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sizes, offsets and values of the structures and constants in `crates/verbs/src/abi`, as the C compiler finds them in Debian's headers.
//!
//! They are written to `crates/verbs/src/abi/layout.rs`, which compiles only if those of Rust are the same. Each structure there with
//! `repr(C)` and each constant of the headers is in it, so that none can be forgotten: without a counterpart, the C compiler fails.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use syn::{Fields, Item, Visibility};

use crate::shell;

/// The folder whose structures are compared.
const FOLDER: &str = "crates/verbs/src/abi";

/// The module that is written.
const MODULE: &str = "layout.rs";

/// Types that the headers do not name: members of a structure, as (type in Rust, structure, member).
const MEMBERS: [(&str, &str, &str); 9] = [
    ("WrRemote", "ibv_send_wr", "wr"),
    ("WrRdma", "ibv_send_wr", "wr.rdma"),
    ("WrAtomic", "ibv_send_wr", "wr.atomic"),
    ("WrUd", "ibv_send_wr", "wr.ud"),
    // A union without a name, and its largest member.
    ("WrTail", "ibv_send_wr", "bind_mw"),
    ("WrBind", "ibv_send_wr", "bind_mw"),
    ("WrTso", "ibv_send_wr", "tso"),
    ("AsyncElement", "ibv_async_event", "element"),
    ("EventParam", "rdma_cm_event", "param"),
];

/// Types with other names in the headers.
const TYPES: [(&str, &str); 1] = [("IbvGid", "union ibv_gid")];

/// Fields with other names in the headers: (type, field, name in C).
const FIELDS: [(&str, &str, &str); 17] = [
    ("IbvContextOps", "query_device", "_compat_query_device"),
    ("IbvContextOps", "query_port", "_compat_query_port"),
    ("IbvDevice", "ops", "_ops"),
    ("IbvMw", "mw_type", "type"),
    ("IbvOdpCaps", "rc_odp_caps", "per_transport_caps.rc_odp_caps"),
    ("IbvOdpCaps", "uc_odp_caps", "per_transport_caps.uc_odp_caps"),
    ("IbvOdpCaps", "ud_odp_caps", "per_transport_caps.ud_odp_caps"),
    ("IbvSendWr", "remote_srqn", "qp_type.xrc.remote_srqn"),
    ("IbvSendWr", "tail", "bind_mw"),
    ("RdmaAddr", "ibaddr", "addr.ibaddr"),
    ("VerbsContext", "private", "priv"),
    ("VerbsContext", "create_flow", "ibv_create_flow"),
    ("VerbsContext", "destroy_flow", "ibv_destroy_flow"),
    ("VerbsContext", "placeholder1", "ABI_placeholder1"),
    ("VerbsContext", "placeholder2", "ABI_placeholder2"),
    ("VerbsContext", "placeholder3", "_ABI_placeholder3"),
    ("VerbsContext", "size", "sz"),
];

/// Prefixes of constants of the headers.
const CONSTANTS: [&str; 3] = ["IBV_", "RAI_", "RDMA_"];

/// Structures and constants to compare.
#[derive(Default)]
struct Abi {
    structures: Vec<Structure>,
    /// Paths of constants.
    constants: Vec<String>,
}

struct Structure {
    /// Path relative to the folder's module.
    path: String,
    name: String,
    is_union: bool,
    fields: Vec<String>,
}

/// Writes the module.
///
/// # Errors
/// A structure, field or constant is not in the headers, or a program fails.
pub fn write(include: &Path) -> Result<()> {
    let text = module(include)?;
    let path = shell::root().join(FOLDER).join(MODULE);
    shell::write_if_changed(&path, text.as_bytes())
}

/// Compares the module with what would be written.
///
/// # Errors
/// As [`write()`]; or they differ.
pub fn check(include: &Path) -> Result<()> {
    let path = shell::root().join(FOLDER).join(MODULE);
    let old = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(
        old == module(include)?,
        "{FOLDER}/{MODULE} is not up to date with the structures beside it: `cargo xtask verbs --layout` writes it"
    );
    Ok(())
}

/// Returns the text of the module.
fn module(include: &Path) -> Result<String> {
    let abi = Abi::read(&shell::root().join(FOLDER))?;
    let numbers = abi.measure(include)?;
    format(&abi.assertions(&numbers)?)
}

impl Abi {
    /// Reads the structures and constants of a folder's modules.
    fn read(folder: &Path) -> Result<Self> {
        let mut abi = Self::default();
        let mut files: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
            files.push(entry?.path());
        }
        files.sort();
        for file in files.iter().filter(|file| !file.ends_with(MODULE)) {
            let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            let stem = file.file_stem().unwrap_or_default().to_string_lossy();
            let module = if stem == "mod" { "super".to_owned() } else { format!("super::{stem}") };
            abi.add(&module, &text).with_context(|| file.display().to_string())?;
        }
        Ok(abi)
    }

    fn add(&mut self, module: &str, text: &str) -> Result<()> {
        for item in syn::parse_file(text)?.items {
            match item {
                Item::Struct(item) if is_c(&item.attrs) => {
                    let name = item.ident.to_string();
                    self.structures.push(Structure::new(module, name, false, &item.fields));
                }
                Item::Union(item) if is_c(&item.attrs) => {
                    let fields = Fields::Named(item.fields);
                    self.structures.push(Structure::new(module, item.ident.to_string(), true, &fields));
                }
                Item::Const(item) if matches!(item.vis, Visibility::Public(_)) => {
                    let name = item.ident.to_string();
                    if CONSTANTS.iter().any(|prefix| name.starts_with(prefix)) {
                        self.constants.push(format!("{module}::{name}"));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns what the C compiler finds: sizes and alignments by type, offsets and sizes by type and field, values by constant.
    fn measure(&self, include: &Path) -> Result<BTreeMap<String, Vec<i128>>> {
        let directory = shell::root().join("target/verbs");
        fs::create_dir_all(&directory)?;
        let (source, program) = (directory.join("layout.c"), directory.join("layout"));
        fs::write(&source, self.program())?;
        let mut compile = Command::new("cc");
        compile.args(["-D_GNU_SOURCE", "-w", "-I"]).arg(include).arg(&source).arg("-o").arg(&program);
        shell::run(&mut compile).context("the headers lack what crates/verbs/src/abi names")?;
        let text = shell::output(&mut Command::new(&program))?;
        let line = |line: &str| {
            let mut words = line.split_whitespace();
            let name = words.next().context("no name")?.to_owned();
            Ok((name, words.map(|word| Ok(word.parse()?)).collect::<Result<_>>()?))
        };
        text.lines().map(line).collect()
    }

    /// Returns the C program that prints the numbers.
    fn program(&self) -> String {
        let mut text = String::from(
            "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\n\
             #include <rdma/rdma_cma.h>\n#include <rdma/rdma_verbs.h>\nint main(void) {\n",
        );
        for structure in &self.structures {
            let (path, of) = (&structure.path, structure.in_c());
            let _ = writeln!(text, "printf(\"{path} %zu %zu\\n\", sizeof({of}), _Alignof({of}));");
            for field in &structure.fields {
                let name = structure.field_in_c(field);
                let _ = writeln!(
                    text,
                    "printf(\"{path}::{field} %zu %zu\\n\", offsetof({of}, {name}), sizeof((({of} *)0)->{name}));"
                );
            }
        }
        for constant in &self.constants {
            let name = constant.rsplit("::").next().unwrap_or_default();
            let _ = writeln!(text, "printf(\"{constant} %lld\\n\", (long long){name});");
        }
        text + "return 0; }\n"
    }

    /// Returns the module, not formatted.
    fn assertions(&self, numbers: &BTreeMap<String, Vec<i128>>) -> Result<String> {
        let mut text = String::from(HEADER);
        let find = |name: &str| numbers.get(name).with_context(|| format!("no numbers of {name}"));
        for structure in &self.structures {
            let path = &structure.path;
            let [size, align] = find(path)?[..] else { anyhow::bail!("no size of {path}") };
            let _ = write!(text, "layout!({path}: {size}, {align};");
            for field in &structure.fields {
                let [offset, size] = find(&format!("{path}::{field}"))?[..] else {
                    anyhow::bail!("no offset of {path}::{field}")
                };
                let _ = write!(text, " {field} {offset} {size},");
            }
            text += ");\n";
        }
        for constant in &self.constants {
            let [value] = find(constant)?[..] else { anyhow::bail!("no value of {constant}") };
            let _ = writeln!(text, "value!({constant}, {value});");
        }
        Ok(text)
    }
}

const HEADER: &str = r#"// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sizes, alignments, offsets and values in the headers of rdma-core 44, compared with those of this module at compile time. Written by
//! `cargo xtask verbs --layout`.

#![allow(clippy::unreadable_literal, reason = "values as the C compiler prints them")]

use super::assertions::{layout, value};

"#;

impl Structure {
    fn new(module: &str, name: String, is_union: bool, fields: &Fields) -> Self {
        let is_compared = |name: &String| {
            !is_union && name != "base" && !name.starts_with('_') && !name.starts_with("reserved")
        };
        let names = fields.iter().filter_map(|field| Some(field.ident.as_ref()?.to_string()));
        let fields = names.filter(is_compared).collect();
        Self { path: format!("{module}::{name}"), name, is_union, fields }
    }

    /// Returns the type in C.
    fn in_c(&self) -> String {
        if let Some((_, of, member)) = MEMBERS.iter().find(|(name, ..)| *name == self.name) {
            return format!("__typeof__(((struct {of} *)0)->{member})");
        }
        if let Some((_, other)) = TYPES.iter().find(|(name, _)| *name == self.name) {
            return (*other).to_owned();
        }
        let kind = if self.is_union { "union" } else { "struct" };
        format!("{kind} {}", snake_case(&self.name))
    }

    fn field_in_c(&self, field: &str) -> String {
        let other = FIELDS.iter().find(|(name, of, _)| *name == self.name && *of == field);
        match other {
            Some((.., name)) => (*name).to_owned(),
            // Operations of before rdma-core, which other tables have today.
            None if self.name == "IbvContextOps" && field.starts_with("compat_") => format!("_{field}"),
            None => field.to_owned(),
        }
    }
}

/// Returns whether a type is laid out as C does, aligned otherwise or not.
fn is_c(attributes: &[syn::Attribute]) -> bool {
    let mut is_c = false;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("repr")) {
        // An argument that this does not understand comes after the `C`.
        let _ = attribute.parse_nested_meta(|kind| {
            is_c |= kind.path.is_ident("C");
            Ok(())
        });
    }
    is_c
}

/// Returns `ibv_qp_ex` for `IbvQpEx`.
fn snake_case(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

/// Formats source as `cargo fmt` does.
fn format(text: &str) -> Result<String> {
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--edition", "2024", "--config-path"]).arg(shell::root().join("rustfmt.toml"));
    let mut child =
        rustfmt.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot run rustfmt")?;
    child.stdin.take().context("no input")?.write_all(text.as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "rustfmt refuses the module");
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "
        #[repr(C)]
        #[derive(Debug)]
        pub struct IbvQpEx { pub base: IbvQp, pub comp_mask: u64, pub reserved1: u8 }
        #[repr(C, align(8))]
        pub union IbvGid { pub raw: [u8; 16] }
        pub struct Own { pub a: u8 }
        pub const IBV_QPS_RTS: u32 = 3;
        pub const OTHER: u32 = 3;
    ";

    fn abi() -> Abi {
        let mut abi = Abi::default();
        abi.add("super::objects", SOURCE).unwrap();
        abi
    }

    #[test]
    fn each_structure_and_constant_of_the_headers_is_in_the_program() {
        let program = abi().program();
        for expected in [
            "offsetof(struct ibv_qp_ex, comp_mask)",
            "sizeof(union ibv_gid)",
            "\"super::objects::IBV_QPS_RTS %lld\\n\", (long long)IBV_QPS_RTS",
        ] {
            assert!(program.contains(expected), "{program}");
        }
        for absent in ["base", "reserved1", "OTHER", "own"] {
            assert!(!program.contains(absent), "{program}");
        }
    }

    #[test]
    fn numbers_become_assertions() {
        let numbers = [
            ("super::objects::IbvQpEx", vec![200, 8]),
            ("super::objects::IbvQpEx::comp_mask", vec![160, 8]),
            ("super::objects::IbvGid", vec![16, 8]),
            ("super::objects::IBV_QPS_RTS", vec![3]),
        ];
        let numbers = numbers.into_iter().map(|(name, values)| (name.to_owned(), values)).collect();
        let text = abi().assertions(&numbers).unwrap();
        assert!(text.ends_with(
            "layout!(super::objects::IbvQpEx: 200, 8; comp_mask 160 8,);\nlayout!(super::objects::IbvGid: 16, 8;);\n\
             value!(super::objects::IBV_QPS_RTS, 3);\n"
        ));
        assert!(abi().assertions(&BTreeMap::new()).is_err());
    }
}
