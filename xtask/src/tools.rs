// SPDX-License-Identifier: MIT OR Apache-2.0

//! Programs of crates.io that commands use, installed for all checkouts of a user: into a folder of `$CARGO_HOME/viordma` for each version.
//! They are built without optimization, which takes a fraction of the processor time: cargo-deny 120 s, and 2 s for a check.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use crate::{image::toolchain, shell};

/// A program of a package that has the same name.
pub struct Tool {
    pub name: &'static str,
    /// The version that is installed.
    pub version: &'static str,
    /// Its features, if not the default ones.
    pub features: Option<&'static str>,
}

/// Names mutants. Another version may name them differently.
pub const CARGO_MUTANTS: Tool = Tool { name: "cargo-mutants", version: "27.1.0", features: None };

/// Checks licenses, sources and advisories of dependencies.
pub const CARGO_DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2", features: None };

/// Makes a book of Markdown. Without its web server it takes 70 s of processor time.
pub const MDBOOK: Tool = Tool { name: "mdbook", version: "0.5.4", features: Some("search") };

impl Tool {
    /// Returns the path of the program. Installs it if it is missing.
    ///
    /// # Errors
    /// It cannot be installed.
    pub fn installed(&self) -> Result<PathBuf> {
        let Self { name, version, features } = self;
        let directory = self.directory(&toolchain::cargo_home()?);
        let program = directory.join("bin").join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
        if !program.is_file() {
            eprintln!("installing {name} {version} into {}", directory.display());
            let mut cargo = Command::new("cargo");
            cargo.args(["install", "--quiet", "--locked", "--debug", name, "--version", version]);
            if let Some(features) = features {
                cargo.args(["--no-default-features", "--features", features]);
            }
            cargo.env("CARGO_PROFILE_DEV_DEBUG", "0");
            shell::run(cargo.arg("--root").arg(&directory))?;
        }
        Ok(program)
    }

    /// Returns where this version is installed.
    fn directory(&self, cargo_home: &Path) -> PathBuf {
        cargo_home.join("viordma").join(format!("{}-{}", self.name, self.version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_of_a_program_is_installed_beside_the_first_one() {
        let [old, new] =
            ["1.0.0", "1.0.1"].map(|version| Tool { version, ..MDBOOK }.directory("home".as_ref()));
        assert_ne!(old, new);
    }
}
