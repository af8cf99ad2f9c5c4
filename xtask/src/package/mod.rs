// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask package`: what an administrator unpacks and installs, as `dist/viordma-VERSION-x64.zip`.
//!
//! | file | responsible for |
//! | --- | --- |
//! | `source.rs` | the commit that is packaged |
//! | `contents.rs`, `assembly.rs` | the files of a package, and how they are made |
//! | `catalog.rs`, `authenticode.rs` | the catalog, and the digests in it |
//! | `signing.rs` | test keys, signatures |
//! | `sbom.rs`, `notices.rs` | what is linked, and its licenses |
//! | `inf_parser.rs`, `inf_rules.rs` | sections and entries of an INF; rules that InfVerif checks on Windows |
//! | `wine/` | the INF, installed by Wine |
//! | `scripts.rs`, `address_runs.rs` | tests of the scripts and of the page that leads to them |
//! | `page.rs` | the files that pages for administrators name |
//! | `archive.rs` | the zip file |
//! | `verify.rs` | comparison of an archive with a build |
//! | `reproduce.rs` | comparison of builds in two folders |
//!
//! Everything but signatures depends on the commit and the compiler alone: two clones give the same bytes. Windows has seen none of it.

#[cfg(test)]
mod address_runs;
mod archive;
mod assembly;
mod authenticode;
mod catalog;
pub mod contents;
mod inf_parser;
mod inf_rules;
pub mod notices;
mod page;
pub mod reproduce;
mod sbom;
#[cfg(all(test, not(windows)))]
mod scripts;
mod signing;
pub mod source;
mod verify;
pub mod wine;

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result, ensure};

pub use self::contents::hexadecimal;
use self::{assembly::build, contents::Contents, signing::Signer, source::Source};
use crate::{image::architecture::Architecture, shell};

#[derive(clap::Args)]
pub struct Options {
    /// Architecture of the package
    #[arg(long, value_enum, value_name = "NAME", default_value_t)]
    arch: Architecture,
    /// Sign image and catalog: with a key that is made, used and deleted ("test"), or with key and certificates of this PEM file
    #[arg(long, value_name = "test|KEY")]
    sign: Option<String>,
    /// Package viordma-strict, the driver for authors of NDK consumers
    #[arg(long)]
    strict: bool,
    /// Build again, and compare with this archive, signatures aside
    #[arg(long, value_name = "FILE", conflicts_with_all = ["arch", "sign", "strict"])]
    verify: Option<PathBuf>,
    /// Build for all architectures, in a second clone in another folder, too, and compare the archives byte by byte
    #[arg(long, conflicts_with_all = ["arch", "sign", "verify"])]
    reproduce: bool,
}

/// Runs the command.
///
/// # Errors
/// A source that is not committed, a missing tool, an unreadable key or archive (exit code 2); a failing build, check or comparison.
pub fn run(options: &Options) -> Result<()> {
    if let Some(file) = &options.verify {
        return verify::run(file);
    }
    if options.reproduce {
        return reproduce::run(options.strict);
    }
    let source = Source::committed()?;
    let signer = options.sign.as_deref().map(Signer::new).transpose()?;
    let built = build(&source, options.arch, options.strict);
    // Before the result, for which a change would be the reason.
    source.check_unchanged()?;
    let mut contents = built?;
    if let Some(signer) = &signer {
        signer.sign(&mut contents, source.time)?;
    }
    contents.add_checksums();
    let dist = shell::root().join("dist");
    fs::create_dir_all(&dist).with_context(|| format!("cannot create {}", dist.display()))?;
    let path = dist.join(format!("{}.zip", contents.folder));
    let new = dist.join(format!(".{}.{}", contents.folder, std::process::id()));
    let data = archive::write(&contents, &source)?;
    let written = fs::write(&new, data).and_then(|()| fs::rename(&new, &path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written.with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}", path.display());
    if signer.is_none() {
        println!("not signed: --sign test, or signtool on Windows (README.md in the archive)");
    }
    Ok(())
}

/// Makes the package of an image that was built, signs it with a test key, and checks that changed files are noticed. For the step
/// `package` of `cargo xtask test`, which also runs with local changes.
///
/// # Errors
/// A check fails.
pub fn check() -> Result<usize> {
    let source = Source::head()?;
    let signer = Signer::new(signing::TEST)?;
    // Both editions have the same file in cargo's folder, so that each is linked again after the other one: the first here is the last that the
    // step `image` has built, and the next step begins with the second.
    let packages = [(Architecture::X64, true), (Architecture::X64, false), (Architecture::Arm64, false)];
    for (architecture, is_strict) in packages {
        let mut contents = build(&source, architecture, is_strict)?;
        let unsigned = contents.clone();
        signer.sign(&mut contents, source.time)?;
        signer.check_changes(&contents)?;
        contents.add_checksums();
        let archive = archive::read(&archive::write(&contents, &source)?)?;
        ensure!(
            verify::differences(&archive, &unsigned).is_empty(),
            "the archive differs from what it was made of"
        );
        let missing = page::missing(&Contents { driver: contents.driver.clone(), ..archive })?;
        ensure!(missing.is_empty(), "the archive has no {}, which pages name", missing.join(", "));
        let mut plain = unsigned.clone();
        plain.add_checksums();
        verify::check_changes(&plain, &unsigned)?;
    }
    Ok(packages.len())
}
