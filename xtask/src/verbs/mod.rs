// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask verbs`: the libraries `libibverbs.so.1` and `librdmacm.so.1` for programs on Linux, from `crates/verbs`.
//!
//! | file | what is there |
//! | --- | --- |
//! | `symbols.rs` | the tables of symbols and versions in `crates/verbs/symbols` |
//! | `link.rs` | the libraries, linked from the archive of `crates/verbs` |
//! | `layout.rs` | the layout of structures, as Debian's headers have it |
//! | `package.rs` | the libraries as a Debian package and as a tarball |
//! | `programs.rs` | programs of Debian, unpacked into `target/verbs/programs` |
//! | `judges/` | cases that run these programs with the libraries |

mod judges;
mod layout;
mod link;
mod package;
mod programs;
mod symbols;

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use self::{judges::Selection, link::Tables};
use crate::{shell::Exit, workspace::Workspace};

/// The package whose archive is linked.
const PACKAGE: &str = "verbs";

#[derive(clap::Args)]
pub struct Options {
    /// Profile of cargo to build with
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
    /// Link this archive instead of that of crates/verbs
    #[arg(long, value_name = "FILE", hide = true)]
    archive: Option<PathBuf>,
    #[command(flatten)]
    cases: Cases,
    /// Measure programs of Debian with the libraries and over TCP, and write target/verbs/bench.md
    #[arg(long, conflicts_with_all = ["test", "package"])]
    bench: bool,
    /// Write crates/verbs/src/abi/layout.rs from Debian's headers
    #[arg(long)]
    layout: bool,
    /// Make dist/viordma-verbs_VERSION_amd64.deb and dist/viordma-verbs-VERSION-linux-x86_64.tar.gz
    #[arg(long, conflicts_with = "test")]
    package: bool,
}

#[derive(clap::Args)]
struct Cases {
    /// Run programs of Debian with the libraries, and write target/verbs/report.md
    #[arg(long)]
    test: bool,
    /// Of these, run only the cases whose name with place and faults contains this text
    #[arg(long, value_name = "TEXT", requires = "test")]
    only: Option<String>,
    /// Run only the cases of `cargo xtask test`
    #[arg(long, requires = "test", conflicts_with = "only")]
    short: bool,
    /// List the cases
    #[arg(long)]
    list: bool,
}

/// Runs the command.
///
/// # Errors
/// The libraries cannot be built, or do not export what the tables list.
pub fn run(options: &Options) -> Result<()> {
    if options.cases.list {
        judges::list();
        return Ok(());
    }
    if options.layout {
        return layout::write(&programs::unpack()?.join("usr/include"));
    }
    // Before the build, which takes longer than to find a mistake.
    let source = options.package.then(package::source).transpose()?;
    let directory = match &options.archive {
        Some(archive) => link(archive)?,
        None => build(&options.profile)?,
    };
    if let Some(source) = &source {
        for path in package::make(source, &directory, PACKAGE)? {
            println!("{}", path.display());
        }
        return Ok(());
    }
    if options.bench {
        programs::unpack()?;
        return judges::bench::bench(&ring(&options.profile)?);
    }
    if !options.cases.test {
        println!("LD_LIBRARY_PATH={} PROGRAM", directory.display());
        return Ok(());
    }
    let selection = match &options.cases.only {
        Some(text) => Selection::Only(text),
        None if options.cases.short => Selection::Short,
        None => Selection::All,
    };
    layout::check(&programs::unpack()?.join("usr/include"))?;
    let report = judges::run(selection, format!("profile {}", options.profile))?;
    if report.has_failed() {
        return Err(Exit { code: 1, message: report.summary() }.into());
    }
    Ok(())
}

/// Result of the short form: cases by how they ended.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
}

/// Builds the libraries, compares the layout of structures, and runs the most important cases. None: the programs cannot be had here.
///
/// # Errors
/// The libraries cannot be built, or a structure differs from that of the headers.
pub fn check() -> Result<Option<Counts>> {
    // That of the tests, with which most of it is compiled already.
    const PROFILE: &str = "tool";
    build(PROFILE)?;
    let programs = match programs::unpack() {
        Ok(programs) => programs,
        Err(error) => {
            println!("skipped: {error:#}");
            return Ok(None);
        }
    };
    layout::check(&programs.join("usr/include"))?;
    let report = judges::run(Selection::Short, format!("profile {PROFILE}"))?;
    let [passed, failed, skipped] = report.counts();
    Ok(Some(Counts { passed, failed, skipped }))
}

/// Builds and links the libraries, and returns their directory.
fn build(profile: &str) -> Result<PathBuf> {
    link(&archive(profile)?)
}

/// Links the libraries from an archive, and returns their directory.
fn link(archive: &Path) -> Result<PathBuf> {
    let directory = link::directory();
    Tables::read()?.link(archive, &directory)?;
    Ok(directory)
}

/// Builds the archive, and returns its path.
fn archive(profile: &str) -> Result<PathBuf> {
    let mut files = artifacts(&["--package", PACKAGE], profile)?.into_iter();
    files
        .find(|file| file.extension().is_some_and(|end| end == "a"))
        .with_context(|| format!("{PACKAGE} makes no static library"))
}

/// Builds the program that measures the ring of frames alone, and returns its path.
fn ring(profile: &str) -> Result<PathBuf> {
    let mut files = artifacts(&["--package", "verbs-core", "--example", "ring"], profile)?.into_iter();
    files.find(|file| file.ends_with("examples/ring")).context("no program")
}

/// Builds a package, and returns the files that cargo made or found.
fn artifacts(package: &[&str], profile: &str) -> Result<Vec<PathBuf>> {
    let mut cargo = Workspace::Tools.cargo();
    cargo.args(["build", "--message-format=json-render-diagnostics", "--profile", profile]).args(package);
    let output = cargo.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    ensure!(output.status.success(), "{} cannot be built", package.join(" "));
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let files = messages.flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default());
    Ok(files.filter_map(|file| file.as_str().map(PathBuf::from)).collect())
}
