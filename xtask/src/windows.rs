// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask windows`: all packages compile for Windows: `cargo check` for the Windows target, on Linux.
//!
//! The crates that the driver links are checked with their tests; the steps `lints` and `image` compile them as the driver links them.
//!
//! Packages that need Linux are empty for Windows (`#![cfg(unix)]`): `sim/nt` and what is built on it, since the simulator maps
//! images and handles signals with Linux's own calls. The driver packages are not checked here: `wdk-build` does not compile on
//! Linux, and the steps `lints` and `image` compile them in the mirror of the workspaces. The fuzz targets are checked without
//! libFuzzer.

use std::process::Command;

use anyhow::Result;

use crate::{image::toolchain::TARGET, shell, workspace::Workspace};

/// Packages of the tools' workspace whose tests run on Windows, too, like those of all packages that the driver links.
const PORTABLE: [&str; 4] = ["captures", "roce-testkit", "smb-direct", "xtask"];

#[derive(clap::Args)]
pub struct Options {
    /// Run the tests that run on Windows, too
    #[arg(long)]
    test: bool,
}

/// Runs the command.
///
/// # Errors
/// A package that does not compile, or a test that fails.
pub fn run(options: &Options) -> Result<()> {
    if !options.test {
        return check();
    }
    for workspace in Workspace::ALL {
        let mut cargo = workspace.cargo();
        shell::run(cargo.args(["test", "--profile", "tool", "--no-fail-fast"]).args(portable(workspace)))?;
    }
    Ok(())
}

/// Installs the target if necessary; `false` if rustup cannot.
pub fn is_available() -> bool {
    shell::succeeds(Command::new("rustup").args(["target", "add", TARGET]).current_dir(shell::root()))
}

/// Checks both workspaces for the Windows target. Test targets of portable packages are checked as well.
///
/// # Errors
/// A package that does not compile.
pub fn check() -> Result<()> {
    for workspace in Workspace::ALL {
        shell::run(cargo(workspace).arg("--all-targets").args(portable(workspace)))?;
    }
    // Their libraries and programs; the driver's crates without their tests, as the driver links them, are built with the image.
    shell::run(cargo(Workspace::Tools).args(Workspace::Tools.but_drivers()))
}

/// Returns arguments of cargo for the packages of a workspace whose tests run on Windows.
fn portable(workspace: Workspace) -> Vec<&'static str> {
    match workspace {
        Workspace::Driver => workspace.but_drivers().to_vec(),
        Workspace::Tools => PORTABLE.iter().flat_map(|name| ["--package", name]).collect(),
    }
}

fn cargo(workspace: Workspace) -> Command {
    let mut cargo = workspace.cargo();
    // The profile of the tests, of which macros and build scripts are there already.
    cargo.args(["check", "--quiet", "--profile", "tool", "--target", TARGET]);
    cargo
}
