// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tests of a guard: each runs in a process of its own, with the mutants that are active.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::{Command, Stdio},
    sync::Mutex,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use super::{
    groups::{self, Run},
    outcome::Outcome,
    switch::Control,
};
use crate::{
    jobs::{self, locked},
    programs::Program,
    shell,
};

/// With a mutant, a test may take as many times as long as without, and [`GRACE`] besides.
const SLOWDOWN: u32 = 8;
const GRACE: Duration = Duration::from_secs(4);
/// The longest time of a test without a mutant.
const LONGEST: Duration = Duration::from_secs(900);
/// How often a test that fails without a mutant is run before it counts as failed. It is repeated as often with a mutant.
const ATTEMPTS: usize = 3;
/// The exit codes of `timeout` for a program that it ended, and killed.
const TIMED_OUT: [Option<i32>; 2] = [Some(124), Some(137)];

/// How long the tests of a mutant run with it alone. One that they do not catch is tested together with others.
const ALONE: Duration = Duration::from_secs(15);
/// Letters that two words have in common at least.
const COMMON: usize = 4;
/// Words of mutants' names that say nothing about their place.
const CHANGES: [&str; 4] = ["delete", "statement", "replace", "with"];

/// A test, as it runs without a mutant.
struct Test {
    program: usize,
    name: String,
    time: Duration,
    /// The mutants that it executes.
    reached: BTreeSet<usize>,
    /// It fails now and then without a mutant.
    flaky: bool,
}

/// The tests of a guard.
pub struct Suite<'a> {
    programs: &'a [Program],
    tests: Vec<Test>,
    /// How many mutants of a file each test has caught: the next one of the file is likely to be caught by the same.
    caught: Mutex<BTreeMap<(String, usize), usize>>,
}

impl<'a> Suite<'a> {
    /// Runs all tests without a mutant, as many at a time as there are controls. One that fails is repeated, at most
    /// [`ATTEMPTS`] times in all.
    ///
    /// # Errors
    /// If one fails each time.
    pub fn measure(programs: &'a [Program], controls: &[Control]) -> Result<Self> {
        let mut this = Self { programs, tests: Vec::new(), caught: Mutex::default() };
        let mut named = Vec::new();
        for (number, program) in programs.iter().enumerate() {
            named.extend(names(program)?.into_iter().map(|name| (number, name)));
        }
        let measured = jobs::each(controls, &named, |control, (program, name)| {
            this.measure_test(control, *program, name.clone())
        })?;
        let mut failed = Vec::new();
        for (test, has_passed) in measured {
            if !has_passed {
                failed.push(this.display(&test));
            }
            this.tests.push(test);
        }
        ensure!(failed.is_empty(), "tests fail without a mutant:\n{}", failed.join("\n"));
        Ok(this)
    }

    /// Runs one test without a mutant. Returns whether it has passed at last.
    fn measure_test(&self, control: &Control, program: usize, name: String) -> Result<(Test, bool)> {
        let mut test = Test { program, name, time: Duration::ZERO, reached: BTreeSet::new(), flaky: false };
        control.set(&[])?;
        let mut has_passed = false;
        for attempt in 1..=ATTEMPTS {
            let begin = Instant::now();
            has_passed = self.run(control, &test, LONGEST)? == Outcome::Survived;
            test.time = test.time.max(begin.elapsed());
            test.flaky |= !has_passed;
            if has_passed {
                break;
            }
            if attempt < ATTEMPTS {
                eprintln!("fails without a mutant, is repeated: {}", self.display(&test));
            }
        }
        test.reached = control.reached()?;
        Ok((test, has_passed))
    }

    /// Returns the program and the name of a test.
    fn display(&self, test: &Test) -> String {
        format!("{} {}", self.programs[test.program].executable.display(), test.name)
    }

    /// The number of tests, and the time that they take.
    pub fn totals(&self) -> (usize, Duration) {
        (self.tests.len(), self.tests.iter().map(|test| test.time).sum())
    }

    /// Runs the tests that execute mutant `number`, which has a name and a file, with it alone, until one fails. Returns the name of that test; or `None` if tests are left
    /// after some time. Short tests come first, earlier still if they caught others of the file, or have names like the mutant's.
    pub fn test_alone(
        &self,
        control: &Control,
        number: usize,
        file: &str,
        name: &str,
    ) -> Result<Option<(Outcome, Option<&str>)>> {
        let mut tests = self.reaching(&[number]);
        if tests.is_empty() {
            return Ok(Some((Outcome::NotReached, None)));
        }
        {
            let caught = locked(&self.caught);
            let successes = |test: usize| caught.get(&(file.to_owned(), test)).copied().unwrap_or(0);
            let words = words(name);
            tests.sort_by_cached_key(|test| {
                let promise = 1 + 4 * successes(*test) + 2 * common(&words, &self.tests[*test].name);
                self.tests[*test].time / u32::try_from(promise).unwrap_or(u32::MAX)
            });
        }
        let begin = Instant::now();
        for at in tests {
            if begin.elapsed() > ALONE {
                return Ok(None);
            }
            let Run { outcome, .. } = self.run_with(control, &self.tests[at], &[number])?;
            if outcome != Outcome::Survived {
                let mut caught = locked(&self.caught);
                *caught.entry((file.to_owned(), at)).or_default() += 1;
                return Ok(Some((outcome, Some(&self.tests[at].name))));
            }
        }
        Ok(Some((Outcome::Survived, None)))
    }

    /// Runs the tests that execute any of some mutants, with all of them. Calls `caught` with each that fails alone, and with the name
    /// of the test.
    pub fn test_together(
        &self,
        control: &Control,
        mutants: &[usize],
        mut caught: impl FnMut(usize, Outcome, &str),
    ) -> Result<()> {
        let mut groups = vec![mutants.to_vec()];
        for at in self.reaching(mutants) {
            let test = &self.tests[at];
            let mut left = Vec::new();
            for group in groups {
                let (reached, others): (Vec<_>, Vec<_>) =
                    group.into_iter().partition(|number| test.reached.contains(number));
                let mut settled = groups::settle(
                    reached,
                    &mut |active| self.run_with(control, test, active),
                    &mut |number, outcome| caught(number, outcome, &test.name),
                )?;
                match settled.first_mut() {
                    Some(first) => first.extend(others),
                    None => settled.push(others),
                }
                left.extend(settled.into_iter().filter(|group| !group.is_empty()));
            }
            groups = left;
        }
        Ok(())
    }

    /// Returns the tests that execute any of some mutants, the shortest first.
    fn reaching(&self, mutants: &[usize]) -> Vec<usize> {
        let mut tests: Vec<usize> = (0..self.tests.len())
            .filter(|test| mutants.iter().any(|number| self.tests[*test].reached.contains(number)))
            .collect();
        tests.sort_by_key(|test| self.tests[*test].time);
        tests
    }

    /// Runs one test with mutants. One that fails without, too, has to fail each time.
    fn run_with(&self, control: &Control, test: &Test, mutants: &[usize]) -> Result<Run> {
        let attempts = if test.flaky { ATTEMPTS } else { 1 };
        let mut outcome = Outcome::Survived;
        control.set(mutants)?;
        for _ in 0..attempts {
            outcome = self.run(control, test, test.time * SLOWDOWN + GRACE)?;
            if outcome == Outcome::Survived {
                break;
            }
        }
        Ok(Run { outcome, reached: control.reached()? })
    }

    /// Runs one test with the mutants that are active.
    fn run(&self, control: &Control, test: &Test, limit: Duration) -> Result<Outcome> {
        let Program { executable, directory } = &self.programs[test.program];
        let mut command = control.command();
        command.args(["timeout", "--kill-after=1", &limit.as_secs().to_string()]).arg(executable);
        command.args([&test.name, "--exact", "--test-threads=1", "--quiet"]);
        command.current_dir(directory).envs(environment(directory));
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        Ok(match status.context("cannot run a test")?.code() {
            Some(0) => Outcome::Survived,
            code if TIMED_OUT.contains(&code) => Outcome::TimedOut,
            _ => Outcome::Caught,
        })
    }
}

/// Returns the words of a name that are long enough to be compared.
fn words(name: &str) -> BTreeSet<String> {
    let words = name.split(|letter: char| !letter.is_alphanumeric());
    words.filter(|word| word.len() >= COMMON && !CHANGES.contains(word)).map(str::to_lowercase).collect()
}

/// Returns how many of `words` a test's name has, as the start of a word or as its whole.
fn common(words: &BTreeSet<String>, name: &str) -> usize {
    let others = self::words(name);
    let is_common =
        |word: &&String| others.iter().any(|other| other.starts_with(*word) || word.starts_with(other));
    words.iter().filter(is_common).count()
}

/// The environment of tests: images are required, and snapshots are compared only.
fn environment(directory: &Path) -> impl Iterator<Item = (&str, &str)> {
    let directory = directory.to_str().unwrap_or_default();
    [
        ("NTSIM_REQUIRE_IMAGES", "1"),
        ("INSTA_UPDATE", "no"),
        ("INSTA_FORCE_PASS", "0"),
        ("CARGO_MANIFEST_DIR", directory),
    ]
    .into_iter()
}

/// Returns the names of a program's tests.
fn names(program: &Program) -> Result<Vec<String>> {
    let mut command = Command::new(&program.executable);
    command.args(["--list", "--format", "terse"]).current_dir(&program.directory);
    let list = shell::output(&mut command)?;
    Ok(list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

#[cfg(all(test, unix))]
mod tests {
    use std::{fs, io::Write as _};

    use super::*;
    use crate::mutants::switch::{DESCRIPTOR, Switch};

    /// Writes an executable file by a process of its own: while another thread starts a program, its child has the files that
    /// this process has open, and one that is open for writing cannot be executed.
    fn write_program(directory: &Path, script: &str) -> Result<()> {
        let mut shell = Command::new("sh");
        shell.args(["-c", "cat > program && chmod +x program"]).current_dir(directory).stdin(Stdio::piped());
        let mut shell = shell.spawn()?;
        let mut input = shell.stdin.take().context("no input")?;
        input.write_all(script.as_bytes())?;
        drop(input);
        ensure!(shell.wait()?.success(), "the program cannot be written");
        Ok(())
    }

    /// Measures the one test of a test program, a shell script that ends with `body`, then tests mutant 1, which it reaches.
    /// Returns the outcome and the number of runs.
    fn outcome(body: &str) -> Result<(Outcome, usize)> {
        let directory = tempfile::tempdir()?;
        let directory = directory.path();
        let executable = directory.join("program");
        // Byte 65537 of the control file says that mutant 1 was reached.
        let script = format!(
            "#!/bin/sh\n[ $1 = --list ] && echo 'one: test' && exit\necho >>count\nruns=$(wc -l <count)\n\
             printf '\\001' | dd of=/proc/self/fd/{DESCRIPTOR} bs=1 seek=65537 conv=notrunc status=none\n{body}\n"
        );
        write_program(directory, &script)?;
        let switch = Switch::make(directory, 1, 1)?;
        let programs = [Program { executable, directory: directory.to_path_buf() }];
        let controls = switch.controls();
        let suite = Suite::measure(&programs, controls)?;
        let (outcome, _) = suite.test_alone(&controls[0], 1, "a.rs", "a")?.context("no time")?;
        let runs = fs::read_to_string(directory.join("count"))?.lines().count();
        Ok((outcome, runs))
    }

    #[test]
    fn a_test_that_fails_without_a_mutant_is_repeated_without_and_with_it() {
        assert_eq!(outcome("exit 0").unwrap(), (Outcome::Survived, 2));
        assert_eq!(outcome("[ $runs = 1 ]").unwrap(), (Outcome::Caught, 2));
        // Fails once, then passes: with a mutant it is repeated until it passes.
        assert_eq!(outcome("[ $runs != 1 ]").unwrap(), (Outcome::Survived, 3));
        assert_eq!(outcome("[ $runs != 1 ] && [ $runs != 3 ]").unwrap(), (Outcome::Survived, 4));
        assert_eq!(outcome("[ $runs = 2 ]").unwrap(), (Outcome::Caught, 5));
    }

    #[test]
    fn a_mutant_that_is_caught_among_others_is_named() {
        // Reaches mutants 1 to 3, and fails if mutant 2 is active.
        let script = format!(
            "#!/bin/sh\n[ $1 = --list ] && echo 'one: test' && exit\nfile=/proc/self/fd/{DESCRIPTOR}\n\
             printf '\\001\\001\\001' | dd of=$file bs=1 seek=65537 conv=notrunc status=none\n\
             [ \"$(dd if=$file bs=1 skip=2 count=1 status=none | od -An -tu1)\" -eq 0 ]\n"
        );
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        write_program(directory, &script).unwrap();
        let switch = Switch::make(directory, 3, 1).unwrap();
        let programs =
            [Program { executable: directory.join("program"), directory: directory.to_path_buf() }];
        let suite = Suite::measure(&programs, switch.controls()).unwrap();
        let mut caught = Vec::new();
        let note = |number, outcome, test: &str| caught.push((number, outcome, test.to_owned()));
        suite.test_together(&switch.controls()[0], &[1, 2, 3], note).unwrap();
        assert_eq!(caught, [(2, Outcome::Caught, "one".to_owned())]);
    }

    #[test]
    fn tests_with_names_like_the_mutants_come_first() {
        let words = words("src/events/limits.rs:68:9: delete statement in <impl Drop for Limits>::drop");
        let alike = |name| common(&words, name);
        assert_eq!(alike("adapter::events::a_storm_of_events_is_bounded"), 1);
        assert_eq!(alike("adapter::events::a_limit_of_events"), 2);
        assert_eq!(alike("ethernet::poll::each_packet"), 0);
        assert_eq!(alike("adapter::a_statement_with_deleted_rows"), 0);
    }

    #[test]
    fn tests_that_fail_each_time_without_a_mutant_end_the_measurement() {
        let error = outcome("exit 1").unwrap_err().to_string();
        assert!(
            error.starts_with("tests fail without a mutant:") && error.ends_with("program one"),
            "{error}"
        );
    }
}
