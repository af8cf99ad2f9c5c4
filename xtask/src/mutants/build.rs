// SPDX-License-Identifier: MIT OR Apache-2.0

//! Builds the tests of a guard with all of its mutants.
//!
//! Some mutants do not compile. They are found by the errors of the compiler, which names the place of each, and are left
//! out of the next attempt.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::{Command, Output},
};

use anyhow::{Context as _, Result, bail, ensure};

use super::{
    copy::Copy,
    guards::Guard,
    rewrite::{Numbered, Rewritten},
    switch::Switch,
};
use crate::{
    programs::{self, Program},
    shell,
};

/// Attempts after which the build is given up.
const ATTEMPTS: usize = 40;

/// Tests with mutants.
pub struct Build {
    pub programs: Vec<Program>,
    /// The mutants that compile.
    pub mutants: BTreeSet<usize>,
}

/// Builds the images and tests of `guard` with `mutants`.
///
/// # Errors
/// If they do not compile without the mutants either.
pub fn build(copy: &Copy, guard: &Guard, switch: &Switch, mutants: &[Numbered<'_>]) -> Result<Build> {
    for package in guard.needed {
        ensure!(image(copy, package)?.status.success(), "the image of {package} cannot be built");
    }
    let originals = originals(guard, mutants)?;
    let mut left_out = BTreeSet::new();
    for _ in 0..ATTEMPTS {
        let files = rewrite(copy, guard, switch, &originals, &left_out)?;
        let errors = match attempt(copy, guard)? {
            Attempt::Built(programs) => {
                let mutants = files.values().flat_map(Rewritten::mutants).collect();
                return Ok(Build { programs, mutants });
            }
            Attempt::Failed(errors) => errors,
        };
        let before = left_out.len();
        for (file, line, column) in places(&errors) {
            let rewritten = files.get(&in_workspace(&copy.path(""), file));
            left_out.extend(rewritten.map_or(&[][..], |file| file.mutants_at(line, column)));
        }
        ensure!(left_out.len() > before, "the mutants cannot be built:\n{errors}");
        eprintln!("{} mutants do not compile, building without them", left_out.len());
    }
    bail!("the mutants cannot be built in {ATTEMPTS} attempts")
}

/// A file, with its text and its mutants.
type Original<'a> = (String, Vec<Numbered<'a>>);

/// Reads the files of mutants and the root of their crate, once: the user may change them during the build.
fn originals<'a>(guard: &Guard, mutants: &[Numbered<'a>]) -> Result<BTreeMap<String, Original<'a>>> {
    let read = |file: &str| fs::read_to_string(shell::root().join(file)).with_context(|| file.to_owned());
    let mut files = BTreeMap::new();
    files.insert(guard.root.to_owned(), (read(guard.root)?, Vec::new()));
    for numbered in mutants {
        let file = &numbered.1.file;
        if !files.contains_key(file) {
            files.insert(file.clone(), (read(file)?, Vec::new()));
        }
        files.entry(file.clone()).and_modify(|(_, mutants)| mutants.push(*numbered));
    }
    Ok(files)
}

/// Writes the files with their mutants into the copy, except those that are left out.
fn rewrite(
    copy: &Copy,
    guard: &Guard,
    switch: &Switch,
    originals: &BTreeMap<String, Original<'_>>,
    left_out: &BTreeSet<usize>,
) -> Result<BTreeMap<String, Rewritten>> {
    let mut rewritten = BTreeMap::new();
    for (file, (text, mutants)) in originals {
        let kept: Vec<_> = mutants.iter().filter(|(number, _)| !left_out.contains(number)).copied().collect();
        let mut new = Rewritten::new(text, &kept).with_context(|| file.clone())?;
        if file == guard.root {
            new.text += &switch.declaration();
        }
        shell::write_if_changed(&copy.path(file), new.text.as_bytes())?;
        rewritten.insert(file.clone(), new);
    }
    Ok(rewritten)
}

/// Outcome of an attempt to build.
enum Attempt {
    Built(Vec<Program>),
    /// The compiler's messages.
    Failed(String),
}

/// Builds the images, then the tests.
fn attempt(copy: &Copy, guard: &Guard) -> Result<Attempt> {
    let failed = |output: &Output| Attempt::Failed(String::from_utf8_lossy(&output.stderr).into_owned());
    for package in guard.images {
        let output = image(copy, package)?;
        if !output.status.success() {
            return Ok(failed(&output));
        }
    }
    let mut built = BTreeSet::new();
    for (workspace, tests) in guard.tests {
        let mut cargo = copy.cargo();
        cargo.current_dir(copy.path(workspace.folder()));
        let output = run(cargo.args(programs::BUILD).args(*tests))?;
        if !output.status.success() {
            return Ok(failed(&output));
        }
        built.extend(programs::in_messages(&String::from_utf8_lossy(&output.stdout))?);
    }
    Ok(Attempt::Built(built.into_iter().collect()))
}

fn image(copy: &Copy, package: &str) -> Result<Output> {
    run(copy.cargo().args(["xtask", "image", "--package", package]))
}

fn run(command: &mut Command) -> Result<Output> {
    command.output().context("cannot run cargo")
}

/// The label of an assignment without which a value that has been moved is used. The place of such an error is the use.
const SKIPPED: &str = "this reinitialization might get skipped";

/// Returns file, line and column of each error that the compiler prints: of the assignment that is [`SKIPPED`], if it names one.
fn places(errors: &str) -> Vec<(&str, usize, usize)> {
    let mut places = Vec::new();
    let (mut is_error, mut is_open, mut number) = (false, false, 0);
    for line in errors.lines() {
        let begins = ["error", "warning"].iter().any(|level| line.starts_with(level));
        is_error = line.starts_with("error") || is_error && !begins;
        // The first place of an error is its own.
        is_open = line.starts_with("error") || is_open && is_error;
        if is_open && let Some(place) = place(line) {
            places.push(place);
            is_open = false;
        }
        let Some((gutter, _)) = line.split_once('|').filter(|_| is_error) else { continue };
        number = gutter.trim().parse().unwrap_or(number);
        if let Some(column) = column_of(line, SKIPPED)
            && let Some(last) = places.last_mut()
        {
            *last = (last.0, number, column);
        }
    }
    places
}

/// Returns file, line and column that a line of the compiler names.
fn place(line: &str) -> Option<(&str, usize, usize)> {
    let mut parts = line.trim_start().strip_prefix("--> ")?.trim_end().rsplitn(3, ':');
    let column = parts.next()?.parse().ok()?;
    let line = parts.next()?.parse().ok()?;
    Some((parts.next()?, line, column))
}

/// Returns the column, from 1, of the code that `line` labels: behind the marks below the code, or below their start.
fn column_of(line: &str, label: &str) -> Option<usize> {
    let marked = line[..line.find(label)?].trim_end();
    let start = marked.trim_end_matches('-');
    let at = if start.len() < marked.len() { start.len() } else { line.find(label)? };
    at.checked_sub(line.find('|')? + 1)
}

/// Returns a path of the compiler relative to the folder of the workspace: of packages outside of it, it names the whole path.
fn in_workspace(folder: &Path, file: &str) -> String {
    let relative = Path::new(file).strip_prefix(folder).ok().and_then(Path::to_str);
    normalized(relative.unwrap_or(file))
}

/// Removes `.` and `..` from a path of the compiler: a build script that includes a source of its crate names it so.
fn normalized(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| *part != ".") {
        if part != ".." || parts.pop().is_none() {
            parts.push(part);
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_each_error_is_read() {
        let errors = "warning: unused\n  --> src/a.rs:1:2\n\nerror[E0308]: mismatched types\n   --> src/b.rs:30:4\n   |\n\
                      help: there\n   --> src/c.rs:1:1\nerror: could not compile\n";
        assert_eq!(places(errors), [("src/b.rs", 30, 4)]);
        assert_eq!(
            ["./src/b.rs", "build/../src/b.rs", "../b.rs"].map(normalized),
            ["src/b.rs", "src/b.rs", "../b.rs"]
        );
        // The folder has a slash at its end, as that of the copy.
        for file in ["/copy/sim/a.rs", "sim/a.rs", "/copy/./sim/b/../a.rs"] {
            assert_eq!(in_workspace(Path::new("/copy/"), file), "sim/a.rs", "{file}");
        }
    }

    #[test]
    fn the_place_of_a_skipped_assignment_is_the_place_of_the_error() {
        let error = |marks: &str| {
            format!(
                "error[E0382]: borrow of moved value: `a`\n --> src/a.rs:3:5\n  |\n3 |     a.b();\n  |     ^ value \
                 borrowed here after move\n...\n12 |     if x {{ a = new(); }}\n{marks}\n\nerror: could not compile\n"
            )
        };
        let beside = "  |            - this reinitialization might get skipped";
        let below = "  |            -      - moved\n  |            |\n  |            this reinitialization might get skipped";
        for marks in [beside, below] {
            assert_eq!(places(&error(marks)), [("src/a.rs", 12, 12)]);
        }
        assert_eq!(places(&error("  |            - something else")), [("src/a.rs", 3, 5)]);
        let other =
            "warning: unused\n --> src/b.rs:1:1\n1 | a\n  | - this reinitialization might get skipped\n";
        assert_eq!(places(&[&error(""), other].concat()), [("src/a.rs", 3, 5)]);
    }
}
