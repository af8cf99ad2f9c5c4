// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checks every declaration of the crate against `abi-x64.toml`.
//!
//! It parses the crate's sources and looks their declarations up in the table. It writes compile-time assertions for
//! offsets, sizes and type identity, which only the compiler knows. It reports itself: a name that is not in the table,
//! a missing member or dispatch table entry, a documented IRQL that differs.

mod checks;
mod ctype;
mod source;
mod table;

use std::path::Path;
use std::process::exit;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=abi-x64.toml");
    println!("cargo::rerun-if-changed=abi-extra.toml");
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=src");

    let generated = table::Table::read(Path::new("abi-x64.toml"))
        .and_then(|table| table.with_extra(Path::new("abi-extra.toml")))
        .and_then(|table| {
            let source = source::Source::read_tree(Path::new("src"))?;
            checks::generate(&table, &source).map_err(|problems| problems.join("\n"))
        });
    match generated {
        Ok(text) => {
            let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
            fs::write(Path::new(&out).join("checks.rs"), text).expect("OUT_DIR is writable");
        }
        Err(problems) => {
            for line in problems.lines() {
                println!("cargo::error={line}");
            }
            exit(1);
        }
    }
}
