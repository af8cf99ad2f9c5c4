// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask models`: runs the models of concurrent code, which execute every schedule of a few threads by loom. They are
//! unit tests of the crates that they check, so the other tests include them.

use anyhow::Result;

use crate::{shell, workspace::Workspace};

/// Packages with models.
const PACKAGES: [&str; 4] = ["fallible", "nt", "roce", "virtio-net"];

/// Modules that contain them.
const MODULES: [&str; 2] = ["models::", "notify::"];

#[derive(clap::Args)]
pub struct Options {
    /// Maximum number of times that threads are preempted in a schedule
    #[arg(long)]
    preemptions: Option<u32>,
}

/// Runs the command.
///
/// # Errors
/// A model does not build, or fails.
pub fn run(options: &Options) -> Result<()> {
    let mut cargo = Workspace::Driver.cargo();
    cargo.args(["test", "--profile", "tool", "--lib"]);
    for package in PACKAGES {
        cargo.args(["--package", package]);
    }
    cargo.arg("--").args(MODULES);
    if let Some(preemptions) = options.preemptions {
        cargo.env("LOOM_MAX_PREEMPTIONS", preemptions.to_string());
    }
    shell::run(&mut cargo)
}
