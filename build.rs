// SPDX-License-Identifier: MIT OR Apache-2.0

//! Writes `viordma.inx`, which cargo-make and cargo-wdk look for after the build, and links the driver with its resources.

use std::{env, error::Error, path::PathBuf};

use driver_build::Resource;
use viordma_inf::{faults, inx, message_table};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    // It is written again if it was removed.
    println!("cargo::rerun-if-changed=viordma.inx");
    faults::check()?;
    inx::write(&PathBuf::from(env::var("CARGO_MANIFEST_DIR")?))?;
    let messages = Resource { kind: message_table::RT_MESSAGETABLE, name: 1, data: message_table::data() };
    driver_build::link(vec![messages])
}
