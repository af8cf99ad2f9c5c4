// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask miri`: runs tests of portable crates in Miri, an interpreter that reports undefined behavior: references
//! that alias what they must not, use of freed or uninitialized memory, data races. It is part of nightly toolchains only.
//!
//! Miri takes about a thousand times as long as the processor, so that the tests are those of code with `unsafe`. Some are shorter there
//! (`cfg!(miri)`). `--full` runs the long ones, too.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::{programs::Program, shell, workspace::Workspace};

/// Tests of one package, by a target and by parts of their names.
struct Selection<'a> {
    package: &'a str,
    /// `--lib`, or the name of a program in `tests/`.
    target: &'a str,
    /// Only tests whose name contains one of these; all if there are none.
    only: &'a [&'a str],
    /// Not those whose name contains one of these, which take minutes, unless all are asked for.
    skip: &'a [&'a str],
}

/// Tests that Miri runs. `docs/testing.md` says what it cannot run.
const SELECTIONS: [Selection<'static>; 7] = [
    // Without the sizes of chunks, for which hundreds of large values are stored.
    Selection {
        package: "fallible",
        target: "--lib",
        only: &[],
        skip: &["half_as_many_slots", "large_pages"],
    },
    Selection { package: "state-table", target: "--lib", only: &[], skip: &[] },
    Selection { package: "nt", target: "--lib", only: &[], skip: &[] },
    // Both CRC implementations, and frames built in slots.
    Selection {
        package: "roce-wire",
        target: "--lib",
        only: &["icrc", "tests::built", "tests::previous"],
        skip: &[],
    },
    // Rings and buffers in memory that a device shares, also with driver and device on two threads.
    Selection {
        package: "virtio-net",
        target: "integration",
        only: &[
            "queues::every_frame_arrives",
            "queues::a_stopped_transmit",
            "queues::a_commit_longer",
            "queues::a_buffer_returned_twice",
            "threads::",
        ],
        skip: &[],
    },
    // Object tables, consumer memory, regions, queues.
    Selection {
        package: "roce",
        target: "--lib",
        only: &["object_table::", "memory::", "region::", "cq::", "srq::", "recv_queue::", "held_notices::"],
        skip: &["codes_are_not_reused", "codes_have_the_prefix", "unusable_codes", "up_to_256_mib"],
    },
    // Objects, callbacks, lists of objects.
    Selection {
        package: "ndk-provider",
        target: "--lib",
        only: &["base::"],
        skip: &["loopback", "port_0", "tracked_objects"],
    },
];

/// No isolation: tests read the clock. Addresses of hosted MDLs are integers, as page frame numbers are.
const FLAGS: &str = "-Zmiri-disable-isolation -Zmiri-permissive-provenance";

#[derive(clap::Args)]
pub struct Options {
    /// Run also the selected tests that take minutes, and more inputs of each property
    #[arg(long)]
    full: bool,
}

/// Properties are tested with this many inputs each, and with these by `--full`.
const INPUTS: u32 = 2;
const INPUTS_IN_FULL: u32 = 16;

/// Runs the command.
///
/// # Errors
/// Miri cannot be installed, a test fails, or a filter selects none.
pub fn run(options: &Options) -> Result<()> {
    ensure!(is_available(), "no nightly toolchain with Miri is installed, or can be");
    check_filters(|selection| shell::output(command(selection).arg("--list")))?;
    commands(options.full).try_for_each(|mut command| shell::run(&mut command))
}

/// Installs Miri if necessary; `false` where that is not possible.
pub fn is_available() -> bool {
    let installed = || shell::succeeds(Command::new("cargo").args(["+nightly", "miri", "--version"]));
    let mut rustup = Command::new("rustup");
    rustup.args(["toolchain", "install", "nightly", "--profile", "minimal", "--component", "miri,rust-src"]);
    installed() || (shell::succeeds(&mut rustup) && installed())
}

/// Checks the filters by the same tests as they are built for this machine, since Miri takes seconds to list those of a program.
///
/// # Errors
/// A part of a name that no test has, or a program that is not among these.
pub fn check_filters_by(programs: &[Program]) -> Result<()> {
    check_filters(|selection| {
        let name = match selection.target {
            "--lib" => selection.package.replace('-', "_"),
            program => program.to_owned(),
        };
        let is_selected =
            |program: &&Program| program.name() == name && program.directory.ends_with(selection.package);
        let program = programs.iter().find(is_selected);
        let program = program.with_context(|| format!("{} has no program {name}", selection.package))?;
        shell::output(Command::new(&program.executable).arg("--list").current_dir(&program.directory))
    })
}

/// Checks that each part of a name in the selections is part of the name of a test: one that is not selects nothing.
fn check_filters(list: impl Fn(&Selection<'_>) -> Result<String>) -> Result<()> {
    for selection in &SELECTIONS {
        let tests = list(selection)?;
        let unused = unused(selection, &tests);
        ensure!(
            unused.is_empty(),
            "no test of {} has {} in its name",
            selection.package,
            unused.join(" or ")
        );
    }
    Ok(())
}

/// Returns the filters of a selection that no test of the list has in its name.
fn unused<'a>(selection: &Selection<'a>, list: &str) -> Vec<&'a str> {
    let tests: Vec<&str> = list.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    let filters = selection.only.iter().chain(selection.skip);
    filters.copied().filter(|filter| !tests.iter().any(|test| test.contains(filter))).collect()
}

/// Returns the command of each selection.
pub fn commands(full: bool) -> impl Iterator<Item = Command> {
    SELECTIONS.iter().map(move |selection| {
        let mut cargo = command(selection);
        // Models run on stacks of loom's own, which Miri does not support.
        cargo.args(selection.only).args(["--skip", "models::"]);
        if full {
            cargo.env("PROPTEST_CASES", INPUTS_IN_FULL.to_string());
        } else {
            cargo.args(selection.skip.iter().flat_map(|skipped| ["--skip", skipped]));
        }
        cargo
    })
}

/// Returns the command that runs all tests of a target. More arguments are those of the tests.
fn command(selection: &Selection<'_>) -> Command {
    let mut cargo = Workspace::Driver.cargo();
    cargo.args(["+nightly", "miri", "test", "--package", selection.package]);
    match selection.target {
        "--lib" => cargo.arg("--lib"),
        program => cargo.args(["--test", program]),
    };
    // Otherwise a library for snapshots starts cargo, which Miri does not support.
    cargo.env("INSTA_WORKSPACE_ROOT", shell::root());
    cargo.env("MIRIFLAGS", FLAGS).env("PROPTEST_CASES", INPUTS.to_string());
    cargo.arg("--");
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_that_no_test_has_in_its_name_are_found() {
        let selection =
            Selection { package: "roce", target: "--lib", only: &["cq::", "srq::"], skip: &["codes"] };
        let list =
            "cq::tests::one: test\nsrq_of_others: test\nsrq::bench: benchmark\n\n2 tests, 1 benchmark\n";
        assert_eq!(unused(&selection, list), ["srq::", "codes"]);
    }

    #[test]
    fn a_program_that_was_not_built_is_named() {
        assert_eq!(check_filters_by(&[]).unwrap_err().to_string(), "fallible has no program fallible");
    }
}
