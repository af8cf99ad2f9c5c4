// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests of portable crates for arm64, which QEMU emulates on this machine: the code that the compiler makes for it, PMULL among it. They say
//! nothing of the order of memory accesses, which is the host's; models and Miri check that.

use std::process::Command;

use anyhow::Result;

use crate::{
    packages::{self, ARM64},
    shell,
    workspace::Workspace,
};

const TARGET: &str = "aarch64-unknown-linux-gnu";

const PACKAGES: [&str; 5] = ["fallible", "roce", "roce-wire", "state-table", "virtio-net"];

/// Returns whether the target, a linker and the emulator are there, or could be installed.
pub fn is_available() -> bool {
    if let Err(error) = packages::require(&ARM64) {
        eprintln!("{error:#}");
        return false;
    }
    shell::succeeds(Command::new("rustup").args(["target", "add", TARGET]).current_dir(shell::root()))
}

/// Returns the command that builds and runs the tests inside of the crates.
///
/// # Errors
/// The packages cannot be had.
pub fn command() -> Result<Command> {
    packages::require(&ARM64)?;
    let mut cargo = Workspace::Driver.cargo();
    cargo.args(["test", "--profile", "tool", "--lib", "--target", TARGET]);
    cargo.args(PACKAGES.iter().flat_map(|name| ["--package", name]));
    // Models explore orders of steps, which are the same on each processor; they take minutes on an emulated one.
    cargo.args(["--", "--skip", "models::"]);
    cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
    let emulator = "qemu-aarch64-static -L /usr/aarch64-linux-gnu";
    cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", emulator);
    Ok(cargo)
}
