// SPDX-License-Identifier: MIT OR Apache-2.0

//! The commit that a package is made of.

use std::process::Command;

use anyhow::{Context as _, Result};

use crate::shell::{self, Exit};

/// A commit.
pub struct Source {
    /// Its full hash.
    pub commit: String,
    /// When it was made, in seconds since 1970.
    pub time: u64,
    /// The same in UTC: year, month, day, hour, minute, second.
    pub date: [u16; 6],
}

impl Source {
    /// Returns the last commit of this checkout, which must have no local changes.
    ///
    /// # Errors
    /// With exit code 2: git is missing, this is no checkout, or it has local changes.
    pub fn committed() -> Result<Self> {
        let source = Self::head()?;
        let changes = git(&["status", "--porcelain", "--untracked-files=normal"])?;
        if let Some(first) = changes.lines().next() {
            let (count, file) = (changes.lines().count(), first.get(3..).unwrap_or_default());
            return Err(Exit::usage(format!(
                "a package is made of a commit, and files differ from the last one, {file} for example: commit them ({count})"
            )));
        }
        Ok(source)
    }

    /// Checks that this checkout is still at this commit without local changes, as far as that shows afterwards.
    ///
    /// # Errors
    /// With exit code 2: it is not.
    pub fn check_unchanged(&self) -> Result<()> {
        let now = Self::committed()?;
        if now.commit != self.commit {
            return Err(Exit::usage(format!(
                "this checkout was at {} when the command began, and is at {}: call it again",
                self.commit, now.commit
            )));
        }
        Ok(())
    }

    /// Returns the last commit of this checkout.
    ///
    /// # Errors
    /// With exit code 2: git is missing, or this is no checkout.
    pub fn head() -> Result<Self> {
        if shell::find_program("git").is_none() {
            return Err(Exit::usage("git is missing (Debian package: git)"));
        }
        let top = git(&["rev-parse", "--show-toplevel"]).unwrap_or_default();
        if std::fs::canonicalize(top.trim()).ok() != shell::root().canonicalize().ok() {
            return Err(Exit::usage(format!(
                "{} is no git checkout, of which a package takes its date and its commit",
                shell::root().display()
            )));
        }
        let date = "--date=format-local:%s %Y %m %d %H %M %S";
        let line = git(&["log", "-1", "--format=%H %cd", date])?;
        let mut words = line.split_whitespace();
        let commit = words.next().context("there is no commit")?.to_owned();
        let time = words.next().context("the commit has no time")?.parse()?;
        let mut date = [0; 6];
        for part in &mut date {
            *part = words.next().context("the commit has no date")?.parse()?;
        }
        Ok(Self { commit, time, date })
    }
}

fn git(arguments: &[&str]) -> Result<String> {
    shell::output(Command::new("git").current_dir(shell::root()).env("TZ", "UTC").args(arguments))
}
