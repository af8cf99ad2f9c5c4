// SPDX-License-Identifier: MIT OR Apache-2.0

//! The linker's flags for a kernel-mode driver, from `wdk-build`, and the image's resources.

mod resources;
mod version_resource;

pub use resources::Resource;

/// Tells cargo how to link the package that is being built as a driver, with a version resource made of its manifest and with
/// `resources`.
///
/// # Errors
/// If the kit is not found, or the resources cannot be written.
pub fn link(mut resources: Vec<Resource>) -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    resources.insert(0, version_resource::resource()?);
    resources::link(&resources)?;
    Ok(wdk_build::configure_wdk_binary_build()?)
}
