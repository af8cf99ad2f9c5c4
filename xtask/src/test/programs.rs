// SPDX-License-Identifier: MIT OR Apache-2.0

//! Builds the test programs of the workspace by one call of cargo, and runs them.
//!
//! A process runs one simulation in virtual time at a time, on one processor, because the hosts of such simulations have the same
//! addresses (`sim/nt/src/memory/addresses.rs`): tests on several threads wait for each other. So two programs run at a time, and
//! the longest one runs in two parts. Programs that measure real time run alone.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};

use super::{capture_folder, count::Count};
use crate::{
    jobs, miri, packages,
    programs::{self, Program},
    shell,
    workspace::Workspace,
};

/// Programs that measure real time, or run beside processes of others. They get the machine to themselves.
const REAL_TIME: [&str; 1] = ["real_time"];

/// Programs that take longest, in this order. They begin first.
const LONGEST: [&str; 3] = ["image", "simulation", "engine"];

/// Programs that run in two parts: the tests whose names contain one of these, and all others.
const PARTS: [(&str, [&str; 2]); 1] = [("image", ["adapter::", "rdma::"])];

/// Programs that run at the same time. Each runs as many tests at a time as there are processors.
const AT_ONCE: usize = 2;

/// Environment variable with the file of skipped tests (`lab/src/workspace.rs`).
const SKIPPED_TESTS: &str = "NTSIM_SKIPPED_TESTS";

/// Builds all test programs, and runs all but those in real time; then the examples in documentation. Checks which of them Miri runs.
pub fn run_most() -> Result<Count> {
    let mut programs = build()?;
    miri::check_filters_by(&programs)?;
    programs.retain(|program| !REAL_TIME.contains(&&*program.name()));
    let mut count = run(programs, AT_ONCE)?;
    for workspace in Workspace::ALL {
        let mut examples = workspace.cargo();
        examples.args(["test", "--doc", "--quiet", "--profile", "tool"]).args(workspace.but_drivers());
        // A workspace may have none.
        count.add(&count_all(&mut examples, is_result)?);
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

/// Returns the arguments of each run of a program.
fn parts(name: &str) -> Vec<Vec<&'static str>> {
    let names = PARTS.iter().find(|(program, _)| *program == name).map(|(_, names)| names);
    names.map_or(vec![vec![]], |names| {
        let others = names.iter().flat_map(|name| ["--skip", name]).collect();
        vec![others, names.to_vec()]
    })
}

/// Builds all test programs. The simulated kernel and the transport move real amounts of data, and are optimized; the tests are not.
fn build() -> Result<Vec<Program>> {
    packages::require(&packages::QEMU)?;
    packages::require(&packages::QEMU_USER)?;
    packages::require(&packages::TAP)?;
    packages::require(&packages::DPDK)?;
    let mut built = Vec::new();
    for workspace in Workspace::ALL {
        let mut cargo = workspace.cargo();
        cargo.args(programs::BUILD).args(workspace.but_drivers()).stderr(Stdio::inherit());
        programs::without_optimization(&mut cargo);
        let output = cargo.output().context("cannot run cargo")?;
        ensure!(output.status.success(), "the tests cannot be built");
        built.extend(programs::in_messages(&String::from_utf8_lossy(&output.stdout))?);
    }
    Ok(built)
}

/// Runs programs, `at_once` at the same time, and prints what each has printed when it ends.
fn run(programs: Vec<Program>, at_once: usize) -> Result<Count> {
    let logs = shell::root().join("target/test/logs");
    fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
    // Tests that cannot run on every machine pass, and add themselves to this file.
    let skipped = logs.join("skipped");
    fs::write(&skipped, "").with_context(|| format!("cannot write {}", skipped.display()))?;
    let captures = capture_folder::directory()?;
    let started = |program: &Program, arguments: &[&str], log: File| {
        let mut command = Command::new(&program.executable);
        command.args(arguments).current_dir(&program.directory).env("CARGO_MANIFEST_DIR", &program.directory);
        command.env(SKIPPED_TESTS, &skipped).env(capture_folder::CAPTURES, &captures);
        // Tests that need an image or QEMU fail without it instead of saying that they were skipped.
        command.env("NTSIM_REQUIRE_IMAGES", "1");
        command.stdin(Stdio::null()).stderr(log.try_clone()?).stdout(log).status()
    };
    let rank = |name: &str| LONGEST.iter().position(|longest| *longest == name).unwrap_or(LONGEST.len());
    let of_parts =
        |program: Program| parts(&program.name()).into_iter().map(move |part| (program.clone(), part));
    let mut runs: Vec<_> = programs.into_iter().flat_map(of_parts).collect();
    runs.sort_by_cached_key(|(program, part)| (rank(&program.name()), program.clone(), part.clone()));
    let counts = jobs::each(&vec![(); at_once], &runs, |(), (program, arguments)| {
        let file = program.executable.file_name().unwrap_or_default().to_string_lossy();
        let log = logs.join([&[&*file], &arguments[..]].concat().join("-").replace(':', "") + ".log");
        let begin = Instant::now();
        let status = started(program, arguments, File::create(&log)?)
            .with_context(|| format!("cannot run {}", program.executable.display()))?;
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        let mut count = Count::default();
        for line in text.lines().filter(|line| is_result(line)) {
            count.add_line(line);
            count.add_ignored(line, &program.name());
        }
        if !status.success() && count.failed == 0 {
            // It has ended before it could say so.
            count.failed = 1;
        }
        let directory = program.directory.strip_prefix(shell::root()).unwrap_or(&program.directory);
        let took = begin.elapsed().as_secs_f64();
        let name = [&[&*program.name()], &arguments[..]].concat().join(" ");
        println!("\n{name} in {} ({status}, {took:.1} s){text}", directory.display());
        Ok(count)
    })?;
    let mut count = Count::default();
    for other in &counts {
        count.add(other);
    }
    count.skip(&fs::read_to_string(&skipped)?);
    ensure!(count.passed + count.failed > 0, "no test ran");
    Ok(count)
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
///
/// # Errors
/// If they count no test.
pub fn count_lines(command: &mut Command, is_result: impl Fn(&str) -> bool) -> Result<Count> {
    let count = count_all(command, is_result)?;
    ensure!(count.passed + count.failed > 0, "no test ran");
    Ok(count)
}

fn count_all(command: &mut Command, is_result: impl Fn(&str) -> bool) -> Result<Count> {
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
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_of_a_program_with_parts_is_in_one_of_them() {
        assert_eq!(parts("cli"), [[""; 0]]);
        let [others, some] = &parts("image")[..] else { panic!("two parts") };
        assert_eq!(others, &["--skip", "adapter::", "--skip", "rdma::"]);
        assert_eq!(some, &["adapter::", "rdma::"]);
    }
}
