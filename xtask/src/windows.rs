// SPDX-License-Identifier: MIT OR Apache-2.0

//! The workspace compiles for Windows: `cargo check` of every package for the Windows target, on Linux.
//!
//! `cargo wdk build` builds every member of the workspace, so each one has to compile there. Packages that need Linux are
//! empty for Windows (`#![cfg(unix)]`): `sim/nt` and what is built on it, since the simulator maps images and handles
//! signals with Linux's own calls. The driver packages are not checked here: `wdk-build` does not compile on Linux, and the
//! steps `lints` and `image` compile them in the mirror of the workspace. The fuzz targets are checked without libFuzzer.

use std::process::Command;

use anyhow::Result;

use crate::{drivers, image::toolchain::TARGET, shell};

/// Packages whose tests run on Windows, too. Their test targets are checked as well.
pub const PORTABLE: [&str; 12] = [
    "captures",
    "fallible",
    "ndk-abi",
    "ndk-provider",
    "nt",
    "roce",
    "roce-testkit",
    "roce-wire",
    "smb-direct",
    "state-table",
    "virtio-net",
    "xtask",
];

/// Installs the target if necessary; `false` if rustup cannot.
pub fn is_available() -> bool {
    shell::succeeds(Command::new("rustup").args(["target", "add", TARGET]).current_dir(shell::root()))
}

/// Checks the workspace for the Windows target.
pub fn check() -> Result<()> {
    shell::run(cargo().args(drivers::all_others()))?;
    shell::run(cargo().args(["--package", "roce-fuzz", "--no-default-features"]))?;
    shell::run(cargo().args(["--package", "nt", "--features", "kernel"]))?;
    let portable = PORTABLE.iter().flat_map(|name| ["--package", name]);
    shell::run(cargo().arg("--all-targets").args(portable))
}

fn cargo() -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args(["check", "--quiet", "--target", TARGET]).current_dir(shell::root());
    cargo
}
