// SPDX-License-Identifier: MIT OR Apache-2.0

//! Test programs that cargo has built.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::shell;

/// Arguments with which `cargo test` builds test programs and lists them on standard output.
pub const BUILD: [&str; 5] =
    ["test", "--no-run", "--profile", "tool", "--message-format=json-render-diagnostics"];

/// The program that cargo calls instead of rustc to compile test programs without optimization.
const COMPILER: &str = "xtask/src/test/compile.sh";

/// Has a command of cargo compile test programs without optimization, but what they test as usual.
pub fn without_optimization(cargo: &mut Command) {
    if cfg!(unix) {
        cargo.env("RUSTC_WRAPPER", shell::root().join(COMPILER));
    }
}

/// A test program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Program {
    pub executable: PathBuf,
    /// The directory of its package, in which it runs.
    pub directory: PathBuf,
}

impl Program {
    /// Returns the name of the test in `Cargo.toml`; that of the crate for unit tests.
    pub fn name(&self) -> String {
        let stem = self.executable.file_stem().unwrap_or_default().to_string_lossy();
        // Cargo adds a hash.
        stem.rsplit_once('-').map_or(&*stem, |(name, _)| name).to_owned()
    }
}

/// A message of cargo about a program that it has built.
#[derive(Deserialize)]
struct Message {
    manifest_path: Option<PathBuf>,
    executable: Option<PathBuf>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Returns the test programs in the messages of cargo, without the programs that they run.
///
/// # Errors
/// If a line is no message.
pub fn in_messages(text: &str) -> Result<Vec<Program>> {
    let mut programs = BTreeSet::new();
    for line in text.lines() {
        let message: Message = serde_json::from_str(line).context("cargo's messages")?;
        let is_test = message.profile.is_some_and(|profile| profile.test);
        if let (Some(manifest), Some(executable), true) = (message.manifest_path, message.executable, is_test)
        {
            let directory = manifest.parent().unwrap_or(Path::new("")).to_owned();
            programs.insert(Program { executable, directory });
        }
    }
    Ok(programs.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_found_in_the_messages_of_cargo() {
        let text = r#"{"reason":"compiler-artifact","manifest_path":"/a/Cargo.toml","profile":{"test":true},"executable":"/t/a-b-0123"}
{"reason":"compiler-artifact","manifest_path":"/a/Cargo.toml","profile":{"test":true},"executable":null}
{"reason":"compiler-artifact","manifest_path":"/a/Cargo.toml","profile":{"test":false},"executable":"/t/a"}
{"reason":"build-finished","success":true}"#;
        let found = in_messages(text).unwrap();
        assert_eq!(found, [Program { executable: "/t/a-b-0123".into(), directory: "/a".into() }]);
        assert_eq!(found[0].name(), "a-b");
        assert!(in_messages("error").is_err());
    }
}
