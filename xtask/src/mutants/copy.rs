// SPDX-License-Identifier: MIT OR Apache-2.0

//! The copy of the workspace in which mutants are built, so that a run that is interrupted changes no source.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::mutant::Mutant;
use crate::shell;

/// The directory of the copy, of its build and of the results.
pub fn directory() -> PathBuf {
    shell::root().join("target/mutants")
}

/// A copy of the working tree.
pub struct Copy {
    root: PathBuf,
}

impl Copy {
    /// Makes the copy equal to the working tree, files that are not committed included. Files that are equal already
    /// keep their times, so that cargo does not build them again.
    pub fn update() -> Result<Self> {
        let root = directory().join("copy");
        fs::create_dir_all(&root)?;
        let all = git(shell::root(), "all.index");
        shell::run(all().args(["add", "--all"]))?;
        let tree = shell::output(all().arg("write-tree"))?;
        let copy = git(&root, "copy.index");
        shell::run(copy().args(["read-tree", "--reset", "-u", tree.trim()]))?;
        // Also what an interrupted run has left.
        shell::run(copy().args(["checkout-index", "--all", "--force", "--index"]))?;
        Ok(Self { root })
    }

    /// Returns a program to be run in the copy; it ends after `seconds`, with all that it started.
    pub fn command(&self, program: &str, seconds: u64) -> Command {
        let mut command = Command::new("timeout");
        command.current_dir(&self.root).args(["--kill-after=5", &seconds.to_string(), program]);
        command.env_remove("CARGO_TARGET_DIR").env_remove("VIORDMA_IMAGE").env("CARGO_INCREMENTAL", "0");
        command
    }

    /// Changes the mutant's file in the copy. The change is undone when the result is dropped.
    pub fn apply(&self, mutant: &Mutant) -> Result<Applied> {
        let path = self.root.join(&mutant.file);
        let original =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let changed = mutant.apply(&original)?;
        let applied = Applied { path, original };
        fs::write(&applied.path, changed)?;
        Ok(applied)
    }
}

/// A mutant in the copy.
pub struct Applied {
    path: PathBuf,
    original: String,
}

impl Drop for Applied {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.path, &self.original) {
            eprintln!("cannot restore {}: {error}", self.path.display());
        }
    }
}

/// Returns a maker of git commands for the work tree `tree` with an index of its own, so that the user's index is left as
/// it is.
fn git(tree: &Path, index: &str) -> impl Fn() -> Command + use<> {
    let (tree, index) = (tree.to_path_buf(), directory().join(index));
    move || {
        let mut command = Command::new("git");
        command.current_dir(shell::root()).arg("--work-tree").arg(&tree);
        command.env("GIT_INDEX_FILE", &index);
        command
    }
}
