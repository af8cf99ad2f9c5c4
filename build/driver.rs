// SPDX-License-Identifier: MIT OR Apache-2.0

//! The driver's build script: linker flags for a kernel-mode driver from `wdk-build`, and the image's resources.
//!
//! `cargo xtask image` uses this file as the build script itself, since `build.rs` does nothing on Linux.

#[path = "../src/events/table.rs"]
mod events;
#[path = "message_table.rs"]
mod message_table;
#[path = "resources.rs"]
mod resources;
#[path = "version_resource.rs"]
mod version_resource;

pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=src/events/table.rs");
    resources::link(&[version_resource::resource()?, message_table::resource()])?;
    wdk_build::configure_wdk_binary_build()?;
    Ok(())
}
