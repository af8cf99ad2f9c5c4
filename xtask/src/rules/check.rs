// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask rules --check`: each rule of the contract has code and a test that cite it, each proposal a test or a
//! decision. Exceptions are listed in `xtask/rules.toml` with their reasons.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::{
    document::{self, Evidence, Rules},
    sources::Places,
};
use crate::shell;

const EXCEPTIONS: &str = "xtask/rules.toml";

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Exceptions {
    #[serde(default)]
    except: Vec<Exception>,
}

/// A rule that code cannot cite, because nothing implements it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    rule: String,
    /// No test cites it either: what the rule is about does not arise.
    #[serde(default)]
    tests: bool,
    reason: String,
}

/// Citations that a rule lacks.
#[derive(Debug, PartialEq, Eq)]
enum Fault {
    NoCode(String),
    NoTest(String),
    Undecided(String),
    UselessException(String),
    NoReason(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCode(rule) => write!(f, "{rule}: no code cites it"),
            Self::NoTest(rule) => write!(f, "{rule}: no test cites it"),
            Self::Undecided(rule) => {
                write!(f, "{rule}: no test cites it, and {} has no line on it", document::DECISIONS)
            }
            Self::UselessException(rule) => write!(f, "{rule}: {EXCEPTIONS} excepts it without need"),
            Self::NoReason(rule) => write!(f, "{rule}: {EXCEPTIONS} excepts it without a reason"),
        }
    }
}

/// Prints what rules lack, of one area or of all.
///
/// # Errors
/// A rule that lacks something, or a list of exceptions that cannot be read.
pub fn run(rules: &Rules, cited: &BTreeMap<String, Places>, area: Option<&str>) -> Result<()> {
    let text = fs::read_to_string(shell::root().join(EXCEPTIONS))
        .with_context(|| format!("cannot read {EXCEPTIONS}"))?;
    let exceptions: Exceptions =
        toml::from_str(&text).with_context(|| format!("cannot read {EXCEPTIONS}"))?;
    let faults = faults(rules, cited, &document::decisions()?, &exceptions.except, area);
    for fault in &faults {
        println!("{fault}");
    }
    println!("{} rules are excepted by {EXCEPTIONS}", exceptions.except.len());
    ensure!(faults.is_empty(), "{} rules lack code, a test or a decision", faults.len());
    Ok(())
}

fn faults(
    rules: &Rules,
    cited: &BTreeMap<String, Places>,
    decisions: &BTreeSet<String>,
    exceptions: &[Exception],
    area: Option<&str>,
) -> Vec<Fault> {
    let mut faults = Vec::new();
    let nothing = Places::default();
    let concerns = |rule: &str| area.is_none_or(|area| document::area(rule) == area);
    let exception = |rule: &str| exceptions.iter().find(|except| except.rule == rule);
    for (rule, evidence) in rules.iter().filter(|(rule, _)| concerns(rule)) {
        let places = cited.get(rule).unwrap_or(&nothing);
        let (code, tests) = (!places.code.is_empty(), !places.tests.is_empty());
        match evidence {
            Evidence::Contract => {
                if !code && exception(rule).is_none() {
                    faults.push(Fault::NoCode(rule.clone()));
                }
                if !tests && !exception(rule).is_some_and(|except| except.tests) {
                    faults.push(Fault::NoTest(rule.clone()));
                }
            }
            Evidence::Proposal if !tests && !decisions.contains(rule) => {
                faults.push(Fault::Undecided(rule.clone()));
            }
            Evidence::Proposal => {}
        }
    }
    for Exception { rule, tests, reason } in exceptions.iter().filter(|except| concerns(&except.rule)) {
        let places = cited.get(rule).unwrap_or(&nothing);
        let is_needed = rules.get(rule) == Some(&Evidence::Contract)
            && places.code.is_empty()
            && (!tests || places.tests.is_empty());
        if !is_needed {
            faults.push(Fault::UselessException(rule.clone()));
        }
        if reason.trim().is_empty() {
            faults.push(Fault::NoReason(rule.clone()));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The faults of two rules, one of the contract and a proposal.
    fn found(cited: &[(&str, bool, bool)], decided: &[&str], excepted: &[(&str, &str)]) -> Vec<Fault> {
        let rules = [("R-CQ-1", Evidence::Contract), ("R-QP-2", Evidence::Proposal)];
        let place = |is_cited: bool| if is_cited { vec!["file.rs:1".to_owned()] } else { Vec::new() };
        let cited = cited
            .iter()
            .map(|&(rule, code, tests)| (rule.to_owned(), Places { code: place(code), tests: place(tests) }))
            .collect();
        let exceptions: Vec<_> = excepted
            .iter()
            .map(|&(rule, reason)| {
                let tests = reason.starts_with("does not arise");
                Exception { rule: rule.to_owned(), tests, reason: reason.to_owned() }
            })
            .collect();
        faults(
            &rules.map(|(rule, evidence)| (rule.to_owned(), evidence)).into(),
            &cited,
            &decided.iter().map(|&rule| rule.to_owned()).collect(),
            &exceptions,
            None,
        )
    }

    #[test]
    fn a_rule_of_the_contract_needs_code_and_a_test() {
        let decided = ["R-QP-2"];
        assert_eq!(found(&[("R-CQ-1", true, true)], &decided, &[]), []);
        assert_eq!(found(&[("R-CQ-1", false, true)], &decided, &[]), [Fault::NoCode("R-CQ-1".into())]);
        assert_eq!(found(&[("R-CQ-1", true, false)], &decided, &[]), [Fault::NoTest("R-CQ-1".into())]);
        let both = [Fault::NoCode("R-CQ-1".into()), Fault::NoTest("R-CQ-1".into())];
        assert_eq!(found(&[], &decided, &[]), both);
        // A decision does not replace a test of the contract.
        assert_eq!(found(&[], &["R-QP-2", "R-CQ-1"], &[]), both);
    }

    #[test]
    fn a_proposal_needs_a_test_or_a_decision() {
        let contract = ("R-CQ-1", true, true);
        assert_eq!(found(&[contract, ("R-QP-2", false, true)], &[], &[]), []);
        assert_eq!(found(&[contract], &["R-QP-2"], &[]), []);
        let undecided = [Fault::Undecided("R-QP-2".into())];
        assert_eq!(found(&[contract, ("R-QP-2", true, false)], &[], &[]), undecided);
    }

    #[test]
    fn an_exception_replaces_code_alone_and_needs_a_reason_and_a_use() {
        let decided = ["R-QP-2"];
        let excepted = [("R-CQ-1", "the header says it")];
        assert_eq!(found(&[("R-CQ-1", false, true)], &decided, &excepted), []);
        assert_eq!(found(&[], &decided, &excepted), [Fault::NoTest("R-CQ-1".into())]);
        let absent = [("R-CQ-1", "does not arise")];
        assert_eq!(found(&[], &decided, &absent), []);
        let useless = [Fault::UselessException("R-CQ-1".into())];
        assert_eq!(found(&[("R-CQ-1", false, true)], &decided, &absent), useless);
        assert_eq!(found(&[("R-CQ-1", true, true)], &decided, &excepted), useless);
        let contract = ("R-CQ-1", true, true);
        for rule in ["R-QP-2", "R-MR-9"] {
            let useless = [Fault::UselessException(rule.into())];
            assert_eq!(found(&[contract], &decided, &[(rule, "why")]), useless);
        }
        let unreasoned = [Fault::NoReason("R-CQ-1".into())];
        assert_eq!(found(&[("R-CQ-1", false, true)], &decided, &[("R-CQ-1", " ")]), unreasoned);
    }

    #[test]
    fn a_fault_fails_the_command() {
        let rules = [("R-CQ-1", Evidence::Contract)].map(|(rule, evidence)| (rule.to_owned(), evidence));
        assert!(run(&rules.into(), &BTreeMap::new(), None).is_err());
    }

    #[test]
    fn an_area_is_checked_alone() {
        let rules = [("R-CQ-1", Evidence::Contract), ("R-QP-2", Evidence::Contract)];
        let rules = rules.map(|(rule, evidence)| (rule.to_owned(), evidence)).into();
        let found = faults(&rules, &BTreeMap::new(), &BTreeSet::new(), &[], Some("QP"));
        assert_eq!(found, [Fault::NoCode("R-QP-2".into()), Fault::NoTest("R-QP-2".into())]);
    }
}
