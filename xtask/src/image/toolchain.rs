// SPDX-License-Identifier: MIT OR Apache-2.0

//! The compiler of the image: rustup's with the target's library, or Debian's, which builds the library from source.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::architecture::Architecture;
use crate::{packages, shell};

/// The target that the image is built for, unless another architecture is asked for.
pub const TARGET: &str = Architecture::X64.target();

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Toolchain {
    /// The workspace's toolchain, with the target's library from rustup.
    Rustup,
    /// `rustc-web`, which is newer than Debian's `rustc`; the library is built from `rust-web-src`.
    Debian,
}

impl Toolchain {
    /// Returns rustup's toolchain, or Debian's where rustup is absent or cannot install the target.
    pub fn find(architecture: Architecture) -> Self {
        let target = architecture.target();
        if shell::find_program("rustup").is_some() {
            let installed =
                shell::output(rustup().args(["target", "list", "--installed"])).unwrap_or_default();
            if installed.lines().any(|line| line == target) {
                return Self::Rustup;
            }
            eprintln!("adding the target {target} with rustup");
            if shell::succeeds(rustup().args(["target", "add", target])) {
                return Self::Rustup;
            }
            eprintln!("rustup cannot install {target}; using Debian's compiler and library source");
        }
        Self::Debian
    }

    /// Installs the missing packages of the toolchain.
    pub fn prepare(self) -> Result<()> {
        match self {
            Self::Rustup => Ok(()),
            Self::Debian => packages::require(&packages::COMPILER),
        }
    }

    pub fn description(self) -> String {
        let version = shell::output(self.rustc().arg("--version")).unwrap_or_default();
        let version = version.trim();
        match self {
            Self::Rustup => format!("rustup's {version} and its library"),
            Self::Debian => format!("Debian's {version}, core and alloc built from source"),
        }
    }

    pub fn cargo(self) -> Command {
        match self {
            Self::Rustup => Command::new("cargo"),
            Self::Debian => {
                let mut cargo = Command::new("/usr/bin/cargo");
                // This program was started by rustup's cargo; Debian's must not see rustup's settings.
                cargo.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").env("RUSTC", "/usr/bin/rustc");
                // -Zbuild-std is not stable; this compiler and this library source are of one version.
                cargo.env("RUSTC_BOOTSTRAP", "1");
                cargo
            }
        }
    }

    pub fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Rustup => &[],
            Self::Debian => &["-Zbuild-std=core,alloc"],
        }
    }

    /// The linker: the toolchain's own LLD, or Debian's.
    pub fn linker(self) -> PathBuf {
        match self {
            Self::Rustup => Path::new("rust-lld").into(),
            Self::Debian => Path::new("/usr/bin/lld-link-19").into(),
        }
    }

    /// Returns the directory of the compiler and its libraries.
    ///
    /// # Errors
    /// The compiler cannot be run.
    pub fn sysroot(self) -> Result<String> {
        let mut rustc = self.rustc();
        Ok(shell::output(rustc.current_dir(shell::root()).args(["--print", "sysroot"]))?.trim().to_owned())
    }

    /// Returns the version of the compiler, such as 1.95.0.
    ///
    /// # Errors
    /// The compiler cannot be run.
    pub fn version(self) -> Result<String> {
        let text = shell::output(self.rustc().current_dir(shell::root()).arg("--version"))?;
        Ok(text.split_whitespace().nth(1).unwrap_or_default().to_owned())
    }

    fn rustc(self) -> Command {
        Command::new(match self {
            Self::Rustup => "rustc",
            Self::Debian => "/usr/bin/rustc",
        })
    }
}

/// rustup, run in the workspace so that it uses the workspace's toolchain.
fn rustup() -> Command {
    let mut rustup = Command::new("rustup");
    rustup.current_dir(shell::root());
    rustup
}

/// Cargo's home directory, which holds the sources of published packages.
pub fn cargo_home() -> Result<PathBuf> {
    std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))
        .context("neither CARGO_HOME nor HOME is set")
}
