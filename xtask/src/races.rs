// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask races`: runs the engine's tests on real threads under ThreadSanitizer, which reports accesses to the same memory
//! that no lock and no atomic operation orders. It is part of nightly toolchains only, and the standard library is compiled
//! with it.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::{shell, workspace::Workspace};

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Tests with threads, by parts of their names.
const ONLY: [&str; 2] = ["threads::", "shards::"];

pub fn run() -> Result<()> {
    ensure!(is_available(), "no nightly toolchain with sources is installed, or can be");
    shell::run(&mut command())
}

/// Installs the sources of the standard library if necessary; `false` where that is not possible.
pub fn is_available() -> bool {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return false;
    }
    let mut rustup = Command::new("rustup");
    rustup.args(["toolchain", "install", "nightly", "--profile", "minimal", "--component", "rust-src"]);
    shell::succeeds(&mut rustup)
}

/// Returns the command.
pub fn command() -> Command {
    let mut cargo = Workspace::Driver.cargo();
    cargo.args(["+nightly", "test", "-Zbuild-std", "--target", TARGET, "--profile", "tool"]);
    // Other flags than those of ordinary builds, which would be compiled again.
    cargo.arg("--target-dir").arg(shell::root().join("target/races"));
    cargo.args(["--package", "roce", "--test", "engine", "--"]).args(ONLY);
    cargo.env("RUSTFLAGS", "-Zsanitizer=thread");
    // A report names the lines that race.
    cargo.env("CARGO_PROFILE_TOOL_DEBUG", "line-tables-only").env("CARGO_PROFILE_TOOL_STRIP", "none");
    // The time that a test may take is that of the machine.
    cargo.env("TSAN_OPTIONS", "halt_on_error=1");
    cargo
}
