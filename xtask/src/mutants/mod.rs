// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask mutants`: changes the code in one place at a time and reports the changes that no test notices.
//!
//! cargo-mutants generates the mutants; this command builds and tests each of them in a copy of the workspace below
//! `target/mutants`, with the tests that [`guards`] names for the file: those of a library crate natively, those of the
//! driver with an image built from the mutant. `docs/mutants.toml` lists the survivors that are accepted, each with its
//! reason.

mod copy;
mod generate;
mod guards;
mod mutant;
mod survivors;
mod trial;

use std::{collections::BTreeMap, fs};

use anyhow::{Context as _, Result, ensure};

use self::{
    copy::Copy,
    generate::Selection,
    guards::Guard,
    mutant::Mutant,
    survivors::{Accepted, Key},
    trial::{Outcome, Trial},
};
use crate::shell::{self, Exit};

#[derive(clap::Args)]
pub struct Options {
    /// Files or directories, relative to the workspace
    #[arg(value_name = "PATH")]
    paths: Vec<String>,
    /// Only lines that differ from REV, in the working tree
    #[arg(long, value_name = "REV", num_args = 0..=1, default_missing_value = "HEAD")]
    changed: Option<String>,
    /// Only check that docs/mutants.toml names mutants that exist; test nothing
    #[arg(long, conflicts_with_all = ["paths", "changed"])]
    check: bool,
}

pub fn run(options: &Options) -> Result<()> {
    let accepted = Accepted::read()?;
    if options.check {
        let mutants = generate::mutants(&Selection { paths: accepted.files(), changed: None })?;
        return report(&[], &accepted.missing(mutants.iter().map(Mutant::key)));
    }
    if options.paths.is_empty() && options.changed.is_none() {
        return Err(Exit::usage("name files or directories, or give --changed"));
    }
    if let Some(path) = options.paths.iter().find(|path| !shell::root().join(path).exists()) {
        return Err(Exit::usage(format!("there is no {path}")));
    }
    let mutants =
        generate::mutants(&Selection { paths: options.paths.clone(), changed: options.changed.clone() })?;
    let copy = Copy::update()?;
    let mut unlisted = Vec::new();
    let mut stale = Vec::new();
    for (guard, mutants) in by_guard(mutants)? {
        let trial = Trial::start(&copy, guard)?;
        for (file, mutants) in by_file(mutants) {
            let outcomes = test(&trial, &mutants)?;
            write_results(&file, &mutants, &outcomes)?;
            let survived = |outcome: &Outcome| *outcome == Outcome::Survived;
            let survivors: Vec<&Mutant> = mutants
                .iter()
                .zip(&outcomes)
                .filter(|(_, outcome)| survived(outcome))
                .map(|(mutant, _)| mutant)
                .collect();
            unlisted.extend(
                survivors.iter().filter(|mutant| !accepted.lists(&mutant.key())).map(|mutant| mutant.key()),
            );
            // Of changed lines alone it is not known whether an entry still survives.
            if options.changed.is_none() {
                stale.extend(accepted.of(&file).missing(survivors.iter().map(|mutant| mutant.key())));
            }
        }
    }
    report(&unlisted, &stale)
}

/// Tests mutants of one file. Prints a line for each.
fn test(trial: &Trial<'_>, mutants: &[Mutant]) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for (number, mutant) in mutants.iter().enumerate() {
        let outcome = trial.test(mutant)?;
        println!("{:>4}/{} {:<9} {}", number + 1, mutants.len(), outcome.name(), mutant.name);
        outcomes.push(outcome);
    }
    Ok(outcomes)
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

fn by_file(mutants: Vec<Mutant>) -> BTreeMap<String, Vec<Mutant>> {
    let mut files: BTreeMap<String, Vec<Mutant>> = BTreeMap::new();
    for mutant in mutants {
        files.entry(mutant.file.clone()).or_default().push(mutant);
    }
    files
}

/// Writes what became of each mutant of `file`, and prints the totals.
fn write_results(file: &str, mutants: &[Mutant], outcomes: &[Outcome]) -> Result<()> {
    let path = copy::directory().join("results").join(file).with_extension("txt");
    fs::create_dir_all(path.parent().context("no directory")?)?;
    let lines: Vec<String> = mutants
        .iter()
        .zip(outcomes)
        .map(|(mutant, outcome)| format!("{:<9} {}\n", outcome.name(), mutant.name))
        .collect();
    fs::write(&path, lines.concat()).with_context(|| format!("cannot write {}", path.display()))?;
    let count = |wanted: Outcome| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    println!(
        "{file}: {} mutants, {} caught, {} timed out, {} not built, {} survived",
        outcomes.len(),
        count(Outcome::Caught),
        count(Outcome::TimedOut),
        count(Outcome::NotBuilt),
        count(Outcome::Survived),
    );
    Ok(())
}

/// Prints survivors that are not listed, and entries of the list that no survivor matches.
///
/// # Errors
/// If there is one of either.
fn report(unlisted: &[Key], stale: &[Key]) -> Result<()> {
    for key in unlisted {
        println!("\n{}", key.entry());
    }
    for key in stale {
        println!("no longer survives: {}: {}", key.file, key.mutant);
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
