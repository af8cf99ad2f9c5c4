// SPDX-License-Identifier: MIT OR Apache-2.0

//! Builds in two folders, whose packages must have the same bytes.
//!
//! | | first | second |
//! | --- | --- | --- |
//! | `cargo xtask package --reproduce`, all architectures | this checkout | a clone, with an `xtask` of its own |
//! | the step `reproducible package` of `cargo xtask test`, x64 | this checkout | a copy of its sources, with local changes, by this `xtask` |
//!
//! In the step, both builds use the same build scripts and macros of published packages, which are in no image but write parts of it. All
//! other code is compiled twice.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Error, Result, bail, ensure};
use tempfile::TempDir;
use viordma_inf::{Edition, inx};

use super::{archive, assembly, contents::Contents, source::Source};
use crate::{
    image::{self, Image, architecture::Architecture},
    shell::{self, Exit},
};

const ARCHITECTURES: [Architecture; 2] = [Architecture::X64, Architecture::Arm64];

/// Runs the command.
///
/// # Errors
/// With exit code 2: a source that is not committed or changes meanwhile, or no folder for the clone. A failing build; the names of files
/// that differ.
pub fn run(is_strict: bool) -> Result<()> {
    let source = Source::committed()?;
    let folder = another_folder()?;
    let clone = folder.path().join("clone");
    shell::run(Command::new("git").args(["clone", "--quiet"]).arg(shell::root()).arg(&clone))?;
    shell::run(Command::new("git").current_dir(&clone).args(["checkout", "--quiet", &source.commit]))?;
    for architecture in ARCHITECTURES {
        let mut second = Command::new("cargo");
        second.current_dir(&clone).args(["xtask", "package", "--arch", architecture.name()]);
        if is_strict {
            second.arg("--strict");
        }
        shell::run(second.env_remove("CARGO_TARGET_DIR").env_remove("CARGO_MANIFEST_DIR"))?;
        let built = assembly::build(&source, architecture, is_strict);
        // Before the result, for which a change would be the reason.
        source.check_unchanged()?;
        let mut first = built?;
        first.add_checksums();
        let path = clone.join("dist").join(format!("{}.zip", first.folder));
        let second = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        println!("{}", compare(&first, &second, &source)?);
    }
    Ok(())
}

/// Checks that a copy of the sources in another folder gives the same package of the driver for x64, and that the build there, of a checkout
/// without generated files, writes `viordma.inx`.
///
/// # Errors
/// A failing build; the names of files that differ.
pub fn check() -> Result<()> {
    const ARCHITECTURE: Architecture = Architecture::X64;
    let source = Source::head()?;
    let folder = another_folder()?;
    let copy = folder.path().join("copy");
    copy_sources(&copy)?;
    let mut first = assembly::build(&source, ARCHITECTURE, false)?;
    image::copy_published(&copy)?;
    let mut second = Command::new(env::current_exe()?);
    second.args(["image", "--arch", ARCHITECTURE.name(), "--inx"]).env(shell::ROOT, &copy).current_dir(&copy);
    shell::run(second.env_remove("CARGO_TARGET_DIR"))?;
    check_inx(&copy)?;
    let images = copy.join(ARCHITECTURE.images());
    let [sys, pdb] = ["sys", "pdb"].map(|extension| images.join(image::DRIVER).with_extension(extension));
    let mut second = assembly::make(&source, ARCHITECTURE, image::DRIVER, &Image { sys, pdb })?;
    first.add_checksums();
    second.add_checksums();
    println!("{}", compare(&first, &archive::write(&second, &source)?, &source)?);
    Ok(())
}

/// Checks that the build of the driver for Windows has written the file that `cargo make` and `cargo wdk build` look for after it.
fn check_inx(copy: &Path) -> Result<()> {
    let path = copy.join(image::MIRROR).join("viordma.inx");
    let written = fs::read_to_string(&path).context("the driver's build script wrote no viordma.inx")?;
    let expected = inx::text(Edition::Standard).map_err(Error::msg)?;
    ensure!(written == expected, "the driver's build script wrote another viordma.inx than the tables have");
    println!("viordma.inx: {} bytes, by the driver's build script for Windows", written.len());
    Ok(())
}

/// Compares a package with an archive, and returns a sentence.
fn compare(first: &Contents, second: &[u8], source: &Source) -> Result<String> {
    let data = archive::write(first, source)?;
    if data == second {
        let size = data.len();
        return Ok(format!(
            "{}.zip: two folders of different names give the same {size} bytes",
            first.folder
        ));
    }
    let other = archive::read(second)?;
    let names = first.files.keys().chain(other.files.keys().filter(|name| !first.files.contains_key(*name)));
    let differs = |name: &&String| first.files.get(*name) != other.files.get(*name);
    let different: Vec<_> = names.filter(differs).map(String::as_str).collect();
    ensure!(!different.is_empty(), "the archives differ, their files do not");
    bail!("two folders give different files: {}", different.join(", "));
}

fn another_folder() -> Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("another folder ").tempdir();
    folder.map_err(|error| Exit::usage(format!("no folder for a second build can be made: {error}")))
}

/// Makes a clone with the files of this checkout that git tracks, or would, as they are.
fn copy_sources(to: &Path) -> Result<()> {
    // The INF has the date of the commit.
    shell::run(Command::new("git").args(["clone", "--quiet", "--no-checkout"]).arg(shell::root()).arg(to))?;
    let mut git = Command::new("git");
    git.current_dir(shell::root()).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    for name in shell::output(&mut git)?.split_terminator('\0') {
        let (from, to): (PathBuf, _) = (shell::root().join(name), to.join(name));
        if !from.is_file() {
            continue; // deleted, or a link to a folder
        }
        fs::create_dir_all(to.parent().context("a file is in no folder")?)?;
        fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_differ_between_two_builds_are_named() {
        let source = Source { commit: String::new(), time: 0, date: [2026, 11, 29, 0, 0, 0] };
        let mut first = Contents { folder: "viordma-1-arm64".into(), ..Contents::default() };
        first.files.insert("viordma.pdb".into(), vec![1; 100]);
        let mut second = first.clone();
        let write = |contents: &Contents| archive::write(contents, &source).unwrap();
        assert!(compare(&first, &write(&second), &source).unwrap().starts_with("viordma-1-arm64.zip: two"));
        second.files.insert("viordma.pdb".into(), vec![2; 100]);
        second.files.insert("other.txt".into(), Vec::new());
        let error = compare(&first, &write(&second), &source).unwrap_err();
        assert_eq!(error.to_string(), "two folders give different files: viordma.pdb, other.txt");
    }
}
