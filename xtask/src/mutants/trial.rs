// SPDX-License-Identifier: MIT OR Apache-2.0

//! Builds a mutant and runs the tests that guard its file.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use super::{copy::Copy, guards::Guard, mutant::Mutant};

/// Seconds after which a build is given up.
const BUILD_LIMIT: u64 = 1800;
/// A mutant's tests may take as many times as long as those of the original.
const SLOWDOWN: u64 = 4;
/// The exit code of `timeout` for a program that it ended.
const TIMED_OUT: i32 = 124;

/// What became of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A test failed.
    Caught,
    /// The tests did not end. Counts as caught.
    TimedOut,
    /// It does not compile.
    NotBuilt,
    /// All tests passed.
    Survived,
}

impl Outcome {
    pub fn name(self) -> &'static str {
        match self {
            Self::Caught => "caught",
            Self::TimedOut => "timed out",
            Self::NotBuilt => "not built",
            Self::Survived => "SURVIVED",
        }
    }
}

/// The tests of a guard, which pass without a mutant.
pub struct Trial<'a> {
    copy: &'a Copy,
    guard: &'static Guard,
    /// Seconds that a mutant's tests may take.
    limit: u64,
}

impl<'a> Trial<'a> {
    /// Builds the original and runs its tests.
    ///
    /// # Errors
    /// If they fail.
    pub fn start(copy: &'a Copy, guard: &'static Guard) -> Result<Self> {
        let mut this = Self { copy, guard, limit: BUILD_LIMIT };
        for package in guard.needed {
            ensure!(this.image(package)?, "the image of {package} cannot be built");
        }
        ensure!(this.build()?, "the original cannot be built");
        let begin = Instant::now();
        let outcome = this.run_tests()?;
        ensure!(
            outcome == Outcome::Survived,
            "the tests fail without a mutant: cargo test {}",
            guard.tests.join(" ")
        );
        this.limit = (begin.elapsed() * SLOWDOWN as u32 + Duration::from_secs(20)).as_secs();
        Ok(this)
    }

    /// Builds and tests a mutant.
    pub fn test(&self, mutant: &Mutant) -> Result<Outcome> {
        let _applied = self.copy.apply(mutant)?;
        if self.build()? { self.run_tests() } else { Ok(Outcome::NotBuilt) }
    }

    /// Builds the images that contain the file, and the tests. Returns whether they compile.
    fn build(&self) -> Result<bool> {
        for package in self.guard.images {
            if !self.image(package)? {
                return Ok(false);
            }
        }
        Ok(self.cargo(BUILD_LIMIT, &["test", "--no-run", "--profile", "tool"], self.guard.tests)? == Some(0))
    }

    fn image(&self, package: &str) -> Result<bool> {
        Ok(self.cargo(BUILD_LIMIT, &["xtask", "image", "--package", package], &[])? == Some(0))
    }

    fn run_tests(&self) -> Result<Outcome> {
        Ok(match self.cargo(self.limit, &["test", "--quiet", "--profile", "tool"], self.guard.tests)? {
            Some(0) => Outcome::Survived,
            Some(TIMED_OUT) => Outcome::TimedOut,
            _ => Outcome::Caught,
        })
    }

    /// Runs cargo in the copy without output, and returns its exit code.
    fn cargo(&self, seconds: u64, arguments: &[&str], more: &[&str]) -> Result<Option<i32>> {
        let mut cargo = self.copy.command("cargo", seconds);
        cargo.args(arguments).args(more).env("NTSIM_REQUIRE_IMAGES", "1");
        let status = cargo.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        Ok(status.context("cannot run cargo")?.code())
    }
}
