// SPDX-License-Identifier: MIT OR Apache-2.0

//! The linker's flags for a kernel-mode driver, from `wdk-build`, and the image's resources.

mod resources;
mod version_resource;

use self::resources::Resource;

/// Type of a message table, and the number of the only one.
const RT_MESSAGETABLE: u16 = 11;
const MESSAGES: u16 = 1;

/// Tells cargo how to link the package that is being built as a driver, with a version resource made of its manifest, and a
/// message table if `messages` holds one. `name` is that of the image and its debug information, without an extension.
///
/// # Errors
/// If the kit is not found, or the resources cannot be written.
pub fn link(name: &str, messages: Option<Vec<u8>>) -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let mut resources = vec![version_resource::resource(name)?];
    resources.extend(messages.map(|data| Resource { kind: RT_MESSAGETABLE, name: MESSAGES, data }));
    resources::link(&resources)?;
    // The debugger looks for the file of this name.
    println!("cargo::rustc-cdylib-link-arg=/PDBALTPATH:{name}.pdb");
    Ok(wdk_build::configure_wdk_binary_build()?)
}
