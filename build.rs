// SPDX-License-Identifier: MIT OR Apache-2.0

//! Writes `viordma.inx`, which cargo-make and cargo-wdk look for after the build, and links the driver with its resources.

use std::{env, error::Error, path::PathBuf};

use viordma_inf::{Edition, faults, inx, message_table};

/// Environment variable that `cargo xtask image` sets: it builds both editions in one directory, and writes the INF itself.
const NO_INX: &str = "VIORDMA_NO_INX";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={NO_INX}");
    faults::check()?;
    let edition = if cfg!(feature = "strict") { Edition::Strict } else { Edition::Standard };
    if env::var_os(NO_INX).is_none() {
        // It is written again if it was removed.
        println!("cargo::rerun-if-changed=viordma.inx");
        inx::write(&PathBuf::from(env::var("CARGO_MANIFEST_DIR")?), edition)?;
    }
    // `cargo xtask image` names the images by their editions; otherwise both have the name of the package.
    let name = if env::var_os(NO_INX).is_some() { edition.name() } else { Edition::Standard.name() };
    driver_build::link(name, Some(message_table::data(edition)))
}
