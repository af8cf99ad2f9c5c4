// SPDX-License-Identifier: MIT OR Apache-2.0

//! The copy of the workspace in which mutants are built, so that a run that is interrupted changes no source.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

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

    /// Returns a cargo command in the copy.
    pub fn cargo(&self) -> Command {
        let mut command = Command::new("cargo");
        command.current_dir(&self.root).env("CARGO_INCREMENTAL", "0").env_remove("CARGO_TARGET_DIR");
        command
    }

    /// Returns the copy of a file of the workspace.
    pub fn path(&self, file: &str) -> PathBuf {
        self.root.join(file)
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
