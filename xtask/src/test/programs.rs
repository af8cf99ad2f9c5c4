// SPDX-License-Identifier: MIT OR Apache-2.0

//! Builds the test programs of the workspace by one call of cargo, and runs them.
//!
//! Cargo would run them one after another, and most end with one slow test on one processor: two at a time take less. Programs
//! that measure real time run alone.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};

use super::{capture_folder, count::Count};
use crate::{
    packages,
    programs::{self, Program},
    shell,
    workspace::Workspace,
};

/// Programs that measure real time, or run beside processes of others. They get the machine to themselves.
const REAL_TIME: [&str; 1] = ["real_time"];

/// Programs that take longest, in this order. They begin first.
const LONGEST: [&str; 3] = ["image", "simulation", "engine"];

/// Programs that run at the same time. Each runs as many tests at a time as there are processors.
const AT_ONCE: usize = 2;

/// Environment variable with the file of skipped tests (`lab/src/workspace.rs`).
const SKIPPED_TESTS: &str = "NTSIM_SKIPPED_TESTS";

/// Builds all test programs, and runs all but those in real time; then the examples in documentation.
pub fn run_most() -> Result<Count> {
    let mut programs = build()?;
    programs.retain(|program| !REAL_TIME.contains(&&*program.name()));
    let mut count = run(programs, AT_ONCE)?;
    for workspace in Workspace::ALL {
        let mut examples = workspace.cargo();
        examples.args(["test", "--doc", "--quiet", "--profile", "tool"]).args(workspace.but_drivers());
        count.add(&run_by_cargo(&mut examples)?);
    }
    Ok(count)
}

/// Runs the tests in real time, one program after another.
pub fn run_real_time() -> Result<Count> {
    let mut programs = build()?;
    programs.retain(|program| REAL_TIME.contains(&&*program.name()));
    ensure!(programs.len() == REAL_TIME.len(), "a program of {REAL_TIME:?} is missing");
    run(programs, 1)
}

/// Builds all test programs, optimized: the simulated kernel and the transport move real amounts of data.
fn build() -> Result<Vec<Program>> {
    packages::require(&packages::QEMU)?;
    packages::require(&packages::TAP)?;
    packages::require(&packages::DPDK)?;
    let mut built = Vec::new();
    for workspace in Workspace::ALL {
        let mut cargo = workspace.cargo();
        cargo.args(programs::BUILD).args(workspace.but_drivers()).stderr(Stdio::inherit());
        let output = cargo.output().context("cannot run cargo")?;
        ensure!(output.status.success(), "the tests cannot be built");
        built.extend(programs::in_messages(&String::from_utf8_lossy(&output.stdout))?);
    }
    Ok(built)
}

/// Runs programs, `at_once` at the same time, and prints what each has printed when it ends.
fn run(mut programs: Vec<Program>, at_once: usize) -> Result<Count> {
    let logs = shell::root().join("target/test/logs");
    fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
    // Tests that cannot run on every machine pass, and add themselves to this file.
    let skipped = logs.join("skipped");
    fs::write(&skipped, "").with_context(|| format!("cannot write {}", skipped.display()))?;
    let captures = capture_folder::directory()?;
    let started = |program: &Program, log: File| {
        let mut command = Command::new(&program.executable);
        command.current_dir(&program.directory).env("CARGO_MANIFEST_DIR", &program.directory);
        command.env(SKIPPED_TESTS, &skipped).env(capture_folder::CAPTURES, &captures);
        // Tests that need an image or QEMU fail without it instead of saying that they were skipped.
        command.env("NTSIM_REQUIRE_IMAGES", "1");
        command.stdin(Stdio::null()).stderr(log.try_clone()?).stdout(log).status()
    };
    // The last is taken first.
    let rank = |name: &str| LONGEST.iter().position(|longest| *longest == name).unwrap_or(LONGEST.len());
    programs.sort_by_cached_key(|program| std::cmp::Reverse((rank(&program.name()), program.clone())));
    let queue = Mutex::new(programs);
    let total = Mutex::new(Count::default());
    let worker = || -> Result<()> {
        while let Some(program) = { locked(&queue).pop() } {
            let log = logs.join(program.executable.file_name().unwrap_or_default()).with_extension("log");
            let begin = Instant::now();
            let status = started(&program, File::create(&log)?)
                .with_context(|| format!("cannot run {}", program.executable.display()))?;
            let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
            let mut count = Count::default();
            text.lines().filter(|line| is_result(line)).for_each(|line| count.add_line(line));
            if !status.success() && count.failed == 0 {
                // It has ended before it could say so.
                count.failed = 1;
            }
            let mut total = locked(&total);
            let directory = program.directory.strip_prefix(shell::root()).unwrap_or(&program.directory);
            let took = begin.elapsed().as_secs_f64();
            println!("\n{} of {} ({status}, {took:.1} s){text}", program.name(), directory.display());
            total.add(&count);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    let mut count = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    count.skip(&fs::read_to_string(&skipped)?);
    ensure!(count.passed + count.failed > 0, "no test ran");
    Ok(count)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns true for the last line of a test program.
fn is_result(line: &str) -> bool {
    line.starts_with("test result: ")
}

/// Runs tests by a command of cargo, shows what it prints, and counts them.
pub fn run_by_cargo(command: &mut Command) -> Result<Count> {
    count_lines(command, is_result)
}

/// Runs a command, shows what it prints, and adds up the lines that are a result.
pub fn count_lines(command: &mut Command, is_result: impl Fn(&str) -> bool) -> Result<Count> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot run the tests")?;
    let mut count = Count::default();
    for line in BufReader::new(child.stdout.take().context("no output")?).lines() {
        let line = line?;
        println!("{line}");
        if is_result(&line) {
            count.add_line(&line);
        }
    }
    let status = child.wait()?;
    if !status.success() && count.failed == 0 {
        count.failed = 1;
    }
    ensure!(count.passed + count.failed > 0, "no test ran");
    Ok(count)
}
