// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask races`: runs the engine's tests on real threads under ThreadSanitizer, which reports accesses to the same memory
//! that no lock and no atomic operation orders. It is part of nightly toolchains only. The standard library is compiled with it, too,
//! once for each compiler and for all checkouts, as Miri does for itself.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    image::{link::link, toolchain},
    programs, shell,
    workspace::Workspace,
};

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Has the compiler add the sanitizer.
const SANITIZER: &str = "-Zsanitizer=thread";

/// Tests with threads, by parts of their names.
const ONLY: [&str; 2] = ["threads::", "shards::"];

/// The tests run for seconds, and optimizing what they need takes minutes. A report names the lines that race.
const PROFILE: [(&str, &str); 3] = [("OPT_LEVEL", "1"), ("DEBUG", "line-tables-only"), ("STRIP", "none")];

/// The manifest of a package that needs nothing but the standard library.
const EMPTY: &str =
    "[package]\nname = 'empty'\nversion = '0.0.0'\nedition = '2024'\n[lib]\npath = 'lib.rs'\n[workspace]\n";

pub fn run() -> Result<()> {
    ensure!(is_available(), "no nightly toolchain with sources is installed, or can be");
    shell::run(&mut command()?)
}

/// Installs the sources of the standard library if necessary; `false` where that is not possible.
pub fn is_available() -> bool {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return false;
    }
    let mut rustup = Command::new("rustup");
    rustup.args(["toolchain", "install", "nightly", "--profile", "minimal", "--component", "rust-src"]);
    shell::succeeds(&mut rustup)
}

/// Returns the command.
///
/// # Errors
/// The standard library cannot be compiled.
pub fn command() -> Result<Command> {
    let library = library()?;
    let mut cargo = Workspace::Driver.cargo();
    cargo.args(["+nightly", "test", "--target", TARGET, "--profile", "tool"]);
    // Other flags than those of ordinary builds, which would be compiled again.
    cargo.arg("--target-dir").arg(shell::root().join("target/races"));
    cargo.args(["--package", "roce", "--test", "engine", "--"]).args(ONLY);
    // Spaces in the path are no separators.
    let flags = format!("{SANITIZER}\u{1f}--sysroot={}", library.display());
    cargo.env_remove("RUSTFLAGS").env("CARGO_ENCODED_RUSTFLAGS", flags);
    cargo.envs(PROFILE.map(|(name, value)| (format!("CARGO_PROFILE_TOOL_{name}"), value)));
    programs::without_optimization(&mut cargo);
    // The time that a test may take is that of the machine.
    cargo.env("TSAN_OPTIONS", "halt_on_error=1");
    Ok(cargo)
}

/// Returns a folder in which the compiler finds the standard library with the sanitizer, after compiling it if there is none yet.
fn library() -> Result<PathBuf> {
    let version = shell::output(Command::new("rustc").args(["+nightly", "-vV"]))?;
    let commit = version.lines().find_map(|line| line.strip_prefix("commit-hash: "));
    let folder = toolchain::cargo_home()?.join("viordma");
    let library = folder.join(format!("thread-sanitizer-{}", commit.context("rustc names no commit")?));
    if library.is_dir() {
        return Ok(library);
    }
    eprintln!("compiling the standard library with ThreadSanitizer into {}", library.display());
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let build = tempfile::Builder::new().prefix("build-").tempdir_in(&folder)?;
    let package = build.path().join("package");
    fs::create_dir(&package)?;
    fs::write(package.join("Cargo.toml"), EMPTY)?;
    fs::write(package.join("lib.rs"), "")?;
    let mut cargo = Command::new("cargo");
    cargo.args(["+nightly", "build", "--quiet", "--release", "--target", TARGET]);
    cargo
        .args(["-Zbuild-std=std,test", "--target-dir"])
        .arg(build.path().join("target"))
        .current_dir(&package);
    cargo.env_remove("CARGO_ENCODED_RUSTFLAGS").env("RUSTFLAGS", SANITIZER);
    cargo.envs(PROFILE.map(|(name, value)| (format!("CARGO_PROFILE_RELEASE_{name}"), value)));
    shell::run(&mut cargo)?;

    let new = build.path().join("sysroot");
    let [of_target, installed] =
        [new.clone(), installed()?].map(|root| root.join("lib/rustlib").join(TARGET));
    fs::create_dir_all(of_target.join("lib"))?;
    // The linker.
    link(&installed.join("bin"), &of_target.join("bin"))?;
    copy_libraries(&build.path().join("target").join(TARGET), &of_target.join("lib"))?;
    // Another process may have been faster.
    ensure!(fs::rename(&new, &library).is_ok() || library.is_dir(), "cannot write {}", library.display());
    Ok(library)
}

/// Returns where the compiler is installed.
fn installed() -> Result<PathBuf> {
    Ok(shell::output(Command::new("rustc").args(["+nightly", "--print", "sysroot"]))?.trim().into())
}

/// Copies the compiled libraries below a folder, wherever cargo has them.
fn copy_libraries(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            copy_libraries(&path, to)?;
        } else if path.extension().is_some_and(|extension| extension == "rlib" || extension == "rmeta")
            && let Some(name) = path.file_name()
        {
            fs::copy(&path, to.join(name)).with_context(|| format!("cannot copy {}", path.display()))?;
        }
    }
    Ok(())
}
