// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask package --reproduce`: builds the package in a second clone in another folder, with all that it needs, and compares bytes.

use std::{fs, process::Command};

use anyhow::{Context as _, Result, bail, ensure};

use super::{archive, assembly::build, source::Source};
use crate::{
    image::architecture::Architecture,
    shell::{self, Exit},
};

/// Runs the command.
///
/// # Errors
/// With exit code 2: a source that is not committed or changes meanwhile, or no folder for the clone. A failing build; the names of files
/// that differ.
pub fn run(architecture: Architecture, is_strict: bool) -> Result<()> {
    let source = Source::committed()?;
    let folder = tempfile::Builder::new()
        .prefix("another folder ")
        .tempdir()
        .map_err(|error| Exit::usage(format!("no folder for a clone can be made: {error}")))?;
    let clone = folder.path().join("clone");
    shell::run(Command::new("git").args(["clone", "--quiet"]).arg(shell::root()).arg(&clone))?;
    shell::run(Command::new("git").current_dir(&clone).args(["checkout", "--quiet", &source.commit]))?;
    let mut second = Command::new("cargo");
    second.current_dir(&clone).args(["xtask", "package", "--arch", architecture.name()]);
    if is_strict {
        second.arg("--strict");
    }
    shell::run(second.env_remove("CARGO_TARGET_DIR").env_remove("CARGO_MANIFEST_DIR"))?;

    let built = build(&source, architecture, is_strict);
    // Before the result, for which a change would be the reason.
    check_unchanged(&source)?;
    let mut contents = built?;
    contents.add_checksums();
    let first = archive::write(&contents, &source)?;
    let path = clone.join("dist").join(format!("{}.zip", contents.folder));
    let second = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    if first == second {
        println!(
            "{}.zip: two clones in folders of different names build the same {} bytes",
            contents.folder,
            first.len()
        );
        return Ok(());
    }
    let other = archive::read(&second)?;
    let differs = |name: &&String| contents.files.get(*name) != other.files.get(*name);
    let different: Vec<_> = contents.files.keys().filter(differs).map(String::as_str).collect();
    ensure!(!different.is_empty(), "the archives differ, their files do not");
    bail!("two clones build different files: {}", different.join(", "));
}

/// Checks that this checkout has been at a commit without local changes since before its clone was made, as far as that shows afterwards.
fn check_unchanged(source: &Source) -> Result<()> {
    let now = Source::committed()?;
    if now.commit != source.commit {
        return Err(Exit::usage(format!(
            "this checkout was at {} when it was cloned, and is at {}: nothing was compared",
            source.commit, now.commit
        )));
    }
    Ok(())
}
