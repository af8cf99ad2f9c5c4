// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask test`: all checks that a change has to pass, the quickest first.
//!
//! | file | what is there |
//! | --- | --- |
//! | `steps.rs` | the table of steps, and those that are one check |
//! | `programs.rs` | test programs: built at once, run two at a time |
//! | `demos.rs`, `captures.rs` | demos, and the captures of a run |
//! | `count.rs` | numbers of tests, and their sums |
//! | `part.rs`, `beside.rs` | steps in processes of their own, and beside others |

mod beside;
mod capture_folder;
mod captures;
mod count;
mod demos;
mod done;
mod part;
mod programs;
mod steps;

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use self::{
    beside::Beside,
    count::sums,
    done::{Done, seconds},
    part::{Report, processor_time},
    steps::{STEPS, Step, When},
};
use crate::shell;

#[derive(clap::Args)]
pub struct Options {
    /// Run only the steps whose name contains this text, one after another
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Run this step as part of another run, and write its result to a file
    #[arg(long, hide = true, value_names = ["NAME", "FILE"], num_args = 2)]
    part: Option<Vec<String>>,
}

/// Runs the command.
///
/// # Errors
/// A step fails, or none has the name.
pub fn run(options: &Options) -> Result<()> {
    if let Some([name, file]) = options.part.as_deref() {
        return part::report(name, file.as_ref());
    }
    let begin = Instant::now();
    let mut done = match &options.only {
        Some(text) => selected(text)?.into_iter().map(run_step).collect(),
        None => run_all()?,
    };
    done.sort_by_key(|done| STEPS.iter().position(|step| step.name == done.step.name));
    let processors: Duration = done.iter().map(|done| done.processors).sum();
    println!("\nsummary ({}, {} of processors)", seconds(begin.elapsed()), seconds(processors));
    for done in &done {
        println!("  {}", done.line());
    }
    println!("\n{}", sums(done.iter().map(|done| (done.step.name, &done.count))));
    let failed = done.iter().filter(|done| done.count.failed > 0).count();
    ensure!(failed == 0, "{failed} of the steps above failed");
    Ok(())
}

/// Runs all steps: the first ones, two rows of steps beside each other, and one that waits; then those that need the machine to themselves. One
/// more row takes what all but the first ones leave of it.
fn run_all() -> Result<Vec<Done>> {
    capture_folder::clear()?;
    let of = |when| STEPS.iter().filter(move |step| step.when == when);
    let mut done = Vec::new();
    let first = Beside::begin(of(When::First).collect())?;
    while let Some(step) = first.take_last() {
        done.push(run_part(step));
    }
    done.extend(first.rest());
    // Two programs that install packages at the same time are in each other's way.
    steps::install();
    let [beside, waiting, idle] =
        [When::Beside, When::Waiting, When::Idle].map(|when| Beside::begin(of(when).collect()));
    let (beside, waiting, idle) = (beside?, waiting?, idle?);
    for step in of(When::Main) {
        done.push(run_part(step));
        done.extend(beside.ready());
    }
    while let Some(step) = beside.take_last() {
        done.push(run_part(step));
        done.extend(beside.ready());
    }
    done.extend(beside.rest());
    done.extend(waiting.rest());
    done.extend(of(When::Alone).map(run_part));
    done.extend(idle.rest());
    Ok(done)
}

/// Runs a step in this process.
fn run_step(step: &'static Step) -> Done {
    timed(step, || {
        let before = processor_time();
        let count = (step.run)()?;
        Ok(Report { count, processors: processor_time().saturating_sub(before) })
    })
}

/// Runs a step in a process of its own, since processes beside it would be counted as its own.
fn run_part(step: &'static Step) -> Done {
    timed(step, || part::run(step, None))
}

fn timed(step: &'static Step, run: impl FnOnce() -> Result<Report>) -> Done {
    println!("\n== {}", step.name);
    let begin = Instant::now();
    let result = run();
    let done = Done::new(step, begin.elapsed(), result);
    println!("{}", done.line());
    done
}

/// Returns the steps whose name contains `text`.
fn selected(text: &str) -> Result<Vec<&'static Step>> {
    let steps: Vec<&Step> = STEPS.iter().filter(|step| step.name.contains(text)).collect();
    if steps.is_empty() {
        let names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        bail!(shell::Exit::usage(format!(
            "no step's name contains {text:?}; the steps are: {}",
            names.join(", ")
        )));
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_no_step_contains_is_refused_with_the_names_of_the_steps() {
        assert_eq!(selected("lint").unwrap().len(), 1);
        assert_eq!(selected("").unwrap().len(), STEPS.len());
        let error = selected("typo").err().unwrap();
        assert!(error.to_string().contains("formatting, commits"));
        assert_eq!(shell::exit_code(&error), 2);
    }
}
