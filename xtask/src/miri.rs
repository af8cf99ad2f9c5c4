// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask miri`: runs tests of portable crates in Miri, an interpreter that reports undefined behavior: references
//! that alias what they must not, use of freed or uninitialized memory, data races. It is part of nightly toolchains only.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::shell;

/// Packages whose unit tests Miri runs. Those of `virtio-net` need loom or shared mappings, which it does not support.
const PACKAGES: [&str; 3] = ["fallible", "state-table", "nt"];

/// No isolation: tests read the clock. Addresses of hosted MDLs are integers, as page frame numbers are.
const FLAGS: &str = "-Zmiri-disable-isolation -Zmiri-permissive-provenance";

pub fn run() -> Result<()> {
    ensure!(is_available(), "no nightly toolchain with Miri is installed, or can be");
    commands().try_for_each(|mut command| shell::run(&mut command))
}

/// Installs Miri if necessary; `false` where that is not possible.
pub fn is_available() -> bool {
    let installed = || shell::succeeds(Command::new("cargo").args(["+nightly", "miri", "--version"]));
    let mut rustup = Command::new("rustup");
    rustup.args(["toolchain", "install", "nightly", "--profile", "minimal", "--component", "miri,rust-src"]);
    installed() || (shell::succeeds(&mut rustup) && installed())
}

/// Returns the command of each package.
pub fn commands() -> impl Iterator<Item = Command> {
    PACKAGES.iter().map(|package| {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(shell::root()).args(["+nightly", "miri", "test", "--lib", "--package", package]);
        // Otherwise a library for snapshots starts cargo, which Miri does not support.
        cargo.env("MIRIFLAGS", FLAGS).env("INSTA_WORKSPACE_ROOT", shell::root());
        cargo
    })
}
