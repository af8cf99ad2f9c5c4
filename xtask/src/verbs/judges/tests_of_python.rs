// SPDX-License-Identifier: MIT OR Apache-2.0

//! Results of Python's `unittest`, as its verbose output has them.

use std::fmt;

/// Numbers of tests by their results.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Results {
    pub passed: usize,
    pub skipped: usize,
    /// Names of those that failed: `module.Class.test`.
    pub failed: Vec<String>,
    /// Whether the last line with the total was printed.
    pub is_complete: bool,
}

impl Results {
    /// Reads the results. A line such as `test_a (tests.test_qp.QPTest) ... ok` begins with the name of a test; what the test prints may
    /// stand between it and the result.
    pub fn read(text: &str) -> Self {
        let mut results = Self::default();
        let mut name = String::new();
        for line in text.lines() {
            if line.starts_with("Ran ") && line.contains(" tests in ") {
                results.is_complete = true;
                break;
            }
            if line.starts_with("=====") {
                // The details of failures, with the names again.
                continue;
            }
            if let Some(of) = name_of(line) {
                name = of;
            }
            let end = line.rsplit(" ... ").next().unwrap_or(line);
            if end == "ok" || line.ends_with("... ok") {
                results.passed += 1;
            } else if end.starts_with("skipped ") {
                results.skipped += 1;
            } else if end == "FAIL" || end == "ERROR" {
                results.failed.push(name.clone());
            }
        }
        results
    }

    /// Returns what is wrong with the results: too few tests pass, or one fails that is not known.
    pub fn fault(&self, passed: usize, known: &[(&str, &str)], has_ended: bool) -> Option<String> {
        let is_known = |name: &String| known.iter().any(|(begin, _)| name.starts_with(begin));
        let unknown: Vec<&str> =
            self.failed.iter().filter(|name| !is_known(name)).map(String::as_str).collect();
        if !has_ended {
            Some(format!("{self}, no end in time"))
        } else if !self.is_complete {
            Some(format!("{self}, then it crashed"))
        } else if !unknown.is_empty() {
            Some(format!("{self}: {}", unknown.join(", ")))
        } else if self.passed < passed {
            Some(format!("{self}: fewer passed than {passed}"))
        } else {
            None
        }
    }
}

/// Returns the name of the test that a line begins with.
fn name_of(line: &str) -> Option<String> {
    let (test, rest) = line.split_once(" (tests.")?;
    let (class, _) = rest.split_once(')')?;
    // Newer versions of Python repeat the test within the parentheses.
    let class = class.strip_suffix(&format!(".{test}")).unwrap_or(class);
    let is_name = test.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then(|| format!("{class}.{test}"))
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, skipped, failed, .. } = self;
        write!(f, "{passed} passed, {} failed, {skipped} skipped", failed.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
test_a (tests.test_qp.QPTest.test_a) ... ok
test_b (tests.test_qp.QPTest)
Says what it tests. ... skipped 'no device'
test_c (tests.test_cq.CQTest) ... a line of the test
FAIL
test_d (tests.test_cq.CQTest.test_d) ... ERROR

======================================================================
ERROR: test_d (tests.test_cq.CQTest.test_d)
----------------------------------------------------------------------
Ran 4 tests in 1.2s
";

    #[test]
    fn results_are_read_from_verbose_output() {
        let results = Results::read(OUTPUT);
        let failed = vec!["test_cq.CQTest.test_c".to_owned(), "test_cq.CQTest.test_d".to_owned()];
        assert_eq!(results, Results { passed: 1, skipped: 1, failed, is_complete: true });
        assert_eq!(results.to_string(), "1 passed, 2 failed, 1 skipped");
    }

    #[test]
    fn what_fails_without_a_reason_is_a_fault() {
        let results = Results::read(OUTPUT);
        assert_eq!(results.fault(1, &[("test_cq.CQTest", "a reason")], true), None);
        let unknown = results.fault(1, &[("test_cq.CQTest.test_c", "a reason")], true).unwrap();
        assert!(unknown.ends_with(": test_cq.CQTest.test_d"), "{unknown}");
        assert!(results.fault(2, &[("test_cq", "")], true).unwrap().ends_with("fewer passed than 2"));
        let cut = Results::read(&OUTPUT[..60]);
        assert!(cut.fault(0, &[], true).unwrap().ends_with("then it crashed"));
        assert!(cut.fault(0, &[], false).unwrap().ends_with("no end in time"));
    }
}
