//! The compiler of the image: rustup's with the target's library, or Debian's with its own library source.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::TARGET;
use crate::{packages, shell};

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Toolchain {
    /// The workspace's toolchain, and the target's library as rustup brings it.
    Rustup,
    /// `rustc-web`, which is newer than Debian's `rustc`; the library is built from `rust-web-src`.
    Debian,
}

impl Toolchain {
    /// Prefers rustup; takes Debian's compiler where rustup is absent or cannot bring the target.
    pub fn find() -> Self {
        if shell::find_program("rustup").is_some() {
            let installed =
                shell::output(rustup().args(["target", "list", "--installed"])).unwrap_or_default();
            if installed.lines().any(|line| line == TARGET) {
                return Self::Rustup;
            }
            eprintln!("adding the target {TARGET} with rustup");
            if shell::succeeds(rustup().args(["target", "add", TARGET])) {
                return Self::Rustup;
            }
            eprintln!("rustup cannot bring {TARGET}; taking Debian's compiler and its library's source");
        }
        Self::Debian
    }

    /// Installs what is missing of the toolchain.
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
                // rustup's proxies and what they set for the cargo that started this program must not be met.
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

    /// LLD's PE linker: the toolchain's own where it has one.
    pub fn linker(self) -> PathBuf {
        match self {
            Self::Rustup => Path::new("rust-lld").into(),
            Self::Debian => Path::new("/usr/bin/lld-link-19").into(),
        }
    }

    fn rustc(self) -> Command {
        Command::new(match self {
            Self::Rustup => "rustc",
            Self::Debian => "/usr/bin/rustc",
        })
    }
}

/// rustup, for the toolchain that the workspace names.
fn rustup() -> Command {
    let mut rustup = Command::new("rustup");
    rustup.current_dir(shell::root());
    rustup
}

/// Where cargo keeps the sources of published packages.
pub fn cargo_home() -> Result<PathBuf> {
    std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))
        .context("neither CARGO_HOME nor HOME is set")
}
