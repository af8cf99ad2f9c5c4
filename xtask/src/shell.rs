// SPDX-License-Identifier: MIT OR Apache-2.0

//! Running other programs, and the paths and errors all commands share.

use std::{
    env, fmt, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use anyhow::{Context as _, Result, bail};

/// An error that ends the tool with an exit code of its own; any other error ends it with 1.
#[derive(Debug)]
pub struct Exit {
    pub code: u8,
    pub message: String,
}

impl Exit {
    /// An input that the command cannot use: exit code 2.
    pub fn usage(message: impl Into<String>) -> anyhow::Error {
        Self { code: 2, message: message.into() }.into()
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Exit {}

/// Returns the exit code for `error`.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    error.downcast_ref::<Exit>().map_or(1, |exit| exit.code)
}

/// Environment variable with the root directory of a copy of the workspace, for a check that builds there, too.
pub const ROOT: &str = "VIORDMA_ROOT";

/// The workspace's root directory.
pub fn root() -> &'static Path {
    static OTHER: LazyLock<Option<PathBuf>> = LazyLock::new(|| env::var_os(ROOT).map(PathBuf::from));
    let own =
        || Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a directory of the workspace");
    OTHER.as_deref().unwrap_or_else(own)
}

/// Runs a command. If it fails, the error names it with its arguments.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {}", name(command)))?;
    if !status.success() {
        bail!("{} failed ({status})", line(command));
    }
    Ok(())
}

/// Runs a command and returns its standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {}", name(command)))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        bail!("{} failed ({}): {}", line(command), output.status, reason.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns true if the command succeeds. Drops its output.
pub fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Searches `PATH` for a program.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// Writes a file unless it already has this content, so that nothing is rebuilt because of it.
pub fn write_if_changed(path: &Path, content: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

fn line(command: &Command) -> String {
    let arguments = command.get_args().map(|argument| format!(" {}", argument.to_string_lossy()));
    name(command) + &arguments.collect::<String>()
}
