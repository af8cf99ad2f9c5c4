// SPDX-License-Identifier: MIT OR Apache-2.0

//! Results of Python's `unittest`, as its verbose output has them.

use std::fmt;

/// A test that fails, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// `module.Class.test`.
    pub name: &'static str,
    /// Part of the error that it ends with.
    pub error: &'static str,
    pub reason: &'static str,
}

/// A test that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failed {
    /// `module.Class.test`.
    pub name: String,
    /// The last line of its details.
    pub error: String,
}

impl Failed {
    /// Returns why it failed, if that is known.
    fn reason<'a>(&self, known: &'a [Known]) -> Option<&'a Known> {
        known.iter().find(|known| known.name == self.name && self.error.contains(known.error))
    }
}

/// Numbers of tests by their results.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Results {
    pub passed: usize,
    pub skipped: usize,
    pub failed: Vec<Failed>,
    /// The total of the last line, if it was printed.
    pub total: Option<usize>,
}

impl Results {
    /// Reads the results. A line such as `test_a (tests.test_qp.QPTest) ... ok` begins with the name of a test; what the test prints may
    /// stand between it and the result. The details of failures follow, each after a line of `=`.
    pub fn read(text: &str) -> Self {
        let mut results = Self::default();
        let mut name = String::new();
        let mut in_details = false;
        for line in text.lines() {
            if let Some(total) = total(line) {
                results.total = Some(total);
                break;
            }
            in_details |= line.starts_with("=====");
            if in_details {
                results.add_detail(line, &mut name);
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
                results.failed.push(Failed { name: name.clone(), error: String::new() });
            }
        }
        results
    }

    fn add_detail(&mut self, line: &str, name: &mut String) {
        let title = ["ERROR: ", "FAIL: "].into_iter().find_map(|word| line.strip_prefix(word));
        if let Some(of) = title.and_then(name_of) {
            *name = of;
        } else if !line.is_empty()
            && !line.starts_with(['=', '-'])
            && let Some(failed) = self.failed.iter_mut().find(|failed| failed.name == *name)
        {
            line.clone_into(&mut failed.error);
        }
    }

    /// Returns what is wrong with the results: too few tests pass, or one fails that is not known or in another way, or one does not fail
    /// that is said to.
    pub fn fault(&self, passed: usize, known: &[Known], has_ended: bool) -> Option<String> {
        if !has_ended {
            return Some(format!("{self}, no end in time"));
        }
        let Some(total) = self.total else { return Some(format!("{self}, then it crashed")) };
        let unknown = self.failed.iter().filter(|failed| failed.reason(known).is_none());
        let unknown: Vec<String> =
            unknown.map(|failed| format!("{} ({})", failed.name, failed.error)).collect();
        let has_failed = |known: &Known| self.failed.iter().any(|failed| failed.name == known.name);
        let repaired: Vec<&str> =
            known.iter().filter(|known| !has_failed(known)).map(|known| known.name).collect();
        if !unknown.is_empty() {
            Some(format!("{self}: {}", unknown.join(", ")))
        } else if !repaired.is_empty() {
            Some(format!("{self}: known failures that are none: {}", repaired.join(", ")))
        } else if self.passed + self.skipped + self.failed.len() != total {
            Some(format!("{self}, of {total}"))
        } else if self.passed < passed {
            Some(format!("{self}: fewer passed than {passed}"))
        } else {
            None
        }
    }

    /// Returns the names of the tests that fail for a known reason, with it.
    pub fn known(&self, known: &[Known]) -> Vec<String> {
        let reason = |failed: &Failed| {
            let Known { name, reason, .. } = failed.reason(known)?;
            Some(format!("{name}: {reason} ({})", failed.error))
        };
        self.failed.iter().filter_map(reason).collect()
    }
}

/// Returns the number of tests in the last line.
fn total(line: &str) -> Option<usize> {
    line.strip_prefix("Ran ")?.split_once(" test")?.0.parse().ok()
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
Traceback (most recent call last):
  File \"test_cq.py\", line 3, in test_d
OSError: Errno: 22, Invalid argument

======================================================================
FAIL: test_c (tests.test_cq.CQTest)
----------------------------------------------------------------------
AssertionError: 3 != 4

----------------------------------------------------------------------
Ran 4 tests in 1.2s
";

    const KNOWN: [Known; 2] = [
        Known { name: "test_cq.CQTest.test_c", error: "3 != 4", reason: "it counts otherwise" },
        Known { name: "test_cq.CQTest.test_d", error: "Errno: 22", reason: "refused" },
    ];

    #[test]
    fn results_are_read_from_verbose_output() {
        let results = Results::read(OUTPUT);
        let failed = [
            ("test_cq.CQTest.test_c", "AssertionError: 3 != 4"),
            ("test_cq.CQTest.test_d", "OSError: Errno: 22, Invalid argument"),
        ];
        let failed =
            failed.map(|(name, error)| Failed { name: name.to_owned(), error: error.to_owned() }).to_vec();
        assert_eq!(results, Results { passed: 1, skipped: 1, failed, total: Some(4) });
        assert_eq!(results.to_string(), "1 passed, 2 failed, 1 skipped");
        let known = results.known(&KNOWN[1..]);
        assert_eq!(known, ["test_cq.CQTest.test_d: refused (OSError: Errno: 22, Invalid argument)"]);
    }

    #[test]
    fn what_fails_without_a_reason_is_a_fault() {
        let results = Results::read(OUTPUT);
        let fault = |known: &[Known]| results.fault(1, known, true).unwrap();
        assert_eq!(results.fault(1, &KNOWN, true), None);
        assert!(fault(&KNOWN[..1]).contains(": test_cq.CQTest.test_d (OSError"));
        let [first, mut second] = KNOWN;
        second.error = "Errno: 1,";
        assert!(fault(&[first, second]).contains("Errno: 22"), "it fails in another way");
        second = KNOWN[1];
        let other = Known { name: "test_cq.CQTest.test_e", ..second };
        assert!(fault(&[first, second, other]).ends_with("that are none: test_cq.CQTest.test_e"));
        assert!(results.fault(2, &KNOWN, true).unwrap().ends_with("fewer passed than 2"));
        let other = Results { total: Some(5), ..Results::read(OUTPUT) };
        assert!(other.fault(1, &KNOWN, true).unwrap().ends_with(", of 5"));
        let cut = Results::read(&OUTPUT[..60]);
        assert!(cut.fault(0, &[], true).unwrap().ends_with("then it crashed"));
        assert!(cut.fault(0, &[], false).unwrap().ends_with("no end in time"));
    }
}
