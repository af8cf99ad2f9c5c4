// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask mutants`: changes the code in one place at a time and reports the changes that no test notices.
//!
//! cargo-mutants names the mutants, except deleted [statements]. This command builds all mutants of a [guard](guards) at once, in a copy of the workspace
//! below `target/mutants`, each behind a [switch] that selects one at run time; finds out which tests execute which
//! mutants; and runs these tests with each mutant, then in [groups]. `docs/mutants.toml` lists the survivors that are accepted, each with its
//! reason.

mod build;
mod copy;
mod generate;
mod groups;
mod guards;
mod mutant;
mod outcome;
mod results;
mod rewrite;
mod statements;
mod suite;
mod survivors;
mod switch;

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZero,
    sync::Mutex,
    thread,
    time::Instant,
};

use anyhow::{Result, ensure};

use self::{
    copy::Copy,
    generate::Selection,
    guards::Guard,
    mutant::Mutant,
    outcome::Outcome,
    results::Results,
    rewrite::Numbered,
    suite::Suite,
    survivors::{Accepted, Key},
    switch::{Control, Switch},
};
use crate::{
    jobs::{self, locked},
    shell::{self, Exit},
};

#[derive(clap::Args, Default)]
pub struct Options {
    /// Files or directories, relative to the workspace
    #[arg(value_name = "PATH")]
    paths: Vec<String>,
    /// Only lines that differ from REV, in the working tree
    #[arg(long, value_name = "REV", num_args = 0..=1, default_missing_value = "HEAD")]
    changed: Option<String>,
    /// Only mutants that survived when they were tested last
    #[arg(long, conflicts_with = "changed")]
    survivors: bool,
    /// Only mutants that were not tested in their present place, to go on after a run that was interrupted
    #[arg(long, conflicts_with = "survivors")]
    untested: bool,
    /// Only mutants whose name contains TEXT, as `src/nic/port.rs:205` or `in Port::pump`; may be repeated
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Without the test programs whose path contains TEXT, as `/conformance-`; may be repeated
    #[arg(long, value_name = "TEXT")]
    skip: Vec<String>,
    /// Run N tests at a time instead of as many as there are processors
    #[arg(long, value_name = "N")]
    jobs: Option<NonZero<usize>>,
    /// Only check that docs/mutants.toml names code that exists; test nothing
    #[arg(long, conflicts_with_all = ["paths", "changed", "survivors", "untested", "only", "skip", "jobs"])]
    check: bool,
}

pub fn run(options: &Options) -> Result<()> {
    if options.check {
        return check();
    }
    let accepted = Accepted::read()?;
    if options.paths.is_empty() && options.changed.is_none() {
        return Err(Exit::usage("name files or directories, or give --changed"));
    }
    if let Some(path) = options.paths.iter().find(|path| !shell::root().join(path).exists()) {
        return Err(Exit::usage(format!("there is no {path}")));
    }
    let results = Mutex::new(Results::read()?);
    let mut mutants =
        generate::mutants(&Selection { paths: options.paths.clone(), changed: options.changed.clone() })?;
    {
        let results = locked(&results);
        mutants.retain(|mutant| match results.outcome(mutant) {
            Some(outcome) => !options.untested && (!options.survivors || outcome.survived()),
            None => !options.survivors,
        });
    }
    if !options.only.is_empty() {
        mutants.retain(|mutant| options.only.iter().any(|text| mutant.name.contains(text)));
    }
    let files: BTreeSet<String> = mutants.iter().map(|mutant| mutant.file.clone()).collect();
    let mut unlisted = Vec::new();
    let mut stale = accepted.clone();
    for (guard, mutants) in by_guard(mutants)? {
        let outcomes = test(guard, &mutants, options, &results)?;
        for (mutant, outcome) in mutants.iter().zip(outcomes) {
            if outcome.survived() {
                stale.remove(&mutant.key());
                if !accepted.lists(&mutant.key()) {
                    unlisted.push(mutant.key());
                }
            }
        }
    }
    stale.keep_files(|file| files.contains(file));
    // Of a part of a file's mutants it is not known whether an entry still survives.
    let is_part = options.survivors || options.untested || !options.only.is_empty();
    let is_whole = options.changed.is_none() && !is_part;
    report(&unlisted, &if is_whole { stale.keys() } else { Vec::new() })
}

/// Checks that the list names code that exists.
///
/// # Errors
/// If it does not.
pub fn check() -> Result<()> {
    report(&[], &Accepted::read()?.of_missing_code())
}

/// Tests the mutants of a guard, without the test programs that the user leaves out. Prints a line for each.
fn test(
    guard: &Guard,
    mutants: &[Mutant],
    options: &Options,
    results: &Mutex<Results>,
) -> Result<Vec<Outcome>> {
    let jobs =
        options.jobs.map_or_else(|| thread::available_parallelism().map_or(1, NonZero::get), NonZero::get);
    let begin = Instant::now();
    let copy = Copy::update()?;
    let switch = Switch::make(&copy::directory(), mutants.len(), jobs)?;
    let numbered: Vec<Numbered<'_>> = (1..).zip(mutants).collect();
    let mut build = build::build(&copy, guard, &switch, &numbered)?;
    build.programs.retain(|program| {
        let path = program.executable.to_string_lossy();
        !options.skip.iter().any(|text| path.contains(text.as_str()))
    });
    let build_time = begin.elapsed();
    let suite = Suite::measure(&build.programs, switch.controls())?;
    let (tests, time) = suite.totals();
    println!(
        "{}: {} mutants of {} in one build, {} s; {tests} tests, {} s",
        guard.path,
        build.mutants.len(),
        mutants.len(),
        build_time.as_secs(),
        time.as_secs()
    );
    let report = |number: usize, outcome: Outcome, test: Option<&str>| {
        let mutant = &mutants[number - 1];
        let test = test.map(|test| format!(" ({test})")).unwrap_or_default();
        println!("{number:>4}/{} {:<11} {}{test}", mutants.len(), outcome.name(), mutant.name);
        locked(results).add(mutant, outcome)
    };
    let alone = jobs::each(switch.controls(), &numbered, |control, (number, mutant)| {
        let tested = if build.mutants.contains(number) {
            suite.test_alone(control, *number, &mutant.file, &mutant.name)?
        } else {
            Some((Outcome::NotBuilt, None))
        };
        let Some((outcome, test)) = tested else { return Ok(None) };
        report(*number, outcome, test)?;
        Ok(Some(outcome))
    })?;
    let together = test_together(&suite, switch.controls(), &alone, report)?;
    let of = |(number, outcome): (usize, &Option<Outcome>)| {
        outcome.or_else(|| together.get(&number).copied()).unwrap_or(Outcome::Survived)
    };
    let outcomes: Vec<Outcome> = (1..).zip(&alone).map(of).collect();
    let count = |outcome: Outcome| outcomes.iter().filter(|other| **other == outcome).count();
    let counts = Outcome::ALL.map(|outcome| format!(", {} {}", count(outcome), outcome.name())).concat();
    println!("{}: {} mutants{counts}; {} s", guard.path, mutants.len(), begin.elapsed().as_secs());
    Ok(outcomes)
}

/// Tests the mutants together that have no outcome of tests with each alone. Returns their outcomes.
fn test_together(
    suite: &Suite<'_>,
    controls: &[Control],
    alone: &[Option<Outcome>],
    report: impl Fn(usize, Outcome, Option<&str>) -> Result<()> + Sync,
) -> Result<BTreeMap<usize, Outcome>> {
    let left: Vec<usize> =
        (1..).zip(alone).filter(|(_, outcome)| outcome.is_none()).map(|(number, _)| number).collect();
    if left.is_empty() {
        return Ok(BTreeMap::new());
    }
    println!("{} of them pass the first tests, and are tested together", left.len());
    let groups: Vec<&[usize]> = left.chunks(left.len().div_ceil(controls.len())).collect();
    let outcomes = jobs::each(controls, &groups, |control, group| {
        let mut caught = BTreeMap::new();
        suite.test_together(control, group, |number, outcome, test| {
            println!("{number:>4} {:<11} ({test})", outcome.name());
            caught.insert(number, outcome);
        })?;
        let outcome = |number: &usize| caught.get(number).copied().unwrap_or(Outcome::Survived);
        let outcomes: Vec<_> = group.iter().map(|number| (*number, outcome(number))).collect();
        for (number, outcome) in &outcomes {
            report(*number, *outcome, None)?;
        }
        Ok(outcomes)
    })?;
    Ok(outcomes.into_iter().flatten().collect())
}

/// Groups mutants by the guard of their file.
fn by_guard(mutants: Vec<Mutant>) -> Result<Vec<(&'static Guard, Vec<Mutant>)>> {
    let mut groups: Vec<(&'static Guard, Vec<Mutant>)> = Vec::new();
    for mutant in mutants {
        let guard = guards::of(&mutant.file).ok_or_else(|| {
            Exit::usage(format!("no tests are named for {}, see xtask/src/mutants/guards.rs", mutant.file))
        })?;
        match groups.iter_mut().find(|(other, _)| std::ptr::eq(*other, guard)) {
            Some((_, group)) => group.push(mutant),
            None => groups.push((guard, vec![mutant])),
        }
    }
    Ok(groups)
}

/// Prints survivors that are not listed, and entries of the list that do not belong there.
///
/// # Errors
/// If there is one of either.
fn report(unlisted: &[Key], stale: &[Key]) -> Result<()> {
    for key in unlisted {
        println!("\n{}", key.entry());
    }
    for key in stale {
        println!("does not survive, or does not exist: {}: {}: {}", key.file, key.mutant, key.line);
    }
    ensure!(
        unlisted.is_empty() && stale.is_empty(),
        "{} survivors are not in {list}, {} entries of it are not survivors",
        unlisted.len(),
        stale.len(),
        list = survivors::LIST
    );
    Ok(())
}
