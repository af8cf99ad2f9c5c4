// SPDX-License-Identifier: MIT OR Apache-2.0

//! Runs the commands that need the simulator. They are in the package `lab`, which this program does not link, so that
//! it also builds on systems that the simulator does not support.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::OnceLock,
};

use anyhow::{Context as _, Result};

use crate::{shell, workspace::Workspace};

/// Environment variable with the path of this program, which builds or installs the requirements of `lab`'s commands.
/// See `provide.rs`.
const XTASK: &str = "VIORDMA_XTASK";

/// The arguments of a command of `lab`, which parses them itself.
#[derive(clap::Args)]
pub struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Runs a command of `lab` with this program's standard input and output, and returns its exit code.
pub fn run(name: &str, arguments: &Arguments) -> Result<ExitCode> {
    let status = command(name, &arguments.arguments)?.status().context("cannot run lab")?;
    // A command that a signal has ended has no code.
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Returns the path of this program. `main` calls it first: a build may replace the file while the program runs, and the
/// system then names the replaced file.
pub fn this_program() -> Result<&'static Path> {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    if let Some(path) = PATH.get() {
        return Ok(path);
    }
    let path = std::env::current_exe().context("cannot find this program")?;
    Ok(PATH.get_or_init(|| path))
}

/// Returns a command of `lab`, ready to run. The first call in a process builds `lab`, for a bench as fast as it can be.
pub fn command(name: &str, arguments: &[impl AsRef<OsStr>]) -> Result<Command> {
    static MEASURED: OnceLock<PathBuf> = OnceLock::new();
    static OTHER: OnceLock<PathBuf> = OnceLock::new();
    let xtask = this_program()?;
    let (program, profile) = if name == "bench" { (&MEASURED, "measured") } else { (&OTHER, "tool") };
    let program = if let Some(program) = program.get() {
        program
    } else {
        let built = build(xtask, profile)?;
        program.get_or_init(|| built)
    };
    let mut command = Command::new(program);
    command.arg(name).args(arguments).env(XTASK, xtask);
    Ok(command)
}

/// Builds `lab` with a profile into the target directory that `xtask` is in, as a program that its tests run: the features of its
/// dependencies are those of all packages then, and nothing is compiled twice.
fn build(xtask: &Path, profile: &str) -> Result<PathBuf> {
    let mut cargo = Workspace::Tools.cargo();
    cargo.args(["test", "--no-run", "--quiet", "--profile", profile, "--test", "cli"]);
    shell::run(cargo.args(Workspace::Tools.but_drivers()))?;
    let file = format!("lab{}", std::env::consts::EXE_SUFFIX);
    Ok(xtask.with_file_name("..").join(profile).join(file))
}
