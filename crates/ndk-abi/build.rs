// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checks every declaration of the crate against `abi-x64.toml`.

use std::path::Path;
use std::process::exit;
use std::{env, fs};

use abi_table::{Source, Table};

fn main() {
    println!("cargo::rerun-if-changed=abi-x64.toml");
    println!("cargo::rerun-if-changed=abi-extra.toml");
    println!("cargo::rerun-if-changed=src");

    let generated = Table::read(Path::new("abi-x64.toml"))
        .and_then(|table| table.with_extra(Path::new("abi-extra.toml")))
        .and_then(|table| {
            let source = Source::read_tree(Path::new("src"))?;
            abi_table::checks(&table, &source).map_err(|problems| problems.join("\n"))
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
