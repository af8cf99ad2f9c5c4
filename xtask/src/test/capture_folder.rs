// SPDX-License-Identifier: MIT OR Apache-2.0

//! The folder in which steps leave captures, for the step that checks them all.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result};

use crate::shell;

/// Environment variable with the directory in which tests leave captures (`tests/support/captures.rs`).
pub const CAPTURES: &str = "NTSIM_CAPTURES";

/// Returns the directory of the captures, which exists then.
pub fn directory() -> Result<PathBuf> {
    let directory = shell::root().join("target/test/captures");
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    Ok(directory)
}

/// Removes the captures of earlier runs.
pub fn clear() -> Result<()> {
    let directory = directory()?;
    fs::remove_dir_all(&directory).with_context(|| format!("cannot empty {}", directory.display()))
}
