// SPDX-License-Identifier: MIT OR Apache-2.0

//! Numbers of tests: of a step, and the sums in the last line.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Tests of a step; a step without a test runner counts as one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
    /// Test programs of which tests were skipped.
    pub programs: BTreeSet<String>,
}

impl Count {
    /// Of a step that passes as a whole.
    pub const WHOLE: Self = Self { passed: 1, failed: 0, skipped: 0, programs: BTreeSet::new() };

    /// Of a step that fails as a whole.
    pub const FAILED: Self = Self { passed: 0, failed: 1, skipped: 0, programs: BTreeSet::new() };

    /// Of a check that this machine cannot run.
    pub const SKIPPED: Self = Self { passed: 0, failed: 0, skipped: 1, programs: BTreeSet::new() };

    /// Of tests that passed.
    pub const fn passed(passed: usize) -> Self {
        Self { passed, failed: 0, skipped: 0, programs: BTreeSet::new() }
    }

    pub fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.programs.extend(other.programs.iter().cloned());
    }

    /// Adds the numbers of a result line, such as "ok. 8 passed; 0 failed;" or "27 passed, 0 failed, 2 skipped".
    pub fn add_line(&mut self, line: &str) {
        self.passed += number_before(line, " passed");
        self.failed += number_before(line, " failed");
        self.skipped += number_before(line, " skipped");
    }

    /// Counts the tests that a result line calls ignored as skipped, under the name of their program.
    pub fn add_ignored(&mut self, line: &str, program: &str) {
        let ignored = number_before(line, " ignored");
        if ignored > 0 {
            println!("skipped: {program}: {ignored} ignored");
            self.skipped += ignored;
            self.programs.insert(program.to_owned());
        }
    }

    /// Counts tests that have passed because they cannot run here as skipped, and prints them: lines of program, test and reason.
    pub fn skip(&mut self, lines: &str) {
        for line in lines.lines().collect::<BTreeSet<_>>() {
            println!("skipped: {line}");
            self.passed = self.passed.saturating_sub(1);
            self.skipped += 1;
            self.programs.extend(line.split_whitespace().next().map(str::to_owned));
        }
    }

    pub const fn mark(&self) -> &'static str {
        match self {
            Self { failed: 1.., .. } => "FAIL",
            Self { passed: 0, skipped: 1.., .. } => "skip",
            _ => "ok  ",
        }
    }
}

/// Returns the sums over all steps, with the names of those of which something was skipped.
pub fn sums<'a>(counts: impl IntoIterator<Item = (&'a str, &'a Count)>) -> String {
    let mut total = Count::default();
    let mut names = Vec::new();
    for (name, count) in counts {
        total.add(count);
        let programs: Vec<&str> = count.programs.iter().map(String::as_str).collect();
        match (count.skipped, programs.is_empty()) {
            (0, _) => {}
            (_, true) => names.push(name.to_owned()),
            (_, false) => names.push(format!("{name} ({})", programs.join(", "))),
        }
    }
    let text = format!("{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped);
    if names.is_empty() { text } else { format!("{text}: {}", names.join(", ")) }
}

/// Returns the number before `what` in a line.
fn number_before(line: &str, what: &str) -> usize {
    let before = line.split_once(what).map_or("", |(before, _)| before);
    before.rsplit(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_of_which_something_is_skipped_is_named_in_the_sums() {
        let lints = Count::WHOLE;
        assert_eq!(sums([("lints", &lints)]), "1 passed, 0 failed, 0 skipped");
        let mut both = Count::WHOLE;
        both.add(&Count::SKIPPED);
        let counts = [("lints", &lints), ("Miri", &Count::SKIPPED), ("licenses", &both)];
        assert_eq!(sums(counts), "2 passed, 0 failed, 2 skipped: Miri, licenses");
    }

    #[test]
    fn mark_is_that_of_the_worst_test() {
        let mut both = Count::WHOLE;
        both.add(&Count::SKIPPED);
        assert_eq!((Count::WHOLE.mark(), Count::SKIPPED.mark(), both.mark()), ("ok  ", "skip", "ok  "));
        both.add(&Count::FAILED);
        assert_eq!(both.mark(), "FAIL");
    }

    #[test]
    fn tests_that_cannot_run_here_are_counted_as_skipped_under_the_name_of_their_program() {
        let mut count = Count::passed(10);
        count.skip("real_time one: no tap\nreal_time two: no tap\nreal_time one: no tap\n");
        assert_eq!((count.passed, count.skipped, count.mark()), (8, 2, "ok  "));
        assert_eq!(sums([("tests", &count)]), "8 passed, 0 failed, 2 skipped: tests (real_time)");
    }

    #[test]
    fn ignored_tests_are_skipped_tests_of_their_program() {
        let mut count = Count::default();
        for line in [
            "test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured",
            "ok. 2 passed; 0 failed; 3 ignored;",
        ] {
            count.add_line(line);
            count.add_ignored(line, "simulation");
        }
        assert_eq!(sums([("tests", &count)]), "6 passed, 0 failed, 3 skipped: tests (simulation)");
    }

    #[test]
    fn counts_are_read_from_the_lines_of_test_runners() {
        let mut count = Count::default();
        count.add_line(
            "FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        );
        assert_eq!(count, Count { passed: 12, failed: 3, ..Count::default() });
        count.add_line("27 passed, 1 failed, 2 skipped");
        assert_eq!(count, Count { passed: 39, failed: 4, skipped: 2, ..Count::default() });
    }
}
