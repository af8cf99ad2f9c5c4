// SPDX-License-Identifier: MIT OR Apache-2.0

//! Debian packages that are unpacked, not installed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use sha2::{Digest as _, Sha256};

use crate::{packages, shell};

/// Returns the package files in `directory`. Downloads those that `names` returns unless the last download was for the same
/// `wanted`; they stay until the directory is deleted.
pub fn fetch(
    directory: &Path,
    wanted: &str,
    names: impl FnOnce() -> Result<Vec<String>>,
) -> Result<Vec<PathBuf>> {
    let list = directory.join("list");
    if !fs::read_to_string(&list).is_ok_and(|old| old == wanted) {
        empty(directory)?;
        let names = names()?;
        eprintln!("fetching {} Debian packages", names.len());
        packages::download(&names, directory)?;
        let files = files(directory)?;
        ensure!(files.len() == names.len(), "{} does not hold the packages it should", directory.display());
        fs::write(&list, wanted)?;
    }
    files(directory)
}

fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(directory)?
        .map(|entry| Ok(entry?.path()))
        .filter(|path| path.as_ref().is_ok_and(|path| path.extension().is_some_and(|end| end == "deb")))
        .collect::<Result<_>>()?;
    files.sort();
    Ok(files)
}

/// Creates a directory, or deletes what is in it.
pub fn empty(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => fs::create_dir_all(directory)?,
    }
    Ok(())
}

/// Returns a hash of packages and files of this repository. The file names of packages include their versions.
pub fn key(packages: &[PathBuf], inputs: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for name in packages.iter().filter_map(|path| path.file_name()) {
        hash.update(name.as_encoded_bytes());
        hash.update([0]);
    }
    for content in inputs {
        hash.update(content.len().to_le_bytes());
        hash.update(content);
    }
    let digits =
        |byte: &u8| [byte >> 4, byte & 15].map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)]));
    hash.finalize().iter().flat_map(digits).collect()
}

/// Unpacks a package below `root`.
pub fn unpack(package: &Path, root: &Path) -> Result<()> {
    shell::run(Command::new("dpkg-deb").arg("-x").arg(package).arg(root))
}

/// Unpacks the parts of a package that match these patterns.
pub fn unpack_parts(package: &Path, root: &Path, patterns: &[&str]) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.arg("-x").arg("-C").arg(root).arg("--wildcards").args(patterns);
    piped(Command::new("dpkg-deb").arg("--fsys-tarfile").arg(package), &mut tar)
}

/// Runs two programs, with the output of the first as the input of the second.
pub fn piped(from: &mut Command, to: &mut Command) -> Result<()> {
    let mut first = from.stdout(Stdio::piped()).spawn().context("cannot read a package")?;
    to.stdin(first.stdout.take().context("no output")?);
    let second = shell::run(to);
    let status = first.wait()?;
    second?;
    ensure!(status.success(), "a package cannot be unpacked ({status})");
    Ok(())
}
