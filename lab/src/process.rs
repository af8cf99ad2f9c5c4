// SPDX-License-Identifier: MIT OR Apache-2.0

//! Running other programs.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// Runs a command and returns its standard output.
///
/// # Errors
/// If the command cannot be run or fails; the error shows the command and its standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        let arguments = command.get_args().map(|argument| format!(" {}", argument.to_string_lossy()));
        let reason = String::from_utf8_lossy(&output.stderr);
        bail!("{name}{} failed ({}): {}", arguments.collect::<String>(), output.status, reason.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
