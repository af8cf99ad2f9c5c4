// SPDX-License-Identifier: MIT OR Apache-2.0

//! The two workspaces: the driver with the packages that it links, and all other packages.
//!
//! They share one target directory, `target`, and the profiles of `.cargo/config.toml`. [`crate::manifests`] compares what
//! both manifests and both lock files say.

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::shell;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workspace {
    /// `Cargo.toml`: what cargo builds on Windows.
    Driver,
    /// `xtask/Cargo.toml`: the simulator, its drivers, consumers and tests, and the tools.
    Tools,
}

impl Workspace {
    pub const ALL: [Self; 2] = [Self::Driver, Self::Tools];

    /// Returns the directory of the workspace's manifest and lock file, relative to the root of the repository.
    pub const fn folder(self) -> &'static str {
        match self {
            Self::Driver => ".",
            Self::Tools => "xtask",
        }
    }

    /// Returns a file beside the workspace's manifest.
    pub fn file(self, name: &str) -> PathBuf {
        shell::root().join(self.folder()).join(name)
    }

    /// Returns a cargo command for the workspace.
    pub fn cargo(self) -> Command {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(shell::root().join(self.folder()));
        cargo
    }

    /// Returns the packages of `cargo metadata` with these arguments: those of the workspace and, without `--no-deps`, all that
    /// they depend on.
    pub fn packages(self, arguments: &[&str]) -> Result<Vec<Value>> {
        let mut cargo = self.cargo();
        let output = shell::output(cargo.args(["metadata", "--format-version", "1"]).args(arguments))?;
        let mut metadata: Value = serde_json::from_str(&output).context("cargo metadata")?;
        match metadata["packages"].take() {
            Value::Array(packages) => Ok(packages),
            _ => bail!("cargo metadata lists no packages"),
        }
    }

    /// Returns arguments of cargo for all packages of the workspace but the drivers, which compile only in the mirror of the
    /// image.
    pub const fn but_drivers(self) -> &'static [&'static str] {
        match self {
            Self::Driver => &["--workspace", "--exclude", "viordma"],
            Self::Tools => &[
                "--workspace",
                "--exclude",
                "example-consumer",
                "--exclude",
                "smb-driver",
                "--exclude",
                "test-driver",
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::DRIVERS;

    #[test]
    fn every_driver_is_excluded() {
        let excluded: Vec<&str> = Workspace::ALL.iter().flat_map(|all| all.but_drivers()).copied().collect();
        assert!(DRIVERS.iter().all(|driver| excluded.contains(driver)), "{excluded:?}");
    }
}
