// SPDX-License-Identifier: MIT OR Apache-2.0

//! Symbolic links, of which the mirror and the stand-in for the kit are made.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};

/// Makes `to` a symbolic link to `from`. Another process may do the same at the same time.
pub fn link(from: &Path, to: &Path) -> Result<()> {
    if fs::read_link(to).ok().as_deref() == Some(from) {
        return Ok(());
    }
    let _ = fs::remove_file(to);
    symlink(from, to)
        .or_else(|error| if to.exists() { Ok(()) } else { Err(error) })
        .with_context(|| format!("cannot link {} to {}", to.display(), from.display()))
}

/// Makes the directory `to` with links to all that the package in `from` has, except its manifest, lock file and build.
pub fn link_package(from: &Path, to: &Path) -> Result<()> {
    if to.is_symlink() {
        fs::remove_file(to)?; // left by an older layout
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if !["Cargo.toml", "Cargo.lock", "target"].iter().any(|other| entry.file_name() == *other) {
            link(&entry.path(), &to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

#[cfg(unix)]
use std::os::unix::fs::symlink;

/// The image is built on Linux only; `build` refuses before it gets here.
#[cfg(not(unix))]
fn symlink(_from: &Path, _to: &Path) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}
