// SPDX-License-Identifier: MIT OR Apache-2.0

//! Build scripts of kernel-mode drivers.
//!
//! On Windows, and in the mirror of `cargo xtask image`, this is the module `kit`. On other hosts there is nothing to link: drivers are
//! empty packages there.
#![deny(unsafe_code)]

#[cfg(windows)]
mod kit;

#[cfg(windows)]
pub use kit::*;

/// Links nothing.
///
/// # Errors
/// None.
#[cfg(not(windows))]
pub fn link(_name: &str, _messages: Option<Vec<u8>>) -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!(
        "cargo::warning=drivers are built on Windows, or with `cargo xtask image`; this command built nothing. \
         `cargo xtask test` runs all tests; `cargo test -p NAME` runs those of a crate that the driver links, \
         `cargo xtest -p NAME` those of another package."
    );
    Ok(())
}
